"""Two languages' word vectors in one space without translations, as VecMap finds it (Artetxe, Labaka & Agirre 2018, "A
robust self-learning method for fully unsupervised cross-lingual mappings of word embeddings").

A first dictionary comes from how a word's similarities to all words of its own language are distributed, which is alike
for translations. Self-learning then takes turns: the orthogonal map that fits the dictionary, a new dictionary by CSLS
under that map, of whose similarities a growing share is looked at. The last map is symmetric: both sides are whitened,
turned towards each other, weighted by how well each direction agrees, and de-whitened.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from vmsst_jax import checks
from vmsst_jax.retrieval import csls, tiles
from vmsst_jax.retrieval.neighbours import two_way
from vmsst_jax.retrieval.progress import SECONDS_BETWEEN_LINES

STARTS = ("similarities", "identical", "dictionary")
# Rows of similarities that are held at a time.
BLOCK = 256


@dataclasses.dataclass(frozen=True)
class MappingSettings:
    """How a mapping is learned; the values are VecMap's.

    Attributes:
      start: the first dictionary: "similarities", from the distributions of similarities; "identical", of words spelled
        alike; "dictionary", given.
      start_words: the most frequent words whose similarities are compared.
      words: the most frequent words among which dictionaries are made.
      k: neighbours in CSLS.
      keep: share of similarities that the first rounds look at.
      growth: of that share, each time that ``patience`` rounds have brought no dictionary better by ``threshold``.
      patience, threshold: see ``growth``; with all similarities looked at, they end the learning.
      seed: of what is looked at.
      attempts: learnings with seeds ``seed``, ``seed + 1`` and so on, of which that with the highest objective counts;
        more than one is ours.
    """

    start: str = "similarities"
    start_words: int = 4_000
    words: int = 20_000
    k: int = csls.K
    keep: float = 0.1
    growth: float = 2.0
    patience: int = 50
    threshold: float = 1e-6
    seed: int = 0
    attempts: int = 1

    def __post_init__(self):
        if self.start not in STARTS:
            raise ValueError(f"the start is {self.start!r}; use one of {', '.join(STARTS)}")
        for name in ("start_words", "words", "k", "patience", "attempts"):
            checks.whole(f"MappingSettings.{name}", getattr(self, name))
        checks.whole("MappingSettings.seed", self.seed, 0)
        for name in ("keep", "threshold"):
            checks.positive(f"MappingSettings.{name}", getattr(self, name))
        if self.keep > 1 or self.growth <= 1:
            raise ValueError(f"keep is {self.keep} and growth {self.growth}; wanted at most 1, and more than 1")


class Round(NamedTuple):
    """Where self-learning stands.

    Attributes:
      source, target: int64 [p], rows of the two sides that translate each other.
      done: rounds so far.
      keep: share of similarities looked at.
      best: highest objective so far: the mean cosine of every word with its nearest on the other side.
      best_at: the round that reached it, or that ``keep`` grew in.
      objective: of the last round.
    """

    source: np.ndarray
    target: np.ndarray
    done: int = 0
    keep: float = 0.1
    best: float = -np.inf
    best_at: int = 0
    objective: float = -np.inf


def normalized(vectors: np.ndarray) -> np.ndarray:
    """Vectors of unit length, centred dimension by dimension, and again of unit length: [n, D] -> float32 [n, D]."""
    unit = _unit(np.asarray(vectors, np.float64))
    return _unit(unit - unit.mean(axis=0)).astype(np.float32)


def _unit(x: np.ndarray) -> np.ndarray:
    lengths = np.sqrt(np.einsum("nd,nd->n", x, x))
    if not lengths.all():
        raise ValueError(
            f"row {int(np.argmin(lengths))} of the word vectors is nothing but zeros, maybe after centring; are all "
            "vectors the same?"
        )
    return x / lengths[:, None]


def similarity_dictionary(x: np.ndarray, z: np.ndarray, settings: MappingSettings) -> tuple[np.ndarray, np.ndarray]:
    """The first dictionary, from the sorted similarities of every word to the words of its own language.

    Similarities are those of the square root of X X^T (section 3.2 of the paper).

    Args:
      x, z: [n, D] and [m, D], ``normalized``; their first rows are the most frequent words.

    Returns:
      Rows (source, target) of pairs: for every one of the compared words its nearest, both ways.
    """
    size = min(len(x), len(z), settings.start_words)
    shapes = []
    for side in (x[:size], z[:size]):
        u, s, _ = np.linalg.svd(side.astype(np.float64), full_matrices=False)
        shapes.append(normalized(np.sort((u * s) @ u.T, axis=1)))
    alike = shapes[0] @ shapes[1].T
    k = min(settings.k, size)
    near = [np.partition(side, size - k, axis=1)[:, size - k :].mean(axis=1) for side in (alike, alike.T)]
    scores = alike - near[0][:, None] / 2 - near[1][None] / 2
    rows = np.arange(size)
    return np.concatenate([rows, scores.argmax(axis=0)]), np.concatenate([scores.argmax(axis=1), rows])


def orthogonal(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    """The orthogonal W [D, D] (float64) that brings x_i W nearest to z_i in sum of squares; any number of pairs."""
    u, _, v_t = np.linalg.svd(x.astype(np.float64).T @ z.astype(np.float64))
    return u @ v_t


def symmetric(x: np.ndarray, z: np.ndarray, weight: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Maps [D, D] (float64) of both sides into one space, where direction i is weighted by (s_i)^weight.

    Of x: whitening A, the rotation U, the weights, and de-whitening in the rotated space, U^T A^-1 U; of z likewise,
    where U S V^T is the cross-covariance of the whitened pairs (section 3.4; Artetxe et al. 2018a).

    Args:
      x, z: [p, D], row i belongs to row i.

    Raises:
      ValueError: the pairs don't span the D dimensions.
    """
    x, z = x.astype(np.float64), z.astype(np.float64)
    whitenings = []
    for side in (x, z):
        _, s, v_t = np.linalg.svd(side, full_matrices=False)
        if len(s) < side.shape[1] or s[-1] < 1e-8 * s[0]:
            raise ValueError(
                f"a dictionary of {len(side)} pairs does not span {side.shape[1]} dimensions, so it can't be "
                "re-weighted; give vectors of fewer dimensions, or map without re-weighting"
            )
        whitenings.append((v_t.T / s) @ v_t)
    u, s, v_t = np.linalg.svd((x @ whitenings[0]).T @ (z @ whitenings[1]))
    maps = []
    for whitening, turn in zip(whitenings, (u, v_t.T), strict=True):
        maps.append(((whitening @ turn) * s**weight) @ turn.T @ np.linalg.inv(whitening) @ turn)
    return maps[0], maps[1]


