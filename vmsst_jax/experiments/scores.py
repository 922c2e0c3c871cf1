"""The scores of cells: read from what training and evaluation left there."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path

from vmsst_jax.benchmarks import columns, grid, report
from vmsst_jax.experiments.cells import MODEL, Cell, results_of
from vmsst_jax.experiments.matrix import TRAINING, Matrix
from vmsst_jax.training.leaving import REPORT

# Losses of single batches are noisy: their mean is taken over the records of this last share of the steps.
LAST = 0.1
Scores = dict[str, float | None]


def of_cell(matrix: Matrix, cell: Cell, scored: bool = True) -> tuple[dict[str, Scores], dict[str, str]]:
    """({row: {score: value or None}} of a trained cell, {score: why no row of it has it}).

    Training's own scores belong to the row that was trained, not to those that embed its models otherwise. ``scored``
    is whether the benchmarks' results are of this recipe: they are left out if not.

    Raises:
      OSError, ValueError: what ``training`` raises.
    """
    results: dict[tuple[str, str], dict] = {}
    if cell.recipes:
        results[cell.row, TRAINING] = training(cell.folder / MODEL)
    for place in results_of(matrix, cell) if scored else ():
        if result := grid.read(place.folder / report.FILE):
            results[place.model, place.name] = result
    found: dict[str, Scores] = {}
    lacking: dict[str, str] = {}
    for row in cell.models:
        found[row] = {column.name: None for column in matrix.scores}
        for column in matrix.scores:
            if (row, column.cell) in results:
                try:
                    found[row][column.name] = columns.number(column, results[row, column.cell])
                except KeyError as error:
                    lacking[column.name] = error.args[0]
        for name, (first, second) in matrix.score_differences.items():
            found[row][name] = minus(found[row][first], found[row][second])
    return found, lacking


def whole(matrix: Matrix, cell: Cell, absent: Collection[str]) -> bool:
    """Whether all of a scored cell can be read: training's own scores, and a result of every benchmark not ``absent``.

    Raises:
      OSError, ValueError: what ``training`` raises: that can't be made good by scoring again.
    """
    if cell.recipes:
        training(cell.folder / MODEL)
    results = [(p, grid.read(p.folder / report.FILE)) for p in results_of(matrix, cell) if p.name not in absent]
    return all(r and r.get("cell", {}).get("configuration") == grid.configuration(place) for place, r in results)


def training(model_dir: Path) -> dict:
    """{"train": {stream: {metric: mean of the last}}, "evaluation": {metric: the last}, "report": {score: value}}.

    Raises:
      FileNotFoundError: the run hasn't ended. ValueError: its report or its log is damaged, or two of its reports have
        a score of the same name.
    """
    remedy = f"remove {model_dir.parent}, and the same command trains this cell anew"
    file = model_dir / REPORT
    try:
        ended = json.loads(file.read_text("utf-8"))
        file = model_dir / "metrics.jsonl"
        records = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    except (json.JSONDecodeError, FileNotFoundError) as error:
        if not (model_dir / REPORT).is_file():
            raise
        raise ValueError(f"{file} is missing or damaged ({error}); {remedy}") from None
    if (last := max((record["step"] for record in records), default=0)) < ended["step"]:
        raise ValueError(f"{file} ends at step {last} of {ended['step']}: a part of it is missing; {remedy}")
    reported: dict[str, float] = {}
    for scores in ended["reports"]:
        if twice := sorted(reported.keys() & scores.keys()):
            raise ValueError(f"{model_dir / REPORT}: two reports have {', '.join(twice)}; leave one of them out")
        reported |= scores
    evaluations = [record for record in records if record["kind"] == "evaluation"]
    return {
        "train": _last_losses(records, ended["step"]),
        "evaluation": _metrics(evaluations[-1]) if evaluations else {},
        "report": reported,
    }


def _last_losses(records: list[dict], steps: int) -> dict[str, dict[str, float]]:
    streams: dict[str, list[dict]] = {}
    for record in records:
        if record["kind"] == "train":
            streams.setdefault(record["stream"], []).append(record)
    means = {}
    for stream, own in streams.items():
        last = [_metrics(record) for record in own if record["step"] > (1 - LAST) * steps] or [_metrics(own[-1])]
        means[stream] = {name: sum(values[name] for values in last) / len(last) for name in last[0]}
    return means


def _metrics(record: dict) -> dict[str, float]:
    return {name: value for name, value in record.items() if name not in ("step", "kind", "stream", "speed")}


def minus(a: float | None, b: float | None) -> float | None:
    """The difference, None where one of the two is not there."""
    return None if a is None or b is None else a - b
