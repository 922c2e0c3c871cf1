"""Endless streams of bucketed parallel batches with a saved position.

Every stream has ``next() -> (batch, info)``, ``state() -> JSON-able dict`` and ``restore(dict)``. The global batch is
the same whatever the number of processes: each draws all of it, and reads the sentences of its own ``share`` only,
leaving padding in the other rows (a ``SeqioStream`` reads all text, as its order is tf.data's). ``batch`` is
:func:`vmsst_jax.data.batching.collate_read`'s; ``info`` holds ``pair_id`` int64 [B] ([n, B] with n > 1 micro-batches),
``real_tokens`` and ``padded_tokens`` of this batch, and, counted since the start of training and kept over a resume,
``truncated`` (sentences drawn that were cut at max_length) and ``fallbacks`` (batches that took the fallback shape).
"""

import base64
import hashlib
import itertools
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vmsst_jax.data import registered
from vmsst_jax.data.batching import BatchPlan, Share, collate_read, ragged_index, text_ids
from vmsst_jax.data.cache import TokenCache
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.shuffle import Permutation, draws
from vmsst_jax.data.tokenizer import Tokenizer

SAMPLE = 1000  # pairs, of all tasks together, that tell whether streamed text is the same


class _ParallelStream:
    """What the streams share: the plan, the counters, the last step from sentences to (batch, info).

    Attributes:
      plan: the static shapes.
      pairs: size of the corpus in pairs, None where it is not known.
      share: the rows of a batch that this process needs.
    """

    pairs: int | None
    share = Share()

    def __init__(self, plan: BatchPlan, seed: int):
        self.plan, self.seed = plan, seed
        self._batch = self._truncated = self._fallbacks = 0

    def _emit(self, read, lengths, lang, text_id, cut, pair_id) -> tuple[dict, dict]:
        batch, facts = collate_read(read, lengths, lang, text_id, self.plan, self.share)
        self._batch += 1
        self._truncated += int(cut.sum())
        self._fallbacks += facts.pop("fallback")
        n, size = self.plan.accumulate, self.plan.batch_size
        pair_id = pair_id.reshape(n, size) if n > 1 else pair_id
        return batch, {"pair_id": pair_id, **facts, "truncated": self._truncated, "fallbacks": self._fallbacks}

    @property
    def negatives(self) -> int:
        """Pairs that in-batch negatives tell one from."""
        return self.plan.batch_size - 1

    def facts(self) -> list[str]:
        """For a run's overview: pairs of an update, the padding plan, and the length of an epoch where it is known."""
        plan = self.plan
        pairs = plan.batch_size * plan.accumulate
        facts = [f"{pairs} pairs an update" + (f" ({plan.accumulate} micro-batches)" if plan.accumulate > 1 else "")]
        facts.append(f"sentences padded to {', '.join(map(str, plan.widths))} tokens in equal groups")
        if self.pairs is not None:
            facts.append(f"{self.pairs:,} pairs, {self.pairs / pairs:,.1f} steps an epoch")
        return facts

    def _sides(self, source: np.ndarray, target: np.ndarray) -> np.ndarray:
        """Joins per-pair arrays [n * B] into sentence order [n * 2B]: sources, then targets, of each micro-batch."""
        shape = (self.plan.accumulate, 1, self.plan.batch_size)
        return np.concatenate([source.reshape(shape), target.reshape(shape)], axis=1).ravel()

    def _counters(self) -> dict:
        return {"batch": self._batch, "truncated": self._truncated, "fallbacks": self._fallbacks}

    def _restore_counters(self, state: dict) -> None:
        self._batch, self._truncated, self._fallbacks = (state[k] for k in ("batch", "truncated", "fallbacks"))


