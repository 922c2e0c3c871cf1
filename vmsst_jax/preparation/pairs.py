"""Parallel text: OPUS's archives in Moses form become pairs, and pairs a token cache."""

from __future__ import annotations

import itertools
import json
import os
import pathlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from vmsst_jax.data.cache import TokenCache
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.text_pairs import CorpusError, LineFile, hash62, opus_members
from vmsst_jax.disk import write_atomically
from vmsst_jax.preparation import plan as plans
from vmsst_jax.preparation.cleaning import PairRules, TestSentences, clean
from vmsst_jax.preparation.plan import Plan, Set, Source

COLUMNS = ("language", "pivot", "thousand_pairs", "corpora", "files")
OUTCOMES = ("not_utf8", "empty", "identical", "long", "ratio", "test")
SUFFIX = ".tsv"
# The releases that the table opus_92.tsv was made from.
VERSIONS = {
    **{"Europarl": "v8", "UNPC": "v1.0", "OpenSubtitles": "v2018", "GlobalVoices": "v2018q4"},
    **{"Tanzil": "v1", "Tatoeba": "v2021-07-22"},
}
ADDRESS = "https://object.pouta.csc.fi/OPUS-{corpus}/{version}/moses/{pair}.txt.zip"


def wanted(rows: Iterable[dict]) -> Iterator[tuple[dict, str, tuple[str, str]]]:
    """(row, corpus, OPUS's codes of pivot and language) for each archive that a table's rows name.

    ValueError for a code that is none.
    """
    for row in rows:
        for entry in row["corpora"].split(","):
            corpus, _, codes = entry.partition(":")
            for code in codes.split("+") if codes else [row["language"]]:
                if not (plans.CODE.fullmatch(corpus) and plans.CODE.fullmatch(code)):
                    raise ValueError(f"{row['folder']}: {entry!r} is no corpus; wanted NAME or NAME:CODE+CODE")
                yield row, corpus, (row["pivot"], code)


def addresses(rows: Iterable[dict]) -> list[str]:
    """Where OPUS publishes the archives that a table names, those of corpora whose release is known here."""
    found = (
        ADDRESS.format(corpus=corpus, version=VERSIONS[corpus], pair="-".join(sorted(codes)))
        for _, corpus, codes in wanted(rows)
        if corpus in VERSIONS
    )
    return list(dict.fromkeys(found))


def find(root: str, rows: Sequence[dict], skip_missing: bool) -> tuple[list[Set], list[str]]:
    """(the sets of a table's rows, the archives that are missing), of those that lie below ``root``:
    CORPUS/.../de-en.txt.zip in any depth, the first folder with or without OPUS's prefix (``OPUS-Europarl``). Links to
    folders are not followed.

    Raises:
      CorpusError: ``root`` is no folder; archives are missing and not to be skipped, or all are; one lies there twice;
        an archive that can't be read or is built to mislead; an amount of less than a pair.
    """
    amounts = [round(row["thousand_pairs"] * 1000) for row in rows]
    if not all(amounts):
        row = rows[amounts.index(0)]
        raise CorpusError(
            f"{row['pivot']}-{row['language']}: thousand_pairs is {row['thousand_pairs']:g}, not even one pair; wanted "
            "0.001 or more"
        )
    index = _index(root)
    sources, missing = defaultdict(list), []
    for row, corpus, codes in wanted(rows):
        names = [f"{a}-{b}.txt.zip" for a, b in (codes, codes[::-1])]
        found = [path for n in names for path in index[corpus, n]]
        if len(found) > 1:
            raise CorpusError(f"{root} has the archive twice: {', '.join(found)}; leave one of them")
        if found:
            sources[row["folder"]].append(_source(root, found[0], corpus, codes))
        else:
            missing.append(f"{corpus}/{'-'.join(sorted(codes))}.txt.zip")
    if missing and not (skip_missing and sources):
        shown = ", ".join(missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise CorpusError(
            f"{len(missing):,} archives are not below {root}: {shown}. --list prints where OPUS has them; "
            "--missing=skip goes without, --languages takes some languages"
        )
    sets = [
        Set(
            name=f"{row['pivot']}-{row['language']}",
            languages=(row["pivot"], row["language"]),
            folder=row["folder"],
            amount=amount,
            rate=row["thousand_pairs"],
            sources=tuple(sources[row["folder"]]),
        )
        for row, amount in zip(rows, amounts, strict=True)
        if row["folder"] in sources
    ]
    return sets, missing


def _index(root: str) -> dict[tuple[str, str], list[str]]:
    """{(corpus, file name): paths below the root}."""
    if not os.path.isdir(root):
        raise CorpusError(
            f"{root} is no folder; wanted the one with OPUS's archives, as Europarl/v8/moses/de-en.txt.zip"
        )
    index = defaultdict(list)
    for folder, _, names in os.walk(root):
        corpus = os.path.relpath(folder, root).split(os.sep)[0].removeprefix("OPUS-")
        for name in names:
            if name.endswith(".txt.zip"):
                index[corpus, name].append(os.path.join(folder, name))
    return index


def _source(root: str, path: str, corpus: str, codes: tuple[str, str]) -> Source:
    size = opus_members(path, codes).size()
    return Source(corpus, os.path.relpath(path, root), os.path.abspath(path), size, plans.checksum(path), codes)


def records(source: Source, of: Set, rules: dict, tests: TestSentences) -> Iterator[tuple[str, bytes, int, int]]:
    """Every line of an archive: (outcome, record, sentences in it, test sentences taken out of it).

    The outcome is "" for a pair that stays; its record is a line of the text files, the pivot's text first. Sentences
    are not counted apart from pairs.

    Raises:
      CorpusError: a damaged archive, or one whose sides differ in length.
    """
    judge = PairRules(**rules).outcome
    for first, second, _ in opus_members(source.path, source.codes).rows():
        try:
            texts = clean(first.decode()), clean(second.decode())
        except UnicodeDecodeError:
            yield "not_utf8", b"", 0, 0
            continue
        outcome = judge(*texts, tests)
        yield outcome, b"" if outcome else "\t".join(texts).encode(), 0, 0


def examples(paths: Sequence[str], of: Set, task: str) -> Iterator[dict]:
    """The pairs in a set's text files, as the task yields them that reads the same files."""
    lines = itertools.chain.from_iterable(LineFile(path).lines() for path in paths)
    for number, line in enumerate(lines, hash62(task.encode()) + 1):
        source, target = line.decode().split("\t")
        yield {
            "source": source,
            "target": target,
            "source_lang": of.languages[0],
            "target_lang": of.languages[1],
            "pair_id": number,
        }


def caches(folder: pathlib.Path, plan: Plan, of: Set) -> list[pathlib.Path]:
    """Where the token caches of a set lie, as ``ParallelText.cache`` looks for them."""
    return [folder / f"{plan.task(of)}-train"]


def tokenise(path: pathlib.Path, paths: Sequence[str], plan: Plan, of: Set, tokenizer) -> None:
    """Builds one of the ``caches``."""
    languages = Languages(plan.tokens["languages"])
    source = f"{plan.task(of)}, split 'train'"
    task = plan.task(of)
    TokenCache.build(examples(paths, of, task), tokenizer, languages, plan.tokens["max_length"], path, source)


def list_caches(folder: pathlib.Path, plan: Plan, kept: Sequence[Set]) -> None:
    """Writes the listing by which ``ParallelText`` finds the caches of the mixture."""
    rates = {plan.task(of): of.rate for of in kept}
    write_atomically(folder / f"{plan.name}-train.json", json.dumps(rates).encode())
