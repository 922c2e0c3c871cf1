"""Translation: from given sources (pairs, or a sentence with noise), and from sources the model itself writes.

    denoising           lambda(step) * -log p(x | noise(x))            source and target in one language
    back translation    -log p(x | u),  u = the model's translation of x, greedy, without dropout and gradient

each the mean over the targets' tokens (METHODS 4.3).
"""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp


def translation(
    model, batch, step, key, train: bool, *, weight: Callable | None = None, chunk_bytes: int | None = None
):
    """Mean negative log-likelihood of the targets' tokens, on a model with ``translation_nll``.

    Args:
      batch: ``source`` and ``target`` int32 [B, L], ``source_lang`` and ``target_lang`` int32 [B].
      weight: function of the step by which the loss is multiplied while training (XLM's lambda); None is 1.
      chunk_bytes: how much one slice's float32 logits may take on one device.
    Returns:
      (loss, metrics); ``nll`` is the mean without the weight.
    """
    loss = _mean(model, batch["source"], batch, train, chunk_bytes)
    if weight is None or not train:
        return loss, {"nll": loss}
    factor = weight(step)
    return factor * loss, {"nll": loss, "weight": factor}


def back_translation(model, batch, step, key, train: bool, *, chunk_bytes: int | None = None):
    """As ``translation``, of sources that the model writes now, on a model with ``translate`` and ``translation_nll``.

    Args:
      batch: ``target`` int32 [B, L] and its language ``target_lang`` int32 [B]; ``source_lang`` int32 [B], into which
        it is translated first; perhaps ``writable`` bool [B, V], the tokens that may be written.
    Returns:
      (loss, metrics): ``written_length`` is the translations' mean length over the targets', ``copied`` the share of
      their tokens that stand at the same place of the target: near 1, the model copies instead of translating.
    """
    target = batch["target"]
    source, _ = model.translate(target, batch["target_lang"], batch["source_lang"], writable=batch.get("writable"))
    loss = _mean(model, source, batch, train, chunk_bytes)
    # Without the two ends, and not counted for rows that fill the batch up.
    inner, written = target[:, 1:] != model.pad_id, source[:, 1:] != model.pad_id
    words = written & (source[:, 1:] != model.eos_id)
    width = min(source.shape[1], target.shape[1])
    same = words[:, : width - 1] & (source[:, 1:width] == target[:, 1:width])
    return loss, {
        "nll": loss,
        "written_length": written.sum() / jnp.maximum(inner.sum(), 1),
        "copied": same.sum() / jnp.maximum(words.sum(), 1),
    }


def _mean(model, source, batch, train: bool, chunk_bytes):
    """-log p(target | source), the mean over all tokens but the first of each row."""
    target = batch["target"]
    count = jnp.maximum((target[:, 1:] != model.pad_id).sum(), 1).astype(jnp.float32)
    weights = jnp.full(target.shape[0], 1.0) / count
    loss, _ = model.translation_nll(
        source,
        batch["source_lang"],
        target,
        batch["target_lang"],
        weights,
        deterministic=not train,
        chunk_bytes=chunk_bytes,
    )
    return loss


translation.needs = ("translation_nll",)
back_translation.needs = ("translate", "translation_nll")
