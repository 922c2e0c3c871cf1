"""Runs the stages one after another, each as a Beam pipeline over its units; what is done already is passed over."""

from __future__ import annotations

import functools
import importlib.util
import json
import logging
import pathlib
import shlex
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence

import numpy as np

from vmsst_jax import command, disk
from vmsst_jax.data import tokenizers
from vmsst_jax.data.text_pairs import CorpusError
from vmsst_jax.preparation import report, stages
from vmsst_jax.preparation.cleaning import TestSentences
from vmsst_jax.preparation.plan import Plan, Set
from vmsst_jax.preparation.stages import KINDS, STAGES, Work

ROOM = 2.5  # times the text of the input: the partitions, the text and its tokens
SECONDS_BETWEEN_LINES = 10


def prepare(
    plan: Plan,
    output: str,
    tests: TestSentences,
    tokenizer=None,
    *,
    workers: int = 1,
    runner: str | None = None,
    beam_options: Sequence[str] = (),
    progress: bool = True,
) -> dict:
    """Prepares a plan into ``output``: text, token caches if there is a tokenizer, ``report.json`` and ``report.tsv``.

    A killed call goes on when it is repeated, and the output is the same to the last byte. Repeated after its end, it
    does nothing.

    Args:
      output: a folder to be made or an empty one, or one that an equal call has begun.
      workers: processes of the local runner.
      runner: another of Beam's, with its ``beam_options``, as "--flink_master=HOST"; its workers must see the input and
        the output folder under the same paths.

    Returns:
      The report.

    Raises:
      CorpusError: a source that can't be used, or a set of which nothing is left; the others are done by then.
      ValueError: the folder holds something else, or an equal call's with other settings or sources.
      BlockingIOError: another process prepares this folder. OSError: it can't be written, the disk is full.
    """
    if importlib.util.find_spec("apache_beam") is None:
        raise ValueError("preparing a corpus needs Apache Beam: pip install 'vmsst_jax[beam]'")
    work = Work(output)
    if done := report.finished(work.output, plan):
        return done
    _make_folder(work)
    with disk.open_alone(work.folder / "lock"):
        _begin(work, plan, tests, tokenizer)
        for draft in [*work.output.rglob(".*.partial-*"), *work.output.rglob(".*.new")]:
            # Of killed calls, since nobody else is here.
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()
        beam = _Beam(workers, runner, beam_options)
        for stage in STAGES:
            if stage != "tokens" or tokenizer is not None:
                _run_stage(work, stage, beam, progress)
        kept = [of for of in plan.sets if (work.output / of.folder).is_dir()]
        if not kept:
            raise CorpusError(f"{output}: nothing is left of any set; wanted text that could be trained on")
        if tokenizer is not None:
            KINDS[plan.kind].list_caches(work.tokens, plan, kept)
        made = report.write(work, report.make(work, kept), kept)
        shutil.rmtree(work.folder)
    return made


def _make_folder(work: Work) -> None:
    """ValueError for an output folder that holds something else."""
    strange = [p.name for p in work.output.iterdir() if p != work.folder] if work.output.is_dir() else []
    if strange and not (work.folder / "plan.json").is_file():
        raise ValueError(
            f"{work.output} holds {', '.join(sorted(strange)[:3])} and no unfinished preparation; wanted an empty "
            "folder or a new one"
        )
    with disk.writing(work.output):
        work.folder.mkdir(parents=True, exist_ok=True)


def _begin(work: Work, plan: Plan, tests: TestSentences, tokenizer) -> None:
    """Writes the plan and what the units need into the work folder, or checks that the plan there is this one.

    Sets whose sources have changed since, a damaged one that was fetched again, are begun anew, and so are the token
    caches if their settings have.
    """
    begun = work.folder / "plan.json"
    if begun.is_file():
        before, now = work.read(begun, Plan.from_json).identity(), plan.identity()
        changed = sorted(key for key in now if before[key] != now[key])
        folders = [[entry["folder"] for entry in fields["sets"]] for fields in (before, now)]
        if set(changed) <= {"missing", "sets"} and folders[0] == folders[1]:
            for of, old, new in zip(plan.sets, before["sets"], now["sets"], strict=True):
                if old != new:
                    _forget(work, plan, of)
        elif changed == ["tokens"]:  # the text doesn't depend on them
            print("the tokens' settings have changed, their caches are begun anew", file=sys.stderr, flush=True)
            for folder in (work.folder / "tokens", work.tokens):
                if folder.exists():
                    shutil.rmtree(folder)
        elif changed:
            raise ValueError(
                f"{work.output} was begun with other {', '.join(changed)}; repeat the call as it was, or remove the "
                "folder to begin anew"
            )
    needed, free = int(ROOM * sum(of.size for of in plan.sets)), shutil.disk_usage(work.output).free
    if not begun.is_file() and needed > free:
        raise OSError(
            f"{work.output} has {free:,} bytes free; {needed / ROOM:,.0f} bytes of text take about {needed:,}"
        )
    with disk.writing(work.output):
        with disk.replacing(work.folder / "tests.npy") as file:
            np.save(file, tests.array, allow_pickle=False)
        if tokenizer is not None:
            record = json.dumps(tokenizers.to_record(tokenizer))
            disk.write_atomically(work.folder / "tokenizer.json", record.encode())
        disk.write_atomically(begun, plan.to_json())
    for stage in STAGES:
        for of, number in work.units(stage):
            if work.mark(stage, of, number).exists():
                work.counts(stage, of, number)  # a damaged one is an error now, not when all is done


