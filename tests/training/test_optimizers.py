"""Optimizers against updates written out in numpy, plain optax, and members of a stack run alone (METHODS 6.3)."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vmsst_jax.training import optimizers, schedules

STEPS = 4


def rms(x):
    return np.sqrt(np.mean(np.square(x)))


def adafactor_by_hand(p, gradients, rate, min_dim=128):
    """Shazeer & Stern's update in float64, as METHODS 6.3 writes it; returns the parameter after each step."""
    p = np.asarray(p, np.float64)
    row = col = full = 0.0
    path = []
    for t, g in enumerate(np.asarray(gradients, np.float64)):
        beta = 1 - (t + 1) ** -0.8
        g2 = g**2 + 1e-30
        if p.ndim == 2 and min(p.shape) >= min_dim:
            row = beta * row + (1 - beta) * g2.mean(1)
            col = beta * col + (1 - beta) * g2.mean(0)
            y = g / np.sqrt(np.outer(row / row.mean(), col))
        else:
            full = beta * full + (1 - beta) * g2
            y = g / np.sqrt(full)
        y /= max(1.0, rms(y))
        p = p - max(rate(t), 1e-8) * max(rms(p), 1e-3) * y
        path.append(p)
    return path


def run(tx, params, gradients, steps=STEPS):
    """Parameters after each of `steps` jitted updates with donated state; gradients have a leading axis of steps."""

    def step(params, state, g):
        updates, state = tx.update(g, state, params)
        return optax.apply_updates(params, updates), state

    step = jax.jit(step, donate_argnums=(0, 1))
    params = jax.tree.map(jnp.copy, params)
    state = jax.jit(tx.init)(params)
    path = []
    for t in range(steps):
        params, state = step(params, state, jax.tree.map(lambda g, t=t: g[t], gradients))
        path.append(jax.tree.map(np.asarray, params))
    return path


def random(shape, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def some_gradients(params, seed=1):
    leaves, tree = jax.tree.flatten(params)
    # The scale changes from step to step, so that the second moments and the clipping matter.
    sizes = np.array([1.0, 0.01, 3.0, 1.0], np.float32)
    new = [random((STEPS, *x.shape), seed + i) * sizes.reshape(-1, *[1] * x.ndim) for i, x in enumerate(leaves)]
    return jax.tree.unflatten(tree, new)


def test_batch_axes_reads_the_path():
    tree = {
        "token_embedder": {"embedding": 0},
        "encoder": {"layers": {"mlp": {"wi": 1}}, "layers_norm": {"scale": 0}},
        "encoders": {"stack": {"layers": {"wo": 2}, "encoder_norm": {"scale": 1}}},
    }
    depths = jax.tree_util.tree_map_with_path(lambda path, _: optimizers.batch_axes(path), tree)
    assert depths == tree
    assert optimizers.batch_axes(("encoder", "layers", "kernel")) == 1


@pytest.mark.parametrize("shape", [(7,), (5, 9), (130, 140), (129, 4)])
def test_adafactor_equals_the_update_written_out(shape):
    schedule = schedules.warmup_rsqrt(base=0.1, warmup=3)
    params = {"w": random(shape, scale=0.3)}
    gradients = some_gradients(params)
    expected = adafactor_by_hand(params["w"], gradients["w"], lambda t: float(schedule(t)))
    for got, want in zip(run(optimizers.adafactor(schedule), params, gradients), expected, strict=True):
        np.testing.assert_allclose(got["w"], want, rtol=2e-5, atol=1e-6)


def test_adafactor_at_step_0_of_a_warmup_moves_by_the_floor():
    params = {"w": np.full((6,), 2.0, np.float32)}
    tx = optimizers.adafactor(schedules.warmup_linear(1.0, 10, 100))
    updates, _ = tx.update({"w": np.full((6,), 3.0, np.float32)}, tx.init(params), params)
    np.testing.assert_allclose(updates["w"], -1e-8 * 2.0, rtol=1e-5)  # the floor times the parameter's RMS


def test_adafactor_equals_optax_on_plain_leaves():
    params = {
        "a": random((130, 150), scale=0.1),
        "b": {"c": random((3,)), "d": random((16, 32)), "e": random((2, 3, 4))},
    }
    gradients = some_gradients(params)
    ours = run(optimizers.adafactor(schedules.constant(0.01)), params, gradients)[-1]
    optaxs = run(optax.adafactor(0.01), params, gradients)[-1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), ours, optaxs)


