"""The processes of one run, as each of them sees the others: joining, staying in touch, stopping together.

JAX's own service says neither who is missing while it waits nor, in words, who has gone; so each process keeps a
connection to process 0 beside it (``vmsst_jax.hub``). When another process ends, fails or falls silent, this one says
which, and ends too: exit code 75 where giving the same command again goes on, the other's own code where it would not.
The ports of process 0 are open to whoever can reach them, as JAX's is: run on a network that you trust.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator

from vmsst_jax import command
from vmsst_jax.command import PASSING
from vmsst_jax.hub import TICK, Hub, Lines, encode
from vmsst_jax.processes import Place

JOIN_SECONDS = 300.0
LOST_SECONDS = 60.0
GRACE = 3.0  # seconds for what fails everywhere to be reported by each process itself


class Alone:
    """The company of a single process: the same methods, nobody to wait for."""

    count, index = 1, 0

    def __init__(self):
        self._step = 0
        self.stop: tuple[int, str] | None = None

    def begin(self, step: int) -> None:
        """Step number ``step`` begins; call it before each one."""
        self._step = step

    def ask_stop(self, signal: str) -> None:
        """This process was told to stop: ``stop`` becomes (the last step to be done by all, signal), soon."""
        self.stop = self.stop or (self._step, signal)

    def first(self, function: Callable):
        """``function()``, on process 0 before the others, which then find what it has made."""
        return function()

    def shared(self, make: Callable[[], str]) -> str:
        """Process 0's ``make()``, on all of them."""
        return make()

    def behind(self) -> str:
        """Which process is how far behind, in words; empty where there are no others."""
        return ""

    def fail(self, code: int, why: str) -> None:
        """Tells the others that this process is about to end."""

    def leave(self) -> None:
        """Tells the others that this process has done its work."""


class Company:
    """This process's connection to the others. Made by ``join``; what is not said here is said in ``Alone``.

    Attributes:
      count, index: number of processes, and of this one.
      stop: None, or (the last step that all do, name of the signal).
      verdict: None, or (exit code, message) once another process is lost.
    """

    def __init__(self, place: Place, connection: socket.socket, lines: Lines, name: str, lost_after: float):
        self.count, self.index = place.count, place.index
        self.stop: tuple[int, str] | None = None
        self.verdict: tuple[int, str] | None = None
        self._connection, self._lines, self._name = connection, lines, name
        self._hub, self._lost_after = f"process 0 (at {place.host}:{place.port})", lost_after
        self._step, self._asking, self._asked, self._ending = 0, False, False, False
        self._values: collections.deque[str] = collections.deque()
        self._behind = (place.index, 0)
        self._changed = threading.Condition()
        self._sending = threading.Lock()
        self._connection.settimeout(TICK)
        threading.Thread(target=self._listen, name="company", daemon=True).start()
        threading.Thread(target=self._speak, name="company-alive", daemon=True).start()

    def begin(self, step: int) -> None:
        with self._changed:
            # Between being asked where it is and being told where to stop, no process goes further.
            while self._asked and self.stop is None:
                self._changed.wait(TICK)
            self._step = step

    def ask_stop(self, signal: str) -> None:
        if not self._asking:
            self._asking = True
            self._send({"stop": signal})

    def first(self, function: Callable):
        if self.index:
            self.shared(str)
            return function()
        result = function()
        self.shared(lambda: "")
        return result

    def shared(self, make: Callable[[], str]) -> str:
        if self.index == 0:
            self._send({"value": make()})
        with self._changed:
            while not self._values:
                self._changed.wait(TICK)
            return self._values.popleft()

    def behind(self) -> str:
        index, step = self._behind
        return f"process {index} is furthest behind, at step {step:,}"

    def fail(self, code: int, why: str) -> None:
        self._ending = True
        self._send({"failed": code, "why": why})

    def leave(self) -> None:
        import jax

        jax.distributed.shutdown()  # waits for the others: nobody's end is news after it
        self._ending = True
        self._send({"done": True})

    def wait_for_verdict(self, seconds: float) -> tuple[int, str] | None:
        """``verdict``, waiting for it for some time."""
        self._ending = True
        with self._changed:
            self._changed.wait_for(lambda: self.verdict is not None, seconds)
        return self.verdict

    def _send(self, message: dict) -> None:
        try:
            with self._sending:
                self._connection.sendall(encode(message))
        except OSError:  # process 0 is gone: _listen says so
            pass

    def _speak(self) -> None:
        """Says that this process lives; a stopped process or machine can't."""
        while self.verdict is None:
            self._send({"alive": self._step})
            time.sleep(min(1.0, self._lost_after / 5))

    def _listen(self) -> None:
        heard = time.monotonic()
        while self.verdict is None:
            why = ""
            try:
                data = self._connection.recv(1 << 16)
                heard = time.monotonic()
                why = "" if data else "it ended without a word"
            except TimeoutError:
                data = b""
                if (silent := time.monotonic() - heard) > self._lost_after:
                    why = f"nothing was heard of it for {silent:.0f} s: it is stopped, or its machine or network hangs"
            except ConnectionError:
                data, why = b"", "it ended without a word"
            except OSError as error:
                data, why = b"", f"the connection to it broke: {error}"
            for message in self._lines.add(data):
                self._handle(message)
            if why and self.verdict is None:
                self._end(0, self._hub, PASSING, why)

    def _handle(self, message: dict) -> None:
        with self._changed:
            if "alive" in message:
                self._behind = tuple(message["alive"])
            elif "where" in message:
                self._asked = True
                self._send({"at": self._step})
            elif "stop_at" in message:
                self.stop = message["stop_at"], message["signal"]
            elif "value" in message:
                self._values.append(message["value"])
            self._changed.notify_all()
        if "lost" in message:
            self._end(message["lost"], message["name"], message["code"], message["why"])

    def _end(self, index: int, name: str, code: int, why: str) -> None:
        """Another process is lost: waits whether this one ends by itself, which says more, else ends it."""
        advice = "The same command goes on from the last checkpoint" if code == PASSING else "Mend that first"
        with self._changed:
            self.verdict = code, f"{name} of {self.count} is lost: {why}. {advice}"
            self._changed.notify_all()
        if index == self.index and not self._ending:  # it was silent for too long itself, and is awake again
            self.verdict = code, f"the others have given this process up: {why}. {advice}"
        if self._ending:
            return
        if code != PASSING:
            time.sleep(GRACE)
        elif index:  # once process 0 has gone, JAX aborts this one within moments, and says less
            time.sleep(TICK)
        if not self._ending:
            hard_exit(code, f"{self._name}: error: {self.verdict[1]}")