def _forget(work: Work, plan: Plan, of: Set) -> None:
    """Removes all that was made of a set."""
    print(f"{of.name}: its sources have changed, it is begun anew", file=sys.stderr, flush=True)
    made = [work.folder / stage / of.name for stage in STAGES]
    made += [work.output / of.folder, *(KINDS[plan.kind].caches(work.tokens, plan, of) if plan.tokens else ())]
    for folder in made:
        if folder.exists():
            shutil.rmtree(folder)


class _Beam:
    """Runs a function over units, by the local runner or another.

    The local one is asked for by its class: what Beam calls DirectRunner looks for yet another first, and downloads it.
    """

    def __init__(self, workers: int, runner: str | None, options: Sequence[str]):
        self.runner, self._workers, self._options = runner, workers, list(options)

    def run(self, units: Sequence[tuple[str, int]], function: Callable) -> None:
        local = self.runner is None
        if local:
            logging.disable(logging.WARNING)  # of every connection, and of cloud libraries that are not there
        try:
            import apache_beam as beam
            from apache_beam.options.pipeline_options import PipelineOptions

            if local:
                options = PipelineOptions([*self._options, f"--direct_num_workers={self._workers}"])
                pipeline = beam.Pipeline(runner=self._local(), options=options)
            else:
                try:
                    pipeline = beam.Pipeline(options=PipelineOptions([*self._options, f"--runner={self.runner}"]))
                except (ValueError, ImportError, AttributeError) as error:
                    raise ValueError(f"--runner={self.runner} with {self._options}: {error}") from error
            with pipeline:
                _ = pipeline | beam.Create(units) | beam.Reshuffle() | beam.Map(function)
        finally:
            if local:
                logging.disable(logging.NOTSET)

    def _local(self):
        from apache_beam.runners.portability.fn_api_runner import FnApiRunner
        from apache_beam.transforms.environments import SubprocessSDKEnvironment

        if self._workers == 1:
            return FnApiRunner()  # in this process
        command = f"exec {shlex.quote(sys.executable)} -m vmsst_jax.preparation.beam_worker"
        return FnApiRunner(default_environment=SubprocessSDKEnvironment.from_command_string(command))


def _run_stage(work: Work, stage: str, beam: _Beam, progress: bool) -> None:
    """Runs the units of a stage that are not done."""
    units = work.units(stage)
    todo = [(of.name, n) for of, n in units if not work.mark(stage, of, n).exists()]
    if not todo:
        return
    call = uuid.uuid4().hex  # errors of an earlier call's last worker are not this one's
    told = work.folder / "told" / call
    told.mkdir(parents=True)
    unit = functools.partial(run_unit, str(work.output), stage, str(told))
    with _Shown(stage, work, told, len(units), len(todo), progress):
        beam.run(todo, unit)
    errors = [file.read_text("utf-8") for file in sorted(told.glob("*.error"))]
    if errors:
        more = f"\n(and {len(errors) - 5} more)" if len(errors) > 5 else ""
        raise CorpusError("\n".join(errors[:5]) + more + "\nthe rest is done; the same command goes on from here")
    if left := sum(not work.mark(stage, work.named[name], n).exists() for name, n in todo):
        raise OSError(
            f"{beam.runner or 'the local runner'} has run {len(todo):,} units of {stage}, and {left:,} of them left no "
            f"mark in {work.folder}; its workers must see the output folder under this path"
        )


@functools.lru_cache(maxsize=1)
def _work(output: str, told: str) -> Work:
    return Work(output)


def run_unit(output: str, stage: str, told: str, unit: tuple[str, int]) -> None:
    """What Beam calls, in any process: runs one unit; what a user can mend is written down for the caller."""
    set_name, number = unit
    work = _work(output, told)
    place = pathlib.Path(told)
    place.mkdir(parents=True, exist_ok=True)
    name = f"{set_name}-{number:05}"
    try:
        stages.run(work, stage, work.named[set_name], number, stages.beats(place / f"{name}.lines"))
    except (OSError, ValueError) as error:
        if not (isinstance(error, OSError) or command.raised_here(error)):
            raise
        if not work.mark(stage, work.named[set_name], number).exists():
            (place / f"{name}.error").write_text(command.describe(error), "utf-8")


class _Shown:
    """Says on standard error how far a stage is: units done, and the lines that running units have told of."""

    def __init__(self, stage: str, work: Work, told: pathlib.Path, total: int, todo: int, shown: bool):
        self._stage, self._work, self._told, self._total = stage, work, told, total
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True) if shown else None
        self._began = time.monotonic()
        if shown and todo < total:
            print(f"{stage}: goes on, {total - todo:,} of {total:,} units are done", file=sys.stderr, flush=True)

    def __enter__(self) -> _Shown:
        if self._thread:
            self._thread.start()
        return self

    def __exit__(self, *exception) -> None:
        self._end.set()
        if self._thread:
            self._thread.join()
            print(("\r" if sys.stderr.isatty() else "") + self._line(), file=sys.stderr, flush=True)

    def _run(self) -> None:
        terminal = sys.stderr.isatty()
        while not self._end.wait(1 if terminal else SECONDS_BETWEEN_LINES):
            print(("\r" if terminal else "") + self._line(), end="" if terminal else "\n", file=sys.stderr, flush=True)

    def _line(self) -> str:
        done = sum(1 for _ in (self._work.folder / self._stage).glob("*/*.json"))
        lines = 0
        for file in self._told.glob("*.lines"):
            text = file.read_text() if file.exists() else ""
            lines += int(text) if text.isdigit() else 0  # it may be half written
        seconds = time.monotonic() - self._began
        told = f", {lines:,} lines told of" if lines else ""
        return f"{self._stage}: {done:,} of {self._total:,} units{told}, {seconds:,.0f} s"
