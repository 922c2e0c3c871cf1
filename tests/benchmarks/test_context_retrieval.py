"""Context retrieval against loops over sentences, and as a run's evaluator and report."""

import types

import jax
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.benchmarks.context_retrieval import ContextPool, ContextRetrieval, ContextRetrievalReport
from vmsst_jax.data.document_cache import clean_text
from vmsst_jax.data.languages import Languages
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.text_encoder import TextEncoderConfig


def by_hand(documents, vectors, window):
    """(share found, how many ask) for {text: unit vector}, sentence by sentence."""
    found = []
    for document in documents:
        for i, text in enumerate(document):
            places = [j for j in range(len(document)) if j != i and abs(i - j) <= window and document[j] != text]
            beside = [j for j in places if abs(i - j) == 1]
            if beside:
                best = max(
                    (other for other in vectors if other != text), key=lambda other: vectors[text] @ vectors[other]
                )
                found.append(best in {document[j] for j in places})
    return np.mean(found), len(found)


@pytest.mark.parametrize("window", [1, 2, 4])
def test_equals_a_loop(window):
    rng = np.random.default_rng(window)
    words = [f"w{i}" for i in range(40)]
    documents = [list(rng.choice(words, rng.integers(1, 7), replace=False)) for _ in range(30)]
    pool = ContextPool(documents, window)
    assert pool.texts == list(dict.fromkeys(text for document in documents for text in document))
    vectors = rng.standard_normal((len(pool.texts), 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    table = dict(zip(pool.texts, vectors, strict=True))
    scores = pool.scores(vectors)
    assert (scores["near"], len(pool)) == pytest.approx(by_hand(documents, table, window))
    assert scores["next"] == pytest.approx(by_hand(documents, table, 1)[0])


def test_equal_vectors_of_different_texts():
    pool = ContextPool([["a", "b"], ["c", "d"]], 1)
    same = np.tile(np.array([[1.0, 0.0]], np.float32), (4, 1))
    # Everyone finds the first of the others: a finds b, the others a.
    assert pool.scores(same)["near"] == pytest.approx(2 / 4)
    assert pool.chance() == pytest.approx(1 / 3)


class Letters:
    """<s> 0, padding 1, </s> 2, then a token for each letter."""

    pad_id, vocab_size, sha256 = 1, 40, ""
    prefix_ids, suffix_ids = [0], [2]

    def encode(self, texts, max_length):
        return [np.array([0, *(3 + ord(c) % 30 for c in t[: max_length - 2]), 2], np.int32) for t in texts], 0

    def encode_flat(self, texts, max_length):
        rows, _ = self.encode(texts, max_length)
        return np.concatenate(rows), np.array([len(row) for row in rows]), np.zeros(len(rows), bool)


DOCUMENTS = [
    {"text": "abcdef\nabcdeg\nabcdef\nxy\nabcdeh", "lang": "en", "document_id": 1},
    {"text": "uvwxyz\nuvwxyy", "lang": "en", "document_id": 2},
    {"text": "klmnop\nklmnoo\nqrstuv", "lang": "de", "document_id": 3},
    {"text": "alone", "lang": "fr", "document_id": 4},
]


@pytest.fixture(scope="module")
def run():
    bert = BertConfig(vocab_size=40, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=1, max_positions=20)
    module = models.build("encoder", TextEncoderConfig(bert, pooling="mean"))
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))
    embedding = {"pooling": "mean", "layer": None, "normalize": False, "prefix": "", "max_length": 16}
    return types.SimpleNamespace(
        module=module,
        tokenizer=Letters(),
        languages=Languages(["en", "de", "fr"]),
        mesh=None,
        embedding=embedding,
        untrained=lambda: params,
    )


def held_out(documents):
    def cleaned(tokenizer, languages):
        return clean_text(iter(documents), tokenizer, languages)

    return types.SimpleNamespace(
        task="toy", split="validation", window=2, documents=types.SimpleNamespace(cleaned=cleaned)
    )


def test_evaluator_and_report(run):
    retrieval = ContextRetrieval(held_out(DOCUMENTS))
    pools, _ = retrieval.prepare(run)
    # Repetitions, short sentences and documents of one sentence are left out, as in training.
    assert {code: pool.texts for code, pool in pools.items()} == {
        "de": ["klmnop", "klmnoo", "qrstuv"],
        "en": ["abcdef", "abcdeg", "abcdeh", "uvwxyz", "uvwxyy"],
    }
    state = types.SimpleNamespace(params=run.untrained())
    scores = retrieval(run, state, 3)
    assert set(scores) == {"context_near", "context_next"} and 0 <= scores["context_near"] <= 1
    report = ContextRetrievalReport(retrieval)(run, state)
    assert report.scores["context_near"] == pytest.approx(scores["context_near"])
    assert report.scores["untrained_context_near"] == pytest.approx(scores["context_near"])
    assert "mean over 2 languages (pools of 4 sentences on average)" in report.text


def test_nothing_to_ask(run):
    with pytest.raises(ValueError, match="documents of 'toy', split 'validation', cleaning leaves none"):
        ContextRetrieval(held_out([DOCUMENTS[3]])).prepare(run)
    with pytest.raises(ValueError, match="ContextRetrieval.batch_size is 0"):
        ContextRetrieval(held_out(DOCUMENTS), 0)
