"""Searching a text file by meaning: the lines nearest to a query, from vectors that are computed once and kept."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.exact import top_k
from vmsst_jax.retrieval.lines import scan
from vmsst_jax.retrieval.store import BLOCK, embed_file

logger = logging.getLogger(__name__)


class Hit(NamedTuple):
    """A line that was found: cosine with the query, line number counted from 1, the line itself."""

    score: float
    line: int
    text: str


class TextSearch:
    """The lines of a file, ready to be searched.

    Args:
      embedder: the model.
      corpus: a UTF-8 text file; its blank lines are never found.
      cache_dir: where the lines' vectors are kept, by the content of model and file; None keeps them beside the file.
      progress: show rate and time left while embedding.

    Raises:
      ValueError: nothing but blank lines.
      what ``lines.scan`` and ``store.embed_file`` raise; PermissionError where the vectors cannot be kept.
    """

    def __init__(self, embedder: Embedder, corpus: str | os.PathLike, cache_dir=None, progress: bool = True):
        self.embedder, self.text = embedder, scan(corpus)
        folder = Path(cache_dir) if cache_dir else self.text.path.parent
        folder.mkdir(parents=True, exist_ok=True)
        key = hashlib.sha256(f"{embedder.fingerprint()} {self.text.sha256}".encode()).hexdigest()[:16]
        self.cache = folder / f"{self.text.path.name}.{key}.npy"
        self.vectors = _vectors(self.cache)
        if self.vectors is None:
            if not os.access(folder, os.W_OK):
                raise PermissionError(
                    f"{folder} is not writable; say with --cache_dir where to keep the lines' vectors"
                )
            embed_file(embedder, self.text, self.cache, normalize=True, overwrite=True, progress=progress)
            self.vectors = np.load(self.cache, mmap_mode="r")
        if self.vectors.shape != (self.text.rows, embedder.dim):
            raise ValueError(
                f"{self.cache} holds {self.vectors.shape}, wanted {(self.text.rows, embedder.dim)}; "
                "remove it and search again"
            )

        blocks = self.text.blocks(0, BLOCK)
        self._rows = np.flatnonzero([bool(line.strip()) for lines in blocks for line in lines])
        if not len(self._rows):
            raise ValueError(f"{self.text.path} holds nothing but blank lines; give a text file to search")

    def search(self, queries: Sequence[str], k: int = 5) -> list[list[Hit]]:
        """For each query the k nearest lines (all of them where the file has fewer), best first."""
        vectors = self.embedder.encode(queries, normalize=True)
        scores, found = top_k(vectors, _Chosen(self.vectors, self._rows), min(k, len(self._rows)))
        return [
            [Hit(float(s), int(r) + 1, self.text.line(int(r))) for s, r in zip(*hits, strict=True)]
            for hits in zip(scores, self._rows[found], strict=True)
        ]


class _Chosen:
    """The rows of a memory map with these numbers, read block by block as ``top_k`` asks for them."""

    ndim = 2

    def __init__(self, vectors: np.ndarray, rows: np.ndarray):
        self._vectors, self._rows, self.shape = vectors, rows, (len(rows), vectors.shape[1])

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, block: slice) -> np.ndarray:
        return self._vectors[self._rows[block]]


def _vectors(cache: Path) -> np.ndarray | None:
    """The vectors that are kept there; None without any, or where the file is cut off."""
    try:
        return np.load(cache, mmap_mode="r")
    except FileNotFoundError:
        return None
    except (ValueError, EOFError) as error:
        logger.warning("%s is damaged (%s); the lines are embedded again", cache, error)
        return None
