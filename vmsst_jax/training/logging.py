"""What one sees of a run: console line, progress bar, TensorBoard, ``metrics.jsonl``."""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
import sys
import time
from collections.abc import Callable

import numpy as np

from vmsst_jax.disk import write_atomically


class Diverged(ValueError):
    """A loss or gradient stopped being a finite number."""


def clock(seconds: float) -> str:
    """1:02:03, or 2:03 under an hour."""
    seconds = int(seconds)
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def truncate_log(path: pathlib.Path, step: int) -> None:
    """Drops the lines of ``metrics.jsonl`` after ``step`` (and a torn last one): a resumed run writes them anew."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            break
        if record["step"] <= step:
            kept.append(line + "\n")
    write_atomically(path, "".join(kept).encode())


class EventFile:
    """TensorBoard scalars, written as they come: no thread, so that a full disk is an error here and not a hang."""

    def __init__(self, folder: pathlib.Path, purge_step: int):
        from tensorboardX import event_file_writer
        from tensorboardX.proto import event_pb2, summary_pb2

        folder.mkdir(parents=True, exist_ok=True)
        self._event, self._summary = event_pb2.Event, summary_pb2.Summary
        self._writer = event_file_writer.EventsWriter(str(folder / "events"))
        # Records of an earlier, interrupted run after this step are not shown.
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._writer.write_event(self._event(wall_time=time.time(), step=purge_step, session_log=start))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        values = [self._summary.Value(tag=tag, simple_value=value) for tag, value in scalars.items()]
        event = self._event(wall_time=time.time(), step=step, summary=self._summary(value=values))
        self._writer.write_event(event)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Log:
    """Writes a run's records to the console, TensorBoard and ``<directory>/metrics.jsonl``.

    Records are {"step", "kind": "train" | "evaluation", "stream", metrics..., "speed": {...}}: everything outside
    "speed" is the same in every run of the same configuration, to the last bit on CPU. Of several streams each has one
    record at its last update before a line of the console, and the last of them has the speed.
    """

    def __init__(self, directory, steps: int, start: int = 0):
        import tqdm

        directory = pathlib.Path(directory)
        self.path = directory / "metrics.jsonl"
        truncate_log(self.path, start)
        self._file = self.path.open("a", encoding="utf-8")
        self._board = EventFile(directory / "tensorboard", purge_step=start + 1)
        self._bar = None
        if sys.stderr.isatty():
            self._bar = tqdm.tqdm(total=steps, initial=start, unit="step", dynamic_ncols=True, smoothing=0.1)

    def say(self, text: str) -> None:
        """Prints without breaking the progress bar."""
        if self._bar is not None:
            self._bar.write(text)
        else:
            print(text, flush=True)

    def write(self, step: int, kind: str, metrics: dict[str, float], stream: str = "", speed: dict | None = None):
        """Adds one record; values are Python floats. Raises ValueError where it cannot be written."""
        record = {"step": step, "kind": kind, **({"stream": stream} if stream else {}), **metrics}
        if speed:
            record["speed"] = speed
        prefix = "/".join(x for x in (kind, stream) if x)
        try:
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()
            self._board.add(step, {f"{prefix}/{n}": value for n, value in {**metrics, **(speed or {})}.items()})
        except OSError as error:
            raise ValueError(
                f"cannot write the log of step {step} to {self.path.parent}: {error.strerror}. Make room there; the "
                "same command goes on from the last checkpoint"
            ) from error

    def advance(self, steps: int = 1) -> None:
        if self._bar is not None:
            self._bar.update(steps)

    def close(self) -> None:
        for file in (self._file, self._board):
            with contextlib.suppress(OSError):  # what could not be written was reported when it was written
                file.close()
        if self._bar is not None:
            self._bar.close()


class SilentLog:
    """The log of a process that isn't the first: what a ``Log`` would write is the same on all of them."""

    def say(self, text: str) -> None:
        """Nothing is printed."""

    def write(self, step: int, kind: str, metrics: dict[str, float], stream: str = "", speed: dict | None = None):
        """Nothing is written."""

    def advance(self, steps: int = 1) -> None:
        """There is no progress bar."""

    def close(self) -> None:
        """There is nothing to close."""


