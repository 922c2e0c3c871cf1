"""The output layer with its cross-entropy: logits are made slice by slice of the vocabulary and never kept.

With logits = [h ; z] W and W split in W_h and W_z, the product with z is made once per sentence, not per token: exact,
and for VMSST (two latent vectors of the hidden width) a third of the arithmetic. The forward pass walks over the
vocabulary for each token's log-partition; the backward pass walks once more, makes a slice's logits again, and writes
that slice of W's gradient once. So W and its gradient, by far the largest arrays, cross the memory bus once a pass, and
memory grows neither with tokens x vocabulary nor with sentences x vocabulary.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from vmsst_jax import checks, sharding

LANES = 128  # slices are multiples of it: what accelerators compute on at a time


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """``chunk_bytes``: how much one slice's float32 logits may take on one device; None is 12 MB on a CPU, whose caches
    hold that, and 256 MB elsewhere. ``z_loss`` times the squared log-partition is added per token; ``label_smoothing``
    spreads that probability over the other pieces. ``dtype``: the type that the products take in; they accumulate in
    float32."""

    chunk_bytes: int | None = None
    z_loss: float = 0.0
    label_smoothing: float = 0.0
    dtype: str = "float32"

    def __post_init__(self):
        if self.chunk_bytes is not None:
            checks.whole("OutputOptions.chunk_bytes", self.chunk_bytes)
        checks.number("OutputOptions.z_loss", self.z_loss)
        checks.number("OutputOptions.label_smoothing", self.label_smoothing, below=1)
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"OutputOptions.dtype is {self.dtype!r}; use 'float32' or 'bfloat16'")


def slice_width(tokens: int, vocab: int, chunk_bytes: int | None) -> int:
    """Pieces of a slice whose float32 logits [tokens, width] fit ``chunk_bytes``: all, or a multiple of 128 (at least).

    128 are taken even where they don't fit: h itself is larger than that from 128 dimensions on.
    """
    if chunk_bytes is None:
        chunk_bytes = (12 if sharding.platform() == "cpu" else 256) * 2**20
    width = chunk_bytes // (4 * tokens)
    return vocab if width >= vocab else min(vocab, max(width // LANES, 1) * LANES)


class _Layer(NamedTuple):
    """One device's share: h [N, D] (the tokens of all groups in a row), z [S, C] or None, w_h [D, V], w_z [C, V],
    targets int32 [N], weights [N] (0 at padding); ``shapes``, the groups' (rows, length), are static."""

    h: jax.Array
    z: jax.Array | None
    w_h: jax.Array
    w_z: jax.Array | None
    targets: jax.Array
    weights: jax.Array


def _flat(h, z, w_h, w_z, targets, weights, dtype) -> _Layer:
    weights = [jnp.where(t > 0, w[:, None].astype(jnp.float32), 0.0) for t, w in zip(targets, weights, strict=True)]
    return _Layer(
        jnp.concatenate([x.reshape(-1, x.shape[-1]) for x in h]).astype(dtype),
        None if w_z is None else jnp.concatenate(z).astype(dtype),
        w_h,
        w_z,
        jnp.concatenate([x.reshape(-1) for x in targets]),
        jnp.concatenate([x.reshape(-1) for x in weights]),
    )


def _split(x, shapes):
    """[N, ...], the tokens of all groups -> tuple of [R, L, ...]."""
    parts, start = [], 0
    for rows, length in shapes:
        parts.append(x[start : start + rows * length].reshape(rows, length, *x.shape[1:]))
        start += rows * length
    return tuple(parts)


def _split_sentences(x, shapes):
    """[S, ...] -> tuple of [R, ...]."""
    parts, start = [], 0
    for rows, _ in shapes:
        parts.append(x[start : start + rows])
        start += rows
    return tuple(parts)


