import argparse
import json
import subprocess
import sys

import numpy as np
import pytest

from vmsst_jax import command
from vmsst_jax.retrieval.exact import top_k


def exit_of(main, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.run("vmsst_jax.test", main, [])
    return stopped.value.code, capsys.readouterr().err


def test_our_own_errors_are_one_line(capsys):
    x = np.ones((2, 2), np.float32)
    code, err = exit_of(lambda argv: top_k(x, x, 3), capsys)
    assert code == 2
    assert err == "vmsst_jax.test: error: k is 3 but the corpus has 2 rows; ask for 1 to 2 neighbours\n"


def test_operating_system_errors_are_one_line(capsys, tmp_path):
    code, err = exit_of(lambda argv: open(tmp_path / "none"), capsys)
    assert (code, err) == (2, f"vmsst_jax.test: error: {tmp_path}/none: No such file or directory\n")


def test_bugs_keep_their_traceback():
    with pytest.raises(json.JSONDecodeError):
        command.run("vmsst_jax.test", lambda argv: json.loads("{"), [])
    with pytest.raises(KeyError):
        command.run("vmsst_jax.test", lambda argv: {}["x"], [])


def test_interruption(capsys):
    def main(argv):
        raise KeyboardInterrupt

    assert exit_of(main, capsys) == (130, "vmsst_jax.test: interrupted\n")


def test_a_reader_that_goes_away():
    program = "from vmsst_jax import command; command.run('x', lambda a: [print('y' * 99) for _ in range(9999)], [])"
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    writer.stdout.readline()
    writer.stdout.close()
    assert (writer.wait(timeout=60), writer.stderr.read()) == (141, b"")


def test_flag_types():
    assert command.positive("12") == 12 and command.step("0") == 0 and command.step("best") == "best"
    for convert, text in ((command.positive, "0"), (command.positive, "-3"), (command.step, "last")):
        with pytest.raises(argparse.ArgumentTypeError, match=text):
            convert(text)


@pytest.mark.parametrize(
    ("name", "flag"),
    [
        ("embed", "checkpoint"),
        ("search", "checkpoint"),
        ("evaluate", "checkpoint"),
        ("experiment", "only"),
        ("prepare", "opus"),
    ],
)
def test_help_loads_nothing_heavy(name, flag):
    program = f"""
import sys
from vmsst_jax import {name}
try:
    {name}.main(["--help"])
finally:
    assert not {{"jax", "flax", "tensorflow", "orbax", "apache_beam"}} & set(sys.modules), "heavy import"
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert shown.returncode == 0 and f"--{flag}" in shown.stdout, shown.stderr
