"""What every exact search does in its innermost loop: a tile of products, and the best of its rows and columns.

A tile is small enough for a CPU's cache. Sorting whole rows of it would take as long as the product, so the best are
found in two steps: the peaks of groups of neighbouring columns say which k groups hold the k best, and only these are
looked at one by one. That is exact: if a group isn't among the first k, each of those that are holds something better.
Equal scores go to the lowest index in both steps.

Tiles' shapes depend on the sizes of the problem alone, so every score is computed by the same program however many rows
are on a device at a time, and however many devices there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

PRECISION = "highest"  # of the products
TILE = 2048
# Tiles' sides are multiples of it, so that few shapes are compiled and little is spent on padding.
STEP = 256
# Columns of a group; peaks and looked-at columns are about equally many for k near 4.
GROUP = 32
# Rows of the corpus on a device at a time: 256 MB at 1,024 wide float32.
BLOCK = 65_536
AXIS = "devices"

# Like ``best_of_rows``: (scores [q, c], how many columns count, k) -> (scores [q, k], columns [q, k]).
Select = Callable[[jax.Array, jax.Array, int], tuple[jax.Array, jax.Array]]


def side(rows: int) -> int:
    """How many rows a tile takes of so many: a power of two, or the whole cut into equal parts of at most TILE."""
    return min(power_of_two(rows), rounded_up(-(-rows // -(-rows // TILE)), STEP))


def blocks(start: int, stop: int, tile: int, block: int, devices: int) -> Iterator[tuple[int, int]]:
    """Cuts rows ``start`` to before ``stop`` into equal parts: (first row of all devices, rows of each device).

    Each device gets whole tiles and, but for these, at most ``block`` rows of a part.
    """
    if start == stop:
        return
    parts = -(-(stop - start) // (block * devices))
    rows = rounded_up(-(-(stop - start) // (parts * devices)), tile)
    for first in range(start, stop, rows * devices):
        yield first, rows


def local_mesh() -> Mesh:
    """The devices of this process in a row."""
    return Mesh(np.asarray(jax.local_devices()), (AXIS,), axis_types=(AxisType.Auto,))


def split(mesh: Mesh) -> NamedSharding:
    """Every device has its part of axis 0."""
    return NamedSharding(mesh, PartitionSpec(AXIS))


def everywhere(mesh: Mesh) -> NamedSharding:
    """Every device has all of it."""
    return NamedSharding(mesh, PartitionSpec())


def usable_rows(vectors: jax.Array) -> jax.Array:
    """[rows, D] -> bool [rows]: neither NaN nor infinity, and not only zeros."""
    peak = jnp.max(jnp.abs(vectors), axis=1)
    return (peak > 0) & (peak < jnp.inf)  # False for NaN too


def products(queries: jax.Array, vectors: jax.Array) -> jax.Array:
    """[q, D] x [c, D] -> float32 [q, c]."""
    return jnp.dot(queries, vectors.T, precision=PRECISION, preferred_element_type=jnp.float32)


def best_of_rows(scores: jax.Array, known: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k best columns of every row.

    Args:
      scores: [q, c].
      known: how many columns count; those from it on score -inf.
      k: 1 to c.

    Returns:
      (scores [q, k], falling; columns int32 [q, k]). Of equal scores the lowest column comes first.
    """
    q, c = scores.shape
    groups = c // GROUP
    if groups <= k or c % GROUP:
        return jax.lax.top_k(_masked(scores, jnp.arange(c), known), k)
    grouped = scores.reshape(q, groups, GROUP)
    last = jax.lax.dynamic_index_in_dim(grouped, _last_group(known, groups), 1, keepdims=False)
    chosen = _groups(grouped.max(axis=2), last, known, k)
    found = jnp.take_along_axis(grouped, chosen[:, :, None], axis=1).reshape(q, k * GROUP)
    return _best_of_groups(found, chosen, known, k)


