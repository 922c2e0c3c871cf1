"""The output layer with its cross-entropy: logits are made chunk by chunk and never kept.

With logits = [h ; z] W and W split in W_h and W_z, the product with z is made once per sentence, not per token: exact,
and for VMSST (two latent vectors of the hidden width) a third of the arithmetic. The loss is a weighted sum whose
weights are known beforehand, so the forward pass makes the gradients too, while a chunk's logits are at hand: three
matrix products per chunk instead of four, and memory for one chunk only.
"""

from __future__ import annotations

import dataclasses
import functools

import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec

from vmsst_jax import checks, sharding


@dataclasses.dataclass(frozen=True)
class OutputOptions:
    """``chunk_bytes``: how much one chunk's float32 logits may take on one device. ``z_loss`` times the squared
    log-partition is added per token; ``label_smoothing`` spreads that probability over the other pieces. ``dtype``: the
    type that the products take in; they accumulate in float32."""

    chunk_bytes: int = 64 * 2**20
    z_loss: float = 0.0
    label_smoothing: float = 0.0
    dtype: str = "float32"

    def __post_init__(self):
        checks.whole("OutputOptions.chunk_bytes", self.chunk_bytes)
        checks.number("OutputOptions.z_loss", self.z_loss)
        checks.number("OutputOptions.label_smoothing", self.label_smoothing, below=1)
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"OutputOptions.dtype is {self.dtype!r}; use 'float32' or 'bfloat16'")


