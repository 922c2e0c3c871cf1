"""python -m vmsst_jax.convert --input=PATH --output=DIR: a public checkpoint in, or a model of ours out."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.convert"
FORMS = ("vmsst_jax", "hf", "sentence_transformers", "t5x")


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags, reads the model, prints where every array came from, writes it."""
    args = parser().parse_args(argv)

    from vmsst_jax import checks, runtime
    from vmsst_jax.conversion import read, write
    from vmsst_jax.conversion.model import Settings

    checks.patterns("--allow_missing", args.allow_missing)
    write.check_output(args.output, args.overwrite, args.input)
    runtime.start()
    settings = Settings(
        tokenizer=args.tokenizer,
        codes=args.codes,
        vocabulary=args.vocabulary,
        languages=tuple(args.languages),
        allow_missing=tuple(args.allow_missing),
        pooling=args.pooling,
        layer=args.layer,
        pool_special=args.pool_special,
        normalize=args.normalize,
        prefix=args.prefix,
        max_length=args.max_length,
        tower=args.tower,
    )
    model = read.read(args.input, settings)
    print(model.table())
    said = len(model.notes)
    write.write(model, args.output, args.to, overwrite=args.overwrite, t5x_layout=args.t5x_layout)
    print("\n".join([*model.notes[said:], f"written to {args.output} ({args.to})"]))


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    flags = command.parser(
        NAME,
        "Reads a model in any form (Hugging Face or sentence-transformers folder, XLM .pth, T5X checkpoint, the "
        "released VMSST, our own) and writes it in another.",
    )
    flags.add_argument("--input", required=True, metavar="PATH", help="the model; its form is found out")
    flags.add_argument("--output", required=True, metavar="DIR", help="a new folder, written whole or not at all")
    flags.add_argument("--to", choices=FORMS, default=FORMS[0], help="the form to write (%(default)s)")
    flags.add_argument(
        "--allow_missing",
        action="append",
        default=[],
        metavar="PATTERN",
        help="regular expression for whole names of arrays that only one side may have; may be given again",
    )
    flags.add_argument("--tokenizer", metavar="PATH", help="tokenizer file or folder; without it the model's folder")
    flags.add_argument("--codes", metavar="FILE", help="XLM: byte-pair codes; without it codes* beside the .pth file")
    flags.add_argument("--vocabulary", metavar="FILE", help="XLM: vocabulary, where the .pth file holds none")
    flags.add_argument(
        "--languages", type=command.codes, default=(), metavar="A,B", help="the languages that the model knows"
    )
    command.add_embedding_flags(flags)
    flags.add_argument("--max_length", type=command.positive, metavar="TOKENS", help="where longer sentences are cut")
    flags.add_argument("--normalize", action=argparse.BooleanOptionalAction, help="vectors of length 1")
    flags.add_argument(
        "--t5x_layout",
        choices=("per_layer", "scanned", "unscanned"),
        help="of T5X's network files; without it the one the model came in, else per_layer",
    )
    flags.add_argument("--overwrite", action="store_true", help="replace a folder that this command wrote")
    return flags


if __name__ == "__main__":
    command.run(NAME, main)
