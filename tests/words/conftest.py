"""Two languages that are one and the same space, turned and blurred, whose dictionary is known."""

from types import SimpleNamespace

import numpy as np
import pytest


def languages(words=300, dim=12, noise=0.5, seed=0, unlike=False):
    """Vectors as word2vec makes them: clusters of unequal sizes off the origin, directions of falling variance.

    Word i of one language is word ``right[i]`` of the other, whose ranks are similar. With ``unlike`` the two have
    nothing in common.
    """
    rng = np.random.default_rng(seed)

    def space():
        share = 1 / np.arange(1, 16)  # Zipfian
        centres = 1.5 * rng.normal(size=(15, dim))
        vectors = centres[rng.choice(15, words, p=share / share.sum())] + rng.normal(size=(words, dim))
        return vectors * np.linspace(1.6, 0.5, dim) + rng.normal(size=dim)

    one = space()
    ranks = np.argsort(np.arange(words) + rng.normal(size=words) * 3)  # other[j] is one[ranks[j]]
    turn, _ = np.linalg.qr(rng.normal(size=(dim, dim)))
    other = space() if unlike else one[ranks] @ turn + noise * rng.normal(size=(words, dim))
    return SimpleNamespace(
        one=one.astype(np.float32), other=other.astype(np.float32), right=np.argsort(ranks), words=words
    )


@pytest.fixture(scope="session")
def make_languages():
    """The function ``languages``."""
    return languages


@pytest.fixture(scope="session")
def pair():
    """Languages that translate each other."""
    return languages()


@pytest.fixture(scope="session")
def easy():
    """The same, smaller and less blurred, for what is not about learning."""
    return languages(words=120, noise=0.2, dim=8)
