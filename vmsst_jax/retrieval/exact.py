"""Exact nearest neighbours by inner product, block by block, on whatever devices this process has.

Products are float32 at the highest precision (an accelerator would otherwise round to bfloat16 or TF32), and equal
scores go to the lowest index (METHODS 5). The corpus is cut into tiles whose shapes depend on the sizes of the problem
alone, and the devices share them, so every score is computed by the same program whatever ``block`` is.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from vmsst_jax.retrieval import tiles
from vmsst_jax.retrieval.vector_checks import (
    bad_row,
    check_countable,
    check_rows,
    check_scores,
    check_shapes,
    check_vectors,
)


def top_k(
    queries: np.ndarray,
    corpus: np.ndarray,
    k: int,
    block: int = tiles.BLOCK,
    *,
    select: tiles.Select = tiles.best_of_rows,
) -> tuple[np.ndarray, np.ndarray]:
    """The k rows of ``corpus`` with the largest inner product, for every query.

    Either side may be a memory map: it is read block by block, and nothing of size n x m is ever held.
    For cosine, ``normalize`` both sides first. For both directions at once, see ``neighbours.two_way``.

    Args:
      queries: [n, D] of any float type.
      corpus: [m, D].
      k: 1 to m.
      block: rows of the corpus on a device at a time, rounded up to whole tiles. Does not change the answer.
      select: finds the best columns of a tile of products; ``nearest`` has one that may miss some.

    Returns:
      (scores float32 [n, k], falling; indices int64 [n, k]). Of equal scores the lowest index comes first.

    Raises:
      ValueError: shapes that don't match, k outside 1 to m, or a row that holds NaN or infinity or nothing but zeros
        (its position is named).
    """
    mesh = tiles.local_mesh()
    check_shapes(queries, corpus, k)
    check_countable(len(corpus), block, tiles.TILE, mesh.size)
    check_rows("queries", queries)
    n, m = len(queries), len(corpus)
    query_tile, tile = tiles.side(n), tiles.side(m)
    here, on_all = tiles.split(mesh), tiles.everywhere(mesh)
    starts = range(0, n, query_tile)
    nothing = jnp.full((mesh.size, query_tile, k), -jnp.inf), jnp.full((mesh.size, query_tile, k), m, jnp.int32)
    best = [jax.device_put(nothing, here)] * len(starts)
    bad = before = jax.device_put(np.full(mesh.size, m, np.int32), here)
    for offset, rows in tiles.blocks(0, m, tile, block, mesh.size):
        vectors = jax.device_put(tiles.rows_of(corpus, offset, rows * mesh.size), here)
        firsts = jax.device_put(offset + rows * np.arange(mesh.size, dtype=np.int32), here)
        for i, start in enumerate(starts):
            tile_queries = jax.device_put(tiles.rows_of(queries, start, query_tile), on_all)
            best[i], bad = _search_block(
                tile_queries, vectors, firsts, np.int32(m), best[i], bad, tile=tile, mesh=mesh, select=select
            )
            # Dispatch runs ahead of the device; waiting for the tile before keeps at most two blocks there.
            before, _ = bad, before.block_until_ready()
    if (row := int(np.asarray(bad).min())) < m:
        raise bad_row("corpus", row)
    scores, indices = (np.concatenate([np.asarray(b[i]) for b in best], axis=1)[:, :n] for i in (0, 1))
    scores, indices = tiles.merge_devices(scores, indices)
    check_scores("queries", scores)
    return scores, indices.astype(np.int64)


@functools.partial(jax.jit, static_argnames=("tile", "mesh", "select"))
def _search_block(queries, vectors, firsts, m, best, bad, *, tile: int, mesh: Mesh, select: tiles.Select):
    """Merges one block of the corpus into the running best.

    Args:
      queries: [q, D], on all devices.
      vectors: [devices x rows, D], each device's rows of the corpus from ``firsts`` [devices] on, padding from m on.
      best: (scores, indices) [devices, q, k], of each device's rows so far.
      bad: int32 [devices], the first row so far that is no usable vector; m where all are.

    Returns:
      (best, bad), this block included.
    """

    def on_device(queries, vectors, first, best, bad):
        queries, k = queries.astype(jnp.float32), best[0].shape[2]

        def merge(carry, part):
            best, bad = carry
            first, vectors = part
            vectors = vectors.astype(jnp.float32)
            ids = first + jnp.arange(tile, dtype=jnp.int32)
            bad = jnp.minimum(bad, jnp.min(jnp.where(tiles.usable_rows(vectors) | (ids >= m), m, ids)))
            found, at = select(tiles.products(queries, vectors), m - first, min(k, tile))
            return (tiles.merge(best, (found, first + at)), bad), None

        parts = vectors.reshape(-1, tile, vectors.shape[1])
        starts = first + tile * jnp.arange(len(parts), dtype=jnp.int32)
        (best, bad), _ = jax.lax.scan(merge, ((best[0][0], best[1][0]), bad[0]), (starts, parts))
        return jax.tree.map(lambda a: a[None], (best, bad))

    split, whole = PartitionSpec(tiles.AXIS), PartitionSpec()
    specs = {"in_specs": (whole, split, split, split, split), "out_specs": split, "check_vma": False}
    return jax.shard_map(on_device, mesh=mesh, **specs)(queries, vectors, firsts, best, bad)


def normalize(x: np.ndarray, texts: Sequence[str] | None = None) -> np.ndarray:
    """Rows of length 1: [n, D] -> float32 [n, D].

    Raises ValueError for the first row of zeros, or with NaN or infinity: ``BadVector`` with the text where ``texts``
    says what they are the vectors of.
    """
    x = np.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"vectors have shape {x.shape}; wanted [rows, width]")
    if texts is None:
        check_rows("vectors", x)
    else:
        check_vectors(x, texts)
    x = (x / np.abs(x).max(axis=1, keepdims=True)).astype(np.float32)  # so that squares neither overflow nor vanish
    x /= np.sqrt(np.einsum("nd,nd->n", x, x))[:, None]
    return x


def nearest(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """For each row of a [n, D] the index of its nearest neighbour by cosine among b [m, D]: int64 [n]."""
    return top_k(normalize(a), normalize(b), 1)[1][:, 0]


def retrieval_accuracy(a: np.ndarray, b: np.ndarray, groups_a=None, groups_b=None) -> float:
    """Share of the rows of ``a`` whose nearest neighbour by cosine among all rows of ``b`` is the right one.

    Right is the row of the same index, as LASER counts (a duplicate at a lower index is an error), or, with groups, any
    row of the same group.

    Args:
      a: [n, D]; b: [m, D], m >= n without groups.
      groups_a, groups_b: [n] and [m], an id for each text that is the same for equal texts. Both or neither.
    """
    if (groups_a is None) != (groups_b is None):
        raise ValueError("groups are given for one side only; give groups_a and groups_b, or neither")
    if groups_a is None:
        if len(b) < len(a):
            raise ValueError(f"row i of a belongs to row i of b, but a has {len(a)} rows and b only {len(b)}")
        groups_a, groups_b = np.arange(len(a)), np.arange(len(b))
    groups_a, groups_b = np.asarray(groups_a), np.asarray(groups_b)
    if groups_a.shape != (len(a),) or groups_b.shape != (len(b),):
        raise ValueError(
            f"groups have shapes {groups_a.shape} and {groups_b.shape}; wanted {(len(a),)} and {(len(b),)}"
        )
    return float(np.mean(groups_b[nearest(a, b)] == groups_a))
