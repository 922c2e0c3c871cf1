"""Exact nearest neighbours by inner product, block by block, on whatever device JAX has.

Products are float32 at the highest precision (an accelerator would otherwise round to bfloat16 or TF32), and equal
scores go to the lowest index (METHODS 5). Both sides are cut into tiles whose shapes depend on the sizes of the problem
alone, so every score is computed by the same program whatever ``block`` is.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np

QUERY_TILE = 1024
CORPUS_TILE = 4096
# Rows of the corpus on the device at a time: 256 MB at 1,024 wide float32.
BLOCK = 65_536


def top_k(queries: np.ndarray, corpus: np.ndarray, k: int, block: int = BLOCK) -> tuple[np.ndarray, np.ndarray]:
    """The k rows of ``corpus`` with the largest inner product, for every query.

    Either side may be a memory map: it is read block by block, and nothing of size n x m is ever held. For cosine,
    ``normalize`` both sides first.

    Args:
      queries: [n, D] of any float type.
      corpus: [m, D].
      k: 1 to m.
      block: rows of the corpus on the device at a time, rounded up to whole tiles. Does not change the answer.

    Returns:
      (scores float32 [n, k], falling; indices int64 [n, k]). Of equal scores the lowest index comes first.

    Raises:
      ValueError: shapes that don't match, k outside 1 to m, or a row that holds NaN or infinity or nothing but zeros
        (its position is named).
    """
    _check_shapes(queries, corpus, k, block)
    (n, _), (m, _) = queries.shape, corpus.shape
    _check_rows("queries", queries)
    query_tile, tile = min(QUERY_TILE, _power_of_two(n)), min(CORPUS_TILE, _power_of_two(m))
    rows = _rounded_up(-(-m // -(-m // block)), tile)  # as many blocks as asked for, of equal size
    starts = range(0, n, query_tile)
    best = [(jnp.full((query_tile, k), -jnp.inf), jnp.full((query_tile, k), m, jnp.int32))] * len(starts)
    bad = before = jnp.int32(m)
    for offset in range(0, m, rows):
        vectors = jax.device_put(_block(corpus, offset, rows))
        for i, start in enumerate(starts):
            tile_queries = _block(queries, start, query_tile)
            *best[i], bad = _search_block(
                tile_queries, vectors, np.int32(offset), np.int32(m), *best[i], bad, tile=tile
            )
            # Dispatch runs ahead of the device; waiting for the tile before keeps at most two blocks there.
            before, _ = bad, before.block_until_ready()
    if bad < m:
        raise _bad_row("corpus", int(bad))
    scores = np.concatenate([np.asarray(s) for s, _ in best])[:n]
    indices = np.concatenate([np.asarray(ids, np.int64) for _, ids in best])[:n]
    if not np.isfinite(scores).all():
        row = int(np.flatnonzero(~np.isfinite(scores).all(axis=1))[0])
        raise ValueError(f"row {row} of queries has a score beyond float32; normalize() the vectors first")
    return scores, indices


@functools.partial(jax.jit, static_argnames="tile")
def _search_block(queries, vectors, offset, m, scores, indices, bad, *, tile: int):
    """Merges one block of the corpus into the running best.

    Args:
      queries: [q, D]; vectors: [rows, D], corpus rows ``offset`` and on, those from ``m`` on being padding.
      scores: [q, k]; indices: [q, k], the best of the rows before ``offset``.
      bad: the first row so far that is no usable vector; m where all are.

    Returns:
      (scores, indices, bad), this block included.
    """
    queries = queries.astype(jnp.float32)

    def merge(carry, part):
        scores, indices, bad = carry
        start, vectors = part
        vectors = vectors.astype(jnp.float32)
        ids = start + jnp.arange(tile, dtype=jnp.int32)
        peak = jnp.max(jnp.abs(vectors), axis=1)
        usable = (peak > 0) & (peak < jnp.inf)  # False for NaN too
        bad = jnp.minimum(bad, jnp.min(jnp.where(usable | (ids >= m), m, ids)))
        new = jnp.dot(queries, vectors.T, precision="highest", preferred_element_type=jnp.float32)
        new = jnp.where(new == 0, 0.0, new)  # top_k ranks +0 above -0, which would break a tie by sign
        new = jnp.where(ids < m, new, -jnp.inf)
        # top_k puts the earlier position first among equals, and what is in the running best has lower indices.
        scores, position = jax.lax.top_k(jnp.concatenate([scores, new], axis=1), scores.shape[1])
        known = jnp.concatenate([indices, jnp.broadcast_to(ids, new.shape)], axis=1)
        return (scores, jnp.take_along_axis(known, position, axis=1), bad), None

    tiles = vectors.reshape(-1, tile, vectors.shape[1])
    starts = offset + tile * jnp.arange(tiles.shape[0], dtype=jnp.int32)
    return jax.lax.scan(merge, (scores, indices, bad), (starts, tiles))[0]


def normalize(x: np.ndarray) -> np.ndarray:
    """Rows of length 1: [n, D] -> float32 [n, D]. ValueError names the first row of zeros, or with NaN or infinity."""
    x = np.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"vectors have shape {x.shape}; wanted [rows, width]")
    _check_rows("vectors", x)
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


def _check_shapes(queries, corpus, k: int, block: int) -> None:
    if queries.ndim != 2 or corpus.ndim != 2 or queries.shape[1] != corpus.shape[1]:
        raise ValueError(f"queries {queries.shape} and corpus {corpus.shape}; wanted [n, D] and [m, D] of the same D")
    if min(*queries.shape, *corpus.shape) < 1:
        raise ValueError(f"nothing to search: queries {queries.shape}, corpus {corpus.shape}")
    if not 1 <= k <= len(corpus):
        raise ValueError(f"k is {k} but the corpus has {len(corpus)} rows; ask for 1 to {len(corpus)} neighbours")
    if block < 1:
        raise ValueError(f"block is {block}; wanted at least 1 row")
    if len(corpus) + CORPUS_TILE + block >= 2**31:
        raise ValueError(f"the corpus has {len(corpus)} rows, more than 32-bit indices count; search it in parts")


def _check_rows(name: str, x: np.ndarray) -> None:
    for start in range(0, len(x), BLOCK):
        part = x[start : start + BLOCK]
        peak = np.maximum(part.max(axis=1), -part.min(axis=1))
        usable = (peak > 0) & (peak < np.inf)
        if not usable.all():
            raise _bad_row(name, start + int(np.argmin(usable)))


def _bad_row(name: str, row: int) -> ValueError:
    return ValueError(f"row {row} of {name} is no usable vector: it holds NaN or infinity, or nothing but zeros")


def _block(x: np.ndarray, start: int, rows: int) -> np.ndarray:
    part = np.asarray(x[start : start + rows])
    if part.dtype not in (np.float16, np.float32):
        part = part.astype(np.float32)
    return part if len(part) == rows else np.concatenate([part, np.zeros((rows - len(part), x.shape[1]), part.dtype)])


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def _rounded_up(n: int, multiple: int) -> int:
    return -(-n // multiple) * multiple
