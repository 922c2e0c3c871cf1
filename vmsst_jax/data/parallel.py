"""Parallel text as a recipe names it: a seqio task or mixture, its batches, its held-out pairs, its vocabulary."""

from __future__ import annotations

import dataclasses
import itertools
import json
import pathlib
import zlib
from collections.abc import Iterator

import numpy as np

from vmsst_jax.data import batching, streams
from vmsst_jax.data.cache import TokenCache
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer import Tokenizer


@dataclasses.dataclass(frozen=True)
class ParallelText:
    """Pairs of a seqio task or mixture as bucketed batches.

    Attributes:
      task: name of a registered task or mixture that yields text (see docs/adding_a_corpus.md).
      batch_size: B, pairs per micro-batch over all devices.
      max_length: longest sentence in tokens, eos included; longer ones are cut and counted.
      widths: static widths of equal groups of sentences sorted by length, as (8, 12, 20, 32): less padding, one
        compiled shape. None plans ``groups`` widths from the corpus' lengths (streamed: from its first 20,000 pairs).
      cache: "memory" tokenises the corpus once at the start, and shuffles it as a whole; a folder keeps that
        tokenisation there between runs, which then need no TensorFlow; "none" streams through seqio, for corpora that
        don't fit.
      split: of the task.
    """

    task: str
    batch_size: int
    max_length: int = 32
    widths: tuple[int, ...] | None = None
    groups: int = 1
    cache: str = "memory"
    split: str = "train"

    def open(self, tokenizer: Tokenizer, languages: Languages, seed: int, shards: int = 1, accumulate: int = 1):
        """An endless stream of batches for ``shards`` batch shards; see :mod:`vmsst_jax.data.streams`."""
        streamed = self.cache == "none"
        if streamed:
            caches, rates = [], []
            lengths = self._sampled_lengths(tokenizer) if self.widths is None else None
        else:
            caches, rates = self._caches(tokenizer, languages)
            lengths = np.concatenate([c.lengths for c in caches])
        widths = self.widths
        if widths is None:
            widths = batching.plan_widths(lengths, self.batch_size, self.groups, self.max_length)
        common = (self.batch_size, widths, self.max_length, seed, accumulate, shards)
        if streamed:
            return streams.SeqioStream(self.task, self.split, tokenizer, languages, *common)
        return streams.CachedStream(caches, rates, *common)

    def _caches(self, tokenizer: Tokenizer, languages: Languages) -> tuple[list[TokenCache], list[float]]:
        if self.cache == "memory":
            rates = dict(streams.task_rates(self.task, self.split))
            return [self._build(name, tokenizer, languages, None) for name in rates], list(rates.values())
        folder = pathlib.Path(self.cache)
        listing = folder / f"{self.task}-{self.split}.json"
        if listing.is_file():  # everything is here: neither seqio nor TensorFlow is needed
            rates = json.loads(listing.read_text("utf-8"))
        else:
            rates = dict(streams.task_rates(self.task, self.split))
            for name in rates:
                if not (folder / f"{name}-{self.split}" / "meta.json").is_file():
                    self._build(name, tokenizer, languages, folder / f"{name}-{self.split}")
            listing.write_text(json.dumps(rates), "utf-8")
        caches = [TokenCache.open(folder / f"{name}-{self.split}", tokenizer, languages) for name in rates]
        return caches, list(rates.values())

    def _build(self, name: str, tokenizer: Tokenizer, languages: Languages, folder: pathlib.Path | None) -> TokenCache:
        examples = streams.examples_of(name, self.split)
        source = f"{name}, split {self.split!r}"
        return TokenCache.build(examples, tokenizer, languages, self.max_length, folder, source=source)

    def _sampled_lengths(self, tokenizer: Tokenizer) -> np.ndarray:
        sample = list(itertools.islice(self.examples(), 20_000))
        texts = [text for example in sample for text in (example["source"], example["target"])]
        return tokenizer.encode_flat(texts, self.max_length)[1].reshape(-1, 2)

    def examples(self, split: str | None = None) -> Iterator[dict]:
        """Every pair of a split (default: this one's) once, as text."""
        return streams.examples_of(self.task, split or self.split)


def sentencepiece_file(path: str) -> Tokenizer:
    """The vocabulary in a SentencePiece ``.model`` file, mT5's for instance."""
    return Tokenizer.load(path)


def train_sentencepiece(
    task: str, vocab_size: int, split: str = "train", max_sentences: int = 5_000_000, **options
) -> Tokenizer:
    """A SentencePiece vocabulary of exactly ``vocab_size`` pieces, trained on both sides of a task's split.

    Of a corpus with more than ``max_sentences`` a subset drawn by a hash of the text is taken: about that many.
    ``options`` go to ``Tokenizer.train``.
    """

    def texts():
        for example in streams.examples_of(task, split):
            yield example["source"]
            yield example["target"]

    count = sum(1 for _ in texts())
    if count <= max_sentences:
        return Tokenizer.train(texts(), vocab_size, **options)
    limit = int(2**32 * max_sentences / count)
    return Tokenizer.train((t for t in texts() if zlib.crc32(t.encode()) < limit), vocab_size, **options)
