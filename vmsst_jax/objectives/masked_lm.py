"""Masked language modelling on blocks of text (METHODS 3.5) and on pairs of translations (TLM, METHODS 4.1)."""

from __future__ import annotations

import jax.numpy as jnp

from vmsst_jax.objectives.masking import mask_tokens


def masked_lm(
    model,
    batch,
    step,
    key,
    train: bool,
    *,
    mask_id: int = 250_001,
    special_ids: tuple[int, ...] = (0, 1, 2, 3),
    vocab_size: int | None = None,
    rate: float = 0.15,
    chunk_bytes: int = 2**26,
):
    """Mean negative log-likelihood of the hidden tokens, on a model with ``masked_nll``. The defaults are XLM-R's.

    XLM's are ``mask_id`` 5 and ``special_ids`` (2,), its padding alone: there ends of sentences may be hidden too.

    Args:
      batch: {"tokens": int32 [B, L], ...}; with ``positions`` int32 [B, L] where they start anew within a row; with
        ``languages`` int32 [B, L], or ``lang`` int32 [B], for models with language embeddings.
      mask_id, special_ids, rate: see ``masking.mask_tokens``; a negative ``mask_id`` counts from the vocabulary's
        end, -1 being the mask of vocabularies that end with it, as XLM-R's and ours do.
      vocab_size: random replacements are drawn below it; None takes all pieces.
      chunk_bytes: how much one chunk's float32 logits may take on one device.
    Returns:
      (loss, metrics); ``masked_share`` is that of all positions which had to be predicted.
    """
    tokens = batch["tokens"]
    vocab_size = model.num_pieces if vocab_size is None else vocab_size
    mask_id = mask_id if mask_id >= 0 else model.num_pieces + mask_id
    inputs, positions, ids, weights = mask_tokens(
        key, tokens, mask_id=mask_id, vocab_size=vocab_size, special_ids=special_ids, rate=rate
    )
    hidden = weights > 0
    count = jnp.maximum(hidden.sum(), 1).astype(jnp.float32)
    row_weights = jnp.full(tokens.shape[0], 1.0) / count
    loss, _ = model.masked_nll(
        inputs,
        positions,
        jnp.where(hidden, ids, 0),
        row_weights,
        deterministic=not train,
        chunk_bytes=chunk_bytes,
        token_positions=batch.get("positions"),
        languages=_languages(batch) if model.has_languages else None,
    )
    return loss, {"masked_lm": loss, "masked_share": count / tokens.size}


masked_lm.needs = ("masked_nll",)


def _languages(batch):
    """int32 [B, L], the language of every token."""
    if "languages" in batch:
        return batch["languages"]
    return jnp.broadcast_to(batch["lang"][:, None], batch["tokens"].shape)


def _check(module, options) -> None:
    """ValueError where the model can't predict tokens, or has no row for the mask."""
    if not module.has_mlm_head:
        raise ValueError(
            "the objective masked_lm needs a masked language model head, and the model's encoder has none: set "
            "BertConfig.mlm_head to 'dense' (a T5 backbone can't have one)"
        )
    if not -module.vocab_size <= options["mask_id"] < module.vocab_size:
        raise ValueError(
            f"masked_lm.mask_id is {options['mask_id']}, and the model has {module.vocab_size} rows: give the "
            "vocabulary's mask piece, or BertConfig.vocab_size a row for it"
        )


masked_lm.check = _check
