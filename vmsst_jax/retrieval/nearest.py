"""Nearest neighbours by whatever suits the size, with the share of them that was really found.

    exact    ``exact.top_k`` on the devices that are there
    scann    ScaNN on the CPU, see ``scann_index``; an index for each part of a large corpus, one in memory at a time
    approx   ``jax.lax.approx_max_k`` in place of exact selection: a gain on TPUs, elsewhere the same as exact

An approximate answer always comes with its recall@k against exact search on a sample of the queries.

"auto" looks at queries times rows, since an index is made for one search here: few questions to a corpus of any size
(XOR-Retrieve's 2,000 to 18 million passages) are answered in one pass over it, sooner than an index would be made; many
(NQ and MKQA's 180,000 to PAQ's 65 million) are not. A GPU multiplies faster than a CPU makes an index.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vmsst_jax.retrieval import exact, scann_index, tiles
from vmsst_jax.retrieval.vector_checks import check_shapes

KINDS = ("auto", "exact", "scann", "approx")
# Products from which on a CPU is quicker with ScaNN, making its index included.
SCANN_FROM = 2e11
# Rows of a ScaNN index at most: those of the largest settings that were measured, 3.3 GB at 1,024 wide.
SCANN_ROWS = 400_000
# Rows up to which a TPU searches exactly.
TPU_ROWS = 5_000_000
SAMPLE = 1000
RECALL_TARGET = 0.99


class Found(NamedTuple):
    """What a search found, and how.

    Attributes:
      scores: float32 [n, k], falling.
      indices: int64 [n, k].
      index: for results: {"kind", "recall", "k"}; if not exact, "sampled_queries" and "search_seconds" too, and of
        ScaNN "parts", "settings" and "build_seconds".
    """

    scores: np.ndarray
    indices: np.ndarray
    index: dict


def choose(queries: int, rows: int, kind: str = "auto") -> str:
    """ "exact", "scann" or "approx" for so many queries and rows of a corpus.

    Raises ValueError for an unknown kind.
    """
    if kind not in KINDS:
        raise ValueError(f"index is {kind!r}; use one of {', '.join(KINDS)}")
    if kind != "auto":
        return kind
    platform = jax.default_backend()
    if platform == "tpu" and rows > TPU_ROWS:
        return "approx"
    return "scann" if platform == "cpu" and queries * rows >= SCANN_FROM and scann_index.available() else "exact"


def top_k(
    queries: np.ndarray,
    corpus: np.ndarray,
    k: int,
    kind: str = "auto",
    *,
    settings: scann_index.Settings | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> Found:
    """The k nearest rows of ``corpus`` for every query.

    Args:
      queries: [n, D]; of unit length, as ``corpus``, for ScaNN.
      corpus: [m, D]; a memory map, or ``rows.Joined`` shards, may be larger than memory.
      k: 1 to m.
      kind: one of ``KINDS``; "auto" chooses by size.
      settings: of ScaNN; None takes the saved ones for the size.
      threads: of ScaNN; None takes all cores.
      seed: of the choice of queries that recall is measured on, 1,000 or all there are.

    Raises:
      ValueError: an unknown kind, what ``exact.top_k`` and ``ScannIndex`` raise (rows are counted within a part).
    """
    check_shapes(queries, corpus, k)
    kind = choose(len(queries), len(corpus), kind)
    if kind == "exact":
        return Found(*exact.top_k(queries, corpus, k), {"kind": kind, "recall": 1.0, "k": k})
    began = time.perf_counter()
    if kind == "scann":
        scores, indices, about = _by_scann(queries, corpus, k, settings, threads)
    else:
        (scores, indices), about = exact.top_k(queries, corpus, k, select=_selection(len(corpus))), {}
    about["search_seconds"] = round(time.perf_counter() - began - about.get("build_seconds", 0), 1)
    recall, sampled = measured_recall(queries, corpus, indices, seed)
    return Found(scores, indices, {"kind": kind, "recall": recall, "k": k, "sampled_queries": sampled, **about})


def together(searches: Iterable[dict]) -> dict:
    """What a result says of several searches: all their kinds, and for the rest the one with the lowest recall."""
    searches = list(searches)
    worst = min(searches, key=lambda index: index["recall"])
    return {**worst, "kind": " and ".join(sorted({index["kind"] for index in searches}))}


def measured_recall(queries: np.ndarray, corpus: np.ndarray, indices: np.ndarray, seed: int = 0) -> tuple[float, int]:
    """Which share of the k nearest was found, by exact search for 1,000 queries or all there are.

    Args:
      queries: [n, D]; corpus: [m, D].
      indices: int [n, k], what an approximate search found.
      seed: of the choice of queries.

    Returns:
      (recall@k, number of queries). A row that ties with the k-th nearest counts as found.
    """
    n, k = indices.shape
    chosen = np.sort(np.random.default_rng(seed).permutation(n)[:SAMPLE])
    some = _rows(queries, chosen)
    least = exact.top_k(some, corpus, k)[0][:, -1:]
    unique, places = np.unique(indices[chosen], return_inverse=True)
    vectors = _rows(corpus, unique)[places.reshape(len(chosen), k)]
    scores = np.einsum("nd,nkd->nk", some, vectors)
    # Other products than the search's own: the last bits may differ.
    return float(np.mean(scores >= least - 1e-6 * np.maximum(np.abs(least), 1))), len(chosen)


def _rows(x, numbers: np.ndarray) -> np.ndarray:
    """Rows of what may only be read by slices: float32 [len(numbers), D]."""
    return np.concatenate([np.asarray(x[i : i + 1], np.float32) for i in numbers.tolist()])


def _by_scann(queries, corpus, k: int, settings, threads) -> tuple[np.ndarray, np.ndarray, dict]:
    """The best of equal parts of the corpus: (scores [n, k], indices [n, k], what to say of the indices)."""
    parts = -(-len(corpus) // SCANN_ROWS)
    bounds = [len(corpus) * part // parts for part in range(parts + 1)]
    scores, indices, seconds = np.empty((len(queries), 0), np.float32), np.empty((len(queries), 0), np.int64), 0.0
    for start, stop in itertools.pairwise(bounds):
        part = corpus[start:stop]
        index = scann_index.ScannIndex(part, min(k, len(part)), settings=settings, threads=threads)
        seconds += index.build_seconds
        more, found = index.top_k(queries, index.k)
        scores, indices = np.hstack([scores, more]), np.hstack([indices, found + start])
        best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        scores, indices = np.take_along_axis(scores, best, 1), np.take_along_axis(indices, best, 1)
    about = {"parts": parts, "settings": _for_json(index.settings), "build_seconds": round(seconds, 1)}
    return scores, indices, about


@functools.cache
def _selection(rows: int) -> tiles.Select:
    """Approximate selection from tiles of a corpus of so many rows."""

    def select(scores, known, k):
        scores = jnp.where(jnp.arange(scores.shape[1]) < known, scores, -jnp.inf)
        size = max(rows, scores.shape[1])  # the target is for the whole corpus, not for every tile
        return jax.lax.approx_max_k(scores, k, recall_target=RECALL_TARGET, reduction_input_size_override=size)

    return select


def _for_json(settings: scann_index.Settings) -> dict:
    return {name: value for name, value in settings._asdict().items() if name != "rows"}
