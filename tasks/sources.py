"""seqio data sources and task features for text: what is read by `vmsst_jax.data` becomes tf.data pipelines.

Every pipeline here can be saved by `tf.train.Checkpoint` and resumes exactly: no Python function runs inside it.
"""

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import seqio
import tensorflow as tf

from vmsst_jax.data import registered
from vmsst_jax.data.text_pairs import TRAIN, CorpusError, LineFile, PairFile, hash62, is_held_out

_LOG = logging.getLogger(__name__)
# Rows are gathered and permuted in blocks: one by one costs 10 times as much.
_BLOCK = 256
# Streamed corpora are shuffled within a window of this many pairs, about 0.5 kB of checkpoint for each.
SHUFFLE_WINDOW = 10_000
# Corpora above this many bytes of text are streamed unless their task says otherwise.
IN_MEMORY_BYTES = 2**27


def text_features(strings: Sequence[str], ids: Sequence[str]) -> dict[str, seqio.Feature]:
    """Features that pass through as they are: rank 0, tf.string for `strings`, tf.int64 for `ids`."""
    plain = functools.partial(seqio.Feature, vocabulary=seqio.PassThroughVocabulary(size=0), add_eos=False, rank=0)
    return {name: plain(dtype=tf.string) for name in strings} | {name: plain(dtype=tf.int64) for name in ids}


PAIR_FEATURES = text_features(["source", "target", "source_lang", "target_lang"], ["pair_id"])


class TextTask(seqio.Task):
    """A task that counts its examples by its source's `size`, which reads the corpus once.

    seqio's own route, `source.num_input_examples`, would make it keep small sets in a `cache()`: one fixed order for
    all epochs, and the whole corpus in every checkpoint. So the sources answer None there.
    """

    def num_input_examples(self, split: str) -> int:
        """Number of examples of `split`; `seqio.mixing_rate_num_examples` works on it."""
        return self.source.size(split)


class _TextSource(seqio.DataSource):
    """What the text sources share: they shard and shuffle by themselves."""

    def __init__(self, splits: Sequence[str]):
        super().__init__(splits=splits, performs_internal_shuffling=True)

    @property
    def supports_arbitrary_sharding(self) -> bool:
        return True

    def list_shards(self, split: str) -> Sequence[str]:
        return [split]


class MemorySource(_TextSource):
    """Examples held in memory, shuffled over the whole split, with a checkpoint of some kilobytes."""

    def __init__(self, read: Callable[[], Mapping[str, Sequence[Mapping]]], splits: Sequence[str]):
        """`read()` returns the examples per split; it is called once, when the first dataset is asked for."""
        super().__init__(splits)
        self._tensors = functools.cache(lambda: {split: _tensors(rows) for split, rows in read().items()})

    def size(self, split: str) -> int:
        return len(self._tensors()[split]["pair_id"])

    def get_dataset(self, split=TRAIN, shuffle=True, seed=None, shard_info=None, **_):
        """Returns the split's examples; see `seqio.DataSource.get_dataset`."""
        return _memory_dataset(self._tensors()[split], shuffle, seed, shard_info)


def _tensors(rows: Sequence[Mapping]) -> dict[str, tf.Tensor]:
    strings = ("source", "target", "source_lang", "target_lang")
    return {name: tf.constant([row[name] for row in rows], tf.string) for name in strings} | {
        "pair_id": tf.constant([row["pair_id"] for row in rows], tf.int64)
    }


