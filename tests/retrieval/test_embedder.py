import logging

import jax
import numpy as np
import pytest

import vmsst_jax
from vmsst_jax import models, sharding
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.text_encoder import TextEncoderConfig
from vmsst_jax.retrieval.embedder import Embedder


def make(tiny, **options):
    options = {"embedding": tiny.embedding, "params": tiny.params, **options}
    return Embedder(tiny.module, options.pop("params"), tiny.tokenizer, tiny.languages, batch_size=8, **options)


def one_by_one(tiny, texts, max_length):
    """Each sentence alone, without padding."""
    rows = tiny.tokenizer.encode(texts, max_length)[0]
    return np.concatenate([tiny.module.apply({"params": tiny.params}, r[None], method="embed") for r in rows])


TEXTS = ["the dog barks", "", "a big house", "le chien aboie fort " * 6, "dog", "der hund", "bellt laut " * 3] * 3


def test_equals_each_sentence_alone(tiny):
    embedder = make(tiny)
    found = embedder.encode(TEXTS)
    assert found.shape == (21, embedder.dim) == (21, 16) and found.dtype == np.float32
    np.testing.assert_allclose(found, one_by_one(tiny, TEXTS, 20), atol=2e-5)


def test_neighbours_do_not_change_an_embedding(tiny):
    embedder = make(tiny)
    whole = embedder.encode(TEXTS)
    order = np.random.default_rng(0).permutation(len(TEXTS))
    np.testing.assert_allclose(embedder.encode([TEXTS[i] for i in order]), whole[order], atol=1e-6)
    np.testing.assert_allclose(embedder.encode(TEXTS[3:5]), whole[3:5], atol=1e-6)
    np.testing.assert_allclose(embedder.encode(TEXTS, batch_size=3), whole, atol=1e-6)


def test_few_shapes(tiny):
    embedder = make(tiny)
    shapes = set()
    run = embedder._embed
    embedder._embed = lambda params, tokens: shapes.add(tokens.shape) or run(params, tokens)
    embedder.encode(TEXTS)
    assert embedder.widths == (8, 12, 16, 20)
    lengths = [len(ids) for ids in tiny.tokenizer.encode(TEXTS, 20)[0]]
    assert shapes == {(8, min(w for w in embedder.widths if w >= n)) for n in lengths}
    shapes.clear()
    embedder.encode(["dog"])
    assert shapes == {(1, 8)}


def test_counts_and_reports_once(tiny, caplog):
    embedder = make(tiny)
    with caplog.at_level(logging.WARNING):
        embedder.encode(TEXTS)
        embedder.encode(["   ", "dog"])
    too_long = sum(len(row) > 20 for row in tiny.tokenizer.encode(TEXTS, 1000)[0])
    assert too_long >= 3
    assert embedder.counts == {"sentences": 23, "empty": 4, "truncated": too_long}
    assert sorted(r.message.split()[-1] for r in caplog.records) == ["alone", "truncated"]


def test_without_its_prefix(tiny):
    prefixed, plain = make(tiny, embedding={**tiny.embedding, "prefix": "the dog "}), make(tiny)
    bare = prefixed.without_prefix()
    np.testing.assert_array_equal(bare.encode(["barks"]), plain.encode(["barks"]))
    assert bare.fingerprint() == plain.fingerprint() != prefixed.fingerprint()
    assert prefixed.embedding["prefix"] == "the dog " and prefixed.counts["sentences"] == 1


def test_prefix_and_normalize(tiny):
    prefixed = make(tiny, embedding={**tiny.embedding, "prefix": "the dog ", "normalize": True})
    plain = make(tiny)
    expected = plain.encode(["the dog barks"])[0]
    np.testing.assert_allclose(prefixed.encode(["barks"])[0], expected / np.linalg.norm(expected), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(plain.encode(TEXTS, normalize=True), axis=1), 1, atol=1e-6)


