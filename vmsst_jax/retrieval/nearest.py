"""Nearest neighbours by whatever suits the size, with the share of them that was really found.

    exact    ``exact.top_k`` on the devices that are there
    scann    a ScaNN index on the CPU, see ``scann_index``
    approx   ``jax.lax.approx_max_k`` in place of exact selection: a gain on TPUs, elsewhere the same as exact

An approximate answer always comes with its recall@k against exact search on a sample of the queries.
"""

from __future__ import annotations

import functools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vmsst_jax.retrieval import exact, scann_index, tiles
from vmsst_jax.retrieval.vector_checks import check_shapes

KINDS = ("auto", "exact", "scann", "approx")
# Products from which on a CPU is quicker with ScaNN, making its index included.
SCANN_FROM = 2e11
# Rows up to which an accelerator searches exactly.
ACCELERATOR_ROWS = 5_000_000
SAMPLE = 1000
RECALL_TARGET = 0.99


class Found(NamedTuple):
    """What a search found, and how.

    Attributes:
      scores: float32 [n, k], falling.
      indices: int64 [n, k].
      index: for results: {"kind", "recall", "k", "sampled_queries"} and, of ScaNN, "settings" and "build_seconds".
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
    if platform == "cpu":
        large = queries * rows >= SCANN_FROM
    else:
        large = rows > ACCELERATOR_ROWS
    if not large:
        return "exact"
    return "approx" if platform == "tpu" else "scann" if scann_index.available() else "exact"


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
      queries: [n, D]; of unit length, as ``corpus``, unless the search is exact.
      corpus: [m, D].
      k: 1 to m.
      kind: one of ``KINDS``; "auto" chooses by size.
      settings: of ScaNN; None takes the saved ones for the size.
      threads: of ScaNN; None takes all cores.
      seed: of the choice of queries that recall is measured on, 1,000 or all there are.

    Raises:
      ValueError: an unknown kind, what ``exact.top_k`` and ``ScannIndex`` raise.
    """
    check_shapes(queries, corpus, k)
    kind = choose(len(queries), len(corpus), kind)
    if kind == "exact":
        return Found(*exact.top_k(queries, corpus, k), {"kind": kind, "recall": 1.0, "k": k})
    about = {}
    if kind == "scann":
        index = scann_index.ScannIndex(corpus, k, settings=settings, threads=threads)
        about = {"settings": _for_json(index.settings), "build_seconds": round(index.build_seconds, 1)}
        search = index.top_k
    else:
        search = functools.partial(_approximate, corpus=corpus)
    began = time.perf_counter()
    scores, indices = search(queries, k=k)
    about["search_seconds"] = round(time.perf_counter() - began, 1)
    recall, sampled = measured_recall(queries, corpus, indices, seed)
    return Found(scores, indices, {"kind": kind, "recall": recall, "k": k, "sampled_queries": sampled, **about})


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


def _approximate(queries: np.ndarray, *, corpus: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    return exact.top_k(queries, corpus, k, select=_selection(len(corpus)))


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
