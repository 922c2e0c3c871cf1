"""What process 0 keeps for all of them: who has joined, who still speaks, at which step everybody stops.

Every process, process 0 too, holds one connection to it (``vmsst_jax.company``). Messages are JSON objects, one a line:

    to the hub      {"hello": index, "count": N, "host": ..., "pid": ...}   {"alive": step}   {"stop": signal}
                    {"at": step}   {"value": text}   {"failed": code, "why": text}   {"done": true}
    from the hub    {"waiting": [indices], "joined": [names]}   {"go": true}   {"refused": why}
                    {"alive": [the process that is furthest behind, its step]}
                    {"where": signal}   {"stop_at": step, "signal": name}   {"value": text}
                    {"lost": index, "name": ..., "code": code, "why": text}
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time

from vmsst_jax.command import PASSING

TICK = 0.5  # seconds between looks at the clock


def encode(message: dict) -> bytes:
    """One message as it goes over the wire."""
    return json.dumps(message).encode() + b"\n"


class Lines:
    """Messages out of a stream of bytes."""

    def __init__(self):
        self._rest = b""

    def add(self, data: bytes) -> list[dict]:
        """The messages that ``data`` completes; ValueError if something else than our processes speaks."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        messages = [json.loads(line) for line in lines]
        if not all(isinstance(message, dict) for message in messages):
            raise ValueError("not a message")
        return messages


class _Member:
    """One connection."""

    def __init__(self, connection: socket.socket):
        self.connection, self.lines = connection, Lines()
        self.index: int | None = None
        self.name = ""
        self.heard = time.monotonic()
        self.step = 0
        self.at: int | None = None
        self.done = self.closed = self.lost = False

    def send(self, message: dict) -> None:
        try:
            self.connection.sendall(encode(message))
        except OSError:  # it is gone: reading from it says so
            pass


class Hub:
    """Serves ``count`` processes from a thread of its own until all have said that they are done, or one is lost.

    Args:
      listener: a listening socket.
      lost_after: seconds of silence after which a process counts as lost.
    """

    def __init__(self, listener: socket.socket, count: int, lost_after: float):
        self._listener, self._count, self._lost_after = listener, count, lost_after
        self._members: dict[int, _Member] = {}
        self._went = self._lost = False
        self._signal: str | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        threading.Thread(target=self._serve, name="hub", daemon=True).start()

    def wait_for_others(self, seconds: float) -> None:
        """Waits until all processes but 0, and but a lost one, have closed their connections."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if all(member.closed for member in list(self._members.values()) if member.index and not member.lost):
                return
            time.sleep(0.05)

    def _serve(self) -> None:
        told = 0.0
        while True:
            for key, _ in self._selector.select(TICK):
                if key.fileobj is self._listener:
                    self._accept()
                else:
                    self._read(key.data)
            now = time.monotonic()
            if now - told >= TICK:
                told = now
                self._tick(now)
            if self._went and all(member.done for member in self._members.values()):
                return

    def _accept(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(self._lost_after)  # of a send to somebody who doesn't read
        self._selector.register(connection, selectors.EVENT_READ, _Member(connection))

    def _read(self, member: _Member) -> None:
        member.heard = time.monotonic()
        try:
            data = member.connection.recv(1 << 16)
            for message in member.lines.add(data):
                self._handle(member, message)
        except (OSError, ValueError, KeyError):  # a broken connection, or a stranger on our port
            data = b""
        if not data:
            self._selector.unregister(member.connection)
            member.connection.close()
            member.closed = True
            if member.index is not None and not member.done and self._members.get(member.index) is member:
                if self._went:
                    self._lose(member, PASSING, "it ended without a word")
                else:  # it may come again: a start script restarts it
                    del self._members[member.index]

    def _handle(self, member: _Member, message: dict) -> None:
        if "hello" in message:
            self._welcome(member, message)
        elif "alive" in message:
            member.step = message["alive"]
        elif "stop" in message and self._signal is None:
            self._signal = message["stop"]
            self._tell({"where": self._signal})
        elif "at" in message:
            member.at = message["at"]
            steps = [other.at for other in self._members.values() if not other.done]
            if None not in steps:
                self._tell({"stop_at": max(steps), "signal": self._signal})
        elif "value" in message:
            self._tell({"value": message["value"]})
        elif "failed" in message:
            self._lose(member, message["failed"], message["why"])
        elif "done" in message:
            member.done = True

    def _welcome(self, member: _Member, message: dict) -> None:
        index, count = message["hello"], message["count"]
        name = f"process {index} (pid {message['pid']} on {message['host']})"
        why = ""
        if count != self._count:
            why = f"it was told of {count} processes, process 0 of {self._count}: start all with the same number"
        elif index in self._members:
            why = f"{self._members[index].name} is here already: give every process another --process_id"
        if why:
            member.send({"refused": f"{name} can't join: {why}"})
            return
        member.index, member.name = index, name
        self._members[index] = member
        if len(self._members) == self._count:
            self._went = True
            self._tell({"go": True})

    def _tick(self, now: float) -> None:
        if not self._went:
            waiting = [i for i in range(self._count) if i not in self._members]
            self._tell({"waiting": waiting, "joined": [self._members[i].name for i in sorted(self._members)]})
            return
        behind = min(self._members.values(), key=lambda member: member.step)
        self._tell({"alive": [behind.index, behind.step]})
        for member in list(self._members.values()):
            if not member.done and now - member.heard > self._lost_after:
                silent = f"nothing was heard of it for {now - member.heard:.0f} s"
                self._lose(member, PASSING, f"{silent}: it is stopped, or its machine or network hangs")

    def _lose(self, member: _Member, code: int, why: str) -> None:
        """Tells everybody, process 0 last: its end is the hub's."""
        if self._lost:
            return
        self._lost = member.lost = member.done = True
        self._tell({"lost": member.index, "name": member.name, "code": code, "why": why})

    def _tell(self, message: dict) -> None:
        for index in sorted(self._members, reverse=True):
            self._members[index].send(message)
