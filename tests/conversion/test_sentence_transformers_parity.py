"""A sentence-transformers folder run by that library and read by us, through the one call for every source."""

import json

import numpy as np
import pytest

from vmsst_jax.retrieval import cache, embedders

pytestmark = pytest.mark.parity

TEXTS = ["one two three", "ten", "nine eight seven six five four three two one", "", "two two"]


@pytest.fixture
def folder(tmp_path, bert_folder):
    """A model of the library: the small random BERT, means, unit length, 8 tokens at most, a prompt before all."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer

    bert = Transformer(str(bert_folder), max_seq_length=8)
    modules = [bert, Pooling(16, "mean"), Normalize()]
    model = SentenceTransformer(modules=modules, prompts={"q": "one "}, default_prompt_name="q", device="cpu")
    model.save(str(tmp_path / "sentence_transformers"))
    return tmp_path / "sentence_transformers"


def test_the_library_and_we_give_the_same_vectors(folder, tmp_path):
    theirs = embedders.load(sentence_transformers=str(folder), trained_languages=["en"])
    ours = embedders.load(checkpoint=folder, cache_dir=tmp_path / "cache")
    found = theirs.encode(TEXTS)
    np.testing.assert_allclose(found, ours.encode(TEXTS), atol=2e-6)
    assert theirs.dim == 16 and theirs.languages.codes == ("en",) and theirs.max_length == 8
    assert theirs.counts == {"sentences": 5, "empty": 1, "truncated": 1} == ours.counts
    described = theirs.describe()
    assert (described["pooling"], described["prefix"], described["model_normalizes"]) == ("mean", "one ", True)
    assert json.dumps(described)
    with pytest.raises(ValueError, match="sentence_transformers gives one vector per sentence.*as checkpoint"):
        theirs.encode_layers(TEXTS)


def test_what_makes_another_model(folder):
    def load(**options):
        return embedders.load(sentence_transformers=str(folder), **options)

    prints = [load(**o).fingerprint() for o in ({}, {"prefix": ""}, {"max_length": 5}, {"batch_size": 2})]
    assert prints[3] == prints[0] and len(set(prints)) == 3
    assert not np.allclose(load(prefix="").encode(TEXTS), load().encode(TEXTS), atol=1e-3)


def test_kept_vectors_know_what_was_truncated(folder, tmp_path):
    for _ in range(2):
        kept = cache.cached(embedders.load(sentence_transformers=str(folder)), tmp_path / "kept")
        kept.encode(TEXTS)
        assert kept.counts["truncated"] == 1
    assert kept.computed == 0


def test_no_such_model():
    with pytest.raises(ValueError, match="sentence-transformers can't load ./no/such/model"):
        embedders.load(sentence_transformers="./no/such/model")