class CachedStream(_ParallelStream):
    """Draws pairs from token caches at given rates, each cache in a new random order at every epoch of its own.

    Which cache a pair comes from, and which of its sides is the source, depends on (seed, batch number) only; a cache's
    order on (seed, its place in the list, epoch). The position is therefore a handful of integers: :meth:`restore` is
    instant and exact.
    """

    def __init__(
        self,
        caches: Sequence[TokenCache],
        rates: Sequence[float],
        batch_size: int,
        widths: Sequence[int],
        max_length: int,
        seed: int,
        accumulate: int = 1,
        shards: int = 1,
        shuffle: bool = True,
    ):
        """Stands before the first batch.

        Args:
          caches: one or more, all built with ``max_length``.
          rates: positive weights, one per cache, of any sum.
          batch_size, widths, max_length, accumulate, shards: see :class:`BatchPlan`.
          seed: non-negative.
          shuffle: False keeps each cache's own order (which cache and which direction are still drawn).

        Raises:
          ValueError: batch sizes or widths that do not work, rates that do not match, a cache of another max_length.
        """
        super().__init__(BatchPlan(batch_size, tuple(widths), max_length, shards, accumulate), seed)
        if not caches or len(caches) != len(rates) or min(rates) <= 0:
            raise ValueError(f"found {len(caches)} caches and rates {list(rates)}; wanted a positive rate per cache.")
        for cache in caches:
            if cache.max_length != max_length:
                raise ValueError(
                    f"the cache of {cache.meta['source']} holds sentences of up to {cache.max_length} tokens, this run "
                    f"wants max_length {max_length}: build the cache anew, or set max_length to {cache.max_length}."
                )
        self._caches, self._shuffle = list(caches), shuffle
        self.pairs = sum(map(len, caches))
        self._bounds = np.cumsum(rates)[:-1] / np.sum(rates)
        self._positions = [[0, 0] for _ in caches]  # [epoch, index within it]
        self._orders: dict[int, tuple[int, Permutation]] = {}  # cache -> (epoch, its order)

    def next(self) -> tuple[dict, dict]:
        """The next (batch, info), as the module's text describes them."""
        count = self.plan.accumulate * self.plan.batch_size
        uniform, swap = draws(self.seed, self._batch, count)
        which = np.searchsorted(self._bounds, uniform, side="right")
        pairs, pair_id = np.empty(count, np.int64), np.empty(count, np.int64)
        for c in np.unique(which).tolist():
            chosen = np.flatnonzero(which == c)
            pairs[chosen] = self._advance(c, len(chosen))
            pair_id[chosen] = self._caches[c].pair_ids(pairs[chosen])
        sentences = self._sides(2 * pairs + swap, 2 * pairs + 1 - swap)
        which = self._sides(which, which)

        def read(rows):
            return self._tokens(which[rows], sentences[rows])

        return self._emit(read, *self._facts(which, sentences), pair_id)

    def _advance(self, c: int, count: int) -> np.ndarray:
        """The next ``count`` pairs of cache c, over as many epochs as that takes: int64 [count]."""
        size, parts = len(self._caches[c]), []
        while count:
            epoch, index = self._positions[c]
            step = min(count, size - index)
            places = np.arange(index, index + step)
            if self._shuffle:
                if self._orders.get(c, (None,))[0] != epoch:
                    self._orders[c] = epoch, Permutation(size, self.seed, c, epoch)
                places = self._orders[c][1](places)
            parts.append(places)
            self._positions[c] = [epoch, index + step] if index + step < size else [epoch + 1, 0]
            count -= step
        return np.concatenate(parts)

    def _facts(self, which: np.ndarray, sentences: np.ndarray) -> list[np.ndarray]:
        """TokenCache.facts of sentence ``sentences[i]`` of cache ``which[i]`` for all i."""
        if len(self._caches) == 1:
            return list(self._caches[0].facts(sentences))
        chosen, back = _by_cache(which)
        read = [self._caches[c].facts(sentences[rows]) for c, rows in chosen]
        return [np.concatenate(parts)[back] for parts in zip(*read, strict=True)]

    def _tokens(self, which: np.ndarray, sentences: np.ndarray) -> np.ndarray:
        """The tokens of these sentences, one after another."""
        if len(self._caches) == 1:
            return self._caches[0].tokens(sentences)
        chosen, back = _by_cache(which)
        tokens = np.concatenate([self._caches[c].tokens(sentences[rows]) for c, rows in chosen])
        lengths = np.concatenate([self._caches[c].facts(sentences[rows])[0] for c, rows in chosen])
        starts = np.cumsum(lengths) - lengths
        return tokens[ragged_index(starts[back], lengths[back])]

    def checksums(self) -> dict[str, str]:
        """{where the text comes from: its SHA-256}."""
        return {cache.meta["source"]: cache.meta["sha256"] for cache in self._caches}

    def state(self) -> dict:
        """The position: counters, [epoch, index] per cache, and the caches' sizes as a check."""
        sizes = [len(cache) for cache in self._caches]
        return self._counters() | {"positions": [list(p) for p in self._positions], "sizes": sizes}

    def restore(self, state: dict) -> None:
        """Continues where ``state`` was taken; ValueError when the caches are not the ones it was taken on."""
        sizes = [len(cache) for cache in self._caches]
        if state.get("sizes") != sizes:
            raise ValueError(
                f"the saved position belongs to caches of {state.get('sizes')} pairs, this run has {sizes}: "
                "give the same corpora in the same order, or start in a new model directory."
            )
        self._restore_counters(state)
        self._positions = [list(p) for p in state["positions"]]


