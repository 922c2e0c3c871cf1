"""Processes that join, agree on where to stop, and learn who is lost: small ones without JAX, and threads."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest
from cluster import free_port

from vmsst_jax import company
from vmsst_jax.processes import Place

# Joins, says so, then obeys its standard input: "step N", "stop SIGNAL", "fail", "end"; each answer is a line.
MEMBER = """
import sys, time
from vmsst_jax import company
from vmsst_jax.processes import Place

count, index, port, lost_after = map(int, sys.argv[1:])
here = company.join(Place(count, index, "localhost", port, "a test"), "member", 20, lost_after)
company._here = here
for line in sys.stdin:
    what, _, value = line.strip().partition(" ")
    if what == "step":
        here.begin(int(value))
    elif what == "stop":
        here.ask_stop(value)
    elif what == "where":
        while here.stop is None:
            time.sleep(0.01)
        print("stop", *here.stop, flush=True)
        continue
    elif what == "shared":
        print("shared", here.shared(lambda: value), here.shared(lambda: value + "!"), flush=True)
        continue
    elif what == "fail":
        here.fail(2, "no more room")
        company.hard_exit(2)
    print("did", what, flush=True)
time.sleep(60)
"""


class Members:
    """``count`` processes that have joined."""

    def __init__(self, count, lost_after=60):
        arguments = [str(count), None, str(free_port()), str(lost_after)]
        self.all = []
        for i in range(count):
            arguments[1] = str(i)
            command = [sys.executable, "-c", MEMBER, *arguments]
            pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
            self.all.append(subprocess.Popen(command, text=True, **pipes))
        for i in range(count):
            self.wait_for(i, f"all {count} processes have joined (a test)")

    def wait_for(self, i, line):
        seen = []
        while (found := self.all[i].stdout.readline().strip()) != line:
            assert found or self.all[i].poll() is None, self.all[i].stderr.read()
            seen.append(found)
        return seen

    def tell(self, i, *lines):
        for line in lines:
            print(line, file=self.all[i].stdin, flush=True)
            if not line.startswith(("where", "shared", "fail")):
                self.wait_for(i, f"did {line.split()[0]}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.all:
            process.kill()
            process.communicate()


def test_processes_stop_at_the_step_of_the_one_furthest_ahead():
    with Members(3) as members:
        for i, step in enumerate((5, 7, 6)):
            members.tell(i, f"step {step}")
        members.tell(2, "stop SIGTERM", "stop SIGINT")
        for i in range(3):
            members.tell(i, "where")
            members.wait_for(i, "stop 7 SIGTERM")
        for i in (1, 0):  # what process 0 makes is on all, in order, whoever asks first
            members.tell(i, f"shared {i}")
        for i in (1, 0):
            members.wait_for(i, "shared 0 0!")


@pytest.mark.parametrize(
    ("victim", "number", "words"),
    [
        (1, signal.SIGKILL, "is lost: it ended without a word. The same command goes on"),
        (0, signal.SIGKILL, "process 0 (at localhost:{port}) of 3 is lost: it ended without a word"),
        (1, signal.SIGSTOP, "is lost: nothing was heard of it for"),
        (0, signal.SIGSTOP, "process 0 (at localhost:{port}) of 3 is lost: nothing was heard of it for"),
    ],
)
def test_others_name_the_lost_one_and_end(victim, number, words):
    with Members(3, lost_after=2) as members:
        process = members.all[victim]
        process.send_signal(number)
        for i in {0, 1, 2} - {victim}:
            _, errors = members.all[i].communicate(timeout=30)
            assert members.all[i].returncode == 75
            assert words.format(port=members.all[i].args[5]) in errors
            assert victim == 0 or f"process 1 (pid {process.pid} on {socket.gethostname()}) of 3" in errors
        if number == signal.SIGSTOP and victim:
            process.send_signal(signal.SIGCONT)
            assert "the others have given this process up" in process.communicate(timeout=30)[1]


def test_a_failure_is_passed_on_with_its_exit_code():
    with Members(2) as members:
        members.tell(1, "fail")
        _, errors = members.all[0].communicate(timeout=30)
        assert members.all[0].returncode == 2 and "of 2 is lost: no more room. Mend that first" in errors


def test_who_is_missing_is_said_and_named_after_the_time():
    port, said = free_port(), []

    def wait(index, seconds):
        try:
            company.join(Place(4, index, "localhost", port, "a test"), "test", seconds, say=said.append)
        except (TimeoutError, ValueError) as error:
            return str(error)

    errors = {}
    threads = [threading.Thread(target=lambda i=i: errors.update({i: wait(i, 3)})) for i in (0, 3)]
    for thread in threads:
        thread.start()
    while not any("joined" in text for text in said):
        time.sleep(0.05)
    assert f"process 3 (pid {os.getpid()} on {socket.gethostname()}) can't join: " in wait(3, 3)
    with socket.create_connection(("localhost", port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
    for thread in threads:
        thread.join()
    assert any("waiting for processes 1, 2 of 4" in text for text in said)
    for error in errors.values():
        assert f"after 3 s processes 1, 2 of 4 has not joined at localhost:{port}" in error


def test_nobody_to_join():
    said = []
    with pytest.raises(TimeoutError, match=r"process 1 of 2 can't reach process 0 at localhost:\d+ \(Connection ref"):
        company.join(Place(2, 1, "localhost", free_port(), "a test"), "test", 0.3, say=said.append)
    assert "waits for process 0" in said[0]
    with socket.create_server(("", 0)) as taken, pytest.raises(ValueError, match="can't listen on port .* in use"):
        company.join(Place(2, 0, "localhost", taken.getsockname()[1], "a test"), "test", 1)


def test_the_port_that_jax_takes_must_be_free():
    port = free_port()
    company._check_free(port)
    with socket.create_server(("", port)), pytest.raises(ValueError, match=rf"can't listen on port {port} .*in use"):
        company._check_free(port)


def test_an_abort_waits_for_the_own_way_out():
    """JAX aborts from a thread of its own, without Python's lock."""
    code = (
        "import ctypes, os, threading\n"
        "from vmsst_jax import company\n"
        "company._wait_before_abort()\n"
        "threading.Timer(0.5, os._exit, [75]).start()\n"
        "ctypes.CDLL(None).abort()"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 75
