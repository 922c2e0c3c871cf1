"""Checkpoints: what is read is what was saved, whatever happened in between."""

import gc
import hashlib
import json
import logging
import os
import resource
import subprocess
import sys
import textwrap
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from vmsst_jax.training import checkpoint, optimizers, schedules
from vmsst_jax.training.checkpoint import CheckpointError, Checkpoints
from vmsst_jax.training.state import TrainState

HOST = {"gin": "a.b = 1\n", "languages": ["en", "de"], "data": {"parallel": {"position": 7}}}


def mesh_of(devices, model=1):
    return Mesh(np.array(jax.devices()[:devices]).reshape(-1, model), ("fsdp", "model"))


def make_state(step, mesh=None, rows=16):
    """Every kind of leaf that training has, with values that tell the step."""
    rng = np.random.default_rng(step)
    params = {
        "encoder": {"layers": {"wi": {"kernel": rng.standard_normal((2, rows, 8), np.float32)}}},
        "token_embedder": {"embedding": rng.standard_normal((rows, 8), np.float32)},
    }
    slots = jax.eval_shape(optimizers.adafactor(schedules.constant(), min_dim_size_to_factor=4).init, params)
    opt_state = jax.tree.map(lambda x: (100 * rng.random(x.shape)).astype(x.dtype), slots)
    model_state = {"stats": {"count": np.int32(step), "half": np.full((3,), step, jnp.bfloat16)}}
    state = TrainState(np.int32(step), params, opt_state, model_state, rng.integers(0, 2**32, 2, np.uint32))
    return jax.tree.map(lambda x: jax.device_put(x, placement(x, mesh or mesh_of(8))), state)


def placement(x, mesh):
    divides = x.ndim > 1 and x.shape[-2] % 8 == 0
    spec = [None] * (x.ndim - 2) + ["fsdp", "model"] if divides else []
    return NamedSharding(mesh, PartitionSpec(*spec))


def abstract(state, mesh=None):
    return jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=placement(x, mesh or mesh_of(8))), state
    )


def assert_same(got, want):
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert a.dtype == b.dtype and np.asarray(a).tobytes() == np.asarray(b).tobytes()


def write(directory, *steps, **options):
    with Checkpoints(directory, **options) as checkpoints:
        for step in steps:
            checkpoints.save(step, make_state(step), {**HOST, "step": step})


def files_of(place):
    return sorted((p for p in place.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def test_round_trip_is_bit_equal(tmp_path):
    state = make_state(5)
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_step() is None
        assert checkpoints.save(5, state, HOST)
        assert not checkpoints.save(5, state, HOST)  # a last save at a step that was just saved
        got, host, step = checkpoints.restore(abstract(state))
    assert step == 5
    assert_same(got, state)
    versions = host.pop("versions")
    assert host == HOST
    assert versions == checkpoint.versions() and versions["jax"] == jax.__version__
    jax.tree.map(lambda a, b: a.sharding.is_equivalent_to(b.sharding, b.ndim) or pytest.fail(str(a)), got, state)


def test_checksums_cover_every_file(tmp_path):
    write(tmp_path, 3)
    place = tmp_path / "checkpoints" / "3"
    lines = (place / "sha256sums.txt").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split("  ") for line in lines)}
    files = {str(p.relative_to(place)): p for p in files_of(place) if p.name != "sha256sums.txt"}
    assert sums == {name: hashlib.sha256(p.read_bytes()).hexdigest() for name, p in files.items()}


def test_state_may_be_donated_and_host_changed_while_it_is_saved(tmp_path):
    state, host = make_state(1, rows=8192), {"list": [1]}
    kept = jax.tree.map(lambda x: np.array(x), state)
    target = abstract(state)
    overwrite = jax.jit(lambda s: jax.tree.map(lambda x: x * 0 + 9, s), donate_argnums=0)
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state, host)
        host["list"].append(2)
        for _ in range(3):
            state = overwrite(state)
        jax.block_until_ready(state)
        got, host, _ = checkpoints.restore(target)
    assert_same(got, kept)
    assert host["list"] == [1]


