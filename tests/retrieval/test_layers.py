import jax
import numpy as np
import pytest

from vmsst_jax import models, sharding
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.text_encoder import DenseOptions, TextEncoderConfig
from vmsst_jax.retrieval.embedder import Embedder

TEXTS = ["the dog barks", "", "le chien aboie fort " * 5, "dog"] * 2


def make(tiny, **options):
    return Embedder(
        tiny.module, tiny.params, tiny.tokenizer, tiny.languages, **{"embedding": tiny.embedding, **options}
    )


BACKBONE = BertConfig(
    vocab_size=36, embed_dim=16, num_heads=2, mlp_dim=16, num_layers=2, max_positions=20, position_offset=0, pad_id=0,
    pooler=True,
)  # fmt: skip


@pytest.fixture(scope="module")
def bert(tiny):
    """Function (how to pool) -> embedder with a two-layer BERT, a dense layer on top and unit length."""

    def module(**options):
        config = TextEncoderConfig(BACKBONE, dense=(DenseOptions(5),), normalize=True, **options)
        return models.build("encoder", config)

    params = jax.jit(lambda key: models.init_params(module(), key))(jax.random.key(1))
    embedding = {**tiny.embedding, "normalize": True, "prefix": "a big "}

    def make(**options):
        return Embedder(module(**options), params, tiny.tokenizer, tiny.languages, embedding, batch_size=4)

    return make


def states_one_by_one(embedder, text):
    """Every hidden state of one sentence without padding: [num_layers + 1][L, D], and its tokens."""
    row = embedder.tokenizer.encode([embedder.embedding["prefix"] + text], embedder.max_length)[0][0][None]
    states = embedder.module.apply({"params": embedder.params}, row, method="hidden_states")
    return [np.asarray(state[0]) for state in states], row[0]


def test_layers_of_a_sentence_encoder(tiny):
    embedder = make(tiny, batch_size=4)
    found = embedder.encode_layers(TEXTS)
    assert found.shape == (2, len(TEXTS), 16) and found.dtype == np.float32
    for i, text in enumerate(TEXTS[:3]):
        states, _ = states_one_by_one(embedder, text)
        np.testing.assert_allclose(found[:, i], [state.mean(axis=0) for state in states], atol=2e-5)
    # The model's own embedding is its head on the last of them.
    head = np.asarray(tiny.params["semantic_mean"]["kernel"])
    np.testing.assert_allclose(found[-1] @ head, embedder.encode(TEXTS), atol=2e-5)
    assert embedder.counts["sentences"] == 2 * len(TEXTS)


@pytest.mark.parametrize(
    ("options", "pool"),
    [
        ({"pooling": "cls", "layer": 1}, lambda state, tokens: state[0]),
        ({"pooling": "max"}, lambda state, tokens: state.max(axis=0)),
        ({"pool_special": False, "special_ids": (1,)}, lambda state, tokens: state[tokens != 1].mean(axis=0)),
    ],
)
def test_each_is_pooled_as_the_embedder_pools(bert, options, pool):
    embedder = bert(**options)
    found = embedder.encode_layers(TEXTS[:3], language="en")
    assert found.shape == (3, 3, 16)  # without the dense layer
    assert np.abs(np.linalg.norm(found, axis=-1) - 1).min() > 0.05  # nor unit length
    for i, text in enumerate(TEXTS[:3]):
        states, tokens = states_one_by_one(embedder, text)
        np.testing.assert_allclose(found[:, i], [pool(state, tokens) for state in states], atol=2e-5)
    assert embedder.encode(TEXTS[:2]).shape == (2, 5)  # the embedder itself is as it was


def test_no_sentences_and_other_parameters(tiny):
    embedder = make(tiny)
    assert embedder.encode_layers([]).shape == (2, 0, 16)
    table = jax.tree.map(lambda x: 2 * x, tiny.params["token_embedder"])
    doubled = embedder.with_params({**tiny.params, "token_embedder": table})
    np.testing.assert_allclose(doubled.encode_layers(["dog"])[0], 2 * embedder.encode_layers(["dog"])[0], rtol=1e-5)


def test_many_devices_give_the_same(tiny):
    mesh = sharding.make_mesh(data=4, fsdp=2)
    params = jax.device_put(tiny.params, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
    spread = Embedder(tiny.module, params, tiny.tokenizer, tiny.languages, tiny.embedding, mesh=mesh)
    np.testing.assert_allclose(spread.encode_layers(TEXTS), make(tiny).encode_layers(TEXTS), atol=1e-6)


def test_a_pooling_of_the_last_layer_alone(bert):
    with pytest.raises(ValueError, match="'pooler' reads the last hidden state alone"):
        bert(pooling="pooler").encode_layers(["dog"])
