"""A run killed at random moments ends with the log and the parameters of the uninterrupted one, to the last bit."""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from vmsst_jax.training.checkpoint import load_model

# More of them: KILLS=10 python -m pytest tests/training/test_kill.py
KILLS = int(os.environ.get("KILLS", "3"))
STEPS = 240
OPTIONS = (f"TRAIN_STEPS={STEPS}", "Rhythm.save_every=5", "train.evaluators=[]", "train.reports=[]")


def start(workplace, model_dir, *bindings):
    flags = [f"--gin.{b}" for b in (f'MODEL_DIR="{model_dir}"', *OPTIONS, *bindings)]
    environment = {**os.environ, "PYTHONPATH": str(workplace), "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    return subprocess.Popen(
        [sys.executable, "-m", "vmsst_jax.train", "--gin_file=tiny.gin", *flags],
        cwd=workplace,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    out, _ = process.communicate(timeout=300)
    assert process.returncode == 0, out
    return out


def wait_for_steps(model_dir, process, more):
    """Until the log has grown by ``more`` lines since the process began writing; then a random moment later."""
    log = pathlib.Path(model_dir) / "metrics.jsonl"

    def lines():
        return len(log.read_text().splitlines()) if log.exists() else 0

    begin = lines()
    while process.poll() is None and lines() < begin + more:
        begin = min(begin, lines())  # a restart cuts the log back to its checkpoint
        time.sleep(0.01)


@pytest.fixture(scope="module")
def straight(workplace, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uninterrupted")
    finish(start(workplace, folder))
    return folder


@pytest.mark.slow
def test_sigkill_loses_nothing_but_time(workplace, straight, tmp_path, records):
    rng, kills = random.Random(time.time_ns()), 0
    while kills < KILLS:
        process = start(workplace, tmp_path)
        wait_for_steps(tmp_path, process, rng.randrange(1, STEPS // KILLS - 20))
        time.sleep(0.05 * rng.random())
        assert process.poll() is None, process.communicate()[0]
        process.kill()
        process.wait()
        kills += 1
    finish(start(workplace, tmp_path))
    assert records(tmp_path) == records(straight)
    ours, theirs = (jax.device_get(load_model(f).params) for f in (tmp_path, straight))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.slow
def test_sigterm_saves_and_exits_cleanly(workplace, straight, tmp_path, records):
    process = start(workplace, tmp_path)
    wait_for_steps(tmp_path, process, 7)
    process.send_signal(signal.SIGTERM)
    out = finish(process)
    assert "SIGTERM: saved step" in out and "goes on from there" in out
    saved = max(int(p.name) for p in (tmp_path / "checkpoints").iterdir() if p.name.isdigit())
    assert records(tmp_path)[-1]["step"] == saved < STEPS
    finish(start(workplace, tmp_path))
    assert records(tmp_path) == records(straight)


@pytest.mark.slow
def test_another_number_of_devices_goes_on(workplace, straight, tmp_path, records):
    """Sums associate differently then: losses agree to 1e-5 relative over the first 5 steps."""
    process = start(workplace, tmp_path, "TRAIN_STEPS=20")
    finish(process)
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4"}
    flags = [f"--gin.{b}" for b in (f'MODEL_DIR="{tmp_path}"', *OPTIONS, "TRAIN_STEPS=25")]
    subprocess.run(
        [sys.executable, "-m", "vmsst_jax.train", "--gin_file=tiny.gin", *flags],
        cwd=workplace,
        env={**os.environ, **environment, "PYTHONPATH": str(workplace)},
        check=True,
        capture_output=True,
    )
    ours, theirs = records(tmp_path), records(straight)
    assert ours[:20] == theirs[:20]
    for a, b in zip(ours[20:25], theirs[20:25], strict=True):
        assert a["step"] == b["step"]
        np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-5)
