"""Cross-lingual calibration: every language's vectors are moved onto the pivot's, without translations.

Three operations in this order (CCP, section 3.2; METHODS 3.8), of which any first ones may be used:

    shift   x1 = x - mean of the language
    scale   x2 = x1 / standard deviation of the language, dimension by dimension
    rotate  x3 = W x2, W orthogonal, learned between the language and the pivot (``retrieval.rotation``)

``retrieval.calibration_fit`` fits them on sentences of each language alone; they are kept in one file that says which
model they belong to.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vmsst_jax import disk
from vmsst_jax.language_codes import known_as
from vmsst_jax.retrieval.exact import normalize as normalize_rows
from vmsst_jax.words import mapped

STEPS = ("shift", "scale", "rotate")
FORMAT = "vmsst_jax calibration 1"
ARRAYS = ("mean", "scale", "rotation")


@dataclasses.dataclass(frozen=True)
class Fitted:
    """One language's operations.

    Attributes:
      sentences: that they were fitted on.
      mean: float32 [D].
      scale: float32 [D], what to divide by; None where nothing is scaled.
      rotation: W, float32 [D, D]; None for the pivot, or where nothing is rotated.
      history: how the criterion moved, see ``rotation.Rotation``.
    """

    sentences: int
    mean: np.ndarray
    scale: np.ndarray | None = None
    rotation: np.ndarray | None = None
    history: list[dict] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Calibration:
    """The operations of every language, and the model they belong to.

    Attributes:
      steps: what was fitted, a prefix of ``STEPS``.
      pivot: the language onto which the others are rotated.
      languages: {code: ``Fitted``}.
      model: the embedder's ``describe()`` and "fingerprint"; {} where vectors came from elsewhere.
      settings: "scale" and, with a rotation, its ``RotationSettings``, as JSON.
    """

    steps: tuple[str, ...]
    pivot: str
    languages: dict[str, Fitted]
    model: dict
    settings: dict

    @property
    def dim(self) -> int:
        """D, the width of the vectors."""
        return len(next(iter(self.languages.values())).mean)

    def language(self, code: str) -> str:
        """The code under which a language was fitted, "de" for "deu" too. ValueError where none or several match."""
        return known_as(code, self.languages, "the calibration", f"fit it with a sample of {code}")

    def apply(self, vectors: np.ndarray, language: str, steps: Sequence[str] | None = None) -> np.ndarray:
        """Calibrated vectors of one language: float32 [n, D] -> float32 [n, D], not of unit length.

        Args:
          vectors: [n, D] as the model makes them.
          language: its code.
          steps: a prefix of those fitted; None for all of them.

        Raises:
          ValueError: an unknown language, steps that were not fitted, or a width other than D.
        """
        steps, fitted = self.prefix(steps), self.languages[self.language(language)]
        vectors = np.array(vectors, np.float32)  # a copy, changed in place below
        if vectors.ndim != 2 or vectors.shape[1] != self.dim:
            raise ValueError(f"vectors have shape {vectors.shape}; the calibration is for [n, {self.dim}]")
        if "shift" in steps:
            vectors -= fitted.mean
        if "scale" in steps and fitted.scale is not None:
            vectors /= fitted.scale
        if "rotate" in steps and fitted.rotation is not None:
            vectors = vectors @ fitted.rotation.T  # NumPy multiplies float32 in float32
        return vectors

    def prefix(self, steps: Sequence[str] | None) -> tuple[str, ...]:
        """``steps`` checked, None being all that were fitted. ValueError unless they are a prefix of these."""
        return self.steps if steps is None else check_steps(steps, self.steps)

    def fingerprint(self) -> str:
        """A checksum over all that decides a calibrated vector."""
        digest = hashlib.sha256(f"{self.steps} {self.pivot}".encode())
        for name, array in self._arrays().items():
            digest.update(f"{name} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def describe(self) -> dict:
        """Steps, pivot, settings, sentences and the criterion's way by language, ready for JSON."""
        return {
            "steps": list(self.steps),
            "pivot": self.pivot,
            "settings": self.settings,
            "languages": {
                code: {"sentences": fitted.sentences, "history": fitted.history}
                for code, fitted in self.languages.items()
            },
        }

    def save(self, path: str | os.PathLike) -> None:
        """Writes one .npz file, whole or not at all: arrays "CODE/mean", "CODE/scale" and so on, JSON "about"."""
        about = {"format": FORMAT, "model": self.model, **self.describe()}
        contents = io.BytesIO()
        np.savez(contents, about=np.array(json.dumps(about, ensure_ascii=False, allow_nan=False)), **self._arrays())
        with disk.writing(path):
            disk.write_atomically(path, contents.getvalue())

    def _arrays(self) -> dict[str, np.ndarray]:
        named = {f"{c}/{n}": getattr(fitted, n) for c, fitted in self.languages.items() for n in ARRAYS}
        return {name: array for name, array in named.items() if array is not None}

    @classmethod
    def load(cls, path: str | os.PathLike) -> Calibration:
        """Reads what ``save`` wrote; nothing in the file can run.

        Raises:
          FileNotFoundError: there is no such file.
          ValueError: it is no calibration, or damaged.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {path}; make one with python -m vmsst_jax.calibrate")
        try:
            with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            about = json.loads(str(arrays.pop("about")))
            if about["format"] != FORMAT:
                raise ValueError(f"its format is {about['format']!r}; wanted {FORMAT!r}")
            found = cls(
                tuple(about["steps"]),
                about["pivot"],
                {
                    code: Fitted(**of, **{n: arrays[f"{code}/{n}"] for n in ARRAYS if f"{code}/{n}" in arrays})
                    for code, of in about["languages"].items()
                },
                about["model"],
                about["settings"],
            )
            found._check()
        except (AttributeError, EOFError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"{path} is no calibration or is damaged ({type(error).__name__}: {error}); "
                "make one with python -m vmsst_jax.calibrate"
            ) from None
        return found

    def _check(self) -> None:
        check_steps(self.steps)
        if not self.languages:
            raise ValueError("it holds no language")
        for code, fitted in self.languages.items():
            wanted = {"mean": (self.dim,), "scale": (self.dim,), "rotation": (self.dim, self.dim)}
            for name, shape in wanted.items():
                array = getattr(fitted, name)
                if array is not None and (array.shape != shape or array.dtype != np.float32):
                    raise ValueError(f"{code}/{name} is {array.dtype} {array.shape}; wanted float32 {shape}")
                if array is not None and not np.isfinite(array).all():
                    raise ValueError(f"{code}/{name} holds NaN or infinity")
            missing = "rotate" in self.steps and code != self.pivot and fitted.rotation is None
            if missing or ("scale" in self.steps and self.settings["scale"] != "none" and fitted.scale is None):
                raise ValueError(f"{code} lacks an array of the steps {', '.join(self.steps)}")


def check_steps(steps: Sequence[str], known: Sequence[str] = STEPS) -> tuple[str, ...]:
    """``steps`` as a tuple; ValueError unless they are the first ones of ``known``."""
    steps = tuple(steps)
    if steps != tuple(known[: len(steps)]):
        prefixes = "; ".join(",".join(known[:n]) for n in range(1, len(known) + 1))
        raise ValueError(
            f"steps are {','.join(steps)!r}; wanted the first of {','.join(known)} in this order: {prefixes}"
        )
    return steps


class Calibrated:
    """An embedder whose vectors are calibrated; a stand-in for it wherever vectors are asked for language by language.

    Args:
      embedder: the model.
      calibration: fitted with this model, layer and pooling.
      steps: a prefix of those fitted; None for all of them, () for none.
      language: of all texts for which ``encode`` is told none.

    Vectors are not of unit length unless that is asked for, even where the model's own are.

    Raises:
      ValueError: the calibration belongs to another model or to other settings; steps that were not fitted; an unknown
        language.
    """

    uses_language = True  # the same text has other vectors in another language

    def __init__(
        self, embedder, calibration: Calibration, steps: Sequence[str] | None = None, *, language: str | None = None
    ):
        self.embedder, self.calibration, self.steps = embedder, calibration, calibration.prefix(steps)
        self.default = None if language is None else calibration.language(language)
        self._model = embedder.fingerprint()
        if self._model != calibration.model.get("fingerprint"):
            raise ValueError(
                f"the calibration belongs to another model: {_differences(calibration.model, embedder.describe())}; "
                "embed as it was fitted, or fit one for this model with python -m vmsst_jax.calibrate"
            )
        self.embedding = {**embedder.embedding, "normalize": False}

    dim = property(lambda self: self.embedder.dim, doc="Width of the vectors.")
    languages = property(lambda self: self.embedder.languages, doc="The model's language table.")
    counts = property(lambda self: self.embedder.counts, doc="Sentences embedded so far, see ``Embedder``.")
    source = property(lambda self: self.embedder.source, doc="Where the model comes from.")
    batch_size = property(lambda self: self.embedder.batch_size, doc="The model's.")
    max_length = property(lambda self: self.embedder.max_length, doc="The model's.")

    def encode(
        self,
        texts: Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        progress: bool = False,
        *,
        language: str | None = None,
    ) -> np.ndarray:
        """Embeds sentences of one language: float32 [len(texts), D]; see ``Embedder.encode``.

        Raises:
          ValueError: no language is said, or the calibration has it not; and what the model raises.
        """
        language = language or self.default
        if language is None:
            raise ValueError("a calibration treats every language differently; say encode(texts, language=CODE)")
        language = self.calibration.language(language)
        vectors = self.embedder.encode(texts, batch_size=batch_size, progress=progress, language=language)
        vectors = self.calibration.apply(vectors, language, self.steps)
        return normalize_rows(vectors, texts) if normalize and len(vectors) else vectors

    def without_prefix(self) -> Calibrated:
        """ValueError: a calibration belongs to the prefix it was fitted with."""
        own = self.embedding["prefix"]
        raise ValueError(
            f"the calibration was fitted with the prefix {own!r}; leave query_prefix and passage_prefix out, or fit "
            "one without a prefix"
        )

    def truncated(self, texts: Sequence[str]) -> np.ndarray:
        """Which sentences the model cuts: bool [n]."""
        return self.embedder.truncated(texts)

    def encode_layers(self, texts: Sequence[str], **options) -> np.ndarray:
        """ValueError: a calibration belongs to one layer."""
        raise ValueError("a calibration belongs to the one layer it was fitted on; look at all layers without it")

    def describe(self) -> dict:
        """The model's own description, and "calibration"."""
        about = self.calibration.describe()
        about["languages"] = {code: of["sentences"] for code, of in about["languages"].items()}
        used = {"sha256": self.calibration.fingerprint(), "used_steps": list(self.steps)}
        return {**self.embedder.describe(), "calibration": {**about, **used, "default_language": self.default}}

    def fingerprint(self) -> str:
        """A checksum over all that decides an embedding: model, calibration, steps, default language."""
        parts = (self._model, self.calibration.fingerprint(), self.steps, self.default)
        return hashlib.sha256(repr(parts).encode()).hexdigest()