class Meter:
    """Collects steps' metrics one step late, so that the host never waits for the device, and watches for NaN."""

    def __init__(
        self,
        log: Log,
        steps: int,
        log_every: int,
        start: int,
        stream_of: Callable[[int], str],
        rate: Callable[[int], float] | None = None,
    ):
        """Args that can't be guessed:

        stream_of: function (step) -> the stream of that update, which must not depend on anything else.
        rate: the learning rate by the number of updates already made; None leaves it out of the log.
        """
        self._log, self._steps, self._log_every, self._stream_of = log, steps, log_every, stream_of
        self._rate = rate
        self._pending, self._cut_reported = None, False
        self._shown: dict[str, dict[str, float]] = {}
        self._reset(time.monotonic(), 0.0)
        self._begun, self._first = time.monotonic(), start

    def _reset(self, now: float, waited: float):
        self._window = {"pairs": 0, "tokens": 0, "padded": 0, "steps": 0}
        self._since, self._waited = now, waited

    def add(self, step: int, stream: str, metrics: dict, info: dict, waited: float) -> None:
        """Takes step number ``step``'s device metrics and its batch's info; ``waited``: total seconds spent on data."""
        self.flush()
        self._pending = (step, stream, metrics, info, waited)

    def flush(self) -> None:
        """Reads the last added step's metrics. Raises Diverged if one is not finite."""
        if self._pending is None:
            return
        (step, stream, metrics, info, waited), self._pending = self._pending, None
        first = sorted(metrics, key=lambda name: (name != "loss", name))
        values = {name: float(metrics[name]) for name in first}
        bad = sorted(name for name, value in values.items() if not math.isfinite(value))
        if bad:
            ids = np.ravel(info["pair_id"])
            raise Diverged(
                f"step {step}, stream {stream}: {', '.join(f'{n} = {values[n]}' for n in bad)}. Nothing after the last "
                "checkpoint was kept. Lower the learning rate, or look for broken pairs in this batch, whose pair ids "
                f"are {', '.join(map(str, ids[:64]))}{', ...' if ids.size > 64 else ''}"
            )
        window = self._window
        window["steps"] += 1
        window["pairs"] += np.size(info["pair_id"])
        window["tokens"] += info["real_tokens"]
        window["padded"] += info["padded_tokens"]
        self._log.advance()
        ends = min(-(-step // self._log_every) * self._log_every, self._steps)
        last = all(self._stream_of(later) != stream for later in range(step + 1, ends + 1))
        if self._rate is not None and last:
            values["learning_rate"] = float(self._rate(step - 1))
        if step == ends:
            self._report(step, stream, values, waited, info.get("truncated", 0))
        elif last:
            # A stream's last update before a record of another's: known beforehand, so that a resumed run has it too.
            self._log.write(step, "train", values, stream)
            self._shown[stream] = values

    def _report(self, step: int, stream: str, values: dict, waited: float, truncated: int) -> None:
        if truncated and not self._cut_reported:
            self._cut_reported = True
            self._log.say(f"{truncated:,} sentences so far have more tokens than their stream's max_length and are cut")
        now, window = time.monotonic(), self._window
        seconds = max(now - self._since, 1e-9)
        speed = {
            "pairs_per_second": window["pairs"] / seconds,
            "tokens_per_second": window["tokens"] / seconds,
            "real_token_share": window["tokens"] / max(window["padded"], 1),
            "data_wait_share": min(1.0, max(0.0, waited - self._waited) / seconds),
        }
        self._log.write(step, "train", values, stream, speed)
        per_step = (now - self._begun) / max(step - self._first, 1)
        begin, self._shown = f"step {step}/{self._steps}  ", self._shown | {stream: values}
        losses = f"\n{' ' * len(begin)}".join(
            "  ".join((name, *(f"{metric} {value:.4g}" for metric, value in last.items())))
            for name, last in sorted(self._shown.items())
        )
        self._shown = {}
        self._log.say(
            f"{begin}{losses}  |  {speed['pairs_per_second']:,.0f} pairs/s  "
            f"{speed['tokens_per_second']:,.0f} tokens/s ({speed['real_token_share']:.0%} of padded)  "
            f"data wait {speed['data_wait_share']:.0%}  ETA {clock(per_step * (self._steps - step))}"
        )
        self._reset(now, waited)