_here: Company | None = None
_hub: Hub | None = None  # on process 0


def here() -> Alone | Company:
    """This process's company."""
    return _here or Alone()


@contextlib.contextmanager
def together(
    place: Place | None, name: str, join_seconds: float = JOIN_SECONDS, lost_after: float = LOST_SECONDS
) -> Iterator[None]:
    """What runs inside runs together with the other processes, if there are any: they have joined, JAX sees the devices
    of all, and ``here()`` is their company.

    An error inside ends the process here and now, with the exit code that ``command.run`` would give it, and the others
    are told; one that follows from another process's end is reported as that.
    """
    global _here
    if place is None:
        yield
        return
    _here = join(place, name, join_seconds, lost_after, say=lambda text: print(text, flush=True))
    try:
        _start_jax(place, lost_after)
        yield
        _here.leave()
    except BaseException as error:
        expected = isinstance(error, KeyboardInterrupt | OSError | ValueError)
        # A connection that broke raises here; who has gone is known at once, who hangs after a while.
        verdict = _here.wait_for_verdict(1.0 if expected else lost_after + 5)
        if verdict is not None and verdict[0] == PASSING:
            hard_exit(PASSING, f"{name}: error: {verdict[1]}")
        code = command.report(name, error)
        if code is None:
            traceback.print_exception(error)
            code = 1
        _here.fail(code, command.describe(error) or type(error).__name__)
        hard_exit(code)


def _start_jax(place: Place, lost_after: float) -> None:
    """Has JAX see the devices of all processes."""
    import jax

    if place.index:
        logging.getLogger("vmsst_jax").setLevel(logging.ERROR)  # process 0 says what all would
    _wait_before_abort()
    if place.index == 0:
        _check_free(place.port + 1)
    # This module does what that service is for, SIGINT included.
    jax.config.update("jax_enable_preemption_service", False)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # Programs that run beside each other on CPUs may meet in another order in another process, and Gloo ends both.
    jax.config.update("jax_cpu_enable_async_dispatch", False)
    host = f"[{place.host}]" if ":" in place.host else place.host
    jax.distributed.initialize(
        f"{host}:{place.port + 1}",
        num_processes=place.count,
        process_id=place.index,
        cluster_detection_method="deactivate",
        heartbeat_timeout_seconds=int(max(100, 5 * lost_after)),  # it ends processes too, without saying why
    )


