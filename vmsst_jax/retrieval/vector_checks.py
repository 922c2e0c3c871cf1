"""Checks of vectors before a search: messages that say which side, which row and what to do."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

ROWS = 65_536


class BadVector(ValueError):
    """A text whose vector is of no use.

    Attributes:
      row: its number among the texts that ``encode`` was asked for.
    """

    def __init__(self, message: str, row: int):
        super().__init__(message)
        self.row = row


@contextlib.contextmanager
def naming(where: Callable[[int], str]) -> Iterator[None]:
    """A ``BadVector`` from inside becomes a ValueError that begins with ``where(its row)``, such as file and line."""
    try:
        yield
    except BadVector as error:
        raise ValueError(f"{where(error.row)}: {error}") from None


def check_shapes(queries, corpus, k: int, names: tuple[str, str] = ("queries", "the corpus")) -> None:
    """ValueError unless the sides are [n, D] and [m, D] with rows, and k is 1 to m."""
    one, other = names
    if len(queries.shape) != 2 or len(corpus.shape) != 2 or queries.shape[1] != corpus.shape[1]:
        raise ValueError(f"{one} {queries.shape} and {other} {corpus.shape}; wanted [n, D] and [m, D] of the same D")
    if min(*queries.shape, *corpus.shape) < 1:
        raise ValueError(f"nothing to search: {one} {queries.shape}, {other} {corpus.shape}")
    m = corpus.shape[0]
    if not 1 <= k <= m:
        raise ValueError(f"k is {k} but {other} has {m} rows; ask for 1 to {m} neighbours")


def check_countable(rows: int, block: int, tile: int, devices: int = 1) -> None:
    """ValueError for a block of no rows, and for more rows than the search's 32-bit indices count."""
    if block < 1:
        raise ValueError(f"block is {block}; wanted at least 1 row")
    if rows + (tile + block) * devices >= 2**31:
        raise ValueError(f"the corpus has {rows} rows, more than 32-bit indices count; search it in parts")


def check_rows(name: str, x) -> None:
    """ValueError naming the first row of x [n, D] that holds NaN, infinity or nothing but zeros; read in blocks."""
    for start in range(0, len(x), ROWS):
        part = x[start : start + ROWS]
        peak = np.maximum(part.max(axis=1), -part.min(axis=1))
        usable = (peak > 0) & (peak < np.inf)
        if not usable.all():
            raise bad_row(name, start + int(np.argmin(usable)))


def check_vectors(vectors: np.ndarray, texts: Sequence[str]) -> None:
    """BadVector for the first of ``texts`` whose vector, of [n, D], holds NaN, infinity or nothing but zeros."""
    peak = np.abs(vectors).max(axis=1, initial=0)
    usable = (peak > 0) & (peak < np.inf)  # False for NaN too
    if not usable.all():
        row = int(np.argmin(usable))
        raise BadVector(
            f"the vector of {texts[row][:80]!r} holds NaN or infinity, or nothing but zeros; is the model damaged?", row
        )


def check_scores(name: str, scores: np.ndarray) -> None:
    """ValueError naming the first row of ``scores`` [n, k] that is not finite: its vector's products are too large."""
    finite = np.isfinite(scores).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise ValueError(f"row {row} of {name} has a score beyond float32; normalize() the vectors first")


def bad_row(name: str, row: int) -> ValueError:
    """The error for a row that has no direction."""
    return ValueError(f"row {row} of {name} is no usable vector: it holds NaN or infinity, or nothing but zeros")
