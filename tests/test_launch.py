"""The start script, with a stand-in for the interpreter that ends as it is told."""

import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

LAUNCH = pathlib.Path(__file__).parents[1] / "launch"
# Notes its call and its place, then obeys the next line of PLAN.<process>: an exit code, or a command.
STAND_IN = """#!/usr/bin/env bash
me=${JAX_PROCESS_ID:-0}
echo "$me of ${JAX_NUM_PROCESSES:-1} at ${JAX_COORDINATOR_ADDRESS:-}: $*" >> CALLS
line=$(head -n 1 "PLAN.$me")
sed -i 1d "PLAN.$me"
trap 'echo "$me got TERM" >> CALLS; exit 0' TERM
case $line in
  [0-9]*) exit "$line" ;;
  *) eval "$line" ;;
esac
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "python").write_text(STAND_IN)
    (tmp_path / "python").chmod(0o755)
    return tmp_path


def start(folder, *plans, **environment):
    for i, plan in enumerate(plans):
        (folder / f"PLAN.{i}").write_text("\n".join(plan) + "\n")
    environment = {**os.environ, "PYTHON": str(folder / "python"), "LOCAL": str(len(plans)), **environment}
    command = [LAUNCH / "start.sh", "some.gin", "--gin.A='b c'"]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, cwd=folder, env=environment, text=True, **pipes)


def calls(folder):
    file = folder / "CALLS"
    return file.read_text().splitlines() if file.exists() else []


def test_a_failure_starts_again_and_success_ends(folder):
    process = start(folder, ["137", "0"])
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "exit code 137; starting again in 1 s (1 of at most 100)" in errors
    assert calls(folder) == ["0 of 1 at : -m vmsst_jax.train --gin_file=some.gin --gin.A='b c'"] * 2


@pytest.mark.parametrize(("plans", "code", "count"), [([["2"]], 2, 1), ([["75"], ["2"]], 2, 2), ([["75"] * 3], 75, 2)])
def test_what_does_not_start_again(folder, plans, code, count):
    process = start(folder, *plans, RESTARTS="1")
    process.communicate(timeout=60)
    assert process.returncode == code and len(calls(folder)) == count


def test_several_processes_know_each_other_and_a_stuck_one_is_killed(folder):
    process = start(folder, ["75", "0"], ["kill -STOP $$", "0"], PORT="900", GRACE="1")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "1 process(es) did not end by themselves and are killed" in errors
    assert sorted(line[: len("0 of 2 at localhost:900")] for line in calls(folder)) == [
        *["0 of 2 at localhost:900"] * 2,
        *["1 of 2 at localhost:900"] * 2,
    ]


@pytest.mark.parametrize(("environment", "code"), [({}, 0), ({"STOPPED": "75"}, 75)])
def test_sigterm_goes_to_all_processes(folder, environment, code):
    process = start(folder, *[["while :; do sleep 0.1; done"]] * 2, **environment)
    while len(calls(folder)) < 2:
        time.sleep(0.05)
    time.sleep(0.3)  # for the stand-ins to come to their traps
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    assert process.returncode == code and {"0 got TERM", "1 got TERM"} <= set(calls(folder))


def test_the_wrong_machine_is_told_so(folder):
    process = start(folder, ["1"], PLATFORM="gpu")
    assert "JAX finds no GPU here" in process.communicate(timeout=60)[1] and process.returncode == 2
    process = start(folder, ["0"], PLATFORM="abacus")
    assert "PLATFORM is 'abacus'; wanted gpu, tpu or cpu" in process.communicate(timeout=60)[1]
    assert process.returncode == 2


def test_scripts_pass_shellcheck():
    scripts = [str(path) for path in sorted([*LAUNCH.glob("*.sh"), *(LAUNCH.parent / "tests").rglob("*.sh")])]
    done = subprocess.run(
        [pathlib.Path(sys.executable).with_name("shellcheck"), *scripts], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_every_script_says_what_to_fill_in():
    for path in LAUNCH.iterdir():
        if path.name not in ("README.md", "start.sh"):
            assert "# Fill in: " in path.read_text(), path
        assert path.suffix != ".sh" or os.access(path, os.X_OK), path
