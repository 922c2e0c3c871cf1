"""One cell from nothing to scores: train, calibrate, evaluate, each a process that can be killed and resumed.

A process returns its memory and keeps its crash to itself. What it prints goes to a log in the cell's folder; what came
of the cell stands in ``cell.json``.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from pathlib import Path
from typing import NamedTuple

import vmsst_jax
from vmsst_jax import disk
from vmsst_jax.benchmarks import checksums, grid
from vmsst_jax.experiments import processes
from vmsst_jax.experiments.matrix import MODEL, RESULTS, START, Cell, Matrix, results_of
from vmsst_jax.retrieval.store import versions, write_json
from vmsst_jax.training.leaving import REPORT

RECORD, RECIPE, LOCK, VECTORS, CALIBRATION = "cell.json", "evaluate.gin", ".lock", "vectors", "calibration_{}.npz"
# What ends a cell for now: BUSY another process is at it.
DONE, FAILED, BUSY = "done", "failed", "another process is at it"


class Ended(NamedTuple):
    """How a cell ended: ``DONE``, ``FAILED`` or ``BUSY``, and why or with what."""

    state: str
    why: str = ""


def advance(matrix: Matrix, cell: Cell, search_paths: str = "") -> Ended:
    """Does what is left to do in a cell; the next call goes on wherever this one is killed."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    if cell.start and not (cell.start.folder / MODEL / REPORT).is_file():
        return _lacks_start(cell)
    try:
        lock = disk.open_locked(cell.folder / LOCK)
    except BlockingIOError:
        return Ended(BUSY)
    with lock:
        record = read(cell) or {"seconds": {}}
        if record.get("state") == DONE and record["evaluation"] == _evaluation(matrix, cell):
            return Ended(DONE, "before")
        record |= {
            **{"row": cell.row, "seed": cell.seed, "recipes": cell.recipes, "bindings": cell.bindings},
            **{"start": cell.start and str(cell.start)},
            **{"configuration": cell.configuration, "state": "begun", "error": None, "evaluation": None},
            **{"versions": versions(), "cpus": processes.cpus()},
        }
        write_json(cell.folder / RECORD, record)
        try:
            _stages(matrix, cell, record, lock.fileno(), search_paths)
            record |= {"state": DONE}
        except (processes.Failed, OSError, ValueError) as error:
            record |= {"state": FAILED, "error": str(error)}
        write_json(cell.folder / RECORD, record)
    return Ended(record["state"], record["error"] or "")


def _lacks_start(cell: Cell) -> Ended:
    """A cell that starts from a model that isn't there: another process makes it, or nobody does."""
    cell.start.folder.mkdir(parents=True, exist_ok=True)
    try:
        disk.open_locked(cell.start.folder / LOCK).close()
    except BlockingIOError:
        return Ended(BUSY)
    return Ended(FAILED, f"it starts from {cell.start}, which isn't trained")


