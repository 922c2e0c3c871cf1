"""Random numbers that depend on a place in the data, not on what was drawn before: a saved position is a few integers.

Only raw Philox words and SeedSequence are used: NumPy promises that these never change, unlike its distributions and
``permutation``, which may with a new NumPy version.
"""

import numpy as np

ROUNDS = 6


def draws(seed: int, batch: int, count: int, kind: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The random choices of one batch's examples, keyed by (seed, batch number).

    ``kind`` tells streams of one run apart that draw different things: 0 pairs, 2 documents, 3 blocks of text.

    Returns:
      (uniform float64 [count] in [0, 1), coin int64 [count] of 0 and 1), independent of each other.
    """
    words = np.random.Philox(np.random.SeedSequence(seed, spawn_key=(kind, batch))).random_raw(count)
    return (words >> np.uint64(11)) * 2.0**-53, (words & np.uint64(1)).astype(np.int64)


class Permutation:
    """A random permutation of 0 .. size-1 that is computed where it is asked for and never stored.

    A balanced Feistel network with six keyed rounds permutes the 2^(2h) numbers just above ``size``; results outside
    the range are sent through again until they fall inside, which keeps it a permutation (cycle walking: Black and
    Rogaway, "Ciphers with arbitrary finite domains", 2002). A corpus of a billion pairs so costs no memory and starts,
    or resumes, at once; ``numpy.random.Generator.permutation`` would hold 8 GB and work for minutes at each epoch.
    """

    def __init__(self, size: int, seed: int, cache: int, epoch: int):
        """Prepares the permutation of ``size`` numbers for one epoch of one cache of a stream."""
        half = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
        self.size = size
        self._half, self._mask = np.uint64(half), np.uint64(2**half - 1)
        self._keys = np.random.SeedSequence(seed, spawn_key=(1, cache, epoch)).generate_state(ROUNDS, np.uint64)

    def __call__(self, positions: np.ndarray) -> np.ndarray:
        """The permuted values of ``positions`` (int64 [K], each in 0 .. size-1): int64 [K]."""
        values = self._encipher(np.asarray(positions).astype(np.uint64))
        while (outside := np.flatnonzero(values >= self.size)).size:
            values[outside] = self._encipher(values[outside])
        return values.astype(np.int64)

    def _encipher(self, x: np.ndarray) -> np.ndarray:
        left, right = x >> self._half, x & self._mask
        for key in self._keys:
            left, right = right, left ^ (_mix(right + key) & self._mask)
        return (left << self._half) | right


def _mix(x: np.ndarray) -> np.ndarray:
    """Scrambles uint64 words: the output function of SplitMix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
