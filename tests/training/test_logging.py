"""The log of several streams: each one's last update before a line, wherever the run was interrupted."""

import json

import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax.training import logging, loop, optimizers, schedules

STEPS, EVERY = 40, 10
FEEDS = [loop.Feed(name, None, None, weight) for name, weight in (("often", 5.0), ("seldom", 1.0))]


def stream_of(schedule):
    return lambda step: loop.choose_feed(FEEDS, schedule, 3, step - 1).name


def write(folder, schedule, first, last, rate=None):
    """The log of the updates ``first`` + 1 to ``last``; returns what was printed."""
    folder.mkdir(exist_ok=True)
    log, said = logging.Log(folder, STEPS, first), []
    log.say = said.append
    meter = logging.Meter(log, STEPS, EVERY, first, stream_of(schedule), rate)
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


def test_the_rate_is_that_of_the_update(tmp_path):
    """Update n was made with the schedule's value after n - 1 updates; it is logged of every stream."""
    rates = []
    for schedule in (schedules.inverse_sqrt(peak=1e-3, warmup=4), schedules.constant(0.5)):
        write(tmp_path / "log", "in_turn", 0, STEPS, optimizers.adam(schedule).schedule)
        lines = (tmp_path / "log" / "metrics.jsonl").read_text("utf-8").splitlines()
        rates.append({r["step"]: r["learning_rate"] for r in map(json.loads, lines)})
        (tmp_path / "log" / "metrics.jsonl").unlink()
    assert rates[0] == {step: pytest.approx(1e-3 * (4 / (step - 1)) ** 0.5) for step in rates[1]} and len(rates[1]) == 8
    assert set(rates[1].values()) == {0.5}


@pytest.mark.parametrize("make", [optimizers.adafactor, optimizers.adam, optimizers.adamw])
def test_the_rate_that_is_logged_is_the_one_that_is_used(make):
    """Twice the rate, twice the step; the floor of Adafactor too."""
    params, moved = {"w": jnp.ones((3,))}, []
    for rate in (0.01, 0.02, 0.0):
        optimizer = make(schedules.constant(rate))
        updates, _ = optimizer.update({"w": jnp.ones((3,))}, optimizer.init(params), params)
        moved.append(-float(updates["w"][0]) / max(float(optimizer.schedule(0)), 1e-30))
    assert moved[1] == pytest.approx(moved[0], rel=1e-5)
    assert moved[2] == pytest.approx(moved[0] if make is optimizers.adafactor else 0.0, rel=1e-5)
