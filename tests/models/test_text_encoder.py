"""The model kind "encoder": backbone, pooling, dense layers, unit length."""

import dataclasses
import json

import jax
import numpy as np
import pytest

from vmsst_jax import models, sharding
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.t5 import T5Config
from vmsst_jax.models.text_encoder import DenseOptions, TextEncoder, TextEncoderConfig

BERT = BertConfig(vocab_size=40, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=2, max_positions=12, pooler=True)
T5 = T5Config(vocab_size=40, embed_dim=16, num_heads=2, head_dim=8, mlp_dim=24, encoder_layers=2)
TOKENS = np.array([[0, 9, 8, 7, 6, 2], [0, 5, 2, 1, 1, 1]], np.int32)  # <s> ... </s>, 1 = padding
DENSE = (DenseOptions(8, True, "tanh"), DenseOptions(4, False, "identity"))


def initialised(config):
    module = TextEncoder(config)
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))
    # Zeros (biases) would hide what is done with them.
    noise = iter(jax.random.split(jax.random.key(1), len(jax.tree.leaves(params))))
    return module, jax.tree.map(lambda x: x + 0.1 * jax.random.normal(next(noise), x.shape), params)


@pytest.fixture(scope="module")
def plain():
    return initialised(TextEncoderConfig(BERT))


def run(module, params, tokens=TOKENS, method="embed"):
    return module.apply({"params": params}, tokens, method=method)


def test_padding_and_pooling(plain):
    module, params = plain
    assert module.pad_id == 1
    states = run(module, params, method="hidden_states")
    assert len(states) == 3
    found = run(module, params)
    assert found.shape == (2, 16) and found.dtype == np.float32
    np.testing.assert_allclose(found[0], states[-1][0].mean(0), atol=1e-6)
    np.testing.assert_allclose(found[1], states[-1][1, :3].mean(0), atol=1e-6)
    np.testing.assert_allclose(found[1:], run(module, params, TOKENS[1:, :3]), atol=1e-6)


@pytest.mark.parametrize(
    "options, by_hand",
    [
        ({"layer": 1}, lambda s, p: s[1][1, :3].mean(0)),
        ({"layer": 0, "pooling": "max"}, lambda s, p: s[0][1, :3].max(0)),
        ({"pool_special": False, "special_ids": (0, 2)}, lambda s, p: s[2][1, 1]),
        ({"pooling": "cls"}, lambda s, p: s[2][1, 0]),
        ({"pooling": "pooler"}, lambda s, p: np.tanh(s[2][1, 0] @ p["pooler"]["kernel"] + p["pooler"]["bias"])),
        ({"pooling": "last"}, lambda s, p: s[2][1, 2]),
        ({"normalize": True}, lambda s, p: (m := s[2][1, :3].mean(0)) / np.linalg.norm(m)),
    ],
)
def test_options(plain, options, by_hand):
    module, params = plain
    states = [np.asarray(s) for s in run(module, params, method="hidden_states")]
    other = TextEncoder(dataclasses.replace(module.config, **options))
    np.testing.assert_allclose(run(other, params)[1], by_hand(states, params["backbone"]), atol=1e-5)


def test_dense_layers():
    module, params = initialised(TextEncoderConfig(BERT, dense=DENSE))
    backbone = TextEncoder(TextEncoderConfig(BERT))
    pooled = run(backbone, {"backbone": params["backbone"]})
    first, second = params["dense_0"]["linear"], params["dense_1"]["linear"]
    assert set(second) == {"kernel"}
    expected = np.tanh(pooled @ first["kernel"] + first["bias"]) @ second["kernel"]
    np.testing.assert_allclose(run(module, params), expected, atol=1e-5)


def test_every_layer_pooled_in_one_pass(plain):
    module, params = plain

    def sweep(module, tokens):
        return [module.pool(hidden, tokens) for hidden in module.hidden_states(tokens)]

    pooled = run(module, params, method=sweep)
    for layer, vectors in enumerate(pooled):
        one = TextEncoder(dataclasses.replace(module.config, layer=layer))
        np.testing.assert_allclose(vectors, run(one, params), atol=1e-6)


def test_t5_backbone():
    module, params = initialised(TextEncoderConfig(T5, layer=2, dense=DENSE[1:]))
    assert module.pad_id == 0 and set(params["backbone"]) == {"token_embedder", "encoder"}
    tokens = np.array([[9, 8, 1, 0], [9, 8, 7, 1]])
    np.testing.assert_allclose(run(module, params, tokens)[:1], run(module, params, tokens[:1, :3]), atol=1e-5)
    last = TextEncoder(dataclasses.replace(module.config, layer=None))
    np.testing.assert_array_equal(run(last, params, tokens), run(module, params, tokens))


@pytest.mark.parametrize("backbone", [BERT, T5])
def test_json_there_and_back(backbone):
    config = TextEncoderConfig(backbone, layer=1, pool_special=False, special_ids=(0, 2), dense=DENSE, normalize=True)
    module = TextEncoder(config)
    described = json.loads(json.dumps(models.describe(module)))
    assert described["kind"] == "encoder" and models.build(**described) == module
    assert models.build("encoder", config) == module


@pytest.mark.parametrize("backbone", [dataclasses.replace(BERT, mlm_head="dense", scan_layers=True), T5])
def test_every_parameter_has_a_place_on_a_mesh(backbone):
    params = models.abstract_params(TextEncoder(TextEncoderConfig(backbone, dense=DENSE)))
    mesh = sharding.make_mesh(2, 2, 2)
    specs = {
        sharding.path_of(path): sharding.parameter_spec(sharding.path_of(path), leaf.shape, mesh)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }
    assert any("fsdp" in spec and "model" in spec for spec in specs.values())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"pooling": "median"}, "pooling is 'median'"),
        ({"layer": 3}, "layer is 3; this backbone has 0 .embeddings. to 2"),
        ({"backbone": T5, "pooling": "pooler"}, "needs a backbone with a pooler"),
        ({"pooling": "pooler", "layer": 1}, "its last layer"),
        ({"pool_special": False}, "special_ids names no token"),
    ],
)
def test_bad_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        TextEncoderConfig(**{"backbone": BERT, **options})


def test_bad_json_is_named():
    with pytest.raises(ValueError, match="backbone is 'rnn'"):
        models.build("encoder", {"backbone": "rnn"})
    with pytest.raises(ValueError, match="dense activation is 'swish'"):
        DenseOptions(4, activation="swish")
