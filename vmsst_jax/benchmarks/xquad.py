"""XQuAD as retrieval: does a question find the paragraph that answers it, in its own and in other languages?

This project's own protocol: XQuAD is a reading test, and its figures elsewhere are not comparable. Data:
``paragraphs.xx.tsv`` of article, paragraph, title and text, and ``questions.xx.tsv`` of id, article, paragraph,
question and answer. The same paragraphs and questions are there in every language.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

import numpy as np

from vmsst_jax import checks
from vmsst_jax.benchmarks.language_sets import choose
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.benchmarks.retriever import Retriever, TowerOptions
from vmsst_jax.language_codes import canonical
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.exact import top_k
from vmsst_jax.retrieval.lines import TextFile
from vmsst_jax.retrieval.records import Records, checksum, columns

SCORES = ("same", "xx->en", "en->xx", "cross")
DIRECTIONS = {
    "same": "question -> paragraph of its own language",
    "xx->en": "question -> English paragraph",
    "en->xx": "English question -> paragraph of the language",
    "cross": "question -> paragraph of each other language, mean",
}


class Side(NamedTuple):
    """One language: paragraphs and their keys, questions with ids, and for each its paragraph's row."""

    paragraphs: list[str]
    keys: list[tuple[str, str]]
    questions: list[str]
    ids: list[str]
    right: np.ndarray
    files: list[TextFile]

    def where_paragraph(self, row: int) -> str:
        """File, article and paragraph, for messages."""
        return "{}, article {}, paragraph {}".format(self.files[0].path, *self.keys[row])

    def where_question(self, row: int) -> str:
        """File and id of the question."""
        return f"{self.files[1].path}, question {self.ids[row]}"


def evaluate(
    embedder: Embedder,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    articles: tuple[int, int] | None = None,
    **towers: Unpack[TowerOptions],
) -> dict:
    """How often the nearest paragraph is the one with the answer, for every pair of languages.

    Args:
      embedder: embeds questions, and paragraphs unless there is a ``passage_encoder``.
      data_dir: see the head of this file.
      languages: codes of the languages wanted; None for all.
      articles: the first article that is taken, and the first after it that isn't, such as those that a model was not
        trained on; None for all.
      **towers: see ``retriever.Retriever``.

    Returns:
      The result, see ``suite``; besides, "matrix" {language of the question: {language of the paragraphs: share}}.

    Raises:
      FileNotFoundError, ValueError: files missing, empty, malformed or not aligned; an unknown language.
    """
    retriever = Retriever(embedder, **towers)
    sides = {code: read_side(data_dir, code) for code in choose(find_languages(data_dir), languages)}
    _check_aligned(sides)
    if articles is not None:
        sides = {code: _of_articles(side, articles) for code, side in sides.items()}
    paragraphs = {
        code: retriever.passages(side.paragraphs, canonical(code), side.where_paragraph) for code, side in sides.items()
    }
    matrix = {}
    for code, side in sides.items():
        questions = retriever.questions(side.questions, canonical(code), side.where_question)
        matrix[code] = {
            other: float(np.mean(top_k(questions, vectors, 1)[1][:, 0] == side.right))
            for other, vectors in paragraphs.items()
        }
    per_language = {
        code: {"questions": len(side.questions), "paragraphs": len(side.paragraphs), **_scores(matrix, code)}
        for code, side in sides.items()
    }
    return {
        "benchmark": "xquad",
        "data": {
            "directory": str(data_dir),
            "sha256": checksum(file for side in sides.values() for file in side.files),
            "languages": len(sides),
        },
        "split": "all" if articles is None else f"articles {articles[0]} to {articles[1] - 1}",
        "direction": [f"{name}: {what}" for name, what in DIRECTIONS.items()],
        "scoring": (
            f"this project's own protocol: {retriever.similarity}, accuracy of the single nearest paragraph of one "
            "language, paragraphs embedded without their titles"
        ),
        "index": {"kind": "exact", "recall": 1.0},
        "retriever": retriever.describe(),
        "scores": list(SCORES),
        "per_language": per_language,
        "matrix": matrix,
        "means": {"all": {"languages": len(sides), **{name: _mean(per_language, name) for name in SCORES}}},
    }


def find_languages(data_dir: str | os.PathLike) -> list[str]:
    """The codes xx of the files in ``data_dir``, sorted; FileNotFoundError where there are none."""
    folder = Path(data_dir)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; give the one with files questions.xx.tsv")
    codes = sorted(path.name.split(".")[1] for path in folder.glob("questions.*.tsv"))
    if not codes:
        raise FileNotFoundError(f"{folder} holds no files questions.xx.tsv, beside which paragraphs.xx.tsv is wanted")
    return codes


