"""Endless streams of rows in batches of like length, each padded to one of a few widths: one compiled program a width.

An epoch takes every row once: rows come in a new random order, those of a width together, and so do the batches. What
is left of a width at its end is filled up with rows of padding alone, which no loss counts; so is a batch whose rows
don't divide over the devices. The order depends on (seed, epoch), so that the saved position is three integers:
restoring is instant and exact, and every process computes the same global batch, all of it, of the same rows whatever
the number of devices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from vmsst_jax import checks
from vmsst_jax.data.batching import ragged_index
from vmsst_jax.data.shuffle import Permutation

MULTIPLE = 4  # planned widths are multiples of it
TOKENS = ("tokens", "source", "target")  # a batch's arrays of tokens, [B, L]; what else it has goes with them


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How many rows a batch has: ``rows`` of every width, or as many as make ``tokens`` with their padding.

    Over all devices; one of the two is given.
    """

    rows: int | None = None
    tokens: int | None = None

    def __post_init__(self):
        if (self.rows is None) == (self.tokens is None):
            raise ValueError(
                f"batch_size is {self.rows!r} and batch_tokens {self.tokens!r}; wanted one of them, the other None"
            )
        checks.whole("batch_size" if self.tokens is None else "batch_tokens", self.rows or self.tokens)

    def of(self, width: int) -> int:
        """Rows that a batch of ``width`` tokens takes from the corpus."""
        return self.rows or max(self.tokens // width, 1)

    def padded(self, width: int, shards: int) -> int:
        """Rows of its arrays, those of padding with them; ValueError where ``rows`` don't divide over the shards."""
        if self.tokens is not None:
            return -(-self.of(width) // shards) * shards
        if self.rows % shards:
            below = self.rows // shards * shards
            raise ValueError(
                f"batch_size is {self.rows}, which does not divide over {shards} batch shards. Nearest that work: "
                f"{f'{below} or ' if below else ''}{below + shards}"
            )
        return self.rows


def check_settings(settings, least: int) -> None:
    """What data in batches of like length checks alike: ValueError for groups, lengths, widths or sizes that make none.

    ``settings`` is a frozen dataclass with batch_size, batch_tokens, groups, max_length and widths, which becomes a
    tuple; ``least``: of a width.
    """
    owner = type(settings).__name__
    for name in ("groups", "max_length"):
        checks.whole(f"{owner}.{name}", getattr(settings, name))
    if settings.widths is not None:
        object.__setattr__(settings, "widths", checks.wholes(f"{owner}.widths", settings.widths, least))
    Sizes(settings.batch_size, settings.batch_tokens)


def plan_widths(lengths: np.ndarray, groups: int) -> tuple[int, ...]:
    """At most ``groups`` widths, multiples of 4, each for about as many of the rows with ``lengths`` (int64 [N])."""
    ends = np.quantile(lengths, np.arange(1, groups + 1) / groups, method="inverted_cdf")
    return tuple(sorted({int(-(-end // MULTIPLE) * MULTIPLE) for end in ends}))


class Rows(Protocol):
    """What a ``RowStream`` takes its batches from.

    Attributes:
      lengths: tokens of every row, int64 [N].
      dropped: how many rows were left out, being too long.
    """

    lengths: np.ndarray
    dropped: int

    def batch(self, index: np.ndarray, width: int, number: int) -> dict[str, np.ndarray]:
        """Rows ``index`` (int64 [K]) as arrays [K, ...]; ``number`` of the batch: where random choices come from."""

    def ids(self, index: np.ndarray) -> np.ndarray:
        """The corpus's own ids of rows: int64 [K]."""

    def facts(self) -> list[str]:
        """For a run's overview: what the rows are."""

    def checksums(self) -> dict[str, str]:
        """{where the text comes from: its SHA-256}."""


class RowStream:
    """Batches of ``rows``, endlessly; see the module."""

    def __init__(
        self,
        rows: Rows,
        widths: Sequence[int],
        sizes: Sizes,
        pad_id: int,
        *,
        seed: int,
        label: int,
        shards: int = 1,
        accumulate: int = 1,
    ):
        """Stands before the first batch.

        Args:
          widths: increasing; the last one holds the longest row.
          pad_id: fills up rows.
          label: tells streams of one run apart, which would else come in the same order.
          accumulate: n, micro-batches per batch; with n > 1 every array has a leading axis n.

        Raises:
          ValueError: no rows, a row that no width holds, or batches that don't divide over the shards.
        """
        lengths = rows.lengths
        if not len(lengths):
            raise ValueError(
                f"there is nothing to train on: {'; '.join(rows.facts())}, {rows.dropped:,} left out as too long"
            )
        if lengths.max() > widths[-1]:
            raise ValueError(f"a row has {lengths.max()} tokens, and the widths are {tuple(widths)}: give a wider one")
        self.rows, self.widths, self.pad_id = rows, tuple(widths), pad_id
        self.seed, self.label, self.accumulate = seed, label, accumulate
        self.sizes = np.array([sizes.of(width) for width in widths])
        self._arrays = [sizes.padded(width, shards) for width in widths]
        self._group = np.searchsorted(widths, lengths)
        self.steps = int(sum(-(-n // s) for n, s in zip(self._counts(), self.sizes * accumulate, strict=True)))
        self._epoch = self._step = self._batch = 0
        self._plan: tuple[int, list] = (-1, [])

    def _counts(self) -> list[int]:
        return np.bincount(self._group, minlength=len(self.widths)).tolist()

    def _epoch_plan(self) -> list[tuple[int, np.ndarray]]:
        """(group, rows) of every batch of this epoch, in order."""
        if self._plan[0] != self._epoch:
            count = len(self.rows.lengths)
            order = Permutation(count, self.seed, self.label, 2 * self._epoch)(np.arange(count))
            groups, batches = self._group[order], []
            for g, size in enumerate((self.sizes * self.accumulate).tolist()):
                members = order[groups == g]
                batches += [(g, members[i : i + size]) for i in range(0, len(members), size)]
            places = Permutation(len(batches), self.seed, self.label, 2 * self._epoch + 1)(np.arange(len(batches)))
            self._plan = self._epoch, [batches[i] for i in places.tolist()]
        return self._plan[1]

    def next(self) -> tuple[dict, dict]:
        """The next (batch, info); ``info`` as in ``data.document_streams``, ``truncated`` being rows left out."""
        group, index = self._epoch_plan()[self._step]
        width, size, n = self.widths[group], int(self.sizes[group]), self.accumulate
        filled = np.concatenate([index, np.full(size * n - len(index), index[0])])
        batch = self.rows.batch(filled, width, self._batch)
        for name in batch.keys() & set(TOKENS):
            batch[name][len(index) :] = self.pad_id
        more = self._arrays[group] - size  # of every micro-batch
        batch = {name: self._spread(array, more, name in TOKENS) for name, array in batch.items()}
        tokens = [array for name, array in batch.items() if name in TOKENS]
        info = {
            "pair_id": self._spread(self.rows.ids(filled), more, False),
            "real_tokens": int(sum((array != self.pad_id).sum() for array in tokens)),
            "padded_tokens": sum(array.size for array in tokens),
            "truncated": 0,
        }
        self._batch, self._step = self._batch + 1, self._step + 1
        if self._step == self.steps:
            self._epoch, self._step = self._epoch + 1, 0
        return batch, info

    def _spread(self, array: np.ndarray, more: int, is_tokens: bool) -> np.ndarray:
        """An array [n x K, ...] of n micro-batches as [n, K + more, ...], without the first axis where n is 1.

        The rows behind are those of padding, or repeat the first.
        """
        parts = array.reshape(self.accumulate, -1, *array.shape[1:])
        behind = np.repeat(parts[:, :1], more, axis=1)
        if is_tokens:
            behind[:] = self.pad_id
        whole = np.concatenate([parts, behind], axis=1) if more else parts
        return whole if self.accumulate > 1 else whole[0]

    def checksums(self) -> dict[str, str]:
        """{where the text comes from: its SHA-256}."""
        return self.rows.checksums()

    def state(self) -> dict:
        """The position: epoch, batch within it, batch since the start; and the number of rows as a check."""
        return {"epoch": self._epoch, "step": self._step, "batch": self._batch, "rows": self._counts()}

    def restore(self, state: dict) -> None:
        """Continues where ``state`` was taken; ValueError when the rows are not those it was taken on."""
        if state["rows"] != self._counts():
            raise ValueError(
                f"the saved position belongs to {state['rows']} rows of each width, here are {self._counts()}: give "
                "the same corpus, widths and batch, or start in a new model directory"
            )
        self._epoch, self._step, self._batch = (state[name] for name in ("epoch", "step", "batch"))

    def facts(self) -> list[str]:
        """For a run's overview: the rows, the batches, the length of an epoch."""
        shapes = ", ".join(f"{size} x {width}" for size, width in zip(self._arrays, self.widths, strict=True))
        each = f" ({self.accumulate} micro-batches an update)" if self.accumulate > 1 else ""
        dropped = f", {self.rows.dropped:,} left out as too long" if self.rows.dropped else ""
        return [
            *self.rows.facts(),
            f"{len(self.rows.lengths):,} rows{dropped}, {self.steps:,} updates an epoch",
            f"batches of {shapes} tokens{each}",
        ]


def padded(tokens: np.ndarray, lengths: np.ndarray, width: int, pad_id: int) -> np.ndarray:
    """Rows that lie one after another (int32 [sum of lengths], int64 [K]) -> int32 [K, width]."""
    out = np.full((len(lengths), width), pad_id, np.int32)
    out[np.arange(width) < lengths[:, None]] = tokens[ragged_index(np.cumsum(lengths) - lengths, lengths)]
    return out
