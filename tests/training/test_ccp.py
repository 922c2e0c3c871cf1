"""CCP's state over training steps: the same numbers on every mesh, after a restore, and no copy of a bank."""

import functools
import re

import jax
import numpy as np
import optax
import pytest

from vmsst_jax import sharding
from vmsst_jax.objectives.ccp import ccp
from vmsst_jax.training import state
from vmsst_jax.training.checkpoint import CheckpointError, Checkpoints
from vmsst_jax.training.step import compiled_step, loss_function, train_step

OBJECTIVE = functools.partial(ccp, temperature=0.2, bank_mask="document")
OPTIMIZER = optax.adam(2e-3, eps=1e-3)  # a large eps: Adam's sign-like updates would blow up rounding differences
GROUPS, PAIRS, ACCUMULATE, BANK = 4, 3, 2, 40


@pytest.fixture(scope="module")
def module(tiny_ccp):
    """40 slots take 6 vectors a group: groups lie across the ends of rings and of the devices' shares.

    (First tokens differ little in a fresh encoder; batch norm would blow up their rounding differences.)
    """
    return tiny_ccp(pooling="mean", bank_size=BANK)


def mesh_of(*shape):
    return sharding.make_mesh(*shape, devices=jax.devices()[: np.prod(shape)])


class Trainer:
    """The compiled step of a module on one mesh."""

    def __init__(self, module, mesh, accumulate=ACCUMULATE, objective=OBJECTIVE):
        self.mesh, self.accumulate = mesh, accumulate
        self.target = state.abstract_state(module, OPTIMIZER, mesh)
        self.fresh = functools.partial(state.make_state, module, OPTIMIZER, 0, mesh)
        self.step = compiled_step(train_step(module, objective, OPTIMIZER, accumulate=accumulate), self.target, mesh)

    def run(self, make_documents, current, steps):
        """(losses, gradient norms, state) after the given steps; a step's batch depends on its number alone."""
        losses, norms = [], []
        for number in steps:
            parts = [make_documents(GROUPS, PAIRS, seed=100 * number + i) for i in range(self.accumulate)]
            batch = jax.tree.map(lambda *x: np.stack(x), *parts) if self.accumulate > 1 else parts[0]
            axis = 1 if self.accumulate > 1 else 0
            current, metrics = self.step(current, sharding.put_batch(batch, self.mesh, axis))
            losses.append(float(metrics["loss"]))
            norms.append(float(metrics["gradient_norm"]))
        return np.array(losses), np.array(norms), current


@pytest.fixture(scope="module")
def on_one_device(module, make_documents):
    """20 steps: 960 vectors through 3 rings of 40 slots."""
    trainer = Trainer(module, mesh_of(1, 1, 1))
    return trainer.run(make_documents, trainer.fresh(), range(20))


@pytest.fixture(scope="module")
def on_8_devices(module):
    return Trainer(module, mesh_of(8, 1, 1))


