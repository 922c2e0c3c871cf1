"""Translation language modelling: a sentence and its translation in one row (METHODS 4.1).

    XLM       </s> a1 .. an </s> </s> b1 .. bm </s>
    XLM-R      <s> a1 .. an </s> </s> b1 .. bm </s>

each side in the tokenizer's own frame, but that the second one begins with what ends a sentence, as XLM-R's pairs do
(for XLM it is the same token). Positions start anew at the second side, which has its own language's ids. A batch holds
``tokens``, ``positions`` and ``languages`` int32 [B, L]; which tokens are hidden is drawn in the step
(``objectives.masked_lm``).
"""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np

from vmsst_jax import checks
from vmsst_jax.data.batching import ragged_index
from vmsst_jax.data.cache import TokenCache
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.length_batches import RowStream, Sizes, check_settings, padded, plan_widths
from vmsst_jax.data.parallel import ParallelText
from vmsst_jax.data.shuffle import draws

ORDERS = ("both", "given")
DRAWS = 4  # of ``shuffle.draws``


@dataclasses.dataclass(frozen=True)
class PairRows:
    """What ``TlmText`` and ``TranslationText`` share: the pairs of a task, in batches of like length.

    Attributes:
      task: name of a registered task or mixture of parallel text (see docs/adding_a_corpus.md). All pairs count alike,
        whatever the rates of a mixture.
      batch_size, batch_tokens: rows of a micro-batch over all devices, or as many as make that number of tokens.
      max_length: most pieces of a side, special tokens not counted; pairs with a longer one are left out, as in XLM.
      groups: how many widths rows are padded to, planned so that each serves as many rows; or give them by ``widths``.
      cache: "memory" tokenises at the start; a folder keeps that between runs.
      split: of the task.
    """

    task: str
    batch_size: int | None = None
    batch_tokens: int | None = None
    max_length: int = 100
    groups: int = 4
    widths: tuple[int, ...] | None = None
    cache: str = "memory"
    split: str = "train"

    def __post_init__(self):
        check_settings(self, 3)
        self.text(2)

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.batch_size, self.batch_tokens)

    def text(self, special: int) -> ParallelText:
        """The pairs as token caches, sides of ``max_length`` pieces in a frame of ``special`` tokens."""
        length = self.max_length + special
        return ParallelText(self.task, self.batch_size or 1, length, cache=self.cache, split=self.split)

    def check(self, languages: Languages, shards: int = 1, accumulate: int = 1) -> None:
        """ValueError for a batch that does not divide, an unknown task or split, or unknown languages; cheap."""
        checks.whole("Stream.accumulate", accumulate)
        self.sizes.padded(1, shards)
        dataclasses.replace(self.text(2), batch_size=shards).check(languages, shards)

    def examples(self, split: str | None = None):
        """Every pair of a split (default: this one's) once, as text."""
        return self.text(2).examples(split)

    def _open(self, tokenizer, languages: Languages, rows_of, seed: int, label: str, shards: int, accumulate: int):
        special = len(tokenizer.prefix_ids) + len(tokenizer.suffix_ids)
        rows = rows_of(self.text(special).caches(tokenizer, languages)[0])
        widths = self.widths or plan_widths(rows.lengths, self.groups) if len(rows.lengths) else (1,)
        options = {"seed": seed, "label": zlib.crc32(label.encode()), "shards": shards, "accumulate": accumulate}
        return RowStream(rows, widths, self.sizes, tokenizer.pad_id, **options)


@dataclasses.dataclass(frozen=True)
class TlmText(PairRows):
    """Pairs for translation language modelling, see the module. ``PairRows`` has the attributes, and these:

    Attributes:
      order: "both" draws at random which side comes first; "given" keeps the corpus's.
      restart_positions: whether positions start anew at the second side, as in XLM.
    """

    order: str = "both"
    restart_positions: bool = True

    def __post_init__(self):
        super().__post_init__()
        if self.order not in ORDERS:
            raise ValueError(f"TlmText.order is {self.order!r}; use one of {', '.join(map(repr, ORDERS))}")

    def shapes(self, shards: int = 1, accumulate: int = 1) -> dict:
        """Shapes of the longest batch's arrays, without opening the corpus."""
        width = self.widths[-1] if self.widths else 2 * (self.max_length + 2)
        leading = (accumulate,) if accumulate > 1 else ()
        return dict.fromkeys(("tokens", "positions", "languages"), (*leading, self.sizes.padded(width, shards), width))

    def open(self, tokenizer, languages: Languages, seed: int, shards: int = 1, accumulate: int = 1) -> RowStream:
        """An endless stream of batches, of the same rows for any number of ``shards``."""

        def rows(caches):
            return TlmRows(caches, tokenizer, seed, self.order == "both", self.restart_positions)

        return self._open(tokenizer, languages, rows, seed, "tlm", shards, accumulate)


