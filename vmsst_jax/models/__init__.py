"""Flax Linen modules, and the two functions by which the rest of the package makes them."""

from __future__ import annotations

import dataclasses

import numpy as np

KINDS = ("contrastive", "bitranslation", "vmsst", "encoder", "ccp", "dual_encoder", "seq2seq")


def build(kind: str, config):
    """The module of ``kind`` from its configuration or its ``describe`` dictionary (as checkpoints keep it).

    The configuration of "encoder" is a ``TextEncoderConfig``, that of "ccp" a ``CcpConfig``, that of "dual_encoder" a
    ``DualEncoderConfig``, that of "seq2seq" a ``Seq2SeqConfig``, that of the other kinds a ``ModelConfig``. Raises
    ValueError for an unknown kind or field.
    """
    from vmsst_jax.models import ccp, dual_encoder, seq2seq, t5, text_encoder, vmsst
    from vmsst_jax.models.output_layer import OutputOptions

    own = (text_encoder.TextEncoder, ccp.Ccp, dual_encoder.DualEncoder, seq2seq.Seq2Seq)
    modules = (vmsst.SentenceEncoder, vmsst.TranslationModel, vmsst.Vmsst, *own)
    classes = dict(zip(KINDS, modules, strict=True))
    if kind not in classes:
        raise ValueError(f"model kind is {kind!r}; known kinds are {', '.join(KINDS)}")
    own_form = {
        "encoder": text_encoder.TextEncoderConfig,
        "ccp": ccp.CcpConfig,
        "dual_encoder": dual_encoder.DualEncoderConfig,
        "seq2seq": seq2seq.Seq2SeqConfig,
    }
    if isinstance(config, dict) and kind in own_form:
        config = own_form[kind].from_json(config)
    elif isinstance(config, dict):
        nested = {"t5": t5.T5Config(**config["t5"]), "output": OutputOptions(**config["output"])}
        config = vmsst.ModelConfig(**{**config, **nested})
    return classes[kind](config)


def describe(module) -> dict:
    """The inverse of ``build``: {"kind": ..., "config": ...}, ready for JSON."""
    if hasattr(module.config, "to_json"):
        return {"kind": module.kind, "config": module.config.to_json()}
    config = {f.name: getattr(module.config, f.name) for f in dataclasses.fields(module.config)}
    config |= {"t5": dataclasses.asdict(config["t5"]), "output": dataclasses.asdict(config["output"])}
    return {"kind": module.kind, "config": config}


def of_vocabulary(module, pieces: int):
    """``module`` told how many rows of its token table stand for pieces of the vocabulary.

    A table may have more, to round it up. Those are never written, nor put in the place of others by ``masked_lm``. No
    part of the configuration: whoever has a vocabulary says it anew.
    """
    return module.clone(pieces=pieces) if hasattr(module, "pieces") else module


def pooled_by(module) -> dict:
    """How ``module`` makes a vector of its hidden states, as checkpoints keep it: {"pooling", "layer"}."""
    config = getattr(module.config, "encoder", module.config)
    return {"pooling": getattr(config, "pooling", "mean"), "layer": getattr(config, "layer", None)}


def example_batch(pairs: int = 2, length: int = 4) -> dict:
    """A smallest bucketed batch, for initialising parameters: contents don't matter, shapes do."""
    rows = 2 * pairs
    order = np.arange(rows, dtype=np.int32)
    return {
        "tokens": (np.ones((rows, length), np.int32),),
        "slot": order,
        "row": order,
        "lang": np.zeros(rows, np.int32),
        "text_id": order,
    }


def init_params(module, key):
    """Random parameters of ``module`` from a JAX key (under ``jax.jit`` or ``jax.eval_shape`` as the caller likes)."""
    return module.init(key, example_batch())["params"]


def abstract_params(module):
    """Shapes and types of the parameters of ``module``, without making any."""
    import jax

    return jax.eval_shape(lambda key: init_params(module, key), jax.random.key(0))