def read(cell: Cell) -> dict | None:
    """A cell's record; None where there is none or a damaged one."""
    try:
        return json.loads((cell.folder / RECORD).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _stages(matrix: Matrix, cell: Cell, record: dict, lock: int, search_paths: str) -> None:
    """Everything that isn't done yet; ``record`` gets what it was done with, and the seconds."""

    def run(stage: str, *arguments: str) -> None:
        began = time.monotonic()
        try:
            processes.run(cell.folder / f"{stage}.log", [f"vmsst_jax.{stage}", *arguments], lock)
        finally:
            spent = record["seconds"].get(stage, 0.0) + time.monotonic() - began
            record["seconds"][stage] = round(spent, 1)
            write_json(cell.folder / RECORD, record)

    model = cell.folder / MODEL
    if not (model / REPORT).is_file():
        recipes = [f"--gin_file={name}" for name in cell.recipes]
        start = [f"{START} = {str(cell.start.folder / MODEL)!r}"] if cell.start else []
        bindings = [f"--gin_bindings={b}" for b in (*cell.bindings, *start, f"train.model_dir = {str(model)!r}")]
        run("train", *recipes, f"--gin_search_paths={search_paths}", *bindings)
        if not (model / REPORT).is_file():
            raise processes.Failed("train was stopped before its last step")
    record["training"] = json.loads((model / REPORT).read_text("utf-8"))
    if not matrix.benchmarks:
        record["evaluation"] = _evaluation(matrix, cell)
        return
    evaluation = _evaluation(matrix, cell)
    vectors = cell.folder / VECTORS
    for file, options in dict.fromkeys(_calibrations(cell).values()):
        run(
            "calibrate", f"--checkpoint={model}", f"--samples={_samples(matrix)}", f"--output={file}", "--overwrite",
            f"--cache_dir={vectors}", *_flags({k: v for k, v in matrix.calibration.items() if k != "samples"}),
            *_flags(dict(options)),
        )  # fmt: skip
    disk.write_atomically(cell.folder / RECIPE, _recipe(matrix, cell).encode())
    run("evaluate", f"--gin_file={(cell.folder / RECIPE).resolve()}")
    record["evaluation"] = evaluation
    shutil.rmtree(vectors, ignore_errors=True)


def _calibrations(cell: Cell) -> dict[str, tuple[Path, tuple]]:
    """{row: (file, what its model is loaded with)} of the rows that are calibrated: one file for equal options."""
    options = {
        row: tuple(sorted((name, value) for name, value in model.items() if name != "calibration_steps"))
        for row, model in cell.models.items()
        if "calibration_steps" in model
    }
    distinct = list(dict.fromkeys(options.values()))
    return {row: (cell.folder / CALIBRATION.format(distinct.index(own)), own) for row, own in options.items()}


def _flags(options: dict) -> list[str]:
    """Options of the calibration, or of loading a model, as flags of ``vmsst_jax.calibrate``."""
    if options.get("pool_special") is False:
        options = {name: value for name, value in options.items() if name != "pool_special"}
        options["skip_special_tokens"] = True
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()]


def _recipe(matrix: Matrix, cell: Cell) -> str:
    """The recipe of ``grid.evaluate`` for this cell."""
    files = {row: {"calibration": str(file)} for row, (file, _) in _calibrations(cell).items()}
    models = {
        row: {"checkpoint": str(cell.folder / MODEL), **options, **files.get(row, {})}
        for row, options in cell.models.items()
    }
    values = {
        "models": models,
        "benchmarks": matrix.benchmarks,
        "data_dir": matrix.data_dir,
        "output": str(cell.folder / RESULTS),
        "cache_dir": str(cell.folder / VECTORS),
        "absent": "skip",
    }
    return "".join(f"evaluate.{name} = {value!r}\n" for name, value in values.items())


def _samples(matrix: Matrix) -> str:
    """The texts to calibrate on, as ``vmsst_jax.calibrate`` takes them: CODE=FILE,..."""
    folder = Path(matrix.calibration["samples"])
    files = sorted(folder.glob("*.txt"))
    if not files:
        raise FileNotFoundError(f"{folder} has no CODE.txt; wanted a text for each language to calibrate on")
    return ",".join(f"{file.stem}={file}" for file in files)


def _evaluation(matrix: Matrix, cell: Cell) -> dict:
    """What a cell's results depend on beside its training, by checksum: protocols; data, None where there is none."""
    data, protocols = {}, []
    for result in results_of(matrix, cell):
        try:
            data[result.name] = grid.data_checksum(result)
        except FileNotFoundError:
            data[result.name] = None
        protocols.append([result.model, result.name, grid.configuration(result)])
    calibration = dict(matrix.calibration)
    if "samples" in calibration and any("calibration_steps" in options for options in cell.models.values()):
        calibration["samples"] = data["samples"] = checksums.folder(calibration["samples"])
    what = [vmsst_jax.__version__, cell.models, protocols, calibration]
    protocol = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()
    return {"protocol": protocol, "data": data}
