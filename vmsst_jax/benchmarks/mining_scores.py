"""F1 of mined pairs against hidden ones, with a threshold that is swept (METHODS 5.2, LASER's bucc.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from vmsst_jax.benchmarks.metrics import CosineHistogram
from vmsst_jax.benchmarks.mining_data import MiningSet
from vmsst_jax.benchmarks.sentences import Sentences, Vectors
from vmsst_jax.retrieval.mining import margin_pairs
from vmsst_jax.retrieval.neighbours import two_way

# "cosine F1" is of the cosine, with a threshold of its own; the others are of the margin that is asked for.
COSINE = "cosine F1"
SCORES = (COSINE, "precision", "recall", "oracle", "F1")
NUMBERS = ("threshold",)
# Products up to which a search takes but seconds, and shows no progress.
QUICK = 10**9
# Points of a precision-recall curve that are kept.
CURVE_POINTS = 100


class Candidates(NamedTuple):
    """What was mined from a set.

    Attributes:
      scores: float [p], falling.
      right: bool [p], which pairs are gold.
      gold: how many pairs there are to be found.
    """

    scores: np.ndarray
    right: np.ndarray
    gold: int


class Sweep(NamedTuple):
    """F1 by where the list of candidates is cut; only between unequal scores can a threshold cut it.

    Attributes:
      thresholds: float [c], midpoint between the last score before the cut and the next one; the last score at the end.
      precision, recall, f1: float [c], of the candidates from the threshold on.
    """

    thresholds: np.ndarray
    precision: np.ndarray
    recall: np.ndarray
    f1: np.ndarray

    @property
    def best(self) -> int:
        """The cut of the highest F1, the first of equals."""
        return int(np.argmax(self.f1))


def sweep(candidates: Candidates) -> Sweep:
    """Precision, recall and F1 at every cut of a list; ValueError where it is empty."""
    scores = candidates.scores
    if not len(scores) or not candidates.gold:
        raise ValueError(f"{len(scores)} mined and {candidates.gold} gold pairs: there is nothing to score")
    cuts = np.append(np.flatnonzero(scores[:-1] > scores[1:]), len(scores) - 1)
    after = scores[np.minimum(cuts + 1, len(scores) - 1)]
    found = np.cumsum(candidates.right)[cuts]
    return Sweep((scores[cuts] + after) / 2, *_prf(found, cuts + 1, candidates.gold))


def at_threshold(candidates: Candidates, threshold: float) -> tuple[float, float, float]:
    """(precision, recall, F1) of the candidates that score at least ``threshold``."""
    taken = candidates.scores >= threshold
    return tuple(float(x) for x in _prf(candidates.right[taken].sum(), taken.sum(), candidates.gold))


def _prf(found, taken, gold: int):
    found, taken = np.asarray(found, float), np.asarray(taken, float)
    return found / np.maximum(taken, 1), found / gold, 2 * found / np.maximum(taken + gold, 1)


def add_sentences(sentences: Sentences, contents: MiningSet, languages: tuple[str, str]) -> None:
    """All that is to be embedded."""
    for code, side, path in zip(languages, (contents.source, contents.target), contents.files, strict=False):
        sentences.add(code, list(side.values()), path)


def candidates(
    contents: MiningSet, languages: tuple[str, str], vectors: Vectors, k: int, margins: Iterable[str]
) -> dict[str, Candidates]:
    """Mines a set by each of ``margins``, names of ``retrieval.mining``: {margin: candidates}.

    Equal sentences of a side are one sentence in the search. Afterwards a pair with a sentence of several ids is
    dropped, since nobody knows which is meant; if it is gold, it counts as not found.

    Raises ValueError where a side has fewer than k sentences, or no gold pair can be found.
    """
    sides = contents.source, contents.target
    texts = [list(dict.fromkeys(side.values())) for side in sides]
    for path, side in zip(contents.files, texts, strict=False):
        if len(side) < k:
            raise ValueError(f"{path} has {len(side)} distinct sentences, fewer than k = {k}")
    ids = [_ids(side) for side in sides]
    gold = set(contents.gold)
    if not any(sides[0][a] in ids[0] and sides[1][b] in ids[1] for a, b in gold):
        raise ValueError(f"{contents.files[2]}: the sentences of every pair are there several times; none can be found")
    x, y = (vectors.of(code, side) for code, side in zip(languages, texts, strict=True))
    neighbours, mined = two_way(x, y, k, progress=len(x) * len(y) > QUICK), {}
    for margin in dict.fromkeys(margins):
        pairs = margin_pairs(neighbours, margin)
        named = [
            (ids[0].get(texts[0][i]), ids[1].get(texts[1][j]))
            for i, j in zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)
        ]
        known = np.array([None not in pair for pair in named], bool)
        right = np.array([pair in gold for pair in named], bool)
        mined[margin] = Candidates(pairs.scores[known], right[known], len(gold))
    return mined


def _ids(side: dict[str, str]) -> dict[str, str]:
    """{sentence: id} of the sentences with one id."""
    counts = Counter(side.values())
    return {text: name for name, text in side.items() if counts[text] == 1}


def score(mined: dict[str, Candidates], tuned: dict[str, Candidates], margin: str) -> dict[str, float]:
    """``SCORES`` and ``NUMBERS``: F1, precision and recall of ``mined`` with the thresholds that are best on ``tuned``.

    "oracle" is the F1 with the threshold that is best on ``mined`` itself. Both have candidates of ``margin`` and of
    "absolute".
    """
    (_, _, cosine), _ = _at_best(mined["absolute"], tuned["absolute"])
    (precision, recall, f1), threshold = _at_best(mined[margin], tuned[margin])
    own = sweep(mined[margin])
    values = (cosine, precision, recall, float(own.f1[own.best]), f1, threshold)
    return dict(zip((*SCORES, *NUMBERS), values, strict=True))


def _at_best(mined: Candidates, tuned: Candidates) -> tuple[tuple[float, float, float], float]:
    found = sweep(tuned)
    threshold = float(found.thresholds[found.best])
    return at_threshold(mined, threshold), threshold


class Pictures:
    """The precision-recall curves of languages, and the cosines of gold pairs against random ones."""

    def __init__(self):
        self._histogram, self._curves, self._marks = CosineHistogram(), {}, []

    def add_gold(self, contents: MiningSet, languages: tuple[str, str], vectors: Vectors) -> None:
        """Counts the cosines of a set's gold pairs, and of as many random ones."""
        sides = zip(*((contents.source[a], contents.target[b]) for a, b in contents.gold), strict=True)
        self._histogram.add(*(vectors.of(code, list(side)) for code, side in zip(languages, sides, strict=True)))

    def add_curve(self, key: str, mined: Candidates, scores: dict[str, float]) -> None:
        """Draws a language's curve, with a mark at the threshold that is behind its ``scores``."""
        curve = sweep(mined)
        kept = np.unique(np.linspace(0, len(curve.f1) - 1, CURVE_POINTS).round().astype(int))
        points = np.stack([curve.recall[kept], curve.precision[kept]], axis=1)
        self._curves[key] = [[round(float(value), 4) for value in point] for point in points]
        self._marks.append([scores["recall"], scores["precision"], f"{key}: {scores['threshold']:.3f}"])

    def figures(self) -> list[dict]:
        """As results have them."""
        lines = {
            "kind": "lines",
            "title": "Mining: precision and recall, marked at the threshold",
            "x_label": "recall",
            "y_label": "precision",
            "series": self._curves,
            "marks": self._marks,
        }
        histogram = self._histogram.figure() | {"title": "Cosine of gold pairs and of random ones"}
        histogram["series"] = dict(zip(("gold pairs", "random pairs"), histogram["series"].values(), strict=True))
        return [lines, histogram]
