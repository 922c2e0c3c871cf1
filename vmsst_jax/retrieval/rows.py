"""Rows of vectors that lie on the disk, as ``exact`` and ``neighbours`` read them: slice by slice, never held whole."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from vmsst_jax.retrieval.exact import normalize


class Chosen:
    """The rows with these numbers.

    Args:
      vectors: [m, D], a memory map or whatever is read by slices and arrays of row numbers.
      rows: int [n].
    """

    ndim = 2

    def __init__(self, vectors, rows: np.ndarray):
        self._vectors, self._rows, self.shape = vectors, rows, (len(rows), vectors.shape[1])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, block: slice) -> np.ndarray:
        return self._vectors[self._rows[block]]


class Joined:
    """Arrays one below the other, read as if they were one.

    Args:
      parts: [rows, D] each, memory maps or arrays; at least one.
    """

    ndim = 2

    def __init__(self, parts: Sequence[np.ndarray]):
        self._parts, self._ends = list(parts), list(itertools.accumulate(map(len, parts)))
        self.shape = (self._ends[-1], parts[0].shape[1])

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, block: slice) -> np.ndarray:
        start, stop, _ = block.indices(len(self))
        found, first = [], bisect.bisect_right(self._ends, start)
        for part, end in zip(self._parts[first:], self._ends[first:], strict=True):
            if (before := end - len(part)) >= stop:
                break
            found.append(part[max(start - before, 0) : stop - before])
        return found[0] if len(found) == 1 else np.concatenate([self._parts[0][:0], *found])


class Unit:
    """The rows scaled to length 1, float32.

    Args:
      vectors: [m, D] of any float type.
      where: row number -> the row in words for messages, such as file and line.
    """

    ndim = 2

    def __init__(self, vectors, where: Callable[[int], str]):
        self._vectors, self._where, self.shape = vectors, where, vectors.shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, block: slice | np.ndarray) -> np.ndarray:
        part = np.asarray(self._vectors[block], np.float32)
        peak = np.abs(part).max(axis=1, initial=0)
        usable = (peak > 0) & (peak < np.inf)  # False for NaN too
        if not usable.all():
            row = int(np.arange(len(self))[block][int(np.argmin(usable))])
            raise ValueError(f"{self._where(row)}: its vector holds NaN or infinity, or nothing but zeros")
        return normalize(part) if len(part) else part
