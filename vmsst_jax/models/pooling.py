"""From hidden states to one vector per sentence."""

from __future__ import annotations

import jax.numpy as jnp


def mean_pool(hidden, mask):
    """Mean over the unmasked positions: hidden [B, L, D], mask [B, L] (1 = token) -> float32 [B, D].

    A row without any token gives zeros.
    """
    weights = mask.astype(jnp.float32)
    total = jnp.einsum("bld,bl->bd", hidden.astype(jnp.float32), weights, precision="highest")
    return total / jnp.maximum(weights.sum(axis=1, keepdims=True), 1.0)
