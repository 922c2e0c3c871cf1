"""Weights of Hugging Face encoders <-> the backbone's parameters of the model kind "encoder": names and transposes.

Names: ``hf_bert`` and ``hf_t5``. Configurations are the dictionaries that ``hf_config.config_from_hf`` makes and
``models.build`` takes. A state dict maps names to arrays that numpy understands; it may read them from disk as they are
asked for. Whatever stands before the backbone's names in a file ("module.", "roberta.", "bert.", "transformer.",
"model.", "mt5_encoder.") is found out and left away.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from vmsst_jax.interop import hf_bert, hf_t5, trees

T5_ANCHOR = "encoder.final_layer_norm.weight"
T5_IGNORED = ("lm_head.weight", *(f"encoder.{name}" for name in hf_t5.UNUSED))
# Wrappers that may stand before a head's names too.
WRAPPERS = re.compile(r"^(?:module\.|model\.)+")
# What TensorFlow called a norm's two vectors; the files of multilingual BERT still do.
OLD_LEAVES = {"gamma": "weight", "beta": "bias"}


class Imported(NamedTuple):
    """What ``to_params`` gives: the tree under "backbone"; {our flat name: name in the file}; names passed over."""

    params: dict
    sources: dict[str, str]
    ignored: list[str]


def fit_config(config: Mapping, state_dict: Mapping) -> dict:
    """``config`` with what only the weights tell: whether they hold a pooler, an MLM head, a language table."""
    if config["backbone"] != "bert":
        return dict(config)
    names = hf_bert.FAMILIES[config["bert"]["family"]]
    found = _canonical(state_dict, config)
    head = {names.head_bias, names.bias_copy} & found.keys()
    fields = {
        "pooler": f"{names.pooler}.weight" in found,
        "mlm_head": ("dense" if names.head else "bias") if head else "none",
    }
    if (table := names.tables.get("language_embedder")) is not None:
        origin = found.get(f"{table}.weight")
        fields["num_languages"] = 0 if origin is None else len(state_dict[origin])
    return {**config, "bert": {**config["bert"], **fields}}


def to_params(state_dict: Mapping, config: Mapping, allow_missing: Sequence[str] = ()) -> Imported:
    """The backbone's parameters, float32 and contiguous.

    Args:
      state_dict: names -> arrays, of the family and sizes that ``config`` says; each array is asked for once.
      config: of the model kind "encoder", made complete by ``fit_config``.
      allow_missing: regular expressions for whole names, ours or theirs; what they match may lack or be left over.
    Raises:
      ValueError: lists every name that only one side has, every wrong shape, and every copy that differs from what it
        should be a copy of.
    """
    found, wanted, copies = _canonical(state_dict, config), _layout(config), _copies(config)
    for name, copy in copies.items():  # some files keep only the second name
        if name not in found and copy in found:
            found[name] = found.pop(copy)
    allowed = re.compile("|".join(f"(?:{pattern})" for pattern in allow_missing) or r"(?!)")
    names = {theirs for theirs, _ in wanted.values()}
    copies = {name: copy for name, copy in copies.items() if copy in found and name in names}
    ignored = [n for n in found if n not in names and (n in copies.values() or _is_ignored(n, config))]
    left = found.keys() - names - set(ignored)
    unknown = [found[n] for n in found if n in left and not (allowed.fullmatch(n) or allowed.fullmatch(found[n]))]
    absent = {ours: theirs for ours, (theirs, _) in wanted.items() if theirs not in found}
    missing = [f"{b} (our {a})" for a, b in absent.items() if not (allowed.fullmatch(a) or allowed.fullmatch(b))]
    if unknown or missing:
        raise ValueError(trees.misfit(_describe(config), missing, unknown))

    flat, problems = {}, []
    for ours, (theirs, shape) in wanted.items():
        if ours in absent:
            continue
        array = _turned(ours, np.asarray(state_dict[found[theirs]]))
        if array.shape != shape:
            problems.append(
                f"{found[theirs]} is {_turned_shape(ours, array.shape)}, wanted {_turned_shape(ours, shape)}"
            )
            continue
        flat[ours] = np.ascontiguousarray(array, np.float32)
        copy = copies.get(theirs)
        if copy and not np.array_equal(np.asarray(state_dict[found[copy]], np.float32), flat[ours]):
            problems.append(f"{found[copy]} differs from {found[theirs]}, which it should be tied to")
    if problems:
        raise ValueError(trees.misfit(_describe(config), [], [], problems))
    params = trees.nest(flat)
    if config[config["backbone"]]["scan_layers"]:
        params["encoder"] = trees.stack_layers(params["encoder"])
    sources = {ours: found[theirs] for ours, (theirs, _) in wanted.items() if ours in flat}
    return Imported(params, sources, [found[n] for n in ignored])


def from_params(params: Mapping, config: Mapping) -> dict[str, np.ndarray]:
    """The inverse of ``to_params``: contiguous arrays by Hugging Face's names, copies of tied tables left out.

    Names have the prefix of the architecture that ``hf_config.config_to_hf`` names: with an MLM head "roberta.",
    "bert." and so on, without one none. Raises ValueError as ``to_params`` does.
    """
    flat = trees.flatten({**params, "encoder": trees.unstack_layers(params["encoder"])})
    wanted = _layout(config)
    missing, unknown = [n for n in wanted if n not in flat], [n for n in flat if n not in wanted]
    problems = [
        f"{ours} is {np.shape(flat[ours])}, wanted {shape}"
        for ours, (_, shape) in wanted.items()
        if ours in flat and np.shape(flat[ours]) != shape
    ]
    if missing or unknown or problems:
        raise ValueError(trees.misfit(_describe(config), missing, unknown, problems))
    bert = config.get("bert", {"mlm_head": "none"})
    prefix = "" if bert["mlm_head"] == "none" else hf_bert.FAMILIES[bert["family"]].prefix
    return {
        ("" if ours.startswith("mlm_head/") else prefix) + theirs: np.ascontiguousarray(
            _turned(ours, np.asarray(flat[ours]))
        )
        for ours, (theirs, _) in wanted.items()
    }


def _turned(ours: str, array: np.ndarray) -> np.ndarray:
    """Between [out, in] and [in, out], whichever it is; tables of vectors are alike on both sides."""
    return array if ours.endswith("/embedding") else array.T


def _turned_shape(ours: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if ours.endswith("/embedding") else shape[::-1]


def _canonical(names: Iterable[str], config: Mapping) -> dict[str, str]:
    """{name without what stands before the backbone's: name as found}."""
    t5 = config["backbone"] == "t5"
    anchor = T5_ANCHOR if t5 else hf_bert.FAMILIES[config["bert"]["family"]].anchor
    names = list(names)
    prefixes = {n[: -len(anchor)] for n in names if n == anchor or n.endswith(f".{anchor}")}
    if len(prefixes) != 1:
        what = f"models under {sorted(prefixes)}: give one of them" if prefixes else f"{sorted(names)[:5]} and so on"
        raise ValueError(
            f"wanted the weights of {_describe(config)}, so one name that ends in {anchor!r}; among {len(names)} names "
            f"there are {len(prefixes)}. Found {what}"
        )
    prefix = prefixes.pop()
    found: dict[str, str] = {}
    for origin in names:
        name = origin.removeprefix(prefix) if origin.startswith(prefix) else WRAPPERS.sub("", origin)
        stem, _, leaf = name.rpartition(".")
        name = f"{stem}.{OLD_LEAVES[leaf]}" if leaf in OLD_LEAVES else name
        if name in found:
            raise ValueError(f"{found[name]} and {origin} are both {name} of {_describe(config)}; remove one of them")
        found[name] = origin
    return found


def _copies(config: Mapping) -> dict[str, str]:
    """{name without prefix: the name under which some files hold the same array again}."""
    if config["backbone"] == "t5":
        return {"shared.weight": "encoder.embed_tokens.weight"}
    names = hf_bert.FAMILIES[config["bert"]["family"]]
    table = f"{names.tables['token_embedder']}.weight"
    return {table: names.weight_copy} | ({names.head_bias: names.bias_copy} if names.bias_copy else {})


def _is_ignored(name: str, config: Mapping) -> bool:
    if config["backbone"] == "t5":
        return name in T5_IGNORED or name.startswith("decoder.")
    return name in hf_bert.FAMILIES[config["bert"]["family"]].ignored


def _describe(config: Mapping) -> str:
    c = config[config["backbone"]]
    layers = c["encoder_layers"] if config["backbone"] == "t5" else c["num_layers"]
    return f"a {c.get('family', 'T5')} encoder of {layers} layers, {c['embed_dim']} wide"


def _layout(config: Mapping) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Every array of the backbone: our flat name -> (their name without prefix, our shape)."""
    if config["backbone"] == "bert":
        return hf_bert.layout(config["bert"])
    c = config["t5"]
    d, f, inner = c["embed_dim"], c["mlp_dim"], c["num_heads"] * c["head_dim"]
    shapes = {"query": (d, inner), "key": (d, inner), "value": (d, inner), "out": (inner, d)}
    shapes |= {"wi": (d, f), "wi_0": (d, f), "wi_1": (d, f), "wo": (f, d)}
    shapes |= {"relpos_bias": (c["num_heads"], c["relative_buckets"])}
    out = {"token_embedder/embedding": ("shared.weight", (c["vocab_size"], d))}
    for ours, theirs in hf_t5.stack_names("encoder", c["encoder_layers"], len(c["mlp_activations"]) > 1).items():
        out[f"encoder/{ours}"] = (f"encoder.{theirs}", shapes.get(ours.split("/")[-2], (d,)))
    return out
