"""The training step: joins a model, an objective and an optimizer into one pure, jitted function."""

from __future__ import annotations

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax

from vmsst_jax import objectives, sharding
from vmsst_jax.training.state import TrainState


def loss_function(module, objective, train: bool):
    """(params, model_state, batch, step, key) -> (loss, (metrics, new_model_state)), for ``objective`` on ``module``.

    An objective is a function (bound module, batch, step, key, train) -> (loss, metrics); what it changes in the
    module's mutable collections comes out as the new model state.
    """

    def call(bound, batch, step, key):
        return objective(bound, batch, step, key, train)

    def loss_fn(params, model_state, batch, step, key):
        objective_key, dropout_key = jax.random.split(key)
        mutable = list(model_state) if train else False
        apply = nn.apply(call, module, mutable=mutable)
        rngs = {"dropout": dropout_key} if train else None
        result = apply({"params": params, **model_state}, batch, step, objective_key, rngs=rngs)
        (loss, metrics), new_state = result if train else (result, model_state)
        return loss, ({"loss": loss, **metrics}, {**model_state, **new_state})

    return loss_fn


def check_accumulation(objective, accumulate: int):
    """Refuses micro-batches for objectives whose loss is not a mean over pairs."""
    if accumulate > 1 and objectives.needs_whole_batch(objective):
        raise ValueError(
            f"Stream.accumulate is {accumulate} for {objectives.name(objective)}: its negatives come from the whole "
            "batch, and micro-batches would shrink the pool and change the loss. Set it to 1, and use more "
            "devices, remat or a smaller batch if memory is short"
        )


def check_objectives(streams, module, mesh) -> None:
    """ValueError where a stream's objective doesn't go with the model, or with its batches on this mesh.

    Looks at no data. ``streams`` are ``training.run.Stream``.
    """
    shards = sharding.batch_shards(mesh)
    for stream in streams:
        objectives.check_model(stream.objective, module)
        shapes = functools.partial(stream.data.shapes, shards, stream.accumulate)
        objectives.check_batch(stream.objective, module, shapes, sharding.slot_shards(mesh))


def train_step(module, objective, optimizer, stream: int = 0, accumulate: int = 1):
    """The pure function (state, batch) -> (state, metrics) of one optimizer update.

    With ``accumulate`` n > 1 the batch has a leading axis of n micro-batches: gradients and metrics are their means,
    and each one sees the model state that the one before it left. All randomness is ``fold_in`` of the run's key with
    (step, stream, micro-batch), so that a restart draws the same numbers.
    """
    check_accumulation(objective, accumulate)
    grad_fn = jax.value_and_grad(loss_function(module, objective, train=True), has_aux=True)

    def one(state: TrainState, model_state, batch, micro):
        key = jax.random.wrap_key_data(state.key)
        for number in (state.step, stream, micro):
            key = jax.random.fold_in(key, number)
        (_, (metrics, model_state)), grads = grad_fn(state.params, model_state, batch, state.step, key)
        return grads, metrics, model_state

    def step(state: TrainState, batch):
        if accumulate == 1:
            grads, metrics, model_state = one(state, state.model_state, batch, 0)
        else:

            def body(carry, x):
                total, model_state = carry
                grads, metrics, model_state = one(state, model_state, *x)
                return (jax.tree.map(jnp.add, total, grads), model_state), metrics

            zeros = jax.tree.map(jnp.zeros_like, state.params)
            xs = (batch, jnp.arange(accumulate))
            (grads, model_state), metrics = jax.lax.scan(body, (zeros, state.model_state), xs)
            grads = jax.tree.map(lambda g: g / accumulate, grads)
            metrics = jax.tree.map(lambda m: m.mean(axis=0), metrics)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        metrics["gradient_norm"] = optax.tree.norm(grads)
        return state.replace(step=state.step + 1, params=params, opt_state=opt_state, model_state=model_state), metrics

    return step


def jitted_step(step, abstract_state, mesh):
    """``step`` under jit, to be called with ``mesh`` set: the state keeps its layout and its buffers are reused."""
    return jax.jit(step, donate_argnums=0, out_shardings=(sharding.state_shardings(abstract_state, mesh), None))


def compiled_step(step, abstract_state, mesh):
    """``step`` under jit on ``mesh``, see ``jitted_step``."""
    jitted = jitted_step(step, abstract_state, mesh)

    def call(state, batch):
        with jax.set_mesh(mesh):
            return jitted(state, batch)

    return call
