"""Folders of the library sentence-transformers: how a model pools, what it does to the vector, what it prefixes.

modules.json                      the modules in order: Transformer, Pooling, any number of Dense, Normalize
1_Pooling/config.json             which pooling
2_Dense/{config.json, weights}    linear.weight [out, in], linear.bias
sentence_bert_config.json         max_seq_length
config_sentence_transformers.json prompts, default_prompt_name
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from vmsst_jax.interop import files, safetensors_file

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
LENGTHS = ("sentence_bert_config.json", "sentence_roberta_config.json", "sentence_xlm-roberta_config.json")
# Ours -> theirs: the key of old configurations, the value of "pooling_mode" in new ones.
POOLINGS = {
    "mean": ("pooling_mode_mean_tokens", "mean"),
    "cls": ("pooling_mode_cls_token", "cls"),
    "max": ("pooling_mode_max_tokens", "max"),
    "mean_sqrt_len": ("pooling_mode_mean_sqrt_len_tokens", "mean_sqrt_len_tokens"),
    "last": ("pooling_mode_lasttoken", "lasttoken"),
}
ACTIVATIONS = {
    "identity": "torch.nn.modules.linear.Identity",
    "tanh": "torch.nn.modules.activation.Tanh",
    "relu": "torch.nn.modules.activation.ReLU",
    "gelu": "torch.nn.modules.activation.GELU",
}


@dataclasses.dataclass(frozen=True)
class Description:
    """What a sentence-transformers folder says beside the transformer itself.

    Attributes:
      transformer: the folder of the transformer's config.json, weights and tokenizer.
      pooling: "mean", "cls", "max", "mean_sqrt_len" or "last".
      dense: [{"features", "bias", "activation"}] in order.
      dense_weights: their weights, as opened files, in the same order.
      normalize: whether vectors get unit length.
      prefix: the default prompt, "" without one.
      prompts: all prompts by name.
      max_length: most tokens of a text; None where the folder does not say.
    """

    transformer: Path
    pooling: str
    dense: list[dict]
    dense_weights: list[files.Weights]
    normalize: bool
    prefix: str
    prompts: dict[str, str]
    max_length: int | None


def is_folder(path: str | os.PathLike) -> bool:
    """Whether a folder is one of sentence-transformers."""
    return (Path(path) / MODULES).is_file()


def read(folder: str | os.PathLike) -> Description:
    """Reads a folder's modules. ValueError for a module, pooling or activation that has no counterpart here."""
    folder = Path(folder)
    modules = [(str(m["type"]).rsplit(".", 1)[-1], folder / m["path"]) for m in _json(folder / MODULES)]
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"]:
        raise ValueError(f"{folder / MODULES} begins with {kinds[:2]}; supported is a Transformer, then a Pooling")
    after = kinds[2:]
    ordered = ["Dense"] * after.count("Dense") + ["Normalize"] * after.count("Normalize")
    if after != ordered or after.count("Normalize") > 1:
        raise ValueError(
            f"{folder / MODULES} has {after} after its pooling; supported are Dense layers, then Normalize"
        )
    transformer, pooling_folder = modules[0][1], modules[1][1]
    dense_folders = [place for kind, place in modules[2:] if kind == "Dense"]
    dense = [_dense(_json(place / "config.json"), place) for place in dense_folders]
    settings = _json(folder / PROMPTS) if (folder / PROMPTS).is_file() else {}
    prompts = settings.get("prompts") or {}
    default = settings.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise ValueError(f"{folder / PROMPTS} has the default prompt {default!r}, but only prompts {sorted(prompts)}")
    pooling = _json(pooling_folder / "config.json")
    if pooling.get("include_prompt") is False and any(prompts.values()):
        raise ValueError(f"{pooling_folder} leaves the prompt's tokens out of the pooling, which is not supported here")
    return Description(
        transformer=transformer,
        pooling=_pooling(pooling, pooling_folder),
        dense=dense,
        dense_weights=[files.open_weights(place) for place in dense_folders],
        normalize="Normalize" in kinds,
        prefix=prompts[default] if default else "",
        prompts=dict(prompts),
        max_length=_max_length(transformer),
    )