def check_output(path: str | os.PathLike, overwrite: bool = False) -> Path:
    """The path of a calibration to be written, to be called before anything slow.

    Raises:
      ValueError: the name does not end in .npz.
      FileNotFoundError: its folder does not exist.
      FileExistsError: it exists and ``overwrite`` is False.
    """
    path = disk.check_place(path, (".npz",))
    if path.exists() and not overwrite:
        raise FileExistsError(f"{path} exists; use --overwrite to replace it, or another --output")
    return path


def check(
    path: str | os.PathLike | None,
    steps: Sequence[str] | None = None,
    languages: dict[str, str | None] | None = None,
    word_mapping: str | os.PathLike | None = None,
) -> None:
    """What commands call before they load a model.

    Args:
      path: the calibration's file, or None.
      steps: see ``Calibrated``.
      languages: {flag: its value}, those that have to say which language texts are in.
      word_mapping: the file of a model that needs to know them too, or None.

    Raises ValueError for a language that is missing or wasn't fitted, steps that were not, and steps or languages that
    nothing needs; what ``Calibration.load`` and ``WordMapping.load`` raise.
    """
    languages = languages or {}
    if path is None and (steps is not None or word_mapping is None and any(languages.values())):
        raise ValueError("calibration steps or a language are given, but no calibration that they are for")
    if path is not None:
        fitted = Calibration.load(path)
        fitted.prefix(steps)
        _check_languages("calibration", path, list(fitted.languages), languages)
    if word_mapping is not None:
        _check_languages("word mapping", word_mapping, mapped.languages_of(word_mapping), languages)