class CachedPairs:
    """The pairs of token caches that no limit has cut, under dense numbers.

    Attributes:
      lengths: tokens of both sides with their frames, int64 [N, 2].
      dropped: pairs left out, as a side is longer than the caches hold.
    """

    def __init__(self, caches: list[TokenCache]):
        self._caches = caches
        whole = [~cache.cuts.any(axis=1) for cache in caches]
        self._which = np.repeat(np.arange(len(caches)), [int(w.sum()) for w in whole])
        self._pair = np.concatenate([np.flatnonzero(w) for w in whole])
        self.lengths = np.concatenate([c.lengths[w] for c, w in zip(caches, whole, strict=True)])
        self.dropped = sum(map(len, caches)) - len(self._pair)

    def side(self, index: np.ndarray, side: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One side of each of the pairs ``index`` (int64 [K]): ``side`` int64 [K] is 0 (source) or 1 (target).

        Returns (tokens int32 [sum of lengths], lengths int64 [K], lang int32 [K]).
        """
        which, sentence = self._which[index], 2 * self._pair[index] + side
        chosen = [np.flatnonzero(which == c) for c in range(len(self._caches))]
        parts = [cache.sentences(sentence[rows])[:3] for cache, rows in zip(self._caches, chosen, strict=True)]
        tokens, lengths, lang = (np.concatenate(column) for column in zip(*parts, strict=True))
        back = np.argsort(np.concatenate(chosen))
        starts = np.cumsum(lengths) - lengths
        return tokens[ragged_index(starts[back], lengths[back])], lengths[back], lang[back]

    def ids(self, index: np.ndarray) -> np.ndarray:
        """The corpus's own ids of pairs: int64 [K]."""
        which, pair = self._which[index], self._pair[index]
        out = np.empty(len(index), np.int64)
        for c, cache in enumerate(self._caches):
            out[which == c] = cache.pair_ids(pair[which == c])
        return out

    def langs(self) -> np.ndarray:
        """Language ids of both sides: int32 [N, 2]."""
        parts = [cache.langs[self._pair[self._which == c]] for c, cache in enumerate(self._caches)]
        return np.concatenate(parts)  # pairs stand in the caches' order

    def checksums(self) -> dict[str, str]:
        """{where the text comes from: its SHA-256}."""
        return {cache.meta["source"]: cache.meta["sha256"] for cache in self._caches}

    def codes(self) -> str:
        """The languages, for people."""
        return ", ".join(sorted({code for cache in self._caches for code in cache.meta["sentences"]}))


class TlmRows:
    """The ``Rows`` of translation language modelling."""

    def __init__(self, caches: list[TokenCache], tokenizer, seed: int, both_orders: bool, restart: bool):
        self._pairs = CachedPairs(caches)
        self._seed, self._both_orders, self._restart = seed, both_orders, restart
        self._pad, self._begin = tokenizer.pad_id, tokenizer.suffix_ids[0]
        self._prefix = len(tokenizer.prefix_ids)
        if self._prefix != 1:
            raise ValueError(
                f"the tokenizer puts {self._prefix} tokens before a sentence; wanted one, as XLM's and XLM-R's do: "
                "the second sentence of a row needs a token to begin with"
            )
        self.lengths, self.dropped = self._pairs.lengths.sum(axis=1), self._pairs.dropped

    def batch(self, index: np.ndarray, width: int, number: int) -> dict[str, np.ndarray]:
        """``tokens``, ``positions`` and ``languages`` int32 [K, width]. Padding goes on with the second side's."""
        first = draws(self._seed, number, len(index), kind=DRAWS)[1] * self._both_orders
        a, a_lengths, a_lang = self._pairs.side(index, first)
        b, b_lengths, b_lang = self._pairs.side(index, 1 - first)
        b = b.copy()
        b[np.cumsum(b_lengths) - b_lengths] = self._begin
        place = np.arange(width, dtype=np.int32)
        second = place >= a_lengths[:, None]
        tokens = padded(a, a_lengths, width, self._pad)
        tokens[second & (place < (a_lengths + b_lengths)[:, None])] = b
        starts = np.where(second, a_lengths[:, None], 0) if self._restart else 0
        positions = np.broadcast_to(place - starts, tokens.shape).astype(np.int32)
        languages = np.where(second, b_lang[:, None], a_lang[:, None]).astype(np.int32)
        return {"tokens": tokens, "positions": positions, "languages": languages}

    def ids(self, index: np.ndarray) -> np.ndarray:
        """The corpus's own ids of pairs: int64 [K]."""
        return self._pairs.ids(index)

    def facts(self) -> list[str]:
        """For a run's overview."""
        return [f"pairs of {self._pairs.codes()} in one row"]

    def checksums(self) -> dict[str, str]:
        """{where the text comes from: its SHA-256}."""
        return self._pairs.checksums()