def learn(
    x: np.ndarray,
    z: np.ndarray,
    state: Round,
    settings: MappingSettings,
    say: Callable[[str], None] = lambda line: None,
    save: Callable[[Round], None] = lambda state: None,
) -> Round:
    """Self-learning from the dictionary in ``state`` to its end, which has the last one.

    Args:
      x, z: float32 [n, D] and [m, D], ``normalized``, of the words among which dictionaries are made.
      state: a first dictionary (``done`` 0), or what ``save`` was given: the rest is the same then.
      settings: see there.
      say: told how the objective moves.
      save: called after every round.

    Raises:
      ValueError: fewer words than CSLS has neighbours.
    """
    if min(len(x), len(z)) < settings.k:
        raise ValueError(f"CSLS compares with {settings.k} neighbours, but the sides have {len(x)} and {len(z)} words")
    told = time.monotonic()
    while True:
        if state.done - state.best_at > settings.patience:
            if state.keep >= 1:
                say(f"learned: objective {state.objective:.4f} after {state.done} rounds")
                return state
            state = state._replace(keep=min(1.0, settings.growth * state.keep), best_at=state.done)
            say(f"round {state.done}: best objective {state.best:.4f}, now {state.keep:.0%} of the similarities")
        turned = (x @ orthogonal(x[state.source], z[state.target])).astype(np.float32)
        source, target, objective = dictionary(turned, z, state.keep, state.done, settings)
        best, best_at = state.best, state.best_at
        if objective - best >= settings.threshold:
            best, best_at = objective, state.done
        state = Round(source, target, state.done + 1, state.keep, best, best_at, objective)
        save(state)
        if time.monotonic() - told >= SECONDS_BETWEEN_LINES:
            told = time.monotonic()
            say(f"round {state.done}: objective {objective:.4f}, best {best:.4f} in round {best_at + 1}")


