"""The texts that benchmarks embed, as a file for other people's tools: row i of the vectors to bring is for line i."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from vmsst_jax import disk
from vmsst_jax.benchmarks import suite
from vmsst_jax.conversion.model import UNDETERMINED
from vmsst_jax.data.languages import Languages
from vmsst_jax.retrieval.embedders import one_line
from vmsst_jax.retrieval.exact import normalize as normalize_rows


class Recorder:
    """An embedder that writes down what it is asked; its vectors are checksums, as good as random.

    Attributes:
      texts: every distinct text as one line, in the order in which they were first asked for.
    """

    dim = 16
    batch_size = max_length = None
    languages = Languages([UNDETERMINED])
    embedding = {"pooling": None, "layer": None, "normalize": False, "prefix": ""}
    source = {"kind": "recorder"}

    def __init__(self):
        self.texts: dict[str, None] = {}
        self.counts = {"sentences": 0, "empty": 0, "truncated": 0}

    def encode(
        self,
        texts: Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        progress: bool = False,
        *,
        language: str | None = None,
    ) -> np.ndarray:
        """float32 [len(texts), 16], made from the texts' checksums."""
        self.texts |= dict.fromkeys(map(one_line, texts))
        digests = b"".join(hashlib.blake2b(text.encode(), digest_size=self.dim).digest() for text in texts)
        vectors = np.frombuffer(digests, np.uint8).reshape(-1, self.dim).astype(np.float32) - 127.5
        return normalize_rows(vectors) if len(vectors) and normalize else vectors

    def encode_layers(self, texts: Sequence[str], *, language: str | None = None, progress: bool = False) -> np.ndarray:
        """float32 [2, len(texts), 16]."""
        return np.stack([self.encode(texts)] * 2)

    def describe(self) -> dict:
        """Nothing that a result would show: no result is made of these vectors."""
        return dict(self.source)

    def fingerprint(self) -> str:
        """Other than any model's."""
        return "recorder"


def write(path: str | os.PathLike, runs: Iterable[tuple[str, str | os.PathLike, dict]]) -> int:
    """Writes the distinct texts that benchmarks embed, one a line, and returns how many.

    Args:
      path: the file, UTF-8; line breaks inside a text become spaces.
      runs: (name, data_dir, options) of each benchmark, see ``suite.run``.

    Raises:
      FileExistsError: the file exists.
      what the benchmarks raise for their data and options.
    """
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists; remove it or give another name")
    recorder = Recorder()
    with tempfile.TemporaryDirectory() as corpora:  # vectors of corpora, which are kept on the disk
        for name, data_dir, options in runs:
            aside = {"embeddings_dir": corpora} if "embeddings_dir" in suite.options_of(name) else {}
            suite.run(name, recorder, data_dir, options, aside)
    with disk.writing(path):
        disk.write_atomically(path, "".join(f"{text}\n" for text in recorder.texts).encode())
    return len(recorder.texts)
