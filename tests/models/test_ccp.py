"""The kind "ccp": what it is made of, and that its embedding is its encoder's own."""

import json

import jax
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.models.ccp import Ccp, CcpConfig
from vmsst_jax.models.t5 import T5Config
from vmsst_jax.models.text_encoder import DenseOptions, TextEncoder, TextEncoderConfig


def test_its_description_builds_it_anew(tiny_ccp):
    module = tiny_ccp(mlm_head="dense", bn="vanilla", bn_stats="per_language", bank="tagged", bank_dtype="bfloat16")
    assert models.build(**json.loads(json.dumps(models.describe(module)))) == module


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_it_embeds_as_its_encoder_and_the_head_is_for_training_only(tiny_ccp, make_documents, pooling):
    module, batch = tiny_ccp(pooling), make_documents()
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))
    assert params.keys() == {"encoder", "head"}
    tokens = np.concatenate([batch["centre"], batch["context"]], axis=1)  # [G, 2N, L]

    def both(params):
        own = TextEncoder(module.config.encoder).apply({"params": params["encoder"]}, tokens[0], method="embed")
        ours = module.apply({"params": params}, tokens[0], method="embed")
        return own, ours, module.apply({"params": params}, batch, method="encode_pairs")

    own, ours, pairs = jax.jit(both)(params)
    np.testing.assert_array_equal(ours, own)
    np.testing.assert_allclose(pairs[0], own, atol=1e-6)
    assert pairs.shape == (2, 6, 16)


def test_dropout_in_training_only(tiny_ccp, make_documents):
    module, batch = tiny_ccp(dropout=0.5), make_documents()
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))

    @jax.jit
    def encode(seed):
        rngs = {"dropout": jax.random.key(seed)}
        return module.apply({"params": params}, batch, deterministic=False, method="encode_pairs", rngs=rngs)

    assert not np.allclose(encode(0), encode(1))


def test_a_t5_with_dense_layers_is_an_encoder_too():
    t5 = T5Config(vocab_size=40, embed_dim=16, num_heads=2, head_dim=8, mlp_dim=24, encoder_layers=1)
    encoder = TextEncoderConfig(t5, dense=(DenseOptions(12),))
    module = Ccp(CcpConfig(encoder, bank_size=16, head_features=8))
    params = models.abstract_params(module)
    assert params["head"]["hidden"]["kernel"].shape == (12, 12)
    assert (module.pad_id, module.vocab_size, module.has_mlm_head) == (0, 40, False)


def test_how_a_checkpoint_records_its_pooling(tiny_ccp, tiny_model):
    assert models.pooled_by(tiny_ccp("cls")) == {"pooling": "cls", "layer": None}
    assert models.pooled_by(tiny_model("contrastive")) == {"pooling": "mean", "layer": None}


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ({"bank": "global"}, "bank is 'global'; use one of 'per_language', 'tagged', 'plain'"),
        ({"bn": True}, "bn is True; use one of 'asymmetric', 'vanilla', 'none'"),
        ({"bn_stats": "group"}, "bn_stats is 'group'"),
        ({"bn_momentum": 1.5}, "bn_momentum is 1.5"),
        ({"bank_dtype": "int8"}, "bank_dtype is 'int8'"),
        ({"bank_size": 0}, "bank_size is 0; wanted a whole number of 1 or more"),
        ({"head_hidden": 0}, "head_hidden is 0"),
    ],
)
def test_wrong_fields(field, message):
    with pytest.raises(ValueError, match=message):
        CcpConfig(**field)