def read_side(data_dir: str | os.PathLike, code: str) -> Side:
    """One language. ValueError, naming file and line, for malformed lines, repeated ids and unknown paragraphs."""
    passages = Records([Path(data_dir) / f"paragraphs.{code}.tsv"], _paragraph)
    questions = Records([Path(data_dir) / f"questions.{code}.tsv"], _question)
    rows, texts = {}, []
    for number, (key, text) in enumerate(passages):
        if key in rows:
            raise ValueError(
                f"{passages.where(number)}: article {key[0]}, paragraph {key[1]} is that of "
                f"{passages.where(rows[key])} already"
            )
        rows[key] = number
        texts.append(text)
    asked, right = {}, []
    for number, (question_id, key, question) in enumerate(questions):
        if question_id in asked:
            raise ValueError(f"{questions.where(number)}: the question id {question_id} is there twice")
        if key not in rows:
            raise ValueError(
                f"{questions.where(number)}: it asks for article {key[0]}, paragraph {key[1]}, "
                f"which {passages.files[0].path} does not have"
            )
        asked[question_id] = question
        right.append(rows[key])
    files = passages.files + questions.files
    return Side(texts, list(rows), list(asked.values()), list(asked), np.array(right), files)


def _of_articles(side: Side, articles: tuple[int, int]) -> Side:
    """What belongs to the articles from the first number to before the second; ValueError where that is nothing."""
    first, stop = checks.wholes("articles", articles, 0)
    kept = [row for row, (article, _) in enumerate(side.keys) if article.isdecimal() and first <= int(article) < stop]
    asked = np.flatnonzero(np.isin(side.right, kept))
    if not len(asked):
        raise ValueError(
            f"articles are {articles}, and {side.files[1].path} asks for none of them; give (first, last + 1)"
        )
    return Side(
        [side.paragraphs[row] for row in kept],
        [side.keys[row] for row in kept],
        [side.questions[i] for i in asked],
        [side.ids[i] for i in asked],
        np.searchsorted(kept, side.right[asked]),
        side.files,
    )


def _paragraph(line: str) -> tuple[tuple[str, str], str]:
    article, paragraph, _, text = columns(line, ("article", "paragraph", "title", "text"))
    return (article, paragraph), text


def _question(line: str) -> tuple[str, tuple[str, str], str]:
    question_id, article, paragraph, question, _ = columns(line, ("id", "article", "paragraph", "question", "answer"))
    return question_id, (article, paragraph), question


def _check_aligned(sides: dict[str, Side]) -> None:
    """ValueError unless row i is the same paragraph and question i the same question in every language."""
    first, *others = sides
    for name, of in (("paragraphs", lambda side: side.keys), ("questions", lambda side: side.ids)):
        for code in others:
            a, b = of(sides[first]), of(sides[code])
            if a != b:
                row = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
                raise ValueError(
                    f"{name}.{code}.tsv and {name}.{first}.tsv differ from line {row + 1} on; wanted the same {name} "
                    "in the same order in every language"
                )


def _scores(matrix: dict, code: str) -> dict[str, float | None]:
    """A language's row in the table; None where a score makes no sense for it."""
    others = [share for other, share in matrix[code].items() if other != code]
    pivot = code != "en" and "en" in matrix
    return {
        "same": matrix[code][code],
        "xx->en": matrix[code]["en"] if pivot else None,
        "en->xx": matrix["en"][code] if pivot else None,
        "cross": float(np.mean(others)) if others else None,
    }


def _mean(per_language: dict, name: str) -> float | None:
    scores = [s[name] for s in per_language.values() if s[name] is not None]
    return float(np.mean(scores)) if scores else None


def table(result: dict) -> str:
    """The scores in percent, language by language, and their means; then every pair of languages."""
    rows = [
        [code, s["questions"], s["paragraphs"], *(s[name] for name in SCORES)]
        for code, s in result["per_language"].items()
    ]
    mean = result["means"]["all"]
    rows.append([f"mean of {mean['languages']}", "", "", *(mean[name] for name in SCORES)])
    scores = format_table(("language", "questions", "paragraphs", *SCORES), rows)
    matrix = result["matrix"]
    pairs = format_table(("question in", *matrix), [[code, *row.values()] for code, row in matrix.items()])
    return f"{scores}\n\nparagraphs in the language at the head of each column:\n{pairs}"
