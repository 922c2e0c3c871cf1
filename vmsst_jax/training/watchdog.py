"""A run that hangs says where: no step, evaluation or save may take many times as long as usual without a word."""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import statistics
import sys
import threading
import time
from collections import defaultdict, deque
from collections.abc import Iterator

from vmsst_jax import checks, company
from vmsst_jax.command import PASSING

STEP = "training"
RECENT = 50  # durations that make up what is usual
LEARNING = 3  # steps before that is known: the first ones compile


@dataclasses.dataclass(frozen=True)
class Watch:
    """When a run counts as hanging.

    Attributes:
      factor: times what a step, an evaluation or a save usually takes, after which every thread's stack is printed.
      least: seconds that must have passed all the same: a new shape of batch may compile for minutes.
      first: seconds for what has no usual yet, the first steps, evaluation and save.
      patience: so many times as long after it began, the process ends with exit code 75, to be started again.
    """

    factor: float = 20.0
    least: float = 300.0
    first: float = 3600.0
    patience: float = 3.0

    def __post_init__(self):
        for field in dataclasses.fields(self):
            checks.positive(f"Watch.{field.name}", getattr(self, field.name))


class Watchdog:
    """``with Watchdog(watch, "name") as dog:``, then ``dog.step(n)`` as each step begins, ``with dog.during(what):``
    around what else takes time."""

    def __init__(self, watch: Watch, name: str):
        self._watch, self._name = watch, name
        self._durations: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=RECENT))
        self._number = 0
        self._what, self._since, self._dumped = STEP, time.monotonic(), False
        self._over = threading.Event()
        self._lock = threading.Lock()

    def __enter__(self) -> Watchdog:
        self._since = time.monotonic()
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()
        return self

    def __exit__(self, *exc) -> None:
        self._over.set()

    def step(self, number: int) -> None:
        """Step ``number`` begins, the one before is done."""
        now = time.monotonic()
        with self._lock:
            if self._number:
                self._durations[STEP].append(now - self._since)
            self._number, self._since, self._dumped = number, now, False

    @contextlib.contextmanager
    def during(self, what: str) -> Iterator[None]:
        """``what`` is going on, in words that fit "... has taken 10 s"; a step's time doesn't count it."""
        with self._lock:
            before, begun = self._since, time.monotonic()
            self._what, self._since, self._dumped = what, begun, False
        try:
            yield
        finally:
            with self._lock:
                took = time.monotonic() - begun
                self._durations[what].append(took)
                self._what, self._since, self._dumped = STEP, before + took, False

    def limit(self, what: str) -> tuple[float, float | None]:
        """Seconds after which ``what`` is reported, and what it usually takes, if that is known."""
        known = self._durations[what]
        if len(known) < (LEARNING if what == STEP else 1):
            return self._watch.first, None
        usual = statistics.median(known) if what == STEP else max(known)
        return max(self._watch.least, self._watch.factor * usual), usual

    def _run(self) -> None:
        while not self._over.wait(0.2):
            with self._lock:
                limit, usual = self.limit(self._what)
                took, what = time.monotonic() - self._since, self._what
                due, self._dumped = took > limit and not self._dumped, self._dumped or took > limit
            if due:
                self._dump(self._text(what, took, usual))
            if took > self._watch.patience * limit:
                why = self._text(what, took, usual)
                company.here().fail(PASSING, why)
                company.hard_exit(
                    PASSING, f"{self._name}: error: {why}. The same command goes on from the last checkpoint"
                )

    def _text(self, what: str, took: float, usual: float | None) -> str:
        what = f"step {self._number:,}" if what == STEP else f"{what}, after step {self._number:,},"
        usually = "" if usual is None else f", usually {usual:.2g} s"
        behind = company.here().behind()
        return f"{what} has taken {took:.0f} s{usually}{'; ' if behind else ''}{behind}"

    def _dump(self, text: str) -> None:
        print(f"{self._name}: {text}. It may hang; this is what every thread is doing:", file=sys.stderr, flush=True)
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
