"""Word vectors of several languages in one space without translations: UMSE's word-mapping baseline.

python -m vmsst_jax.word_mapping train_vectors --input=EN.txt --output=en.vec
python -m vmsst_jax.word_mapping map --vectors=de=de.vec,en=en.vec --output=de-en.npz
python -m vmsst_jax.word_mapping translate --mapping=de-en.npz --input=DE.txt --source=de --target=en --output=DE.en
python -m vmsst_jax.word_mapping score --mapping=de-en.npz --dictionary=de-en.txt --source=de --target=en
python -m vmsst_jax.evaluate --word_mapping=de-en.npz --benchmark=psm --data_dir=DIR --languages=de,en --output=OUT
"""

from __future__ import annotations

import argparse
import functools
from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.word_mapping"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and calls one of the functions of ``words``."""
    args = parser().parse_args(argv)
    {"train_vectors": _train, "map": _map, "translate": _translate, "score": _score}[args.command](args)


def parser() -> argparse.ArgumentParser:
    """The flags of its commands."""
    flags = command.parser(
        NAME, "Trains word vectors, maps those of several languages into one space, and translates word by word."
    )
    commands = flags.add_subparsers(dest="command", required=True, metavar="COMMAND")
    add = functools.partial(commands.add_parser, allow_abbrev=False)
    for name, add_flags, what in (
        ("train_vectors", _training_flags, "train word vectors of one language by gensim (extra word-vectors)"),
        ("map", _mapping_flags, "map word vectors of several languages into one space"),
        ("translate", _translation_flags, "translate a text file word by word"),
        ("score", _score_flags, "score word translation against a dictionary"),
    ):
        add_flags(add(name, help=what, description=what[0].upper() + what[1:] + "."))
    return flags


def _training_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    add("--input", required=True, metavar="FILE", help="UTF-8 text, one sentence per line")
    add("--output", required=True, metavar="OUT.vec", help="in word2vec's text form; OUT.vec.gz compresses")
    add("--dim", type=command.positive, default=300, metavar="N", help="numbers of a vector (%(default)s)")
    add(
        "--window",
        type=_windows,
        default=(5,),
        metavar="N[,N]",
        help="words to either side (5); of several, each has its own vectors, which are written side by side",
    )
    add("--min_count", type=command.positive, default=5, metavar="N", help="rarer words get none (%(default)s)")
    add("--epochs", type=command.positive, default=5, metavar="N", help="passes over the text (%(default)s)")
    add("--negative", type=command.positive, default=10, metavar="N", help="words drawn against each (%(default)s)")
    add("--sample", type=float, default=1e-4, metavar="P", help="thins out words more frequent (%(default)s)")
    add("--cbow", action="store_true", help="predict a word from those around it, not these from it")
    case = flags.add_mutually_exclusive_group()
    case.add_argument("--keep_case", action="store_true", help="don't lower-case the words")
    case.add_argument(
        "--true_case", action="store_true", help="lower-case, but write every word as it most often stands in sentences"
    )
    add("--threads", type=command.positive, default=1, metavar="N", help="of gensim; only 1 can be repeated exactly")
    add("--seed", type=command.natural, default=0, metavar="N", help="of random numbers (%(default)s)")
    add("--overwrite", action="store_true", help="replace an existing output")


def _windows(text: str) -> tuple[int, ...]:
    return tuple(command.positive(part) for part in text.split(","))


def _mapping_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    add(
        "--vectors",
        required=True,
        type=command.codes,
        metavar="de=FILE,en=FILE",
        help="of each language, in word2vec's text form (also .gz), the most frequent words first",
    )
    add("--output", required=True, metavar="OUT.npz", help="an interrupted run goes on where it stopped")
    add("--pivot", metavar="CODE", help="the language to which the others are mapped; without it the first")
    add(
        "--last_map",
        choices=("symmetric", "orthogonal"),
        help="with re-weighting, which is for two languages and their default, or a rotation",
    )
    add(
        "--start",
        choices=("similarities", "identical", "dictionary"),
        default="similarities",
        help="the first dictionary: from distributions of similarities, words spelled alike, or --dictionary "
        "(%(default)s)",
    )
    add("--dictionary", metavar="FILE", help="a word of the first language and one of the second in every line")
    add("--start_words", type=command.positive, default=4000, metavar="N", help="compared at first (%(default)s)")
    add(
        "--words",
        type=command.positive,
        default=20_000,
        metavar="N",
        help="most frequent words that learn from each other (%(default)s); fewer for small texts",
    )
    add(
        "--patience",
        type=command.positive,
        default=50,
        metavar="N",
        help="rounds without a better dictionary before more is looked at, or learning ends (%(default)s)",
    )
    add(
        "--attempts",
        type=command.positive,
        default=1,
        metavar="N",
        help="with seeds one behind the other; the one with the highest objective counts (%(default)s)",
    )
    add("--max_words", type=command.positive, default=200_000, metavar="N", help="read of each file (%(default)s)")
    add("--seed", type=command.natural, default=0, metavar="N", help="of random numbers (%(default)s)")
    add(
        "--idf_texts",
        type=command.codes,
        default=[],
        metavar="de=FILE,en=FILE",
        help="texts in which to count words, one sentence per line, for models with --idf",
    )
    add("--overwrite", action="store_true", help="replace an existing output, and drop what an interrupted run left")