class SeqioStream(_ParallelStream):
    """Streams the text of a seqio task or mixture, endlessly, and tokenises it block by block.

    Which side of a pair is the source depends on (seed, batch number) only. The position is a snapshot of the tf.data
    iterator, taken every ``snapshot_every`` batches, and the number of batches since: :meth:`state` costs nothing,
    :meth:`restore` reads these batches again and is exact, in a new process too.
    """

    def __init__(
        self,
        name: str,
        split: str,
        tokenizer: Tokenizer,
        languages: Languages,
        batch_size: int,
        widths: Sequence[int],
        max_length: int,
        seed: int,
        accumulate: int = 1,
        shards: int = 1,
        shuffle: bool = True,
        modules: Sequence[str] = (),
        snapshot_every: int = 1000,
    ):
        """Stands before the first batch.

        Args:
          name, split: a registered task or mixture, and its split.
          batch_size, widths, max_length, accumulate, shards: see :class:`BatchPlan`.
          seed: of the shuffling, the mixing and the directions.
          shuffle: False keeps the tasks' own order (directions are still drawn).
          modules: Python modules to import first, which register the task.
          snapshot_every: batches between snapshots; one takes about 0.5 kB per shuffled example, before compression.

        Raises:
          ValueError: batch sizes or widths that do not work, an unknown task or split, or features other than text.
        """
        super().__init__(BatchPlan(batch_size, tuple(widths), max_length, shards, accumulate), seed)
        if snapshot_every < 1:
            raise ValueError(f"snapshot_every is {snapshot_every}; wanted 1 or more.")
        self._tf, self._provider = registered.provider(name, split, modules)
        self.name, self.split = name, split
        self.pairs = None
        self._tokenizer, self._languages = tokenizer, languages
        self._shuffle, self._snapshot_every = shuffle, snapshot_every
        self._checksums: dict[str, str] | None = None
        self._start()

    def _start(self) -> None:
        # A new dataset object each time: one object reshuffles differently on a second pass.
        dataset = registered.dataset(
            self._provider, self.split, registered.PAIR, num_epochs=None, seed=self.seed if self._shuffle else None
        )
        self._block = self.plan.accumulate * self.plan.batch_size
        self._iterator = iter(dataset.batch(self._block, drop_remainder=True))
        self._snapshot, self._snapshot_batch = None, 0

    def next(self) -> tuple[dict, dict]:
        """The next (batch, info), as the module's text describes them.

        Raises:
          ValueError: the split is empty, a text is not UTF-8 or a language is unknown.
        """
        if self._batch and self._batch % self._snapshot_every == 0:
            self._snapshot, self._snapshot_batch = self._take_snapshot(), self._batch
        block = {key: value.numpy() for key, value in self._read().items()}
        _, swap = draws(self.seed, self._batch, self._block)
        texts = {key: np.array(self._decoded(block, key), object) for key in ("source", "target")}
        langs = {key: self._language_ids(self._decoded(block, key)) for key in ("source_lang", "target_lang")}
        sentences = self._sides(*_exchange(swap, texts["source"], texts["target"])).tolist()
        tokens, lengths, cut = self._tokenizer.encode_flat(sentences, self.plan.max_length)
        lang = self._sides(*_exchange(swap, langs["source_lang"], langs["target_lang"]))
        starts = np.cumsum(lengths) - lengths

        def read(rows):
            return tokens[ragged_index(starts[rows], lengths[rows])]

        return self._emit(read, lengths, lang, text_ids(tokens, lengths), cut, block["pair_id"].astype(np.int64))

    def _read(self) -> dict:
        try:
            return next(self._iterator)
        except self._tf.errors.OpError as error:  # a file that has gone, or can't be read
            raise OSError(f"{self.name}, split {self.split!r}, can't be read: {error.message}") from error
        except StopIteration:
            raise ValueError(
                f"{self.name}, split {self.split!r}, has no examples (of a mixture: one of the tasks has none): "
                "check its files."
            ) from None

    def _decoded(self, block: dict, key: str) -> list[str]:
        return registered.decoded(block, key, registered.PAIR, self.name)

    def _language_ids(self, codes: list[str]) -> np.ndarray:
        ids = {code: self._languages.id(code) for code in set(codes)}
        return np.array([ids[code] for code in codes], np.int32)

    def checksums(self) -> dict[str, str]:
        """{which text was looked at: its SHA-256}: the first pairs of every task, as reading all may take hours."""
        if self._checksums is None:
            tasks = registered.task_names(self.name, self.split)
            limit, digest = max(SAMPLE // len(tasks), 10), hashlib.sha256()
            for task in tasks:
                for example in itertools.islice(registered.examples_of(task, self.split), limit):
                    digest.update("".join(f"{example[key]}\n" for key in registered.PAIR.strings).encode())
            source = f"{self.name}, split {self.split!r}, first {limit:,} pairs"
            self._checksums = {source: digest.hexdigest()}
        return self._checksums

    def _take_snapshot(self) -> dict[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            self._tf.train.Checkpoint(iterator=self._iterator).write(f"{folder}/position")
            return {f.name: base64.b64encode(zlib.compress(f.read_bytes(), 1)).decode() for f in Path(folder).iterdir()}

    def state(self) -> dict:
        """The position: counters, the last snapshot (file name -> zlib in base64), the batch it precedes."""
        return self._counters() | {
            "snapshot": self._snapshot,
            "snapshot_batch": self._snapshot_batch,
            "pairs_per_batch": self._block,
        }

    def restore(self, state: dict) -> None:
        """Continues where ``state`` was taken; ValueError when the task or the batch size is another one."""
        if state.get("pairs_per_batch") != self._block:
            raise ValueError(
                f"the saved position of {self.name} counts batches of {state.get('pairs_per_batch')} pairs, this run "
                f"has {self._block}: keep batch_size x accumulate, or start in a new model directory."
            )
        self._start()
        if state["snapshot"] is not None:
            with tempfile.TemporaryDirectory() as folder:
                for file, text in state["snapshot"].items():
                    (Path(folder) / file).write_bytes(zlib.decompress(base64.b64decode(text)))
                try:
                    saved = self._tf.train.Checkpoint(iterator=self._iterator).read(f"{folder}/position")
                    saved.assert_existing_objects_matched()
                except (self._tf.errors.OpError, AssertionError) as error:
                    raise ValueError(
                        f"the saved position does not fit {self.name}: the task, its mixture or its data changed since "
                        f"the checkpoint ({error}). Restore them, or start in a new model directory."
                    ) from error
            self._snapshot, self._snapshot_batch = state["snapshot"], state["snapshot_batch"]
        for _ in range(state["batch"] - self._snapshot_batch):
            self._read()
        self._restore_counters(state)


def _by_cache(which: np.ndarray) -> tuple[list[tuple[int, np.ndarray]], np.ndarray]:
    """([(cache, places in ``which``)], where each place lies in the concatenation of these)."""
    chosen = [(c, np.flatnonzero(which == c)) for c in np.unique(which).tolist()]
    return chosen, np.argsort(np.concatenate([rows for _, rows in chosen]))


def _exchange(swap: np.ndarray, source: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.where(swap, target, source), np.where(swap, source, target)
