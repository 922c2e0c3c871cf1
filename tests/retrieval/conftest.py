"""A random tiny model: in memory, and saved as training saves it."""

import base64
from types import SimpleNamespace

import jax
import pytest

from vmsst_jax import models
from vmsst_jax.data.languages import Languages
from vmsst_jax.data.tokenizer import Tokenizer
from vmsst_jax.models.t5 import T5Config
from vmsst_jax.models.vmsst import ModelConfig

WORDS = "der hund bellt laut the dog barks loudly le chien aboie fort a house is big".split()
EMBEDDING = {"pooling": "mean", "layer": None, "normalize": False, "prefix": "", "max_length": 20}


@pytest.fixture(scope="session")
def tiny():
    """module, params, tokenizer, languages, embedding."""
    sentences = [" ".join(WORDS[i % 7 :: 1 + i % 3]) for i in range(40)]
    tokenizer = Tokenizer.train(sentences, 36, character_coverage=1.0)
    t5 = T5Config(vocab_size=36, embed_dim=16, num_heads=2, head_dim=8, mlp_dim=16, encoder_layers=1, decoder_layers=1)
    module = models.build("contrastive", ModelConfig(t5=t5, num_languages=3))
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))
    return SimpleNamespace(
        module=module, params=params, tokenizer=tokenizer, languages=Languages(["en", "de", "fr"]), embedding=EMBEDDING
    )


@pytest.fixture(scope="session")
def model_dir(tiny, tmp_path_factory):
    """A model directory with the steps 3 and 7; the parameters of step 7 are twice those of `tiny`."""
    from vmsst_jax.training.checkpoint import Checkpoints

    directory = tmp_path_factory.mktemp("model")
    host = {
        "model": models.describe(tiny.module),
        "languages": list(tiny.languages.codes),
        "tokenizer": {
            "kind": "sentencepiece",
            "sha256": tiny.tokenizer.sha256,
            "model": base64.b64encode(tiny.tokenizer.serialized).decode(),
        },
        "embedding": tiny.embedding,
    }
    with Checkpoints(directory, keep_last=2) as checkpoints:
        for step, scale in ((3, 1.0), (7, 2.0)):
            checkpoints.save(step, {"params": jax.tree.map(lambda x, s=scale: s * x, tiny.params)}, host)
    return directory
