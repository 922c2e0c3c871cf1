"""In-batch contrastive loss on pairs, both directions, negatives from the whole global batch (METHODS 2.5)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from vmsst_jax import checks

SIMILARITIES = ("dot", "cosine")
MASKS = ("none", "same_text")


def symmetric_softmax(s, t, text_id=None, *, sim: str = "dot", scale: float = 1.0, negative_mask: str = "none"):
    """Mean over pairs of the two directions' softmax losses.

    Args:
      s, t: [B, k], row i of both is a pair; all other rows are negatives. Under jit these are the global batch, so the
        value doesn't depend on the number of devices.
      text_id: int32 [2B], equal for equal sentences (sources, then targets); needed by ``negative_mask="same_text"``,
        which leaves out negatives from pairs that share a sentence with the anchor's pair.
      sim: "dot" or "cosine"; ``scale`` multiplies it.
    Returns:
      (loss, accuracy): float32 scalars; accuracy is the share of anchors of both directions whose own translation wins.
    """
    checks.positive("scale", scale)
    if sim not in SIMILARITIES or negative_mask not in MASKS:
        raise ValueError(
            f"sim {sim!r} must be one of {SIMILARITIES} and negative_mask {negative_mask!r} one of {MASKS}"
        )
    s, t = s.astype(jnp.float32), t.astype(jnp.float32)
    if sim == "cosine":
        s, t = (x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x, -1, keepdims=True), 1e-12)) for x in (s, t))
    logits = scale * jnp.einsum("ik,jk->ij", s, t, precision="highest")
    pairs = s.shape[0]
    own = jnp.eye(pairs, dtype=bool)
    if negative_mask == "same_text":
        a, b = text_id[:pairs], text_id[pairs:]
        shared = (a[:, None] == a) | (b[:, None] == b) | (a[:, None] == b) | (b[:, None] == a)
        logits = jnp.where(shared & ~own, -jnp.inf, logits)
    # logsumexp - positive needs less memory than log_softmax and its diagonal.
    positive = jnp.einsum("ii->i", logits)
    forward = jax.nn.logsumexp(logits, axis=1) - positive
    backward = jax.nn.logsumexp(logits, axis=0) - positive
    right = (logits.argmax(axis=1) == jnp.arange(pairs)).mean() + (logits.argmax(axis=0) == jnp.arange(pairs)).mean()
    return 0.5 * (forward + backward).mean(), 0.5 * right


def contrastive(
    model, batch, step, key, train: bool, *, sim: str = "dot", scale: float = 1.0, negative_mask: str = "none"
):
    """The Contrastive objective on a model with ``semantic``. Returns (loss, metrics)."""
    mu = model.semantic(batch, deterministic=not train)
    pairs = mu.shape[0] // 2
    loss, accuracy = symmetric_softmax(
        mu[:pairs], mu[pairs:], batch["text_id"], sim=sim, scale=scale, negative_mask=negative_mask
    )
    return loss, {"contrastive": loss, "contrastive_accuracy": accuracy}


contrastive.needs = ("semantic",)
# Micro-batches would shrink the pool of negatives: see training.step.
contrastive.needs_whole_batch = True
