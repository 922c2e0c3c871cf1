"""One run at a time in a model directory, and what a converted model there says to a run."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

from vmsst_jax import disk
from vmsst_jax.training import checkpoint
from vmsst_jax.training.checkpoint import CheckpointError, Checkpoints

STATE = {"w": jnp.zeros(2)}
OTHER = """
import sys
from vmsst_jax.training.checkpoint import Checkpoints
checkpoints = Checkpoints(sys.argv[1])
print("open", flush=True)
sys.stdin.read()
"""


def test_another_process_is_refused(tmp_path):
    command = [sys.executable, "-c", OTHER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(
            CheckpointError, match=f"training in {tmp_path}: process {other.pid} on .*another model dir"
        ):
            Checkpoints(tmp_path)
        other.kill()
    with Checkpoints(tmp_path) as checkpoints:  # a lock dies with its process
        checkpoints.save(1, STATE, {"step": 1})
        checkpoints.wait()
        assert checkpoint.read_host(tmp_path)["step"] == 1  # reading needs no lock


def test_the_same_process(tmp_path):
    first = Checkpoints(tmp_path)
    with pytest.raises(CheckpointError, match="this very process holds"):
        Checkpoints(tmp_path)
    first.close()
    Checkpoints(tmp_path).close()

    def fails():
        mine = Checkpoints(tmp_path)
        mine.itself = mine  # collected as garbage only
        raise KeyError

    with pytest.raises(KeyError):
        fails()
    Checkpoints(tmp_path).close()


def test_without_locks_on_the_file_system(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(disk.NO_LOCKS[0], "No locks available")

    monkeypatch.setattr(disk.fcntl, "flock", flock)
    with Checkpoints(tmp_path) as first, Checkpoints(tmp_path) as second:
        assert first.folder == second.folder


def test_empty_checksums_are_none(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, STATE, {})
    sums = tmp_path / "checkpoints" / "1" / "sha256sums.txt"
    assert checkpoint.files.check_sums(checkpoint.files.absolute(sums.parent))
    sums.write_text("")
    assert not checkpoint.files.check_sums(checkpoint.files.absolute(sums.parent))
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore(STATE)[2] == 1


def test_going_on_in_a_converted_models_folder(tmp_path):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(0, STATE, {"origin": {"form": "t5x", "path": "/models/mt5"}})
        wanted = {"w": jax.ShapeDtypeStruct((2,), jnp.float32), "slots": jax.ShapeDtypeStruct((2,), jnp.float32)}
        with pytest.raises(CheckpointError, match="is a converted model .*/models/mt5.* train.init_checkpoint instead"):
            checkpoints.restore(wanted)
