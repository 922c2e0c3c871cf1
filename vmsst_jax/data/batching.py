"""Collation: sentences of any length become the *bucketed parallel batch*, a few arrays of static shape.

B pairs are 2B sentences, sentence i < B being source i and sentence B + i target i. They are drawn first and sorted by
length afterwards, so that no loss ever sees negatives composed by length: bucketing decides only where a sentence lies.
"""

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from math import gcd
from typing import NamedTuple

import numpy as np

from vmsst_jax import checks


class Share(NamedTuple):
    """Which of the ``shards`` equal pieces of a batch's rows the devices of this process hold; the rest is not read."""

    shards: int = 1
    held: tuple[int, ...] = (0,)

    def rows(self, count: int) -> np.ndarray:
        """The held ones of ``count`` rows: int64 [K]; all, where the shards don't divide them."""
        rows = np.arange(count)
        return rows if count % self.shards else rows.reshape(self.shards, -1)[list(self.held)].ravel()


@dataclasses.dataclass(frozen=True)
class BatchPlan:
    """The static shapes of a stream's batches.

    Attributes:
      batch_size: B, pairs per (micro-)batch over all devices.
      widths: after sorting by length the 2B sentences form ``len(widths)`` equal groups, group g padded to
        ``widths[g]`` tokens; non-decreasing.
      max_length: longest sentence. A batch that does not fit ``widths`` has every group padded to this instead.
      shards: number of pieces into which the devices cut the batch axis.
      accumulate: n, micro-batches per batch; with n > 1 every array has a leading axis n.
    """

    batch_size: int
    widths: tuple[int, ...]
    max_length: int
    shards: int = 1
    accumulate: int = 1

    def __post_init__(self):
        object.__setattr__(self, "widths", checks.wholes("widths", self.widths))
        for name in ("batch_size", "max_length", "shards", "accumulate"):
            checks.whole(name, getattr(self, name))
        widths = self.widths
        if not widths or list(widths) != sorted(widths) or widths[0] < 1 or widths[-1] > self.max_length:
            raise ValueError(
                f"widths is {widths}; wanted one or more group widths in non-decreasing order, each from 1 to "
                f"max_length {self.max_length}, e.g. ({self.max_length},) for a single group."
            )
        parts = len(widths) * self.shards
        if 2 * self.batch_size % parts:
            step = parts // gcd(parts, 2)
            below = self.batch_size // step * step
            nearest = f"{below} or {below + step}" if below else f"{step}"
            raise ValueError(
                f"batch_size {self.batch_size} gives {2 * self.batch_size} sentences, which do not divide into "
                f"{len(widths)} groups x {self.shards} batch shards = {parts} equal parts. "
                f"Nearest batch sizes that work: {nearest}."
            )

    @property
    def group_rows(self) -> int:
        """Sentences per group: 2B / number of groups."""
        return 2 * self.batch_size // len(self.widths)

    def shapes(self) -> dict:
        """Shapes of a batch's int32 arrays, as ``collate`` makes them."""
        leading, rows = (self.accumulate,) if self.accumulate > 1 else (), 2 * self.batch_size
        tokens = tuple((*leading, self.group_rows, width) for width in self.widths)
        return {"tokens": tokens, **dict.fromkeys(("slot", "row", "lang", "text_id"), (*leading, rows))}

    @property
    def fallback(self) -> tuple[int, ...]:
        """The widths of a batch with a sentence too long for its group."""
        return (self.max_length,) * len(self.widths)


