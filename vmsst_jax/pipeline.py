"""Runs commands of ours one after another, as a recipe says: python -m vmsst_jax.pipeline --gin_file=umse_small.gin

The same command goes on where it was stopped or killed, leaves alone what is done, and refuses inputs that changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.pipeline"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and calls ``pipelines.driver``."""
    flags = command.parser(NAME, "Runs the stages of a recipe, each a command of this package with its own folder.")
    command.add_recipe_flags(flags)
    flags.add_argument(
        "--redo",
        action="append",
        default=[],
        metavar="STAGE",
        help="remove what this stage and all that follow from it left, and do them anew; may be given several times",
    )
    args, rest = flags.parse_known_args(argv)

    from vmsst_jax import config

    def resolve(recipes: Sequence[str], bindings: Sequence[str]) -> str:
        return config.resolved(recipes, bindings, args.gin_search_paths.split(","))

    bindings = args.gin_bindings + config.short_bindings(rest)
    made = config.configure(args.gin_file, bindings, args.gin_search_paths.split(","), config.PIPELINE)()

    from vmsst_jax.pipelines import driver

    outcome = driver.run(made, resolve, args.redo, args.gin_search_paths)
    print(f"\n{outcome.report}\nwritten to {', '.join(map(str, outcome.files))}")
    took = ", ".join(f"{name} {seconds:.0f}" for name, seconds in outcome.seconds.items())
    print(f"{sum(outcome.seconds.values()) / 60:.1f} minutes of work, in seconds: {took}")


if __name__ == "__main__":
    command.run(NAME, main)
