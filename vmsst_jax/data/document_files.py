"""Documents on disk, read in plain Python: CC-Net's JSON lines, plain text, tables with a key per line.

A reader is a generator over one file: it yields :class:`Document` and, for what can't be used, :class:`Problem`.
Nothing here needs TensorFlow; `tasks/documents.py` turns what is read here into seqio tasks.

Text that isn't split yet is split by sentencex (Wikimedia's, MIT licence, one wheel of 1.2 MB without dependencies,
rules and abbreviations of some 300 languages, 33 MB/s). It was taken because it is the one that is kept up (pysbd and
blingfire had their last releases in 2021, sentence-splitter in 2019) and because it is right on scripts with their own
full stops (Chinese, Hindi, Arabic, Armenian, Burmese, Amharic). Thai, which has none, stays whole: cleaning then drops
what is too long, and counts it.
"""

import dataclasses
import itertools
import json
import logging
import os
import re
from collections.abc import Iterable, Iterator

from vmsst_jax.data.text_pairs import CorpusError, LineFile, check_characters

_LOG = logging.getLogger(__name__)
LAYOUTS = ("sentences", "paragraphs")


@dataclasses.dataclass(frozen=True)
class Document:
    """Sentences in their order, none of them empty or with a line break in it.

    Attributes:
      key: what tells the document from the others of its corpus; translations of one document may share it. It
        decides whether the document is held out.
      lang: language code.
      sentences: the text.
    """

    key: str
    lang: str
    sentences: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Problem:
    """What is wrong with a line (numbered from 1) of a file."""

    line: int
    text: str


def split_sentences(text: str, lang: str) -> list[str]:
    """The sentences of running text; a line break always ends one, other white space becomes single spaces.

    ``lang`` is an ISO 639 code; sentencex treats languages it doesn't know like the closest one it does, or English.
    """
    import sentencex

    paragraphs = (plain for line in text.splitlines() if (plain := " ".join(line.split())))
    return [stripped for p in paragraphs for s in sentencex.segment(lang, p) if (stripped := s.strip())]


def plain_text(file: LineFile, lang: str, layout: str) -> Iterator[Document | Problem]:
    """Documents of a text file with a blank line between them; the key is the file's name and the first line's number.

    Args:
      layout: "sentences", one sentence a line; "paragraphs", one paragraph a line, which is split into sentences.
    """
    sentences: list[str] = []
    first = 0
    for number, text, problem in _texts(file):
        if problem:
            yield problem
        elif text.strip():
            first = first or number
            sentences += _sentences(text, lang, layout)
        elif sentences:
            yield Document(_place(file, first), lang, tuple(sentences))
            sentences, first = [], 0
    if sentences:
        yield Document(_place(file, first), lang, tuple(sentences))


def cc_net(file: LineFile, lang: str | None) -> Iterator[Document | Problem]:
    """One document a line, as CC-Net writes them: a JSON object with `raw_content`, paragraphs a line each.

    Args:
      lang: the language of all documents, or None to take each one's own `language`.

    The key is the record's `digest`, its `url`, or else the file's name and the line.
    """
    for number, text, problem in _texts(file):
        if problem or not text.strip():
            yield problem or Problem(number, "an empty line; wanted a JSON object")
            continue
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            yield Problem(number, f"not JSON ({error})")
            continue
        if not isinstance(record, dict) or not isinstance(record.get("raw_content"), str):
            found = f"the fields {', '.join(record)}" if isinstance(record, dict) else f"a {type(record).__name__}"
            yield Problem(number, f"wanted a JSON object with the text in `raw_content`, found {found}"[:200])
            continue
        code = record.get("language") if lang is None else lang
        if not isinstance(code, str) or not code:
            yield Problem(number, f"wanted a language code in `language`, found {code!r}; or name the language")
            continue
        key = str(record.get("digest") or record.get("url") or _place(file, number))
        try:
            for name, value in (("raw_content", record["raw_content"]), ("language", code), ("digest or url", key)):
                check_characters(name, value)
        except ValueError as error:
            yield Problem(number, str(error))
            continue
        if sentences := split_sentences(record["raw_content"], code):
            yield Document(key, code, tuple(sentences))