def test_a_save_begins_when_the_state_is_computed(tmp_path, monkeypatch):
    """Orbax's collectives on one process must not overtake those of a step that another is still in."""
    slow = jax.jit(lambda x: jax.lax.fori_loop(0, 200, lambda _, y: jnp.cos(y @ y), x))
    with Checkpoints(tmp_path) as checkpoints:
        state = make_state(1)
        late = slow(jnp.ones((256, 256)))
        state = state.replace(params={**state.params, "late": late})
        assert not late.is_ready()  # so that what follows means something
        save = checkpoints._manager.save

        def check(*args, **kwargs):
            assert all(leaf.is_ready() for leaf in jax.tree.leaves(state))
            return save(*args, **kwargs)

        monkeypatch.setattr(checkpoints._manager, "save", check)
        checkpoints.save(1, state, HOST)


def test_restores_on_other_device_counts(tmp_path):
    state = make_state(2, mesh_of(8, model=2))
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(2, state, HOST)
        for mesh in (mesh_of(2), mesh_of(1), mesh_of(4, model=4)):
            got, _, _ = checkpoints.restore(abstract(state, mesh))
            assert_same(got, state)
            kernel = got.params["encoder"]["layers"]["wi"]["kernel"]
            assert kernel.sharding == NamedSharding(mesh, PartitionSpec(None, "fsdp", "model"))
        shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), state)
        got, _, _ = checkpoints.restore(shapes)  # without shardings: one device
        assert_same(got, state)
        assert got.step.devices() == {jax.devices()[0]}


def truncate(place):
    biggest = files_of(place)[-1]
    os.truncate(biggest, biggest.stat().st_size // 2)
    return biggest


def flip_a_bit(place):
    biggest = files_of(place / "state")[-1]
    data = bytearray(biggest.read_bytes())
    data[len(data) // 2] ^= 1
    biggest.write_bytes(data)
    return biggest


def remove_a_file(place):
    file = next(p for p in files_of(place) if p.name == "manifest.ocdbt")
    file.unlink()
    return file


def empty_the_metadata(place):
    file = place / "_CHECKPOINT_METADATA"
    file.write_text("")
    return file


def cut_off_the_checksums(place):
    file = place / "sha256sums.txt"
    os.truncate(file, 10)
    return file


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, remove_a_file, empty_the_metadata, cut_off_the_checksums])
def test_a_damaged_newest_step_is_reported_and_the_one_before_used(tmp_path, caplog, damage):
    write(tmp_path, 1, 2)
    file = damage(tmp_path / "checkpoints" / "2")
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.latest_step() == 2
        with caplog.at_level(logging.WARNING):
            got, host, step = checkpoints.restore(abstract(make_state(0)))
        assert step == 1 and host["step"] == 1
        assert_same(got, make_state(1))
        assert "step 2 is damaged" in caplog.text and str(file) in caplog.text
        assert (tmp_path / "checkpoints" / "2.damaged").is_dir()  # nothing is deleted, and training can go on:
        assert checkpoints.save(2, make_state(2), {**HOST, "step": 2})
        assert_same(checkpoints.restore(abstract(make_state(0)))[0], make_state(2))


def test_without_checksums_a_step_is_used_if_it_can_be_read(tmp_path, caplog):
    """The state of a process killed between the end of a save and its checksums."""
    write(tmp_path, 1, 2)
    place = tmp_path / "checkpoints" / "2"
    (place / "sha256sums.txt").unlink()
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore(abstract(make_state(0)))[2] == 2
        truncate(place / "state")
        assert checkpoints.restore(abstract(make_state(0)))[2] == 1
    assert "step 2 is damaged" in caplog.text


def test_all_damaged_is_an_error_that_lists_them(tmp_path):
    write(tmp_path, 1, 2)
    lost = [truncate(tmp_path / "checkpoints" / "1"), remove_a_file(tmp_path / "checkpoints" / "2")]
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError) as caught:
            checkpoints.restore(abstract(make_state(0)))
        assert all(str(file) in str(caught.value) for file in lost)
        assert checkpoints.steps == [1, 2]  # none was moved


def test_a_damaged_step_that_was_asked_for_is_an_error(tmp_path):
    write(tmp_path, 1, 2)
    truncate(tmp_path / "checkpoints" / "2")
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError, match="step 2 in .* can be used"):
            checkpoints.restore(abstract(make_state(0)), step=2)
        assert checkpoints.restore(abstract(make_state(0)), step=1)[2] == 1
        with pytest.raises(CheckpointError, match=r"no step 7 in .*; found steps 1, 2\."):
            checkpoints.restore(abstract(make_state(0)), step=7)


