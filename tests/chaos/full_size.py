"""The recipe of the paper's size, umse_xlm100.gin, from files to report by small models.

    python tests/chaos/full_size.py [--folder=DIR] [--gin.NAME=VALUE ...]

Every stage runs by its own command, on files in the forms that the recipe's head asks for, made here: messages of
installed packages for news and test sets, fastBPE's codes and vocabulary learned on them, a random XLM as Hugging Face
has it. The token table is larger than the vocabulary, as the recipe's is. Prints the stages' seconds. What comes out
means nothing, but that it comes out.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from sacremoses import MosesTokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

LANGUAGES = ("en", "de", "cs", "es", "fr", "ru")
PAIR = LANGUAGES[:2]
CODES = 1500
RECIPE = """
include "umse_xlm100.gin"
pipeline.changes = {
    "first_words": {"flags": {"dim": 20, "min_count": 2}},
    "second_words": {"flags": {"dim": 20, "min_count": 2}},
    "word_mapping": {"flags": {"start": "identical", "words": 300}},
    "language_model": {
        "bindings": {
            "BertConfig.vocab_size": 2000,
            "BertConfig.embed_dim": 32,
            "BertConfig.mlp_dim": 64,
            "BertConfig.num_layers": 2,
            "MaskedText.length": 64,
            "MaskedText.batch_size": 16,
            "TRAIN_STEPS": 30,
            "Rhythm.evaluate_every": 15,
        },
    },
    "translation": {
        "bindings": {
            "TRAIN_STEPS": 20,
            "DENOISING_TOKENS": 1000,
            "ROUND_TRIPS": 16,
            "MAX_PIECES": 30,
            "Rhythm.evaluate_every": 10,
            "Rhythm.save_every": 10,
        },
    },
    # A model that has hardly learned would write nothing.
    "first_to_second": {"flags": {"sample": True}},
    "second_to_first": {"flags": {"sample": True}},
    "tlm": {"bindings": {"TRAIN_STEPS": 40}},
}
"""


def run(command: str, *flags: str) -> None:
    """A command of ours, whose end by an error ends this script."""
    subprocess.run([sys.executable, "-m", f"vmsst_jax.{command}", *flags], check=True)


def bindings(**values: object) -> list[str]:
    return [f"--gin.{name}={value!r}" for name, value in values.items()]


def news(folder: pathlib.Path) -> None:
    """``news``: text to learn from, test sets, sentences to translate; ``data/newstest``: six languages' test sets."""
    text = folder / "text"
    run("text", f"--output={text}", f"--languages={','.join(LANGUAGES)}", f"--apart={','.join(PAIR)}")
    (folder / "news").mkdir()
    (folder / "data" / "newstest").mkdir(parents=True)
    for lang in LANGUAGES:
        for name, test_set in (("val", "newstest2012"), ("test", "newstest2013")):
            shutil.copy(text / f"{name}.{lang}", folder / "data" / "newstest" / f"{test_set}.{lang}")
    for lang in PAIR:
        for name, wanted in (("train", "train"), ("val", "newstest2013"), ("test", "newstest2014")):
            shutil.copy(text / f"{name}.{lang}", folder / "news" / f"{wanted}.{lang}")
        lines = (text / f"train.{lang}").read_text("utf-8").splitlines(keepends=True)
        (folder / "news" / f"news2018.{lang}").write_text("".join(lines[:200]), "utf-8")


def codes(folder: pathlib.Path) -> None:
    """``codes`` and ``vocab`` as fastBPE's learnbpe and getvocab print them."""
    moses = MosesTokenizer("en")
    lines = [line for lang in PAIR for line in (folder / "news" / f"train.{lang}").read_text("utf-8").splitlines()]
    tokens = [moses.tokenize(line, return_str=True, escape=False) for line in lines]
    learned = Tokenizer(models.BPE(end_of_word_suffix="</w>"))
    learned.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    options = {"vocab_size": CODES, "end_of_word_suffix": "</w>", "show_progress": False}
    learned.train_from_iterator(tokens, trainers.BpeTrainer(**options))
    merges = json.loads(learned.to_str())["model"]["merges"]
    (folder / "codes").write_text("".join(f"{a} {b} {len(merges) - i}\n" for i, (a, b) in enumerate(merges)), "utf-8")
    counts = collections.Counter(piece for line in tokens for piece in learned.encode(line).tokens)
    words = ((p.removesuffix("</w>") if p.endswith("</w>") else f"{p}@@", n) for p, n in counts.most_common())
    (folder / "vocab").write_text("".join(f"{word} {n}\n" for word, n in words), "utf-8")


def xlm(folder: pathlib.Path) -> None:
    """``xlm``: a random XLM of 16 layers, as the recipe's has, in Hugging Face's form."""
    sizes = {"vocab_size": 2000, "embed_dim": 32, "mlp_dim": 128, "num_layers": 16}
    files = {"CODES": f"{folder}/codes", "VOCABULARY": f"{folder}/vocab", "CACHE": f"{folder}/tokens"}
    places = {"MODEL_DIR": f"{folder}/random", "DATA_DIR": str(folder / "text"), **files}
    run(
        "train", "--gin_file=umt_base_mlm.gin", *bindings(**places, TRAIN_STEPS=0),
        *bindings(**{f"BertConfig.{name}": size for name, size in sizes.items()}),
        *bindings(**{"encoder_model.language_embeddings": False, "MaskedText.batch_size": 8}),
    )  # fmt: skip
    run("convert", f"--input={folder}/random", f"--output={folder}/xlm", "--to=hf")


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--folder", type=pathlib.Path)
    args, rest = flags.parse_known_args()
    folder = args.folder or pathlib.Path(tempfile.mkdtemp(prefix="full-size-"))
    folder.mkdir(parents=True, exist_ok=True)
    news(folder)
    codes(folder)
    xlm(folder)
    (folder / "small.gin").write_text(RECIPE, "utf-8")
    output = folder / "out"
    places = {"NEWS": "news", "XLM": "xlm", "CODES": "codes", "BPE_VOCABULARY": "vocab", "DATA_DIR": "data"}
    given = bindings(OUTPUT=str(output), **{name: str(folder / place) for name, place in places.items()})
    run("pipeline", f"--gin_file={folder}/small.gin", *given, *rest)
    report = (output / "report.md").read_text("utf-8")
    done = {file.stem: json.loads(file.read_text("utf-8")) for file in output.glob("*.json")}
    print("| stage | seconds |\n|---|---|")
    for stage, record in done.items():
        print(f"| {stage} | {record['seconds']:.0f} |")
    lacking = [name for name in ("translation", "layers", "scores", "words") if f"## {name}" not in report]
    if lacking or any(record["state"] != "done" for record in done.values()):
        raise SystemExit(f"{output} lacks {', '.join(lacking) or 'the end of a stage'}")
    print(f"\nall {len(done)} stages; {output} has all")


if __name__ == "__main__":
    main()
