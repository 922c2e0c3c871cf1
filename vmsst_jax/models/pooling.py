"""From hidden states to one vector per sentence.

Every pooling takes hidden [B, L, D] and mask [B, L] (1 = counts) and gives float32 [B, D]; it knows nothing of models
or layers, so that one pass over all hidden states can be pooled layer by layer.
"""

from __future__ import annotations

import jax.numpy as jnp


def sum_pool(hidden, mask):
    """Sum over the unmasked positions, and their number [B, 1] (at least 1)."""
    weights = mask.astype(jnp.float32)
    total = jnp.einsum("bld,bl->bd", hidden.astype(jnp.float32), weights, precision="highest")
    return total, jnp.maximum(weights.sum(axis=1, keepdims=True), 1.0)


def mean_pool(hidden, mask):
    """Mean over the unmasked positions: hidden [B, L, D], mask [B, L] (1 = token) -> float32 [B, D].

    A row without any token gives zeros.
    """
    total, count = sum_pool(hidden, mask)
    return total / count


def mean_sqrt_len_pool(hidden, mask):
    """Sum over the unmasked positions divided by the square root of their number, as sentence-transformers offers."""
    total, count = sum_pool(hidden, mask)
    return total * count**-0.5


def max_pool(hidden, mask):
    """Greatest value of each dimension over the unmasked positions. A row without any token gives zeros."""
    counts = mask.astype(bool)[..., None]
    greatest = jnp.max(jnp.where(counts, hidden.astype(jnp.float32), -jnp.inf), axis=1)
    return jnp.where(counts.any(axis=1), greatest, 0.0)


def cls_pool(hidden, mask):
    """The first position, whatever the mask says: [CLS] or <s> stands there."""
    return hidden[:, 0].astype(jnp.float32)


def last_pool(hidden, mask):
    """The last unmasked position; the first position in a row without any token."""
    last = jnp.max(jnp.where(mask.astype(bool), jnp.arange(mask.shape[1]), 0), axis=1)
    return jnp.take_along_axis(hidden, last[:, None, None], axis=1)[:, 0].astype(jnp.float32)


POOLINGS = {
    "mean": mean_pool,
    "cls": cls_pool,
    "max": max_pool,
    "mean_sqrt_len": mean_sqrt_len_pool,
    "last": last_pool,
}


def token_mask(tokens, pad_id: int, special_ids: tuple[int, ...] = ()):
    """Which positions a pooling counts: tokens int32 [B, L] -> bool [B, L].

    Padding never counts, ``special_ids`` only in rows that hold nothing else (an empty sentence).
    """
    real = tokens != pad_id
    if not special_ids:
        return real
    words = real & ~jnp.isin(tokens, jnp.asarray(special_ids, jnp.int32))
    return jnp.where(words.any(axis=1, keepdims=True), words, real)
