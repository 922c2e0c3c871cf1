"""An orthogonal map between two languages' vectors, found without translations (MUSE, Conneau et al. 2018).

Refinement pairs the vectors by CSLS under the map so far, solves for the map that fits those pairs best (orthogonal
Procrustes), and begins again. It starts from the identity, which needs spaces that nearly coincide, as they do after
shifting and scaling, or from a map found adversarially (``retrieval.adversarial``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from vmsst_jax import checks
from vmsst_jax.retrieval import csls
from vmsst_jax.retrieval.adversarial import Adversarial, train
from vmsst_jax.retrieval.exact import normalize

METHODS = ("refine", "adversarial")


@dataclasses.dataclass(frozen=True)
class RotationSettings:
    """How a rotation is learned; the values are MUSE's but for ``held_out``.

    Attributes:
      method: "refine" from the identity, or "adversarial": refine what adversarial training found.
      rounds: of refinement.
      candidates: most source vectors in a round's dictionary.
      mutual: a dictionary of mutual neighbours only (MUSE's S2T&T2S) instead of every candidate's (S2T).
      k: neighbours in CSLS.
      held_out: share of the vectors that no map is fitted to, by which the best map is chosen. MUSE holds out none (0),
        but has fifty words and more per dimension: on fewer vectors its criterion, taken on those fitted to, always
        rises, also while retrieval collapses (docs/calibration.md).
      adversarial: settings of adversarial training.
    """

    method: str = "refine"
    rounds: int = 5
    candidates: int = 15_000
    mutual: bool = False
    k: int = csls.K
    held_out: float = 0.2
    adversarial: Adversarial = Adversarial()

    def __post_init__(self):
        if self.method not in METHODS:
            raise ValueError(f"rotation is {self.method!r}; use one of {', '.join(METHODS)}")
        for name in ("rounds", "candidates", "k"):
            checks.whole(f"RotationSettings.{name}", getattr(self, name))
        checks.number("RotationSettings.held_out", self.held_out, below=0.9)


@dataclasses.dataclass(frozen=True)
class Rotation:
    """A map y ~ W x.

    Attributes:
      matrix: W, float32 [D, D], orthogonal.
      history: {"stage": "start", "epoch 1", ..., "round 1", ...; "criterion": mean cosine of the most confident pairs
        held out; "fitted": of those fitted to; "pairs": in the dictionary} of every map on the way.
    """

    matrix: np.ndarray
    history: list[dict]


def procrustes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The orthogonal W [D, D] (float64) that brings W x_i nearest to y_i in sum of squares.

    With Y^T X = U S V^T it is U V^T (METHODS 3.8).

    Args:
      x, y: [p, D], row i belongs to row i.

    Raises:
      ValueError: shapes that differ, or p < D: fewer pairs than dimensions leave W undetermined.
    """
    if x.shape != y.shape or x.ndim != 2:
        raise ValueError(f"Procrustes got x {x.shape} and y {y.shape}; wanted [p, D] twice")
    if len(x) < x.shape[1]:
        raise ValueError(
            f"{len(x)} pairs don't determine a rotation in {x.shape[1]} dimensions; "
            "give more sentences, fit without rotation, or on all pairs where only mutual neighbours are taken"
        )
    u, _, v_t = np.linalg.svd(y.astype(np.float64).T @ x.astype(np.float64))
    return u @ v_t


def learn(
    x: np.ndarray,
    y: np.ndarray,
    settings: RotationSettings | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Rotation:
    """Learns the rotation of x into the space of y from vectors that are no translations of each other.

    Of all maps on the way, the identity included, the one whose criterion is highest is returned: the mean cosine of
    the most confident pairs (``csls.dictionary``) among vectors that no map was fitted to.

    Args:
      x, y: float32 [n, D] and [m, D], shifted and scaled, not normalised.
      settings: None takes the defaults.
      say: is told, line by line, how the criterion moves.

    Raises:
      ValueError: shapes that don't match, too few vectors or pairs; adversarial training diverged.
    """
    settings = settings or RotationSettings()
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1]:
        raise ValueError(f"vectors have shapes {x.shape} and {y.shape}; wanted [n, D] and [m, D] of the same D")
    search = _Search(x, y, settings, say)
    search.judge(np.eye(x.shape[1]), "start")
    if settings.method == "adversarial":
        train(search.x, search.y, settings.adversarial, search.judge, say)
    _, _, pairs = search.best
    for turn in range(1, settings.rounds + 1):
        search.judge(procrustes(search.x[pairs.source], search.y[pairs.target]), f"round {turn}")
        pairs = search.pairs
    matrix, stage, _ = search.best
    say(f"kept: {stage}")
    return Rotation(matrix.astype(np.float32), search.history)


class _Search:
    """The maps tried so far.

    Attributes:
      x, y: the vectors to fit to.
      history: see ``Rotation``.
      pairs: the dictionary under the last map.
      best: the map with the highest criterion, its stage and its dictionary.
    """

    def __init__(self, x: np.ndarray, y: np.ndarray, settings: RotationSettings, say: Callable[[str], None]):
        self.settings, self.say, self.history = settings, say, []
        (self.x, self._x_out), (self.y, self._y_out) = (split(side, settings.held_out) for side in (x, y))
        self._unit_y, self._unit_y_out = normalize(self.y), normalize(self._y_out)

    def judge(self, matrix: np.ndarray, stage: str) -> float:
        """Makes the dictionary under ``matrix``, takes note of it and returns its criterion."""
        s = self.settings
        x, x_out = (normalize(side @ matrix.T.astype(np.float32)) for side in (self.x, self._x_out))
        self.pairs, fitted = csls.dictionary(x, self._unit_y, candidates=s.candidates, mutual=s.mutual, k=s.k)
        criterion = csls.dictionary(x_out, self._unit_y_out, k=s.k)[1] if s.held_out else fitted
        if criterion > max((step["criterion"] for step in self.history), default=-np.inf):
            self.best = matrix, stage, self.pairs
        size = len(self.pairs.source)
        self.history.append({"stage": stage, "criterion": criterion, "fitted": fitted, "pairs": size})
        self.say(
            f"{stage}: mean cosine {criterion:.4f} of the most confident pairs held out, {fitted:.4f} of those fitted "
            f"to; {size:,} pairs in the dictionary"
        )
        return criterion


def split(vectors: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """(the rest, ``share`` of the rows spread evenly); all rows twice where the share is 0."""
    if not share:
        return vectors, vectors
    out = np.zeros(len(vectors), bool)
    out[np.linspace(0, len(vectors) - 1, max(1, round(share * len(vectors)))).astype(np.int64)] = True
    return vectors[~out], vectors[out]
