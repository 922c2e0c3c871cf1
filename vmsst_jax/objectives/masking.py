"""Which tokens a masked language model has to guess: pure functions of a key, with static shapes."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp

# A target is replaced by the mask, left as it is, or replaced by a random token; in XLM's order.
MASK, KEEP = 0.8, 0.1


def max_targets(length: int, rate: float = 0.15) -> int:
    """P, the most targets that a row of ``length`` tokens can have."""
    return math.ceil(rate * length)


def mask_tokens(
    key: jax.Array,
    tokens: jax.Array,
    *,
    mask_id: int,
    vocab_size: int,
    special_ids: tuple[int, ...],
    rate: float = 0.15,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Chooses targets and hides most of them (METHODS 3.5 and 4.1; XLM, ``trainer.mask_out``).

    As in XLM, position 0 is never a target, every other token that may be one is with probability ``rate``, and of the
    targets 80 % become the mask, 10 % stay, and 10 % become a token drawn from the whole vocabulary. Unlike there, the
    tokens of a row are not chosen independently of each other: of m candidates a row has ``rate * m`` targets, rounded
    up or down at random so that the mean is exact. So the arrays have a fixed size and the loss a steady one.

    Args:
      key: of this step and stream.
      tokens: int32 [B, L].
      mask_id: id of the mask.
      vocab_size: random tokens are drawn from 0 .. vocab_size - 1.
      special_ids: tokens that are never targets, padding among them. For TLM give the padding alone: there the ends of
        sentences may be chosen.
      rate: share of the candidates, 0 < rate <= 1.

    Returns:
      inputs: int32 [B, L], the tokens with targets replaced.
      target_positions: int32 [B, P], P = ``max_targets(L, rate)``, different positions within a row, in no order.
      target_ids: int32 [B, P], the tokens that stood there.
      weights: float32 [B, P], 1 for a target, 0 for what fills the row up (which is not replaced in ``inputs``).

    Raises:
      ValueError: a rate outside (0, 1].
    """
    if not 0 < rate <= 1:
        raise ValueError(f"the rate of masked tokens is {rate!r}; wanted a number above 0 and up to 1")
    rows, length = tokens.shape
    size = max_targets(length, rate)
    choose, round_up, option, replace = jax.random.split(key, 4)

    special = jnp.isin(tokens, jnp.asarray(special_ids, tokens.dtype))
    candidate = ~special & (jnp.arange(length) > 0)
    # The `size` candidates with the highest random numbers, the highest first.
    scores = jnp.where(candidate, jax.random.uniform(choose, (rows, length)), -1.0)
    _, positions = jax.lax.top_k(scores, size)
    wanted = rate * candidate.sum(axis=1) + jax.random.uniform(round_up, (rows,))
    chosen = jnp.arange(size) < jnp.floor(wanted)[:, None]
    targets = jnp.take_along_axis(tokens, positions, axis=1)

    draw = jax.random.uniform(option, (rows, size))
    random = jax.random.randint(replace, (rows, size), 0, vocab_size, tokens.dtype)
    shown = jnp.where(draw < MASK, mask_id, jnp.where(draw < MASK + KEEP, targets, random))
    shown = jnp.where(chosen, shown, targets).astype(tokens.dtype)
    inputs = tokens.at[jnp.arange(rows)[:, None], positions].set(shown)
    return inputs, positions.astype(jnp.int32), targets, chosen.astype(jnp.float32)
