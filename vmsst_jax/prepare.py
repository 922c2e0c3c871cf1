"""Prepares a corpus for training: OPUS's archives as parallel text, or CC-Net's files as documents.

python -m vmsst_jax.prepare --opus=DIR --output=OUT --test='tatoeba/*' --vocabulary=sentencepiece.model
python -m vmsst_jax.prepare --cc_net=DIR --output=OUT --test='tatoeba/*' --vocabulary=xlmr_large
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shlex
from collections.abc import Sequence

from vmsst_jax import command

NAME = "vmsst_jax.prepare"
PAIRS_ONLY = ("max_characters", "max_ratio", "max_length")
DOCUMENTS_ONLY = ("max_documents", "cleanings")


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags and calls ``preparation.running.prepare``."""
    flags = command.parser(
        NAME,
        "Cleans, de-duplicates, samples, shuffles and tokenises a corpus, without the sentences of test sets. An "
        "interrupted run goes on where it stopped. docs/preparing_corpora.md has the whole story.",
    )
    _add_flags(flags)
    args = flags.parse_args(argv)
    other = DOCUMENTS_ONLY if args.opus else PAIRS_ONLY
    if useless := [f"--{name}" for name in other if getattr(args, name) is not None]:
        flags.error(f"{', '.join(useless)} is for {'--cc_net' if args.opus else '--opus'}")
    if args.beam_options and not args.runner:
        flags.error("--beam_options is for --runner; the local runner takes --workers")
    beam_options = _split(args.beam_options)
    if not args.list:
        for name in ("output", "test"):
            if not getattr(args, name):
                flags.error(f"--{name} is required" + (", or --test=none" if name == "test" else ""))

    from vmsst_jax.preparation import planning

    folder = args.opus or args.cc_net
    if args.output and pathlib.Path(args.output).resolve().is_relative_to(pathlib.Path(folder).resolve()):
        raise ValueError(f"--output={args.output} lies inside the input, {folder}; name a folder outside of it")
    rows = planning.rows(args.table, bool(args.opus), args.languages)
    if args.list:
        if not args.opus:
            flags.error("--list is for --opus: CC-Net's files have no address, CC-Net makes them")
        print(*planning.addresses(rows), sep="\n")
        return

    from vmsst_jax.preparation import running

    options = {name: value for name in planning.OPTIONS if (value := getattr(args, name)) is not None}
    plan, tests, tokenizer = planning.plan(folder, rows, is_opus=bool(args.opus), **options)
    report = running.prepare(
        plan,
        args.output,
        tests,
        tokenizer,
        workers=args.workers,
        runner=args.runner,
        beam_options=beam_options,
    )
    _print(args.output, report, tokenizer is not None)


def _split(options: str) -> list[str]:
    try:
        return shlex.split(options)
    except ValueError as error:
        raise ValueError(f"--beam_options={options} can't be taken apart ({error}); wanted '--A=B --C=D'") from None


def _print(output: str, report: dict, tokenised: bool) -> None:
    counts = report["records"]
    print(", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in counts.items()) + f" ({report['kind']})")
    if missing := report["missing"]:
        names = ", ".join(missing[:8]) + (", ..." if len(missing) > 8 else "")
        print(f"left out, since missing: {len(missing)} of the table's sources, {names}")
    short = [n for n, s in report["sets"].items() if s["wanted"] and s["records"]["kept"] < s["wanted"]]
    if short:
        names = ", ".join(short[:8]) + (", ..." if len(short) > 8 else "")
        print(f"fewer than wanted: {len(short)} of {len(report['sets'])} sets, {names}")
    print(f"{output}/report.tsv has the counts of each set and corpus")
    if tokenised:
        recipe, tokens = os.path.join(output, f"{report['mixture']}.gin"), os.path.join(output, "tokens")
        print(f"to train on it: --gin_file=RECIPE.gin --gin_file={recipe} --gin.CACHE='\"{tokens}\"'")


def _add_flags(flags: argparse.ArgumentParser) -> None:
    add = flags.add_argument
    source = flags.add_mutually_exclusive_group(required=True)
    source.add_argument("--opus", metavar="DIR", help="OPUS's Moses archives, as Europarl/v8/moses/de-en.txt.zip")
    source.add_argument("--cc_net", metavar="DIR", help="CC-Net's documents, as 2019-09/en_head_0000.json.gz")
    add("--output", metavar="OUT", help="a new or empty folder")
    add(
        "--test",
        action="append",
        metavar="FILES",
        help="sentences to leave out, one a line or between tabs, a path or a pattern; may be given several times; "
        "none for a corpus that no test set could be in",
    )
    add(
        "--vocabulary",
        metavar="PATH",
        help="makes token caches: a SentencePiece model, a model folder in Hugging Face's form, or a checkpoint; "
        "without it only text",
    )
    add(
        "--table",
        metavar="FILE",
        help="languages, amounts and folders; without it tasks/opus_92.tsv or common_crawl_108",
    )
    add("--name", help="of the mixture; without it the table's, if all its rows are taken")
    add("--languages", type=command.codes, metavar="A,B", help="only the table's rows of these, pivots named as well")
    add("--missing", choices=("error", "skip"), default="error", help="sets without files or text (%(default)s)")
    add("--list", action="store_true", help="print where OPUS has the archives, and end")
    add("--seed", type=command.natural, default=0, metavar="N", help="of sample and order (%(default)s)")
    add("--max_characters", type=command.positive, metavar="N", help="longer pairs go (1000)")
    add("--max_ratio", type=float, metavar="R", help="of a pair's lengths, 10 added to both (6)")
    add("--max_documents", type=command.positive, metavar="N", help="of a language; without it all")
    add("--max_length", type=command.positive, metavar="TOKENS", help="of a cached sentence (32)")
    add(
        "--cleanings",
        type=command.codes,
        metavar="A,B",
        help="a document cache for each: MIN_PIECES-MAX_PIECES-MIN_SENTENCES (5-128-2,1-any-1: what Documents and "
        "MaskedText read)",
    )
    add(
        "--partition_mb",
        type=command.positive,
        default=64,
        metavar="MB",
        help="text sorted at one time; a process needs about 100 MB and three times as much (%(default)s)",
    )
    add("--workers", type=command.positive, default=1, metavar="N", help="processes on this machine (%(default)s)")
    add(
        "--runner",
        metavar="NAME",
        help="of Beam: FlinkRunner, SparkRunner, DataflowRunner ...; without it this machine",
    )
    add("--beam_options", default="", metavar="'--A=B --C=D'", help="the runner's own options")


if __name__ == "__main__":
    command.run(NAME, main)
