"""Searching a text file by meaning: the lines nearest to a query, from vectors that are computed once and kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vmsst_jax.retrieval import text_vectors
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.exact import top_k
from vmsst_jax.retrieval.lines import scan
from vmsst_jax.retrieval.rows import Chosen
from vmsst_jax.retrieval.store import BLOCK


class Hit(NamedTuple):
    """A line that was found: cosine with the query, line number counted from 1, the line itself."""

    score: float
    line: int
    text: str


class TextSearch:
    """The lines of a file, ready to be searched.

    Args:
      embedder: the model.
      corpus: a UTF-8 text file; its blank lines are never embedded nor found.
      cache_dir: where the lines' vectors are kept, by the content of model and file; None keeps them beside the file.
      progress: show rate and time left while embedding.
      query_embedder: the model for queries, where it is another: one calibrated for their language.

    Attributes:
      blank: how many of its lines are blank.

    Raises:
      ValueError: nothing but blank lines.
      what ``lines.scan`` and ``text_vectors.load`` raise; PermissionError where the vectors cannot be kept.
    """

    def __init__(
        self,
        embedder: Embedder,
        corpus: str | os.PathLike,
        cache_dir=None,
        progress: bool = True,
        *,
        query_embedder: Embedder | None = None,
    ):
        self.query_embedder, self.text = query_embedder or embedder, scan(corpus)
        blocks = self.text.blocks(0, BLOCK)
        self._rows = np.flatnonzero([bool(line.strip()) for lines in blocks for line in lines])
        if not len(self._rows):
            raise ValueError(f"{self.text.path} holds nothing but blank lines; give a text file to search")
        self.blank = self.text.rows - len(self._rows)
        self.vectors = text_vectors.load(embedder, self.text, cache_dir, progress)

    def search(self, queries: Sequence[str], k: int = 5) -> list[list[Hit]]:
        """For each query the k nearest lines (all of them where the file has fewer), best first."""
        vectors = self.query_embedder.encode(queries, normalize=True)
        scores, found = top_k(vectors, Chosen(self.vectors, self._rows), min(k, len(self._rows)))
        return [
            [Hit(float(s), int(r) + 1, self.text.line(int(r))) for s, r in zip(*hits, strict=True)]
            for hits in zip(scores, self._rows[found], strict=True)
        ]
