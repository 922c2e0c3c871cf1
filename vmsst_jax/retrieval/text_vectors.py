"""The vectors of a text file's lines, computed once and kept."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import numpy as np

from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import TextFile
from vmsst_jax.retrieval.store import embed_file

logger = logging.getLogger(__name__)


def load(
    embedder: Embedder, text: TextFile, cache_dir: str | os.PathLike | None = None, progress: bool = True
) -> np.ndarray:
    """A memory map [rows, D] of unit length vectors, row i = line i; an interrupted run goes on where it stopped.

    Blank lines are not embedded: who searches leaves their rows out.

    Args:
      embedder: the model.
      text: the file.
      cache_dir: where the vectors are kept, by the content of model and file; None keeps them beside the file.
      progress: show rate and time left while embedding.

    Raises:
      PermissionError: the vectors cannot be kept there.
      ValueError: those that are there don't fit; and what ``store.embed_file`` raises.
    """
    folder = Path(cache_dir) if cache_dir else text.path.parent
    folder.mkdir(parents=True, exist_ok=True)
    key = hashlib.sha256(f"{embedder.fingerprint()} {text.sha256}".encode()).hexdigest()[:16]
    file = folder / f"{text.path.name}.{key}.npy"
    vectors = _kept(file)
    if vectors is None:
        if not os.access(folder, os.W_OK):
            raise PermissionError(f"{folder} is not writable; say with --cache_dir where to keep the lines' vectors")
        embed_file(embedder, text, file, normalize=True, overwrite=True, progress=progress, skip_blank=True)
        vectors = np.load(file, mmap_mode="r", allow_pickle=False)
    if vectors.shape != (text.rows, embedder.dim):
        raise ValueError(f"{file} holds {vectors.shape}, wanted {(text.rows, embedder.dim)}; remove it and start again")
    return vectors


def _kept(file: Path) -> np.ndarray | None:
    """The vectors that are kept there; None without any, or where the file is cut off."""
    try:
        return np.load(file, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        return None
    except (ValueError, EOFError) as error:
        logger.warning("%s is damaged (%s); the lines are embedded again", file, error)
        return None