KILLED = """
    import os, pathlib, sys
    import jax, jax.numpy as jnp
    from vmsst_jax.training.checkpoint import Checkpoints
    checkpoints = Checkpoints(sys.argv[1])
    checkpoints.save(1, {"w": jnp.full((8,), 1.0)}, {"step": 1})
    checkpoints.wait()
    checkpoints.save(2, {"w": jax.random.normal(jax.random.key(0), (4096, 4096))}, {"step": 2})
    while not list(pathlib.Path(sys.argv[1], "checkpoints").glob("2.orbax-checkpoint-tmp*")):
        pass  # written by a thread, which on a busy machine has hardly begun
    os._exit(9)
"""


def test_killed_in_the_middle_of_a_save(tmp_path, caplog):
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    assert subprocess.run(command, timeout=120).returncode == 9
    assert [p.name for p in (tmp_path / "checkpoints").iterdir() if ".orbax-checkpoint-tmp" in p.name]
    with Checkpoints(tmp_path) as checkpoints:
        assert "2.orbax-checkpoint-tmp" in caplog.text and "interrupted" in caplog.text
        got, host, step = checkpoints.restore({"w": jax.ShapeDtypeStruct((8,), jnp.float32)})
    assert step == host["step"] == 1
    np.testing.assert_array_equal(got["w"], np.ones(8))
    assert sorted(os.listdir(tmp_path / "checkpoints")) == ["1"]


def test_what_is_kept(tmp_path):
    accuracy = {1: 0.1, 2: 0.9, 3: float("nan"), 4: 0.2, 5: 0.9, 6: 0.5, 7: None, 8: 0.3, 9: 0.1, 10: 0.1}
    options = {"keep_last": 2, "keep_every": 4, "best_metric": "accuracy"}

    def save(checkpoints, steps):
        for step in steps:
            metrics = None if accuracy[step] is None else {"accuracy": accuracy[step], "loss": 1.0}
            checkpoints.save(step, {"w": jnp.zeros(2)}, {}, metrics)

    with Checkpoints(tmp_path, **options) as checkpoints:
        save(checkpoints, range(1, 5))
        assert checkpoints.steps == [2, 3, 4]
        save(checkpoints, range(5, 8))
        assert checkpoints.steps == [4, 5, 6, 7]  # of equal scores the later
    with Checkpoints(tmp_path, **options) as checkpoints:  # a restart remembers the best
        save(checkpoints, range(8, 11))
        assert checkpoints.steps == [4, 5, 8, 9, 10]
    assert sorted(map(int, os.listdir(tmp_path / "checkpoints"))) == [4, 5, 8, 9, 10]


def test_the_best_may_be_the_lowest(tmp_path):
    with Checkpoints(tmp_path, keep_last=1, best_metric="loss", best_mode="min") as checkpoints:
        for step, loss in enumerate([3.0, 1.0, 2.0]):
            checkpoints.save(step, {"w": jnp.zeros(2)}, {}, {"loss": loss})
        assert checkpoints.steps == [1, 2]
        with pytest.raises(ValueError, match=r"best_metric is 'loss', but step 3 has only \['acc'\]"):
            checkpoints.save(3, {"w": jnp.zeros(2)}, {}, {"acc": 1.0})


