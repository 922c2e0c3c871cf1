"""What hangs is reported with all stacks, and ended."""

import subprocess
import sys
import time

import pytest

from vmsst_jax.training.watchdog import Watch, Watchdog


def test_what_counts_as_hanging(capfd):
    watch = Watch(factor=10, least=0.5, first=0.5, patience=1000)
    with Watchdog(watch, "test") as dog:
        for step in range(1, 8):
            dog.step(step)
            time.sleep(0.1)
        with dog.during("saving to DIR"):
            time.sleep(0.2)
        limit, usual = dog.limit("training")
        assert 1 <= limit == 10 * usual
        assert not capfd.readouterr().err
        with dog.during("evaluating"):  # never seen before: `first` holds
            time.sleep(1)
    errors = capfd.readouterr().err
    assert errors.count("It may hang") == 1 and "evaluating, after step 7, has taken 1 s" in errors
    assert "test_what_counts_as_hanging" in errors and "Current thread" in errors  # the stacks


def test_a_hanging_process_is_ended():
    code = (
        "import time\nfrom vmsst_jax.training.watchdog import Watch, Watchdog\n"
        "with Watchdog(Watch(first=0.3, patience=3), 'test') as dog:\n    dog.step(4)\n    time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50)
    assert done.returncode == 75
    assert "test: error: step 4 has taken 1 s. The same command goes on from the last checkpoint" in done.stderr


def test_settings_are_positive():
    with pytest.raises(ValueError, match="Watch.factor is 0; wanted a number above 0"):
        Watch(factor=0)
