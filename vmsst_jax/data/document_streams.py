"""Endless streams of sentence pairs from documents (CCP) and of blocks of running text (masked language model).

Both have ``next() -> (batch, info)``, ``state() -> JSON-able dict`` and ``restore(dict)``. What a batch holds depends
on (seed, batch number) and a few integers per language, which are the saved position: restoring is instant and exact.
The global batch is the same whatever the number of processes: each draws all of it, and reads the sentences of its own
``share`` only, leaving padding in the other rows.

``info`` holds ``pair_id`` (the corpus's own ids of the documents), ``real_tokens`` and ``padded_tokens`` of this batch,
and ``truncated`` (sentences cut at the maximal length since the start of training, kept over a resume).
"""

from __future__ import annotations

import numpy as np

from vmsst_jax.data.batching import Share, ragged_index
from vmsst_jax.data.document_pool import Corpus, LanguageSampler, Pool
from vmsst_jax.data.shuffle import Permutation, draws

AHEAD = 256  # documents of a language whose order is computed at once


class _PoolStream:
    """What the streams have in common: languages that are drawn, a place in each one's order, and the counters.

    Attributes:
      share: the rows of a batch that this process needs.
    """

    share = Share()

    def __init__(self, corpus: Corpus, pools: list[Pool], exponent: float, seed: int):
        self.corpus, self.pools, self.seed = corpus, pools, seed
        self.sampler = LanguageSampler([pool.sentences for pool in pools], exponent)
        self._batch = self._truncated = 0
        self._positions = [self._start() for _ in pools]
        self._orders: dict[int, tuple[int, Permutation]] = {}  # pool -> (epoch, its order)

    def _start(self) -> list[int]:
        """The position before a pool's first document: [epoch, index, ...]."""
        return [0, 0]

    def _documents(self, k: int, epoch: int, places: np.ndarray) -> np.ndarray:
        """Dense ids of the documents at ``places`` of pool k's order in an epoch: int64 [K]."""
        if self._orders.get(k, (None,))[0] != epoch:
            self._orders[k] = epoch, Permutation(len(self.pools[k]), self.seed, self.pools[k].lang, epoch)
        return self.pools[k].ids(self._orders[k][1](places))

    def checksums(self) -> dict[str, str]:
        """{where the documents come from: their SHA-256}."""
        return self.corpus.checksums

    def state(self) -> dict:
        """The position: counters, and per language its code, number of documents and place in them."""
        pools = [[p.code, len(p), *at] for p, at in zip(self.pools, self._positions, strict=True)]
        return {"batch": self._batch, "truncated": self._truncated, "pools": pools}

    def restore(self, state: dict) -> None:
        """Continues where ``state`` was taken; ValueError when the corpus is not the one it was taken on."""
        saved, here = {code: size for code, size, *_ in state["pools"]}, {p.code: len(p) for p in self.pools}
        if saved != here:
            changed = [c for c in sorted({*saved, *here}) if saved.get(c) != here.get(c)]
            numbers = ", ".join(f"{c} {saved.get(c, 0):,} -> {here.get(c, 0):,}" for c in changed)
            raise ValueError(
                f"the saved position belongs to other documents (number per language, then -> now: {numbers}): give "
                "the same corpus, cleaning and batch, or start in a new model directory."
            )
        self._batch, self._truncated = state["batch"], state["truncated"]
        self._positions = [list(at) for _, _, *at in state["pools"]]


