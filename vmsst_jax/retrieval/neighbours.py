"""The nearest neighbours of two sides in each other, exact, from a single pass over their products.

Searching twice computes every product twice, once for each direction. Here each tile of X Y^T is looked at along its
rows and along its columns while it is in the cache, which halves the arithmetic. Nothing of size n x m is ever held.
"""

from __future__ import annotations

import functools
import json
import os
import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from vmsst_jax import disk
from vmsst_jax.retrieval import tiles
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.vector_checks import bad_row, check_countable, check_rows, check_scores, check_shapes

# Least time between two saves: what a killed run does again at most, but for the block that it was in.
SECONDS_BETWEEN_SAVES = 60


class Neighbours(NamedTuple):
    """Of every x among y and of every y among x, the nearest first; equal scores in the order of their rows.

    Attributes:
      scores_xy: float32 [n, k], inner products.
      ids_xy: int64 [n, k], rows of y.
      scores_yx: float32 [m, k].
      ids_yx: int64 [m, k], rows of x.
    """

    scores_xy: np.ndarray
    ids_xy: np.ndarray
    scores_yx: np.ndarray
    ids_yx: np.ndarray


def two_way(
    x: np.ndarray,
    y: np.ndarray,
    k: int,
    *,
    block: int = tiles.BLOCK,
    progress: bool = False,
    saved: str | os.PathLike | None = None,
    identity: dict | None = None,
) -> Neighbours:
    """The k rows of y with the largest inner product for every row of x, and the k rows of x for every row of y.

    Equal to ``exact.top_k(x, y, k)`` and ``exact.top_k(y, x, k)`` up to rounding. For cosine, ``exact.normalize`` both
    sides first. The local devices share the work.

    Args:
      x: [n, D] of any float type, an array or whatever is read by slices (a memory map, ``rows.Chosen``).
      y: [m, D], likewise.
      k: 1 to the rows of the smaller side.
      block: rows of y on a device at a time, rounded up to whole tiles. Does not change the answer.
      progress: show rate and time left.
      saved: a file NAME.npz for what is finished; the same call goes on behind it. It is the caller's to remove.
      identity: what x and y are, ready for JSON; a saved file of something else is refused.

    Raises:
      ValueError: shapes that don't match, k outside its range, a row that holds NaN or infinity or nothing but zeros
        (its position is named), scores beyond float32, or a saved file of something else.
    """
    mesh = tiles.local_mesh()
    check_shapes(x, y, k, names=("x", "y"))
    check_shapes(y, x, k, names=("y", "x"))
    check_countable(max(len(x), len(y)), block, tiles.TILE, mesh.size)
    check_rows("x", x)
    state = _State(len(x), len(y), k, saved, identity or {})
    tile = tiles.side(len(y))
    with Progress("searching neighbours", len(y), state.done, shown=progress) as shown:
        for offset, rows in tiles.blocks(state.done, len(y), tile, block, mesh.size):
            _search_block(x, y, k, offset, rows, tile, mesh, state, shown)
            state.save(at_once=offset + rows * mesh.size >= len(y))
    found = Neighbours(state.scores_xy, state.ids_xy.astype(np.int64), state.scores_yx, state.ids_yx.astype(np.int64))
    check_scores("x", found.scores_xy)
    check_scores("y", found.scores_yx)
    return found


