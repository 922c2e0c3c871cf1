"""Trains and scores a matrix of recipes and seeds: python -m vmsst_jax.experiment --gin_file=experiments/smoke.gin

The same command goes on where it was stopped, elsewhere too if OUTPUT is copied there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.experiment"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and calls ``experiments.driver``."""
    flags = command.parser(NAME, "Trains and scores a matrix of recipes and seeds; writes one table and one plot.")
    command.add_recipe_flags(flags)
    add = flags.add_argument
    add("--only", action="append", default=[], metavar="ROW", help="only this row; may be given several times")
    add("--seeds", type=_seeds, metavar="0,1", help="only these")
    add("--collect", action="store_true", help="train nothing, only make the table of what is there")
    args, rest = flags.parse_known_args(argv)

    from vmsst_jax import config

    def resolve(recipes: Sequence[str], bindings: Sequence[str]) -> str:
        return config.resolved(recipes, bindings, args.gin_search_paths.split(","))

    bindings = args.gin_bindings + config.short_bindings(rest)
    matrix = config.configure(args.gin_file, bindings, args.gin_search_paths.split(","), config.EXPERIMENT)()

    from vmsst_jax.experiments import driver

    outcome = driver.run(matrix, resolve, args.only, args.seeds, args.collect, args.gin_search_paths)
    print(f"\n{outcome.table}\nwritten to {', '.join(map(str, outcome.files))}")
    print(f"{outcome.seconds / 60:.1f} minutes of training and scoring in all of its cells")
    for cell, why in outcome.failed.items():
        print(f"failed: {cell}: {why}", file=sys.stderr)
    if outcome.failed:
        print(f"{NAME}: {len(outcome.failed)} cells failed; the same command tries them again", file=sys.stderr)
        sys.exit(1)


def _seeds(text: str) -> list[int]:
    """Seeds between commas, for ``type=``."""
    try:
        if seeds := [command.natural(seed) for seed in command.codes(text)]:
            return seeds
    except argparse.ArgumentTypeError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no list of seeds such as 0,1")


if __name__ == "__main__":
    command.run(NAME, main)
