"""One cell from nothing to scores: train, calibrate, evaluate, each a process that can be killed and resumed.

A process returns its memory and keeps its crash to itself. What it prints goes to a log in the cell's folder; what came
of the cell stands in ``cell.json``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import vmsst_jax
from vmsst_jax import command, disk
from vmsst_jax.benchmarks import checksums, grid
from vmsst_jax.experiments import processes, scores
from vmsst_jax.experiments.cells import MODEL, RESULTS, Cell, results_of
from vmsst_jax.experiments.matrix import START, Matrix
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
    if cell.lacking:
        return Ended(FAILED, cell.lacking)
    try:
        cell.folder.mkdir(parents=True, exist_ok=True)
        if cell.start and not (cell.start.folder / MODEL / REPORT).is_file() and _is_busy(cell.start):
            return Ended(BUSY)
        lock = disk.open_locked(cell.folder / LOCK)
    except BlockingIOError:
        return Ended(BUSY)
    except OSError as error:
        return Ended(FAILED, f"{error}; wanted a folder that can be written")
    with lock:
        record = {"seconds": {}} | (read(cell) or {})
        try:
            if record.get("state") == DONE and _is_scored(matrix, cell, record):
                return Ended(DONE, "before")
        except (OSError, ValueError) as error:
            return _failed(cell, record, error)
        record |= {
            **{"row": cell.row, "seed": cell.seed, "recipes": cell.recipes, "bindings": cell.bindings},
            **{"start": cell.start and str(cell.start)},
            **{"configuration": cell.configuration, "state": "begun", "error": None, "evaluation": None},
            **{"versions": versions(), "cpus": processes.cpus()},
        }
        write_json(cell.folder / RECORD, record)
        try:
            _stages(matrix, cell, record, lock.fileno(), search_paths)
        except (processes.Failed, OSError, ValueError) as error:
            return _failed(cell, record, error)
        write_json(cell.folder / RECORD, record | {"state": DONE})
    return Ended(DONE)


def _failed(cell: Cell, record: dict, error: Exception) -> Ended:
    write_json(cell.folder / RECORD, record | {"state": FAILED, "error": str(error)})
    return Ended(FAILED, str(error))


def _is_busy(cell: Cell) -> bool:
    """Whether another process is at a cell."""
    cell.folder.mkdir(parents=True, exist_ok=True)
    try:
        disk.open_locked(cell.folder / LOCK).close()
    except BlockingIOError:
        return True
    return False


def _is_scored(matrix: Matrix, cell: Cell, record: dict) -> bool:
    """Whether a cell that was done is so by this recipe and with this data, and nothing of it was damaged since."""
    if cell.recipes and not (cell.folder / MODEL / REPORT).is_file():
        return False
    if not cell.benchmarks:  # what benchmarks found before is left alone
        return scores.whole(matrix, cell, ())
    return record.get("evaluation") == _evaluation(matrix, cell) and scores.whole(matrix, cell, absent(record))


def absent(record: dict) -> set[str]:
    """The benchmarks whose data wasn't there when a cell was scored."""
    return {name for name, sha256 in ((record.get("evaluation") or {}).get("data") or {}).items() if sha256 is None}


def fits(matrix: Matrix, cell: Cell, record: dict) -> bool:
    """Whether a cell's results were scored as this recipe says, whatever the data."""
    return (record.get("evaluation") or {}).get("protocol") == protocol(matrix, cell)


def read(cell: Cell) -> dict | None:
    """A cell's record; None where there is none or a damaged one."""
    try:
        record = json.loads((cell.folder / RECORD).read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("seconds"), dict) else None


def _stages(matrix: Matrix, cell: Cell, record: dict, lock: int, search_paths: str) -> None:
    """Everything that isn't done yet; ``record`` gets what it was done with, and the seconds."""
    if cell.start and not (cell.start.folder / MODEL / REPORT).is_file():
        raise processes.Failed(f"it starts from {cell.start}, which isn't trained; train that row first")

    def run(stage: str, *arguments: str) -> None:
        began = time.monotonic()
        try:
            processes.run(cell.folder / f"{stage}.log", [f"vmsst_jax.{stage}", *arguments], lock)
        finally:
            spent = record["seconds"].get(stage, 0.0) + time.monotonic() - began
            record["seconds"][stage] = round(spent, 1)
            write_json(cell.folder / RECORD, record)

    if cell.recipes:
        record["training"] = _train(cell, run, search_paths)
    if not cell.benchmarks:
        return
    evaluation = _evaluation(matrix, cell)
    vectors = cell.folder / VECTORS
    for file, options in dict(_calibrations(cell).values()).items():
        run(
            "calibrate", f"--samples={_samples(matrix)}", f"--output={file}", "--overwrite", f"--cache_dir={vectors}",
            *_flags({k: v for k, v in matrix.calibration.items() if k != "samples"}), *_flags(options),
        )  # fmt: skip
    disk.write_atomically(cell.folder / RECIPE, _recipe(matrix, cell).encode())
    run("evaluate", f"--gin_file={(cell.folder / RECIPE).resolve()}")
    record["evaluation"] = evaluation
    shutil.rmtree(vectors, ignore_errors=True)