class PairFileSource(_TextSource):
    """Parallel files, in memory or streamed; all lines are read and checked before the first example comes out."""

    def __init__(
        self,
        name: str,
        find_files: Callable[[], Mapping[str, Sequence[PairFile]]],
        languages: tuple[str, str],
        *,
        splits: Sequence[str],
        held_out: float,
        held_out_side: int,
        on_bad_line: str,
        stream: bool | None,
        unpack: Callable[[LineFile], LineFile],
    ):
        """Makes a source that touches no file yet.

        Args:
          name: the task's name, in the pair ids and messages.
          find_files: returns the files per split; with `held_out` > 0 all are under "train".
          languages: codes of the source and the target texts.
          splits: the splits on offer.
          held_out: share of the texts on side `held_out_side` (0 source, 1 target) that is "validation".
          on_bad_line: "error" or "skip".
          stream: True streams, False keeps all pairs in memory, None decides by `IN_MEMORY_BYTES`.
          unpack: turns a zip member into a file that TensorFlow can read; called for streamed corpora.
        """
        super().__init__(splits)
        self._name = name
        self._find_files = find_files
        self._languages = languages
        self._held_out = held_out
        self._held_out_side = held_out_side
        self._on_bad_line = on_bad_line
        self._stream = stream
        self._unpack = unpack
        self._base = hash62(name.encode())

    def size(self, split: str) -> int:
        if self._streams:
            return sum(int((codes == self.splits.index(split)).sum()) for _, codes in self._scanned)
        return len(self._loaded[split]["pair_id"])

    def get_dataset(self, split=TRAIN, shuffle=True, seed=None, shard_info=None, **_):
        """Returns the split's examples; see `seqio.DataSource.get_dataset`.

        Raises:
          CorpusError: a missing, empty or damaged file, a bad line, unequal line counts; with file and line number.
        """
        if self._streams:
            return self._streamed(split, shuffle, seed, shard_info)
        return _memory_dataset(self._loaded[split], shuffle, seed, shard_info)

    @functools.cached_property
    def _files(self) -> list[tuple[str, PairFile]]:
        return [(split, file) for split, files in self._find_files().items() for file in files]

    @functools.cached_property
    def _streams(self) -> bool:
        if self._stream is not None:
            return self._stream
        return sum(file.size() for _, file in self._files) > IN_MEMORY_BYTES

    @functools.cached_property
    def _loaded(self) -> dict[str, dict[str, tf.Tensor]]:
        """The columns of each split."""
        texts = [([], [], []) for _ in self.splits]
        pair_id = self._base
        for split, file in self._files:
            for index, source, target in self._checked(split, file):
                pair_id += 1
                if index >= 0:
                    for column, value in zip(texts[index], (source, target, pair_id), strict=True):
                        column.append(value)
        self._require([len(ids) for _, _, ids in texts])
        languages = {"source_lang": tf.constant(self._languages[0]), "target_lang": tf.constant(self._languages[1])}
        return {
            split: {
                "source": tf.constant(sources),
                "target": tf.constant(targets),
                "pair_id": tf.constant(ids, tf.int64),
                **languages,
            }
            for split, (sources, targets, ids) in zip(self.splits, texts, strict=True)
        }

    @functools.cached_property
    def _scanned(self) -> list[tuple[PairFile, np.ndarray]]:
        """Each file with the index of every line's split, int8, -1 for a line to skip."""
        scanned = [
            (file, np.fromiter((index for index, _, _ in self._checked(split, file)), np.int8))
            for split, file in self._files
        ]
        self._require([sum(int((codes == i).sum()) for _, codes in scanned) for i in range(len(self.splits))])
        return scanned

    def _checked(self, split: str, file: PairFile) -> Iterator[tuple[int, bytes, bytes]]:
        """Yields (index of its split, source, target) per line of `file`; the index is -1 for a line to skip."""
        given, validation = self.splits.index(split), len(self.splits) - 1
        number, skipped, first = 0, 0, ""
        for source, target, problem in file.pairs():
            number += 1
            if problem:
                first = first or f"line {number}: {problem}"
                if self._on_bad_line == "error":
                    raise CorpusError(
                        f"{file}, {first}. Correct the line, or leave such lines out by on_bad_line='skip' where the "
                        "task is registered"
                    )
                skipped += 1
                yield -1, source, target
            elif self._held_out and is_held_out((source, target)[self._held_out_side].decode(), self._held_out):
                yield validation, source, target
            else:
                yield given, source, target
        if skipped:
            _LOG.warning("%s: skipped %d of %d lines (first: %s)", file, skipped, number, first)

    def _require(self, counts: Sequence[int]) -> None:
        if empty := [split for split, count in zip(self.splits, counts, strict=True) if count == 0]:
            files = ", ".join(str(file) for _, file in self._files)
            raise CorpusError(f"task {self._name}: no usable pair for split {', '.join(empty)} in {files}")

    def _streamed(self, split, shuffle, seed, shard_info) -> tf.data.Dataset:
        shards, shard = _shards(shard_info)
        wanted = self.splits.index(split)
        datasets, weights, first_id = [], [], self._base + 1
        for file, codes in self._scanned:
            rows = np.flatnonzero(codes == wanted)[shard::shards]
            if len(rows):
                keep = np.zeros(len(codes), bool)
                keep[rows] = True
                datasets.append(self._stream_file(file, keep, first_id))
                weights.append(float(len(rows)))
            first_id += len(codes)
        if not datasets:
            raise CorpusError(
                f"task {self._name}: split {split} has {self.size(split)} pairs, too few for {shards} shards"
            )
        if not shuffle:
            return functools.reduce(lambda done, more: done.concatenate(more), datasets)
        # Drawing files in proportion to their lines spreads each of them over the whole epoch.
        mixed = tf.data.Dataset.sample_from_datasets(
            datasets, weights, seed=seed, stop_on_empty_dataset=False, rerandomize_each_iteration=True
        )
        return mixed.shuffle(SHUFFLE_WINDOW, seed=seed)

    def _stream_file(self, file: PairFile, keep: np.ndarray, first_id: int) -> tf.data.Dataset:
        """The pairs of the lines that `keep` (bool, [lines]) marks."""
        texts = [_line_blocks(self._unpack(part)) for part in (file.source, file.target) if part is not None]
        keep_lines = tf.constant(keep)

        def parse(start, *texts):  # texts: one or two blocks of lines, tf.string [<= _BLOCK]
            kept = keep_lines[start : start + _BLOCK]
            texts = [tf.boolean_mask(text, kept) for text in texts]
            if file.target is None:
                fields = tf.strings.split(texts[0], "\t")
                texts = [tf.gather(fields.values, fields.row_starts() + column) for column in file.columns]
            return {
                "source": tf.strings.strip(texts[0]),
                "target": tf.strings.strip(texts[1]),
                "source_lang": tf.fill(tf.shape(texts[0]), self._languages[0]),
                "target_lang": tf.fill(tf.shape(texts[0]), self._languages[1]),
                "pair_id": first_id + start + tf.where(kept)[:, 0],
            }

        starts = tf.data.Dataset.range(0, len(keep), _BLOCK)
        return tf.data.Dataset.zip((starts, *texts)).map(parse).unbatch()


