"""A dual encoder's checkpoint as the encoder that one of its towers is."""

import types

import jax
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.conversion import read, towers
from vmsst_jax.conversion.model import Settings
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.dual_encoder import DualEncoderConfig
from vmsst_jax.models.text_encoder import TextEncoderConfig
from vmsst_jax.training import checkpoint

BERT = BertConfig(vocab_size=15, embed_dim=8, num_heads=2, mlp_dim=8, num_layers=1, max_positions=12)


def described(shared):
    return models.describe(models.build("dual_encoder", DualEncoderConfig(TextEncoderConfig(BERT), shared)))


TWO, ONE = {"query_encoder": "Q", "passage_encoder": "P"}, {"encoder": "E"}


def test_the_tower_that_is_named():
    encoder = models.describe(models.build("encoder", TextEncoderConfig(BERT)))
    assert towers.choose(described(False), TWO, "query", "run") == (encoder, "Q")
    assert towers.choose(described(False), TWO, "passage", "run") == (encoder, "P")
    for tower in (None, "query", "passage"):
        assert towers.choose(described(True), ONE, tower, "run") == (encoder, "E")
    assert towers.choose(encoder, ONE, None, "run") == (encoder, ONE)


@pytest.mark.parametrize(
    ("kind", "tower", "message"),
    [
        ("dual_encoder", None, "run has two towers: say with --tower=query .* with --tower=passage"),
        ("dual_encoder", "left", "tower is 'left'; use one of query, passage"),
        ("ccp", "query", "run is a ccp model, which has no query tower: leave --tower out"),
    ],
)
def test_what_is_not_there(kind, tower, message):
    with pytest.raises(ValueError, match=message):
        towers.choose({**described(False), "kind": kind}, TWO, tower, "run")


def test_what_has_two(tmp_path, monkeypatch):
    assert not towers.has_two(tmp_path) and not towers.has_two(tmp_path / "absent")
    for shared in (False, True):
        monkeypatch.setattr(checkpoint, "read_host", lambda path, s=shared: {"model": described(s)})
        assert towers.has_two("run") != shared


def test_conversion_takes_one_tower(monkeypatch, tmp_path, bert_tokenizer):
    module = models.build("dual_encoder", DualEncoderConfig(TextEncoderConfig(BERT)))
    loaded = types.SimpleNamespace(
        host={"model": models.describe(module), "gin": ""},
        params=jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0)),
        tokenizer=bert_tokenizer,
        languages=types.SimpleNamespace(codes=("en",)),
        embedding={"pooling": "mean", "layer": None, "normalize": False, "prefix": "", "max_length": 8},
        directory=tmp_path,
        step=3,
    )
    monkeypatch.setattr(read, "form_of", lambda path: "vmsst_jax")
    monkeypatch.setattr(checkpoint, "load_model", lambda path: loaded)
    model = read.read(tmp_path, Settings(tower="passage"))
    assert model.kind == "encoder" and model.as_encoder() == (model.config, model.params)
    for found, expected in zip(
        jax.tree.leaves(model.params), jax.tree.leaves(loaded.params["passage_encoder"]), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    with pytest.raises(ValueError, match="has two towers"):
        read.read(tmp_path, Settings())
    monkeypatch.setattr(read, "form_of", lambda path: "hugging_face")
    with pytest.raises(ValueError, match="has no query tower, only a model of ours has"):
        read.read(tmp_path, Settings(tower="query"))
