"""Noise for denoising auto-encoding: whole words change places, vanish, and are blanked out (METHODS 4.3; XLM's)."""

from __future__ import annotations

import dataclasses

import numpy as np

from vmsst_jax import checks


@dataclasses.dataclass(frozen=True)
class Noise:
    """How much.

    Attributes:
      shuffle: k; words are sorted by their place plus a number drawn from 0 to k, so none moves by more than k places.
      drop: share of the words that are left out; one always stays.
      blank: share of the words that stay whose pieces all become the mask.
    """

    shuffle: float = 3.0
    drop: float = 0.1
    blank: float = 0.1

    def __post_init__(self):
        checks.number("Noise.shuffle", self.shuffle)
        for name in ("drop", "blank"):
            checks.number(f"Noise.{name}", getattr(self, name), below=1)


def disturb(pieces: np.ndarray, starts: np.ndarray, mask_id: int, noise: Noise, uniform: np.ndarray) -> np.ndarray:
    """One sentence with noise: shuffled, then thinned out, then blanked.

    Args:
      pieces: int32 [N], without special tokens.
      starts: bool [N], which of them begin a word; the first does.
      uniform: float64 [3, M] in [0, 1), M at least the number of words: for places, for dropping, for blanking.
    Returns:
      int32 [at most N], at least one word's.
    """
    if not len(pieces):
        return pieces
    word = np.cumsum(starts) - 1
    count = word[-1] + 1
    order = np.argsort(np.arange(count) + noise.shuffle * uniform[0, :count], kind="stable")
    kept = uniform[1, :count] >= noise.drop
    if not kept.any():
        kept[np.argmax(uniform[1, :count])] = True
    blank = uniform[2, :count] < noise.blank
    shown = np.where(blank[word], mask_id, pieces)
    rank = np.empty(count, np.int64)
    rank[order] = np.arange(count)
    places = np.argsort(rank[word], kind="stable")
    return shown[places][kept[word[places]]].astype(np.int32)