def _shards(shard_info: seqio.ShardInfo | None) -> tuple[int, int]:
    return (1, 0) if shard_info is None else (shard_info.num_shards, shard_info.index)


def _line_blocks(file: LineFile) -> tf.data.Dataset:
    """Blocks of lines as `LineFile.lines` gives them (TextLineDataset drops carriage returns, too)."""
    lines = tf.data.TextLineDataset(file.path, compression_type="GZIP" if file.path.endswith(".gz") else "")
    return lines.batch(_BLOCK).map(lambda block: tf.strings.regex_replace(block, "^\ufeff", ""))


def _memory_dataset(columns: Mapping[str, tf.Tensor], shuffle: bool, seed, shard_info) -> tf.data.Dataset:
    """A dataset over columns of equal length (scalars are repeated), each epoch in another random order if asked.

    The order is a pseudo-random permutation computed from the row number and one seed per epoch, so the position
    that a checkpoint holds is a few numbers, and the shuffle is over all rows.
    """
    shards, shard = _shards(shard_info)
    rows = len(range(shard, len(columns["pair_id"]), shards))

    def gather(positions):
        index = positions * shards + shard
        return {
            name: tf.gather(column, index) if column.shape.rank else tf.fill(tf.shape(index), column)
            for name, column in columns.items()
        }

    def one_pass(epoch_seed=None):
        positions = tf.data.Dataset.range(rows).batch(_BLOCK)
        if epoch_seed is not None:
            key, last = tf.stack([epoch_seed, epoch_seed]), tf.constant(rows - 1, tf.int64)
            positions = positions.map(lambda block: tf.random.experimental.index_shuffle(block, key, last))
        return positions.map(gather).unbatch()

    if not shuffle:
        return one_pass()
    return tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True).take(1).flat_map(one_pass)


class TfdsSource(seqio.TfdsDataSource):
    """seqio's TFDS source, without its cache of small sets (see `TextTask`)."""

    def __init__(self, tfds_name: str, data_dir: str | None, splits: Mapping[str, str]):
        super().__init__(tfds_name=tfds_name, tfds_data_dir=data_dir, splits=dict(splits))

    def num_input_examples(self, split: str) -> None:
        return None

    def size(self, split: str) -> int:
        return super().num_input_examples(split)


def check_name(name: str) -> None:
    """ValueError for a name that is no text or that some task or mixture has already."""
    if not isinstance(name, str) or not name:
        raise ValueError(f"a task is called {name!r}; wanted a name in quotes")
    if name in seqio.TaskRegistry.names() or name in seqio.MixtureRegistry.names():
        raise ValueError(f"task {name}: a task or mixture of this name is registered already; give it another name")


def add_task(name: str, source: seqio.DataSource, settings: Callable[[], dict] = dict) -> seqio.Task:
    """Registers a task that yields `source`'s pairs as they come.

    `settings()` says, ready for JSON, what decides its text: kept tokens are not read where that has changed.
    """
    check_name(name)
    registered.SETTINGS[name] = settings
    return seqio.TaskRegistry.add(
        name,
        source=source,
        preprocessors=[],
        output_features=PAIR_FEATURES,
        task_cls=TextTask,
        # The sources shuffle by themselves, better than a buffer behind them could.
        shuffle_buffer_size=None,
    )
