"""T5 and mT5 weights between Hugging Face's names and ours, which are T5X's: renames and transposes in numpy.

    shared.weight                                               token_embedder/embedding      [V, D], as it is
    {stack}.block.i.layer.0.SelfAttention.q.weight              {stack}/layers_i/(self_)attention/query/kernel    T
    decoder.block.i.layer.1.EncDecAttention.q.weight            decoder/layers_i/encoder_decoder_attention/...    T
    {stack}.block.i.layer.{1,2}.DenseReluDense.wi_0.weight      {stack}/layers_i/mlp/wi_0/kernel                  T
    {stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight    {stack}/relpos_bias/rel_embedding     T
    {stack}.final_layer_norm.weight                             {stack}/{stack}_norm/scale
    lm_head.weight                                              decoder/logits_dense/kernel                       T

A state dict maps names to arrays that numpy understands (PyTorch tensors on the CPU too). Our trees are nested dicts of
numpy arrays, with one entry per layer (``layers_0``, ``layers_1``, ...) or, for models that scan over their layers, all
of them stacked on a leading axis (``layers``). Every function raises ValueError with the names that only one side has
and the arrays whose shapes contradict each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np

from vmsst_jax.interop.trees import flatten, nest

# Per stack: our module in a layer -> Hugging Face's in a block.
MODULES = {
    "encoder": {
        "pre_attention_layer_norm": "layer.0.layer_norm",
        "attention": "layer.0.SelfAttention",
        "pre_mlp_layer_norm": "layer.1.layer_norm",
        "mlp": "layer.1.DenseReluDense",
    },
    "decoder": {
        "pre_self_attention_layer_norm": "layer.0.layer_norm",
        "self_attention": "layer.0.SelfAttention",
        "pre_cross_attention_layer_norm": "layer.1.layer_norm",
        "encoder_decoder_attention": "layer.1.EncDecAttention",
        "pre_mlp_layer_norm": "layer.2.layer_norm",
        "mlp": "layer.2.DenseReluDense",
    },
}
PROJECTIONS = {"query": "q", "key": "k", "value": "v", "out": "o"}
# The token table's second name, and a table of old T5 files that no version of the model reads.
COPIES = ("embed_tokens.weight",)
UNUSED = ("block.0.layer.1.EncDecAttention.relative_attention_bias.weight",)


def stack_names(stack: str, layers: int, gated: bool) -> dict[str, str]:
    """Our name -> Hugging Face's, both within ``stack`` ("encoder" or "decoder"), for every array of it."""
    names = {
        "relpos_bias/rel_embedding": "block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        f"{stack}_norm/scale": "final_layer_norm.weight",
    }
    for i in range(layers):
        for ours, theirs in MODULES[stack].items():
            if ours.endswith("norm"):
                leaves = {"scale": "weight"}
            elif ours == "mlp":
                leaves = {f"{w}/kernel": f"{w}.weight" for w in (("wi_0", "wi_1", "wo") if gated else ("wi", "wo"))}
            else:
                leaves = {f"{p}/kernel": f"{q}.weight" for p, q in PROJECTIONS.items()}
            names |= {f"layers_{i}/{ours}/{a}": f"block.{i}.{theirs}.{b}" for a, b in leaves.items()}
    return names


def encoder_params(state_dict: Mapping, *, prefix: str = "encoder.", scan_layers: bool = False) -> dict:
    """The parameters of ``models.t5.Encoder`` from the names of ``state_dict`` that begin with ``prefix``."""
    return _stack_params("encoder", state_dict, prefix, scan_layers)


def decoder_params(state_dict: Mapping, *, prefix: str = "decoder.", scan_layers: bool = False) -> dict:
    """The parameters of ``models.t5.Decoder`` with cross-attention from the names that begin with ``prefix``."""
    return _stack_params("decoder", state_dict, prefix, scan_layers)


def model_params(state_dict: Mapping, *, scan_layers: bool = False) -> dict:
    """A whole (m)T5: {"token_embedder", "encoder", "decoder"}, without a decoder if ``state_dict`` has none.

    ``decoder/logits_dense`` is there only if the output layer has weights of its own; where it is absent from
    ``state_dict`` or equals the token table, it is tied to it (see ``models.t5.tied_kernel`` for T5 1.0's scaling).
    """
    if "shared.weight" not in state_dict:
        raise ValueError(f"no shared.weight among {len(state_dict)} names, the first being {sorted(state_dict)[:5]}")
    shared = np.asarray(state_dict["shared.weight"])
    stacks = ["encoder"] + ["decoder"] * any(k.startswith("decoder.") for k in state_dict)
    known = {"shared.weight"} | ({"lm_head.weight"} if "decoder" in stacks else set())
    unknown = [k for k in state_dict if k not in known and k.split(".")[0] not in stacks]
    copies = [f"{stack}.{copy}" for stack in stacks for copy in COPIES if f"{stack}.{copy}" in state_dict]
    problems = [f"{k} differs from shared.weight" for k in copies if not np.array_equal(state_dict[k], shared)]
    if unknown or problems:
        raise ValueError(_report("the T5 model", [], unknown, problems))

    params = {"token_embedder": {"embedding": shared}}
    for stack in stacks:
        params[stack] = _stack_params(stack, state_dict, f"{stack}.", scan_layers)
        width = params[stack][f"{stack}_norm"]["scale"].shape[0]
        if shared.ndim != 2 or shared.shape[1] != width:
            raise ValueError(f"shared.weight has shape {shared.shape}, but the {stack} is {width} wide")
    head = np.asarray(state_dict.get("lm_head.weight", shared))
    if head.shape != shared.shape:
        raise ValueError(f"lm_head.weight has shape {head.shape}, wanted {shared.shape} as shared.weight has")
    if not np.array_equal(head, shared):
        params["decoder"]["logits_dense"] = {"kernel": head.T}
    return params


