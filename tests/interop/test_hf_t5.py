"""Hugging Face's T5 names: what does not belong, lacks or contradicts itself is refused by name."""

import pathlib

import numpy as np
import pytest

from vmsst_jax.interop import hf_t5

GOLDEN = pathlib.Path(__file__).parent.parent / "models" / "goldens" / "mt5.npz"
QUERY = "encoder.block.1.layer.0.SelfAttention.q.weight"


@pytest.fixture
def weights():
    with np.load(GOLDEN) as arrays:
        return {k.removeprefix("weights/"): arrays[k] for k in arrays if k.startswith("weights/")}


def test_an_encoder_alone_under_another_prefix(weights):
    encoder = {f"mt5_encoder.{k}": v for k, v in weights.items() if k.startswith("encoder.")}
    params = hf_t5.encoder_params(encoder, prefix="mt5_encoder.encoder.")
    np.testing.assert_array_equal(params["layers_1"]["attention"]["query"]["kernel"], weights[QUERY].T)
    back = hf_t5.encoder_state_dict(params, prefix="mt5_encoder.encoder.")
    assert back.keys() == encoder.keys()


def test_a_model_without_decoder(weights):
    encoder = {k: v for k, v in weights.items() if k == "shared.weight" or k.startswith("encoder.")}
    params = hf_t5.model_params(encoder)
    assert set(params) == {"token_embedder", "encoder"}
    assert hf_t5.model_state_dict(params).keys() == encoder.keys()


def test_tied_copies_and_the_unused_table_are_passed_over(weights):
    plain = hf_t5.model_params(weights)
    weights["encoder.embed_tokens.weight"] = weights["decoder.embed_tokens.weight"] = weights["shared.weight"]
    weights["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"] = np.zeros((32, 2))
    assert hf_t5.model_state_dict(hf_t5.model_params(weights)).keys() == hf_t5.model_state_dict(plain).keys()
    weights["lm_head.weight"] = weights["shared.weight"].copy()
    assert "logits_dense" not in hf_t5.model_params(weights)["decoder"]


def test_stacked_layers_are_in_order(weights):
    params = hf_t5.encoder_params(weights, scan_layers=True)
    assert params["layers"]["attention"]["query"]["kernel"].shape == (3, 16, 24)
    np.testing.assert_array_equal(params["layers"]["attention"]["query"]["kernel"][1], weights[QUERY].T)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda w: w.pop(QUERY), f"{QUERY}: wanted, absent"),
        (
            lambda w: w.update({"encoder.block.1.adapter.weight": np.ones(3)}),
            "block.1.adapter.weight: found, but unknown",
        ),
        (lambda w: w.update({"pooler.weight": np.ones(3)}), "pooler.weight: found, but unknown"),
        (lambda w: w.update({QUERY: w[QUERY].T}), rf"{QUERY} is \(16, 24\), wanted \(24, 16\)"),
        (lambda w: w.update({"decoder.embed_tokens.weight": w["shared.weight"] + 1}), "differs from shared.weight"),
        (lambda w: w.update({"lm_head.weight": w["lm_head.weight"].T}), r"lm_head.weight has shape \(16, 48\), wanted"),
        (lambda w: w.update({"shared.weight": np.ones((48, 8))}), r"shared.weight has shape \(48, 8\)"),
        (lambda w: w.pop("shared.weight"), "no shared.weight among"),
        (lambda w: [w.pop(k) for k in list(w) if k.startswith("encoder.")], "encoder.final_layer_norm.weight: wanted"),
        (lambda w: [w.pop(k) for k in list(w) if k.startswith("decoder.")], "lm_head.weight: found, but unknown"),
    ],
)
def test_what_does_not_fit_is_named(weights, change, message):
    change(weights)
    with pytest.raises(ValueError, match=message):
        hf_t5.model_params(weights)


def test_parameters_that_transformers_has_no_name_for(weights):
    decoder = hf_t5.decoder_params(weights)
    decoder["layers_0"]["condition"] = {"hidden": {"kernel": np.ones((16, 16))}}
    del decoder["layers_1"]["encoder_decoder_attention"]["out"]
    with pytest.raises(ValueError) as error:
        hf_t5.decoder_state_dict(decoder)
    assert "layers_0/condition/hidden/kernel: found, but unknown" in str(error.value)
    assert "layers_1/encoder_decoder_attention/out/kernel: wanted, absent" in str(error.value)


def test_contradictory_parameters_are_not_written(weights):
    params = hf_t5.encoder_params(weights, scan_layers=True)
    out = params["layers"]["attention"]["out"]
    out["kernel"] = out["kernel"].swapaxes(1, 2)
    with pytest.raises(
        ValueError, match=r"encoder.block.2.layer.0.SelfAttention.o.weight is \(24, 16\), wanted \(16, 24\)"
    ):
        hf_t5.encoder_state_dict(params)
    out["kernel"] = out["kernel"].swapaxes(1, 2)[:2]
    with pytest.raises(ValueError, match="differ in number: .*'attention/out/kernel': 2"):
        hf_t5.encoder_state_dict(params)