def rows_per_chunk(rows: int, length: int, vocab: int, chunk_bytes: int) -> int:
    """The largest divisor of ``rows`` whose float32 logits [., length, vocab] fit ``chunk_bytes``; at least 1."""
    limit = max(1, chunk_bytes // (4 * length * vocab))
    return max(d for d in range(1, rows + 1) if rows % d == 0 and d <= limit)


def _chunk(h, z, w_h, w_z, targets, weights, options: OutputOptions, with_gradients: bool):
    """One chunk: h [r, L, D], z [r, C] or None, targets [r, L], weights [r].

    Returns (weighted loss, nll [r], gradients (dh, dz, dw_h, dw_z) or None).
    """
    dtype = jnp.dtype(options.dtype)
    r, length, width = h.shape
    h2 = h.reshape(r * length, width).astype(dtype)
    w_h = w_h.astype(dtype)
    logits = jnp.dot(h2, w_h, preferred_element_type=jnp.float32).reshape(r, length, -1)
    if z is not None:
        w_z = w_z.astype(dtype)
        logits = logits + jnp.dot(z.astype(dtype), w_z, preferred_element_type=jnp.float32)[:, None]
    vocab = logits.shape[-1]
    low = options.label_smoothing / (vocab - 1)
    confident = 1.0 - options.label_smoothing
    real = (targets > 0).astype(jnp.float32)
    token_weights = real * weights[:, None]

    top = jax.lax.stop_gradient(logits.max(axis=-1, keepdims=True))
    exp = jnp.exp(logits - top)
    partition = exp.sum(axis=-1, keepdims=True)
    log_z = (jnp.log(partition) + top)[..., 0]
    at_target = jnp.take_along_axis(logits, targets[..., None], axis=-1)[..., 0]
    nll = log_z - at_target
    loss = log_z - (confident - low) * at_target
    if options.label_smoothing:
        loss = loss - low * logits.sum(axis=-1)
    loss = loss + options.z_loss * jnp.square(log_z)
    total = jnp.sum(token_weights * loss)
    nll = jnp.sum(real * nll, axis=1)
    if not with_gradients:
        return total, nll, None

    # d(total)/d(logits) = weight * ((1 + 2 z_loss log_z) softmax - (confident - low) onehot - low)
    scale = token_weights * (1.0 + 2.0 * options.z_loss * log_z)
    d_logits = exp * (scale[..., None] / partition)
    onehot = jax.lax.broadcasted_iota(jnp.int32, (1, 1, vocab), 2) == targets[..., None]
    d_logits = d_logits - jnp.where(onehot, ((confident - low) * token_weights)[..., None], 0.0)
    if options.label_smoothing:
        d_logits = d_logits - (low * token_weights)[..., None]
    flat = d_logits.reshape(r * length, vocab).astype(dtype)
    dot = functools.partial(jax.lax.dot_general, preferred_element_type=jnp.float32)
    dh = dot(flat, w_h, (((1,), (1,)), ((), ()))).reshape(h.shape)
    dw_h = dot(h2, flat, (((0,), (0,)), ((), ())))
    if z is None:
        return total, nll, (dh, None, dw_h, None)
    per_sentence = d_logits.sum(axis=1).astype(dtype)
    dz = dot(per_sentence, w_z, (((1,), (1,)), ((), ())))
    dw_z = dot(z.astype(dtype), per_sentence, (((0,), (0,)), ((), ())))
    return total, nll, (dh, dz, dw_h, dw_z)


def _walk(h, z, w_h, w_z, targets, weights, options: OutputOptions, with_gradients: bool):
    """All groups, chunk by chunk. Returns (total, nll per group, gradients or None); see ``weighted_nll``."""
    zero = jnp.zeros((), jnp.float32)
    carry = (zero, jnp.zeros(w_h.shape), None if w_z is None else jnp.zeros(w_z.shape)) if with_gradients else (zero,)
    nlls, dhs, dzs = [], [], []
    for h_g, z_g, targets_g, weights_g in zip(h, z, targets, weights, strict=True):
        rows, length = targets_g.shape
        r = rows_per_chunk(rows, length, w_h.shape[1], options.chunk_bytes)
        xs = jax.tree.map(lambda x, r=r: x.reshape(x.shape[0] // r, r, *x.shape[1:]), (h_g, z_g, targets_g, weights_g))

        def step(carry, x):
            h_c, z_c, targets_c, weights_c = x
            total, nll, grads = _chunk(h_c, z_c, w_h, w_z, targets_c, weights_c, options, with_gradients)
            if not with_gradients:
                return (carry[0] + total,), (nll, None, None)
            dh, dz, dw_h, dw_z = grads
            dw_z = None if dw_z is None else carry[2] + dw_z
            return (carry[0] + total, carry[1] + dw_h, dw_z), (nll, dh.astype(h_c.dtype), dz)

        carry, (nll, dh, dz) = jax.lax.scan(step, carry, xs)
        nlls.append(nll.reshape(rows))
        if with_gradients:
            dhs.append(dh.reshape(h_g.shape))
            dzs.append(None if z_g is None else dz.reshape(z_g.shape).astype(z_g.dtype))
    gradients = (tuple(dhs), tuple(dzs), carry[1], carry[2]) if with_gradients else None
    return carry[0], tuple(nlls), gradients


def _over_mesh(h, z, w_h, w_z, targets, weights, options: OutputOptions, with_gradients: bool):
    """``_walk`` on each device's rows; only the sums cross devices, once, after the last chunk."""
    walk = functools.partial(_walk, options=options, with_gradients=with_gradients)
    shards = sharding.batch_shards()
    if shards == 1 or any(x.shape[0] % shards for x in targets):  # the example batch of initialisation is too small
        return walk(h, z, w_h, w_z, targets, weights)
    batch, whole = PartitionSpec(sharding.BATCH_AXES), PartitionSpec()

    def local(*args):
        total, nll, gradients = walk(*args)
        if gradients is not None:
            dh, dz, dw_h, dw_z = gradients
            gradients = (dh, dz, *jax.lax.psum((dw_h, dw_z), sharding.BATCH_AXES))
        return jax.lax.psum(total, sharding.BATCH_AXES), nll, gradients

    out_gradients = (batch, batch, whole, whole) if with_gradients else whole
    return jax.shard_map(
        local,
        in_specs=(batch, batch, whole, whole, batch, batch),
        out_specs=(whole, batch, out_gradients),
        axis_names=set(sharding.BATCH_AXES),
        check_vma=False,
    )(h, z, w_h, w_z, targets, weights)


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
    total, nll, _ = _over_mesh(h, z, w_h, w_z, targets, weights, options, False)
    return total, nll


def _forward(h, z, w_h, w_z, targets, weights, options):
    total, nll, gradients = _over_mesh(h, z, w_h, w_z, targets, weights, options, True)
    return (total, nll), gradients


def _backward(options, gradients, cotangents):
    g = cotangents[0]
    dh, dz, dw_h, dw_z = jax.tree.map(lambda x: (g * x).astype(x.dtype), gradients)
    return dh, dz, dw_h, dw_z, None, None


weighted_nll.defvjp(_forward, _backward)
