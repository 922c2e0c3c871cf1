"""The documents of several token caches as one corpus, sorted into languages that are drawn by their size."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from vmsst_jax.data.batching import ragged_index
from vmsst_jax.data.document_cache import DROPPED, DocumentCache, describe
from vmsst_jax.data.languages import Languages


@dataclasses.dataclass
class Pool:
    """The documents of one language.

    Attributes:
      code, lang: the language's code and its id in the run's table.
      documents: their dense ids; a range where a cache holds nothing else.
      sentences, tokens: their numbers.
    """

    code: str
    lang: int
    documents: range | np.ndarray
    sentences: int
    tokens: int

    def __len__(self) -> int:
        return len(self.documents)

    def ids(self, places: np.ndarray) -> np.ndarray:
        """Dense document ids at ``places`` (int64 [K]): int64 [K]."""
        if isinstance(self.documents, range):
            return self.documents.start + places
        return self.documents[places]


class Corpus:
    """Documents of one or more caches under dense ids: those of the first cache, then those of the second, ...

    Attributes:
      pools: one per language that has documents, in the order of the run's language table.
      caches: the caches.
      dropped: what cleaning left out, summed over the caches.
      repeated: documents that are in no pool, as another has the same text and language.
      checksums: {where a cache's documents come from: their SHA-256}.
    """

    def __init__(self, caches: Sequence[DocumentCache], languages: Languages):
        self.caches = list(caches)
        self._first = np.cumsum([0, *map(len, caches)])  # dense id of each cache's first document
        if self._first[-1] >= 2**31:
            raise ValueError(
                f"{self._first[-1]:,} documents; wanted fewer than 2^31, since batches number them by int32: split the "
                "corpus into several runs"
            )
        self.checksums = {cache.meta["source"]: cache.meta["sha256"] for cache in caches}
        self.dropped = {name: sum(c.meta["dropped"][name] for c in caches) for name in DROPPED}
        self.repeated = 0
        self.pools = [pool for code in languages.codes if (pool := self._pool(code, languages.id(code)))]

        self._without = [code for code in languages.codes if code not in {pool.code for pool in self.pools}]

    def __len__(self) -> int:
        """Number of documents."""
        return int(self._first[-1])

    def _pool(self, code: str, lang: int) -> Pool | None:
        having = [(first, c) for first, c in zip(self._first[:-1], self.caches, strict=True) if code in _languages(c)]
        if not having:
            return None
        sizes = [cache.meta["per_language"][code] for _, cache in having]
        _, sentences, tokens = (sum(column) for column in zip(*sizes, strict=True))
        if len(having) == 1 and len(_languages(having[0][1])) == 1:  # at scale one task is one language
            first, cache = having[0]
            documents, hashes = range(int(first), int(first) + len(cache)), cache.text_hash
        else:
            found = [first + np.flatnonzero(cache.lang == lang) for first, cache in having]
            documents = np.concatenate(found)
            hashes = self._per_cache(documents, lambda cache, index: cache.text_hash[index])
        if (different := len(np.unique(hashes))) == len(documents):
            return Pool(code, lang, documents, sentences, tokens)
        self.repeated += len(documents) - different
        documents = np.asarray(documents)[np.sort(np.unique(hashes, return_index=True)[1])]
        sentences = int(self.sizes(documents).sum())
        return Pool(code, lang, documents, sentences, int(self.text_lengths(documents).sum()))

    def _locate(self, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(cache, index within it) of dense ids."""
        which = np.searchsorted(self._first, documents, side="right") - 1
        return which, documents - self._first[which]

    def _per_cache(self, documents: np.ndarray, read) -> np.ndarray:
        """``read(cache, indices)`` for the documents of each cache, put together in the order of ``documents``."""
        which, index = self._locate(documents)
        out = np.empty(documents.shape, np.int64)
        for c in np.unique(which).tolist():
            chosen = which == c
            out[chosen] = read(self.caches[c], index[chosen])
        return out

    def document_ids(self, documents: np.ndarray) -> np.ndarray:
        """The corpus's own ids of dense ids: int64, shaped alike."""
        return self._per_cache(documents, lambda cache, index: cache.document_ids(index))

    def sizes(self, documents: np.ndarray) -> np.ndarray:
        """Sentences of each document: int64, shaped alike."""
        return self._per_cache(documents, lambda cache, index: cache.starts[index + 1] - cache.starts[index])

    def lengths(self, documents: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Pieces of sentence number ``places[i]`` of document ``documents[i]``: int64 [K], without reading them."""
        which, index = self._locate(documents)
        out = np.empty(len(documents), np.int64)
        for c, cache in enumerate(self.caches):
            chosen = which == c
            sentences = cache.starts[index[chosen]] + places[chosen]
            out[chosen] = cache.offsets[sentences + 1] - cache.offsets[sentences]
        return out

    def pieces(self, documents: np.ndarray, places: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The first ``most`` pieces of sentence number ``places[i]`` of document ``documents[i]`` (int64 [K] each).

        Returns:
          (tokens int32 [sum of lengths], lengths int64 [K], cut bool [K]), as :meth:`DocumentCache.pieces`.
        """
        which, index = self._locate(documents)
        chosen = [np.flatnonzero(which == c) for c in range(len(self.caches))]
        read = [
            cache.pieces(cache.starts[index[rows]] + places[rows], most)
            for cache, rows in zip(self.caches, chosen, strict=True)
        ]
        tokens, lengths, cut = (np.concatenate(parts) for parts in zip(*read, strict=True))
        back = np.argsort(np.concatenate(chosen))
        starts = np.cumsum(lengths) - lengths
        return tokens[ragged_index(starts[back], lengths[back])], lengths[back], cut[back]

    def text(self, document: int) -> np.ndarray:
        """All pieces of one document."""
        which, index = self._locate(np.array(document))
        return self.caches[int(which)].text(int(index))

    def text_lengths(self, documents: np.ndarray) -> np.ndarray:
        """How many pieces ``text`` gives of each: int64, shaped alike."""
        return self._per_cache(
            documents, lambda cache, i: cache.offsets[cache.starts[i + 1]] - cache.offsets[cache.starts[i]]
        )

    def facts(self, pools: Sequence[Pool]) -> list[str]:
        """For a run's overview: the sizes, what cleaning left out, and which languages are not among ``pools``."""
        sentences, used = sum(p.sentences for p in self.pools), {p.code for p in pools}
        sizes = f"{len(self):,} documents of {sentences:,} sentences in {len(self.pools)} languages"
        facts = [f"{sizes} ({describe(self.dropped)})"]
        if self.repeated:
            facts.append(f"{self.repeated:,} documents have the text of another of their language and are not drawn")
        if without := self._without:
            more = f" and {len(without) - 10} more" if len(without) > 10 else ""
            facts.append(f"no document in {', '.join(without[:10])}{more}")
        if small := [f"{p.code} ({len(p):,} documents)" for p in self.pools if p.code not in used]:
            facts.append(f"not drawn, since they are too small for a batch: {', '.join(small)}")
        return facts


def _languages(cache: DocumentCache) -> dict:
    return cache.meta["per_language"]


class LanguageSampler:
    """Draws languages with probability ~ n^exponent, n sentences each (METHODS 3.5: 0.3)."""

    def __init__(self, sentences: Sequence[int], exponent: float):
        sizes = np.asarray(sentences, np.float64)
        self.weights = (sizes / sizes.max()) ** exponent  # as shares of the largest: no exponent is too large then

    def draw(self, uniform: np.ndarray, most: np.ndarray | None = None) -> np.ndarray:
        """One language per number, int64 [K]: its index in ``sentences``.

        Args:
          uniform: float64 [K] in [0, 1).
          most: how often each may be drawn here, of a sum of K or more; a language that is used up leaves its share to
            the others. None: any number of times.
        """
        bounds = _bounds(self.weights)
        if most is None:
            return np.searchsorted(bounds, uniform, side="right")
        left, drawn = np.array(most), np.empty(len(uniform), np.int64)
        for i, u in enumerate(uniform):
            drawn[i] = k = int(np.searchsorted(bounds, u, side="right"))
            left[k] -= 1
            if not left[k] and left.any():
                bounds = _bounds(np.where(left > 0, self.weights, 0.0))
        return drawn


def _bounds(weights: np.ndarray) -> np.ndarray:
    """Where the share of each language but the last ends in [0, 1]; a share of 0 is never hit."""
    sums = np.cumsum(weights)
    return sums[:-1] / sums[-1]
