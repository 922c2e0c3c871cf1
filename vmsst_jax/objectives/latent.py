"""Gaussian latents: divergence, sampling, and which sentence of a pair speaks for both (METHODS 2.1)."""

from __future__ import annotations

import jax
import jax.numpy as jnp


def kl_to_standard_normal(mu, logvar):
    """KL(N(mu, diag exp logvar) || N(0, I)) in nats, summed over the last axis: [..., k] -> [...]."""
    return 0.5 * jnp.sum(jnp.square(mu) + jnp.exp(logvar) - 1.0 - logvar, axis=-1)


def sample(mu, logvar, key):
    """Reparameterised draw from N(mu, diag exp logvar): [..., k] -> [..., k]."""
    return mu + jnp.exp(0.5 * logvar) * jax.random.normal(key, mu.shape, mu.dtype)


def choose_source(batch_pairs: int, key, step, mode: str):
    """Which side feeds z_sem, bool [B], True = source.

    "per_example" draws each pair on its own; "alternate_batch" takes one side for a whole batch, turn about by step
    (the Bilingual Generative Transformer's way).
    """
    if mode == "per_example":
        return jax.random.bernoulli(key, 0.5, (batch_pairs,))
    if mode == "alternate_batch":
        return jnp.full((batch_pairs,), step % 2 == 0)
    raise ValueError(f"sem_source is {mode!r}; use 'per_example' or 'alternate_batch'")
