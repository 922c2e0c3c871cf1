"""Scores from vectors, and means over languages."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from vmsst_jax.retrieval.exact import retrieval_accuracy

TRANSLATION_SCORES = ("xx->en", "en->xx", "mean")


def translation_accuracy(foreign: np.ndarray, english: np.ndarray) -> dict[str, float]:
    """Similarity search as LASER scores it (METHODS 5.1): row i of one side belongs to row i of the other, cosine.

    Args:
      foreign, english: [n, D] each. An equal text at a lower index is an error.

    Returns:
      {"xx->en": share of foreign rows that find their English one among all, "en->xx": the reverse, "mean": of both}.
    """
    forth, back = retrieval_accuracy(foreign, english), retrieval_accuracy(english, foreign)
    return dict(zip(TRANSLATION_SCORES, (forth, back, (forth + back) / 2), strict=True))


def macro_mean(scores: Iterable[dict[str, float]], names: Iterable[str]) -> dict[str, float] | None:
    """The unweighted mean of each score over languages; None where there are none."""
    scores = list(scores)
    return {name: float(np.mean([s[name] for s in scores])) for name in names} if scores else None
