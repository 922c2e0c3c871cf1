"""DPR's two towers in training: the same loss on every mesh, in chunks too, and where they start from."""

import functools
import types

import jax
import numpy as np
import optax
import pytest

from vmsst_jax import models, sharding
from vmsst_jax.data.languages import Languages
from vmsst_jax.interop import trees
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.ccp import CcpConfig
from vmsst_jax.models.dual_encoder import DualEncoderConfig
from vmsst_jax.models.text_encoder import TextEncoderConfig
from vmsst_jax.objectives.dual_encoder import dual_encoder
from vmsst_jax.training import checkpoint, encoder_start, state, warm_start
from vmsst_jax.training.step import compiled_step, loss_function, train_step

BERT = BertConfig(
    vocab_size=40, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=1, max_positions=12, dropout=0.0,
    attention_dropout=0.0,
)  # fmt: skip
ENCODER = TextEncoderConfig(BERT, pooling="cls")
OPTIMIZER = optax.adam(1e-3, eps=1e-3)


def build(**options):
    bert = {name: options.pop(name) for name in ("scan_layers", "mlm_head") if name in options}
    encoder = TextEncoderConfig(BertConfig(**{**vars(BERT), **bert}), pooling="cls")
    return models.build("dual_encoder", DualEncoderConfig(encoder, **options))


def question_batch(seed, questions=8, negatives=1):
    rng = np.random.default_rng(seed)

    def rows(count, width):
        tokens = rng.integers(4, 40, (count, width)).astype(np.int32)
        tokens[:, 0] = 0
        tokens[np.arange(width) >= rng.integers(2, width + 1, (count, 1))] = 1
        return tokens

    passages = questions * (1 + negatives)
    ids = rng.integers(0, 10, passages).astype(np.int32)
    ids[-1] = -1
    return {"question": rows(questions, 6), "passage": rows(passages, 9), "passage_id": ids}


@pytest.fixture(scope="module")
def module():
    return build()


@pytest.fixture(scope="module")
def params(module):
    return jax.jit(functools.partial(models.init_params, module))(jax.random.key(0))


def test_towers_and_descriptions(module, params):
    assert set(params) == {"query_encoder", "passage_encoder"}
    assert models.build(**models.describe(module)) == module
    assert models.pooled_by(module) == {"pooling": "cls", "layer": None}
    assert (module.pad_id, module.vocab_size) == (1, 40)
    tokens = question_batch(0)["question"]
    query, passage = (module.apply({"params": params}, tokens, method=f"embed_{s}") for s in ("questions", "passages"))
    assert np.abs(query - passage).max() > 0.1
    for tower, found in (("query", query), ("passage", passage)):
        alone = models.build("encoder", ENCODER)
        own = params[module.config.parameters_of(tower)]
        np.testing.assert_allclose(alone.apply({"params": own}, tokens, method="embed"), found, atol=1e-6)
    shared = build(shared=True)
    both = {"encoder": params["query_encoder"]}
    np.testing.assert_allclose(shared.apply({"params": both}, tokens, method="embed_passages"), query, atol=1e-6)
    assert set(models.abstract_params(shared)) == {"encoder"}
    with pytest.raises(ValueError, match="DualEncoderConfig.shared is 'yes'; wanted True or False"):
        build(shared="yes")
    with pytest.raises(ValueError, match="DualEncoderConfig.encoder_chunk is 0"):
        build(encoder_chunk=0)


def run_on(module, mesh, steps):
    step = train_step(module, functools.partial(dual_encoder, negative_mask="same_passage"), OPTIMIZER)
    target = state.abstract_state(module, OPTIMIZER, mesh)
    compiled, current, losses = compiled_step(step, target, mesh), state.make_state(module, OPTIMIZER, 0, mesh), []
    for number in range(steps):
        current, metrics = compiled(current, sharding.put_batch(question_batch(number), mesh))
        losses.append([float(metrics[name]) for name in ("loss", "gradient_norm", "mean_rank")])
    return np.array(losses)


@pytest.fixture(scope="module")
def on_one_device(module):
    return run_on(module, sharding.make_mesh(devices=jax.devices()[:1]), 8)


@pytest.mark.parametrize("shape", [(8, 1, 1), (2, 2, 2)])
def test_negatives_are_global(module, on_one_device, shape):
    losses = run_on(module, sharding.make_mesh(*shape), 8)
    np.testing.assert_allclose(losses[:5], on_one_device[:5], rtol=1e-4)
    np.testing.assert_allclose(losses[:5, 0], on_one_device[:5, 0], rtol=1e-5)
    np.testing.assert_allclose(losses[:, 0], on_one_device[:, 0], rtol=1e-3)


