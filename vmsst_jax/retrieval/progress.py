"""How far a long job is: a bar on a terminal, a line every ten seconds anywhere else."""

from __future__ import annotations

import sys
import time

SECONDS_BETWEEN_LINES = 10


class Progress:
    """Counts sentences towards a total and shows rate and time left on standard error.

    Args:
      label: what is going on, e.g. "embedding".
      total: sentences in all.
      done: of these, finished before this process began; they count for the share, not for the rate.
      shown: False shows nothing.
    """

    def __init__(self, label: str, total: int, done: int = 0, shown: bool = True):
        self.label, self.total, self.done, self.first, self.shown = label, total, done, done, shown
        self.began = self.last_line = time.monotonic()
        self.bar = None
        if shown and done:
            print(f"{label}: goes on behind {done:,} finished sentences", file=sys.stderr, flush=True)
        if shown and sys.stderr.isatty():
            from tqdm import tqdm

            self.bar = tqdm(total=total, initial=done, desc=label, unit=" sentences", smoothing=0.1)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception) -> None:
        if self.bar is not None:
            self.bar.close()

    def update(self, sentences: int) -> None:
        """``sentences`` more are finished."""
        self.done += sentences
        now = time.monotonic()
        if self.bar is not None:
            self.bar.update(sentences)
        elif self.shown and (self.done == self.total or now - self.last_line >= SECONDS_BETWEEN_LINES):
            self.last_line = now
            print(self.line(now - self.began), file=sys.stderr, flush=True)

    def line(self, seconds: float) -> str:
        """The plain line after ``seconds`` of work."""
        rate = (self.done - self.first) / max(seconds, 1e-9)
        left = "done" if self.done == self.total else f"{_duration((self.total - self.done) / max(rate, 1e-9))} left"
        return f"{self.label}: {self.done:,} of {self.total:,} sentences, {rate:,.0f}/s, {left}"


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds) // 60, int(seconds) // 3600
    return f"{hours} h {minutes % 60:02d} min" if hours else f"{minutes} min {int(seconds) % 60:02d} s"
