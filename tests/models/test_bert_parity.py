"""Our post-norm encoder against stored outputs of transformers + PyTorch, written by make_bert_goldens.py."""

import json
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.interop import hf_config, hf_encoder

GOLDENS = pathlib.Path(__file__).parent / "goldens"
NAMES = ("bert", "distilbert", "xlm_roberta", "xlm", "xlm_languages")


def outputs(module, tokens, **inputs):
    """(every hidden state, MLM logits, pooler output or None) by one call, as ``method`` of ``apply``."""
    bert = module.backbone
    states = bert(tokens, all_layers=True, **inputs)
    return states, bert.logits(states[-1]), bert.pooled(states[-1]) if bert.config.pooler else None


@pytest.fixture(scope="module", params=NAMES)
def golden(request):
    """(config.json, weights, inputs, outputs) of Hugging Face"""
    with np.load(GOLDENS / f"{request.param}.npz") as file:
        arrays = dict(file)
    config = json.loads(str(arrays.pop("config")))
    parts = {"weights/": {}, "inputs/": {}, "": {}}
    for key, array in arrays.items():
        prefix = next(p for p in parts if key.startswith(p))
        parts[prefix][key.removeprefix(prefix)] = array
    return config, *parts.values()


def converted(config, weights, **options):
    """(module, parameters, configuration)"""
    kind, ours = hf_config.config_from_hf(config)
    ours = hf_encoder.fit_config(ours, weights)
    ours["bert"] |= options
    return models.build(kind, ours), hf_encoder.to_params(weights, ours).params, ours


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"scan_layers": True, "remat": "full"}], ids=["plain", "scanned"])
def test_every_layer_equals_transformers(golden, options):
    config, weights, inputs, theirs = golden
    module, params, _ = converted(config, weights, **options)
    run = jax.jit(lambda params, inputs: module.apply({"params": {"backbone": params}}, **inputs, method=outputs))
    states, logits, pooled = run(params, inputs)
    assert len(states) == len(theirs["states"]) == 4
    for state, their_state in zip(states, theirs["states"], strict=True):
        assert_close(state, their_state)
    assert_close(logits, theirs["logits"])
    assert ("pooled" in theirs) == (pooled is not None)
    if pooled is not None:
        assert_close(pooled, theirs["pooled"])


@pytest.mark.parametrize("scan_layers", [False, True])
def test_names_and_shapes_are_the_modules_own(golden, scan_layers):
    config, weights, _, _ = golden
    module, params, _ = converted(config, weights, scan_layers=scan_layers)
    wanted = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), models.abstract_params(module)["backbone"])
    assert jax.tree.map(lambda x: (x.shape, x.dtype), params) == wanted
    assert all(x.flags.c_contiguous for x in jax.tree.leaves(params))


@pytest.mark.parametrize("scan_layers", [False, True])
def test_there_and_back(golden, scan_layers):
    config, weights, _, _ = golden
    _, params, ours = converted(config, weights, scan_layers=scan_layers)
    back = hf_encoder.from_params(params, ours)
    left_out = {"cls.seq_relationship.weight", "cls.seq_relationship.bias"} & weights.keys()
    assert back.keys() == weights.keys() - left_out
    for name, array in back.items():
        np.testing.assert_array_equal(array, weights[name])
    # The written config.json says the same model again.
    again = hf_encoder.fit_config(hf_config.config_from_hf(hf_config.config_to_hf(ours))[1], back)
    assert again == {**ours, "bert": {**ours["bert"], "scan_layers": False}}


def test_neighbours_and_width_do_not_change_a_row(golden):
    config, weights, inputs, theirs = golden
    module, params, ours = converted(config, weights)
    alone = {k: jnp.asarray(v[1:2, :6]) for k, v in inputs.items()}  # row 1 has 6 tokens
    states, logits, _ = module.apply({"params": {"backbone": params}}, **alone, method=outputs)
    assert_close(states[-1][0], theirs["states"][-1, 1, :6])
    assert_close(logits[0], theirs["logits"][1, :6])
