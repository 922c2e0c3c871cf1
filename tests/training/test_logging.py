"""The log of several streams: each one's last update before a line, wherever the run was interrupted."""

import json

import numpy as np
import pytest

from vmsst_jax.training import logging, loop

STEPS, EVERY = 40, 10
FEEDS = [loop.Feed(name, None, None, weight) for name, weight in (("often", 5.0), ("seldom", 1.0))]


def stream_of(schedule):
    return lambda step: loop.choose_feed(FEEDS, schedule, 3, step - 1).name


def write(folder, schedule, first, last):
    """The log of the updates ``first`` + 1 to ``last``; returns what was printed."""
    folder.mkdir(exist_ok=True)
    log, said = logging.Log(folder, STEPS, first), []
    log.say = said.append
    meter = logging.Meter(log, STEPS, EVERY, first, stream_of(schedule))
    for step in range(first + 1, last + 1):
        info = {"pair_id": np.arange(2), "real_tokens": 3, "padded_tokens": 4}
        meter.add(step, stream_of(schedule)(step), {"loss": 1000 + step}, info, 0.0)
    meter.flush()
    log.close()
    return said


def read(folder):
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [(r["step"], r["stream"], r["loss"]) for r in map(json.loads, lines)]


@pytest.mark.parametrize("schedule", ["in_turn", "random"])
def test_each_streams_last_update_before_a_line(schedule, tmp_path):
    expected = []
    for begin in range(0, STEPS, EVERY):
        last = {stream_of(schedule)(step): step for step in range(begin + 1, begin + EVERY + 1)}
        expected += sorted((step, name, 1000 + step) for name, step in last.items())
    assert len(expected) > STEPS // EVERY
    said = write(tmp_path / "whole", schedule, 0, STEPS)
    assert read(tmp_path / "whole") == expected
    assert len(said) == STEPS // EVERY
    first = {name: loss for step, name, loss in expected if step <= EVERY}
    for name, loss in first.items():
        assert f"{name}  loss {loss}" in said[0]
    write(tmp_path / "parts", schedule, 0, 17)
    write(tmp_path / "parts", schedule, 13, STEPS)  # from a checkpoint before where it was killed
    assert read(tmp_path / "parts") == expected
