"""Stand-ins for models, which remember what they were asked."""

import zlib
from types import SimpleNamespace

import numpy as np
import pytest

from vmsst_jax.retrieval.vector_checks import BadVector


class TextVectors:
    """Embeds a text by ``vectors`` where it is listed, else by random numbers that depend on the text alone."""

    dim, batch_size = 6, 1
    counts = {"sentences": 0, "empty": 0, "truncated": 0}

    def __init__(self, vectors=(), codes=("en", "de"), layers=None):
        self.vectors, self.layers, self.asked = dict(vectors), layers, []
        self.languages = SimpleNamespace(codes=codes)

    def vector(self, text):
        if text in self.vectors:
            return self.vectors[text]
        return np.random.default_rng(zlib.crc32(text.encode())).normal(size=self.dim)

    def encode(self, texts, *, language=None, batch_size=None, normalize=False, progress=False):
        self.asked += [(language, text) for text in texts]
        x = np.array([self.vector(text) for text in texts], np.float32)
        return x / np.linalg.norm(x, axis=1, keepdims=True) if normalize else x

    def encode_layers(self, texts, *, language=None, progress=False):
        """Layer i of ``layers`` is a function from the text to its vector."""
        if self.layers is None:
            raise ValueError("a table of texts has no layers")
        return np.array([[layer(text) for text in texts] for layer in self.layers], np.float32)

    def describe(self):
        return {"layer": 3, "pooling": "mean", "step": 1}

    def fingerprint(self):
        return "abc"


@pytest.fixture(scope="session")
def text_vectors():
    """The class ``TextVectors``."""
    return TextVectors


class Letters:
    """Embeds a text as how often each of a to z is in it; ``asked`` keeps what it was asked, with the language."""

    dim, batch_size, max_length = 26, 4, None

    def __init__(self, prefix=""):
        self.embedding = {"pooling": None, "layer": None, "normalize": False, "prefix": prefix}
        self.languages = SimpleNamespace(codes=())
        self.counts = {"sentences": 0, "empty": 0, "truncated": 0}
        self.asked = []

    def encode(self, texts, *, language=None, batch_size=None, normalize=False, progress=False):
        self.asked += [(language, self.embedding["prefix"] + text) for text in texts]
        counts = [[text.lower().count(letter) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]
        x = np.array(counts, np.float32).reshape(-1, self.dim)
        return x / np.linalg.norm(x, axis=1, keepdims=True) if normalize else x

    def without_prefix(self):
        bare = type(self)()
        bare.counts, bare.asked = self.counts, self.asked
        return bare

    def describe(self):
        return {"kind": "letters"}

    def fingerprint(self):
        return f"letters {self.embedding['prefix']}"


class Broken(Letters):
    """Has no vector for texts that hold "zz"."""

    def encode(self, texts, **options):
        for row, text in enumerate(texts):
            if "zz" in text:
                raise BadVector("no vector", row)
        return super().encode(texts, **options)


@pytest.fixture(scope="session")
def broken():
    """The class ``Broken``."""
    return Broken


@pytest.fixture(scope="session")
def letters():
    """The class ``Letters``."""
    return Letters
