"""SIGTERM and Ctrl-C ask the loop to save and leave; a second one ends the process as usual.

Of several processes one that gets the signal is enough: they agree on a step (``vmsst_jax.company``).
"""

from __future__ import annotations

import signal


class StopRequest:
    """``with StopRequest() as stop:`` the first SIGTERM or SIGINT only sets ``stop.signal`` to its name."""

    def __init__(self):
        self.signal: str | None = None
        self._before = {}

    def __enter__(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            self._before[number] = signal.signal(number, self._handle)
        return self

    def _handle(self, number, frame):
        self.signal = signal.Signals(number).name
        signal.signal(number, self._before[number])

    def __exit__(self, *exc):
        for number, handler in self._before.items():
            signal.signal(number, handler)
