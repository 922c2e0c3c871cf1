"""What a training step reads and writes: everything that affects the next step is in here, and so in the checkpoint."""

from __future__ import annotations

from typing import Any

import flax.struct
import jax
import jax.numpy as jnp

from vmsst_jax import models, sharding


@flax.struct.dataclass
class TrainState:
    """``step`` counts finished updates (int32 []); ``model_state`` holds the mutable collections (batch statistics,
    memory banks; empty for VMSST); ``key`` is the raw data of the run's one random key (uint32)."""

    step: jax.Array
    params: Any
    opt_state: Any
    model_state: Any
    key: jax.Array


def new_state(module, optimizer, seed: int) -> TrainState:
    """A fresh state; run it under ``jax.jit`` with shardings or ``jax.eval_shape``."""
    root = jax.random.key(seed)
    init_key, run_key = jax.random.split(root)
    variables = module.init(init_key, models.example_batch())
    params = variables.pop("params")
    return TrainState(jnp.zeros((), jnp.int32), params, optimizer.init(params), variables, jax.random.key_data(run_key))


def make_state(module, optimizer, seed: int, mesh) -> TrainState:
    """A fresh state, laid out over ``mesh`` from the start: no device ever holds a whole sharded parameter."""
    with jax.set_mesh(mesh):
        shardings = sharding.state_shardings(abstract_state(module, optimizer, mesh), mesh)
        return jax.jit(lambda: new_state(module, optimizer, seed), out_shardings=shardings)()


def abstract_state(module, optimizer, mesh) -> TrainState:
    """Shapes, types and shardings of a state, for restoring into."""
    with jax.set_mesh(mesh):
        shapes = jax.eval_shape(lambda: new_state(module, optimizer, 0))
    shardings = sharding.state_shardings(shapes, mesh)
    return jax.tree.map(lambda x, s: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=s), shapes, shardings)