class PairStream(_PoolStream):
    """Pairs of a sentence and one from its neighbourhood, in groups of one language each (METHODS 3.1, 3.3).

    A micro-batch is G groups of N pairs from G x N different documents. A group's language is drawn with probability
    ~ n^exponent; its documents come in a new random order at every epoch of their language; the centre is uniform in
    the document, the context uniform among the at most 2w sentences no further than w from it.
    Where an epoch's remaining documents are fewer than a micro-batch takes, the next epoch begins.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer,
        *,
        groups: int,
        pairs: int,
        max_length: int,
        window: int,
        exponent: float,
        seed: int,
        accumulate: int = 1,
    ):
        """Stands before the first batch.

        Args:
          tokenizer: the one of the corpus; gives the special tokens around a sentence and the padding.
          groups, pairs: G and N.
          max_length: L, tokens of a sentence with its special ones; longer ones are cut and counted.
          window: w.
          accumulate: n, micro-batches per batch; with n > 1 every array has a leading axis n.

        Raises:
          ValueError: no language has N documents, or all that have don't make up G groups.
        """
        pools = [pool for pool in corpus.pools if len(pool) >= pairs]
        room = sum(len(pool) // pairs for pool in pools)
        if room < groups:
            largest = sorted(corpus.pools, key=len, reverse=True)[:5]
            raise ValueError(
                f"a micro-batch of {groups} group(s) x {pairs} pairs, each pair from a document of its own and each "
                f"group in one language, needs more documents than there are: they make up {room} such group(s). "
                f"Largest: {', '.join(f'{p.code} {len(p):,}' for p in largest)}. Lower Documents.groups or "
                "Documents.pairs (and raise Stream.accumulate instead), or give more documents; in text files a blank "
                "line stands between two"
            )
        super().__init__(corpus, pools, exponent, seed)
        self.groups, self.pairs_per_group, self.accumulate = groups, pairs, accumulate
        self.max_length, self.window = max_length, window
        self._frame = _Frame(tokenizer, max_length)
        self._most = np.array([len(pool) // pairs for pool in pools])

    def next(self) -> tuple[dict, dict]:
        """The next (batch, info).

        ``batch``: ``centre`` and ``context`` int32 [G, N, L], ``lang`` int32 [G], ``document_id`` int32 [G, N] (dense
        ids); ``info["pair_id"]`` is int64 [G, N].
        """
        n, g, size = self.accumulate, self.groups, self.pairs_per_group
        uniform = draws(self.seed, self._batch, n * g * (1 + 2 * size), kind=2)[0]
        for_languages, for_pairs = uniform[: n * g].reshape(n, g), uniform[n * g :].reshape(2, -1)
        drawn = np.stack([self.sampler.draw(u, self._most) for u in for_languages])  # [n, G]
        documents = np.stack([self._take(which) for which in drawn])  # [n, G, N]
        centre, context = _neighbours(self.corpus.sizes(documents).ravel(), self.window, *for_pairs)
        places = np.concatenate([centre, context])
        lengths = self.corpus.lengths(np.tile(documents.ravel(), 2), places)
        rows = self._read(documents, places.reshape(2, n, g, size))
        self._batch += 1
        self._truncated += int((lengths > self._frame.room).sum())
        lang = np.array([pool.lang for pool in self.pools], np.int32)[drawn]
        batch = {"centre": rows[0], "context": rows[1], "lang": lang, "document_id": documents.astype(np.int32)}
        info = {
            "pair_id": self.corpus.document_ids(documents),
            "real_tokens": int(np.minimum(lengths, self._frame.room).sum()) + len(lengths) * self._frame.special,
            "padded_tokens": rows.size,
            "truncated": self._truncated,
        }
        if n == 1:
            batch, info["pair_id"] = {name: array[0] for name, array in batch.items()}, info["pair_id"][0]
        return batch, info

    def _read(self, documents: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Sentences [2, n, G, N] of documents [n, G, N] as rows int32 [2, n, G, N, L]; padding outside the share."""
        held = self.share.rows(documents.shape[1])
        chosen = np.broadcast_to(documents, places.shape)[:, :, held], places[:, :, held]
        tokens, lengths, _ = self.corpus.pieces(*(array.ravel() for array in chosen), self._frame.room)
        out = np.full((*places.shape, self.max_length), self._frame.pad, np.int32)
        out[:, :, held] = self._frame.rows(tokens, lengths).reshape(*chosen[1].shape, self.max_length)
        return out

    def _take(self, drawn: np.ndarray) -> np.ndarray:
        """Documents for one micro-batch, none of them twice: pools int64 [G] -> dense ids int64 [G, N]."""
        out = np.empty((len(drawn), self.pairs_per_group), np.int64)
        for k in np.unique(drawn).tolist():
            rows = np.flatnonzero(drawn == k)
            count = len(rows) * self.pairs_per_group
            epoch, index = self._positions[k]
            if index + count > len(self.pools[k]):
                epoch, index = epoch + 1, 0
            out[rows] = self._documents(k, epoch, np.arange(index, index + count)).reshape(len(rows), -1)
            self._positions[k] = [epoch, index + count]
        return out

    def facts(self) -> list[str]:
        """For a run's overview: the batch, the corpus, what is left out of it."""
        micro = self.groups * self.pairs_per_group
        parts = f"{self.accumulate} micro-batches of " if self.accumulate > 1 else ""
        parts += f"{self.groups} group(s) of {self.pairs_per_group} pairs"
        return [
            f"{micro * self.accumulate:,} pairs an update ({parts})",
            f"sentences padded to {self.max_length} tokens",
            *self.corpus.facts(self.pools),
        ]