def dense_params(options: Mapping, weights: files.Weights) -> dict:
    """Parameters of one Dense layer: {"linear": {"kernel": [in, out], "bias": [out]}}. ValueError for other shapes."""
    wanted = {
        "linear.weight": (options["features"], None),
        **({"linear.bias": (options["features"],)} if options["bias"] else {}),
    }
    if set(weights) != set(wanted):
        raise ValueError(f"{weights.origin} holds {sorted(weights)}; a Dense layer has {sorted(wanted)}")
    for name, shape in wanted.items():
        found = weights.shapes[name]
        if len(found) != len(shape) or any(w is not None and w != f for w, f in zip(shape, found, strict=True)):
            raise ValueError(
                f"{weights.origin}: {name} has the shape {found}; its config.json says {shape[0]} features"
            )
    linear = {"kernel": np.ascontiguousarray(weights["linear.weight"].T)}
    return {"linear": linear | ({"bias": weights["linear.bias"]} if options["bias"] else {})}


def write(
    folder: Path,
    *,
    width: int,
    pooling: str,
    dense: Sequence[Mapping],
    dense_params: Sequence[Mapping],
    normalize: bool,
    prefix: str,
    max_length: int,
) -> None:
    """Adds to a folder that already holds the transformer what makes it one of sentence-transformers.

    Args:
      width: of the transformer's hidden states.
      dense, dense_params: options and parameters of the layers after the pooling, as ``read`` and ``dense_params`` have
        them.
    """
    modules = [("Transformer", "")]
    _write_json(folder / LENGTHS[0], {"max_seq_length": max_length, "do_lower_case": False})
    place = _module(folder, modules, "Pooling")
    modes = {key: name == pooling for name, (key, _) in POOLINGS.items()}
    _write_json(place / "config.json", {"word_embedding_dimension": width, **modes, "include_prompt": True})
    for options, params in zip(dense, dense_params, strict=True):
        place = _module(folder, modules, "Dense")
        config = {
            "in_features": width,
            "out_features": options["features"],
            "bias": options["bias"],
            "activation_function": ACTIVATIONS[options["activation"]],
        }
        _write_json(place / "config.json", config)
        tensors = {"linear.weight": np.asarray(params["linear"]["kernel"]).T}
        if options["bias"]:
            tensors["linear.bias"] = np.asarray(params["linear"]["bias"])
        safetensors_file.write(place / "model.safetensors", tensors, {"format": "pt"})
        width = options["features"]
    if normalize:
        _module(folder, modules, "Normalize")
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(modules)
    ]
    _write_json(folder / MODULES, listed)
    prompts = {"default": prefix} if prefix else {}
    _write_json(
        folder / PROMPTS,
        {
            "prompts": prompts,
            "default_prompt_name": "default" if prefix else None,
            "similarity_fn_name": "cosine",
        },
    )


def _module(folder: Path, modules: list[tuple[str, str]], kind: str) -> Path:
    path = f"{len(modules)}_{kind}"
    modules.append((kind, path))
    (folder / path).mkdir()
    return folder / path


def _pooling(config: Mapping, place: Path) -> str:
    mode = config.get("pooling_mode")
    if mode is None:
        chosen = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    else:
        chosen = [mode] if isinstance(mode, str) else list(mode)
    found = [name for name, names in POOLINGS.items() if set(names) & set(chosen)]
    if len(chosen) != 1 or not found:
        raise ValueError(f"{place} pools by {chosen or 'nothing'}; supported is one of {', '.join(POOLINGS)}")
    return found[0]


def _dense(config: Mapping, place: Path) -> dict:
    found = str(config.get("activation_function", ACTIVATIONS["tanh"]))
    activation = next(
        (ours for ours, theirs in ACTIVATIONS.items() if theirs.rsplit(".")[-1] == found.rsplit(".")[-1]), None
    )
    if activation is None:
        raise ValueError(f"{place} has the activation {found}; supported are {', '.join(ACTIVATIONS)}")
    return {"features": config["out_features"], "bias": config.get("bias", True), "activation": activation}


def _max_length(transformer: Path) -> int | None:
    for name in LENGTHS:
        if (transformer / name).is_file():
            config = _json(transformer / name)
            if config.get("do_lower_case"):
                raise ValueError(
                    f"{transformer / name} asks for lower-casing (do_lower_case), which is not supported here"
                )
            if config.get("max_seq_length"):
                return int(config["max_seq_length"])
    return None


def _json(path: Path):
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(f"{path} is missing: the sentence-transformers folder is not whole") from None
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


def _write_json(path: Path, value) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