def _train(cell: Cell, run: Callable, search_paths: str) -> dict:
    """Trains a cell's model, unless that is done, and returns its report."""
    model = cell.folder / MODEL
    if not (model / REPORT).is_file():
        recipes = [f"--gin_file={name}" for name in cell.recipes]
        start = [f"{START} = {str(cell.start.folder / MODEL)!r}"] if cell.start else []
        bindings = [f"--gin_bindings={b}" for b in (*cell.bindings, *start, f"train.model_dir = {str(model)!r}")]
        run("train", *recipes, f"--gin_search_paths={search_paths}", *bindings)
        if not (model / REPORT).is_file():
            raise processes.Failed("train was stopped before its last step")
    scores.training(model)  # what is damaged says so
    return json.loads((model / REPORT).read_text("utf-8"))


def _calibrations(cell: Cell) -> dict[str, tuple[Path, dict]]:
    """{row: (file, what its model is loaded with)} of the rows that are calibrated: one file for equal options."""
    options = {
        row: {name: value for name, value in model.items() if name != "calibration_steps"}
        for row, model in cell.loading().items()
        if "calibration_steps" in model
    }
    distinct: list[dict] = []
    for own in options.values():
        distinct += [own] if own not in distinct else []
    return {row: (cell.folder / CALIBRATION.format(distinct.index(own)), own) for row, own in options.items()}


def _flags(options: dict) -> list[str]:
    """Options of the calibration, or of loading a model, as flags of ``vmsst_jax.calibrate``."""
    options = dict(options)
    if options.pop("pool_special", None) is False:
        options["skip_special_tokens"] = True
    return command.flag_arguments(options)


def _recipe(matrix: Matrix, cell: Cell) -> str:
    """The recipe of ``grid.evaluate`` for this cell."""
    files = {row: {"calibration": str(file)} for row, (file, _) in _calibrations(cell).items()}
    models = {row: {**options, **files.get(row, {})} for row, options in cell.loading().items()}
    values = {
        "models": models,
        "benchmarks": cell.benchmarks,
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
    data = {}
    for result in results_of(matrix, cell):
        try:
            data[result.name] = grid.data_checksum(result)
        except FileNotFoundError:
            data[result.name] = None
    if _calibrations(cell):
        data["samples"] = checksums.folder(matrix.calibration["samples"])
    return {"protocol": protocol(matrix, cell), "data": data} | ({} if cell.recipes else {"model": _ready(cell)})


def _ready(cell: Cell) -> dict[str, str]:
    """Checksums of a model that is there already, as far as it lies in files."""
    ((kind, given),) = cell.source.items()
    files = [Path(file) for file in (given if isinstance(given, list | tuple) else given.split(","))]
    if kind == "vectors":  # of the lines of texts beside them
        files += [path for file in files for path in (file.with_suffix(""), file.with_suffix(".txt"))]
    if kind == "embedder":
        with contextlib.suppress(ImportError, ValueError, AttributeError):  # evaluation says what is wrong
            files = [Path(importlib.util.find_spec(given.partition(":")[0]).origin)]
    found = {str(file): checksums.folder(file) for file in files if file.is_dir()}
    return found | {str(file): checksums.of_file(file) for file in files if file.is_file()}


def protocol(matrix: Matrix, cell: Cell) -> str:
    """A checksum over how a cell's models are loaded, calibrated and scored."""
    protocols = [[r.model, r.name, grid.configuration(r)] for r in results_of(matrix, cell)]
    calibration = dict(matrix.calibration)
    if "samples" in calibration and _calibrations(cell):
        calibration["samples"] = checksums.folder(calibration["samples"])
    what = [vmsst_jax.__version__, cell.models, protocols, calibration]
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()
