"""Our T5 stacks against stored outputs of transformers + PyTorch (goldens/, written by make_t5_goldens.py)."""

import pathlib

import jax
import numpy as np
import pytest

from vmsst_jax.interop import hf_t5
from vmsst_jax.models import t5

GOLDENS = pathlib.Path(__file__).parent / "goldens"
NAMES = ("mt5", "t5_1_0")


@pytest.fixture(scope="module", params=NAMES)
def golden(request):
    """(name, arrays, Hugging Face's state dict)"""
    with np.load(GOLDENS / f"{request.param}.npz") as arrays:
        arrays = dict(arrays)
    weights = {k.removeprefix("weights/"): arrays.pop(k) for k in list(arrays) if k.startswith("weights/")}
    return request.param, arrays, weights


def assert_close(ours, theirs):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_every_layer_equals_transformers(golden, t5_model, scan_layers):
    name, arrays, weights = golden
    params = hf_t5.model_params(weights, scan_layers=scan_layers)
    states, hidden, logits = t5_model(name, scan_layers)(params, arrays["tokens"], arrays["targets"])
    assert len(states) == len(arrays["encoder_states"]) == 4
    for ours, theirs in zip(states, arrays["encoder_states"], strict=True):
        assert_close(ours, theirs)
    assert_close(hidden, arrays["decoder_state"])
    assert_close(logits, arrays["logits"])


def test_beyond_the_greatest_relative_distance(golden, t5_model):
    name, arrays, weights = golden
    params = hf_t5.model_params(weights)
    states, hidden, _ = t5_model(name)(params, arrays["long_tokens"], arrays["long_targets"])
    assert_close(states[-1], arrays["long_encoder_state"])
    assert_close(hidden, arrays["long_decoder_state"])


@pytest.mark.parametrize("stack, bidirectional", [("encoder", True), ("decoder", False)])
def test_relative_buckets(stack, bidirectional):
    with np.load(GOLDENS / "relative_buckets.npz") as arrays:
        theirs = arrays[stack]
    ours = t5.relative_buckets(201, 201, bidirectional=bidirectional, buckets=32, max_distance=128)
    np.testing.assert_array_equal(np.concatenate([ours[0, :0:-1], ours[:, 0]]), theirs)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_names_and_shapes_are_the_modules_own(golden, tiny_t5_shapes, scan_layers):
    name, _, weights = golden
    params = hf_t5.model_params(weights, scan_layers=scan_layers)
    params["decoder"].pop("logits_dense", None)
    for stack in ("encoder", "decoder"):
        assert jax.tree.map(np.shape, params[stack]) == tiny_t5_shapes(name, stack, scan_layers)


@pytest.mark.parametrize("scan_layers", [False, True])
def test_there_and_back(golden, scan_layers):
    _, _, weights = golden
    back = hf_t5.model_state_dict(hf_t5.model_params(weights, scan_layers=scan_layers))
    assert back.keys() == weights.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(back[name], array)
