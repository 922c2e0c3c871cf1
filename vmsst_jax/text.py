"""Makes the folder of text that UMSE begins with, from files of yours or from gettext catalogues.

python -m vmsst_jax.text --output=DIR --languages=en,fr,es --apart=en,fr [--folder=DIR]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.text"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and calls ``pipelines.text.prepare``."""
    args = parser().parse_args(argv)

    from vmsst_jax.pipelines import text

    about = text.prepare(
        args.output, args.languages, apart=args.apart, folder=args.folder, names=args.names,
        catalogue_folders=args.catalogues, held_out=args.held_out, limit=args.limit, mining=args.mining,
        overwrite=args.overwrite,
    )  # fmt: skip
    print(f"{args.output}: " + ", ".join(f"{name} {count:,}" for name, count in about["lines"].items()) + " lines")


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    flags = command.parser(
        NAME, "Makes a folder with train.CODE, val.CODE and test.CODE: monolingual text and aligned test sets."
    )
    add = flags.add_argument
    add("--output", required=True, metavar="DIR", help="the folder to make")
    add("--languages", required=True, type=command.codes, metavar="A,B", help="language codes")
    add("--apart", type=command.codes, default=[], metavar="A,B", help="of which no sentence has its translation there")
    add("--folder", metavar="DIR", help="files NAME.CODE, one sentence a line; without it gettext catalogues are read")
    add(
        "--names",
        type=command.codes,
        default=["train", "val", "test"],
        metavar="A,B,C",
        help="how those begin that are to train, to validate and to test on (train,val,test); the latter two aligned",
    )
    add(
        "--catalogues",
        type=command.codes,
        metavar="DIR,DIR",
        help="folders of catalogues (installed packages)",
    )
    add(
        "--held_out",
        type=float,
        default=0.15,
        metavar="SHARE",
        help="of catalogues, what each of validation and test gets (%(default)s)",
    )
    add("--limit", type=command.positive, metavar="N", help="most sentences of each training file")
    add("--mining", type=command.codes, default=[], metavar="A-B,C-D", help="pairs to make sets for mining of")
    add("--overwrite", action="store_true", help="replace an existing folder")
    return flags


if __name__ == "__main__":
    command.run(NAME, main)
