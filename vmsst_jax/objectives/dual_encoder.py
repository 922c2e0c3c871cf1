"""DPR's loss: every question tells its passage from all other passages of the global batch (METHODS 5.5)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from vmsst_jax import checks
from vmsst_jax.objectives.contrastive import SIMILARITIES

MASKS = ("none", "same_passage")
# Of a row that holds no passage: the question had too few negatives.
NO_PASSAGE = -1


def passage_softmax(
    q, p, passage_id=None, *, sim: str = "dot", scale: float = 1.0, negative_mask: str = "none"
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Mean over questions of -log softmax of the own passage's similarity, over all passages.

    Args:
      q: [B, D], questions.
      p: [P, D], passages; row i < B belongs to question i, the rest are negatives for all. Under jit both are of the
        global batch, so the value doesn't depend on the number of devices.
      passage_id: int32 [P], equal for equal passages; ``NO_PASSAGE`` marks rows that are left out.
      sim: "dot" or "cosine"; ``scale`` multiplies it.
      negative_mask: "none" is DPR's; "same_passage" leaves out rows that are the question's own passage once more, as
        where several questions of a batch share it.
    Returns:
      (loss, {"retrieval_accuracy", "mean_rank"}): float32 scalars. The rank of the own passage among those that count
      is 1 at best; a passage as similar as it counts as before it.
    """
    q, p = q.astype(jnp.float32), p.astype(jnp.float32)
    if sim == "cosine":
        q, p = (x * jax.lax.rsqrt(jnp.maximum(jnp.sum(x * x, -1, keepdims=True), 1e-12)) for x in (q, p))
    logits = scale * jnp.einsum("bd,pd->bp", q, p, precision="highest")
    own = jnp.arange(p.shape[0]) == jnp.arange(q.shape[0])[:, None]
    if passage_id is not None:
        out = passage_id == NO_PASSAGE
        if negative_mask == "same_passage":
            out = out | (passage_id == passage_id[: q.shape[0], None])
        logits = jnp.where(out & ~own, -jnp.inf, logits)
    positive = jnp.where(own, logits, 0.0).sum(axis=1)
    loss = (jax.nn.logsumexp(logits, axis=1) - positive).mean()
    rank = (logits >= positive[:, None]).sum(axis=1)
    return loss, {
        "retrieval_accuracy": (rank == 1).mean(dtype=jnp.float32),
        "mean_rank": rank.mean(dtype=jnp.float32),
    }


def dual_encoder(
    model, batch, step, key, train: bool, *, sim: str = "dot", scale: float = 1.0, negative_mask: str = "none"
):
    """DPR's objective on a model with ``embed_questions`` and ``embed_passages``. Returns (loss, metrics).

    Args:
      batch: a question batch, see ``models.dual_encoder``.
    """
    questions = model.embed_questions(batch["question"], deterministic=not train)
    passages = model.embed_passages(batch["passage"], deterministic=not train)
    options = {"sim": sim, "scale": scale, "negative_mask": negative_mask}
    loss, metrics = passage_softmax(questions, passages, batch["passage_id"], **options)
    return loss, {"dual_encoder": loss, **metrics}


dual_encoder.needs = ("embed_questions", "embed_passages")
# Micro-batches would shrink the pool of negatives: see training.step.
dual_encoder.needs_whole_batch = True


def _check(module, options) -> None:
    """ValueError for options that mean nothing."""
    checks.positive("dual_encoder.scale", options["scale"])
    for name, allowed in (("sim", SIMILARITIES), ("negative_mask", MASKS)):
        if options[name] not in allowed:
            raise ValueError(f"dual_encoder.{name} is {options[name]!r}; use one of {', '.join(map(repr, allowed))}")


dual_encoder.check = _check
