"""Runs of two real processes on CPU: the losses of one process, a stop that all take part in, and other counts.

The longer versions, with four processes and more steps, are tests/chaos/equality.py and tests/chaos/chaos.py.
"""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from cluster import free_port

OPTIONS = ("train.evaluators=[]", "train.reports=[]", "Rhythm.save_every=1000")


def start(workplace, recipe, model_dir, *bindings):
    """Two processes of one device each."""
    flags = [f"--gin.{b}" for b in (f'MODEL_DIR="{model_dir}"', *bindings)]
    flags += [f"--coordinator=localhost:{free_port()}", "--processes=2"]
    environment = {**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0", "PYTHONUNBUFFERED": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(workplace), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "vmsst_jax.train", f"--gin_file={recipe}", *flags]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return [
        subprocess.Popen([*command, f"--process_id={i}"], cwd=workplace, env=environment, text=True, **pipes)
        for i in (0, 1)
    ]


def finish(processes):
    outputs = [process.communicate(timeout=300)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], "\n".join(outputs)
    return outputs


@pytest.mark.slow
def test_two_processes_train_as_one_and_stop_together(workplace, run_recipe, tmp_path, records):
    run_recipe(tmp_path / "one", "TRAIN_STEPS=5", *OPTIONS)
    alone = records(tmp_path / "one")
    processes = start(workplace, "tiny.gin", tmp_path / "two", "TRAIN_STEPS=100000", *OPTIONS)
    log = tmp_path / "two" / "metrics.jsonl"
    while not (log.exists() and len(log.read_text().splitlines()) > 4):
        assert processes[0].poll() is None, processes[0].communicate()[0]
        time.sleep(0.05)
    processes[1].send_signal(signal.SIGTERM)
    first, second = finish(processes)
    two = records(tmp_path / "two")
    for a, b in zip(alone, two[:5], strict=True):
        assert a["step"] == b["step"]
        np.testing.assert_allclose(b["loss"], a["loss"], rtol=1e-5)
    saved = int(re.search(r"SIGTERM: saved step (\d+) of 100000; the same command goes on from there", first)[1])
    assert two[-1]["step"] == saved and (tmp_path / "two" / "checkpoints" / str(saved) / "sha256sums.txt").exists()
    assert "2 cpu devices in 2 processes" in first
    assert "joined: process" in first + second or "all 2 processes have joined (the command line)" in second
    assert "step 1" not in second  # process 0 alone writes
    # One process of eight devices goes on where two of one device stopped.
    run_recipe(tmp_path / "two", f"TRAIN_STEPS={saved + 2}", *OPTIONS)
    assert records(tmp_path / "two")[: len(two)] == two and records(tmp_path / "two")[-1]["step"] == saved + 2