def _check_languages(what: str, path: str | os.PathLike, known: list[str], languages: dict[str, str | None]) -> None:
    """ValueError unless every flag names one of the languages ``known`` to a file, which is ``what``."""
    if missing := [flag for flag, code in languages.items() if not code]:
        raise ValueError(
            f"a {what} treats every language differently; say with {' and '.join(missing)} which it is: {path} "
            f"has {', '.join(known)}"
        )
    for flag, code in languages.items():
        known_as(code, known, f"{flag}: the {what} {path}", f"make one with {code}")


def applied(embedder, path: str | os.PathLike | None, steps: Sequence[str] | None = None, language: str | None = None):
    """The embedder with the calibration of a file, or as it is where ``path`` is None: what commands call.

    One that has its own vectors for every language, as mapped words, is told ``language``.

    Raises what ``check``, ``Calibration.load`` and ``Calibrated`` raise.
    """
    if path is None and language is not None and hasattr(embedder, "in_language"):
        embedder, language = embedder.in_language(language), None
    if path is None:
        check(path, steps, {"language": language})
        return embedder
    return Calibrated(embedder, Calibration.load(path), steps, language=language)


def _differences(fitted: dict, here: dict) -> str:
    """Which settings of two descriptions differ, in words."""
    names = [name for name in here if name in fitted and fitted[name] != here[name]]
    return ", ".join(f"{name} {fitted[name]!r} there, {here[name]!r} here" for name in names) or "its parameters differ"
