"""Works through a pipeline's stages: those that are done are left alone, those that were killed go on.

OUTPUT/STAGE        what its command wrote
OUTPUT/STAGE.json   what it was made of, in how many seconds: its definition, checksums of its inputs and results
OUTPUT/STAGE.log    what its command printed
OUTPUT/STAGE.gin    of an evaluation, its recipe
OUTPUT/report.md    what the stages found, in one file
"""

from __future__ import annotations

import fnmatch
import glob
import inspect
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vmsst_jax import command, disk
from vmsst_jax.benchmarks import checksums, grid, summary
from vmsst_jax.experiments import processes
from vmsst_jax.pipelines import plan
from vmsst_jax.pipelines.plan import Pipeline, Stage
from vmsst_jax.pipelines.text import check_outside
from vmsst_jax.retrieval.store import versions, write_json

RECIPE, REPORT, LOCK = "recipe.gin", "report.md", ".lock"
BEGUN, DONE = "begun", "done"
# What a stage's report shows, of what its command left: of training, of each cell of an evaluation.
SHOWN = ("report.txt", "*/*/table.txt")


class Outcome(NamedTuple):
    """The report's text, the files written, {stage: seconds it took, over all calls}."""

    report: str
    files: list[Path]
    seconds: dict[str, float]


class StageFailed(ValueError):
    """A stage's command ended without doing its work; the text says why, and where its log is."""


def run(
    pipeline: Pipeline,
    resolve: Callable[[Sequence[str], Sequence[str]], str],
    redo: Sequence[str] = (),
    search_paths: str = "",
) -> Outcome:
    """Does what is left of a pipeline and writes its report.

    Args:
      resolve: see ``plan.definition``.
      redo: stages to do anew, with all that follows from them; what they left is removed.
      search_paths: folders with recipes, between commas, for training.

    Raises:
      StageFailed: see there.
      ValueError: a stage was made of other inputs or settings than it would be now; no such stage; a file of a stage
        that is done is gone or altered though a later one or the report needs it; a stage's folder is of something
        else; OUTPUT lies in what is read, or the other way round.
      FileNotFoundError: an input is not there. BlockingIOError: another process is at it.
    """
    plan.check_names("--redo", redo, pipeline.stages)
    pipeline.output.mkdir(parents=True, exist_ok=True)
    with _locked(pipeline.output / LOCK) as lock:
        disk.write_atomically(pipeline.output / RECIPE, pipeline.config_text.encode())
        definitions = {name: _definition(pipeline, stage, resolve) for name, stage in pipeline.stages.items()}
        anew = following(pipeline, redo)
        for needed in dict.fromkeys(needed for name in anew for needed in pipeline.stages[name].needs):
            if needed not in anew and (_read(pipeline, needed) or {}).get("state") == DONE:
                _check_whole(pipeline, needed)  # before anything is removed
        for name in anew:
            _check_ours(pipeline, name)
            shutil.rmtree(pipeline.folder(name), ignore_errors=True)
            for ending in ("json", "log", "gin"):
                _file(pipeline, name, ending).unlink(missing_ok=True)
        outside = {name: _inputs(pipeline, stage) for name, stage in pipeline.stages.items()}
        before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by an exception, so that training is told
        try:
            for number, stage in enumerate(pipeline.stages.values(), 1):
                print(f"[{number} of {len(pipeline.stages)}] {stage.name}", flush=True)
                _advance(pipeline, stage, definitions[stage.name] | outside[stage.name], lock.fileno(), search_paths)
        finally:
            signal.signal(signal.SIGTERM, before)
        text = report(pipeline)
        disk.write_atomically(pipeline.output / REPORT, text.encode())
    seconds = {name: _read(pipeline, name)["seconds"] for name in pipeline.stages}
    return Outcome(text, [pipeline.output / REPORT], seconds)


def _locked(path: Path) -> BinaryIO:
    """The lock of a pipeline, which the commands of its stages hold too."""
    try:
        return disk.open_alone(path)
    except BlockingIOError as error:
        raise BlockingIOError(
            f"{error}. If this pipeline was killed, the command of its stage may still be running: end that too "
            f"(`fuser {path}` names it), and the same command goes on"
        ) from None


def following(pipeline: Pipeline, names: Sequence[str]) -> list[str]:
    """These stages and all that, directly or not, are made of what they leave."""
    found = set(names)
    for stage in pipeline.stages.values():
        if found & set(stage.needs):
            found.add(stage.name)
    return [name for name in pipeline.stages if name in found]


def _definition(
    pipeline: Pipeline, stage: Stage, resolve: Callable[[Sequence[str], Sequence[str]], str]
) -> dict[str, str]:
    """``plan.definition``; ValueError also for settings that an evaluation refuses, or flags that a command does."""
    if stage.command == plan.EVALUATE:
        _check_settings(stage)
    elif stage.command != plan.TRAIN:
        plan.check_flags(pipeline, stage)
    return plan.definition(stage, resolve)


