"""The scores of cells: read from what training and evaluation left there."""

from __future__ import annotations

import json
from pathlib import Path

from vmsst_jax.benchmarks import columns, grid, report
from vmsst_jax.experiments.matrix import MODEL, TRAINING, Cell, Matrix, results_of
from vmsst_jax.training.leaving import REPORT

# Losses of single batches are noisy: their mean is taken over the records of this last share of the steps.
LAST = 0.1
Scores = dict[str, float | None]


def of_cell(matrix: Matrix, cell: Cell) -> tuple[dict[str, Scores], dict[str, str]]:
    """({row: {score: value or None}} of a finished cell, {score: why no row of it has it}).

    Training's own scores belong to the row that was trained, not to those that embed its models otherwise.
    """
    results: dict[tuple[str, str], dict] = {(cell.row, TRAINING): training(cell.folder / MODEL)}
    for place in results_of(matrix, cell):
        result = grid.read(place.folder / report.FILE)
        # Where scoring failed, a result of other options may have been left.
        if result and result.get("cell", {}).get("configuration") == grid.configuration(place):
            results[place.model, place.name] = result
    found: dict[str, Scores] = {}
    lacking: dict[str, str] = {}
    for row in cell.models:
        found[row] = {column.name: None for column in matrix.scores}
        for column in matrix.scores:
            if (row, column.cell) in results:
                try:
                    found[row][column.name] = columns.score(column, results[row, column.cell])
                except KeyError as error:
                    lacking[column.name] = error.args[0]
        for name, (first, second) in matrix.score_differences.items():
            found[row][name] = minus(found[row][first], found[row][second])
    return found, lacking


def training(model_dir: Path) -> dict:
    """{"train": {stream: {metric: mean of the last}}, "evaluation": {metric: the last}, "report": {score: value}}.

    Raises:
      FileNotFoundError: the run hasn't ended. ValueError: two of its reports have a score of the same name.
    """
    ended = json.loads((model_dir / REPORT).read_text("utf-8"))
    records = [json.loads(line) for line in (model_dir / "metrics.jsonl").read_text("utf-8").splitlines()]
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
