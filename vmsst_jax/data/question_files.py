"""Questions with the passages that answer them, as DPR publishes its training data, and XQuAD in that role.

Nothing here needs TensorFlow. A source has ``check()``, which looks whether its files are there, and ``questions()``,
which reads them and yields ``Question``.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from vmsst_jax import checks
from vmsst_jax.data.text_pairs import CorpusError, LineFile, check_characters

logger = logging.getLogger(__name__)
# Where a reader of values stands: before anything, after a list's "[", after a value, a comma, a list's "]".
START, OPENED, AFTER, COMMA, CLOSED = range(5)
# (state, what stands there) -> the next state, in a list.
STEPS = {(START, "["): OPENED, (OPENED, "]"): CLOSED, (AFTER, ","): COMMA, (AFTER, "]"): CLOSED}
SPACE = re.compile(r"[ \t\r\n]*")


class Passage(NamedTuple):
    """A piece of an article; ``title`` is "" where there is none."""

    title: str
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Question:
    """A question, the passage that answers it, and others that look as if they did, the hardest kind there is."""

    text: str
    positive: Passage
    negatives: tuple[Passage, ...]


@dataclasses.dataclass(frozen=True)
class DprFiles:
    """Files in the form of DPR's ``biencoder-nq-train.json``, whole lists or one object a line, plain or ``.gz``.

    An object has ``question`` and lists of passages {``title``, ``text``}: the first of ``positive_ctxs`` is taken, all
    of ``hard_negative_ctxs``, and where these are none, all of ``negative_ctxs``. Questions without a positive passage
    are left out and counted, as DPR does. Objects are read one by one, so that a file may be larger than memory.

    Attributes:
      files: a path, or several.
    """

    files: str | Sequence[str]

    def __post_init__(self):
        files = [self.files] if isinstance(self.files, str | os.PathLike) else self.files
        if not isinstance(files, Sequence) or not files or not all(isinstance(f, str | os.PathLike) for f in files):
            raise ValueError(
                f"DprFiles.files is {self.files!r}; wanted the path of a file in quotes, or a list of paths"
            )
        object.__setattr__(self, "files", tuple(map(str, files)))

    def check(self) -> None:
        """FileNotFoundError for a file that is not there."""
        for file in self.files:
            if not Path(file).is_file():
                raise FileNotFoundError(
                    f"DprFiles.files names {file}, which does not exist; give a file in the form of DPR's "
                    "biencoder-nq-train.json"
                )

    def questions(self) -> Iterator[Question]:
        """All questions in their order. Raises CorpusError, naming file and line, for what is not in this form."""
        for name in self.files:
            file, found, left_out = LineFile(name), 0, 0
            for line, value in json_values(file):
                try:
                    question = _from_dpr(value)
                except ValueError as error:
                    raise CorpusError(f"{file}, line {line}: {error}") from None
                found += question is not None
                left_out += question is None
                if question is not None:
                    yield question
            if not found:
                raise CorpusError(f"{file} holds no question with a positive passage (and {left_out:,} without)")
            if left_out:
                count = found + left_out
                logger.warning("%s: %d of %d questions have no positive passage, left out", file, left_out, count)


@dataclasses.dataclass(frozen=True)
class XquadFiles:
    """XQuAD: a question belongs to its paragraph, and the other paragraphs of the article are its negatives.

    Attributes:
      data_dir: the folder with ``paragraphs.xx.tsv`` (article, paragraph, title, text) and ``questions.xx.tsv`` (id,
        article, paragraph, question, answer). The title, the same for a whole article, is not taken.
      languages: codes of those wanted.
      articles: the first article that is taken, and the first after it that isn't; None for all.
    """

    data_dir: str
    languages: Sequence[str] = ("en",)
    articles: tuple[int, int] | None = None

    def __post_init__(self):
        if isinstance(self.languages, str) or not self.languages:
            raise ValueError(f"XquadFiles.languages is {self.languages!r}; wanted a list of codes, such as ('en',)")
        if self.articles is not None:
            articles = checks.wholes("XquadFiles.articles", self.articles, 0)
            if len(articles) != 2 or articles[0] >= articles[1]:
                raise ValueError(f"XquadFiles.articles is {articles}; wanted (first, first after it that isn't taken)")

    def check(self) -> None:
        """FileNotFoundError for a file that is not there."""
        for code in self.languages:
            for path in self._paths(code):
                if not path.is_file():
                    raise FileNotFoundError(
                        f"XquadFiles wants {path}, which does not exist; set DATA_DIR to XQuAD's folder"
                    )

    def questions(self) -> Iterator[Question]:
        """All questions, language by language. Raises CorpusError, naming file and line, for malformed files."""
        found = 0
        for code in self.languages:
            for question in self._of_language(*map(LineFile, map(str, self._paths(code)))):
                found += 1
                yield question
        if not found:
            raise CorpusError(f"{self.data_dir} holds no questions on the articles {self.articles}")

    def _paths(self, code: str) -> tuple[Path, Path]:
        return tuple(Path(self.data_dir) / f"{name}.{code}.tsv" for name in ("paragraphs", "questions"))

    def _of_language(self, paragraphs: LineFile, questions: LineFile) -> Iterator[Question]:
        articles: dict[str, dict[str, Passage]] = {}
        for _, (article, paragraph, _, text) in _table(paragraphs, ("article", "paragraph", "title", "text")):
            articles.setdefault(article, {})[paragraph] = Passage("", text)
        names = ("id", "article", "paragraph", "question", "answer")
        for line, (_, article, paragraph, text, _) in _table(questions, names):
            if paragraph not in articles.get(article, {}):
                raise CorpusError(
                    f"{questions}, line {line}: it asks for article {article}, paragraph {paragraph}, which "
                    f"{paragraphs} does not have"
                )
            if self.articles is None or self.articles[0] <= int(article) < self.articles[1]:
                others = tuple(p for name, p in articles[article].items() if name != paragraph)
                yield Question(text, articles[article][paragraph], others)


def json_values(file: LineFile) -> Iterator[tuple[int, object]]:
    """(line where it begins, value) for the values of a JSON list, or for the values of a file one after another.

    A value is decoded when a line ends it, which its indentation tells: files written with an indentation are read
    in little memory, those written in one line are held whole.

    Raises:
      CorpusError: no JSON, or a file that ends too early; it names the file and the line.
    """
    decoder, between, parts, first, indentation = json.JSONDecoder(), _Between(), [], 0, 0
    for number, raw in enumerate(file.lines(), 1):
        try:
            line = raw.decode()
        except UnicodeDecodeError as error:
            raise CorpusError(f"{file}, line {number}: byte {error.start + 1} is not UTF-8") from None
        depth = len(line) - len(line.lstrip())
        if not parts:
            first, indentation = number, depth
        parts.append(line)
        if depth > indentation:
            continue  # inside of the value
        text, at = "\n".join(parts).rstrip(), 0
        try:
            while (at := between.passed(text, at)) < len(text):
                start = at
                value, at = decoder.raw_decode(text, at)
                yield first + text.count("\n", 0, start), value
                between.state = AFTER
            start = len(text)
        except json.JSONDecodeError as error:
            if error.pos < len(text):
                raise CorpusError(f"{file}, line {first + error.lineno - 1}: not JSON ({error.msg})") from None
            # The value goes on in the next line.
        except (ValueError, RecursionError) as error:  # a number of thousands of digits, brackets in brackets
            line = first + text.count("\n", 0, start)
            raise CorpusError(f"{file}, line {line}: JSON that can't be read ({error})") from None
        first += text.count("\n", 0, start)
        parts = [text[start:]] if start < len(text) else []
    if parts:
        raise CorpusError(f"{file}: the value that begins in line {first} never ends; fetch the file again")
    if between.listed and between.state != CLOSED:
        raise CorpusError(f"{file}: the list ends without its closing bracket; fetch the file again")


class _Between:
    """What stands between the values of a JSON list, or between values one after another: white space alone.

    Attributes:
      state: where the reader stands; who reads a value sets it to ``AFTER``.
      listed: whether the values are a list's.
    """

    def __init__(self):
        self.state, self.listed = START, False

    def passed(self, text: str, at: int) -> int:
        """Where in ``text``, from ``at`` on, the next value begins; its length where there is none yet.

        Raises:
          json.JSONDecodeError: something stands there that is not between values.
        """
        while (at := SPACE.match(text, at).end()) < len(text):
            step = STEPS.get((self.state, text[at])) if self.listed or self.state == START else None
            if step is None:
                break
            self.state, self.listed, at = step, True, at + 1
        if at < len(text) and self.listed and self.state in (AFTER, CLOSED):
            wanted = "a comma or the list's end" if self.state == AFTER else "nothing more"
            raise json.JSONDecodeError(f"wanted {wanted}, found {text[at : at + 20]!r}", text, at)
        return at


def _from_dpr(value: object) -> Question | None:
    """A question, None where it has no positive passage; ValueError says what is wrong with it."""
    if not isinstance(value, dict):
        found = "a list" if isinstance(value, list) else json.dumps(value)
        raise ValueError(f"found {found:.60}; wanted a JSON object with a question")
    text = value.get("question")
    if not isinstance(text, str) or not text.strip():
        found = f"{text!r:.60}" if "question" in value else f"none among {', '.join(map(str, value))[:120]}"
        raise ValueError(f"wanted a text in question, found {found}")
    if "positive_ctxs" not in value:
        raise ValueError(f"the question {text[:60]!r} has no positive_ctxs; it has {', '.join(map(str, value))[:120]}")
    check_characters("question", text)
    positives = _passages(value, "positive_ctxs")
    if positives and not positives[0].text.strip():
        raise ValueError(f"the positive passage of the question {text[:60]!r} has no text")
    negatives = _passages(value, "hard_negative_ctxs") or _passages(value, "negative_ctxs")
    return Question(text, positives[0], negatives) if positives else None


def _passages(value: dict, key: str) -> tuple[Passage, ...]:
    found = value.get(key) or []
    if not isinstance(found, list):
        raise ValueError(f"{key} is {found!r:.60}; wanted a list of passages")
    for passage in found:
        if not isinstance(passage, dict) or not isinstance(passage.get("text"), str):
            raise ValueError(
                f"{key} holds {passage!r:.60}; wanted objects with a text, and with a title where there is one"
            )
    passages = tuple(Passage(str(p.get("title") or ""), p["text"]) for p in found)
    for passage in passages:
        check_characters(f"{key}'s text", passage.text)
        check_characters(f"{key}'s title", passage.title)
    return passages


def _table(file: LineFile, names: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    """(line, fields) of a tab-separated file with these columns; CorpusError for any other line."""
    for number, raw in enumerate(file.lines(), 1):
        try:
            fields = raw.decode().split("\t")
        except UnicodeDecodeError as error:
            raise CorpusError(
                f"{file}, line {number}: not valid UTF-8 ({error.reason} at byte {error.start + 1}); convert the file"
            ) from None
        if len(fields) != len(names) or not fields[names.index("article")].isdecimal():
            raise CorpusError(
                f"{file}, line {number}: found {len(fields)} columns ({raw[:60]!r}); wanted {len(names)} between tabs, "
                f"{', '.join(names)}, the article a number"
            )
        yield number, fields