def test_two_saves_in_flight(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            checkpoints.save(step, make_state(step, rows=1024), HOST)
    with Checkpoints(tmp_path) as checkpoints:
        for step in (1, 2):
            assert_same(checkpoints.restore(abstract(make_state(0, rows=1024)), step)[0], make_state(step, rows=1024))


@pytest.fixture
def small_files():
    """A function that makes the system refuse files above a size, as a full disk would refuse them."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.filterwarnings("ignore:.*was never awaited")  # Orbax leaves coroutines behind when a write fails
@pytest.mark.parametrize("surfaces_in", ["check", "save", "close"])
def test_a_failed_save_surfaces(tmp_path, small_files, surfaces_in, capfd):
    state = make_state(1, rows=4096)
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, state, HOST)
    checkpoints.wait()
    small_files(1 << 14)
    checkpoints.save(2, state, HOST)
    with pytest.raises(CheckpointError, match="Saving step 2 to .* failed: .*File too large.*goes on from step 1") as e:
        if surfaces_in == "check":
            while True:  # as the loop calls it, now and then
                checkpoints.check()
                time.sleep(0.01)
        {"save": lambda: checkpoints.save(3, state, HOST), "close": checkpoints.close}[surfaces_in]()
    assert "MB are free" in str(e.value)
    assert os.listdir(tmp_path / "checkpoints") == ["1"]  # what was half written is gone
    assert "Traceback" not in capfd.readouterr().err
    small_files(resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    if surfaces_in != "close":
        assert checkpoints.save(4, state, HOST)
        assert_same(checkpoints.restore(abstract(state))[0], state)
        checkpoints.close()
    gc.collect()


def test_another_model_is_an_error_that_names_the_leaves(tmp_path):
    write(tmp_path, 1)
    state = abstract(make_state(1))
    other = jax.ShapeDtypeStruct((16, 9), jnp.float32)
    wider = state.replace(params={**state.params, "token_embedder": {"embedding": other}, "new": other})
    cast = state.replace(step=jax.ShapeDtypeStruct((), jnp.float32))
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(CheckpointError) as caught:
            checkpoints.restore(wider)
        assert "params/token_embedder/embedding: float32[16, 8] saved, float32[16, 9] wanted" in str(caught.value)
        assert "params/new: absent saved, float32[16, 9] wanted" in str(caught.value)
        with pytest.raises(CheckpointError, match=r"step: int32\[\] saved, float32\[\] wanted"):
            checkpoints.restore(cast)
        assert checkpoints.steps == [1]  # that is no damage


def test_an_earlier_step_is_not_saved_over_later_ones(tmp_path):
    write(tmp_path, 1, 5)
    with Checkpoints(tmp_path) as checkpoints, pytest.raises(CheckpointError, match="Step 3 .* step 5 is there"):
        checkpoints.save(3, make_state(3), HOST)


def test_host_that_is_not_json_is_an_error_at_once(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        with pytest.raises(TypeError, match="not JSON serializable"):
            checkpoints.save(1, make_state(1), {"data": np.int64(3)})
        assert checkpoints.steps == []


def test_paths_without_checkpoints_are_clear_errors(tmp_path):
    target = {"w": jax.ShapeDtypeStruct((2,), jnp.float32)}
    with Checkpoints(tmp_path / "run") as checkpoints, pytest.raises(CheckpointError, match="it holds nothing"):
        checkpoints.restore(target)
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(CheckpointError, match=r"No checkpoint in .*: it holds notes\.txt, run\. Wanted numbered"):
        checkpoint.read_host(tmp_path)
    with pytest.raises(CheckpointError, match="is a file"):
        checkpoint.read_host(tmp_path / "notes.txt")
    with pytest.raises(FileNotFoundError, match=r"absent/x does not exist \(.* holds notes\.txt, run\)"):
        checkpoint.read_host(tmp_path / "absent" / "x")


def test_settings_that_make_no_sense(tmp_path):
    for options in ({"keep_last": 0}, {"keep_every": 0}, {"best_mode": "high"}):
        with pytest.raises(ValueError, match="Checkpoints needs"):
            Checkpoints(tmp_path, **options)


def test_read_host_by_any_path(tmp_path):
    write(tmp_path, 1, 2)
    folder = tmp_path / "checkpoints"
    for path in (tmp_path, folder, folder / "2", str(tmp_path), os.path.relpath(tmp_path)):
        assert checkpoint.read_host(path)["step"] == 2
    assert checkpoint.read_host(tmp_path, step=1)["step"] == 1
    truncate(folder / "2" / "state")  # not what is read
    assert checkpoint.read_host(tmp_path)["step"] == 2
    (folder / "2" / "host" / "metadata").write_text(json.dumps(HOST))
    assert checkpoint.read_host(tmp_path)["step"] == 1


def test_orbax_says_nothing(tmp_path, caplog, capfd):
    with caplog.at_level(logging.INFO, logger="absl"):
        write(tmp_path, 1, 2, 3, keep_last=1)
        with Checkpoints(tmp_path) as checkpoints:
            checkpoints.restore(abstract(make_state(0)))
    assert caplog.text == ""
    assert capfd.readouterr() == ("", "")
