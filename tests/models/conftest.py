"""A whole T5 put together from the package's stacks, for the comparisons with Hugging Face's."""

import functools

import jax
import jax.numpy as jnp
import pytest


def t5_logits(config, params, tokens, targets):
    """An encoder-decoder as ``interop.hf_t5.model_params`` describes it.

    Returns (tuple of every encoder state, last decoder state, logits [B, L, V]).
    """
    from vmsst_jax.models import t5

    table = params["token_embedder"]["embedding"]
    mask = tokens > 0
    encoder, decoder = t5.Encoder(config, config.encoder_layers), t5.Decoder(config, config.decoder_layers)
    states = encoder.apply({"params": params["encoder"]}, table[tokens], mask, all_layers=True)
    stack = {k: v for k, v in params["decoder"].items() if k != "logits_dense"}
    inputs = table[jnp.pad(targets[:, :-1], ((0, 0), (1, 0)))]
    hidden = decoder.apply({"params": stack}, inputs, memory=states[-1], memory_mask=mask)
    if "logits_dense" in params["decoder"]:
        kernel = params["decoder"]["logits_dense"]["kernel"]
    else:
        kernel = t5.tied_kernel(table)
    return states, hidden, hidden @ kernel


def t5_config(name: str, scan_layers: bool = False):
    """The geometry of the models that make_t5_goldens.py makes."""
    from vmsst_jax.models.t5 import T5Config

    return T5Config(
        vocab_size=48,
        embed_dim=16,
        num_heads=2,
        head_dim=12,
        mlp_dim=20,
        encoder_layers=3,
        decoder_layers=2,
        mlp_activations={"mt5": ("gelu", "linear"), "t5_1_0": ("relu",)}[name],
        scan_layers=scan_layers,
    )


@pytest.fixture(scope="session")
def t5_model():
    """Function (name, scan_layers=False) -> jitted function (params, tokens, targets) -> states, hidden, logits."""

    def make(name, scan_layers=False):
        return jax.jit(functools.partial(t5_logits, t5_config(name, scan_layers)))

    return make


@pytest.fixture(scope="session")
def tiny_t5_shapes():
    """Function (name, stack, scan_layers) -> shapes of the parameters that the package's own stack makes."""
    from vmsst_jax.models import t5

    def shapes(name, stack, scan_layers):
        config = t5_config(name, scan_layers)
        x, mask = jnp.zeros((1, 2, 16)), jnp.ones((1, 2), jnp.int32)
        if stack == "encoder":
            module, args = t5.Encoder(config, config.encoder_layers), (x, mask)
        else:
            module, args = t5.Decoder(config, config.decoder_layers), (x, None, x, mask)
        abstract = jax.eval_shape(module.init, jax.random.key(0), *args)["params"]
        return jax.tree.map(lambda leaf: leaf.shape, abstract)

    return shapes
