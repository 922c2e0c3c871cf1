"""UMSE's word-mapping baseline as an embedder: a sentence is the mean of its words' mapped vectors."""

from __future__ import annotations

import copy
import hashlib
import itertools
import logging
import os
from collections.abc import Sequence

import numpy as np

from vmsst_jax.data.languages import Languages
from vmsst_jax.retrieval.embedders import External
from vmsst_jax.words import tokens
from vmsst_jax.words.mapped import WordMapping

logger = logging.getLogger(__name__)

# From so many sentences on, none of which has a known word, something is wrong with the language or the vectors.
SUSPECT = 100


class MappedWords(External):
    """The mean of the vectors of a sentence's known words, every occurrence counted.

    A token is looked up as it is written, then lower-cased (``tokens.find_all``). A sentence without any known word, an
    empty one too, gets a random direction that depends on its text and language alone: it is near to nothing, found by
    chance, and counted.

    Args:
      path: what ``word_mapping map`` wrote.
      idf: weigh words by their inverse document frequencies, which that file then has to have.

    Attributes:
      counts: also "words" and "unknown_words" looked up so far, and "placed_at_random", sentences without known words.

    Raises:
      FileNotFoundError, ValueError: no or a damaged file; weights asked for that it doesn't have.
    """

    uses_language = True
    kept = False  # looking words up is as fast as looking up their sentence's vector

    def __init__(self, path: str | os.PathLike, *, idf: bool = False):
        super().__init__({"kind": "word mapping", "file": str(path), "idf": idf}, batch_size=2048)
        self.mapping = WordMapping.load(path)
        if idf and (without := [code for code, one in self.mapping.languages.items() if one.weights is None]):
            raise ValueError(
                f"{path} has no document frequencies of {', '.join(without)}; make it with texts to count them in: "
                "word_mapping map --idf_texts=en=EN.txt,de=DE.txt"
            )
        self.dim, self.default = self.mapping.dim, None
        self.embedding["pooling"] = "mean of words, by idf" if idf else "mean of words"
        self.languages = Languages(self.mapping.languages)
        self.counts |= {"words": 0, "unknown_words": 0, "placed_at_random": 0}
        self._rows = {code: {w: i for i, w in enumerate(one.words)} for code, one in self.mapping.languages.items()}
        self._fingerprint = hashlib.sha256(f"{self.mapping.fingerprint()} {idf}".encode()).hexdigest()

    def in_language(self, code: str) -> MappedWords:
        """The same for texts in one language, which ``encode`` need not be told then.

        Raises ValueError for one that the mapping doesn't have.
        """
        other = copy.copy(self)
        other.default = self.mapping.language(code)
        other._fingerprint = hashlib.sha256(f"{self._fingerprint} {other.default}".encode()).hexdigest()
        return other

    def _embed(self, texts: Sequence[str], language: str | None) -> np.ndarray:
        code = self.default if language is None else self.mapping.language(language)
        if code is None:
            raise ValueError(
                "every language of a word mapping has its own vectors; say which it is: encode(texts, language=CODE), "
                f"--language=CODE; there are {', '.join(self.mapping.languages)}"
            )
        vectors, weights = self.mapping.languages[code].vectors, self.mapping.languages[code].weights
        rows, lengths = self._look_up(texts, code)
        out = np.zeros((len(texts), self.dim), np.float32)
        known = np.flatnonzero(lengths)
        if len(known):
            weights = weights[rows] if self.source["idf"] else np.ones(len(rows), np.float32)
            starts = (np.cumsum(lengths) - lengths)[known]
            sums = np.add.reduceat(vectors[rows] * weights[:, None], starts, axis=0, dtype=np.float64)
            out[known] = sums / np.add.reduceat(weights, starts, dtype=np.float64)[:, None]
        self._place(out, texts, np.flatnonzero(~out.any(axis=1)), code)
        return out

    def _look_up(self, texts: Sequence[str], code: str) -> tuple[np.ndarray, np.ndarray]:
        """(rows of all known words [w], how many of them each text has [n])."""
        known, rows, lengths = self._rows[code], [], np.zeros(len(texts), np.int64)
        for i, text in enumerate(texts):
            cut = tokens.tokenize(text, lower=False)
            found = [tokens.find_all(known, token) for token in cut]
            rows += itertools.chain.from_iterable(found)
            lengths[i] = sum(map(len, found))
            self.counts["words"] += len(cut)
            self.counts["unknown_words"] += found.count([])
        return np.array(rows, np.int64), lengths

    def _place(self, out: np.ndarray, texts: Sequence[str], lost: np.ndarray, code: str) -> None:
        """Gives the rows ``lost`` of ``out`` their random directions."""
        if len(lost) == len(texts) >= SUSPECT:
            raise ValueError(
                f"of {len(texts)} sentences in {code!r} none has a word that the mapping {self.source['file']} knows, "
                f"such as {texts[0][:60]!r}; is it the right language?"
            )
        if len(lost) and not self.counts["placed_at_random"]:
            logger.warning("some sentences have no known word, such as %r: placed at random", texts[lost[0]][:60])
        for row in lost:
            seed = hashlib.sha256(f"{code}\n{texts[row]}".encode()).digest()
            out[row] = np.random.default_rng(list(seed)).standard_normal(self.dim)
        self.counts["placed_at_random"] += len(lost)

    def describe(self) -> dict:
        """Where the vectors come from and how the mapping was made, ready for JSON."""
        return {**super().describe(), "mapping": self.mapping.about, "language": self.default}
