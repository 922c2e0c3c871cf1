"""Fitting a calibration on sentences of each language alone; see ``retrieval.calibration`` for what it does."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from vmsst_jax.retrieval.calibration import STEPS, Calibration, Fitted, check_steps
from vmsst_jax.retrieval.lines import read_lines
from vmsst_jax.retrieval.rotation import RotationSettings, learn, split
from vmsst_jax.retrieval.vector_checks import naming

SCALES = ("std", "var", "none")
# A language's mean and deviation over fewer sentences would be those of the sentences, not of the language.
FEWEST = 100
EPSILON = 1e-6  # the least divisor


class TextSamples(Mapping):
    """Text files of one language each, embedded when they are looked up: {code: float32 [n, D]}.

    Blank lines and repeated sentences are left out.

    Args:
      embedder: the model.
      files: {code: path of a UTF-8 text file, one sentence per line}.
      say: is told what was read.

    Raises:
      FileNotFoundError, ValueError: from ``lines.scan``, or a file with fewer than ``FEWEST`` different sentences.
    """

    def __init__(
        self, embedder, files: Mapping[str, str | os.PathLike], say: Callable[[str], None] = lambda line: None
    ):
        self.embedder, self.texts, self._lines = embedder, {}, {}
        self._files = dict(files)
        for code, path in files.items():
            lines, first = read_lines(path), {}
            for number, line in enumerate(lines, 1):
                if line.strip():
                    first.setdefault(line.strip(), number)
            self.texts[code], self._lines[code] = list(first), list(first.values())
            say(f"{code}: {len(self.texts[code]):,} different sentences in the {len(lines):,} lines of {path}")
            if len(self.texts[code]) < FEWEST:
                raise ValueError(
                    f"{path} has {len(self.texts[code])} different sentences of {code}; wanted at least {FEWEST}, and "
                    "100,000 are better"
                )

    def check_rotation(self, pivot: str, held_out: float) -> None:
        """ValueError, before anything is embedded, for languages with too few sentences to fit a rotation to."""
        dim = self.embedder.dim
        for code, texts in self.texts.items():
            left = len(split(np.arange(len(texts)), held_out)[0])
            if code != pivot and left < dim:
                raise ValueError(
                    f"{self._files[code]} has {len(texts):,} different sentences, of which {left:,} are fitted to; a "
                    f"rotation in {dim} dimensions needs {dim:,} or more, that is {math.ceil(dim / (1 - held_out)):,} "
                    "sentences. Give more, or do without by --steps=shift,scale"
                )

    def __getitem__(self, code: str) -> np.ndarray:
        with naming(lambda row: f"{self._files[code]}, line {self._lines[code][row]}"):
            return self.embedder.encode(self.texts[code], progress=True, language=code)

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts)

    def __len__(self) -> int:
        return len(self.texts)


def fit(
    samples: Mapping[str, np.ndarray],
    *,
    steps: Sequence[str] = STEPS,
    scale: str = "std",
    pivot: str = "en",
    rotation: RotationSettings | None = None,
    model: dict | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Calibration:
    """Fits the operations of every language.

    Args:
      samples: {code: float [n, D]}, vectors of sentences of that language, none a translation of another's by need; the
        more the better (METHODS 3.8: 100,000). Each is looked up once, the pivot first, and then dropped but for the
        pivot's, so that a mapping may embed them on demand.
      steps: a prefix of ``STEPS``.
      scale: "std" divides by standard deviations, "var" by variances, which the paper's words say; "none" by nothing.
      pivot: the language onto which the others are rotated: English, or either one of a pair.
      rotation: how rotations are learned; None takes the defaults.
      model: ``describe()`` and "fingerprint" of the embedder.
      say: is told, line by line, how far this is.

    Raises:
      ValueError: unknown steps or scale, no sample of the pivot, too few sentences, unequal widths, vectors that are
        not finite; and what ``rotation.learn`` raises.
    """
    steps, rotation = check_steps(steps), rotation or RotationSettings()
    if scale not in SCALES:
        raise ValueError(f"scale is {scale!r}; use one of {', '.join(SCALES)}")
    check_languages(list(samples), steps, pivot)
    order = sorted(samples, key=lambda code: code != pivot)  # stable: the pivot, then as given
    languages, centre = {}, None
    for code in order:
        vectors = _checked(code, samples[code], languages)
        fitted = _moments(vectors, scale if "scale" in steps else "none")
        if "rotate" in steps:
            standard = Calibration(steps[:2], pivot, {code: fitted}, {}, {}).apply(vectors, code)
            if code == pivot:
                centre = standard
            else:
                learned = learn(standard, centre, rotation, lambda line, code=code: say(f"{code} -> {pivot}, {line}"))
                fitted = dataclasses.replace(fitted, rotation=learned.matrix, history=learned.history)
        languages[code] = fitted
    settings = {"scale": scale} | ({"rotation": dataclasses.asdict(rotation)} if "rotate" in steps else {})
    return Calibration(steps, pivot, {code: languages[code] for code in samples}, dict(model or {}), settings)


def check_languages(codes: list[str], steps: tuple[str, ...], pivot: str) -> None:
    if not steps:
        raise ValueError("no step is chosen; wanted at least shift")
    if not codes:
        raise ValueError("no samples are given; wanted one for each language")
    if "rotate" not in steps:
        return
    if pivot not in codes:
        raise ValueError(
            f"the samples are of {', '.join(codes)} and every language is rotated onto {pivot}, which has none; "
            f"give a sample of {pivot}, or name another pivot"
        )
    if len(codes) == 1:
        raise ValueError(f"the only sample is of the pivot {pivot}; give one of a language to rotate onto it")


def _checked(code: str, vectors: np.ndarray, before: dict[str, Fitted]) -> np.ndarray:
    """Vectors of one language as float32 [n, D]."""
    vectors = np.asarray(vectors)
    if vectors.ndim != 2 or len(vectors) < FEWEST:
        raise ValueError(
            f"the sample of {code} has shape {vectors.shape}; wanted [n, D] of at least {FEWEST} different sentences "
            "(100,000 are better)"
        )
    for other, fitted in before.items():
        if len(fitted.mean) != vectors.shape[1]:
            raise ValueError(
                f"the sample of {code} has {vectors.shape[1]} dimensions, that of {other} {len(fitted.mean)}; "
                "embed both with the same model"
            )
    vectors = vectors.astype(np.float32, copy=False)
    if not (finite := np.isfinite(vectors).all(axis=1)).all():
        raise ValueError(f"row {int(np.argmin(finite))} of the sample of {code} holds NaN or infinity")
    return vectors


def _moments(vectors: np.ndarray, scale: str) -> Fitted:
    """Mean and divisor, summed in float64."""
    mean = vectors.mean(axis=0, dtype=np.float64)
    divisor = None
    if scale != "none":
        # float64 makes this exact enough without a second copy of the vectors.
        squares = np.einsum("nd,nd->d", vectors, vectors, dtype=np.float64) / len(vectors)
        variance = np.maximum(squares - mean**2, 0)
        divisor = np.maximum(np.sqrt(variance) if scale == "std" else variance, EPSILON).astype(np.float32)
    return Fitted(len(vectors), mean.astype(np.float32), divisor)
