"""CCP's projection head: PyTorch's batch norm over several steps, whose turn it is, and statistics over groups."""

import functools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax import sharding
from vmsst_jax.models.projection_head import PairBatchNorm, ProjectionHead

GOLDEN = pathlib.Path(__file__).parent / "goldens" / "projection_head.npz"


def make_head(hidden, features, bn, *, relu=True, sync=True, stats="shared", languages=3):
    return ProjectionHead(hidden, features, relu, bn, sync, stats, languages)


def replay(arrays, mode):
    """Our head on a golden file's inputs, step by step: the arrays that the file has under ``mode``."""
    head = make_head(len(arrays["scale"]), len(arrays["offset"]), mode)
    params = {
        "hidden": {"kernel": arrays["hidden"].T},
        "norm": {"scale": arrays["scale"], "bias": arrays["bias"]},
        "projection": {"kernel": arrays["projection"].T, "bias": arrays["offset"]},
    }
    pairs = arrays["centre"].shape[1]
    lang = jnp.zeros(1, jnp.int32)
    vectors = jnp.concatenate([arrays["centre"], arrays["context"]], axis=1)[:, None]  # [steps, 1, 2N, D]
    cotangents = jnp.concatenate([arrays["centre_cotangent"], arrays["context_cotangent"]], axis=1)[:, None]
    state = head.init(jax.random.key(0), vectors[0], lang, train=False)["batch_stats"]

    @jax.jit
    def step(state, vectors, cotangents):
        def loss(params, vectors):
            variables = {"params": params, "batch_stats": state}
            (z, _), after = head.apply(variables, vectors, lang, train=True, mutable=["batch_stats"])
            return (z * cotangents).sum(), (z, after["batch_stats"])

        gradients, aux = jax.grad(loss, argnums=(0, 1), has_aux=True)(params, vectors)
        return *aux, *gradients

    out = {}
    for x, c in zip(vectors, cotangents, strict=True):
        z, state, of_params, of_vectors = step(state, x, c)
        found = {"centre": z[0, :pairs], "context": z[0, pairs:]}
        found |= {"mean": state["norm"]["mean"][0], "variance": state["norm"]["variance"][0]}
        found |= {"centre_gradient": of_vectors[0, :pairs], "context_gradient": of_vectors[0, pairs:]}
        found |= {"hidden_gradient": of_params["hidden"]["kernel"].T, "scale_gradient": of_params["norm"]["scale"]}
        for name, value in found.items():
            out.setdefault(name, []).append(value)
    return {name: np.stack(values) for name, values in out.items()}


@pytest.mark.parametrize("mode", ["asymmetric", "vanilla"])
def test_pytorchs_numbers_over_several_steps(mode):
    with np.load(GOLDEN) as stored:
        arrays = dict(stored)
    found = replay(arrays, mode)
    assert {name.removeprefix(f"{mode}/") for name in arrays if name.startswith(f"{mode}/")} == found.keys()
    for name, value in found.items():
        np.testing.assert_allclose(value, arrays[f"{mode}/{name}"], rtol=2e-5, atol=2e-5, err_msg=name)


@functools.partial(jax.jit, static_argnames=("norm", "train"))
def normed(norm, state, centre, context, lang, train=True):
    """(centre, context, drift, state after) of a ``PairBatchNorm`` with scale 1 and bias 0."""
    width = centre.shape[-1]
    params = {"scale": jnp.ones(width), "bias": jnp.zeros(width)}
    variables = {"params": params, "batch_stats": state}
    (a, b, drift), after = norm.apply(variables, centre, context, lang, train, mutable=["batch_stats"])
    return a, b, drift, after["batch_stats"]


def fresh(norm, width, stats_rows=1):
    example = jnp.zeros((1, 2, width))
    state = norm.init(jax.random.key(0), example, example, jnp.zeros(1, jnp.int32), False)["batch_stats"]
    assert state["mean"].shape == (stats_rows, width)
    return state


def sides(groups=3, pairs=4, width=5, seed=0):
    x = np.random.default_rng(seed).normal(size=(2, groups, pairs, width)) * 2 + np.arange(groups)[:, None, None]
    return jnp.asarray(x, jnp.float32)


def test_the_turn_changes_and_only_the_side_whose_turn_it_is_is_remembered():
    norm = PairBatchNorm("asymmetric", True, "shared", 3)
    state, lang = fresh(norm, 5), jnp.zeros(3, jnp.int32)
    for step in range(4):
        centre, context = sides(seed=step)
        assert int(state["turn"]) == step % 2
        mine, other = (centre, context) if step % 2 == 0 else (context, centre)
        *found, drift, after = normed(norm, state, centre, context, lang)
        by_batch, by_running = found if step % 2 == 0 else found[::-1]
        np.testing.assert_allclose(by_batch.mean((0, 1)), np.zeros(5), atol=1e-5)
        np.testing.assert_allclose(by_batch.std((0, 1)), np.ones(5), atol=1e-4)
        running = (other - state["mean"][0]) / np.sqrt(state["variance"][0] + 1e-5)
        np.testing.assert_allclose(by_running, running, rtol=1e-5, atol=1e-5)
        flat = np.asarray(mine).reshape(-1, 5)
        np.testing.assert_allclose(after["mean"][0], 0.9 * state["mean"][0] + 0.1 * flat.mean(0), rtol=1e-5, atol=1e-6)
        variance = 0.9 * state["variance"][0] + 0.1 * flat.var(0, ddof=1)
        np.testing.assert_allclose(after["variance"][0], variance, rtol=1e-5)
        distance = np.abs(flat.mean(0) - state["mean"][0]) / np.sqrt(state["variance"][0] + 1e-5)
        assert float(drift["bn_mean_drift"]) == pytest.approx(distance.mean(), rel=1e-4)
        state = after


