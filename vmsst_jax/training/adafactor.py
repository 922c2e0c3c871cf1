"""Adafactor's update of one matrix, in few passes over the gradient.

optax's own makes squared gradients, updates and clipped parameters as arrays of the matrix's size, and XLA's CPU
compiler keeps them: three quarters of the time goes into fresh memory. Here nothing of that size but the update is
kept; the formula, and the state with its names, are optax's.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from vmsst_jax import sharding

EPSILON = 1e-30  # added to squared gradients
LEAST_SCALE = 1e-3  # stands for the RMS of a parameter that is smaller
FOLD, WIDE = 8, 8192  # rows added at a time, and the columns from which on that is worth it


def adafactor(decay_rate: float, clipping_threshold: float, min_dim_size_to_factor: int):
    """``optax.adafactor`` without learning rate, momentum and weight decay, as a transformation that needs params."""
    reference = optax.adafactor(
        learning_rate=None,
        decay_rate=decay_rate,
        clipping_threshold=clipping_threshold,
        min_dim_size_to_factor=min_dim_size_to_factor,
    )

    def update(gradients, state, params):
        moments, *rest = state
        decay = 1.0 - jnp.asarray(moments.count + 1, jnp.float32) ** -decay_rate
        step = functools.partial(_update, decay, clipping_threshold, min_dim_size_to_factor)
        found = jax.tree.map(step, gradients, params, moments.v_row, moments.v_col, moments.v)
        parts = jax.tree.transpose(jax.tree.structure(params), jax.tree.structure((0,) * 4), found)
        return parts[0], (type(moments)(optax.safe_increment(moments.count), *parts[1:]), *rest)

    return optax.GradientTransformation(reference.init, update)


def _update(decay, threshold: float, least: int, g, p, v_row, v_col, v):
    """(update, new v_row, new v_col, new v) of the parameter ``p`` with gradient ``g``; unused moments stay as is."""

    def blend(moment, mean):
        return (decay * moment + (1.0 - decay) * mean).astype(p.dtype)

    order = np.argsort(p.shape)
    if p.ndim < 2 or p.shape[order[-2]] < least:
        v = blend(v, jnp.square(g) + EPSILON)
        factors = (v**-0.5,)
    else:
        narrow, wide = int(order[-2]), int(order[-1])
        v_row = blend(v_row, _mean_square(g, wide))
        v_col = blend(v_col, _mean_square(_after(v_row, g), narrow))
        mean = jnp.mean(v_row, axis=narrow - (narrow > wide), keepdims=True)
        factors = jnp.expand_dims((v_row / mean) ** -0.5, wide), jnp.expand_dims(v_col**-0.5, narrow)
    rms = jnp.sqrt(jnp.mean(jnp.square(_times(*_after(v_col, (g, *factors))))))
    scale = jnp.maximum(jnp.sqrt(jnp.mean(jnp.square(p))), LEAST_SCALE) / jnp.maximum(1.0, rms / threshold)
    return _times(*_after(rms, (g, *factors))) * -scale, v_row, v_col, v


def _times(g, *factors):
    return functools.reduce(jnp.multiply, factors, g)


def _after(done, x):
    """``x``, on CPUs once ``done`` is there.

    What two reductions over x have in common is then computed by either, at the speed of reading, and not kept between
    them.
    """
    return jax.lax.optimization_barrier((done, x))[1] if sharding.platform() == "cpu" else x


def _mean_square(g, axis: int):
    """Mean of g^2 + EPSILON over ``axis``."""
    squares = jnp.square(g)
    if sharding.platform() == "cpu" and axis == 0 and g.ndim == 2 and g.shape[1] >= WIDE and g.shape[0] % FOLD**2 == 0:
        # Down a wide matrix that compiler walks column by column, twenty times as slow as along the rows.
        squares = _fold(_fold(squares))
    return jnp.sum(squares, axis=axis) / g.shape[axis] + EPSILON


def _fold(x):
    """[R, C] -> [R / FOLD, C] with the same sum over the rows."""
    parts = x.reshape(FOLD, -1, x.shape[1])
    return functools.reduce(jnp.add, (parts[i] for i in range(FOLD)))
