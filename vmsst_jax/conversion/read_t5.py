"""Reads models of the T5 family: Hugging Face's (m)T5, T5X checkpoints, the released VMSST."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vmsst_jax import models
from vmsst_jax.conversion.model import UNDETERMINED, Model, Settings
from vmsst_jax.conversion.vocabulary import check_vocabulary
from vmsst_jax.data import tokenizers
from vmsst_jax.interop import files, hf_encoder, hf_t5, t5x, trees
from vmsst_jax.models.t5 import T5Config
from vmsst_jax.models.text_encoder import TextEncoderConfig
from vmsst_jax.models.vmsst import ModelConfig

VMSST_PREFIX, VMSST_HEAD = "mt5_encoder.", "projection.weight"
# GR-vmsst cuts sentences there (METHODS 2.10).
VMSST_LENGTH = 512
DECODER = "decoder."
HEAD = "lm_head.weight"


def from_hugging_face(weights: files.Weights, config: dict, allow_missing: Sequence[str]):
    """(configuration, ``hf_encoder.Imported`` of encoder and token table, {"decoder": its parameters} or {}).

    The decoder is not embedding's, but a start for training and part of what goes out again. Layers are stacked.
    """
    config = {**config, "t5": {**config["t5"], "scan_layers": True}}
    has_decoder = any(name.startswith(DECODER) for name in weights)
    names = [name for name in weights if name.startswith(DECODER) or name == HEAD]
    imported = hf_encoder.to_params(weights, config, allow_missing)
    sources = _stacked(imported.sources)
    if not has_decoder:
        return config, imported._replace(sources=sources), {}
    ignored = [name for name in imported.ignored if name not in names or _is_copy(name)]
    decoder = hf_t5.decoder_params(weights, scan_layers=False)
    layers, gated = _count_layers(decoder), "wi_0" in decoder["layers_0"]["mlp"]
    theirs = hf_t5.stack_names("decoder", layers, gated)
    sources |= _stacked({f"decoder/{ours}": f"{DECODER}{name}" for ours, name in theirs.items()})
    decoder = trees.stack_layers(decoder)
    table = imported.params["token_embedder"]["embedding"]
    if HEAD in weights:
        head = weights[HEAD]
        if head.shape != table.shape:
            raise ValueError(f"{HEAD} has the shape {head.shape}, wanted {table.shape} as the token table has")
        if not np.array_equal(head, table):
            decoder["logits_dense"] = {"kernel": head.T}
            sources["decoder/logits_dense/kernel"] = HEAD
    config["t5"]["decoder_layers"] = layers
    return config, imported._replace(sources=sources, ignored=ignored), {"decoder": decoder}


def from_t5x(path: Path):
    """(configuration, parameters, sources, layout) of a T5X checkpoint, as a model of kind "encoder"."""
    params, layout, sources = t5x.read(path)
    unknown = [name for name in params if name not in ("token_embedder", *t5x.STACKS)]
    absent = [name for name in ("token_embedder", "encoder") if name not in params]
    if unknown or absent:
        raise ValueError(trees.misfit(f"a T5 from {path}", absent, unknown))
    encoder = params["encoder"]
    fields = geometry(
        rows=params["token_embedder"]["embedding"].shape[0],
        bias=encoder["relpos_bias"]["rel_embedding"].shape,
        query=encoder["layers_0"]["attention"]["query"]["kernel"].shape,
        wo=encoder["layers_0"]["mlp"]["wo"]["kernel"].shape,
        gated="wi_0" in encoder["layers_0"]["mlp"],
        encoder_layers=_count_layers(encoder),
        decoder_layers=_count_layers(params.get("decoder", {})),
    )
    stacked = {name: trees.stack_layers(params[name]) for name in t5x.STACKS if name in params}
    config = TextEncoderConfig(backbone=T5Config(**fields)).to_json()
    sources = {f"backbone/{ours}": theirs for ours, theirs in _stacked(sources).items()}
    return config, {"backbone": {**params, **stacked}}, sources, layout


def is_released_vmsst(weights: files.Weights) -> bool:
    """Whether these are the weights of the released VMSST: an mT5 encoder and one projection."""
    return VMSST_HEAD in weights and any(name.startswith(VMSST_PREFIX) for name in weights)


def released_vmsst(path: Path, weights: files.Weights, settings: Settings) -> Model:
    """The released VMSST as a model of kind "contrastive": its embedding is the projected mean (METHODS 2.10)."""
    tokenizer = tokenizers.load(settings.tokenizer or path, "mt5")
    shapes = {name.removeprefix(VMSST_PREFIX): shape for name, shape in weights.shapes.items()}
    block = "encoder.block.0.layer"
    try:
        fields = geometry(
            rows=shapes.get("shared.weight", shapes.get("encoder.embed_tokens.weight", ()))[0],
            bias=shapes[f"{block}.0.SelfAttention.relative_attention_bias.weight"][::-1],
            query=shapes[f"{block}.0.SelfAttention.q.weight"][::-1],
            wo=shapes[f"{block}.1.DenseReluDense.wo.weight"][::-1],
            gated=f"{block}.1.DenseReluDense.wi_0.weight" in shapes,
            encoder_layers=len({m[1] for name in shapes if (m := re.match(r"encoder\.block\.(\d+)\.", name))}),
            decoder_layers=0,
        )
    except (KeyError, IndexError) as error:
        raise ValueError(f"{path} has names of the released VMSST ({VMSST_HEAD}), but lacks {error}") from None
    t5 = T5Config(**fields)
    config = TextEncoderConfig(backbone=t5).to_json()
    imported = hf_encoder.to_params(weights.without(VMSST_HEAD), config, settings.allow_missing)
    head = weights[VMSST_HEAD].T
    if head.ndim != 2 or head.shape[0] != t5.embed_dim:
        raise ValueError(f"{VMSST_HEAD} has the shape {head.T.shape}; wanted (k, {t5.embed_dim}), k of any size")
    renamed = {"token_embedder": "token_embedder", "encoder": "semantic_encoder"}
    sources = {f"{renamed[n.split('/')[0]]}/{n.split('/', 1)[1]}": theirs for n, theirs in imported.sources.items()}
    model = ModelConfig(t5=t5, latent_dim=head.shape[1])
    return Model(
        kind="contrastive",
        config=models.describe(models.build("contrastive", model))["config"],
        params={renamed[name]: tree for name, tree in imported.params.items()}
        | {"semantic_mean": {"kernel": np.ascontiguousarray(head)}},
        tokenizer=tokenizer,
        languages=(UNDETERMINED,),
        embedding={"pooling": "mean", "layer": None, "normalize": False, "prefix": "", "max_length": VMSST_LENGTH},
        origin={"form": "hugging_face", "path": str(path), "model_type": "vmsst"},
        sources=_stacked(sources) | {"semantic_mean/kernel": VMSST_HEAD},
        ignored=imported.ignored,
        notes=check_vocabulary(t5.vocab_size, tokenizer),
    )


def geometry(*, rows, bias, query, wo, gated, encoder_layers, decoder_layers) -> dict:
    """The fields of a ``T5Config`` from shapes as our arrays have them; layers stacked."""
    heads, buckets = bias
    config = T5Config(
        vocab_size=rows,
        embed_dim=query[0],
        num_heads=heads,
        head_dim=query[1] // heads,
        mlp_dim=wo[0],
        encoder_layers=encoder_layers,
        decoder_layers=decoder_layers,
        mlp_activations=("gelu", "linear") if gated else ("relu",),
        relative_buckets=buckets,
        scan_layers=True,
    )
    return dataclasses.asdict(config)


def _count_layers(stack: Mapping) -> int:
    return sum(name.startswith("layers_") for name in stack)


def _stacked(sources: Mapping[str, str]) -> dict[str, str]:
    """{our name: theirs} of single layers -> of all layers stacked, whose numbers become a star on their side."""
    stars = {"layers_": r"\blayers_\d+/", "block.": r"\bblock\.\d+\."}
    stacked = {}
    for ours, theirs in sources.items():
        if (name := re.sub(stars["layers_"], "layers/", ours)) != ours:
            theirs = re.sub(stars["block."], "block.*.", re.sub(stars["layers_"], "layers_*/", theirs))
        stacked[name] = theirs
    return stacked


def _is_copy(name: str) -> bool:
    return name.endswith("embed_tokens.weight")