def _to_tokens(x, shapes):
    """[S, W], a value per sentence -> [N, W], the same for each of its tokens."""
    spread = [
        jnp.broadcast_to(part[:, None], (rows, length, x.shape[1])).reshape(rows * length, x.shape[1])
        for part, (rows, length) in zip(_split_sentences(x, shapes), shapes, strict=True)
    ]
    return jnp.concatenate(spread)


def _dot(a, b, contract: tuple[int, int]):
    dimensions = ((contract[:1], contract[1:]), ((), ()))
    return jax.lax.dot_general(a, b, dimensions, preferred_element_type=jnp.float32)


def _over_vocabulary(body, carry, vocab: int, width: int):
    """``carry = body(carry, start, size)`` for each slice in turn; the last one may be smaller."""
    full, rest = divmod(vocab, width)
    if full == 1:
        carry = body(carry, 0, width)
    else:
        carry, _ = jax.lax.scan(lambda c, i: (body(c, i * width, width), None), carry, jnp.arange(full))
    return body(carry, full * width, rest) if rest else carry


def _columns(w, start, size: int, dtype):
    return jax.lax.dynamic_slice_in_dim(w, start, size, axis=1).astype(dtype)


def _slice_logits(layer: _Layer, shapes, start, size: int):
    """(logits [N, size] of the pieces from ``start`` on, those columns of w_h and w_z)."""
    w_h, w_z = _columns(layer.w_h, start, size, layer.h.dtype), None
    logits = _dot(layer.h, w_h, (1, 0))
    if layer.z is not None:
        w_z = _columns(layer.w_z, start, size, layer.h.dtype)
        logits = logits + _to_tokens(_dot(layer.z, w_z, (1, 0)), shapes)
    return logits, w_h, w_z


def _statistics(layer: _Layer, shapes, options: OutputOptions, offset, axis):
    """Of each token [N]: log-partition, logit of its target, and sum of all logits (0 without label smoothing).

    ``offset``: the first piece of this device's columns; ``axis``: the mesh axis over which columns are split, or None.
    """
    tokens, vocab = layer.h.shape[0], layer.w_h.shape[1]

    def body(carry, start, size):
        top, partition, at_target, total = carry
        logits, _, _ = _slice_logits(layer, shapes, start, size)
        new_top = jnp.maximum(top, logits.max(axis=1))
        partition = partition * jnp.exp(top - new_top) + jnp.exp(logits - new_top[:, None]).sum(axis=1)
        local = layer.targets - offset - start
        found = jnp.take_along_axis(logits, jnp.clip(local, 0, size - 1)[:, None], axis=1)[:, 0]
        at_target = jnp.where((local >= 0) & (local < size), found, at_target)
        return new_top, partition, at_target, total + logits.sum(axis=1) if options.label_smoothing else total

    zeros = jnp.zeros(tokens)
    carry = (jnp.full(tokens, -jnp.inf), zeros, zeros, zeros)
    width = slice_width(tokens, vocab, options.chunk_bytes)
    top, partition, at_target, total = _over_vocabulary(body, carry, vocab, width)
    if axis is not None:
        highest = jax.lax.pmax(top, axis)
        partition, at_target, total = jax.lax.psum((partition * jnp.exp(top - highest), at_target, total), axis)
        top = highest
    return top + jnp.log(partition), at_target, total


def _probabilities(options: OutputOptions, vocab: int) -> tuple[float, float]:
    """(what label smoothing leaves to the target, what it gives to each other piece)."""
    return 1.0 - options.label_smoothing, options.label_smoothing / (vocab - 1)


def _losses(layer, shapes, options, vocab, offset, axis):
    """(weighted total, nll of every sentence [S], log-partitions [N]) of this device's rows."""
    log_z, at_target, total = _statistics(layer, shapes, options, offset, axis)
    confident, low = _probabilities(options, vocab)
    loss = log_z - (confident - low) * at_target - low * total + options.z_loss * jnp.square(log_z)
    nll = jnp.where(layer.targets > 0, log_z - at_target, 0.0)
    nll = tuple(part.sum(axis=1) for part in _split(nll, shapes))
    return jnp.sum(layer.weights * loss), nll, log_z


