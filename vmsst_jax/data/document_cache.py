"""Token cache of documents: their sentences cleaned and tokenised once, as flat arrays that are read memory-mapped.

The arrays hold bare pieces, no special tokens and no cuts, so that streams of pairs of any length and streams of
running text read the same cache.
"""

import dataclasses
import hashlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from vmsst_jax import checks
from vmsst_jax.data import array_files
from vmsst_jax.data.batching import ragged_index
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.text_pairs import hash62
from vmsst_jax.data.tokenizer import Tokenizer

FORMAT = 3
BLOCK = 8192  # sentences tokenised at once while building, at least
# Array name -> type; D documents of S sentences. `tokens` is uint16 where the vocabulary allows, int32 otherwise.
ARRAYS = {
    "tokens": None,  # [all sentences one after another]
    "offsets": np.int64,  # [S + 1] sentence s is tokens[offsets[s]:offsets[s + 1]]
    "documents": np.int64,  # [D + 1] document d is the sentences documents[d], ..., documents[d + 1] - 1
    "lang": np.int32,  # [D] index into meta["languages"]
    "document_id": np.int64,  # [D] the corpus's own id
    "text_hash": np.int64,  # [D] hash62 of the text before cleaning: equal where documents are
}
META = {
    **dict.fromkeys(("format", "documents", "sentences", "tokens"), int),
    **{"source": str, "sha256": str, "tokenizer_sha256": str, "languages": list},
    **dict.fromkeys(("cleaning", "dropped", "per_language", "crc32"), dict),
}
DROPPED = ("duplicate", "short", "long", "documents")


@dataclasses.dataclass(frozen=True)
class Cleaning:
    """What is left out of documents (METHODS 3.1), in this order.

    A sentence that stands in its document already, word for word; a sentence with fewer than ``min_pieces`` or more
    than ``max_pieces`` (None: no limit) pieces, special tokens not counted; a document of which fewer than
    ``min_sentences`` sentences are left.
    """

    min_pieces: int = 5
    max_pieces: int | None = 128
    min_sentences: int = 2

    def __post_init__(self):
        checks.whole("min_pieces", self.min_pieces)
        checks.whole("min_sentences", self.min_sentences)
        if self.max_pieces is not None:
            checks.whole("max_pieces", self.max_pieces, self.min_pieces)

    def __str__(self) -> str:
        most = "any" if self.max_pieces is None else self.max_pieces
        return f"{self.min_pieces}-{most}-{self.min_sentences}"