def _check_settings(stage: Stage) -> None:
    """ValueError for settings that ``grid.evaluate`` hasn't, can't do without or can't read."""
    what, known = f"settings of stage {stage.name!r}", inspect.signature(grid.evaluate).parameters
    plan.check_names(what, stage.settings, known)
    settings = plan.stand_in(stage.settings) | {"output": ""}
    given = {name: settings[name] for name in inspect.signature(grid.checked).parameters if name in settings}
    needed = {name for name, parameter in known.items() if parameter.default is parameter.empty}
    if lacking := sorted(needed - given.keys()):
        raise ValueError(f"{what}: wanted {', '.join(lacking)} too")
    try:
        grid.checked(**given)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def _advance(pipeline: Pipeline, stage: Stage, identity: dict[str, str], lock: int, search_paths: str) -> None:
    """Does what is left of a stage."""
    identity |= {f"stage {name}": _read(pipeline, name)["result"] for name in stage.needs}
    record = _read(pipeline, stage.name)
    if record is not None:
        _check_same(stage, record, identity)
        if record["state"] == DONE:
            _check_whole(pipeline, stage.name, shown=True)
            print("    done before", flush=True)
            return
    else:
        _check_ours(pipeline, stage.name)
        record = {"state": BEGUN, "identity": identity, "seconds": 0.0}
    for name in stage.needs:
        _check_whole(pipeline, name)
    write_json(_file(pipeline, stage.name, "json"), record)
    began, log = time.monotonic(), _file(pipeline, stage.name, "log")
    print(f"    running, its log is {log}", flush=True)
    try:
        processes.run(log, [*f"vmsst_jax.{stage.command}".split(), *_arguments(pipeline, stage, search_paths)], lock)
        if not (files := _files(pipeline.folder(stage.name))) or _stopped(pipeline, stage):
            raise processes.Failed(f"{stage.command} ended without leaving its work in {pipeline.folder(stage.name)}")
    except processes.Failed as error:
        raise StageFailed(
            f"stage {stage.name}: {error}; its log is {log}. Once that is mended, the same command goes on"
        ) from None
    finally:
        record["seconds"] = round(record["seconds"] + time.monotonic() - began, 1)
        write_json(_file(pipeline, stage.name, "json"), record)
    record |= {"state": DONE, "files": files, "result": checksums.folder(pipeline.folder(stage.name))}
    write_json(_file(pipeline, stage.name, "json"), record | {"versions": versions()})
    print(f"    done ({record['seconds']:.0f} s)", flush=True)


def _arguments(pipeline: Pipeline, stage: Stage, search_paths: str) -> list[str]:
    """What the stage's command is called with."""
    folder = pipeline.folder(stage.name)
    if stage.command == plan.TRAIN:
        bindings = pipeline.put_in(stage, stage.bindings) | {"train.model_dir": str(folder)}
        recipes = [f"--gin_file={name}" for name in stage.recipes]
        given = [f"--gin_bindings={line}" for line in plan.lines(bindings)]
        return [*recipes, f"--gin_search_paths={search_paths}", *given]
    if stage.command == plan.EVALUATE:
        settings = pipeline.put_in(stage, stage.settings) | {"output": str(folder)}
        settings.setdefault("cache", False)
        recipe = _file(pipeline, stage.name, "gin")
        disk.write_atomically(recipe, "".join(f"evaluate.{k} = {v!r}\n" for k, v in settings.items()).encode())
        return [f"--gin_file={recipe.resolve()}"]
    if stage.command not in ("text", "convert"):  # which make their folders appear whole
        folder.mkdir(exist_ok=True)
    return command.flag_arguments(pipeline.put_in(stage, stage.flags))


def _stopped(pipeline: Pipeline, stage: Stage) -> bool:
    """Whether training, told to stop, saved and ended before its last step."""
    return stage.command == plan.TRAIN and not (pipeline.folder(stage.name) / "report.json").is_file()


def _inputs(pipeline: Pipeline, stage: Stage) -> dict[str, str]:
    """{"input NAME": checksum} of what a stage reads from outside, names as the recipe has them.

    Raises FileNotFoundError where there is no such file, ValueError where it is not the one that the recipe wants.
    """
    found = {}
    for name in stage.inputs:
        pattern = plan.put_in(name, pipeline.folders)
        if pattern is None:
            continue
        check_outside(pipeline.output, pattern)
        files = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
        if not files:
            raise FileNotFoundError(f"stage {stage.name} reads {pattern}, and there is no such file")
        for file in files:
            sha256 = checksums.of_file(file) if os.path.isfile(file) else checksums.folder(file)
            if sha256 != (wanted := pipeline.checksums.get(name, sha256)):
                raise ValueError(
                    f"stage {stage.name} reads {file}, whose SHA-256 is {sha256}; the recipe wants {wanted}: fetch the "
                    "file again, or set that checksum to None if another file is meant"
                )
            found[f"input {name}" + (f" {Path(file).name}" if len(files) > 1 else "")] = sha256
    return found


