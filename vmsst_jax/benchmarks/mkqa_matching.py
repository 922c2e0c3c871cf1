"""MKQA as a matching task: does a question find itself in another language among thousands?

This project's own protocol. VMSST's question retrieval asks PAQ, which not everyone can hold; this needs the questions
alone. Data: see ``mkqa``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from vmsst_jax.benchmarks import mkqa
from vmsst_jax.benchmarks.language_sets import choose
from vmsst_jax.benchmarks.metrics import (
    HUBNESS_SCORES,
    TRANSLATION_SCORES,
    WHAT_IS_HUBNESS,
    WHAT_IS_RIGHT,
    CosineHistogram,
    group_means,
    translation_scores,
)
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.language_codes import canonical
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.records import checksum
from vmsst_jax.retrieval.vector_checks import naming

FOLDER = "mkqa"


def evaluate(
    embedder: Embedder,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    split: str | None = None,
) -> dict:
    """Accuracy in both directions per language with the signs of hubness, and their macro means.

    Args:
      embedder: the model.
      data_dir: folder with ``mkqa.jsonl`` or files ``mkqa.xx.tsv``.
      languages: codes of the languages wanted besides English; None for all.
      split: "dev" or "test"; None for all questions.

    Returns:
      The result, see ``suite``; accuracies are shares of 1.

    Raises:
      FileNotFoundError, ValueError: see ``mkqa``; no English; an unknown language, or none but English.
    """
    found = mkqa.find_languages(data_dir)
    if "en" not in found:
        raise ValueError(f"{data_dir} has no English questions, which are one side of every pair; it has {found}")
    codes = [code for code in choose(found, languages) if code != "en"]
    if not codes:
        raise ValueError("no language is chosen but English, which is one side of every pair; name others")
    questions = mkqa.read_questions(data_dir, ["en", *codes], split)
    with naming(questions.where("en")):
        english = embedder.encode(questions.texts["en"], language="en", normalize=True, progress=True)
    histogram, per_language = CosineHistogram(), {}
    for code in codes:
        texts = questions.texts[code]
        with naming(questions.where(code)):
            foreign = embedder.encode(texts, language=canonical(code), normalize=True, progress=True)
        histogram.add(foreign, english)
        per_language[code] = {
            "questions": len(texts),
            "repeated": len(texts) - len(set(texts)),
            **translation_scores(foreign, english),
        }
    return {
        "benchmark": "mkqa_matching",
        "data": {
            "directory": str(data_dir),
            "sha256": checksum(questions.files),
            "questions": len(questions.ids),
            "languages": len(codes) + 1,
        },
        "split": split or "all",
        "direction": list(TRANSLATION_SCORES),
        "scoring": (
            f"this project's own protocol; accuracy among {len(questions.ids)} questions aligned by id: "
            f"{WHAT_IS_RIGHT}, also where a text is repeated; in both directions: {WHAT_IS_HUBNESS}"
        ),
        "index": {"kind": "exact", "recall": 1.0},
        "scores": ["margin", "gap", *TRANSLATION_SCORES],
        "numbers": ["skewness"],
        "per_language": per_language,
        "means": group_means(per_language, {"all": codes}, (*TRANSLATION_SCORES, *HUBNESS_SCORES)),
        "figures": [histogram.figure()],
    }


def table(result: dict) -> str:
    """The scores in percent, language by language, then their mean."""
    names = (*TRANSLATION_SCORES, "gap")

    def cells(scores: dict) -> list:
        skewness = scores["skewness"]
        return [*(scores[name] for name in names), None if skewness is None else f"{skewness:.2f}"]

    rows = [[code, s["questions"], s["repeated"], *cells(s)] for code, s in result["per_language"].items()]
    mean = result["means"]["all"]
    rows.append([f"mean of {mean['languages']}", "", "", *cells(mean)])
    return format_table(("language", "questions", "repeated", *names[:-1], "margin gap", "skewness"), rows)
