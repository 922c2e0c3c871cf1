"""Batches for translation models: noisy sentences beside the clean ones, sentences to translate and back, translations.

Every row is ``</s> w1 .. wn </s>``, whatever frame the tokenizer puts around a sentence otherwise. A batch holds
``target`` and ``source`` int32 [B, L] and their languages ``target_lang`` and ``source_lang`` int32 [B]; for back
translation there is no ``source``: the step writes it, of the pieces that ``writable`` bool [B, V] allows where there
is one.
"""

from __future__ import annotations

import dataclasses
import zlib

import numpy as np

from vmsst_jax import checks
from vmsst_jax.data.batching import ragged_index
from vmsst_jax.data.document_cache import Cleaning
from vmsst_jax.data.document_pool import Corpus
from vmsst_jax.data.documents import DocumentSet
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.length_batches import RowStream, Sizes, check_settings, padded, plan_widths
from vmsst_jax.data.noise import Noise, disturb
from vmsst_jax.data.shuffle import draws
from vmsst_jax.data.tlm import CachedPairs, PairRows

DRAWS = 5  # of ``shuffle.draws``
ENDS = 2  # special tokens of a row
BLOCK = 65_536  # sentences looked through at a time
ORDERS = ("both", "given", "reversed")


@dataclasses.dataclass(frozen=True)
class Monolingual:
    """What ``NoisyText`` and ``RoundTripText`` share: the sentences of one language, in batches of like length.

    Attributes:
      task: name of a registered task or mixture of documents (see docs/adding_a_corpus.md); each sentence counts alone.
      language: code of the language.
      batch_size, batch_tokens, groups, widths, max_length, split: as in ``data.tlm.PairRows``.
      cache: "memory", or a folder that keeps the tokens of each task between runs and for several streams.
    """

    task: str
    language: str
    batch_size: int | None = None
    batch_tokens: int | None = None
    max_length: int = 100
    groups: int = 4
    widths: tuple[int, ...] | None = None
    cache: str = "memory"
    split: str = "train"

    def __post_init__(self):
        owner = type(self).__name__
        check_settings(self, 1 + ENDS)
        for name in ("task", "language", "cache", "split"):
            if not isinstance(value := getattr(self, name), str) or not value:
                raise ValueError(f"{owner}.{name} is {value!r}; wanted text in quotes, see its description")

    @property
    def sizes(self) -> Sizes:
        return Sizes(self.batch_size, self.batch_tokens)

    @property
    def documents(self) -> DocumentSet:
        """The documents, nothing left out but repetitions within one."""
        return DocumentSet(self.task, self.split, self.cache, Cleaning(1, None, 1))

    def check(self, languages: Languages, shards: int = 1, accumulate: int = 1) -> None:
        """ValueError for a batch that does not divide, an unknown task or split, or unknown languages; cheap."""
        checks.whole("Stream.accumulate", accumulate)
        self.sizes.padded(1, shards)
        languages.id(self.language)
        self.documents.check(languages)

    def _widest(self) -> int:
        return self.widths[-1] if self.widths else self.max_length + ENDS

    def _stream(self, rows, tokenizer, seed: int, shards: int, accumulate: int) -> RowStream:
        widths = self.widths or (plan_widths(rows.lengths, self.groups) if len(rows.lengths) else (1,))
        label = zlib.crc32(f"{type(self).__name__} {self.language}".encode())
        options = {"seed": seed, "label": label, "shards": shards, "accumulate": accumulate}
        return RowStream(rows, widths, self.sizes, tokenizer.pad_id, **options)


@dataclasses.dataclass(frozen=True)
class NoisyText(Monolingual):
    """Sentences to be made whole again; beside what ``Monolingual`` has, ``noise``."""

    noise: Noise = Noise()

    def shapes(self, shards: int = 1, accumulate: int = 1) -> dict:
        """Shapes of the longest batch's arrays, without opening the corpus."""
        return _shapes(self.sizes, self._widest(), shards, accumulate, ("source", "target"))

    def open(self, tokenizer, languages: Languages, seed: int, shards: int = 1, accumulate: int = 1) -> RowStream:
        """An endless stream of batches, of the same rows for any number of ``shards``."""
        lang = languages.id(self.language)
        sentences = Sentences(self.documents.open(tokenizer, languages), lang, self.max_length, self.language)
        rows = SentenceRows(sentences, tokenizer, lang, lang, seed, self.noise)
        return self._stream(rows, tokenizer, seed, shards, accumulate)


