"""Sentence encoders taken from a checkpoint: parameters, configuration, tokenizer.

A checkpoint of kind "encoder" (every converted BERT, XLM-R or XLM), "ccp" or "dual_encoder" may start a run of any of
these kinds; what only one side has of CCP's head stays behind or fresh. One encoder starts both towers of a dual
encoder; two towers start two.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from vmsst_jax import models
from vmsst_jax.data import tokenizers
from vmsst_jax.interop import trees
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.training import checkpoint

ENCODERS = ("encoder", "ccp", "dual_encoder")
# Below which names a model of one of these kinds may have an encoder's parameters.
PLACES = ("", "encoder/", "query_encoder/", "passage_encoder/")
# CCP's own parameters, which plain encoders don't have.
HEAD = "head/.*"


def parameters(kind: str, params: Mapping, target: Mapping) -> dict:
    """{flat name: array} of an encoder's parameters as a run of one of the kinds in ``ENCODERS`` names and stacks them.

    Args:
      kind, params: of the checkpoint, one of ``ENCODERS``.
      target: {flat name: array} of the fresh model.

    Raises:
      ValueError: the checkpoint has two towers, and the model one encoder.
    """
    given = {}
    if kind == "ccp" and any(name.startswith("head/") for name in target):
        given = trees.flatten({"head": params["head"]})
    for place in _places(target):
        encoder = dict(_encoder_for(place, params))
        backbone = {name: part for name, part in encoder.pop("backbone").items() if name != "decoder"}
        stacked = any(name.startswith(f"{place}backbone/encoder/layers/") for name in target)
        if stacked != ("layers" in backbone["encoder"]):
            change = trees.stack_layers if stacked else trees.unstack_layers
            backbone["encoder"] = change(backbone["encoder"])
        encoder["backbone"] = backbone
        given |= {place + name: array for name, array in trees.flatten(encoder).items()}
    return given


def _encoder_for(place: str, params: Mapping) -> Mapping:
    """Which of a checkpoint's encoders goes to a place."""
    if "backbone" in params or "encoder" in params:
        return params.get("encoder", params)
    if place.removesuffix("/") not in params:
        raise ValueError(
            f"the checkpoint has two towers, {' and '.join(sorted(params))}, and this model one encoder: start two "
            "towers from it (dual_encoder_model.shared = False)"
        )
    return params[place.removesuffix("/")]


def _places(target: Mapping) -> list[str]:
    return [place for place in PLACES if any(name.startswith(f"{place}backbone/") for name in target)]


def takes_encoders(target: Mapping) -> bool:
    """Whether a model with parameters of these flat names is of one of the kinds in ``ENCODERS``."""
    return bool(_places(target))


def checkpoint_bert(path: str, **changes) -> BertConfig:
    """The geometry of the BERT-type encoder in a checkpoint, with fields changed: ``scan_layers``, ``mlm_head``, ...

    Raises:
      ValueError: it is no such encoder. FileNotFoundError, CheckpointError: there is no checkpoint.
    """
    described = checkpoint.read_host(path)["model"]
    module = models.build(**described)
    config = getattr(module.config, "encoder", module.config)
    backbone = getattr(config, "backbone", None)
    if not isinstance(backbone, BertConfig):
        raise ValueError(f"checkpoint_bert.path is {path!r}, a {described['kind']} model without a BERT-type encoder")
    return dataclasses.replace(backbone, **changes)


def checkpoint_tokenizer(path: str):
    """The tokenizer of a checkpoint, of whatever kind."""
    return tokenizers.from_record(checkpoint.read_host(path)["tokenizer"], path)
