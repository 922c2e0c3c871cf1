"""Finds translations between two texts by margin and writes score, line numbers and sentences, the best first.

python -m vmsst_jax.mine --source=A.txt --target=B.txt --checkpoint=DIR --output=OUT.tsv
python -m vmsst_jax.mine --source_vectors=A.npy --target_vectors=B.npy --output=OUT.tsv
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.mine"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and calls ``retrieval.mining_files.mine``."""
    flags = command.parser(
        NAME,
        "Mines translations: lines that are distinct on their side, nearest neighbours both ways, a margin over the "
        "cosine. OUT.tsv gets score, source line, target line, source text, target text; OUT.json says how. An "
        "interrupted run goes on where it stopped.",
    )
    command.add_model_flags(flags, required=False)
    _add_flags(flags)
    args = flags.parse_args(argv)
    _check(flags, args)

    from vmsst_jax import runtime
    from vmsst_jax.retrieval import calibration, mining_files

    inputs = (args.source, args.target, args.source_vectors, args.target_vectors)
    mining_files.check_output(args.output, inputs, args.overwrite)
    languages = {f"--{side}_language": getattr(args, f"{side}_language") for side in ("source", "target")}
    calibration.check(args.calibration, args.calibration_steps, languages, args.word_mapping)
    runtime.start()
    source, target = _sides(args)
    about = mining_files.mine(
        source,
        target,
        args.output,
        k=args.k,
        margin=args.margin,
        retrieval=args.retrieval,
        threshold=args.threshold,
        index=args.index,
    )
    print(
        f"{args.output}: {about['pairs']:,} pairs of {len(source.rows):,} source and {len(target.rows):,} target "
        f"sentences, {about['index']['kind']} search, recall {about['index']['recall']:.4f}"
    )
    if source.blank or target.blank:
        print(f"left out: {source.blank:,} blank lines of the source, {target.blank:,} of the target")
    if not about["pairs"]:
        why = (
            "; a lower --threshold lets some in"
            if args.threshold is not None
            else ", by --retrieval=max there are some"
        )
        print(f"{NAME}: warning: 0 pairs are written{why}", file=sys.stderr)


def _add_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    add("--source", metavar="A.txt", help="UTF-8 text, one sentence per line; blank and repeated lines are left out")
    add("--target", metavar="B.txt", help="the other language")
    add("--source_vectors", metavar="A.npy", help="ready vectors in place of a model, row i = line i of --source")
    add("--target_vectors", metavar="B.npy", help="ready vectors of the other language")
    add("--output", required=True, metavar="OUT.tsv", help="for the pairs")
    add("--overwrite", action="store_true", help="replace an existing output")
    add("--k", type=command.positive, default=4, metavar="K", help="neighbours of the margin (%(default)s)")
    add("--margin", choices=("ratio", "distance", "absolute"), default="ratio", help="over the cosine (%(default)s)")
    add(
        "--retrieval",
        choices=("max", "intersect", "forward", "backward"),
        default="max",
        help="each sentence once, from the best pair down; pairs that are each other's best; each source sentence's "
        "best; each target sentence's best (%(default)s)",
    )
    add("--threshold", type=float, metavar="T", help="least score of a pair, such as 1.06; without it all are written")
    add(
        "--index",
        choices=("exact", "scann", "approx", "auto"),
        default="exact",
        help="how neighbours are found (%(default)s); auto is approximate where exact search would be long",
    )
    command.add_calibration_flags(flags)
    add("--source_language", metavar="CODE", help="of the source, for a calibration or word mapping")
    add("--target_language", metavar="CODE", help="of the target, for a calibration or word mapping")


def _check(flags: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    """Ends with a message where the flags don't say two sides."""
    model = command.source_of(args)
    ready = args.source_vectors, args.target_vectors
    if any(ready) and not all(ready):
        flags.error("--source_vectors and --target_vectors go together")
    if any(ready) and (model or args.calibration):
        flags.error("with --source_vectors and --target_vectors there is nothing to embed; leave the model out")
    if not any(ready) and not (args.source and args.target):
        flags.error("the following arguments are required: --source and --target, or vectors of both")
    if not any(ready) and not model:
        flags.error(f"one of {', '.join(f'--{name}' for name in command.SOURCES)} is required")


def _sides(args: argparse.Namespace):
    from vmsst_jax.retrieval import calibration, embedders, mining_files

    if args.source_vectors:
        return (
            mining_files.ready_side(args.source_vectors, args.source),
            mining_files.ready_side(args.target_vectors, args.target),
        )
    model = embedders.load(**command.model_options(args))
    sides = []
    for path, language in ((args.source, args.source_language), (args.target, args.target_language)):
        calibrated = calibration.applied(model, args.calibration, args.calibration_steps, language)
        sides.append(mining_files.embedded_side(path, calibrated, args.cache_dir))
    return sides


if __name__ == "__main__":
    command.run(NAME, main)
