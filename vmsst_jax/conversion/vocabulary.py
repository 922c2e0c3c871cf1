"""Token tables and tokenizers of different sizes: which may go together, and what is said about it."""

from __future__ import annotations


def fit_vocabulary(config: dict, shapes: dict, tokenizer) -> list[str]:
    """Takes the number of rows from the token table itself; returns what there is to say about it."""
    part = config[config["backbone"]]
    ends = ("word_embeddings.weight", "shared.weight", "embed_tokens.weight")
    tables = [shape for end in ends for name, shape in shapes.items() if name.endswith(end)]
    tables += [shape for name, shape in shapes.items() if name.removeprefix("transformer.") == "embeddings.weight"]
    rows, notes = (tables[0][0] if tables else part["vocab_size"]), []
    if rows != part["vocab_size"]:
        notes.append(
            f"the token table has {rows:,} rows where config.json says {part['vocab_size']:,}: the table counts"
        )
        part["vocab_size"] = rows
    return notes + check_vocabulary(rows, tokenizer)


def check_vocabulary(rows: int, tokenizer) -> list[str]:
    """ValueError where a piece has no row; a note where rows have no piece (they are kept, nothing reaches them)."""
    if tokenizer.vocab_size > rows:
        raise ValueError(
            f"the tokenizer has {tokenizer.vocab_size:,} pieces and the token table {rows:,} rows: they do not belong "
            "together. Give the model's own with --tokenizer"
        )
    spare = rows - tokenizer.vocab_size
    return [f"{rows:,} rows for {tokenizer.vocab_size:,} pieces: the last {spare:,} stay unused"] if spare else []
