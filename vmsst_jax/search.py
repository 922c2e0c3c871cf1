"""python -m vmsst_jax.search --checkpoint=DIR --corpus=FILE: type a sentence, get the nearest lines of a text file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence

from vmsst_jax import command

NAME = "vmsst_jax.search"


def main(argv: Sequence[str] | None = None) -> None:
    """Parses the flags, prepares ``retrieval.text_search.TextSearch`` and answers queries until they end."""
    flags = command.parser(
        NAME,
        "Finds the lines of a text file nearest to a sentence, whatever their languages. Queries come from --query, a "
        "terminal, or one a line from standard input.",
    )
    command.add_model_flags(flags)
    flags.add_argument("--corpus", required=True, metavar="FILE", help="UTF-8 text, one sentence per line")
    flags.add_argument("--top_k", type=command.positive, default=5, metavar="K", help="lines per query (%(default)s)")
    flags.add_argument("--query", help="answer this one and end")
    command.add_calibration_flags(flags)
    flags.add_argument("--language", metavar="CODE", help="of the corpus, for a calibration or word mapping")
    flags.add_argument("--query_language", metavar="CODE", help="of the queries, for a calibration or word mapping")
    args = flags.parse_args(argv)
    if args.query is not None and not args.query.strip():
        raise ValueError("--query is empty; give a sentence")

    from vmsst_jax import runtime
    from vmsst_jax.retrieval import calibration, embedders, text_search

    languages = {"--language": args.language, "--query_language": args.query_language}
    calibration.check(args.calibration, args.calibration_steps, languages, args.word_mapping)
    runtime.start()
    model = embedders.load(**command.model_options(args))
    corpus, queries = (
        calibration.applied(model, args.calibration, args.calibration_steps, language)
        for language in (args.language, args.query_language)
    )
    lines = text_search.TextSearch(corpus, args.corpus, args.cache_dir, query_embedder=queries)
    if lines.blank:
        print(f"{NAME}: {lines.blank:,} of {lines.text.rows:,} lines are blank and left out", file=sys.stderr)
    for queries in [[args.query]] if args.query is not None else typed() if sys.stdin.isatty() else piped():
        for query, hits in zip(queries, lines.search(queries, args.top_k), strict=True):
            print(f"query: {query}")
            for hit in hits:
                print(f"  {hit.score:7.4f}  line {hit.line}: {hit.text}")
        sys.stdout.flush()


def typed() -> Iterator[list[str]]:
    """Queries from a terminal, one by one; an empty line is passed over, the end of input ends."""
    import readline  # noqa: F401  arrow keys and history at the prompt

    while True:
        try:
            query = input("> ").strip()
        except EOFError:
            print()
            return
        if query:
            yield [query]


def piped() -> Iterator[list[str]]:
    """Queries from standard input, as many at a time as are there: a file goes in large batches, a dialogue one by one.

    Raises ValueError naming the line that is not UTF-8.
    """
    rest, seen, more = b"", 0, True
    while more:
        more = sys.stdin.buffer.read1(1 << 16)
        *raw, rest = (rest + more).split(b"\n")
        if not more and rest:
            raw.append(rest)
        queries = []
        for line in raw:
            seen += 1
            try:
                queries.append(line.decode().strip())
            except UnicodeDecodeError:
                raise ValueError(f"standard input, line {seen}: not valid UTF-8") from None
        if any(queries):
            yield [query for query in queries if query]


if __name__ == "__main__":
    command.run(NAME, main)
