"""Commands of ours run to their end, each in a process of its own, which returns its memory and keeps its crash."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

PYTHON = (sys.executable, "-m")


def cpus() -> int:
    """How many CPUs this process, and what it starts, may run on: the order of sums depends on it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Failed(Exception):
    """A process ended without doing its work; the text says why."""


def run(log: Path, command: Sequence[str], lock: int) -> None:
    """Runs a command of ours to its end, its output added to ``log``; Failed with its own last words.

    Args:
      command: a module's name and its arguments.
      lock: an open file's number. The process inherits it: whoever is killed, the lock is free only when nobody works
        on what it stands for any more.
    """
    with open(log, "ab") as out:
        begin = out.tell()
        # In a session of its own, so that Ctrl-C reaches it once, from here, and training can save.
        process = subprocess.Popen(
            [*PYTHON, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
            start_new_session=True, pass_fds=[lock],
        )  # fmt: skip
        try:
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
    if code:
        with open(log, "rb") as out:
            out.seek(begin)
            printed = out.read().decode(errors="replace")
        raise Failed(f"{command[0].removeprefix('vmsst_jax.')}: {last_words(printed, code)}")


def last_words(printed: str, code: int) -> str:
    """Why a process failed, from what it printed and its exit code."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    if missing := list(dict.fromkeys(line for line in lines if line.startswith("missing: "))):
        return "; ".join(missing)
    named = [line for line in lines if re.match(r"vmsst_jax\.\w+: error: ", line)]
    return [*(re.sub(r"^[\w.]+: error: ", "", line) for line in named), *lines[-1:], f"exit code {code}"][0]
