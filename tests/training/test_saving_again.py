"""Saves that fail for a while are made again with a later state; the last whole one stays until the next is."""

import errno
import logging
import time

import jax.numpy as jnp
import pytest

from vmsst_jax.training import checkpoint
from vmsst_jax.training.checkpoint import CheckpointError, Checkpoints


def state(step):
    return {"step": jnp.int32(step), "rows": jnp.full((4, 3), step, jnp.float32)}


@pytest.fixture
def failing(monkeypatch):
    """A list of error numbers: each background save takes one, and fails with it."""
    numbers = []
    wait = checkpoint.ocp.CheckpointManager.wait_until_finished

    def failing_wait(manager):
        wait(manager)
        if numbers and manager.latest_step() is not None:
            raise ValueError(f'writing "somewhere": [OS error {numbers.pop(0)}]')

    monkeypatch.setattr(checkpoint.ocp.CheckpointManager, "wait_until_finished", failing_wait)
    return numbers


def settle(checkpoints):
    """Looks, as the training loop does at every step, until no save is under way."""
    while checkpoints._saving is not None:
        checkpoints.check()
        time.sleep(0.01)


def test_a_failure_that_may_pass_makes_a_save_due(tmp_path, failing, caplog):
    with Checkpoints(tmp_path) as checkpoints, caplog.at_level(logging.WARNING):
        checkpoints.save(1, state(1), {})
        failing.append(errno.EIO)
        settle(checkpoints)
        assert "Saving step 1 to" in caplog.text and "Trying again in 2 s." in caplog.text
        assert not checkpoints.due
        begun = time.monotonic()
        while not checkpoints.due:
            assert time.monotonic() < begun + 60
            time.sleep(0.05)
        checkpoints.save(2, state(2), {})
        assert not checkpoints.due
    with Checkpoints(tmp_path) as checkpoints:
        assert checkpoints.restore(state(0))[2] == 2


def test_a_full_disk_and_a_failure_that_stays_are_errors(tmp_path, failing, monkeypatch):
    with Checkpoints(tmp_path) as checkpoints:
        checkpoints.save(1, state(1), {})
        failing.append(errno.ENOSPC)
        with pytest.raises(CheckpointError, match="Saving step 1 to .* failed: No space left on device"):
            settle(checkpoints)
        monkeypatch.setattr(checkpoint, "RETRIES", 2)  # the one above counts
        for step in (2, 3):
            checkpoints.save(step, state(step), {})
            failing.append(errno.EIO)
            if step == 3:
                with pytest.raises(CheckpointError, match="Saving step 3 to .* failed: Input/output error"):
                    settle(checkpoints)
            else:
                settle(checkpoints)


def test_the_last_whole_save_outlives_the_next_one(tmp_path, monkeypatch):
    """Even with ``keep_last`` 1: it goes only when a newer one has its checksums."""
    sums = checkpoint.files.write_sums
    seen = []

    def looking(place):
        seen.append(sorted(int(p.name) for p in place.parent.iterdir() if p.name.isdigit()))
        sums(place)

    monkeypatch.setattr(checkpoint.files, "write_sums", looking)
    with Checkpoints(tmp_path, keep_last=1) as checkpoints:
        for step in (1, 2, 3, 4):
            checkpoints.save(step, state(step), {})
    assert seen == [[1], [1, 2], [2, 3], [3, 4]]


def test_slow_storage_is_named(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(checkpoint, "SLOW", 0.0)
    with Checkpoints(tmp_path) as checkpoints, caplog.at_level(logging.WARNING):
        checkpoints.save(1, state(1), {})
        checkpoints.save(2, state(2), {})
    assert "for the save of step 1 to" in caplog.text and "Save less often (Rhythm.save_every)" in caplog.text
