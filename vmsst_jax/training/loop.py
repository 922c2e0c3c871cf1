"""The training loop: streams in; updates, records, evaluations and checkpoints out. No branch on what is trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vmsst_jax import company
from vmsst_jax.training.logging import Log, Meter
from vmsst_jax.training.preemption import StopRequest

SCHEDULES = ("in_turn", "random")


@dataclasses.dataclass
class Feed:
    """One stream as the loop sees it: a name, prefetched batches on devices, and the compiled step.

    ``batches`` has ``next() -> (batch, info)``, ``state()``, ``waited`` (seconds) and ``close()``.
    """

    name: str
    batches: Any
    step: Callable
    weight: float = 1.0


@dataclasses.dataclass
class Rhythm:
    """When what happens, in steps; ``evaluate_every`` None is never. With 0 ``steps`` the model stays untrained."""

    steps: int
    log_every: int = 50
    evaluate_every: int | None = None
    save_every: int = 1000

    def __post_init__(self):
        for name in ("steps", "log_every", "evaluate_every", "save_every"):
            value, optional = getattr(self, name), name == "evaluate_every"
            if value is None and optional:
                continue
            least = 0 if name == "steps" else 1
            if not isinstance(value, int) or value < least:
                never = ", or None for never" if optional else ""
                raise ValueError(f"Rhythm.{name} is {value!r}; wanted a whole number of at least {least}{never}")


def check_schedule(schedule: str, weights: Sequence[float]) -> None:
    """ValueError for an unknown schedule, or a "random" one of streams that are never drawn."""
    if schedule not in SCHEDULES:
        raise ValueError(f"train.schedule is {schedule!r}; use {' or '.join(map(repr, SCHEDULES))}")
    if schedule == "random" and not sum(weights) > 0:
        raise ValueError("Stream.weight of every stream is 0; wanted one above 0, or train.schedule 'in_turn'")


def choose_feed(feeds: list[Feed], schedule: str, seed: int, step: int) -> Feed:
    """The stream of update number ``step`` (from 0): a function of its arguments alone, so a restart chooses alike.

    "in_turn" takes them one after another; "random" draws by the feeds' weights.
    """
    if schedule == "in_turn":
        return feeds[step % len(feeds)]
    weights = np.array([feed.weight for feed in feeds])
    draw = np.random.Generator(np.random.Philox(key=[seed, step])).random() * weights.sum()
    return feeds[min(int(np.searchsorted(np.cumsum(weights), draw, side="right")), len(feeds) - 1)]


def fit(
    state, feeds, *, rhythm: Rhythm, schedule, seed, checkpoints, host, evaluate, log: Log, start: int, dog, rate=None
):
    """Trains from step ``start`` to ``rhythm.steps`` and returns (state, name of the signal that ended it or None).

    Args:
      state: the TrainState after ``start`` updates.
      feeds: list of ``Feed``; each update takes one of them (``choose_feed``).
      checkpoints: a ``Checkpoints``; saves every ``save_every`` steps, after evaluations, at a signal and at the end.
      host: function () -> what goes beside the state: {"data": {name: state}, ...}.
      evaluate: function (state, step) -> metrics.
      dog: a ``Watchdog``, told of all that takes time.
      rate: the learning rate by the number of updates already made, for the log.
    """

    def stream_of(step):
        return choose_feed(feeds, schedule, seed, step - 1).name

    meter = Meter(log, rhythm.steps, rhythm.log_every, start, stream_of, rate)

    def keep(step, evaluates):
        """Evaluates, where it is time to, and saves."""
        scores = None
        if evaluates:
            with dog.during("evaluating"):
                scores = evaluate(state, step)
            log.write(step, "evaluation", scores)
            log.say(f"step {step}  evaluation: " + "  ".join(f"{k} {v:.4f}" for k, v in scores.items()))
        with dog.during(f"saving to {checkpoints.folder}"):
            checkpoints.save(step, state, host(), metrics=scores)

    if rhythm.steps == 0 and not checkpoints.steps:
        keep(0, rhythm.evaluate_every)
    others = company.here()
    with StopRequest() as request, dog:
        for step in range(start + 1, rhythm.steps + 1):
            others.begin(step)
            dog.step(step)
            feed = choose_feed(feeds, schedule, seed, step - 1)
            batch, info = feed.batches.next()
            state, metrics = feed.step(state, batch)
            waited = sum(f.batches.waited for f in feeds)
            meter.add(step, feed.name, metrics, info, waited)
            checkpoints.check()

            if request.signal:
                others.ask_stop(request.signal)
            stops = others.stop is not None and step >= others.stop[0]
            ends = step == rhythm.steps or stops
            evaluates = rhythm.evaluate_every and (step % rhythm.evaluate_every == 0 or step == rhythm.steps)
            if ends or evaluates or step % rhythm.save_every == 0 or checkpoints.due:
                meter.flush()  # a diverged state is neither evaluated nor saved
                keep(step, evaluates)
            if stops:
                with dog.during(f"saving to {checkpoints.folder}"):
                    checkpoints.wait()
                signal = others.stop[1]
                log.say(f"{signal}: saved step {step} of {rhythm.steps}; the same command goes on from there")
                return state, signal
    return state, None