class BlockStream(_PoolStream):
    """Blocks of running text, each in one language and completely filled (METHODS 3.5: 512 tokens).

    The documents of a language come in a new random order at every epoch of theirs, one after another, each followed
    by what ends a sentence; a block continues where the last one of its language stopped, and stands in the
    tokenizer's frame. Languages are drawn per block with probability ~ n^exponent, n sentences each.
    """

    def __init__(
        self,
        corpus: Corpus,
        tokenizer,
        *,
        batch_size: int,
        length: int,
        exponent: float,
        seed: int,
        accumulate: int = 1,
    ):
        """Stands before the first batch.

        Args:
          tokenizer: the one of the corpus.
          batch_size, length: B and L, blocks per micro-batch and tokens per block.
          accumulate: n, micro-batches per batch; with n > 1 every array has a leading axis n.

        Raises:
          ValueError: no language has as many tokens as a block.
        """
        self._frame = _Frame(tokenizer, length)
        self._end = np.array(tokenizer.suffix_ids, np.int32)
        # A smaller language would stand in a block several times.
        pools = [p for p in corpus.pools if p.tokens + len(p) * len(self._end) >= self._frame.room]
        if not pools:
            largest = sorted(corpus.pools, key=lambda p: p.tokens, reverse=True)[:5]
            raise ValueError(
                f"a block has {length} tokens, and no language has as many. Largest: "
                f"{', '.join(f'{p.code} {p.tokens:,}' for p in largest)}. Make the blocks shorter, or give more text"
            )
        super().__init__(corpus, pools, exponent, seed)
        self.batch_size, self.length, self.accumulate = batch_size, length, accumulate
        self._ahead: dict[int, tuple[tuple[int, int], list[int]]] = {}

    def _start(self) -> list[int]:
        return [0, 0, 0]  # epoch, index, tokens of that document that are used up

    def next(self) -> tuple[dict, dict]:
        """The next (batch, info).

        ``batch``: ``tokens`` int32 [B, L] and ``lang`` int32 [B]; ``info["pair_id"]`` int64 [B] is the document in
        which a block begins.
        """
        shape = (self.accumulate, self.batch_size) if self.accumulate > 1 else (self.batch_size,)
        count = self.accumulate * self.batch_size
        drawn = self.sampler.draw(draws(self.seed, self._batch, count, kind=3)[0])
        held = np.isin(np.arange(count) % self.batch_size, self.share.rows(self.batch_size))
        blocks, begins = zip(*(self._block(k, read) for k, read in zip(drawn.tolist(), held, strict=True)), strict=True)
        tokens = np.full((count, self.length), self._frame.pad, np.int32)
        filled = np.full(int(held.sum()), self._frame.room)
        tokens[held] = self._frame.rows(np.concatenate([b for b in blocks if b is not None]), filled)
        self._batch += 1
        lang = np.array([pool.lang for pool in self.pools], np.int32)[drawn]
        info = {
            "pair_id": self.corpus.document_ids(np.array(begins)).reshape(shape),
            "real_tokens": tokens.size,
            "padded_tokens": tokens.size,
            "truncated": 0,
        }
        return {"tokens": tokens.reshape(*shape, self.length), "lang": lang.reshape(shape)}, info

    def _block(self, k: int, read: bool) -> tuple[np.ndarray | None, int]:
        """The next block of pool k: (bare pieces int32 [room], dense id of the document in which it begins).

        Without ``read`` the position moves on all the same, and there are no pieces.
        """
        epoch, index, used = self._positions[k]
        parts, wanted, begins = [], self._frame.room, self._document(k, epoch, index)
        while wanted:
            document = self._document(k, epoch, index)
            size = int(self.corpus.text_lengths(np.array(document))) + len(self._end)
            taken = min(wanted, size - used)
            if read:
                parts.append(np.concatenate([self.corpus.text(document), self._end])[used : used + taken])
            wanted, used = wanted - taken, used + taken
            if used == size:
                epoch, index, used = (epoch, index + 1, 0) if index + 1 < len(self.pools[k]) else (epoch + 1, 0, 0)
        self._positions[k] = [epoch, index, used]
        return np.concatenate(parts).astype(np.int32, copy=False) if read else None, begins

    def _document(self, k: int, epoch: int, index: int) -> int:
        """Dense id of one document of pool k's order; the order is computed for AHEAD documents at once."""
        place = (epoch, index // AHEAD)
        if self._ahead.get(k, (None,))[0] != place:
            first = place[1] * AHEAD
            places = np.arange(first, min(first + AHEAD, len(self.pools[k])))
            self._ahead[k] = place, self._documents(k, epoch, places).tolist()
        return self._ahead[k][1][index % AHEAD]

    def facts(self) -> list[str]:
        """For a run's overview: the batch, the corpus, what is left out of it."""
        parts = f" ({self.accumulate} micro-batches)" if self.accumulate > 1 else ""
        blocks = self.batch_size * self.accumulate
        return [f"{blocks:,} blocks of {self.length} tokens an update{parts}", *self.corpus.facts(self.pools)]


class _Frame:
    """Puts a tokenizer's special tokens around bare pieces and pads to one length.

    Attributes:
      room: most bare pieces of a row; special: number of special tokens around them; pad: the id of padding.
    """

    def __init__(self, tokenizer, length: int):
        self._prefix, self._suffix = (np.array(ids, np.int32) for ids in (tokenizer.prefix_ids, tokenizer.suffix_ids))
        self.pad, self._length = tokenizer.pad_id, length
        self.special = len(self._prefix) + len(self._suffix)
        self.room = length - self.special
        if self.room < 1:
            raise ValueError(
                f"rows of {length} tokens have no room beside the {self.special} special ones: wanted "
                f"{self.special + 1} tokens or more"
            )

    def rows(self, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Rows int32 [K, length] of pieces that lie one after another (int32 [sum of lengths], int64 [K])."""
        before = len(self._prefix)
        out = np.full((len(lengths), self._length), self.pad, np.int32)
        out[:, :before] = self._prefix
        starts = np.arange(len(lengths)) * self._length + before
        out.ravel()[ragged_index(starts, lengths)] = tokens
        np.put_along_axis(out, before + lengths[:, None] + np.arange(len(self._suffix)), self._suffix[None], axis=1)
        return out


def _neighbours(
    sizes: np.ndarray, window: int, for_centre: np.ndarray, for_context: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Places (centre, context), int64 [K] each, in documents of ``sizes`` sentences, from uniform numbers in [0, 1).

    The centre is uniform in the document, the context among the sentences within ``window`` of it, itself left out.
    """
    centre = (for_centre * sizes).astype(np.int64)
    first, last = np.maximum(centre - window, 0), np.minimum(centre + window, sizes - 1)
    context = first + (for_context * (last - first)).astype(np.int64)
    return centre, context + (context >= centre)