def _check_same(stage: Stage, record: dict, identity: dict[str, str]) -> None:
    """ValueError where a stage was made, or begun, otherwise than it would be now."""
    before = record["identity"]
    differing = [name for name in dict.fromkeys([*before, *identity]) if before.get(name) != identity.get(name)]
    if not differing:
        return
    shown = "\n".join(
        f"  {name}: {_short(before.get(name))} then, {_short(identity.get(name))} now" for name in differing[:20]
    )
    raise ValueError(
        f"stage {stage.name} was {'made' if record['state'] == DONE else 'begun'} otherwise than it would be now:\n"
        f"{shown}\nPut it back as it was; or --redo={stage.name} removes what it left and does it anew, with all that "
        "follows from it; or give another OUTPUT"
    )


def _short(value: str | None) -> str:
    return "nothing" if value is None else value if len(value) <= 80 else f"{value[:77]}..."


def _check_ours(pipeline: Pipeline, name: str) -> None:
    """ValueError where a stage's folder is there and no record of it: whatever that is, no stage may write over it."""
    folder = pipeline.folder(name)
    if folder.exists() and not _file(pipeline, name, "json").exists():
        raise ValueError(
            f"{folder} is there, and {name}.json beside it is not, so this pipeline has not made it; remove it if it "
            "is of no use, or give another OUTPUT"
        )


def _check_whole(pipeline: Pipeline, name: str, shown: bool = False) -> None:
    """ValueError where a stage that is done has lost or altered files: a later one is about to read them.

    ``shown``: only those count that the report shows, by their size.
    """
    folder, record = pipeline.folder(name), _read(pipeline, name)
    there = _files(folder)
    lost = [file for file, size in record["files"].items() if there.get(file) != size]
    if shown:
        lost = [file for file in lost if any(fnmatch.fnmatch(file, p) for p in (grid.SUMMARY, *SHOWN))]
    if lost:
        raise ValueError(
            f"stage {name} is done, but {folder / lost[0]} is gone or of another size"
            + (f" (so are {len(lost) - 1} more)" if lost[1:] else "")
            + f": put it back, or --redo={name} does the stage anew"
        )
    # What others put beside them, an evaluation of this model for instance, is none of its work.
    if not shown and checksums.folder(folder, [folder / file for file in record["files"]]) != record["result"]:
        raise ValueError(
            f"stage {name} is done, but the files in {folder} are not those that it left: put them back, or "
            f"--redo={name} does the stage anew"
        )


def _files(folder: Path) -> dict[str, int]:
    """{name: bytes} of all files below a folder but hidden ones, as ``checksums.folder`` takes them."""
    return {
        file.relative_to(folder).as_posix(): file.stat().st_size
        for file in sorted(folder.rglob("[!.]*"))
        if file.is_file()
    }


def _file(pipeline: Pipeline, name: str, ending: str) -> Path:
    return pipeline.output / f"{name}.{ending}"


def _read(pipeline: Pipeline, name: str) -> dict | None:
    """A stage's record, None where it isn't begun; ValueError for a damaged one."""
    file = _file(pipeline, name, "json")
    try:
        record = json.loads(file.read_text("utf-8"))
        for key in ("state", "identity", "seconds", *(("files", "result") if record["state"] == DONE else ())):
            record[key]
        return record
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file} is damaged ({error!r}); --redo={name} does the stage anew") from None


def report(pipeline: Pipeline) -> str:
    """What the stages have found, for people: the same text for the same numbers, whenever and wherever they came."""
    parts = []
    for name in pipeline.stages:
        folder = pipeline.folder(name)
        if (folder / grid.SUMMARY).is_file():
            found = json.loads((folder / grid.SUMMARY).read_text("utf-8"))
            parts.append((name, summary.text(summary.Rows(found["columns"], found["rows"], {}))))
        for file in (file for pattern in SHOWN for file in sorted(folder.glob(pattern))):
            title = " / ".join([name, *file.relative_to(folder).parts[:-1]])
            parts.append((title, file.read_text("utf-8")))
    begin = [f"{about.strip()}\n"] if (about := pipeline.introduction()).strip() else []
    return "\n".join([*begin, *(f"## {title}\n\n```\n{text.rstrip()}\n```\n" for title, text in parts)])
