"""A small made-up parallel corpus of four languages and a tokenizer trained on it."""

import random

import pytest

from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer import Tokenizer

CODES = ("cs", "de", "el", "en")


def make_examples(count, seed=0):
    """Pairs of a language with English, 0 to 20 words a side, every source text told apart by its number."""
    draw = random.Random(seed)
    words = ["".join(draw.choices("abdegiklmnorstuvz", k=draw.randint(2, 7))) for _ in range(300)]
    return [
        {
            "source": " ".join([f"nr{i}", *draw.choices(words, k=draw.randint(0, 20))]),
            "target": " ".join(draw.choices(words, k=draw.randint(0, 20))),
            "source_lang": CODES[i % 3],
            "target_lang": "en",
            "pair_id": 10**12 + 7 * i,  # beyond 32 bits, and not the place in the corpus
        }
        for i in range(count)
    ]


@pytest.fixture(scope="session")
def examples():
    return make_examples(500)


@pytest.fixture(scope="session")
def languages():
    return Languages(CODES)


@pytest.fixture(scope="session")
def tokenizer(examples):
    return Tokenizer.train([e[side] for e in examples for side in ("source", "target")], 400)