def test_the_sharded_bank_equals_the_whole_one(on_8_devices, make_documents, on_one_device):
    losses, norms, after = on_8_devices.run(make_documents, on_8_devices.fresh(), range(20))
    want_losses, want_norms, want = on_one_device
    np.testing.assert_allclose(losses[:5], want_losses[:5], rtol=1e-5)
    np.testing.assert_allclose(losses, want_losses, rtol=1e-3)
    np.testing.assert_allclose(norms[:5], want_norms[:5], rtol=1e-4)
    vectors = after.model_state["memory"]["memory_bank"]["vectors"]
    assert {s.data.shape for s in vectors.addressable_shards} == {(3, BANK // 8, 8)}
    for name in ("pointer", "filled", "document"):
        np.testing.assert_array_equal(*(s.model_state["memory"]["memory_bank"][name] for s in (after, want)))
    np.testing.assert_allclose(vectors, want.model_state["memory"]["memory_bank"]["vectors"], atol=1e-2)
    assert np.asarray(want.model_state["memory"]["memory_bank"]["filled"]).tolist() == [BANK] * 3


def test_the_sharded_bank_gives_each_parameter_the_same_gradient(module, make_documents, on_one_device):
    batch, after = make_documents(GROUPS, PAIRS, seed=7), jax.tree.map(np.asarray, on_one_device[2])
    found = []
    for count in (1, 8):
        mesh = mesh_of(count, 1, 1)
        placed = jax.device_put(after, sharding.state_shardings(state.abstract_state(module, OPTIMIZER, mesh), mesh))

        def loss(params, model_state, batch):
            return loss_function(module, OBJECTIVE, train=True)(params, model_state, batch, 20, jax.random.key(0))[0]

        with jax.set_mesh(mesh):
            gradient = jax.jit(jax.grad(loss))(placed.params, placed.model_state, sharding.put_batch(batch, mesh, 0))
        found.append(jax.tree.map(np.asarray, gradient))
    leaves = [jax.tree_util.tree_leaves_with_path(gradient) for gradient in found]
    assert len(leaves[0]) > 20
    moved = 0
    for (path, whole), (_, sharded) in zip(*leaves, strict=True):
        size = np.linalg.norm(whole)
        assert np.linalg.norm(sharded - whole) <= 1e-4 * size + 1e-7, jax.tree_util.keystr(path)
        moved += size > 1e-4
    assert moved > len(leaves[0]) / 2


def test_restored_from_8_devices_on_2_in_the_middle_of_a_run(module, on_8_devices, make_documents, tmp_path):
    on_8, on_2 = on_8_devices, Trainer(module, mesh_of(1, 2, 1))  # parameters are split over the 2, too
    _, _, current = on_8.run(make_documents, on_8.fresh(), range(6))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(6, current, {})
        restored, _, _ = checkpoints.restore(on_2.target)
    jax.tree.map(np.testing.assert_array_equal, restored, current)
    vectors = restored.model_state["memory"]["memory_bank"]["vectors"]
    assert {s.data.shape for s in vectors.addressable_shards} == {(3, BANK // 2, 8)}
    straight, _, _ = on_8.run(make_documents, current, range(6, 12))
    losses, _, _ = on_2.run(make_documents, restored, range(6, 12))
    np.testing.assert_allclose(losses[:5], straight[:5], rtol=1e-5)
    np.testing.assert_allclose(losses, straight, rtol=1e-3)


def test_a_checkpoint_with_a_bank_of_another_shape(module, tiny_ccp, tmp_path):
    saved, wanted = (Trainer(m, mesh_of(1, 1, 1)) for m in (module, tiny_ccp(bank_size=64)))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, saved.fresh(), {})
        message = r"model_state/memory/memory_bank/vectors: float32\[3, 40, 8\] saved, float32\[3, 64, 8\] wanted"
        with pytest.raises(CheckpointError, match=message):
            checkpoints.restore(wanted.target)


@pytest.mark.parametrize(("size", "advice"), [(60, "take 56 or 64"), (6, "take 8")])
def test_slots_that_do_not_divide_are_refused_before_the_first_step(tiny_ccp, size, advice):
    with pytest.raises(ValueError, match=f"bank_size is {size}, and 8 devices can't own equal shares .* {advice}"):
        state.abstract_state(tiny_ccp(bank_size=size), OPTIMIZER, mesh_of(8, 1, 1))


@pytest.fixture(scope="module")
def compiled(tiny_ccp, make_documents):
    """Function (devices, languages) -> the compiled update with 2 micro-batches, 4,096 slots."""

    @functools.cache
    def make(devices, languages):
        mesh = mesh_of(devices, 1, 1)
        module = tiny_ccp(bank_size=4096, num_languages=languages)
        target = state.abstract_state(module, OPTIMIZER, mesh)
        shardings = sharding.state_shardings(target, mesh)
        step = train_step(module, OBJECTIVE, OPTIMIZER, accumulate=2)
        parts = [make_documents(8, PAIRS, seed=i) for i in range(2)]
        batch = sharding.put_batch(jax.tree.map(lambda *x: np.stack(x), *parts), mesh, 1)
        with jax.set_mesh(mesh):
            return jax.jit(step, donate_argnums=0, out_shardings=(shardings, None)).lower(target, batch).compile()

    return make


def operations(text, shape):
    """Names of the HLO operations with an array of this shape, "3,512,8", in their line."""
    found = (
        re.match(r"\s*(?:ROOT )?%?[\w.-]+ = .*?\)? ([a-z][\w-]*)\(", x) for x in text.splitlines() if f"[{shape}]" in x
    )
    return {match[1] for match in found if match}


@pytest.mark.parametrize("devices", [1, 8])
def test_no_bank_is_copied_or_gathered(compiled, devices):
    program, share = compiled(devices, 108), 4096 // devices
    text = program.as_text()
    found = operations(text, f"108,{share},8") | operations(text, f"108,{share}")
    assert {"while", "fusion"} <= found  # where it is read and written
    moved = {"copy", "copy-start", "all-gather", "all-gather-start", "all-to-all", "collective-permute", "all-reduce"}
    assert not moved & found
    # No device has more slots of any ring than its own.
    assert not any(re.search(rf"[,\[]{slots},8\]", text) for slots in range(2 * share, 4096 + 1, share))
    bank = 108 * share * (8 + 1) * 4
    assert program.memory_analysis().alias_size_in_bytes > bank  # donated buffers are written in place
    assert program.memory_analysis().temp_size_in_bytes < bank / 2


def test_the_cost_does_not_depend_on_the_number_of_languages(compiled):
    few, many = compiled(8, 2), compiled(8, 108)
    memory = [p.memory_analysis() for p in (few, many)]
    share = 4096 // 8
    assert memory[1].argument_size_in_bytes - memory[0].argument_size_in_bytes > 106 * share * 8 * 4
    # What a language more adds is its two integers, not its ring.
    assert abs(memory[1].temp_size_in_bytes - memory[0].temp_size_in_bytes) / 106 < 64
    flops = [p.cost_analysis()["flops"] for p in (few, many)]
    comparing_a_group_with_a_ring = 2 * 2 * 2 * PAIRS * share * 8
    assert abs(flops[1] - flops[0]) / 106 < 0.01 * comparing_a_group_with_a_ring
