"""Where a fresh run's parameters come from: the seed, or another run's checkpoint."""

from __future__ import annotations

import re
from collections.abc import Sequence

import jax

from vmsst_jax.sharding import path_of
from vmsst_jax.training import checkpoint, state


def initial_state(module, optimizer, seed: int, mesh, init_checkpoint: str | None, allow_missing: Sequence[str] = ()):
    """A fresh TrainState; with ``init_checkpoint`` its parameters are that run's, see ``copy_parameters``."""
    fresh = state.make_state(module, optimizer, seed, mesh)
    if init_checkpoint is None:
        return fresh
    source = checkpoint.load_model(init_checkpoint)
    params = copy_parameters(fresh.params, source.params, allow_missing, str(source.directory))
    return fresh.replace(params=params)


def copy_parameters(params, source, allow_missing: Sequence[str], origin: str):
    """``params`` with every leaf replaced by the leaf of ``source`` that has its name; layouts and types stay.

    Names that only one side has, or that differ in shape, must match one of ``allow_missing`` (regular expressions for
    the whole name); what only ``params`` has keeps its value. Raises ValueError that lists what does not match.
    """
    flat = {"/".join(path_of(p)): leaf for p, leaf in jax.tree_util.tree_leaves_with_path(params)}
    given = {"/".join(path_of(p)): leaf for p, leaf in jax.tree_util.tree_leaves_with_path(source)}
    copied = {n for n in flat if n in given and given[n].shape == flat[n].shape}
    problems = []
    for name in sorted((flat.keys() | given.keys()) - copied):
        if any(re.fullmatch(pattern, name) for pattern in allow_missing):
            continue
        here, there = (str(x[name].shape) if name in x else "absent" for x in (flat, given))
        problems.append(f"  {name}: {here} in this model, {there} in the checkpoint")
    if problems:
        listed = "\n".join(problems[:40]) + ("\n  ..." if len(problems) > 40 else "")
        raise ValueError(
            f"parameters of {origin} do not fit this model:\n{listed}\n"
            "Use the recipe of that checkpoint's size, or name what may differ in train.init_allow_missing"
        )

    def pick(path, leaf):
        name = "/".join(path_of(path))
        return jax.device_put(given[name].astype(leaf.dtype), leaf.sharding) if name in copied else leaf

    return jax.tree_util.tree_map_with_path(pick, params)