def _language_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    add("--mapping", required=True, metavar="FILE.npz", help="what map wrote")
    add("--source", required=True, metavar="CODE", help="language to translate from")
    add("--target", required=True, metavar="CODE", help="language to translate into")
    add(
        "--candidates",
        type=command.positive,
        default=50_000,
        metavar="N",
        help="most frequent words that may be a translation (%(default)s)",
    )


def _translation_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    _language_flags(flags)
    add("--input", required=True, metavar="FILE", help="UTF-8 text, one sentence per line; may have empty ones")
    add("--output", required=True, metavar="OUT", help="for the translations")
    add("--pairs", metavar="OUT.tsv", help="for originals and translations together, see tasks/synthetic_pairs.py")
    add("--overwrite", action="store_true", help="replace existing outputs")


def _score_flags(flags: argparse.ArgumentParser) -> None:
    _language_flags(flags)
    flags.add_argument(
        "--dictionary", required=True, metavar="FILE", help="a source word and a right translation in every line"
    )


def _train(args: argparse.Namespace) -> None:
    from vmsst_jax.words import training

    names = ("dim", "min_count", "epochs", "negative", "sample", "threads", "seed")
    settings = training.TrainingSettings(
        window=args.window if len(args.window) > 1 else args.window[0],
        algorithm="cbow" if args.cbow else "skip_gram",
        lower=not args.keep_case,
        true_case=args.true_case,
        **{name: getattr(args, name) for name in names},
    )
    made = training.train(args.input, args.output, settings, overwrite=args.overwrite)
    print(
        f"{args.output}: {'it is there already, ' if made['found'] else ''}{made['words']:,} words of "
        f"{made['sentences']:,} lines, {made['dim']} numbers each"
    )


def _map(args: argparse.Namespace) -> None:
    from vmsst_jax import runtime
    from vmsst_jax.words import files
    from vmsst_jax.words.mapping import MappingSettings

    names = ("start", "start_words", "words", "patience", "attempts", "seed")
    settings = MappingSettings(**{name: getattr(args, name) for name in names})
    vectors, texts = command.named_files(args.vectors, "--vectors"), command.named_files(args.idf_texts, "--idf_texts")
    runtime.start()
    made = files.map_files(
        vectors,
        args.output,
        settings,
        pivot=args.pivot,
        last=args.last_map,
        dictionary=args.dictionary,
        idf_texts=texts,
        most=args.max_words,
        overwrite=args.overwrite,
        say=functools.partial(print, flush=True),
    )
    print(f"{args.output}: {'it is there already, ' if made['found'] else ''}{', '.join(vectors)} in one space")


def _translate(args: argparse.Namespace) -> None:
    from vmsst_jax import runtime
    from vmsst_jax.words import translation

    runtime.start()
    made = translation.translate_file(
        args.mapping,
        args.input,
        args.output,
        args.source,
        args.target,
        candidates=args.candidates,
        pairs=args.pairs,
        overwrite=args.overwrite,
    )
    print(
        f"{args.output}: {'it is there already, ' if made['found'] else ''}{made['rows']:,} lines, {made['words']:,} "
        f"words, {made['unknown']:,} of them unknown and copied"
    )


def _score(args: argparse.Namespace) -> None:
    from vmsst_jax import runtime
    from vmsst_jax.words import translation
    from vmsst_jax.words.mapped import WordMapping

    runtime.start()
    mapping = WordMapping.load(args.mapping)
    found = translation.accuracy(mapping, args.dictionary, args.source, args.target, candidates=args.candidates)
    print(
        f"{args.source} -> {args.target}: {100 * found['accuracy']:.1f} % of {found['covered']:,} words are translated "
        f"rightly (CSLS); the dictionary has {found['words']:,}"
    )


if __name__ == "__main__":
    command.run(NAME, main)
