"""python -m vmsst_jax.embed --checkpoint=DIR --input=FILE --output=OUT.npy: a vector for every line of a text file."""

from __future__ import annotations

from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.embed"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and calls ``retrieval.store.embed_file``."""
    flags = command.parser(
        NAME, "Writes OUT.npy, float [rows, D] with row i = line i of the input, and OUT.json beside it."
    )
    command.add_model_flags(flags)
    flags.add_argument(
        "--input", required=True, metavar="FILE", help="UTF-8 text, one sentence per line; may have empty ones"
    )
    flags.add_argument("--output", required=True, metavar="OUT.npy", help="an interrupted run goes on where it stopped")
    flags.add_argument(
        "--dtype", choices=("float32", "float16"), default="float32", help="how vectors are stored (%(default)s)"
    )
    flags.add_argument("--normalize", action="store_true", help="store vectors of length 1")
    flags.add_argument("--overwrite", action="store_true", help="replace an existing output")
    command.add_calibration_flags(flags)
    flags.add_argument("--language", metavar="CODE", help="of the input, for a calibration or word mapping")
    args = flags.parse_args(argv)

    from vmsst_jax import runtime
    from vmsst_jax.retrieval import calibration, embedders, store

    store.check_output(args.output, args.input, args.overwrite)
    calibration.check(args.calibration, args.calibration_steps, {"--language": args.language}, args.word_mapping)
    text = store.scan(args.input)
    runtime.start()
    model = embedders.load(**command.model_options(args))
    model = calibration.applied(model, args.calibration, args.calibration_steps, args.language)
    about = store.embed_file(
        model, text, args.output, dtype=args.dtype, normalize=args.normalize, overwrite=args.overwrite
    )
    print(
        f"{args.output}: {about['rows']:,} rows of {about['dim']} {about['dtype']}, "
        f"{about['empty_lines']:,} lines empty"
        + (f", {about['truncated_lines']:,} truncated to {model.max_length} tokens" if model.max_length else "")
    )


if __name__ == "__main__":
    command.run(NAME, main)
