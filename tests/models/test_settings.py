"""Settings of models that can't be: each is a ValueError that names the setting, what it is and what is wanted."""

import dataclasses
import re

import pytest

from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.output_layer import OutputOptions
from vmsst_jax.models.t5 import T5Config
from vmsst_jax.models.text_encoder import DenseOptions, TextEncoderConfig
from vmsst_jax.models.vmsst import ModelConfig

NO_SIZE = (0, -1, "two", 2.5, True, None)
SIZES = [
    *((T5Config, name) for name in ("vocab_size", "embed_dim", "num_heads", "head_dim", "mlp_dim")),
    *((T5Config, name) for name in ("relative_buckets", "relative_max_distance")),
    *((BertConfig, name) for name in ("vocab_size", "embed_dim", "num_heads", "mlp_dim", "max_positions")),
    *((ModelConfig, "num_languages"), (DenseOptions, "features")),
]


@pytest.mark.parametrize(("config", "name"), SIZES)
def test_sizes_are_positive_whole_numbers(config, name):
    for value in NO_SIZE:
        with pytest.raises(ValueError, match=rf"{name} is {value!r}; wanted a whole number of \d+ or more"):
            config(**{name: value})


@pytest.mark.parametrize(
    ("config", "options", "message"),
    [
        (T5Config, {"encoder_layers": -1}, "T5Config.encoder_layers is -1; wanted a whole number of 0 or more"),
        (T5Config, {"dropout": 1.0}, "T5Config.dropout is 1.0; wanted a number of 0 or more and below 1"),
        (T5Config, {"dropout": "x"}, "T5Config.dropout is 'x'"),
        (T5Config, {"mlp_activations": "gelu"}, "mlp_activations is 'gelu'; wanted one or more names in brackets"),
        (T5Config, {"mlp_activations": ()}, "mlp_activations is ()"),
        (BertConfig, {"num_layers": -1}, "BertConfig.num_layers is -1"),
        (BertConfig, {"attention_dropout": -0.1}, "BertConfig.attention_dropout is -0.1"),
        (ModelConfig, {"latent_dim": 0}, "model.latent_dim is 0; wanted a whole number of 1 or more"),
        (ModelConfig, {"latent_dim": "x"}, "model.latent_dim is 'x'"),
        (ModelConfig, {"encoder_of_language": (-1,)}, "model.encoder_of_language is -1"),
        (ModelConfig, {"encoder_of_language": 3}, "model.encoder_of_language is 3; wanted whole numbers"),
        (OutputOptions, {"label_smoothing": 1}, "OutputOptions.label_smoothing is 1"),
        (OutputOptions, {"dtype": "int8"}, "OutputOptions.dtype is 'int8'"),
        (TextEncoderConfig, {"layer": "last"}, "layer is 'last'"),
    ],
)
def test_other_settings(config, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        config(**options)


def test_no_layers_are_a_model():
    assert dataclasses.asdict(T5Config(decoder_layers=0, dropout=0))["decoder_layers"] == 0


def test_the_output_layer_chooses_its_slices_or_is_told():
    assert OutputOptions().chunk_bytes is None
    with pytest.raises(ValueError, match=r"OutputOptions.chunk_bytes is 0; wanted a whole number of \d+ or more"):
        OutputOptions(chunk_bytes=0)
