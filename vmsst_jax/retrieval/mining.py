"""Mining translations by margin (Artetxe and Schwenk 2019a), as LASER's mine_bitexts.py does it (METHODS 5.2).

A cosine alone says little: some sentences are near to everything. The margin relates cos(x, y) to the mean cosines a(x)
and a(y) of both to their k nearest neighbours on the other side:

    ratio      cos(x, y) / ((a(x) + a(y)) / 2)
    distance   cos(x, y) - (a(x) + a(y)) / 2
    absolute   cos(x, y)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vmsst_jax.retrieval.neighbours import Neighbours, two_way

K = 4
MARGINS = ("ratio", "distance", "absolute")
RETRIEVALS = ("max", "intersect", "forward", "backward")


class Pairs(NamedTuple):
    """Sentences that may translate each other, the best first.

    Attributes:
      scores: float64 [p], falling.
      source: int64 [p], rows of one side.
      target: int64 [p], rows of the other.
    """

    scores: np.ndarray
    source: np.ndarray
    target: np.ndarray

    def from_score(self, threshold: float) -> Pairs:
        """Those that score at least ``threshold``."""
        kept = self.scores >= threshold
        return Pairs(*(column[kept] for column in self))


def check_settings(margin: str, retrieval: str) -> None:
    """ValueError, listing what there is, for an unknown margin or retrieval."""
    for name, value, known in (("margin", margin, MARGINS), ("retrieval", retrieval, RETRIEVALS)):
        if value not in known:
            raise ValueError(f"{name} is {value!r}; use one of {', '.join(known)}")


def mine(x: np.ndarray, y: np.ndarray, *, k: int = K, margin: str = "ratio", retrieval: str = "max") -> Pairs:
    """Pairs of rows of x [n, D] and y [m, D], both of unit length; see ``margin_pairs``.

    Raises ValueError for unknown settings and what ``neighbours.two_way`` raises.
    """
    check_settings(margin, retrieval)
    return margin_pairs(two_way(x, y, k), margin, retrieval)


def margin_pairs(neighbours: Neighbours, margin: str = "ratio", retrieval: str = "max") -> Pairs:
    """Pairs from the cosines and rows of both sides' nearest neighbours.

    Args:
      neighbours: of ``two_way``, k each.
      margin: "ratio", "distance" or "absolute".
      retrieval: among the k neighbours, each source row's best target ("forward"), each target row's best source
        ("backward"), the pairs that are both ("intersect"), or both lists from the top down, a row being used once
        ("max").

    Returns:
      The pairs; of equal scores forward ones come first, then those of lower rows.

    Raises:
      ValueError: an unknown margin or retrieval.
    """
    check_settings(margin, retrieval)
    forth, back = margin_scores(neighbours, margin)
    forward, backward = _best(forth, neighbours.ids_xy), _best(back, neighbours.ids_yx)
    rows_x, rows_y = np.arange(len(forth)), np.arange(len(back))
    if retrieval == "forward":
        return _falling(forward[0], rows_x, forward[1])
    if retrieval == "backward":
        return _falling(backward[0], backward[1], rows_y)
    if retrieval == "intersect":
        mutual = backward[1][forward[1]] == rows_x
        return _falling(forward[0][mutual], rows_x[mutual], forward[1][mutual])
    columns = (forward[0], backward[0]), (rows_x, backward[1]), (forward[1], rows_y)
    return _each_once(_falling(*map(np.concatenate, columns)), len(forth), len(back))


def margin_scores(neighbours: Neighbours, margin: str) -> tuple[np.ndarray, np.ndarray]:
    """The margins of all neighbours: float64 [n, k] beside ``ids_xy`` and [m, k] beside ``ids_yx``."""
    forth, back = neighbours.scores_xy.astype(np.float64), neighbours.scores_yx.astype(np.float64)
    if margin == "absolute":
        return forth, back
    around_x, around_y = forth.mean(axis=1), back.mean(axis=1)
    scores = []
    for cosines, own, others, ids in (
        (forth, around_x, around_y, neighbours.ids_xy),
        (back, around_y, around_x, neighbours.ids_yx),
    ):
        around = (own[:, None] + others[ids]) / 2
        if margin == "distance":
            scores.append(cosines - around)
        else:  # no ratio to nothing: 0
            scores.append(np.divide(cosines, around, out=np.zeros_like(cosines), where=around != 0))
    return scores[0], scores[1]


def _best(scores: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row the highest score [n] among its k and the id [n] that it belongs to, the nearest of equals."""
    best = np.argmax(scores, axis=1)[:, None]
    return np.take_along_axis(scores, best, 1)[:, 0], np.take_along_axis(ids, best, 1)[:, 0]


def _falling(scores: np.ndarray, source: np.ndarray, target: np.ndarray) -> Pairs:
    order = np.argsort(-scores, kind="stable")
    return Pairs(scores[order], source[order], target[order])


def _each_once(pairs: Pairs, sources: int, targets: int) -> Pairs:
    """From the top down, the pairs of which no side has been used."""
    free_source, free_target = bytearray(b"\1" * sources), bytearray(b"\1" * targets)
    kept = []
    for i, (source, target) in enumerate(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)):
        if free_source[source] and free_target[target]:
            free_source[source] = free_target[target] = 0
            kept.append(i)
    return Pairs(*(column[kept] for column in pairs))
