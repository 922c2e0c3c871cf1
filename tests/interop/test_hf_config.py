"""config.json of each family: sizes and options as published files spell them, and what is refused."""

import pytest

from vmsst_jax import models
from vmsst_jax.interop import hf_config

SIZES = dict(
    vocab_size=90,
    hidden_size=16,
    intermediate_size=24,
    num_hidden_layers=2,
    num_attention_heads=4,
    max_position_embeddings=34,
)
XLM = dict(model_type="xlm", emb_dim=16, n_heads=4, n_layers=2)
CONFIGS = {
    "bert": {"model_type": "bert", **SIZES, "hidden_act": "gelu_new", "type_vocab_size": 2},
    "xlm-roberta": {
        "model_type": "xlm-roberta",
        **SIZES,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "pad_token_id": 1,
    },
    "camembert": {"model_type": "camembert", **SIZES, "type_vocab_size": 1, "pad_token_id": 1},
    "distilbert": dict(
        model_type="distilbert", vocab_size=90, dim=16, hidden_dim=24, n_layers=2, n_heads=4, max_position_embeddings=32
    ),
    "xlm": {**XLM, "vocab_size": 90, "n_langs": 7, "use_lang_emb": True},
    "mt5": dict(model_type="mt5", vocab_size=90, d_model=16, num_heads=4, d_kv=8, d_ff=24, num_layers=2),
    "t5": dict(model_type="t5", vocab_size=90, d_model=16, num_heads=4, d_kv=8, d_ff=24, num_layers=2),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_there_and_back(name):
    kind, config = hf_config.config_from_hf(CONFIGS[name])
    described = models.describe(models.build(kind, config))["config"]
    assert models.build("encoder", described) == models.build(kind, config)
    written = hf_config.config_to_hf(described)
    assert {k: written[k] for k in CONFIGS[name]} == CONFIGS[name]
    assert hf_config.config_from_hf(written)[1] == config


def test_what_sets_the_families_apart():
    bert, xlm_r, xlm = (hf_config.config_from_hf(CONFIGS[k])[1]["bert"] for k in ("bert", "xlm-roberta", "xlm"))
    picked = (
        "position_offset",
        "pad_id",
        "token_types",
        "num_languages",
        "mask_after_layer",
        "activation",
        "layer_norm_eps",
    )
    assert [bert[k] for k in picked] == [0, 0, 2, 0, False, "gelu_tanh", 1e-12]
    assert [xlm_r[k] for k in picked] == [2, 1, 1, 0, False, "gelu", 1e-5]
    assert [xlm[k] for k in picked] == [0, 2, 0, 7, True, "gelu", 1e-12]
    assert xlm["mlp_dim"] == 64
    t5, mt5 = (hf_config.config_from_hf(CONFIGS[k])[1]["t5"]["mlp_activations"] for k in ("t5", "mt5"))
    assert (t5, mt5) == (["relu"], ["gelu", "linear"])


def test_parameters_of_an_xlm_file():
    params = {**XLM, "n_words": 90, "pad_index": 2, "n_langs": 100, "gelu_activation": False, "asm": False, "lr": 0.1}
    bert = hf_config.config_from_hf(params)[1]["bert"]
    assert (bert["vocab_size"], bert["pad_id"], bert["activation"], bert["max_positions"]) == (90, 2, "relu", 512)


def test_padding_of_the_tokenizer_beside_positions_of_bert():
    """multilingual-e5: what the tokenizer says goes into the written file."""
    _, config = hf_config.config_from_hf({**CONFIGS["bert"], "pad_token_id": 0})
    config["bert"]["pad_id"] = 1
    assert models.build("encoder", config).pad_id == 1
    assert hf_config.config_to_hf(config)["pad_token_id"] == 1


@pytest.mark.parametrize(
    "config, message",
    [
        ({"model_type": "mbart"}, "model_type 'mbart'; supported families are bert, roberta, xlm-roberta"),
        ({}, "model_type None"),
        ({**CONFIGS["bert"], "position_embedding_type": "relative_key"}, "position_embedding_type = 'relative_key'"),
        ({**CONFIGS["bert"], "is_decoder": True}, "is_decoder = True of this bert model"),
        ({**CONFIGS["bert"], "hidden_act": "silu"}, "activation 'silu' is not supported; known are gelu"),
        ({**CONFIGS["xlm-roberta"], "hidden_act": "relu"}, "activation 'relu' is not supported; known are gelu"),
        ({**CONFIGS["xlm"], "causal": True}, "causal = True"),
        (
            {**CONFIGS["mt5"], "feed_forward_proj": "gated-silu"},
            "feed_forward_proj is 'gated-silu'; supported are gated-gelu",
        ),
        ({"model_type": "bert", "vocab_size": 9}, "config.json of a bert model has no 'hidden_size'; found model_type"),
    ],
)
def test_what_is_not_supported_is_named(config, message):
    with pytest.raises(ValueError, match=message):
        hf_config.config_from_hf(config)


@pytest.mark.parametrize(
    "name, change, message",
    [
        ("xlm-roberta", {"position_offset": 0}, r"xlm-roberta cannot be told position_offset = 0 \(there 2\)"),
        ("bert", {"num_languages": 3}, "bert cannot be told num_languages = 3"),
        ("xlm", {"mlp_dim": 24}, r"xlm cannot be told mlp_dim = 24 \(there 64\)"),
        ("distilbert", {"mlm_head": "bias"}, "distilbert cannot be told mlm_head = 'bias'"),
    ],
)
def test_what_hugging_face_does_not_have_is_named(name, change, message):
    _, config = hf_config.config_from_hf(CONFIGS[name])
    config["bert"] |= change
    with pytest.raises(ValueError, match=message):
        hf_config.config_to_hf(config)
