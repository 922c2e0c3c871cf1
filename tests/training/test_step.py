"""The step: the same numbers on every mesh, accumulation, streams, and exact resume with mutable state."""

import functools

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vmsst_jax import models, sharding
from vmsst_jax.objectives.bitranslation import bitranslation
from vmsst_jax.objectives.contrastive import contrastive
from vmsst_jax.objectives.vmsst import vmsst, vmsst_contrastive
from vmsst_jax.training import loop, run, state
from vmsst_jax.training.checkpoint import Checkpoints
from vmsst_jax.training.logging import Log
from vmsst_jax.training.step import compiled_step, loss_function, train_step
from vmsst_jax.training.watchdog import Watch, Watchdog

# These programs run once: compiling them without optimisation takes half the time.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})
MESHES = ((8, 1, 1), (4, 2, 1), (2, 2, 2))
OBJECTIVES = {
    "contrastive": ("contrastive", functools.partial(contrastive, sim="cosine", scale=10.0)),
    "bitranslation": ("bitranslation", bitranslation),
    "vmsst": ("vmsst", functools.partial(vmsst, kl_warmup_steps=10)),
    "vmsst_contrastive": ("vmsst", functools.partial(vmsst_contrastive, negative_mask="same_text")),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_loss_and_gradients_are_the_same_on_every_mesh(tiny_model, make_batch, name):
    kind, objective = OBJECTIVES[name]
    # widths that fsdp 2 and model 2 divide; two groups, so that rows cross devices
    module, batch = tiny_model(kind, scan_layers=True), make_batch(pairs=16, groups=2)
    grad = jax.value_and_grad(loss_function(module, objective, train=True), has_aux=True)
    key = jax.random.key(3)
    results = []
    # What these two have in common with VMSST is tried on its meshes.
    meshes = MESHES[-1:] if name in ("bitranslation", "vmsst_contrastive") else MESHES
    for shape in ((1, 1, 1), *meshes):
        mesh = sharding.make_mesh(*shape, devices=jax.devices()[: np.prod(shape)])
        fresh = state.make_state(module, optax.sgd(1.0), 0, mesh)
        with jax.set_mesh(mesh):
            value = jit(grad)(fresh.params, {}, sharding.put_batch(batch, mesh), jnp.int32(5), key)
        results.append(jax.device_get(value))
    (want, _), want_grads = results[0]
    for (got, _), grads in results[1:]:
        np.testing.assert_allclose(got, want, rtol=1e-5)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=2e-4), grads, want_grads)


def test_parameters_are_sharded_where_the_mesh_asks(tiny_model):
    mesh = sharding.make_mesh(2, 2, 2)
    params = state.make_state(tiny_model(scan_layers=True), optax.sgd(1.0), 0, mesh).params
    kernel = params["decoder"]["layers"]["mlp"]["wi_0"]["kernel"]
    assert kernel.sharding.spec == jax.sharding.PartitionSpec(None, "fsdp", "model")
    assert {s.data.shape for s in kernel.addressable_shards} == {(2, 8, 16)}
    assert params["token_embedder"]["embedding"].sharding.spec == jax.sharding.PartitionSpec("model", "fsdp")


def test_accumulation_equals_one_large_batch(tiny_model, make_batch):
    module = tiny_model("bitranslation")
    parts = [make_batch(pairs=4, seed=i) for i in range(2)]
    # one shape for both micro-batches
    width = max(p["tokens"][0].shape[1] for p in parts)
    for p in parts:
        p["tokens"] = (np.pad(p["tokens"][0], ((0, 0), (0, width - p["tokens"][0].shape[1]))),)
    stacked = jax.tree.map(lambda *x: np.stack(x), *parts)
    mesh = sharding.make_mesh(devices=jax.devices()[:1])
    optimizer = optax.sgd(0.1)
    target = state.abstract_state(module, optimizer, mesh)
    step = compiled_step(train_step(module, bitranslation, optimizer, accumulate=2), target, mesh)
    after, metrics = step(state.make_state(module, optimizer, 0, mesh), sharding.put_batch(stacked, mesh, axis=1))

    params = state.make_state(module, optimizer, 0, mesh).params
    losses, grads = [], []
    for p in parts:
        loss_fn = loss_function(module, bitranslation, train=True)
        (loss, _), g = jax.jit(jax.value_and_grad(loss_fn, has_aux=True))(params, {}, p, 0, jax.random.key(0))
        losses.append(loss)
        grads.append(g)
    want = jax.tree.map(lambda p, a, b: p - 0.1 * (a + b) / 2, params, *grads)
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), after.params, want)


@pytest.mark.parametrize("objective", [contrastive, functools.partial(vmsst_contrastive, lam=0.1)])
def test_accumulation_is_refused_where_negatives_are_in_the_batch(tiny_model, objective):
    with pytest.raises(ValueError, match="accumulate is 2 for .*contrastive: its negatives come from the whole batch"):
        train_step(tiny_model(), objective, optax.sgd(1.0), accumulate=2)


class Counter(nn.Module):
    """A model with mutable state: remembers the sum of what it saw."""

    @nn.compact
    def __call__(self, batch):
        w = self.param("w", nn.initializers.ones, (4,))
        seen = self.variable("memory", "seen", jnp.zeros, (4,))
        if not self.is_initializing():
            seen.value = seen.value + batch["x"].mean(axis=0)
        return w, seen.value


