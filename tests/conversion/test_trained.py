"""A model that was trained here goes out with its vectors, its recipe and its results."""

import json

import jax
import numpy as np
import pytest

import vmsst_jax
from vmsst_jax import convert, models
from vmsst_jax.data import tokenizers
from vmsst_jax.interop import t5x
from vmsst_jax.training.checkpoint import Checkpoints

TEXTS = ["one two three", "ten", ""]
EMBEDDING = {"pooling": "mean", "layer": None, "normalize": False, "prefix": "", "max_length": 12}


@pytest.fixture(params=["vmsst", "contrastive"])
def run(request, tiny_model, t5_tokenizer, tmp_path):
    """A model directory with a checkpoint at step 5 and the results of an evaluation of it."""
    module = tiny_model(request.param, scan_layers=request.param == "vmsst")
    host = {
        "model": models.describe(module),
        "languages": ["en", "de", "fr"],
        "tokenizer": tokenizers.to_record(t5_tokenizer),
        "embedding": EMBEDDING,
        "gin": "vmsst.lam = 0.025",
        "data": {},
    }
    with Checkpoints(tmp_path / "run") as checkpoints:
        checkpoints.save(5, {"params": models.init_params(module, jax.random.key(0))}, host)
    results = tmp_path / "run" / "evaluations" / "tatoeba" / "step_5"
    results.mkdir(parents=True)
    means = {"all": {"languages": 2, "xx->en": 0.75, "mean": None}}
    (results / "results.json").write_text(json.dumps({"benchmark": "tatoeba", "means": means}))
    return tmp_path / "run"


def test_as_a_sentence_transformer(run, tmp_path):
    convert.main([f"--input={run}", f"--output={tmp_path / 'st'}", "--to=sentence_transformers"])
    np.testing.assert_allclose(
        vmsst_jax.load(tmp_path / "st").encode(TEXTS), vmsst_jax.load(run).encode(TEXTS), atol=1e-5
    )
    kinds = [m["type"].rsplit(".", 1)[1] for m in json.loads((tmp_path / "st" / "modules.json").read_text())]
    assert kinds == ["Transformer", "Pooling", "Dense"]
    card = (tmp_path / "st" / "README.md").read_text()
    for text in ('- "de"', "5 updates", "vmsst.lam = 0.025", "| tatoeba | all (2) | xx->en | 0.7500 |", "license"):
        assert text in card


def test_heads_that_a_form_has_no_place_for_are_said(run, tmp_path, capsys):
    convert.main([f"--input={run}", f"--output={tmp_path / 'hf'}", "--to=hf"])
    assert "1 dense layer(s) after the pooling are not part of a Hugging Face folder" in capsys.readouterr().out
    convert.main([f"--input={run}", f"--output={tmp_path / 't5x'}", "--to=t5x"])
    saved = t5x.T5xCheckpoint(tmp_path / "t5x")
    assert saved.step == 5 and saved.shapes["encoder/layers_1/mlp/wo/kernel"] == (32, 16)


def test_its_pooling_is_its_own(run):
    with pytest.raises(ValueError, match="pooling and layer can't be chosen: a .* model was trained with its own"):
        vmsst_jax.load(run, pooling="cls", layer=1)
    assert vmsst_jax.load(run, prefix="one ").embedding["prefix"] == "one "