@dataclasses.dataclass(frozen=True)
class RoundTripText(Monolingual):
    """Sentences that are translated into another language and back; beside what ``Monolingual`` has:

    Attributes:
      through: code of the other language.
      own_pieces: whether translations are written of pieces alone that the sentences of ``through`` have. It keeps a
        model from copying words of the other language, which both directions would teach each other.
    """

    through: str = ""
    own_pieces: bool = False

    def check(self, languages: Languages, shards: int = 1, accumulate: int = 1) -> None:
        """As ``Monolingual.check``; also ValueError where both languages are one."""
        super().check(languages, shards, accumulate)
        if languages.id(self.through) == languages.id(self.language):
            raise ValueError(
                f"RoundTripText goes from {self.language!r} through {self.through!r}; wanted two languages"
            )

    def shapes(self, shards: int = 1, accumulate: int = 1) -> dict:
        """Shapes of the longest batch's arrays, without opening the corpus."""
        return _shapes(self.sizes, self._widest(), shards, accumulate, ("target",))

    def open(self, tokenizer, languages: Languages, seed: int, shards: int = 1, accumulate: int = 1) -> RowStream:
        """An endless stream of batches, of the same rows for any number of ``shards``."""
        lang, through = languages.id(self.language), languages.id(self.through)
        corpus = self.documents.open(tokenizer, languages)
        sentences = Sentences(corpus, lang, self.max_length, self.language)
        rows = SentenceRows(sentences, tokenizer, lang, through, seed, None)
        if self.own_pieces:
            rows.writable = Sentences(corpus, through, self.max_length, self.through).vocabulary(tokenizer)
        return self._stream(rows, tokenizer, seed, shards, accumulate)


@dataclasses.dataclass(frozen=True)
class TranslationText(PairRows):
    """Pairs for supervised translation; beside what ``PairRows`` has, the direction:

    Attributes:
      source, target: codes.
      order: which pairs of these two languages are taken: "both", whichever way round the corpus has them; "given",
        those that it has from ``source`` to ``target``; "reversed", those that it has from ``target`` to ``source``:
        of what a machine translated, the originals are then the targets.
    """

    source: str = ""
    target: str = ""
    order: str = "both"

    def __post_init__(self):
        super().__post_init__()
        if self.order not in ORDERS:
            raise ValueError(f"TranslationText.order is {self.order!r}; use one of {', '.join(map(repr, ORDERS))}")

    def check(self, languages: Languages, shards: int = 1, accumulate: int = 1) -> None:
        """As ``PairRows.check``; also ValueError for a direction that is none."""
        super().check(languages, shards, accumulate)
        if languages.id(self.source) == languages.id(self.target):
            raise ValueError(f"TranslationText goes from {self.source!r} to {self.target!r}; wanted two languages")

    def shapes(self, shards: int = 1, accumulate: int = 1) -> dict:
        """Shapes of the longest batch's arrays, without opening the corpus."""
        width = self.widths[-1] if self.widths else self.max_length + ENDS
        return _shapes(self.sizes, width, shards, accumulate, ("source", "target"))

    def open(self, tokenizer, languages: Languages, seed: int, shards: int = 1, accumulate: int = 1) -> RowStream:
        """An endless stream of batches, of the same rows for any number of ``shards``."""
        lang = languages.id(self.source), languages.id(self.target)
        name = f"{self.source} to {self.target}"
        label = f"translation {name}"

        def rows(caches):
            return TranslationRows(caches, tokenizer, *lang, name, self.order)

        return self._open(tokenizer, languages, rows, seed, label, shards, accumulate)


def _shapes(sizes: Sizes, width: int, shards: int, accumulate: int, tokens: tuple[str, ...]) -> dict:
    leading = (*((accumulate,) if accumulate > 1 else ()), sizes.padded(width, shards))
    return dict.fromkeys(tokens, (*leading, width)) | dict.fromkeys(("source_lang", "target_lang"), leading)