def encoder_state_dict(params: Mapping, *, prefix: str = "encoder.") -> dict[str, np.ndarray]:
    """The inverse of ``encoder_params``, for either layout of the layers."""
    return _stack_state_dict("encoder", params, prefix)


def decoder_state_dict(params: Mapping, *, prefix: str = "decoder.") -> dict[str, np.ndarray]:
    """The inverse of ``decoder_params``, for either layout of the layers."""
    return _stack_state_dict("decoder", params, prefix)


def model_state_dict(params: Mapping) -> dict[str, np.ndarray]:
    """The inverse of ``model_params``; like Hugging Face's own files it leaves out the copies of a tied table."""
    state_dict = {"shared.weight": np.asarray(params["token_embedder"]["embedding"])}
    state_dict |= encoder_state_dict(params["encoder"])
    if "decoder" in params:
        decoder = dict(params["decoder"])
        if (head := decoder.pop("logits_dense", None)) is not None:
            state_dict["lm_head.weight"] = np.asarray(head["kernel"]).T
        state_dict |= decoder_state_dict(decoder)
    return state_dict


def _stack_params(stack: str, state_dict: Mapping, prefix: str, scan_layers: bool) -> dict:
    given = {k.removeprefix(prefix): np.asarray(v) for k, v in state_dict.items() if k.startswith(prefix)}
    blocks = {int(m[1]) for k in given if (m := re.match(r"block\.(\d+)\.", k))}
    gated = any(k.endswith("wi_0.weight") for k in given)
    names = stack_names(stack, max(blocks, default=0) + 1, gated)
    _check_names(f"the {stack}", prefix, names.values(), [k for k in given if k not in COPIES + UNUSED])
    flat = {ours: given[theirs].T for ours, theirs in names.items()}  # T leaves vectors alone
    _check_shapes(stack, flat, {ours: prefix + theirs for ours, theirs in names.items()})
    tree = nest(flat)
    if scan_layers:
        layers = [flatten(tree.pop(f"layers_{i}")) for i in range(len(blocks))]
        tree["layers"] = nest({name: np.stack([layer[name] for layer in layers]) for name in layers[0]})
    return tree


def _stack_state_dict(stack: str, params: Mapping, prefix: str) -> dict[str, np.ndarray]:
    params = dict(params)
    if (scanned := params.pop("layers", None)) is not None:
        scanned = {name: np.asarray(x) for name, x in flatten(scanned).items()}
        lengths = {name: len(x) for name, x in scanned.items()}
        if len(set(lengths.values())) != 1:
            raise ValueError(f"the stacked layers of this {stack} differ in number: {lengths}")
        for i in range(max(lengths.values())):
            params[f"layers_{i}"] = nest({name: x[i] for name, x in scanned.items()})
    flat = {name: np.asarray(x) for name, x in flatten(params).items()}
    layers = sum(name.startswith("layers_") for name in params)
    names = stack_names(stack, layers, any(name.endswith("wi_0/kernel") for name in flat))
    _check_names(f"this {stack}", "", names, flat)
    _check_shapes(stack, flat, {ours: prefix + theirs for ours, theirs in names.items()})
    return {prefix + theirs: flat[ours].T for ours, theirs in names.items()}


def _check_names(what: str, prefix: str, wanted, found) -> None:
    wanted, found = dict.fromkeys(wanted), dict.fromkeys(found)  # sets that keep their order
    missing = [prefix + k for k in wanted if k not in found]
    unknown = [prefix + k for k in found if k not in wanted]
    if missing or unknown:
        raise ValueError(_report(what, missing, unknown, []))


def _check_shapes(stack: str, flat: dict, labels: dict) -> None:
    """All sizes follow from the final norm [D] and the first layer's query [D, H*K] and MLP output [F, D]."""
    attention = "attention" if stack == "encoder" else "self_attention"
    d = flat[f"{stack}_norm/scale"].shape[-1]
    inner = flat[f"layers_0/{attention}/query/kernel"].shape[-1]
    f = flat["layers_0/mlp/wo/kernel"].shape[0]
    shapes = {"query": (d, inner), "key": (d, inner), "value": (d, inner), "out": (inner, d)}
    shapes |= {"wi": (d, f), "wi_0": (d, f), "wi_1": (d, f), "wo": (f, d)}
    problems = []
    for name, x in flat.items():
        module, leaf = name.split("/")[-2:]
        if leaf == "rel_embedding":
            if x.ndim != 2 or inner % x.shape[0]:
                problems.append(f"{labels[name]} is {x.T.shape}, wanted (buckets, heads) with heads dividing {inner}")
            continue
        wanted = (d,) if leaf == "scale" else shapes[module]
        if x.shape != wanted:
            problems.append(f"{labels[name]} is {x.T.shape}, wanted {wanted[::-1]}")
    if problems:
        raise ValueError(_report(f"the {stack}", [], [], problems))


def _report(what: str, missing, unknown, problems) -> str:
    lines = [f"weights of {what} do not fit (not a T5, or not all of it?):"]
    lines += [f"  {k}: wanted, absent" for k in missing]
    lines += [f"  {k}: found, but unknown here" for k in unknown]
    lines += [f"  {text}" for text in problems]
    return "\n".join(lines[:41] + ([f"  ... and {len(lines) - 41} more"] if len(lines) > 41 else []))