def keyed(
    file: LineFile, lang: str, *, key: int = 0, text: int = 1, pattern: str = "(.+)", layout: str = "sentences"
) -> Iterator[Document | Problem]:
    """Documents of a tab-separated file: lines one after another whose keys name the same document.

    Args:
      key, text: columns, from 0. A line without text is passed over.
      pattern: a regular expression for the whole key; its first group is the document's name and key.
      layout: what a text is, as in :func:`plain_text`.
    """
    name, sentences = None, []
    for number, line, problem in _texts(file):
        fields = [field.strip() for field in line.split("\t")]
        if problem is None and len(fields) <= max(key, text):
            wanted = max(key, text) + 1
            problem = Problem(number, f"found {len(fields)} column(s), wanted at least {wanted}, separated by tabs")
        if problem is None and not ((match := re.fullmatch(pattern, fields[key])) and match[1]):
            problem = Problem(number, f"the key {fields[key]!r} does not match {pattern!r}, with a name in its group")
        if problem:
            yield problem
            continue
        if match[1] != name and sentences:
            yield Document(name, lang, tuple(sentences))
            sentences = []
        name = match[1]
        sentences += _sentences(fields[text], lang, layout)
    if sentences:
        yield Document(name, lang, tuple(sentences))


def _sentences(text: str, lang: str, layout: str) -> list[str]:
    if layout == "paragraphs":
        return split_sentences(text, lang)
    return [plain] if (plain := " ".join(text.split())) else []


def labelled(file: LineFile, labels: LineFile, lang: str) -> Iterator[Document | Problem]:
    """Documents of a file with one sentence a line, beside a file with the document's name in the same line.

    Raises:
      CorpusError: files of unequal length.
    """
    names, lines = list(_texts(labels)), list(_texts(file))
    if len(names) != len(lines):
        raise CorpusError(f"{file} has {len(lines):,} lines and {labels} {len(names):,}; wanted a label for each line")
    for name, rows in itertools.groupby(zip(names, lines, strict=True), lambda row: row[0][1].strip()):
        sentences = []
        for (_, _, unnamed), (_, text, problem) in rows:
            if problem or unnamed:
                yield problem or unnamed
            else:
                sentences += _sentences(text, lang, "sentences")
        if sentences:
            yield Document(name, lang, tuple(sentences))


def documents_of(file: LineFile, read: Iterable[Document | Problem], on_bad_line: str) -> Iterator[Document]:
    """The documents that a reader found in ``file``.

    Args:
      on_bad_line: "error" stops at the first problem; "skip" leaves bad lines out and reports once how many.

    Raises:
      CorpusError: a problem, or no document at all ("skip": reported only); it names the file and the line.
    """
    found, skipped, first = 0, 0, ""
    for item in read:
        if isinstance(item, Document):
            found += 1
            yield item
            continue
        first = first or f"line {item.line}: {item.text}"
        if on_bad_line == "error":
            raise CorpusError(
                f"{file}, {first}. Correct the line, or leave such lines out by on_bad_line='skip' where the task is "
                "registered"
            )
        skipped += 1
    if skipped:
        _LOG.warning("%s: skipped %d bad line(s) (first: %s)", file, skipped, first)
    if not found:
        if on_bad_line == "error":
            raise CorpusError(f"{file}: no document in this file; wanted some, or the file taken out of the corpus")
        _LOG.warning("%s: no document in this file", file)


def _place(file: LineFile, line: int) -> str:
    """A key for a document without a name; the folder is no part of it, so that moving a corpus changes no split."""
    return f"{os.path.basename(file.path)}:{line}"


def _texts(file) -> Iterator[tuple[int, str, Problem | None]]:
    """(number from 1, text, what is wrong) per line."""
    for number, line in enumerate(file.lines(), 1):
        try:
            yield number, line.decode(), None
        except UnicodeDecodeError as error:
            yield number, "", Problem(number, f"not valid UTF-8 ({error.reason} at byte {error.start + 1})")
