"""Scores embeddings on benchmarks, prints tables, writes results.json and report.html.

One benchmark:   python -m vmsst_jax.evaluate --checkpoint=DIR --benchmark=tatoeba --data_dir=DIR
Several:         python -m vmsst_jax.evaluate --checkpoint=DIR --benchmark=tatoeba,sts --data_dir=DIR --output=DIR
Models x these:  python -m vmsst_jax.evaluate --gin_file=evaluate/vmsst_table1.gin --gin.DATA_DIR='"DIR"'
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.evaluate"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and calls ``benchmarks.suite`` for one benchmark, ``benchmarks.grid`` for more."""
    flags = command.parser(NAME, "Scores embeddings on benchmarks; prints tables, writes results.json and report.html.")
    command.add_model_flags(flags, required=False)
    _add_flags(flags)
    args, rest = flags.parse_known_args(argv)
    if rest and not args.gin_file:
        flags.error(f"unrecognized arguments: {' '.join(rest)}")
    _check(flags, args)

    from vmsst_jax import runtime

    runtime.start()
    if args.gin_file:
        _grid_of_recipe(args, rest)
    elif not args.benchmark:
        _compare(args)
    elif args.write_texts:
        _write_texts(args)
    elif len(args.benchmark) > 1:
        _grid_of_flags(args)
    else:
        _one(args)


def _add_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    add("--benchmark", type=command.codes, metavar="A,B", help="e.g. tatoeba; a wrong name lists them all")
    add(
        "--data_dir",
        metavar="DIR",
        help="the folder with the benchmark's files; of several benchmarks, that which holds one folder for each",
    )
    add("--languages", type=command.codes, metavar="A,B", help="only these; without it all that are there")
    add(
        "--option",
        type=option,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the benchmark, such as 'direction=en->xx'; BENCHMARK.NAME=VALUE for one of several",
    )
    command.add_calibration_flags(flags)
    add("--no_cache", dest="cache", action="store_false", help="neither look vectors up nor keep them")
    add("--output", metavar="DIR", help="for the results; without it MODEL_DIR/evaluations/BENCHMARK/step_STEP")
    add("--overwrite", action="store_true", help="replace an existing results.json")
    add("--compare", type=command.codes, metavar="A,B", help="results.json files to show beside these in report.html")
    add("--write_texts", metavar="FILE", help="only write the texts that would be embedded, for a tool of yours")
    add("--gin_file", action="append", default=[], metavar="NAME", help="a recipe with models and benchmarks")
    add("--gin_search_paths", default="", metavar="A,B", help="further folders that hold recipes")
    flags.epilog = "--gin.NAME=VALUE sets a value of the recipe: --gin.DATA_DIR='\"data\"'"


def option(text: str) -> tuple[str, object]:
    """``NAME=VALUE`` as (name, value), the value a Python literal or else text, for ``type=``."""
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is no NAME=VALUE")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value


def _check(flags: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Ends with a message where flags don't make one of the commands above."""
    source = command.source_of(args)
    if args.gin_file:
        given = [name for name, value in vars(args).items() if value != flags.get_default(name)]
        if others := [f"--{name}" for name in given if not name.startswith("gin_")]:
            flags.error(f"{', '.join(others)}: with --gin_file, all is in the recipe; change it by --gin.NAME=VALUE")
    elif args.benchmark:
        if not args.data_dir:
            flags.error("the following arguments are required: --data_dir")
        if not source and not args.write_texts:
            flags.error(f"one of {', '.join(f'--{name}' for name in command.SOURCES)} is required")
        if len(args.benchmark) > 1 and not (args.output or args.write_texts):
            flags.error("the following arguments are required with several benchmarks: --output")
    elif not (args.compare and args.output):
        flags.error("the following arguments are required: --benchmark (or --gin_file, or --compare with --output)")


def _one(args: argparse.Namespace) -> None:
    from vmsst_jax.benchmarks import single, suite

    (name,) = args.benchmark
    options = suite.share_out([name], args.languages, args.option)[name]
    outcome = single.evaluate(
        _model(args),
        name,
        args.data_dir,
        options,
        output=args.output,
        overwrite=args.overwrite,
        compare=args.compare or (),
        cache=args.cache,
        cache_dir=args.cache_dir,
    )
    print(f"{outcome.table}\nwritten to {', '.join(map(str, outcome.files))}")


def _write_texts(args: argparse.Namespace) -> None:
    from vmsst_jax.benchmarks import suite, text_list

    options = suite.share_out(args.benchmark, args.languages, args.option)
    data = {name: suite.data_folder(name, args.data_dir, len(args.benchmark)) for name in args.benchmark}
    count = text_list.write(args.write_texts, [(name, data[name], options[name]) for name in args.benchmark])
    print(
        f"{args.write_texts}: {count:,} texts, one a line; put their vectors into {args.write_texts}.npy, row i for "
        f"line i, and give the same command with --vectors={args.write_texts}.npy in place of --write_texts"
    )


def _grid_of_flags(args: argparse.Namespace) -> None:
    from pathlib import Path

    from vmsst_jax.benchmarks import grid, suite

    name = args.vectors[0] if args.vectors else command.source_of(args)
    options = suite.share_out(args.benchmark, args.languages, args.option)
    settings = {
        "models": {Path(name).resolve().name: _model(args)},
        "benchmarks": options,
        "data_dir": args.data_dir,
        "output": args.output,
        "compare": args.compare or [],
        "cache": args.cache,
        "cache_dir": args.cache_dir,
    }
    _finish(grid.evaluate(**settings, config_text=_recipe(settings)))


def _recipe(settings: dict) -> str:
    """The settings of ``grid.evaluate`` as a recipe: what the flags said, to look at or to run again."""
    head = f"# From flags; the same again: python -m {NAME} --gin_file={settings['output']}/recipe.gin\n"
    return head + "".join(f"evaluate.{name} = {value!r}\n" for name, value in settings.items())


def _compare(args: argparse.Namespace) -> None:
    from vmsst_jax.benchmarks import single

    print(f"written to {single.compare(args.compare, args.output)}")


def _grid_of_recipe(args: argparse.Namespace, rest: list[str]) -> None:
    from vmsst_jax import config

    bindings = config.short_bindings(rest)
    evaluate = config.configure(args.gin_file, bindings, args.gin_search_paths.split(","), config.EVALUATE)
    _finish(evaluate())


def _finish(outcome) -> None:
    """Prints what a grid came to; ends with exit code 1 if cells are missing."""
    print(f"\n{outcome.table}\nwritten to {', '.join(map(str, outcome.files))}")
    for what, cells in (("left out, no data", outcome.absent), ("missing", outcome.missing)):
        for cell, why in cells.items():
            print(f"{what}: {cell}: {why}", file=sys.stderr)
    if outcome.missing:
        count = len(outcome.missing)
        cells = "1 cell is" if count == 1 else f"{count} cells are"
        print(f"{NAME}: {cells} missing; the same command tries again", file=sys.stderr)
        sys.exit(1)


def _model(args: argparse.Namespace) -> dict:
    """The model that the flags describe, as ``grid.load`` takes it."""
    calibration = {"calibration": args.calibration, "calibration_steps": args.calibration_steps}
    given = command.model_options(args) | calibration
    return {name: value for name, value in given.items() if value is not None}


if __name__ == "__main__":
    command.run(NAME, main)
