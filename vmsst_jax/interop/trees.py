"""Parameter trees by flat names: nested dicts <-> {"encoder/layers_0/mlp/wi/kernel": array}, and stacked layers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

# What an error message lists before it cuts the rest.
SHOWN = 40


def flatten(tree: Mapping, path: str = "") -> dict:
    """{"a": {"b": leaf}} -> {"a/b": leaf}; leaves are what isn't a mapping, as they are."""
    flat = {}
    for name, value in tree.items():
        flat |= flatten(value, f"{path}{name}/") if isinstance(value, Mapping) else {path + name: value}
    return flat


def nest(flat: Mapping) -> dict:
    """The inverse of ``flatten``."""
    tree: dict = {}
    for name, value in flat.items():
        *parents, leaf = name.split("/")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[leaf] = value
    return tree


def stack_layers(stack: Mapping) -> dict:
    """A stack's parameters with ``layers_0``, ``layers_1``, ... -> with ``layers``, all of them on a leading axis."""
    rest = {name: value for name, value in stack.items() if not name.startswith("layers_")}
    layers = [flatten(stack[f"layers_{i}"]) for i in range(len(stack) - len(rest))]
    return rest | {"layers": nest({name: np.stack([layer[name] for layer in layers]) for name in layers[0]})}


def unstack_layers(stack: Mapping) -> dict:
    """The inverse of ``stack_layers``; a stack that has no ``layers`` comes back as it is."""
    rest = dict(stack)
    if (stacked := rest.pop("layers", None)) is None:
        return rest
    stacked = {name: np.asarray(x) for name, x in flatten(stacked).items()}
    count = len(next(iter(stacked.values())))
    return rest | {f"layers_{i}": nest({name: x[i] for name, x in stacked.items()}) for i in range(count)}


def misfit(what: str, missing: Iterable[str], unknown: Iterable[str], problems: Iterable[str] = ()) -> str:
    """The message for weights that don't fit ``what``: names wanted but absent, names unknown here, other problems."""
    lines = [f"  {name}: wanted, absent" for name in missing]
    lines += [f"  {name}: found, but unknown here" for name in unknown]
    lines += [f"  {text}" for text in problems]
    more = [f"  ... and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "\n".join([f"these weights do not fit {what}:", *lines[:SHOWN], *more])