def ragged_index(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Positions starts[i], ..., starts[i] + lengths[i] - 1 of all rows i in turn: int64 [sum of lengths]."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - (ends - lengths), lengths) + np.arange(ends[-1] if len(ends) else 0)


def text_ids(tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """A number per sentence, equal for equal token sequences: the CRC-32 of its int32 tokens, as int32 [N].

    Two different sentences share one with probability 2^-32, some two of a batch of 2,048 pairs once in 500 batches.
    """
    data = tokens.astype("<i4").tobytes()
    ends = 4 * np.cumsum(lengths)
    starts = ends - 4 * np.asarray(lengths)
    codes = [zlib.crc32(data[a:b]) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    return np.array(codes, np.uint32).view(np.int32)


def collate(rows: Sequence[np.ndarray], lang: np.ndarray, plan: BatchPlan) -> tuple[dict, dict]:
    """Makes one batch of a list of token rows; see :func:`collate_flat` for what comes back and what is raised.

    Args:
      rows: n * 2B int32 arrays, each ending in eos: the B sources, then the B targets, of each micro-batch in turn.
      lang: language id per row, int32 [n * 2B].
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    tokens = np.concatenate([np.asarray(row, np.int32) for row in rows]) if len(rows) else np.zeros(0, np.int32)
    return collate_flat(tokens, lengths, lang, text_ids(tokens, lengths), plan)


def collate_flat(
    tokens: np.ndarray, lengths: np.ndarray, lang: np.ndarray, text_id: np.ndarray, plan: BatchPlan
) -> tuple[dict, dict]:
    """Makes one batch of n * 2B sentences that lie one after another in ``tokens``, int32 [sum of lengths].

    For the other arguments, what comes back and what is raised see :func:`collate_read`.
    """
    starts = np.cumsum(lengths) - lengths
    return collate_read(lambda s: tokens[ragged_index(starts[s], lengths[s])], lengths, lang, text_id, plan)


def collate_read(
    read: Callable[[np.ndarray], np.ndarray],
    lengths: np.ndarray,
    lang: np.ndarray,
    text_id: np.ndarray,
    plan: BatchPlan,
    share: Share = Share(),
) -> tuple[dict, dict]:
    """Makes one batch of n * 2B sentences.

    Args:
      read: function (sentences int64 [K]) -> their tokens one after another, int32; called once.
      lengths: int64 [n * 2B], each from 1 to ``plan.max_length``.
      lang, text_id: int32 [n * 2B].
      plan: B, n and the group widths.
      share: rows of the groups that are read; the others are left as padding.

    Returns:
      batch: ``tokens``, a tuple over groups g of int32 [R, widths[g]], 0 = padding, the sentences in (stable) order of
        length; ``slot`` int32 [2B], where sentence i lies in the concatenation of the groups; ``row`` int32 [2B], its
        inverse; ``lang`` and ``text_id`` int32 [2B], in sentence order. With n > 1 each has a leading axis n.
      facts: ``real_tokens``, ``padded_tokens`` (all positions, padding included) and ``fallback`` (whether a sentence
        did not fit its group, so that every group of every micro-batch is padded to ``plan.max_length``).

    Raises:
      ValueError: another number of sentences than the plan's, or a sentence that is empty or too long.
    """
    count, per_batch = len(lengths), 2 * plan.batch_size
    if count != plan.accumulate * per_batch or len(lang) != count or len(text_id) != count:
        raise ValueError(
            f"found {count} sentences, {len(lang)} languages and {len(text_id)} text ids; wanted "
            f"{plan.accumulate} x 2 x {plan.batch_size} = {plan.accumulate * per_batch} of each."
        )
    if lengths.min() < 1 or lengths.max() > plan.max_length:
        raise ValueError(
            f"sentence lengths run from {lengths.min()} to {lengths.max()} tokens; wanted 1 to max_length "
            f"{plan.max_length}: tokenise with that maximum."
        )
    shape = (plan.accumulate, per_batch)
    order = np.argsort(lengths.reshape(shape), axis=1, kind="stable")
    slot = np.empty(shape, np.int32)
    np.put_along_axis(slot, order, np.arange(per_batch, dtype=np.int32)[None], axis=1)

    by_length = (order + per_batch * np.arange(plan.accumulate)[:, None]).reshape(plan.accumulate, len(plan.widths), -1)
    fallback = bool((lengths[by_length[:, :, -1]] > np.array(plan.widths)).any())
    widths = plan.fallback if fallback else plan.widths
    groups = _groups(read, by_length.swapaxes(0, 1), lengths, widths, share)
    batch = {
        "tokens": groups,
        "slot": slot,
        "row": order.astype(np.int32),
        "lang": np.asarray(lang, np.int32).reshape(shape),
        "text_id": np.asarray(text_id, np.int32).reshape(shape),
    }
    if plan.accumulate == 1:
        batch = {k: tuple(g[0] for g in v) if k == "tokens" else v[0] for k, v in batch.items()}
    facts = {"real_tokens": int(lengths.sum()), "padded_tokens": sum(g.size for g in groups), "fallback": fallback}
    return batch, facts


def _groups(read, sentences: np.ndarray, lengths: np.ndarray, widths, share: Share) -> tuple[np.ndarray, ...]:
    """Tokens of ``sentences`` [groups, n, R] in their places: int32 [n, R, width] for each group, padded with 0."""
    rows = share.rows(sentences.shape[2])
    held = sentences[:, :, rows]
    tokens, sizes = read(held.ravel()), lengths[held]
    ends = np.cumsum(sizes.sum(axis=(1, 2)))
    groups = []
    for part, size, width in zip(np.split(tokens, ends[:-1]), sizes, widths, strict=True):
        group = np.zeros((*size.shape, width), np.int32)
        group[np.arange(width) < size[..., None]] = part
        if len(rows) < sentences.shape[2]:
            whole = np.zeros((*sentences.shape[1:], width), np.int32)
            whole[:, rows] = group
            group = whole
        groups.append(group)
    return tuple(groups)


def plan_widths(
    lengths: np.ndarray,
    batch_size: int,
    groups: int,
    max_length: int,
    multiple: int = 2,
    fit: float = 0.99,
    seed: int = 0,
) -> tuple[int, ...]:
    """Proposes group widths for a corpus by drawing 1,000 batches from its lengths.

    Args:
      lengths: tokens per sentence, eos included: [N], or [P, 2] to draw the two sides of a pair together, as training
        does.
      batch_size: B; the 2B sentences of a batch are sorted by length and cut into ``groups`` equal groups.
      max_length: upper bound of a width.
      multiple: widths are rounded up to a multiple of it (where ``max_length`` allows).
      fit: share of the batches whose sentences of group g fit ``widths[g]``, for each g.

    Returns:
      the widths, non-decreasing, ready for :class:`BatchPlan`.
    """
    lengths = np.minimum(np.asarray(lengths), max_length)
    if lengths.size == 0 or lengths.shape[1:] not in ((), (2,)):
        raise ValueError(f"lengths has shape {lengths.shape}; wanted [N] or [P, 2] with at least one sentence.")
    if groups < 1 or 2 * batch_size % groups or not 0 < fit <= 1:
        raise ValueError(
            f"found batch_size {batch_size}, groups {groups}, fit {fit}; wanted groups that divide "
            f"2 x {batch_size} = {2 * batch_size} sentences and a fit above 0 and up to 1."
        )
    lengths = lengths.reshape(len(lengths), -1)
    draws = 2 * batch_size // lengths.shape[1]
    rows = 2 * batch_size // groups
    generator = np.random.default_rng(seed)
    longest = np.empty((1000, groups), np.int64)  # [simulated batches, groups]
    for sample in longest:
        drawn = np.sort(lengths[generator.integers(len(lengths), size=draws)], axis=None)
        sample[:] = drawn[rows - 1 :: rows]
    widths = np.quantile(longest, fit, axis=0, method="inverted_cdf")
    return tuple(int(min(-(-w // multiple) * multiple, max_length)) for w in widths)