def _search_block(x, y, k: int, offset: int, rows: int, tile: int, mesh: Mesh, state: _State, shown: Progress) -> None:
    """Searches ``rows`` rows of y for each device, from ``offset`` on, and brings ``state`` up to date."""
    n, m, stop = len(x), len(y), min(offset + rows * mesh.size, len(y))
    here, on_all = tiles.split(mesh), tiles.everywhere(mesh)
    vectors = jax.device_put(tiles.rows_of(y, offset, rows * mesh.size), here)
    firsts = jax.device_put(offset + rows * np.arange(mesh.size, dtype=np.int32), here)
    columns = jax.device_put(_nothing(rows * mesh.size, k, n), here)
    bad = before = jax.device_put(np.full(mesh.size, m, np.int32), here)
    best, query_tile = [], tiles.side(n)
    for start in range(0, n, query_tile):
        queries = jax.device_put(tiles.rows_of(x, start, query_tile), on_all)
        found, columns, bad = _search_tile(
            queries, vectors, firsts, np.int32(start), np.int32(n), np.int32(m), columns, bad, k=k, tile=tile, mesh=mesh
        )
        best.append(found)
        # Dispatch runs ahead of the device; waiting for the tile before keeps at most two there.
        before, _ = bad, before.block_until_ready()
        end = min(start + query_tile, n)
        shown.update((stop - offset) * end // n - (stop - offset) * start // n)
    if (row := int(np.asarray(bad).min())) < m:
        raise bad_row("y", row)
    state.add([np.concatenate([np.asarray(b[i]) for b in best], axis=1)[:, :n] for i in (0, 1)], columns, stop)


def _nothing(rows: int, k: int, id_: int) -> tuple[np.ndarray, np.ndarray]:
    return np.full((rows, k), -np.inf, np.float32), np.full((rows, k), id_, np.int32)


@functools.partial(jax.jit, static_argnames=("k", "tile", "mesh"))
def _search_tile(queries, vectors, firsts, start, n, m, columns, bad, *, k: int, tile: int, mesh: Mesh):
    """One tile of x against one block of y.

    Args:
      queries: [q, D], rows of x from ``start`` on, those from ``n`` on being padding; on all devices.
      vectors: [devices x rows, D], each device's rows of y from ``firsts`` [devices] on, padding from ``m`` on.
      columns: (scores, ids) [devices x rows, k], the best of the rows of x before ``start``.
      bad: int32 [devices], the first row of y so far that is no usable vector; m where all are.

    Returns:
      ((scores, ids) [devices, q, k] of the queries among each device's rows; ``columns`` and ``bad``, now up to date).
    """

    def on_device(queries, vectors, first, columns, bad):
        queries = queries.astype(jnp.float32)

        def merge(carry, part):
            best, bad = carry
            first, vectors, columns = part
            vectors = vectors.astype(jnp.float32)
            ids = first + jnp.arange(tile, dtype=jnp.int32)
            bad = jnp.minimum(bad, jnp.min(jnp.where(tiles.usable_rows(vectors) | (ids >= m), m, ids)))
            scores = tiles.products(queries, vectors)
            found, at = tiles.best_of_rows(scores, m - first, min(k, tile))
            best = tiles.merge(best, (found, first + at))
            found, at = tiles.best_of_columns(scores, n - start, min(k, len(queries)))
            return (best, bad), tiles.merge(columns, (found, start + at))

        count = len(vectors) // tile
        parts = jax.tree.map(lambda a: a.reshape(count, tile, a.shape[1]), (vectors, columns))
        starts = first + tile * jnp.arange(count, dtype=jnp.int32)
        nothing = (jnp.full((len(queries), k), -jnp.inf), jnp.full((len(queries), k), m, jnp.int32))
        (best, bad), columns = jax.lax.scan(merge, (nothing, bad[0]), (starts, *parts))
        columns = jax.tree.map(lambda a: a.reshape(-1, a.shape[2]), columns)
        return jax.tree.map(lambda a: a[None], best), columns, bad[None]

    split, whole = PartitionSpec(tiles.AXIS), PartitionSpec()
    specs = {"in_specs": (whole, split, split, split, split), "out_specs": split, "check_vma": False}
    return jax.shard_map(on_device, mesh=mesh, **specs)(queries, vectors, firsts, columns, bad)


class _State:
    """What is found so far: of x among the first ``done`` rows of y, and of these among all of x.

    Args:
      n, m, k: rows of x and of y, neighbours.
      file: where it is kept, or None.
      identity: of what.
    """

    ARRAYS = ("scores_xy", "ids_xy", "scores_yx", "ids_yx")

    def __init__(self, n: int, m: int, k: int, file: str | os.PathLike | None, identity: dict):
        self.file = Path(file) if file is not None else None
        self.identity = {**identity, "rows": [n, m], "k": k}
        self.done, self.saved_at = 0, time.monotonic()
        self.scores_xy, self.ids_xy = _nothing(n, k, m)
        self.scores_yx, self.ids_yx = _nothing(m, k, n)
        if self.file is not None and self.file.exists():
            self._load()

    def add(self, rows: list[np.ndarray], columns: tuple, stop: int) -> None:
        """Takes in rows ``done`` to before ``stop`` of y: (scores, ids) [devices, n, k] of x, [rows, k] of y."""
        scores, ids = (
            np.concatenate([old[None], new]) for old, new in zip((self.scores_xy, self.ids_xy), rows, strict=True)
        )
        self.scores_xy, self.ids_xy = tiles.merge_devices(scores, ids)
        size = stop - self.done
        self.scores_yx[self.done : stop], self.ids_yx[self.done : stop] = (np.asarray(a)[:size] for a in columns)
        self.done = stop

    def save(self, at_once: bool) -> None:
        """Writes the file whole or not at all, if there is one; unless ``at_once``, not long after the last time."""
        if self.file is None or not at_once and time.monotonic() - self.saved_at < SECONDS_BETWEEN_SAVES:
            return
        arrays = {name: getattr(self, name) for name in self.ARRAYS}
        with disk.writing(self.file), disk.replacing(self.file, alone=True) as file:
            np.savez(file, identity=json.dumps(self.identity), done=self.done, **arrays)
        self.saved_at = time.monotonic()

    def _load(self) -> None:
        try:
            with np.load(self.file, allow_pickle=False) as kept:
                identity, self.done = json.loads(str(kept["identity"])), int(kept["done"])
                arrays = {name: kept[name] for name in self.ARRAYS}
        except Exception as error:  # whatever zip, npy and JSON raise on a damaged file
            raise ValueError(f"{self.file} is damaged ({error}); remove it and start again") from None
        if identity != self.identity:
            other = ", ".join(name for name in self.identity if self.identity[name] != identity.get(name))
            raise ValueError(f"{self.file} is of an interrupted run that differs in: {other}; finish that or remove it")
        for name, array in arrays.items():
            setattr(self, name, array)