def best_of_columns(scores: jax.Array, known: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    """The k best rows of every column: ``best_of_rows`` of the transpose, which is not made.

    Args:
      scores: [q, c].
      known: how many rows count.
      k: 1 to q.

    Returns:
      (scores [c, k]; rows int32 [c, k]).
    """
    q, c = scores.shape
    groups = q // GROUP
    if groups <= k or q % GROUP:
        return jax.lax.top_k(_masked(scores.T, jnp.arange(q), known), k)
    grouped = scores.reshape(groups, GROUP, c)
    last = jax.lax.dynamic_index_in_dim(grouped, _last_group(known, groups), 0, keepdims=False)
    chosen = _groups(grouped.max(axis=1).T, last.T, known, k)
    found = jnp.take_along_axis(grouped, chosen.T[:, None, :], axis=0).reshape(k * GROUP, c)
    return _best_of_groups(found.T, chosen, known, k)


def _last_group(known: jax.Array, groups: int) -> jax.Array:
    """The group in which the columns that count end, if they do."""
    return jnp.clip(known // GROUP, 0, groups - 1)


def _groups(peaks: jax.Array, last: jax.Array, known: jax.Array, k: int) -> jax.Array:
    """The k groups with the highest peaks, rising, so that lower columns stay before higher ones: int32 [q, k].

    Args:
      peaks: [q, groups], of all columns: leaving the others out from the start would take a pass over all scores.
      last: [q, GROUP], the columns of ``_last_group``.
      known: how many columns count.
    """
    group, end = jnp.arange(peaks.shape[1]), known // GROUP
    peak = _masked(last, _last_group(known, len(group)) * GROUP + jnp.arange(GROUP), known).max(axis=1)
    peaks = jnp.where(group < end, peaks, jnp.where(group == end, peak[:, None], -jnp.inf))
    return jnp.sort(jax.lax.top_k(_one_zero(peaks), k)[1], axis=1)


def _best_of_groups(found: jax.Array, chosen: jax.Array, known: jax.Array, k: int) -> tuple[jax.Array, jax.Array]:
    columns = (chosen[:, :, None] * GROUP + jnp.arange(GROUP)).reshape(found.shape)
    scores, at = jax.lax.top_k(_masked(found, columns, known), k)
    return scores, jnp.take_along_axis(columns, at, axis=1)


def _masked(scores: jax.Array, columns: jax.Array, known: jax.Array) -> jax.Array:
    return jnp.where(columns < known, _one_zero(scores), -jnp.inf)


def _one_zero(scores: jax.Array) -> jax.Array:
    """top_k ranks +0 above -0, which would break a tie by sign."""
    return jnp.where(scores == 0, 0.0, scores)


def merge(best, more):
    """Two lists of (scores [q, a], ids [q, a]), falling, into the best of both, as long as the first; ties to it."""
    scores = jnp.concatenate([best[0], more[0]], axis=1)
    ids = jnp.concatenate([best[1], more[1]], axis=1)
    scores, position = jax.lax.top_k(scores, best[0].shape[1])
    return scores, jnp.take_along_axis(ids, position, axis=1)


def merge_devices(scores: np.ndarray, ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lists of several devices [devices, n, k] into the best of all [n, k]; ties to the lowest id."""
    if len(scores) == 1:
        return scores[0], ids[0]
    k = scores.shape[2]
    scores, ids = np.concatenate(scores, axis=1), np.concatenate(ids, axis=1)
    order = np.lexsort((ids, -scores), axis=1)[:, :k]
    return np.take_along_axis(scores, order, axis=1), np.take_along_axis(ids, order, axis=1)


def rows_of(x: np.ndarray, start: int, rows: int) -> np.ndarray:
    """Rows ``start`` to before ``start + rows`` as float16 or float32; those beyond the end are zeros."""
    part = np.asarray(x[start : start + rows])
    if part.dtype not in (np.float16, np.float32):
        part = part.astype(np.float32)
    return part if len(part) == rows else np.concatenate([part, np.zeros((rows - len(part), x.shape[1]), part.dtype)])


def power_of_two(n: int) -> int:
    """The smallest that is not below n."""
    return 1 << (n - 1).bit_length()


def rounded_up(n: int, multiple: int) -> int:
    """To the next multiple."""
    return -(-n // multiple) * multiple
