"""python -m vmsst_jax.calibrate --checkpoint=DIR --samples=de=FILE,en=FILE --output=CAL.npz: aligns languages."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.calibrate"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags, calls ``retrieval.calibration_fit.fit``, writes the calibration and a picture of it."""
    args = parser().parse_args(argv)
    if (args.picture is None) != (args.pairs is None):
        raise ValueError("--picture and --pairs go together: the picture shows the sentences of the pairs")

    from pathlib import Path

    from vmsst_jax import runtime
    from vmsst_jax.retrieval import cache, calibration, calibration_fit, embedders, isomorphism
    from vmsst_jax.retrieval.adversarial import Adversarial
    from vmsst_jax.retrieval.rotation import RotationSettings

    output = calibration.check_output(args.output, args.overwrite)
    files, steps = command.named_files(args.samples, "--samples"), calibration.check_steps(args.steps)
    calibration_fit.check_languages(list(files), steps, args.pivot)
    pairs = None
    if args.picture:
        isomorphism.check_picture(args.picture)
        code, path = picture_pairs(args.pairs, [code for code in files if code != args.pivot])
        pairs = isomorphism.read_pairs(path)
    rotation = RotationSettings(
        method=args.rotation,
        rounds=args.rounds,
        mutual=args.mutual,
        held_out=args.held_out,
        adversarial=Adversarial(epochs=args.epochs, epoch_size=args.epoch_size, seed=args.seed),
    )
    runtime.start()
    # Kept vectors let an interrupted fit, or one of other steps, go on without embedding again.
    model = cache.cached(embedders.load(**command.model_options(args)), args.cache_dir)
    samples = calibration_fit.TextSamples(model, files, say=tell)
    if "rotate" in steps:
        samples.check_rotation(args.pivot, args.held_out)
    fitted = calibration_fit.fit(
        samples,
        steps=steps,
        scale=args.scale,
        pivot=args.pivot,
        rotation=rotation,
        model={**model.describe(), "fingerprint": model.fingerprint()},
        say=tell,
    )
    fitted.save(output)
    tell(f"written to {output}: {', '.join(steps)} of {', '.join(files)}")
    if pairs:
        embedder = calibration.Calibrated(model, fitted)
        isomorphism.draw(isomorphism.figures(embedder, pairs, (code, args.pivot)), Path(args.picture))
        tell(f"drawn in {args.picture}")


def parser() -> argparse.ArgumentParser:
    """The command's flags."""
    flags = command.parser(
        NAME, "Fits shift, scale and rotation of every language on monolingual text and writes them to one file."
    )
    command.add_model_flags(flags)
    flags.add_argument(
        "--samples",
        required=True,
        type=command.codes,
        metavar="de=FILE,en=FILE",
        help="UTF-8 text of each language, one sentence per line; 100,000 sentences are good, more are better",
    )
    flags.add_argument("--output", required=True, metavar="OUT.npz")
    flags.add_argument(
        "--steps",
        type=command.codes,
        default=["shift", "scale", "rotate"],
        metavar="A,B",
        help="shift; shift,scale; or shift,scale,rotate, which is the default",
    )
    flags.add_argument(
        "--scale", choices=("std", "var", "none"), default="std", help="what scaling divides by (%(default)s)"
    )
    flags.add_argument(
        "--pivot", default="en", metavar="CODE", help="the language onto which the others are rotated (%(default)s)"
    )
    flags.add_argument(
        "--rotation",
        choices=("refine", "adversarial"),
        default="refine",
        help="refine from the identity, or from what adversarial training finds (%(default)s)",
    )
    flags.add_argument("--rounds", type=command.positive, default=5, metavar="N", help="of refinement (%(default)s)")
    flags.add_argument("--mutual", action="store_true", help="refine on mutual nearest neighbours only")
    flags.add_argument(
        "--held_out",
        type=float,
        default=0.2,
        metavar="SHARE",
        help="of the sentences, by which the best rotation is chosen, the identity included (%(default)s)",
    )
    flags.add_argument(
        "--epochs", type=command.positive, default=5, metavar="N", help="of adversarial training (%(default)s)"
    )
    flags.add_argument(
        "--epoch_size", type=command.positive, default=1_000_000, metavar="N", help="its vectors (%(default)s)"
    )
    flags.add_argument("--seed", type=command.natural, default=0, metavar="N", help="its random numbers (%(default)s)")
    flags.add_argument("--picture", metavar="FILE.svg", help="draw two languages before and after; .png and .pdf too")
    flags.add_argument(
        "--pairs",
        metavar="[CODE=]FILE.tsv",
        help="for the picture: sentence of CODE, tab, its translation in the pivot language",
    )
    flags.add_argument("--overwrite", action="store_true", help="replace an existing output")
    return flags


def picture_pairs(entry: str, others: Sequence[str]) -> tuple[str, str]:
    """(code of the first column, file) of --pairs; ``others`` are the languages besides the pivot."""
    for code in others:
        if entry.startswith(f"{code}="):
            return code, entry.removeprefix(f"{code}=")
    if len(others) != 1:
        raise ValueError(f"--pairs is {entry!r}; say which language its first column has: one of {', '.join(others)}")
    return others[0], entry


def tell(line: str) -> None:
    """Prints at once, also into a file."""
    print(line, flush=True)


if __name__ == "__main__":
    command.run(NAME, main)
