"""Names of Hugging Face encoders: every way in which files spell them is read, and what doesn't fit is named."""

import collections
import json
import pathlib

import ml_dtypes
import numpy as np
import pytest

from vmsst_jax.interop import hf_config, hf_encoder, hf_t5, trees

GOLDENS = pathlib.Path(__file__).parent.parent / "models" / "goldens"
QUERY = "roberta.encoder.layer.1.attention.self.query.weight"
TABLE = "roberta.embeddings.word_embeddings.weight"


def golden(name):
    """(weights, configuration)"""
    with np.load(GOLDENS / f"{name}.npz") as file:
        weights = {k.removeprefix("weights/"): file[k] for k in file if k.startswith("weights/")}
        config = hf_config.config_from_hf(json.loads(str(file["config"])))[1]
    return weights, hf_encoder.fit_config(config, weights)


@pytest.fixture
def xlm_r():
    return golden("xlm_roberta")


def renamed(weights, *replacements):
    for old, new in replacements:
        weights = {new + k.removeprefix(old) if k.startswith(old) else k: v for k, v in weights.items()}
    return weights


def assert_same(params, expected):
    params, expected = trees.flatten(params), trees.flatten(expected)
    assert params.keys() == expected.keys()
    for name, array in expected.items():
        np.testing.assert_array_equal(params[name], array, err_msg=name)


@pytest.mark.parametrize(
    "name, replacements",
    [
        ("xlm_roberta", [("", "module.")]),
        ("xlm_roberta", [("roberta.", "model.")]),
        ("xlm_roberta", [("roberta.", "")]),
        ("xlm_roberta", [("roberta.", "module.roberta."), ("lm_head.", "module.lm_head.")]),
        ("bert", [("bert.", "question_encoder.bert_model.")]),
        ("xlm", [("transformer.", "")]),
        ("xlm_languages", [("transformer.", "module."), ("pred_layer.", "module.pred_layer.")]),
    ],
)
def test_any_prefix(name, replacements):
    weights, config = golden(name)
    expected = hf_encoder.to_params(weights, config)
    other = renamed(weights, *replacements)
    assert hf_encoder.fit_config(config, other) == config
    found = hf_encoder.to_params(other, config)
    assert_same(found.params, expected.params)
    assert set(found.sources.values()) | set(found.ignored) == other.keys()


def test_old_names_and_copies():
    weights, config = golden("bert")
    expected = hf_encoder.to_params(weights, config).params
    for key in [k for k in weights if "LayerNorm" in k]:
        weights[key.replace(".weight", ".gamma").replace(".bias", ".beta")] = weights.pop(key)
    weights["bert.embeddings.position_ids"] = np.arange(14)[None]
    weights["cls.predictions.decoder.weight"] = weights["bert.embeddings.word_embeddings.weight"]
    weights["cls.predictions.decoder.bias"] = weights.pop("cls.predictions.bias")  # its second name alone
    assert hf_encoder.fit_config(config, weights) == config
    found = hf_encoder.to_params(weights, config)
    assert_same(found.params, expected)
    assert found.sources["mlm_head/bias"] == "cls.predictions.decoder.bias"
    assert "cls.predictions.decoder.weight" in found.ignored and "bert.embeddings.position_ids" in found.ignored


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_other_types_become_float32(xlm_r, dtype):
    weights, config = xlm_r
    rounded = {k: v.astype(dtype) for k, v in weights.items()}
    params = trees.flatten(hf_encoder.to_params(rounded, config).params)
    expected = trees.flatten(hf_encoder.to_params(weights, config).params)
    for name, array in params.items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, expected[name].astype(dtype).astype(np.float32))


def test_arrays_are_asked_for_once(xlm_r):
    weights, config = xlm_r
    asked = collections.Counter()

    class Lazy(collections.UserDict):
        def __getitem__(self, key):
            asked[key] += 1
            return super().__getitem__(key)

    hf_encoder.to_params(Lazy(weights), config)
    assert asked == dict.fromkeys(weights, 1)


def test_parts_are_found_by_their_names(xlm_r):
    weights, config = xlm_r
    backbone = {k: v for k, v in weights.items() if not k.startswith("lm_head")}
    backbone |= {"roberta.pooler.dense.weight": np.ones((16, 16)), "roberta.pooler.dense.bias": np.ones(16)}
    fitted = hf_encoder.fit_config(config, backbone)
    assert (fitted["bert"]["mlm_head"], fitted["bert"]["pooler"]) == ("none", True)
    written = hf_encoder.from_params(hf_encoder.to_params(backbone, fitted).params, fitted)
    assert written.keys() == {k.removeprefix("roberta.") for k in backbone}
    assert all(array.flags.c_contiguous for array in written.values())


