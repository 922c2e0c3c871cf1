"""Translates a text file line by line; with --pairs originals and translations become a parallel set to train on.

python -m vmsst_jax.translate --checkpoint=DIR --input=FILE --source=en --target=de --output=OUT --pairs=OUT.tsv
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.translate"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and calls ``translation.files.translate_file``."""
    args = parser().parse_args(argv)

    from vmsst_jax import runtime
    from vmsst_jax.models.generation import Decoding
    from vmsst_jax.retrieval import lines
    from vmsst_jax.translation import files, translator

    decoding = Decoding(args.beams, args.length_penalty, args.sample, args.temperature)
    files.check_output(args.output, args.pairs, args.input, args.overwrite)
    text = lines.scan(args.input)
    runtime.start()
    options = {"decoding": decoding, "batch_tokens": args.batch_tokens, "seed": args.seed}
    if args.max_length:
        options["max_length"] = args.max_length
    model = translator.load(args.checkpoint, args.step, **options)
    about = files.translate_file(
        model, text, args.output, args.source, args.target, pairs=args.pairs, overwrite=args.overwrite
    )
    print(
        f"{args.output}: {about['rows']:,} lines, {about['empty']:,} empty, {about['truncated']:,} cut to "
        f"{model.max_length} pieces, {about['tokens']:,} tokens written"
        + (f"; {args.pairs}: {about['pairs']['rows']:,} pairs" if args.pairs else "")
    )


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    flags = command.parser(
        NAME,
        "Translates a text file by a translation model that vmsst_jax.train made: OUT has the translation of line i in "
        "line i, OUT.json says how. An interrupted run goes on where it stopped.",
    )
    add = flags.add_argument
    add(
        "--checkpoint",
        required=True,
        metavar="DIR",
        help="a model directory, its checkpoints folder or one step folder",
    )
    add("--step", type=command.step, help="a step number or `best`; without it the last checkpoint")
    add("--input", required=True, metavar="FILE", help="UTF-8 text, one sentence per line; may have empty ones")
    add("--source", required=True, metavar="CODE", help="language of the input")
    add("--target", required=True, metavar="CODE", help="language to translate into")
    add("--output", required=True, metavar="OUT", help="for the translations")
    add("--pairs", metavar="OUT.tsv", help="for originals and translations together, see tasks/synthetic_pairs.py")
    add("--overwrite", action="store_true", help="replace existing outputs")
    add("--beams", type=command.positive, default=1, metavar="K", help="hypotheses followed (%(default)s: greedy)")
    add(
        "--length_penalty",
        type=float,
        default=1.0,
        metavar="P",
        help="of beams: hypotheses are compared by log p / length^P (%(default)s)",
    )
    add("--sample", action="store_true", help="draw every token at random instead")
    add("--temperature", type=float, default=1.0, metavar="T", help="of the draws (%(default)s)")
    add("--seed", type=command.natural, default=0, metavar="N", help="of the draws (%(default)s)")
    add(
        "--max_length",
        type=command.positive,
        metavar="PIECES",
        help="longer sentences are cut to this many pieces; without it the checkpoint's own limit",
    )
    add("--batch_tokens", type=command.positive, metavar="N", help="tokens per device call; without it what suits it")
    return flags


if __name__ == "__main__":
    command.run(NAME, main)