class Sentences:
    """The sentences of one language in a corpus, under dense numbers.

    Attributes:
      code: of the language.
      lengths: pieces of each, int64 [N]; none has more than ``most``.
      dropped: how many had more.
      checksums: of the corpus.
    """

    def __init__(self, corpus: Corpus, lang: int, most: int, code: str):
        self._caches, self.code, self.checksums, lengths = corpus.caches, code, corpus.checksums, []
        which, index = [], []
        self.dropped = 0
        for number, cache in enumerate(corpus.caches):
            of_language = np.repeat(cache.lang == lang, np.diff(cache.starts))
            size = np.diff(cache.offsets)
            found = np.flatnonzero(of_language & (size <= most))
            self.dropped += int(of_language.sum()) - len(found)
            which.append(np.full(len(found), number))
            index.append(found)
            lengths.append(size[found])
        self._which, self._index, self.lengths = (np.concatenate(parts) for parts in (which, index, lengths))
        self._documents = [np.repeat(np.arange(len(c)), np.diff(c.starts)) for c in corpus.caches]

    def pieces(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(tokens int32 [sum of lengths], lengths int64 [K]) of sentences ``rows``, int64 [K]."""
        which, index, most = self._which[rows], self._index[rows], int(self.lengths.max())
        chosen = [np.flatnonzero(which == c) for c in range(len(self._caches))]
        parts = [cache.pieces(index[at], most)[:2] for cache, at in zip(self._caches, chosen, strict=True)]
        tokens, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
        back = np.argsort(np.concatenate(chosen))
        starts = np.cumsum(lengths) - lengths
        return tokens[ragged_index(starts[back], lengths[back])], lengths[back]

    def vocabulary(self, tokenizer) -> np.ndarray:
        """Which pieces they have, with the end of a sentence: bool [V]. ValueError where there are no sentences."""
        if not len(self.lengths):
            raise ValueError(f"there are no sentences in {self.code}, so translations into it have no pieces")
        found = np.zeros(tokenizer.vocab_size, bool)
        for first in range(0, len(self.lengths), BLOCK):
            found[self.pieces(np.arange(first, min(first + BLOCK, len(self.lengths))))[0]] = True
        found[tokenizer.suffix_ids[-1]] = True
        return found

    def ids(self, rows: np.ndarray) -> np.ndarray:
        """The corpus's own ids of the documents that they stand in: int64 [K]."""
        which, index = self._which[rows], self._index[rows]
        out = np.empty(len(rows), np.int64)
        for c, cache in enumerate(self._caches):
            at = which == c
            out[at] = cache.document_ids(self._documents[c][index[at]])
        return out


class SentenceRows:
    """The ``Rows`` of monolingual text: with ``noise`` a noisy source, without none.

    Attributes:
      writable: bool [V], pieces of which the source is to be written; None for any.
    """

    def __init__(self, sentences: Sentences, tokenizer, lang: int, other: int, seed: int, noise: Noise | None):
        self._sentences, self._lang, self._other, self._seed, self._noise = sentences, lang, other, seed, noise
        self._eos, self._pad = tokenizer.suffix_ids[-1], tokenizer.pad_id
        self.lengths, self.dropped = sentences.lengths + ENDS, sentences.dropped
        self.writable: np.ndarray | None = None
        if noise is not None:
            if not hasattr(tokenizer, "word_starts"):
                raise ValueError(
                    f"noise moves whole words, and a tokenizer of the class {type(tokenizer).__name__} does not say "
                    "where they begin or has no mask: take one in XLM's or XLM-R's form (train_xlmr_sentencepiece)"
                )
            self._starts, self._mask = tokenizer.word_starts, tokenizer.mask_id

    def batch(self, index: np.ndarray, width: int, number: int) -> dict[str, np.ndarray]:
        """``target``, with noise ``source``, int32 [K, width]; ``source_lang`` and ``target_lang`` int32 [K]."""
        tokens, lengths = self._sentences.pieces(index)
        batch = {"target": self._rows(tokens, lengths, width)}
        if self._noise is not None:
            uniform = draws(self._seed, number, 3 * len(tokens), kind=DRAWS)[0].reshape(3, -1)
            ends = np.cumsum(lengths)
            noisy = [self._disturbed(tokens[a:b], uniform[:, a:b]) for a, b in zip(ends - lengths, ends, strict=True)]
            batch["source"] = self._rows(np.concatenate(noisy), np.array([len(row) for row in noisy]), width)
        for name, lang in (("source_lang", self._other), ("target_lang", self._lang)):
            batch[name] = np.full(len(index), lang, np.int32)
        if self.writable is not None:
            batch["writable"] = np.repeat(self.writable[None], len(index), axis=0)
        return batch

    def _disturbed(self, pieces: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        return disturb(pieces, self._starts(pieces), self._mask, self._noise, uniform)

    def _rows(self, tokens: np.ndarray, lengths: np.ndarray, width: int) -> np.ndarray:
        out = np.full((len(lengths), width), self._pad, np.int32)
        out[:, 0] = self._eos
        out[:, 1:-1] = padded(tokens, lengths, width - ENDS, self._pad)
        out[np.arange(len(lengths)), lengths + 1] = self._eos
        return out

    def ids(self, index: np.ndarray) -> np.ndarray:
        """The corpus's own ids of the documents."""
        return self._sentences.ids(index)

    def facts(self) -> list[str]:
        """For a run's overview."""
        fact = f"sentences in {self._sentences.code}" + (" with noise" if self._noise is not None else "")
        return [fact + (f", written of {self.writable.sum():,} pieces" if self.writable is not None else "")]

    def checksums(self) -> dict[str, str]:
        """{where the text comes from: its SHA-256}."""
        return self._sentences.checksums


class TranslationRows:
    """The ``Rows`` of pairs in one direction; ``order`` as in ``TranslationText``."""

    def __init__(self, caches, tokenizer, source: int, target: int, name: str, order: str = "both"):
        if (len(tokenizer.prefix_ids), len(tokenizer.suffix_ids)) != (1, 1):
            raise ValueError(
                f"the tokenizer puts {len(tokenizer.prefix_ids)} tokens before a sentence and "
                f"{len(tokenizer.suffix_ids)} behind it; wanted one each, as XLM's and XLM-R's do"
            )
        self._eos, self._pad, self._name = tokenizer.suffix_ids[0], tokenizer.pad_id, name
        self._pairs = CachedPairs(caches)
        langs = self._pairs.langs()
        straight, turned = ((langs == pair).all(axis=1) for pair in ((source, target), (target, source)))
        self._first = turned.astype(np.int64)  # the side that is the source
        wanted = {"both": straight | turned, "given": straight, "reversed": turned}[order]
        if not wanted.any() and (straight | turned).any():
            raise ValueError(
                f"all {(straight | turned).sum():,} pairs from {name} stand the other way round in the corpus, and "
                f"TranslationText.order is {order!r}; did you want another order or direction?"
            )
        self._index = np.flatnonzero(wanted)
        self._lang = {"source_lang": source, "target_lang": target}
        self.lengths, self.dropped = self._pairs.lengths[self._index].max(axis=1), self._pairs.dropped

    def batch(self, index: np.ndarray, width: int, number: int) -> dict[str, np.ndarray]:
        """``source`` and ``target`` int32 [K, width]; ``source_lang`` and ``target_lang`` int32 [K]."""
        pairs = self._index[index]
        first, batch = self._first[pairs], {}
        for name, side in (("source", first), ("target", 1 - first)):
            tokens, lengths, _ = self._pairs.side(pairs, side)
            batch[name] = padded(tokens, lengths, width, self._pad)
            batch[name][:, 0] = self._eos
        return batch | {name: np.full(len(index), lang, np.int32) for name, lang in self._lang.items()}

    def ids(self, index: np.ndarray) -> np.ndarray:
        """The corpus's own ids of pairs: int64 [K]."""
        return self._pairs.ids(self._index[index])

    def facts(self) -> list[str]:
        """For a run's overview."""
        return [f"pairs from {self._name}"]

    def checksums(self) -> dict[str, str]:
        """{where the text comes from: its SHA-256}."""
        return self._pairs.checksums()