def _check_free(port: int) -> None:
    """ValueError where another program listens on a port that JAX is about to listen on."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("", port))
        except OSError as error:
            raise ValueError(
                f"process 0 can't listen on port {port} ({error.strerror}), which JAX takes beside the one before it: "
                "give an address with another port"
            ) from None


def _wait_before_abort() -> None:
    """Has an abort of this process wait some seconds, in C and in the thread that aborts.

    JAX aborts a process as soon as process 0 is gone, from a thread of its own and with no word of who it was. In these
    seconds `Company._listen` ends the process in its own way; where it has no reason to, the abort goes on.
    """
    libc = ctypes.CDLL(None)
    libc.signal.restype = ctypes.c_void_p
    # A handler is called with the signal's number, so this one sleeps for 6 seconds.
    libc.signal(signal.SIGABRT, ctypes.cast(libc.sleep, ctypes.c_void_p))


def hard_exit(code: int, message: str = "") -> None:
    """Ends this process now: JAX's own way out waits for processes that are no more. Process 0 lets the others go
    first, as theirs is to be the last word on why."""
    if message:
        print(message, file=sys.stderr)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    if _hub is not None:
        _hub.wait_for_others(GRACE + 2)
    os._exit(code)


def join(
    place: Place, name: str, join_seconds: float = JOIN_SECONDS, lost_after: float = LOST_SECONDS, say: Callable = print
) -> Company:
    """Waits until all processes are there; says who is, and who is missing, whenever that changes.

    Args:
      name: of the command, for messages.
      join_seconds: how long to wait for the others.
      lost_after: seconds of silence after which another process counts as lost.

    Raises:
      TimeoutError: some have not come; they are named.
      ValueError: process 0's port is taken, or this process's number.
    """
    global _hub
    begun = time.monotonic()
    deadline = begun + join_seconds
    if place.index == 0:
        _hub = Hub(_listener(place), place.count, lost_after)
    connection = _connect(place, deadline, begun, say)
    hello = {"hello": place.index, "count": place.count, "host": socket.gethostname(), "pid": os.getpid()}
    connection.sendall(encode(hello))
    lines, told, missing = Lines(), None, []
    while True:
        connection.settimeout(max(deadline - time.monotonic(), 0.01))
        try:
            data = connection.recv(1 << 16)
        except TimeoutError:
            data = None
        for message in lines.add(data or b""):
            if "go" in message:
                say(f"all {place.count} processes have joined ({place.source})")
                return Company(place, connection, lines, name, lost_after)
            if "refused" in message:
                raise ValueError(message["refused"])
            if "waiting" in message:
                missing = message["waiting"]
                if missing != told:
                    told = missing
                    say(f"joined: {', '.join(message['joined'])}; waiting for {_listed(missing)} of {place.count}")
        if data == b"":
            raise TimeoutError(f"process 0 at {place.host}:{place.port} ended while the processes were joining")
        if time.monotonic() >= deadline:
            raise TimeoutError(
                f"after {join_seconds:.0f} s {_listed(missing)} of {place.count} has not joined at "
                f"{place.host}:{place.port}. See why on its machine: is it started there, with this address, and may "
                "it reach this port?"
            )


def _listed(indices: list[int]) -> str:
    return f"process{'es' * (len(indices) != 1)} {', '.join(map(str, indices)) or '?'}"


def _listener(place: Place) -> socket.socket:
    try:
        if socket.has_dualstack_ipv6():
            return socket.create_server(("", place.port), family=socket.AF_INET6, dualstack_ipv6=True)
        return socket.create_server(("", place.port))
    except OSError as error:
        raise ValueError(
            f"process 0 can't listen on port {place.port}: {error.strerror}. Another run may have it: give another "
            "one, as in --coordinator=HOST:PORT"
        ) from None


def _connect(place: Place, deadline: float, begun: float, say: Callable) -> socket.socket:
    told = False
    while True:
        try:
            host = place.host if place.index else "localhost"
            connection = socket.create_connection((host, place.port), timeout=5)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except OSError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"process {place.index} of {place.count} can't reach process 0 at {place.host}:{place.port} "
                    f"({error.strerror or error}) after {time.monotonic() - begun:.0f} s: is it started there, with "
                    "this address, and may this machine reach that port?"
                ) from None
            if not told:
                told = True
                say(f"process {place.index} of {place.count} waits for process 0 at {place.host}:{place.port}")
            time.sleep(0.2)