def _less_at(d, columns, amounts):
    """``d`` [N, W] less ``amounts`` [N] at ``columns`` [N], row by row; columns outside of it change nothing."""
    width = d.shape[1]
    if sharding.platform() == "cpu":  # N small writes; comparing all N x W elements takes longer than their exp
        outside = (columns < 0) | (columns >= width)
        return d.at[jnp.arange(len(d)), jnp.where(outside, width, columns)].add(-amounts, mode="drop")
    hit = jax.lax.broadcasted_iota(jnp.int32, d.shape, 1) == columns[:, None]
    return d - jnp.where(hit, amounts[:, None], 0.0)


def _gradients(layer: _Layer, shapes, options: OutputOptions, vocab: int, offset, axis, log_z, cotangent):
    """(dh [N, D], dz [S, C] or None, dw_h, dw_z) of this device's rows and columns."""
    confident, low = _probabilities(options, vocab)
    weights = cotangent * layer.weights
    # d(total)/d(logits) = weight * ((1 + 2 z_loss log_z) softmax - (confident - low) onehot - low)
    scale = weights * (1.0 + 2.0 * options.z_loss * log_z)
    dtype = layer.h.dtype

    def body(carry, start, size):
        dh, dz, dw_h, dw_z = carry
        logits, w_h, w_z = _slice_logits(layer, shapes, start, size)
        d = jnp.exp(logits - log_z[:, None]) * scale[:, None]
        d = _less_at(d, layer.targets - offset - start, (confident - low) * weights)
        if options.label_smoothing:
            d = d - (low * weights)[:, None]
        if layer.z is not None:
            of_sentences = jnp.concatenate([part.sum(axis=1) for part in _split(d, shapes)]).astype(dtype)
            dz = dz + _dot(of_sentences, w_z, (1, 1))
            dw_z = jax.lax.dynamic_update_slice_in_dim(dw_z, _dot(layer.z, of_sentences, (0, 0)), start, axis=1)
        d = d.astype(dtype)
        dh = dh + _dot(d, w_h, (1, 1))
        dw_h = jax.lax.dynamic_update_slice_in_dim(dw_h, _dot(layer.h, d, (0, 0)), start, axis=1)
        return dh, dz, dw_h, dw_z

    def zeros(x):
        return None if x is None else jnp.zeros(x.shape)

    carry = (zeros(layer.h), zeros(layer.z), zeros(layer.w_h), zeros(layer.w_z))
    width = slice_width(layer.h.shape[0], layer.w_h.shape[1], options.chunk_bytes)
    dh, dz, dw_h, dw_z = _over_vocabulary(body, carry, layer.w_h.shape[1], width)
    if axis is not None:
        dh, dz = jax.lax.psum((dh, dz), axis)
    return dh, dz, dw_h, dw_z


class _Placement(NamedTuple):
    """How the layer lies on the mesh that is set: mesh axes of the rows and of W's columns, each may be empty."""

    rows: tuple[str, ...]
    columns: str | None

    def spec(self, columns: bool = False) -> PartitionSpec:
        return PartitionSpec(None, self.columns) if columns else PartitionSpec(self.rows or None)


def _placement(targets, vocab: int) -> _Placement:
    mesh, shards = jax.sharding.get_abstract_mesh(), sharding.batch_shards()
    # The example batch of initialisation is too small to be split.
    rows = sharding.BATCH_AXES if shards > 1 and not any(x.shape[0] % shards for x in targets) else ()
    columns = sharding.RULES["vocab"]
    split = mesh.shape.get(columns, 1) > 1 and vocab % mesh.shape[columns] == 0
    return _Placement(rows, columns if split else None)


def _on_mesh(function, place: _Placement, in_specs, out_specs):
    axes = {*place.rows, *((place.columns,) if place.columns else ())}
    if not axes:
        return function
    return jax.shard_map(function, in_specs=in_specs, out_specs=out_specs, axis_names=axes, check_vma=False)