def test_the_encoder_of_a_whole_t5():
    with np.load(GOLDENS / "mt5.npz") as file:
        weights = {k.removeprefix("weights/"): file[k] for k in file if k.startswith("weights/")}
        tokens, states = file["tokens"], file["encoder_states"]
    sizes = dict(vocab_size=48, d_model=16, num_heads=2, d_kv=12, d_ff=20, num_layers=3, num_decoder_layers=2)
    kind, config = hf_config.config_from_hf({"model_type": "mt5", **sizes})
    found = hf_encoder.to_params(weights, config)
    assert_same(found.params, {k: v for k, v in hf_t5.model_params(weights).items() if k != "decoder"})
    assert set(found.ignored) == {k for k in weights if k.startswith(("decoder.", "lm_head"))}
    back = hf_encoder.from_params(found.params, config)
    assert back.keys() == weights.keys() - set(found.ignored)
    assert hf_config.config_from_hf(hf_config.config_to_hf(config)) == (kind, config)
    # As VMSST's released files spell it, the token table by its second name, and at work.
    theirs = {f"mt5_encoder.{k}": v for k, v in back.items() if k != "shared.weight"}
    theirs["mt5_encoder.encoder.embed_tokens.weight"] = weights["shared.weight"]
    from vmsst_jax import models

    params = {"backbone": hf_encoder.to_params(theirs, config).params}
    ours = models.build(kind, config).apply({"params": params}, tokens, method="hidden_states")
    np.testing.assert_allclose(np.stack(ours), states, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda w: w.pop(QUERY), r"layer.1.attention.self.query.weight \(our encoder/layers_1/.*wanted, absent"),
        (lambda w: w.update({"roberta.adapter.weight": np.ones(3)}), "roberta.adapter.weight: found, but unknown"),
        (lambda w: w.update({"classifier.weight": np.ones(3)}), "classifier.weight: found, but unknown"),
        (
            lambda w: w.update({"roberta.encoder.layer.3.output.dense.bias": np.ones(16)}),
            "an? xlm-roberta encoder of 3 layers(.|\n)*layer.3.output.dense.bias: found, but unknown",
        ),
        (
            lambda w: w.update({"roberta.encoder.layer.0.output.dense.weight": np.ones((20, 16))}),
            r"layer.0.output.dense.weight is \(20, 16\), wanted \(16, 20\)",
        ),
        (lambda w: w.update({TABLE: np.ones((50, 16))}), r"word_embeddings.weight is \(50, 16\), wanted \(48, 16\)"),
        (
            lambda w: w.update({"lm_head.decoder.weight": w[TABLE] + 1}),
            "lm_head.decoder.weight differs from roberta.embeddings.word_embeddings.weight",
        ),
        (
            lambda w: w.update({"ctx.embeddings.position_embeddings.weight": np.ones((14, 16))}),
            r"Found models under \['ctx.', 'roberta.'\]",
        ),
        (lambda w: w.clear() or w.update({"fc.weight": np.ones(3)}), r"there are 0. Found \['fc.weight'\]"),
        (lambda w: w.update({"module." + QUERY: w[QUERY], "model." + QUERY: w[QUERY]}), "are both"),
    ],
)
def test_what_does_not_fit_is_named(xlm_r, change, message):
    weights, config = xlm_r
    change(weights)
    with pytest.raises(ValueError, match=message):
        hf_encoder.to_params(weights, config)


def test_what_may_lack_or_be_left_over(xlm_r):
    weights, config = xlm_r
    del weights["lm_head.bias"], weights[QUERY]
    weights["classifier.weight"] = np.ones(3)
    patterns = ["mlm_head/bias", r"encoder\.layer\.1\.attention.*", r"classifier\..*"]
    params = trees.flatten(hf_encoder.to_params(weights, config, patterns).params)
    assert "mlm_head/bias" not in params and "encoder/layers_1/attention/query/kernel" not in params
    with pytest.raises(ValueError, match="mlm_head/bias.*wanted, absent"):
        hf_encoder.to_params(weights, config, patterns[1:])
    with pytest.raises(ValueError, match="mlm_head/bias: wanted, absent"):
        hf_encoder.from_params(trees.nest(params), config)


def test_parameters_that_hugging_face_has_no_place_for(xlm_r):
    weights, config = xlm_r
    params = hf_encoder.to_params(weights, config).params
    params["embedding_norm"]["scale"] = np.ones(8, np.float32)
    with pytest.raises(ValueError, match=r"embedding_norm/scale is \(8,\), wanted \(16,\)"):
        hf_encoder.from_params(params, config)