def test_evaluation_uses_running_statistics_on_both_sides():
    norm = PairBatchNorm("asymmetric", True, "shared", 3)
    state = fresh(norm, 5) | {"mean": jnp.full((1, 5), 2.0), "variance": jnp.full((1, 5), 4.0)}
    centre, context = sides()
    a, b, drift, after = normed(norm, state, centre, context, jnp.zeros(3, jnp.int32), train=False)
    for found, x in ((a, centre), (b, context)):
        np.testing.assert_allclose(found, (x - 2) / np.sqrt(4 + 1e-5), rtol=1e-5)
    assert drift == {}
    jax.tree.map(np.testing.assert_array_equal, after, state)


@pytest.mark.parametrize("sync", [True, False])
@pytest.mark.parametrize("stats", ["shared", "per_language"])
def test_whose_statistics_a_group_gets(sync, stats):
    """Groups 0 and 2 are of one language; a language that isn't in the batch keeps its running statistics."""
    lang, per_language = [1, 0, 1], stats == "per_language"
    norm = PairBatchNorm("asymmetric", sync, stats, 3)
    state = fresh(norm, 5, 3 if per_language else 1)
    centre, context = sides()
    found, _, _, after = normed(norm, state, centre, context, jnp.array(lang))
    x = np.asarray(centre, np.float64)
    statistics = {}
    for g in range(3):
        together = [g] if not sync else [k for k in range(3) if not per_language or lang[k] == lang[g]]
        flat = x[together].reshape(-1, 5)
        np.testing.assert_allclose(found[g], (x[g] - flat.mean(0)) / np.sqrt(flat.var(0) + 1e-5), rtol=1e-4, atol=1e-5)
        statistics.setdefault(lang[g] if per_language else 0, []).append((flat.mean(0), flat.var(0, ddof=1)))
    for row in range(len(after["mean"])):
        mean, variance = np.mean(statistics.get(row, [(np.zeros(5), np.ones(5))]), axis=0)
        np.testing.assert_allclose(after["mean"][row], 0.1 * mean, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(after["variance"][row], 0.9 + 0.1 * variance, rtol=1e-5)


@pytest.mark.parametrize("mode", ["asymmetric", "vanilla"])
def test_statistics_are_the_same_on_8_devices(mode):
    head = make_head(8, 4, mode)
    vectors = jnp.asarray(np.random.default_rng(0).normal(size=(8, 6, 5)), jnp.float32)
    lang = jnp.zeros(8, jnp.int32)
    variables = head.init(jax.random.key(0), vectors, lang, train=False)

    def loss(vectors):
        (z, _), state = head.apply(variables, vectors, lang, train=True, mutable=["batch_stats"])
        return jnp.sin(z).sum(), state

    mesh = sharding.make_mesh()
    with jax.set_mesh(mesh):
        on_8 = jax.jit(jax.value_and_grad(loss, has_aux=True))(sharding.put_batch(vectors, mesh))
    assert len(on_8[1].sharding.device_set) == 8
    on_1 = jax.jit(jax.value_and_grad(loss, has_aux=True))(vectors)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), on_8, on_1)


def test_a_single_pair_has_no_statistics():
    head = make_head(8, 4, "asymmetric")
    with pytest.raises(ValueError, match="a group of 1 pair has no batch statistics"):
        head.init(jax.random.key(0), jnp.ones((1, 2, 5)), jnp.zeros(1, jnp.int32), train=True)


def test_without_norm_and_relu_the_head_is_linear():
    head = make_head(8, 4, "none", relu=False)
    x, lang = jnp.asarray(np.random.default_rng(0).normal(size=(2, 6, 5)), jnp.float32), jnp.zeros(2, jnp.int32)
    variables = head.init(jax.random.key(0), x, lang, train=True)
    assert variables.keys() == {"params"}
    z, metrics = head.apply(variables, x, lang, train=True)
    p = variables["params"]
    np.testing.assert_allclose(z, x @ p["hidden"]["kernel"] @ p["projection"]["kernel"], rtol=1e-5, atol=1e-5)
    assert metrics == {}


def test_momentum_is_the_share_of_the_new_batch():
    rng = np.random.default_rng(5)
    centre, context = rng.normal(2.0, 3.0, (2, 1, 8, 4)).astype(np.float32)
    norm = PairBatchNorm("asymmetric", True, "shared", 1, momentum=0.7)
    *_, state = normed(norm, fresh(norm, 4), centre, context, jnp.zeros(1, jnp.int32))
    np.testing.assert_allclose(state["mean"][0], 0.7 * centre[0].mean(0), rtol=1e-5)
    np.testing.assert_allclose(state["variance"][0], 0.3 + 0.7 * centre[0].var(0, ddof=1), rtol=1e-5)
