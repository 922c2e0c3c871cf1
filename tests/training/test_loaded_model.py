"""A model loaded from a checkpoint embeds as the trained one did."""

import base64
import os

import jax
import numpy as np
import pytest

from vmsst_jax import models, sharding
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.models.t5 import T5Config
from vmsst_jax.models.vmsst import ModelConfig
from vmsst_jax.training import checkpoint, loaded_model, optimizers, schedules
from vmsst_jax.training.checkpoint import CheckpointError, Checkpoints
from vmsst_jax.training.state import make_state

EMBEDDING = {"pooling": "mean", "layer": None, "normalize": False, "prefix": "", "max_length": 16}
STEPS = (3, 6, 9)
BEST = 6


@pytest.fixture(scope="module")
def module():
    t5 = T5Config(vocab_size=64, embed_dim=16, num_heads=2, head_dim=8, mlp_dim=32, encoder_layers=2, scan_layers=True)
    return models.build("contrastive", ModelConfig(t5=t5, num_languages=2))


@pytest.fixture(scope="module")
def host(module):
    words = "one two three four five six seven eight nine ten".split()
    tokenizer = Tokenizer.train([f"{a} {b}" for a in words for b in words], vocab_size=28)
    return {
        "model": models.describe(module),
        "languages": ["en", "de"],
        "tokenizer": {
            "kind": "sentencepiece",
            "sha256": tokenizer.sha256,
            "model": base64.b64encode(tokenizer.serialized).decode(),
        },
        "embedding": EMBEDDING,
        "gin": "",
        "data": {},
    }


@pytest.fixture(scope="module")
def state(module):
    return make_state(
        module, optimizers.adafactor(schedules.constant()), 0, sharding.make_mesh(data=2, fsdp=2, model=2)
    )


def at(state, step):
    """The state with other parameters for every step."""
    params = jax.tree.map(lambda x: jax.device_put(np.asarray(x) + np.float32(step), x.sharding), state.params)
    return state.replace(params=params)


@pytest.fixture(scope="module")
def run(state, host, tmp_path_factory):
    """A model directory written on 8 devices, and the parameters of each step."""
    directory = tmp_path_factory.mktemp("run")
    with Checkpoints(directory, keep_last=len(STEPS), best_metric="accuracy") as checkpoints:
        for step in STEPS:
            checkpoints.save(step, at(state, step), host, {"accuracy": 1.0 if step == BEST else 0.5})
    return directory, {step: jax.tree.map(np.asarray, at(state, step).params) for step in STEPS}


def assert_equal(got, want):
    jax.tree.map(np.testing.assert_array_equal, got, want)
    assert jax.tree.structure(got) == jax.tree.structure(want)


def test_loads_everything_that_embedding_needs(run, module, host):
    directory, params = run
    loaded = checkpoint.load_model(directory)
    assert loaded.step == 9
    assert str(loaded.directory) == str(directory / "checkpoints" / "9")
    assert loaded.module == module
    assert loaded.embedding == EMBEDDING and loaded.host["model"]["kind"] == "contrastive"
    assert loaded.tokenizer.sha256 == host["tokenizer"]["sha256"]
    assert isinstance(loaded.languages, Languages) and loaded.languages.codes == ("en", "de")
    assert_equal(loaded.params, params[9])
    assert {d for x in jax.tree.leaves(loaded.params) for d in x.devices()} == {jax.local_devices()[0]}
    ids, _ = loaded.tokenizer.encode(["one two", "three four"], max_length=4)
    tokens = np.zeros((2, 4), np.int32)
    for row, sentence in zip(tokens, ids, strict=True):
        row[: len(sentence)] = sentence
    before = module.apply({"params": params[9]}, tokens, method="embed")
    after = loaded.module.apply({"params": loaded.params}, tokens, method="embed")
    np.testing.assert_array_equal(after, before)


@pytest.mark.parametrize("step, expected", [(None, 9), (3, 3), ("best", BEST)])
def test_the_step_asked_for(run, step, expected):
    directory, params = run
    for path in (directory, directory / "checkpoints"):
        loaded = checkpoint.load_model(path, step)
        assert loaded.step == expected
        assert_equal(loaded.params, params[expected])


def test_one_step_folder(run):
    directory, params = run
    assert_equal(checkpoint.load_model(directory / "checkpoints" / "3").params, params[3])
    with pytest.raises(CheckpointError, match=r"no step 6 in .*; found step 3\."):
        checkpoint.load_model(directory / "checkpoints" / "3", step=6)
    with pytest.raises(CheckpointError, match=r"no step 4 in .*; found steps 3, 6, 9\."):
        checkpoint.load_model(directory, step=4)


def test_onto_a_mesh_by_the_rules_of_sharding(run):
    directory, params = run
    mesh = sharding.make_mesh(data=1, fsdp=2, model=2, devices=jax.devices()[:4])
    loaded = checkpoint.load_model(directory, mesh=mesh)
    assert_equal(loaded.params, params[9])
    embedding = loaded.params["token_embedder"]["embedding"]
    assert embedding.sharding.spec == jax.sharding.PartitionSpec("model", "fsdp")
    assert embedding.addressable_shards[0].data.shape == (32, 8)


def test_the_optimizer_state_is_not_read(run, monkeypatch):
    """Only the arrays below `params` are restored."""
    restored = []
    restore = loaded_model.ocp.Checkpointer.restore
    monkeypatch.setattr(
        loaded_model.ocp.Checkpointer,
        "restore",
        lambda self, path, args: restored.append(restore(self, path, args=args)) or restored[-1],
    )
    checkpoint.load_model(run[0])
    assert set(restored[0]) == {"params"}


def test_a_damaged_newest_step_is_passed_over_and_left_alone(state, host, tmp_path, caplog):
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, state, host)
    damaged = tmp_path / "checkpoints" / "2"
    (damaged / "state" / "manifest.ocdbt").write_bytes(b"")
    assert checkpoint.load_model(tmp_path).step == 1
    assert "step 2 is damaged" in caplog.text and "manifest.ocdbt" in caplog.text
    assert damaged.is_dir()
    with pytest.raises(CheckpointError, match="has scores, so none is best; found steps 1, 2"):
        checkpoint.load_model(tmp_path, "best")


def test_another_tokenizer_than_the_models_is_an_error(state, host, tmp_path):
    changed = {**host, "tokenizer": {**host["tokenizer"], "sha256": "0" * 64}}
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, changed)
    with pytest.raises(CheckpointError, match=f"sha256 {host['tokenizer']['sha256']}, but .* 0{{64}}"):
        checkpoint.load_model(tmp_path)
    assert os.listdir(tmp_path / "checkpoints") == ["1"]
