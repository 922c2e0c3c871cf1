"""Words of two or more languages in one space, in a file: what ``map`` writes, and what embeds and translates read."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import zipfile
from pathlib import Path

import numpy as np

from vmsst_jax import disk
from vmsst_jax.language_codes import known_as

FORMAT = "vmsst_jax word mapping 1"


@dataclasses.dataclass(frozen=True)
class Mapped:
    """One language.

    Attributes:
      words: the most frequent first.
      vectors: float32 [n, D], in the common space.
      weights: float32 [n], inverse document frequencies; None where no text was given for them.
    """

    words: list[str]
    vectors: np.ndarray
    weights: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class WordMapping:
    """Several languages in one space.

    Attributes:
      languages: {code: ``Mapped``}.
      about: how it was made, ready for JSON.
    """

    languages: dict[str, Mapped]
    about: dict

    @property
    def dim(self) -> int:
        """D, the width of the vectors."""
        return next(iter(self.languages.values())).vectors.shape[1]

    def language(self, code: str) -> str:
        """The code under which a language was mapped, "de" for "deu" too. ValueError where none or several match."""
        return known_as(code, self.languages, "the word mapping", f"map one with vectors of {code}")

    def fingerprint(self) -> str:
        """A checksum over all words, vectors and weights."""
        digest = hashlib.sha256()
        for name, array in self._arrays().items():
            digest.update(f"{name} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array))
        return digest.hexdigest()

    def save(self, path: str | os.PathLike) -> None:
        """Writes one .npz file, whole or not at all: arrays "CODE/words", "CODE/vectors" and so on, JSON "about"."""
        about = json.dumps({"format": FORMAT, **self.about}, ensure_ascii=False, allow_nan=False)
        with disk.writing(path), disk.replacing(path) as file:
            np.savez(file, about=np.array(about), **self._arrays())

    def _arrays(self) -> dict[str, np.ndarray]:
        arrays = {}
        for code, one in self.languages.items():
            arrays[f"{code}/words"] = np.frombuffer("\n".join(one.words).encode(), np.uint8)
            arrays[f"{code}/vectors"] = one.vectors
            if one.weights is not None:
                arrays[f"{code}/weights"] = one.weights
        return arrays

    @classmethod
    def load(cls, path: str | os.PathLike) -> WordMapping:
        """Reads what ``save`` wrote; nothing in the file can run.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: it is no word mapping, or damaged.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}; make one with python -m vmsst_jax.word_mapping map")
        try:
            about, arrays = _read(path)
            if about.pop("format") != FORMAT:
                raise ValueError(f"its format is not {FORMAT!r}")
            codes = [name.removesuffix("/words") for name in arrays if name.endswith("/words")]
            found = cls({code: _language(code, arrays) for code in codes}, about)
            if not codes or len({one.vectors.shape[1] for one in found.languages.values()}) > 1:
                raise ValueError("it holds no languages, or vectors of different widths")
        except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path} is no word mapping or is damaged ({type(error).__name__}: {error}); "
                "make one with python -m vmsst_jax.word_mapping map"
            ) from None
        return found


def languages_of(path: str | os.PathLike) -> list[str]:
    """The languages of a file without reading its vectors; raises what ``WordMapping.load`` does."""
    try:
        with np.load(path, allow_pickle=False) as file:
            json.loads(str(file["about"]))
            return [name.removesuffix("/words") for name in file.files if name.endswith("/words")]
    except (AttributeError, EOFError, KeyError, OSError, TypeError, ValueError, zipfile.BadZipFile):
        WordMapping.load(path)  # says what is wrong
        raise


def _read(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    with np.load(path, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    return json.loads(str(arrays.pop("about"))), arrays


def _language(code: str, arrays: dict[str, np.ndarray]) -> Mapped:
    words = arrays[f"{code}/words"].tobytes().decode().split("\n")
    vectors, weights = arrays[f"{code}/vectors"], arrays.get(f"{code}/weights")
    if vectors.ndim != 2 or vectors.dtype != np.float32 or len(vectors) != len(words):
        raise ValueError(f"{code}/vectors is {vectors.dtype} {vectors.shape}; wanted float32 [{len(words)}, D]")
    if weights is not None and (weights.shape != (len(words),) or weights.dtype != np.float32):
        raise ValueError(f"{code}/weights is {weights.dtype} {weights.shape}; wanted float32 [{len(words)}]")
    if not (np.isfinite(vectors).all() and (weights is None or (np.isfinite(weights) & (weights > 0)).all())):
        raise ValueError(f"{code} has NaN, infinity, or a weight that is not above 0")
    return Mapped(words, vectors, weights)