class DocumentCache:
    """Tokenised documents in memory or in a folder; make them with :meth:`build`, read them with :meth:`open`.

    Attributes:
      meta: the contents of ``meta.json``: format, source, made_from, sha256 (of all documents before cleaning and their
        languages, in order), tokenizer_sha256, languages (codes in the order of the ids), cleaning (its fields),
        documents, sentences, tokens, dropped ({duplicate, short, long: sentences; documents}) and per_language
        ({code: [documents, sentences, tokens]}).
      lang: id of each document's language in the run's own table: int32 [D].
      text_hash: equal where documents have equal text: int64 [D].
      starts: documents as ranges of sentences: int64 [D + 1].
      offsets: sentences as ranges of tokens: int64 [S + 1].
    """

    def __init__(self, arrays: dict[str, np.ndarray], meta: dict, languages: Languages):
        self.meta = meta
        self._tokens, self._document_id = arrays["tokens"], arrays["document_id"]
        self.text_hash = arrays["text_hash"]
        self.starts, self.offsets = arrays["documents"], arrays["offsets"]
        # The run's own ids of the cache's languages; codes that no document has need not be known to the run.
        ids = [languages.id(c) if c in meta["per_language"] else -1 for c in meta["languages"]]
        self.lang = np.array(ids, np.int32)[arrays["lang"]]

    def __len__(self) -> int:
        """Number of documents D."""
        return self.meta["documents"]

    def document_ids(self, documents: np.ndarray) -> np.ndarray:
        """The corpus's own ids of documents: int64 [K] of int64 [K] indices."""
        return self._document_id[documents]

    def pieces(self, sentences: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first ``most`` pieces of sentences (int64 [K] indices).

        Returns:
          (tokens int32 [sum of lengths], lengths int64 [K], cut bool [K]: whether the sentence has more).
        """
        starts = self.offsets[sentences]
        full = self.offsets[sentences + 1] - starts
        lengths = np.minimum(full, most)
        return self._tokens[ragged_index(starts, lengths)].astype(np.int32, copy=False), lengths, full > most

    def text(self, document: int) -> np.ndarray:
        """All pieces of one document, its sentences one after another."""
        first, last = self.offsets[self.starts[document : document + 2]]
        return self._tokens[first:last]

    @classmethod
    def build(
        cls,
        examples: Iterable[dict],
        tokenizer: Tokenizer,
        languages: Languages,
        cleaning: Cleaning = Cleaning(),
        folder: str | os.PathLike | None = None,
        source: str = "examples",
        made_from: dict | None = None,
    ) -> "DocumentCache":
        """Cleans and tokenises documents, block by block and on several threads.

        Args:
          examples: dicts with text (one sentence a line), lang (str) and document_id (int).
          folder: where to keep the cache, or None to keep it in memory. It appears whole or not at all.
          source: where the examples come from, for messages and ``meta.json``.
          made_from: what decides their text, for ``meta.json``: see ``registered.made_from``.

        Raises:
          FileExistsError: the folder exists.
          ValueError: no documents, none that cleaning leaves, or an unknown language.
        """
        sink = array_files.sink(ARRAYS, tokenizer.vocab_size, folder)
        builder = _Builder(tokenizer, languages, cleaning)
        try:
            for block in _blocks(examples):
                arrays = builder.tokenise(block, source)
                with array_files.room(folder):
                    sink.add(arrays)
            meta = builder.meta(source) | {"made_from": made_from or {}}
            with array_files.room(folder):
                arrays = sink.finish(meta)
        except BaseException:
            sink.discard()
            raise
        return cls(arrays, meta, languages) if folder is None else cls.open(folder, tokenizer, languages)

    @classmethod
    def open(cls, folder: str | os.PathLike, tokenizer: Tokenizer, languages: Languages) -> "DocumentCache":
        """Opens a cache folder, memory-mapped; ``languages`` may be another table that knows the cache's languages.

        Raises:
          FileNotFoundError: no cache there. ValueError: made with another tokenizer or format, or damaged.
        """
        folder = Path(folder)
        meta = array_files.read_meta(folder, FORMAT, META, tokenizer.sha256)
        documents = meta["documents"]
        sizes = {"tokens": meta["tokens"], "offsets": meta["sentences"] + 1, "documents": documents + 1}
        return cls(
            array_files.open_arrays(folder, {name: sizes.get(name, documents) for name in ARRAYS}, meta),
            meta,
            languages,
        )


def _blocks(examples: Iterable[dict]) -> Iterator[list[tuple[dict, list[str]]]]:
    """Documents with their sentences, some BLOCK sentences at a time."""
    block, size = [], 0
    for example in examples:
        sentences = example["text"].split("\n")
        block.append((example, sentences))
        size += len(sentences)
        if size >= BLOCK:
            yield block
            block, size = [], 0
    if block:
        yield block


class _Builder:
    """Cleans and tokenises blocks of documents and counts what becomes of them."""

    def __init__(self, tokenizer: Tokenizer, languages: Languages, cleaning: Cleaning):
        self._tokenizer, self._languages, self._cleaning = tokenizer, languages, cleaning
        self._ids: dict[str, int] = {}
        self._seen, self._digest = 0, hashlib.sha256()
        self._sentences = self._tokens = 0
        self._dropped = Counter(dict.fromkeys(DROPPED, 0))
        self._counts = np.zeros((len(languages), 3), np.int64)  # documents, sentences, tokens

    def tokenise(self, block: Sequence[tuple[dict, list[str]]], source: str) -> dict[str, np.ndarray]:
        """The cache's arrays for one block, ready to be appended to those of the blocks before.

        ValueError names the ``source`` and the document of an unknown language.
        """
        first = not self._seen
        self._digest.update("".join(f"{e['lang']}\n{e['text']}\n\n" for e, _ in block).encode())
        for number, (example, _) in enumerate(block, self._seen + 1):
            if example["lang"] not in self._ids:
                try:
                    self._ids[example["lang"]] = self._languages.id(example["lang"])
                except ValueError as error:
                    raise ValueError(f"{source}, document {number:,} ({example['text']:.40}): {error}") from None
        self._seen += len(block)
        _, tokens, lengths, of_document, kept = self.clean(block)
        starts = np.cumsum(lengths) - lengths
        tokens = tokens[ragged_index(starts[kept], lengths[kept])]
        sizes = np.bincount(of_document[kept], minlength=len(block))
        rows = np.flatnonzero(sizes)
        lang = np.array([self._ids[block[d][0]["lang"]] for d in rows.tolist()], np.int32)
        tokens_of = np.bincount(of_document[kept], lengths[kept], len(block)).astype(np.int64)[rows]
        np.add.at(self._counts, lang, np.stack([np.ones_like(rows), sizes[rows], tokens_of], axis=1))
        offsets, documents = self._tokens + np.cumsum(lengths[kept]), self._sentences + np.cumsum(sizes[rows])
        self._tokens, self._sentences = self._tokens + len(tokens), self._sentences + len(offsets)
        return {
            "tokens": tokens,
            "offsets": np.concatenate([[0], offsets]) if first else offsets,
            "documents": np.concatenate([[0], documents]) if first else documents,
            "lang": lang,
            "document_id": np.array([block[d][0]["document_id"] for d in rows.tolist()], np.int64),
            "text_hash": np.array([hash62(block[d][0]["text"].encode()) for d in rows.tolist()], np.int64),
        }

    def clean(self, block: Sequence[tuple[dict, list[str]]]):
        """(sentences without repetitions, their pieces, lengths and documents, indices of those that are kept)."""
        unique = [list(dict.fromkeys(sentences)) for _, sentences in block]
        self._dropped["duplicate"] += sum(len(s) for _, s in block) - sum(map(len, unique))
        sentences = [sentence for document in unique for sentence in document]
        tokens, lengths = self._pieces(sentences)
        of_document = np.repeat(np.arange(len(block)), [len(document) for document in unique])
        return sentences, tokens, lengths, of_document, self._kept(lengths, of_document, len(block))

    def _pieces(self, sentences: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """Bare pieces: (tokens int32 [sum of lengths], lengths int64 [K]); one more than max_pieces at most."""
        before, after = len(self._tokenizer.prefix_ids), len(self._tokenizer.suffix_ids)
        most = self._cleaning.max_pieces
        room = 2**31 if most is None else most + 1 + before + after
        tokens, lengths, _ = self._tokenizer.encode_flat(sentences, room)
        bare = lengths - before - after
        return tokens[ragged_index(np.cumsum(lengths) - lengths + before, bare)], bare

    def _kept(self, lengths: np.ndarray, of_document: np.ndarray, documents: int) -> np.ndarray:
        """The indices of the sentences that cleaning leaves; the others are counted."""
        rules = self._cleaning
        long = lengths > (np.inf if rules.max_pieces is None else rules.max_pieces)
        short = lengths < rules.min_pieces
        left = np.bincount(of_document[~(long | short)], minlength=documents)
        too_small = left < rules.min_sentences
        self._dropped.update(short=int(short.sum()), long=int(long.sum()), documents=int(too_small.sum()))
        return np.flatnonzero(~(long | short | too_small[of_document]))

    def meta(self, source: str) -> dict:
        """What ``meta.json`` says; ValueError where nothing is left."""
        if not self._seen:
            raise ValueError(f"no documents in {source}: wanted at least one. Check the corpus and the split.")
        if not self._sentences:
            raise ValueError(
                f"of the {self._seen:,} documents in {source} cleaning leaves none: {describe(self._dropped)}. Give "
                "documents of more sentences, or change min_pieces and max_pieces."
            )
        codes = self._languages.codes
        return {
            "format": FORMAT,
            "source": source,
            "sha256": self._digest.hexdigest(),
            "tokenizer_sha256": self._tokenizer.sha256,
            "languages": list(codes),
            "cleaning": dataclasses.asdict(self._cleaning),
            "documents": int(self._counts[:, 0].sum()),
            "sentences": self._sentences,
            "tokens": self._tokens,
            "dropped": dict(self._dropped),
            "per_language": {c: n.tolist() for c, n in zip(codes, self._counts, strict=True) if n[0]},
        }


def clean_text(
    examples: Iterable[dict], tokenizer: Tokenizer, languages: Languages, cleaning: Cleaning = Cleaning()
) -> Iterator[tuple[dict, list[str]]]:
    """Documents with the sentences that a cache of them would hold, as text; documents of which none is left are not
    yielded. For arguments and errors see ``DocumentCache.build``."""
    builder = _Builder(tokenizer, languages, cleaning)
    for block in _blocks(examples):
        sentences, *_, of_document, kept = builder.clean(block)
        left: dict[int, list[str]] = {}
        for i in kept.tolist():
            left.setdefault(int(of_document[i]), []).append(sentences[i])
        for document, texts in left.items():
            yield block[document][0], texts


def describe(dropped: dict[str, int]) -> str:
    """What cleaning left out, in words."""
    return (
        f"left out {dropped['duplicate']:,} repeated, {dropped['short']:,} short and {dropped['long']:,} long "
        f"sentences, then {dropped['documents']:,} documents with too few sentences"
    )