def test_chunks_give_the_same_gradient(module, params):
    def gradient(module):
        loss = loss_function(module, dual_encoder, True)
        value = lambda params: loss(params, {}, question_batch(3), 0, jax.random.key(1))[0]  # noqa: E731
        return jax.jit(jax.value_and_grad(value))(params)

    actual, expected = gradient(build(encoder_chunk=4)), gradient(module)
    jax.tree.map(lambda a, e: np.testing.assert_allclose(a, e, rtol=2e-5, atol=1e-5), actual, expected)


def random_params(module):
    params = jax.jit(functools.partial(models.init_params, module))(jax.random.key(5))
    return jax.tree.map(lambda x: x + 0.5, params)


HEADS = "(.*/)?backbone/(mlm_head|pooler)/.*"


@pytest.fixture
def start(monkeypatch):
    """Function (module of a checkpoint, module of a run) -> (parameters there, parameters the run starts with)."""
    tokenizer, table = types.SimpleNamespace(sha256="0" * 64), Languages(["en"])

    def starts(source, target):
        params = random_params(source)
        loaded = types.SimpleNamespace(
            params=params,
            tokenizer=tokenizer,
            languages=table,
            host={"model": models.describe(source)},
            directory="run",
        )
        monkeypatch.setattr(checkpoint, "load_model", lambda path: loaded)
        fresh = jax.jit(functools.partial(models.init_params, target))(jax.random.key(0))
        return params, warm_start.from_checkpoint("run", tokenizer, table, [HEADS])(fresh)

    return starts


def assert_equal(found, expected):
    found, expected = trees.flatten(found), trees.flatten(expected)
    assert set(found) == {name for name in expected if "mlm_head" not in name}
    for name, array in found.items():
        np.testing.assert_array_equal(array, expected[name])


def test_both_towers_start_from_one_encoder(start):
    source, started = start(
        models.build("encoder", TextEncoderConfig(BertConfig(**{**vars(BERT), "mlm_head": "dense"}))), build()
    )
    assert_equal(started["query_encoder"], source)
    assert_equal(started["passage_encoder"], source)
    assert "mlm_head" in source["backbone"]


def test_towers_that_start_alike_share_no_memory(start):
    """The step donates its state: a buffer that belongs to two leaves would be freed twice."""
    _, started = start(models.build("encoder", ENCODER), build())
    leaves = jax.tree.leaves(started)
    places = {shard.data.unsafe_buffer_pointer() for leaf in leaves for shard in leaf.addressable_shards}
    assert len(places) == len(leaves)


def test_from_ccp_without_its_head(start):
    ccp = models.build("ccp", CcpConfig(ENCODER, bank_size=8, head_features=4))
    source, started = start(ccp, build(shared=True))
    assert set(started) == {"encoder"}
    assert_equal(started["encoder"], source["encoder"])
    source, started = start(ccp, build(scan_layers=True))
    stacked = {**source["encoder"]["backbone"], "encoder": trees.stack_layers(source["encoder"]["backbone"]["encoder"])}
    assert_equal(started["passage_encoder"]["backbone"], stacked)


def test_from_another_run_of_dpr(start):
    source, started = start(build(), build())
    assert_equal(started, source)
    assert np.abs(source["query_encoder"]["backbone"]["token_embedder"]["embedding"][0]).max() > 0
    with pytest.raises(ValueError, match="two towers, passage_encoder and query_encoder, and this model one encoder"):
        start(build(), build(shared=True))
    with pytest.raises(ValueError, match="two towers"):
        start(build(), models.build("encoder", ENCODER))
    source, started = start(build(shared=True), build())
    assert_equal(started["passage_encoder"], source["encoder"])


def test_another_width_is_listed(start):
    wide = TextEncoderConfig(BertConfig(**{**vars(BERT), "embed_dim": 32}))
    with pytest.raises(ValueError, match=r"(?s)do not fit.*query_encoder/backbone/.*\(16,\) in this model, \(32,\)"):
        start(models.build("encoder", wide), build())


def test_a_models_stacks_take_no_dual_encoder(start, tiny_model):
    with pytest.raises(ValueError, match="run is a dual encoder: only a T5's parameters"):
        start(build(), tiny_model("contrastive"))


def test_the_geometry_of_a_checkpoint(monkeypatch):
    monkeypatch.setattr(checkpoint, "read_host", lambda path: {"model": models.describe(build())})
    assert encoder_start.checkpoint_bert("run", dropout=0.3) == BertConfig(**{**vars(BERT), "dropout": 0.3})
