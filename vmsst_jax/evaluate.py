"""python -m vmsst_jax.evaluate --checkpoint=DIR --benchmark=tatoeba --data_dir=DIR: scores a model, prints a table."""

from __future__ import annotations

from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.evaluate"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags, calls ``benchmarks.suite.run``, prints the table and writes results.json."""
    flags = command.parser(NAME, "Scores a model on a benchmark; prints a table and writes results.json.")
    command.add_model_flags(flags, batch_size=128)
    flags.add_argument("--benchmark", required=True, metavar="NAME", help="e.g. tatoeba; a wrong name lists them all")
    flags.add_argument("--data_dir", required=True, metavar="DIR", help="the folder with the benchmark's files")
    flags.add_argument(
        "--languages", type=command.codes, metavar="A,B", help="only these; without it all that are there"
    )
    flags.add_argument(
        "--output", metavar="DIR", help="for results.json; without it MODEL_DIR/evaluations/BENCHMARK/step_STEP"
    )
    flags.add_argument("--overwrite", action="store_true", help="replace an existing results.json")
    args = flags.parse_args(argv)

    from pathlib import Path

    from vmsst_jax import runtime
    from vmsst_jax.benchmarks import report, suite
    from vmsst_jax.retrieval import embedder

    suite.check(args.benchmark)
    runtime.start()
    model = embedder.load(
        args.checkpoint,
        args.step,
        max_length=args.max_length,
        batch_size=args.batch_size,
        cache_dir=args.cache_dir,
        **command.embedding_flags(args),
    )
    output = Path(args.output) if args.output else report.default_output(model, args.benchmark)
    report.check_output(output, args.overwrite)
    result, table = suite.run(args.benchmark, model, args.data_dir, {"languages": args.languages})
    print(table)
    print(f"written to {report.write_results(output, result, model)}")


if __name__ == "__main__":
    command.run(NAME, main)