def dictionary(
    x: np.ndarray, z: np.ndarray, keep: float, number: int, settings: MappingSettings
) -> tuple[np.ndarray, np.ndarray, float]:
    """Each side's nearest words on the other by CSLS, where a similarity is looked at with probability ``keep``.

    Those not looked at count as 0, as in the paper.

    Args:
      x, z: float32 [n, D] and [m, D], rows of unit length in one space.
      keep: 1 looks at all.
      number: of the round; with the seed it decides which similarities are looked at.

    Returns:
      (source [n + m], target [n + m], objective): every row of x and its best in z, then every row of z and its best;
      the mean over both sides of the highest cosine, of all similarities.
    """
    near = two_way(x, z, settings.k)
    objective = (near.scores_xy[:, 0].mean(dtype=np.float64) + near.scores_yx[:, 0].mean(dtype=np.float64)) / 2
    around = [scores.mean(axis=1) for scores in (near.scores_xy, near.scores_yx)]
    rows = tiles.rounded_up(len(x), BLOCK)
    forth, back = choose(
        tiles.rows_of(x, 0, rows),
        z,
        np.pad(around[0], (0, rows - len(x))),
        around[1],
        len(x),
        jax.random.fold_in(jax.random.key(settings.seed), number),
        keep,
        every=keep >= 1,
    )
    source = np.concatenate([np.arange(len(x)), np.asarray(back)]).astype(np.int64)
    target = np.concatenate([np.asarray(forth)[: len(x)], np.arange(len(z))]).astype(np.int64)
    return source, target, float(objective)


@functools.partial(jax.jit, static_argnames="every")
def choose(x, z, around_x, around_z, n, key, keep, every: bool):
    """Of every row of x its best row of z, and the other way round: (int32 [r], int32 [m]).

    Args:
      x: [r, D], r a multiple of ``BLOCK``; rows from ``n`` on are padding.
      z: [m, D].
      around_x, around_z: [r] and [m], mean cosine with the k nearest of the other side.
      key, keep: which similarities are looked at; with ``every``, all of them.
    """
    m = len(z)

    def step(carry, part):
        best, best_row = carry
        rows, around, first = part
        cosines = tiles.products(rows, z)
        forth, back = cosines - around_z / 2, cosines - around[:, None] / 2
        if not every:
            # 32 random bits make two decisions of 16.
            bits = jax.random.bits(jax.random.fold_in(key, first), (BLOCK, m), jnp.uint32)
            limit = jnp.round(keep * 2**16).astype(jnp.uint32)
            forth = jnp.where((bits & 0xFFFF) < limit, forth, 0)
            back = jnp.where((bits >> 16) < limit, back, 0)
        back = jnp.where((first + jnp.arange(BLOCK) < n)[:, None], back, -jnp.inf)
        row = jnp.argmax(back, axis=0)
        found = jnp.take_along_axis(back, row[None], axis=0)[0]
        better = found > best
        carry = jnp.where(better, found, best), jnp.where(better, first + row, best_row).astype(jnp.int32)
        return carry, jnp.argmax(forth, axis=1).astype(jnp.int32)

    blocks = (x.reshape(-1, BLOCK, x.shape[1]), around_x.reshape(-1, BLOCK), jnp.arange(0, len(x), BLOCK))
    (_, back), forth = jax.lax.scan(step, (jnp.full(m, -jnp.inf), jnp.zeros(m, jnp.int32)), blocks)
    return forth.reshape(-1), back
