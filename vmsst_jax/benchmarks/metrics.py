"""Scores from vectors, and means over languages."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from vmsst_jax.retrieval.exact import normalize
from vmsst_jax.retrieval.mining import margin_scores
from vmsst_jax.retrieval.neighbours import Neighbours, two_way

# Of one direction; gap is margin - accuracy, skewness is a plain number and no share.
DIRECTION_SCORES = ("accuracy", "margin", "gap", "skewness")
# Of both directions of a pair; the three scores behind "mean" are means of both directions.
TRANSLATION_SCORES = ("xx->en", "en->xx", "mean")
HUBNESS_SCORES = ("margin", "gap", "skewness")
HUBNESS_K = 10
MARGIN_K = 4
WHAT_IS_RIGHT = "nearest neighbour by cosine, exact search; the right row is the one of the same index"
WHAT_IS_HUBNESS = (
    f"margin: accuracy by the ratio margin among the {MARGIN_K} nearest; gap: margin minus cosine; "
    f"skewness: of the {HUBNESS_K}-occurrences of the rows that are searched"
)


def match_rows(a: np.ndarray, b: np.ndarray) -> tuple[dict[str, float | None], dict[str, float | None]]:
    """Similarity search both ways between rows that belong together, with the signs of hubness (METHODS 5.1, 5.2).

    Args:
      a, b: [n, D] each, row i of one being the translation of row i of the other. An equal text at a lower index is an
        error, as LASER counts.

    Returns:
      (scores of a's rows looking for theirs among b's, scores of the reverse), each {"accuracy": by cosine, "margin":
      by the ratio margin, "gap": margin - accuracy, "skewness": of the k-occurrences}. None for what needs more rows
      than there are.

    Raises:
      ValueError: sides of unequal length, or a row that is no usable vector.
    """
    if len(a) != len(b):
        raise ValueError(f"row i of a belongs to row i of b, but a has {len(a)} rows and b {len(b)}")
    found = two_way(normalize(a), normalize(b), min(max(HUBNESS_K, MARGIN_K), len(a)))
    margins = margin_scores(Neighbours(*(column[:, :MARGIN_K] for column in found)), "ratio")
    return _direction(found.ids_xy, margins[0]), _direction(found.ids_yx, margins[1])


def _direction(ids: np.ndarray, margins: np.ndarray) -> dict[str, float | None]:
    """Scores of one direction: ids [n, k] of the neighbours, the nearest first, and margins of the nearest of them."""
    n, right = len(ids), np.arange(len(ids))
    scores = dict.fromkeys(DIRECTION_SCORES)
    scores["accuracy"] = float(np.mean(ids[:, 0] == right))
    if n >= MARGIN_K:
        scores["margin"] = float(np.mean(ids[right, np.argmax(margins, axis=1)] == right))
        scores["gap"] = scores["margin"] - scores["accuracy"]
    if n >= HUBNESS_K:
        scores["skewness"] = k_occurrence_skewness(ids[:, :HUBNESS_K], n)
    return scores


def k_occurrence_skewness(neighbours: np.ndarray, rows: int) -> float:
    """Skewness of N_k, how often each row is among the k nearest of some query (Radovanović et al. 2010).

    0 is a space without hubs; the larger, the fewer rows are the neighbours of many.

    Args:
      neighbours: int [n, k], for each query the indices of its k nearest of ``rows`` rows.
    """
    occurrences = np.bincount(neighbours.ravel(), minlength=rows)
    off = occurrences - occurrences.mean()
    variance = np.mean(off**2)
    return float(np.mean(off**3) / variance**1.5) if variance else 0.0


def translation_scores(foreign: np.ndarray, english: np.ndarray, names=TRANSLATION_SCORES) -> dict[str, float | None]:
    """``match_rows`` with both directions side by side.

    Args:
      foreign, english: [n, D] each.
      names: what to call the accuracy of foreign rows that look for their English one, the reverse, and their mean.

    Returns:
      {names[0]: ..., names[1]: ..., names[2]: ...} and the means over both directions of "margin", "gap", "skewness".
    """
    forth, back = match_rows(foreign, english)
    accuracies = forth["accuracy"], back["accuracy"]
    scores = dict(zip(names, (*accuracies, sum(accuracies) / 2), strict=True))
    return scores | macro_mean((forth, back), HUBNESS_SCORES)


def macro_mean(scores: Iterable[dict[str, float | None]], names: Iterable[str]) -> dict[str, float | None] | None:
    """The unweighted mean of each score over languages; None where there are none.

    A score that some language lacks has no mean: one over the others would not be comparable.
    """
    scores = list(scores)
    if not scores:
        return None
    columns = {name: [s[name] for s in scores] for name in names}
    return {name: None if None in values else float(np.mean(values)) for name, values in columns.items()}


def group_means(per_language: dict[str, dict], groups: dict[str, Collection[str]], names: Collection[str]) -> dict:
    """Macro means over groups of languages, as results have them.

    Args:
      per_language: {key: its scores}.
      groups: {name: keys of its members}.
      names: of the scores.

    Returns:
      {group: {"languages": number of members, score: mean or None}}, empty groups included.
    """
    means = {}
    for group, members in groups.items():
        mean = macro_mean((per_language[key] for key in members), names)
        means[group] = {"languages": len(members), **(mean or dict.fromkeys(names))}
    return means


def cells(scores: dict, names: Iterable[str]) -> list:
    """The scores of a row for ``report.format_table``, which shows numbers in percent: skewness goes as text."""
    values = {name: scores[name] for name in names}
    return [f"{x:.2f}" if name == "skewness" and x is not None else x for name, x in values.items()]


class CosineHistogram:
    """Counts cosines of translations and of sentences that don't belong together, 100 bins from -1 to 1."""

    EDGES = np.linspace(-1, 1, 101)

    def __init__(self):
        self.translations, self.others = (np.zeros(len(self.EDGES) - 1, np.int64) for _ in range(2))

    def add(self, a: np.ndarray, b: np.ndarray) -> None:
        """Rows of unit length [n, D] each; row i belongs to row i, and "others" takes row i and the n/2-th after it."""
        self.translations += self._count(a, b)
        if len(b) > 1:
            self.others += self._count(a, np.roll(b, -(len(b) // 2), axis=0))

    def _count(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return np.histogram(np.clip(np.einsum("nd,nd->n", a, b), -1, 1), self.EDGES)[0]

    def figure(self) -> dict:
        """The histogram as results have figures."""
        return {
            "kind": "histogram",
            "title": "Cosine of translations and of sentences that don't belong together",
            "x_label": "cosine",
            "edges": [round(float(edge), 2) for edge in self.EDGES],
            "series": {"translations": self.translations.tolist(), "others": self.others.tolist()},
        }