def test_other_parameters_share_the_compiled_program(tiny):
    embedder = make(tiny)
    before = embedder.encode(["dog"])
    compiled = embedder._embed._cache_size()
    other = embedder.with_params(jax.tree.map(lambda x: -2 * x, tiny.params))
    assert np.abs(other.encode(["dog"]) - before).max() > 0.1
    assert other._embed._cache_size() == compiled
    np.testing.assert_array_equal(embedder.encode(["dog"]), before)
    assert other.fingerprint() != embedder.fingerprint() == make(tiny).fingerprint()


def test_many_devices_give_the_same(tiny):
    mesh = sharding.make_mesh(data=4, fsdp=2)
    params = jax.device_put(tiny.params, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
    np.testing.assert_allclose(make(tiny, params=params, mesh=mesh).encode(TEXTS), make(tiny).encode(TEXTS), atol=1e-6)


class Letters:
    """Tokenizer of XLM-R's kind: <s> = 0, padding = 1, </s> = 2, then one token per letter."""

    pad_id, sha256 = 1, ""

    def encode(self, texts, max_length):
        rows = [[0, *(3 + ord(c) % 30 for c in t)][: max_length - 1] + [2] for t in texts]
        return [np.array(row, np.int32) for row in rows], sum(len(t) + 2 > max_length for t in texts)


def test_padding_is_the_tokenizers(tiny):
    backbone = BertConfig(vocab_size=33, embed_dim=16, num_heads=2, mlp_dim=16, num_layers=1, max_positions=22)
    module = models.build("encoder", TextEncoderConfig(backbone))
    params = models.init_params(module, jax.random.key(0))
    embedder = Embedder(module, params, Letters(), tiny.languages, tiny.embedding, batch_size=8)
    alone = [
        module.apply({"params": params}, row[None], method="embed")[0] for row in Letters().encode(TEXTS[:7], 20)[0]
    ]
    np.testing.assert_allclose(embedder.encode(TEXTS[:7]), alone, atol=2e-6)
    with pytest.raises(ValueError, match="the tokenizer pads with 0, the model with 1"):
        Embedder(module, params, tiny.tokenizer, tiny.languages, tiny.embedding)
    with pytest.raises(ValueError, match="rows of 21 tokens, but the position table serves 20"):
        Embedder(module, params, Letters(), tiny.languages, tiny.embedding, max_length=21)


def test_edges(tiny):
    embedder = make(tiny)
    assert embedder.encode([]).shape == (0, 16)
    with pytest.raises(ValueError, match="single string"):
        embedder.encode("dog")
    with pytest.raises(ValueError, match="max_length is 1"):
        make(tiny, max_length=1)
    broken = embedder.with_params(jax.tree.map(lambda x: x * np.nan, tiny.params))
    with pytest.raises(ValueError, match="the vector of 'dog' is not finite"):
        broken.encode(["dog"])


def test_load_from_a_model_directory(tiny, model_dir):
    last, third = vmsst_jax.load(model_dir, batch_size=8), vmsst_jax.load(model_dir / "checkpoints" / "3", batch_size=8)
    expected = make(tiny).encode(TEXTS)
    np.testing.assert_allclose(third.encode(TEXTS), expected, atol=1e-6)
    assert np.abs(last.encode(TEXTS) - expected).max() > 0.1
    assert (last.source["step"], third.source["step"]) == (7, 3)
    about = vmsst_jax.load(model_dir, max_length=12).describe()
    assert about["max_length"] == 12 and about["pooling"] == "mean" and about["layer"] is None
    assert about["tokenizer_sha256"] == tiny.tokenizer.sha256 and about["kind"] == "contrastive"


@pytest.mark.parametrize("bad", [None, b"dog", 3, "half \ud800"])
def test_what_is_no_text_is_named(model_dir, bad):
    with pytest.raises(ValueError, match="sentence 1 "):
        vmsst_jax.load(model_dir).encode(["dog", bad])
