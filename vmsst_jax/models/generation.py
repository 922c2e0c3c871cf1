"""Writing a sentence token by token: the most likely next one, a beam of hypotheses, or a random draw.

Everything has static shapes and runs in one ``lax.while_loop`` that stops as soon as all sentences are finished. What
writes is a function ``step(tokens int32 [B, K], place, cache) -> (logits [B, K, V], cache)``: the K hypotheses' tokens
at ``place`` give what may stand at the next one. A row begins and ends with the same token, as XLM's sentences do.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp

from vmsst_jax import checks


@dataclasses.dataclass(frozen=True)
class Decoding:
    """How to write.

    Attributes:
      beams: hypotheses that are followed; 1 takes the most likely token each time (``greedy``).
      length_penalty: a finished hypothesis counts log p / length ** length_penalty, its end counted in the length.
      sample: draw every token at random instead, by ``temperature``: the logits are divided by it.
    """

    beams: int = 1
    length_penalty: float = 1.0
    sample: bool = False
    temperature: float = 1.0

    def __post_init__(self):
        checks.whole("Decoding.beams", self.beams)
        checks.number("Decoding.length_penalty", self.length_penalty)
        checks.positive("Decoding.temperature", self.temperature)
        if self.sample and self.beams > 1:
            raise ValueError(f"Decoding.sample draws one hypothesis, and Decoding.beams is {self.beams}: set it to 1")


def longest(source: int) -> int:
    """Tokens of the longest translation of ``source`` tokens, both ends counted (XLM: int(1.3 n + 5)); arrays too."""
    return 13 * source // 10 + 5


def write(
    step,
    cache,
    limits,
    size: int,
    eos_id: int,
    pad_id: int,
    allowed,
    options: Decoding,
    keys=None,
):
    """Writes a sentence per row.

    Args:
      step, cache: see the module; ``cache`` is for K = ``options.beams``, hypotheses on the second axis of its arrays.
      limits: int32 [B], the most tokens of each row, both ends counted, from 2 to ``size``; 0 writes none.
      size: S, of the rows.
      allowed: function (logits [B, K, V], place) -> log p [B, K, V], see ``log_likelihoods``.
      keys: a JAX key per row [B], for sampling.
    Returns:
      (rows int32 [B, S]: eos, tokens, eos, padding; scores float32 [B], log p over the length to its penalty).
    """
    if options.beams == 1:
        return greedy(step, cache, limits, size, eos_id, pad_id, allowed, options, keys)
    return beam(step, cache, limits, size, eos_id, pad_id, allowed, options)


def log_likelihoods(limits, eos_id: int, never: tuple[int, ...], pieces: int | None = None, writable=None):
    """The function (logits [B, K, V], place) -> log p [B, K, V] of the tokens that may stand there.

    Args:
      limits: as ``write`` takes them: at a row's limit stands its end alone.
      never: ids that stand nowhere; they, and those that follow, take no share of the probability.
      pieces: how many ids there are; logits may have more. None: as many as logits.
      writable: bool [B, ``pieces``], the ids that each row may have, the end among them; None for all.
    """

    def allowed(logits, place):
        logits = logits.astype(jnp.float32).at[..., jnp.array(never)].set(-jnp.inf)
        if pieces is not None:
            logits = jnp.where(jnp.arange(logits.shape[-1]) < pieces, logits, -jnp.inf)
        if writable is not None:
            wide = jnp.pad(writable, ((0, 0), (0, logits.shape[-1] - writable.shape[1])))
            logits = jnp.where(wide[:, None], logits, -jnp.inf)
        log_p = jax.nn.log_softmax(logits)
        ends = (place >= limits - 1)[:, None, None] & (jnp.arange(logits.shape[-1]) != eos_id)
        return jnp.where(ends, -jnp.inf, log_p)

    return allowed


def greedy(step, cache, limits, size: int, eos_id: int, pad_id: int, allowed, options: Decoding, keys=None):
    """One hypothesis, its tokens the most likely ones or drawn; see ``write`` and ``log_likelihoods``."""
    count = limits.shape[0]

    def body(carry):
        place, rows, finished, score, cache = carry
        before = jax.lax.dynamic_slice_in_dim(rows, place - 1, 1, axis=1)
        logits, cache = step(before, place - 1, cache)
        log_p = allowed(logits, place)[:, 0]
        if options.sample:
            at = jax.vmap(jax.random.fold_in, (0, None))(keys, place)
            token = jax.vmap(jax.random.categorical)(at, log_p / options.temperature)
        else:
            token = log_p.argmax(axis=-1)
        gained = jnp.take_along_axis(log_p, token[:, None], axis=1)[:, 0]
        token = jnp.where(finished, pad_id, token).astype(jnp.int32)
        rows = jax.lax.dynamic_update_slice_in_dim(rows, token[:, None], place, axis=1)
        score = score + jnp.where(finished, 0.0, gained)
        return place + 1, rows, finished | (token == eos_id), score, cache

    rows = jnp.full((count, size), pad_id, jnp.int32).at[:, 0].set(eos_id)
    carry = (jnp.int32(1), rows, limits == 0, jnp.zeros(count), cache)
    _, rows, _, score, _ = jax.lax.while_loop(lambda c: (c[0] < size) & ~c[2].all(), body, carry)
    length = jnp.maximum((rows != pad_id).sum(axis=1) - 1, 1)
    return rows, score / length**options.length_penalty


def beam(step, cache, limits, size: int, eos_id: int, pad_id: int, allowed, options: Decoding):
    """The best of the hypotheses that ``options.beams`` of them lead to; see ``write`` and ``log_likelihoods``.

    Of all continuations of the K open hypotheses the best 2K are looked at. Those that end are finished if they are
    among the best K, the best K of the others stay open. A row is done when no open hypothesis can come to more than
    its best finished one, even if it went on to the row's limit at no cost.
    """
    count, k = limits.shape[0], options.beams

    def normalised(log_p, length):
        return log_p / jnp.maximum(length, 1).astype(jnp.float32) ** options.length_penalty

    def body(carry):
        place, rows, log_p, done_rows, done_scores, cache = carry
        before = jax.lax.dynamic_slice_in_dim(rows, place - 1, 1, axis=2)[..., 0]
        logits, cache = step(before, place - 1, cache)
        vocab = logits.shape[-1]
        total = (log_p[..., None] + allowed(logits, place)).reshape(count, -1)
        total, chosen = jax.lax.top_k(total, min(2 * k, k * vocab))
        token, parent = (chosen % vocab).astype(jnp.int32), chosen // vocab
        grown = jnp.take_along_axis(rows, parent[..., None], axis=1)
        grown = jax.lax.dynamic_update_slice_in_dim(grown, token[..., None], place, axis=2)

        ends = token == eos_id
        finishing = ends & (jnp.arange(total.shape[1]) < k)
        scores = jnp.where(finishing, normalised(total, place), -jnp.inf)
        done_scores, best = jax.lax.top_k(jnp.concatenate([done_scores, scores], axis=1), k)
        done_rows = jnp.take_along_axis(jnp.concatenate([done_rows, grown], axis=1), best[..., None], axis=1)

        log_p, best = jax.lax.top_k(jnp.where(ends, -jnp.inf, total), k)
        rows = jnp.take_along_axis(grown, best[..., None], axis=1)
        parent = jnp.take_along_axis(parent, best, axis=1)
        cache = jax.tree.map(lambda x: _reordered(x, parent), cache)
        return place + 1, rows, log_p, done_rows, done_scores, cache

    def going_on(carry):
        place, _, log_p, _, done_scores, _ = carry
        return (place < size) & (done_scores[:, 0] < normalised(log_p[:, 0], limits - 1)).any()

    rows = jnp.full((count, k, size), pad_id, jnp.int32).at[..., 0].set(eos_id)
    log_p = jnp.where((jnp.arange(k) == 0) & (limits > 0)[:, None], 0.0, -jnp.inf)
    carry = (jnp.int32(1), rows, log_p, rows, jnp.full((count, k), -jnp.inf), cache)
    _, _, _, done_rows, done_scores, _ = jax.lax.while_loop(going_on, body, carry)
    return done_rows[:, 0], jnp.where(limits > 0, done_scores[:, 0], 0.0)


def _reordered(x, parent):
    """x [B, K, ...] with hypothesis ``parent`` [B, K] of each row in every place."""
    return jnp.take_along_axis(x, parent.reshape(*parent.shape, *(1,) * (x.ndim - 2)), axis=1)