def stacked_params():
    """Scanned layers of two depths and a stack of two encoders; members' sizes differ by factors of 30."""
    sizes = np.array([1.0, 0.001, 30.0], np.float32)
    return {
        "encoder": {"layers": {"kernel": random((3, 130, 140)) * sizes[:, None, None], "scale": random((3, 8), 3)}},
        "decoder": {"layers": {"kernel": random((1, 10, 12), 4)}, "norm": random((5,), 5)},
        "encoders": {
            "stack": {"layers": {"kernel": random((2, 3, 6, 7), 6) * sizes[:, None, None]}, "norm": random((2, 7), 7)}
        },
    }


def test_adafactor_on_a_stack_equals_each_member_run_alone():
    params = stacked_params()
    gradients = some_gradients(params)
    tx = optimizers.adafactor(schedules.constant(0.05))
    together = run(tx, params, gradients)[-1]

    def alone(path, p, g, result):
        depth = optimizers.batch_axes(path)
        for index in np.ndindex(*p.shape[:depth]):
            member, member_gradients = p[index], np.stack([g[t][index] for t in range(STEPS)])
            by_hand = adafactor_by_hand(member, member_gradients, lambda t: 0.05)[-1]
            np.testing.assert_allclose(result[index], by_hand, rtol=2e-5, atol=1e-5 * rms(member))

    jax.tree_util.tree_map_with_path(alone, params, gradients, together)


def test_adafactor_on_a_mesh_equals_one_device():
    params = stacked_params()
    gradients = some_gradients(params)
    tx = optimizers.adafactor(schedules.constant(0.05))
    mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("fsdp", "model"))

    def spread(x, lead):
        axes = [None] * lead + ["model" if n % 2 == 0 else None for n in x.shape[lead:]][:1]
        return jax.device_put(x, NamedSharding(mesh, PartitionSpec(*axes)))

    sharded = jax.tree_util.tree_map_with_path(lambda path, x: spread(x, optimizers.batch_axes(path)), params)
    one, many = run(tx, params, gradients)[-1], run(tx, sharded, gradients)[-1]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), one, many)


def test_adafactor_refuses_a_stack_without_its_axis():
    params = {"layers": {"scale": np.float32(1.0)}}
    with pytest.raises(ValueError, match=r"\['layers'\]\['scale'\] should begin with 1 stack axes"):
        optimizers.adafactor(schedules.constant()).init(params)


def test_adamw_decays_matrices_but_no_norms_or_biases():
    params = {
        "layers": {"kernel": random((2, 3, 4)), "scale": random((2, 4))},
        "out": {"kernel": random((3, 4)), "bias": random((4,))},
    }
    no_gradient = jax.tree.map(lambda x: np.zeros((STEPS, *x.shape), np.float32), params)
    rate, decay = 0.1, 0.5
    after = run(optimizers.adamw(schedules.constant(rate), weight_decay=decay), params, no_gradient, steps=1)[0]
    for part in ("layers", "out"):
        for name, x in params[part].items():
            kept = 1 - rate * decay if name == "kernel" else 1.0
            np.testing.assert_allclose(after[part][name], kept * x, rtol=1e-6)


def adam_by_hand(p, gradients, rate, b1, b2, eps, clip):
    p, m, v = np.asarray(p, np.float64), 0.0, 0.0
    for t, g in enumerate(np.asarray(gradients, np.float64), start=1):
        g = g * min(1.0, clip / np.linalg.norm(g)) if clip else g
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
        p = p - rate * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
    return p


@pytest.mark.parametrize("clip", [None, 0.5])
def test_adam_and_adamw_equal_the_update_written_out(clip):
    params = {"w": random((6,))}
    gradients = some_gradients(params)
    expected = adam_by_hand(params["w"], gradients["w"], 0.01, 0.9, 0.98, 1e-6, clip)
    for tx in (
        optimizers.adam(schedules.constant(0.01), b1=0.9, b2=0.98, eps=1e-6, clip=clip),
        optimizers.adamw(schedules.constant(0.01), b1=0.9, b2=0.98, eps=1e-6, weight_decay=0.3, clip=clip),
    ):
        np.testing.assert_allclose(run(tx, params, gradients)[-1]["w"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: optimizers.adafactor(0.001), "adafactor.schedule is 0.001; wanted a schedule"),
        (lambda: optimizers.adamw("fast"), "adamw.schedule is 'fast'"),
        (lambda: optimizers.adafactor(schedules.constant(), decay_rate="x"), "adafactor.decay_rate is 'x'"),
        (lambda: optimizers.adam(schedules.constant(), b1=1.0), "adam.b1 is 1.0; wanted a number of 0 or more and"),
        (lambda: optimizers.adam(schedules.constant(), clip=0), "adam.clip is 0; wanted a number above 0"),
    ],
)
def test_settings_that_define_no_optimizer_are_errors(make, message):
    with pytest.raises(ValueError, match=message):
        make()
