"""Small random models in Hugging Face's form, written without Hugging Face's libraries."""

import json

import jax
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.data import tokenizers
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.data.tokenizer_json import wordpiece
from vmsst_jax.interop import hf_config, hf_encoder, hf_t5, safetensors_file

WORDS = "one two three four five six seven eight nine ten".split()
BERT = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
BERT |= {"intermediate_size": 24, "max_position_embeddings": 24, "vocab_size": 15}
T5 = {"model_type": "mt5", "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2}
T5 |= {"num_decoder_layers": 2, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "vocab_size": 28}


@pytest.fixture(scope="session")
def t5_tokenizer():
    return Tokenizer.train([f"{a} {b}" for a in WORDS for b in WORDS], 28)


@pytest.fixture(scope="session")
def bert_tokenizer():
    return wordpiece("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]).encode(), {})


def write_folder(folder, config, state, tokenizer):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    safetensors_file.write(folder / "model.safetensors", state, {"format": "pt"})
    for name, contents in tokenizers.files(tokenizer).items():
        (folder / name).write_bytes(contents)
    return folder


@pytest.fixture(scope="session")
def bert_state():
    """Names and random arrays of a BERT."""
    _, config = hf_config.config_from_hf(BERT)
    params = models.init_params(models.build("encoder", config), jax.random.key(0))
    params = jax.tree.map(lambda x: np.asarray(x + 0.1), params)
    return hf_encoder.from_params(params["backbone"], config)


@pytest.fixture(scope="session")
def t5_state():
    """Names and random arrays of an mT5 with its decoder."""
    rng = np.random.default_rng(0)
    d, inner, f, v = T5["d_model"], T5["d_kv"] * T5["num_heads"], T5["d_ff"], T5["vocab_size"]
    shapes = {"q": (inner, d), "k": (inner, d), "v": (inner, d), "o": (d, inner)}
    shapes |= {"wi_0": (f, d), "wi_1": (f, d), "wo": (d, f), "relative_attention_bias": (32, T5["num_heads"])}
    state = {"shared.weight": (v, d), "lm_head.weight": (v, d)}
    for stack in ("encoder", "decoder"):
        for name in hf_t5.stack_names(stack, 2, gated=True).values():
            state[f"{stack}.{name}"] = shapes.get(name.split(".")[-2], (d,))
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in state.items()}


@pytest.fixture
def bert_folder(tmp_path, bert_state, bert_tokenizer):
    return write_folder(tmp_path / "bert", BERT, bert_state, bert_tokenizer)


@pytest.fixture
def t5_folder(tmp_path, t5_state, t5_tokenizer):
    return write_folder(tmp_path / "mt5", T5, t5_state, t5_tokenizer)


@pytest.fixture(scope="session")
def save_folder():
    """Function (folder, config, state, tokenizer) -> folder in Hugging Face's form."""
    return write_folder
