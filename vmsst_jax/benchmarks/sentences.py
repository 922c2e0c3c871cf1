"""The sentences of a benchmark: which language each is in, where it was read, and its vector."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.exact import normalize
from vmsst_jax.retrieval.lines import read_lines
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.vector_checks import naming

# Sentences embedded between two signs of progress.
BLOCK = 4096


def read_columns(path: str | os.PathLike, columns: int, what: str) -> list[list[str]]:
    """The cells of a file with tabs between them, without quoting.

    Args:
      columns: how many cells a line has.
      what: them in words, for the error.

    Raises:
      FileNotFoundError, ValueError: the file is missing, empty or not UTF-8, or a line has another number of cells.
    """
    rows = [line.split("\t") for line in read_lines(path)]
    for number, row in enumerate(rows, 1):
        if len(row) != columns:
            raise ValueError(f"{path}, line {number}: {len(row)} columns; wanted {columns} with tabs between: {what}")
    return rows


class Sentences:
    """Each distinct sentence of each language once: ``add`` all, ``embed``, then look vectors up by text.

    Attributes:
      origins: {language: {sentence: (file, line) where it was first read}}.
    """

    def __init__(self):
        self.origins: dict[str, dict[str, tuple[Path, int]]] = {}

    def add(self, language: str, texts: Sequence[str], path: Path, lines: Iterable[int] | None = None) -> None:
        """Sentences of ``language`` read from ``path``; ``lines`` are their numbers there, None counts from 1.

        Raises ValueError where all of them are blank.
        """
        if not any(text.strip() for text in texts):
            raise ValueError(f"{path}: all {len(texts)} sentences of {language} are blank; fetch it again")
        known = self.origins.setdefault(language, {})
        for text, line in zip(texts, lines or range(1, len(texts) + 1), strict=True):
            known.setdefault(text, (path, line))

    @property
    def distinct(self) -> int:
        """How many sentences there are to embed."""
        return sum(map(len, self.origins.values()))

    def embed(self, embedder: Embedder) -> Vectors:
        """Unit vectors of all sentences, language by language, each of which ``encode`` is told by its code.

        Raises ValueError, naming file and line, for a vector with NaN or infinity or of nothing but zeros.
        """
        return Vectors(self, self._run(embedder.encode, "embedding"))

    def embed_layers(self, embedder: Embedder) -> Iterator[Vectors]:
        """Unit vectors of every hidden state in turn, from one pass over the sentences; raises what ``embed`` does."""
        stacks = self._run(embedder.encode_layers, "embedding, all layers")
        for layer in range(min(map(len, stacks.values()))):
            yield Vectors(self, {language: stack[layer] for language, stack in stacks.items()})

    def _run(self, encode: Callable, label: str) -> dict[str, np.ndarray]:
        results = {}
        with Progress(label, self.distinct) as shown:
            for language, known in self.origins.items():
                texts, parts = list(known), []
                for start in range(0, len(texts), BLOCK):
                    block = texts[start : start + BLOCK]
                    with naming(functools.partial(_where, [known[text] for text in block])):
                        parts.append(encode(block, language=language))
                    shown.update(len(block))
                results[language] = np.concatenate(parts, axis=-2)
        return results


class Vectors:
    """Unit vectors of sentences, looked up by language and text."""

    def __init__(self, sentences: Sentences, vectors: dict[str, np.ndarray]):
        self._rows = {
            language: {text: i for i, text in enumerate(known)} for language, known in sentences.origins.items()
        }
        self._vectors = {language: _unit(x, sentences.origins[language]) for language, x in vectors.items()}

    def of(self, language: str, texts: Sequence[str]) -> np.ndarray:
        """float32 [len(texts), D], row i = sentence i."""
        rows = self._rows[language]
        return self._vectors[language][[rows[text] for text in texts]]


def _unit(vectors: np.ndarray, origins: dict[str, tuple[Path, int]]) -> np.ndarray:
    """Rows of length 1: [n, D] -> float32 [n, D]; ``origins`` has the n sentences in the same order."""
    if vectors.ndim != 2 or len(vectors) != len(origins):
        raise ValueError(f"the model gave vectors of shape {vectors.shape} for {len(origins)} sentences")
    with naming(functools.partial(_where, list(origins.values()))):
        return normalize(vectors, list(origins))


def _where(origins: list[tuple[Path, int]], row: int) -> str:
    path, line = origins[row]
    return f"{path}, line {line}"
