"""Documents: CC-Net's JSON lines become lines of sentences, and those token caches."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pathlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from vmsst_jax import checks
from vmsst_jax.data import document_files
from vmsst_jax.data.document_cache import Cleaning, DocumentCache
from vmsst_jax.data.document_files import Problem
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.text_pairs import CorpusError, LineFile, hash62
from vmsst_jax.disk import write_atomically
from vmsst_jax.preparation import plan as plans
from vmsst_jax.preparation.cleaning import TestSentences, clean
from vmsst_jax.preparation.plan import Plan, Set, Source

COLUMNS = ("language", "megabytes", "files")
OUTCOMES = ("bad_line", "language", "empty", "few_sentences")
SUFFIX = ".txt"
# CC-Net names its files LANGUAGE_BUCKET_NUMBER; without buckets LANGUAGE_all_NUMBER.
_NAME = re.compile(r"(?P<language>.+)_(?P<bucket>head|middle|tail|all)_\d+\.json(\.gz)?")


@dataclasses.dataclass(frozen=True)
class DocumentRules:
    """``min_sentences``: what a document must have when its test sentences are gone."""

    min_sentences: int = 2

    def __post_init__(self):
        checks.whole("min_sentences", self.min_sentences)


def cleaning_of(text: str) -> Cleaning:
    """The cleaning that a cache's name ends in, such as 5-128-2 or 1-any-1; ValueError for anything else."""
    match = re.fullmatch(r"(\d+)-(\d+|any)-(\d+)", text)
    if not match:
        raise ValueError(f"{text!r} is no cleaning; wanted MIN_PIECES-MAX_PIECES-MIN_SENTENCES, as 5-128-2 or 1-any-1")
    least, most, sentences = match.groups()
    return Cleaning(int(least), None if most == "any" else int(most), int(sentences))


def find(root: str, rows: Sequence[dict], limit: int | None, skip_missing: bool) -> tuple[list[Set], list[str]]:
    """(the sets of a table's rows, the languages that are missing), with CC-Net's files below ``root``, at any depth.

    Links to folders are not followed.

    Raises:
      CorpusError: ``root`` is no folder; a language has no files and is not to be skipped, or none has.
    """
    if not os.path.isdir(root):
        raise CorpusError(f"{root} is no folder; wanted the one with CC-Net's files, as 2019-09/en_head_0000.json.gz")
    files = defaultdict(list)
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if match := _NAME.fullmatch(name):
                files[match["language"]].append((match["bucket"], os.path.join(folder, name)))
    missing = [row["language"] for row in rows if row["language"] not in files]
    if missing and not (skip_missing and len(missing) < len(rows)):
        raise CorpusError(
            f"{root} has no file of {', '.join(missing)}; wanted CC-Net's, as en_head_0000.json.gz. --missing=skip "
            "goes without, --languages takes some languages"
        )
    sets = [
        Set(
            name=row["language"],
            languages=(row["language"],),
            folder=row["folder"],
            amount=limit,
            rate=row["megabytes"],
            sources=tuple(_source(root, path, bucket) for bucket, path in files[row["language"]]),
        )
        for row in rows
        if row["language"] in files
    ]
    return sets, missing


def _source(root: str, path: str, bucket: str) -> Source:
    size = LineFile(path).size()
    return Source(bucket, os.path.relpath(path, root), os.path.abspath(path), size, plans.checksum(path))


class _Counted:
    """A file that counts the lines that are read of it."""

    def __init__(self, file: LineFile):
        self._file, self.path, self.number = file, file.path, 0

    def lines(self) -> Iterator[bytes]:
        for line in self._file.lines():
            self.number += 1
            yield line


def records(source: Source, of: Set, rules: dict, tests: TestSentences) -> Iterator[tuple[str, bytes, int, int]]:
    """Every line of a file: (outcome, record, sentences in it, test sentences taken out of it).

    The outcome is "" for a document that stays; its record is a line of the text files, sentences between tabs.

    Raises:
      CorpusError: a damaged file.
    """
    least = DocumentRules(**rules).min_sentences
    file = _Counted(LineFile(source.path))
    seen = 0
    for document in document_files.cc_net(file, None):
        seen += 1
        yield from (("empty", b"", 0, 0) for _ in range(file.number - seen))  # the reader passes them over
        seen = file.number
        if isinstance(document, Problem):
            yield "bad_line", b"", 0, 0
            continue
        sentences = [text for sentence in document.sentences if (text := clean(sentence))]
        if document.lang != of.languages[0]:
            yield "language", b"", len(sentences), 0
            continue
        kept = [text for text in sentences if text not in tests]
        outcome = "few_sentences" if len(kept) < least else ""
        yield outcome, b"" if outcome else "\t".join(kept).encode(), len(kept), len(sentences) - len(kept)
    yield from (("empty", b"", 0, 0) for _ in range(file.number - seen))


def examples(paths: Sequence[str], of: Set, task: str) -> Iterator[dict]:
    """The documents in a set's text files, as a task yields them."""
    lines = itertools.chain.from_iterable(LineFile(path).lines() for path in paths)
    for number, line in enumerate(lines, hash62(task.encode()) + 1):
        yield {"text": line.decode().replace("\t", "\n"), "lang": of.languages[0], "document_id": number}


def caches(folder: pathlib.Path, plan: Plan, of: Set) -> list[pathlib.Path]:
    """Where the token caches of a set lie, as ``Documents.cache`` and ``MaskedText.cache`` look for them."""
    return [folder / f"{plan.task(of)}-train-{cleaning}" for cleaning in plan.tokens["cleanings"]]


def tokenise(path: pathlib.Path, paths: Sequence[str], plan: Plan, of: Set, tokenizer) -> None:
    """Builds one of the ``caches``."""
    cleaning = cleaning_of(path.name.removeprefix(f"{plan.task(of)}-train-"))
    languages = Languages(plan.tokens["languages"])
    source = f"{plan.task(of)}, split 'train'"
    DocumentCache.build(examples(paths, of, plan.task(of)), tokenizer, languages, cleaning, path, source)


def list_caches(folder: pathlib.Path, plan: Plan, kept: Sequence[Set]) -> None:
    """Writes the listings by which ``Documents`` and ``MaskedText`` find the caches of the mixture."""
    names = json.dumps([plan.task(of) for of in kept]).encode()
    for cleaning in plan.tokens["cleanings"]:
        write_atomically(folder / f"{plan.name}-train-{cleaning}.json", names)