def pull(model, batch, step, key, train, *, strength):
    """A dummy objective whose value depends on the batch, the state and the key."""
    w, seen = model(batch)
    noise = jax.random.normal(key, (4,))
    return strength * jnp.sum((w - batch["x"].mean(axis=0) - 0.1 * seen + 0.01 * noise) ** 2), {"seen": seen.sum()}


class Numbers:
    """A stream of random batches whose position is an integer."""

    waited = 0.0

    def __init__(self, seed, accumulate):
        self.seed, self.accumulate, self.position = seed, accumulate, 0

    def next(self):
        rng = np.random.default_rng([self.seed, self.position])
        self.position += 1
        shape = (self.accumulate, 8, 4) if self.accumulate > 1 else (8, 4)
        return {"x": rng.normal(size=shape).astype(np.float32)}, {
            "pair_id": np.arange(8), "real_tokens": 8, "padded_tokens": 8,
        }  # fmt: skip

    def state(self):
        return {"position": self.position}

    def restore(self, saved):
        self.position = saved["position"]


@pytest.mark.parametrize("schedule", ["in_turn", "random"])
def test_two_streams_with_state_resume_exactly(tmp_path, schedule):
    module, optimizer = Counter(), optax.adam(0.1)
    mesh = sharding.make_mesh(devices=jax.devices()[:1])
    target = state.abstract_state(module, optimizer, mesh)
    steps = [
        compiled_step(train_step(module, functools.partial(pull, strength=s), optimizer, i, n), target, mesh)
        for i, (s, n) in enumerate(((1.0, 1), (2.0, 3)))
    ]

    def run(folder, until, every):
        """Trains to ``until``, resuming if there is a checkpoint."""
        streams = {"a": Numbers(0, 1), "b": Numbers(1, 3)}
        with Checkpoints(folder, keep_last=2) as checkpoints:
            current, start = state.make_state(module, optimizer, 7, mesh), 0
            if checkpoints.steps:
                current, host, start = checkpoints.restore(target)
                for name, stream in streams.items():
                    stream.restore(host["data"][name])
            feeds = [
                loop.Feed(*named, step, weight)
                for named, step, weight in zip(streams.items(), steps, (1.0, 3.0), strict=True)
            ]
            log = Log(folder, until, start)
            current, _ = loop.fit(
                current,
                feeds,
                rhythm=loop.Rhythm(until, log_every=1, save_every=every),
                schedule=schedule,
                seed=5,
                checkpoints=checkpoints,
                host=lambda: {"data": {name: stream.state() for name, stream in streams.items()}},
                evaluate=None,
                log=log,
                start=start,
                dog=Watchdog(Watch(), "test"),
            )
            log.close()
        return jax.device_get(current)

    straight = run(tmp_path / "straight", 12, 12)
    for until in (4, 5, 9, 12):
        resumed = run(tmp_path / "resumed", until, 100)
    jax.tree.map(np.testing.assert_array_equal, resumed, straight)
    assert resumed.step == 12
    assert not np.array_equal(resumed.model_state["memory"]["seen"], np.zeros(4))


def test_streams_are_drawn_by_weight_and_by_step_alone():
    feeds = [loop.Feed("a", None, None, 1.0), loop.Feed("b", None, None, 3.0)]
    names = [loop.choose_feed(feeds, "random", 0, step).name for step in range(2000)]
    assert 0.70 < names.count("b") / 2000 < 0.80
    assert names == [loop.choose_feed(feeds, "random", 0, step).name for step in range(2000)]
    assert [loop.choose_feed(feeds, "in_turn", 0, step).name for step in range(4)] == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("schedule", "weights", "message"),
    [
        ("sometimes", [1.0], "train.schedule is 'sometimes'; use 'in_turn' or 'random'"),
        ("random", [0.0, 0], "Stream.weight of every stream is 0; wanted one above 0, or train.schedule 'in_turn'"),
    ],
)
def test_schedules_that_draw_nothing(schedule, weights, message):
    with pytest.raises(ValueError, match=message):
        loop.check_schedule(schedule, weights)
    loop.check_schedule("in_turn", weights)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("weight", v) for v in (-1.0, float("nan"), float("inf"), "1", True)]
    + [("accumulate", v) for v in (0, 2.0, "2", True)]
    + [("name", "")],
)
def test_settings_of_a_stream(setting, value):
    with pytest.raises(ValueError, match=rf"Stream.{setting} is {value!r}; wanted a"):
        run.Stream(None, None, **{setting: value})


def test_dropout_depends_on_the_step_and_is_off_in_evaluation(tiny_model, make_batch):
    module, batch = tiny_model("contrastive", dropout=0.5), make_batch()
    params = models.init_params(module, jax.random.key(0))

    def loss(train, seed):
        fn = jax.jit(loss_function(module, contrastive, train=train))
        return float(fn(params, {}, batch, 0, jax.random.key(seed))[0])

    assert loss(True, 0) != loss(True, 1)
    assert loss(False, 0) == loss(False, 1)
