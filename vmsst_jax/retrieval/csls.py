"""Dictionaries between two spaces by CSLS (Conneau et al. 2018, "Word Translation Without Parallel Data").

``CSLS(a, b) = 2 cos(a, b) - r(a) - r(b)``, where r is a vector's mean cosine with its k nearest neighbours on the other
side: a vector that is near to everything is near to nothing in particular. All products are those of ``exact.top_k``:
float32 at the highest precision, block by block, equal scores to the lowest index.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vmsst_jax.retrieval.exact import top_k
from vmsst_jax.retrieval.neighbours import two_way

K = 10
# The pairs whose mean cosine is the model selection criterion (METHODS 3.8).
CRITERION_PAIRS = 10_000


class Pairs(NamedTuple):
    """Rows of two sides that may translate each other, the most confident first.

    Attributes:
      source, target: int64 [p], rows of a and b.
      confidence: float32 [p], falling: how far the best CSLS lies above the second best.
    """

    source: np.ndarray
    target: np.ndarray
    confidence: np.ndarray


def densities(a: np.ndarray, b: np.ndarray, k: int = K) -> tuple[np.ndarray, np.ndarray]:
    """r of every row of a [n, D] and of b [m, D], both of unit length: float32 [n] and [m].

    Raises ValueError where a side has fewer than k rows, and what ``neighbours.two_way`` raises.
    """
    if min(len(a), len(b)) < k:
        raise ValueError(f"CSLS compares with {k} neighbours, but the sides have {len(a)} and {len(b)} rows")
    found = two_way(a, b, k)
    return tuple(x.mean(axis=1, dtype=np.float64).astype(np.float32) for x in (found.scores_xy, found.scores_yx))


def nearest(
    queries: np.ndarray, corpus: np.ndarray, query_densities: np.ndarray, corpus_densities: np.ndarray, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """The k rows of ``corpus`` with the largest CSLS, for every query: (float32 [n, k], falling; int64 [n, k]).

    Args:
      queries, corpus: [n, D] and [m, D], rows of unit length.
      query_densities, corpus_densities: [n] and [m], see ``densities``.
      k: 1 to m.
    """
    # 2 cos - r(b) is an inner product of vectors one longer: (2 q, -1) and (c, r).
    longer_queries = np.concatenate([2 * queries, np.full((len(queries), 1), -1, np.float32)], axis=1)
    longer_corpus = np.concatenate([corpus, corpus_densities[:, None]], axis=1)
    scores, indices = top_k(longer_queries, longer_corpus, k)
    return scores - query_densities[:, None], indices


def dictionary(
    a: np.ndarray, b: np.ndarray, *, candidates: int | None = None, mutual: bool = False, k: int = K
) -> tuple[Pairs, float]:
    """Pairs of likely translations, and how alike they are.

    Args:
      a, b: [n, D] and [m, D], rows of unit length.
      candidates: rows of ``a`` that may enter, spread evenly over it; None for all.
      mutual: keep only pairs of which each is the other's best (MUSE's "S2T&T2S"); otherwise every candidate is paired
        with its best in b ("S2T").
      k: neighbours in the densities.

    Returns:
      (pairs; the mean cosine of the 10,000 most confident ones before any are dropped by ``mutual``: MUSE's criterion
      of model selection, which needs no translations).

    Raises:
      ValueError: from ``densities`` and ``exact.top_k``.
    """
    a_densities, b_densities = densities(a, b, k)
    source = np.unique(np.linspace(0, len(a) - 1, min(candidates or len(a), len(a))).astype(np.int64))
    scores, indices = nearest(a[source], b, a_densities[source], b_densities, 2)
    order = np.argsort(scores[:, 1] - scores[:, 0], kind="stable")
    pairs = Pairs(source[order], indices[order, 0], (scores[:, 0] - scores[:, 1])[order])
    criterion = mean_cosine(a, b, pairs)
    if mutual:
        reached, position = np.unique(pairs.target, return_inverse=True)
        back = nearest(b[reached], a, b_densities[reached], a_densities, 1)[1][:, 0]
        pairs = Pairs(*(column[back[position] == pairs.source] for column in pairs))
    return pairs, criterion


def mean_cosine(a: np.ndarray, b: np.ndarray, pairs: Pairs, most: int = CRITERION_PAIRS) -> float:
    """Mean cosine of the ``most`` most confident pairs; a and b have rows of unit length."""
    x, y = a[pairs.source[:most]], b[pairs.target[:most]]
    return float(np.einsum("nd,nd->n", x, y, dtype=np.float64).mean())