def _offset(place: _Placement, w_h):
    return jax.lax.axis_index(place.columns) * w_h.shape[1] if place.columns else 0


def _run_forward(h, z, w_h, w_z, targets, weights, options: OutputOptions):
    """(total, nll per group, log-partitions of all tokens)."""
    vocab, place = w_h.shape[1], _placement(targets, w_h.shape[1])

    def local(h, z, w_h, w_z, targets, weights):
        layer = _flat(h, z, w_h, w_z, targets, weights, jnp.dtype(options.dtype))
        shapes = tuple(x.shape for x in targets)
        total, nll, log_z = _losses(layer, shapes, options, vocab, _offset(place, w_h), place.columns)
        return jax.lax.psum(total, place.rows) if place.rows else total, nll, log_z

    rows, columns = place.spec(), place.spec(columns=True)
    specs = (rows, rows, columns, columns, rows, rows)
    return _on_mesh(local, place, specs, (PartitionSpec(), rows, rows))(h, z, w_h, w_z, targets, weights)


@functools.partial(jax.custom_vjp, nondiff_argnums=(6,))
def weighted_nll(h, z, w_h, w_z, targets, weights, options: OutputOptions = OutputOptions()):
    """Weighted sum of the sentences' negative log-likelihoods, without ever holding the logits.

    Args (tuples have one entry per group of rows of equal width):
      h: tuple of [R, L, D], the decoder's states.
      z: tuple of [R, C], what stands beside every state of a sentence, or tuple of None.
      w_h, w_z: kernels [D, V] and [C, V] (None without z).
      targets: tuple of int32 [R, L]; 0 is padding and costs nothing.
      weights: tuple of [R]; constants, they get no gradient.
      options: see ``OutputOptions``.
    Returns:
      (total, nll): float32 scalar sum_r weights_r * loss_r, the only differentiable output; and a tuple of float32 [R],
      each sentence's negative log-likelihood in nats summed over its tokens, for reporting.
    """
    total, nll, _ = _run_forward(h, z, w_h, w_z, targets, weights, options)
    return total, nll


def _forward(h, z, w_h, w_z, targets, weights, options):
    total, nll, log_z = _run_forward(h, z, w_h, w_z, targets, weights, options)
    return (total, nll), (h, z, w_h, w_z, targets, weights, log_z)


def _backward(options, residuals, cotangents):
    *arguments, log_z = residuals
    h, z, w_h, w_z, targets, _ = arguments
    vocab, place = w_h.shape[1], _placement(targets, w_h.shape[1])

    def local(h, z, w_h, w_z, targets, weights, log_z, cotangent):
        layer = _flat(h, z, w_h, w_z, targets, weights, jnp.dtype(options.dtype))
        shapes = tuple(x.shape for x in targets)
        dh, dz, dw_h, dw_z = _gradients(
            layer, shapes, options, vocab, _offset(place, w_h), place.columns, log_z, cotangent
        )
        if place.rows:
            dw_h, dw_z = jax.lax.psum((dw_h, dw_z), place.rows)
        dh = tuple(d.astype(x.dtype) for d, x in zip(_split(dh, shapes), h, strict=True))
        if dz is not None:
            dz = tuple(d.astype(x.dtype) for d, x in zip(_split_sentences(dz, shapes), z, strict=True))
        return dh, z if dz is None else dz, dw_h, dw_z

    rows, columns = place.spec(), place.spec(columns=True)
    in_specs = (rows, rows, columns, columns, rows, rows, rows, PartitionSpec())
    run = _on_mesh(local, place, in_specs, (rows, rows, columns, columns))
    dh, dz, dw_h, dw_z = run(*arguments, log_z, cotangents[0])
    return dh, dz, dw_h.astype(w_h.dtype), None if w_z is None else dw_z.astype(w_z.dtype), None, None


weighted_nll.defvjp(_forward, _backward)
