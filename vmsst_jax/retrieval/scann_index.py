"""ScaNN: approximate search on a CPU by a tree, asymmetric hashing and exact re-scoring of the candidates.

Settings are saved by the size of the corpus; they are for vectors of unit length and were measured on sentence
embeddings (tests/perf/scann_speed.py). The library is loaded late and can be absent: it exists for x86-64 Linux only.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from vmsst_jax.retrieval import exact
from vmsst_jax.retrieval.vector_checks import ROWS, check_rows, check_shapes

# Asymmetric hashing trains 16 centres.
LEAST = 16
# More neighbours than this have been seen to corrupt ScaNN's memory (google-research#375).
MOST_NEIGHBOURS = 1000


class Settings(NamedTuple):
    """How a corpus of up to ``rows`` vectors is indexed and searched.

    Attributes:
      rows: up to this many.
      leaves: parts of the tree; 0 is no tree.
      searched: parts that are looked at, a share of the leaves.
      block: dimensions that asymmetric hashing takes together.
      candidates: re-scored exactly, for up to 10 neighbours; in proportion for more.
    """

    rows: float
    leaves: int
    searched: float
    block: int
    candidates: int


# With vectors of multilingual-e5-small (384 wide) of distinct short sentences, recall@4 was 0.98 to 0.99 at 20,000 to
# 200,000 rows. The last two go on as the first ones do and are not measured.
SETTINGS = (
    Settings(5_000, 0, 0.0, 2, 100),
    Settings(30_000, 150, 0.18, 3, 100),
    Settings(100_000, 600, 0.1, 3, 100),
    Settings(400_000, 1000, 0.08, 3, 100),
    Settings(2_000_000, 3000, 0.06, 3, 150),
    Settings(float("inf"), 8000, 0.05, 3, 200),
)
# Vectors that tree and hashing are trained on: all of a large corpus would cost hours and more memory than it has.
TRAINING_SAMPLE = 250_000
# Errors along a vector count more than those across it, in hashing and in the tree's centres: large products matter.
ANISOTROPY = 0.1
AVQ = 3.0
# Every vector lies in a second leaf too, chosen for the queries that the first one fails.
SOAR = 1.5


def settings_for(rows: int) -> Settings:
    """The saved settings for a corpus of so many vectors."""
    return next(settings for settings in SETTINGS if rows <= settings.rows)


class ScannIndex:
    """A corpus ready to be searched.

    Args:
      corpus: [m, D] float, rows of unit length. ScaNN holds a copy of it in memory.
      k: neighbours that searches ask for at most.
      settings: None takes the saved ones for its size.
      threads: of searching and building; None takes all cores.

    Attributes:
      settings: in use.
      build_seconds: how long it took.

    Raises:
      ValueError: fewer than 16 rows, rows that are not of unit length, k out of range, or no ScaNN here.
    """

    def __init__(self, corpus: np.ndarray, k: int, *, settings: Settings | None = None, threads: int | None = None):
        builder = _library().builder
        rows = len(corpus)
        if rows < LEAST:
            raise ValueError(f"the corpus has {rows} rows; ScaNN needs at least {LEAST}: search it exactly")
        if not 1 <= k <= min(rows, MOST_NEIGHBOURS):
            most = min(rows, MOST_NEIGHBOURS)
            raise ValueError(f"k is {k}; ScaNN finds 1 to {most} neighbours among {rows} rows: search exactly for more")
        _check_unit(corpus)
        self.k, self.settings = k, settings or settings_for(rows)
        self.threads = threads or os.cpu_count() or 1
        began = time.perf_counter()
        self._corpus = np.ascontiguousarray(corpus[:], np.float32)
        made = builder(self._corpus, k, "dot_product").set_n_training_threads(self.threads)
        sample = min(TRAINING_SAMPLE, rows)
        if self.settings.leaves:
            searched = max(1, round(self.settings.leaves * self.settings.searched))
            made = made.tree(self.settings.leaves, searched, training_sample_size=sample, avq=AVQ, soar_lambda=SOAR)
        made = made.score_ah(
            self.settings.block, anisotropic_quantization_threshold=ANISOTROPY, training_sample_size=sample
        )
        self._searcher = made.reorder(min(rows, self.settings.candidates * -(-k // 10))).build()
        self._searcher.set_num_threads(self.threads)
        self.build_seconds = time.perf_counter() - began

    def top_k(self, queries: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """As ``exact.top_k``, but some neighbours may be missed; equal scores come in any order.

        Raises ValueError for what cannot be searched, or k above that which the index was made for.
        """
        check_shapes(queries, self._corpus, k)
        if k > self.k:
            raise ValueError(f"k is {k}, but the index was made for up to {self.k}; make it again with k={k}")
        check_rows("queries", queries)
        queries = np.ascontiguousarray(queries[:], np.float32)
        found, scores = self._searcher.search_batched_parallel(queries, k, batch_size=self._batch(len(queries)))
        scores, indices = np.asarray(scores, np.float32), np.asarray(found, np.int64)
        # Where the searched leaves hold fewer than k rows, ScaNN fills up with NaN.
        short = ~np.isfinite(scores).all(axis=1)
        if short.any():
            scores[short], indices[short] = exact.top_k(queries[short], self._corpus, k)
        return scores, indices

    def _batch(self, queries: int) -> int:
        return max(1, min(256, -(-queries // self.threads)))


def available() -> bool:
    """Whether ScaNN can be loaded here."""
    try:
        _library()
    except ValueError:
        return False
    return True


def _library():
    try:
        with _without_tensorflow():
            from scann.scann_ops.py import scann_ops_pybind
    except ImportError as error:
        raise ValueError(
            f"ScaNN cannot be loaded ({error}); install scann, which exists for x86-64 Linux, or search exactly"
        ) from None
    return scann_ops_pybind


@contextlib.contextmanager
def _without_tensorflow() -> Iterator[None]:
    """ScaNN loads TensorFlow if it is there, for operators not used here: that takes seconds, and fails beside some."""
    if "tensorflow" in sys.modules:
        yield
        return
    sys.modules["tensorflow"] = None  # as if it weren't installed
    try:
        yield
    finally:
        del sys.modules["tensorflow"]


def _check_unit(corpus: np.ndarray) -> None:
    for start in range(0, len(corpus), ROWS):
        part = np.asarray(corpus[start : start + ROWS], np.float32)
        off = ~(np.abs(np.einsum("nd,nd->n", part, part) - 1) < 1e-2)  # True for NaN too
        if off.any():
            row = start + int(np.argmax(off))
            raise ValueError(f"row {row} of corpus is not of length 1; normalize() the vectors before using ScaNN")
