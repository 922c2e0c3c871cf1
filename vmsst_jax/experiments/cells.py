"""The cells of an experiment: a cell is one row trained with one seed, or one model that is there already.

Rows that only embed otherwise ("of" another row, calibrated for instance) are scored in the cells of that row.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from vmsst_jax import command
from vmsst_jax.benchmarks import checksums, grid, report
from vmsst_jax.data.text_pairs import CorpusError, expand
from vmsst_jax.experiments.matrix import START, Matrix, written
from vmsst_jax.training.same_config import bindings as read_bindings
from vmsst_jax.training.same_config import expanded, is_place

# Where a cell's training and its results lie in the cell's folder.
MODEL, RESULTS = "model", "results"


class Cell(NamedTuple):
    """A row trained with a seed.

    Attributes:
      row, seed: which.
      recipes, bindings: what ``vmsst_jax.train`` gets; bindings in gin's words, but for the model's folder. No recipes:
        there is nothing to train.
      configuration: checksum of all bindings that hold, the seed among them, but for where things lie.
      folder: whose name has the beginning of it, so that another configuration never meets this one's results.
      models: {row: options of ``grid.load``}, what is scored in this cell.
      source: further ones, of all of them: which model it is, by one of ``command.SOURCES``.
      benchmarks: {name: options} that they are scored by.
      start: the cell from whose model its training starts, or None.
      lacking: why it can't be trained: a file that it names can't be read.
    """

    row: str
    seed: int
    recipes: tuple[str, ...]
    bindings: tuple[str, ...]
    configuration: str
    folder: Path
    models: dict[str, dict]
    source: dict
    benchmarks: dict[str, dict]
    start: Cell | None = None
    lacking: str = ""

    def loading(self) -> dict[str, dict]:
        """{row: everything that ``grid.load`` takes}."""
        return {row: {**self.source, **options} for row, options in self.models.items()}

    def __str__(self) -> str:
        return f"{self.row}, seed {self.seed}"


def of_matrix(matrix: Matrix, resolve: Callable[[Sequence[str], Sequence[str]], str]) -> list[Cell]:
    """The cells of an experiment, first those of each row's first seed, so that a part of them is a table as well.

    Args:
      resolve: function (recipes, bindings) -> every binding that holds, as gin prints it.

    Raises:
      ValueError: a recipe or binding that doesn't hold, naming the row; two rows with names for the same folder; what
        ``grid.plan`` finds.
    """
    found: list[tuple[int, Cell]] = []
    for row in matrix.rows.values():
        if row.trained != row.name:
            continue
        given = [f"{name} = {written(value)}" for name, value in row.bindings.items()]
        try:
            holding = expanded(read_bindings(resolve(row.recipes, given))) if row.recipes else {}
            if row.start is not None:  # a recipe that can't start from a model says so now
                resolve(row.recipes, [*given, f"{START} = ''"])
        except ValueError as error:
            raise ValueError(f"row {row.name!r}: {error}") from error
        read, lacking = _contents(holding)
        ready = {} if row.recipes else {name: row.model[name] for name in command.SOURCES if name in row.model}
        if gone := [path for path in _paths(ready) if not os.path.exists(path)]:
            lacking = f"there is no {gone[0]}, its model"
        models = {other.name: other.model for other in matrix.rows.values() if other.trained == row.name}
        names = matrix.benchmarks if row.benchmarks is None else row.benchmarks
        scored = {name: options for name, options in matrix.benchmarks.items() if name in names}
        for place, seed in enumerate(row.seeds):
            before = next(((p, c) for p, c in found if (c.row, c.seed) == (row.start, seed)), None)
            start, began = (before[1], {"start": before[1].configuration}) if before else (None, {})
            configuration = fingerprint(holding | read | {"train.seed": str(seed)} | began | ready)
            folder = matrix.output / report.slug(row.name) / f"seed_{seed}_{configuration[:8]}"
            bindings = (*given, f"train.seed = {seed}")
            source = ready or {"checkpoint": str(folder / MODEL)}
            cell = Cell(
                row.name, seed, row.recipes, bindings, configuration, folder, models, source, scored, start, lacking
            )
            found.append((before[0] if before else place, cell))
    if len({cell.folder for _, cell in found}) < len(found):
        raise ValueError("two rows have names that give the same folder; name them more differently")
    ordered = [cell for _, cell in sorted(found, key=lambda item: item[0])]
    for cell in ordered:
        results_of(matrix, cell)
    return ordered


def fingerprint(holding: dict[str, str]) -> str:
    """A checksum of bindings {name: value} with the macros replaced, but for where things lie."""
    telling = {name: value for name, value in holding.items() if not is_place(name)}
    return hashlib.sha256(json.dumps(telling, sort_keys=True).encode()).hexdigest()


def _contents(holding: dict[str, str]) -> tuple[dict[str, str], str]:
    """{"contents of NAME": checksum} of the files that bindings name one by one, and why one of them can't be read.

    Other pairs are another training. Folders aren't looked through, they may be large; what was read of them stands in
    the cell's record.
    """
    found = {}
    for name, value in holding.items():
        if is_place(name) and name.endswith(".files") and (patterns := _texts(value)):
            try:
                sums = [checksums.of_file(file) for file in expand(patterns) if os.path.isfile(file)]
            except (CorpusError, OSError) as error:
                return {}, f"{name}: {command.describe(error)}"
            found[f"contents of {name}"] = ", ".join(sums)
    return found, ""


def _paths(ready: dict) -> list[str]:
    """The files and folders that are a model which is there already; none for what isn't named by a path."""
    given = [ready[kind] for kind in ("checkpoint", "word_mapping", "vectors") if kind in ready]
    return [path for one in given for path in (one.split(",") if isinstance(one, str) else one)]


def _texts(value: str) -> list[str]:
    """The text or texts that a binding's value stands for; none for a reference, and for what training will refuse."""
    try:
        value = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return []
    listed = [value] if isinstance(value, str) else value
    return list(listed) if isinstance(listed, list | tuple) and all(isinstance(text, str) for text in listed) else []


def results_of(matrix: Matrix, cell: Cell) -> list[grid.Cell]:
    """What ``grid.evaluate`` does in a cell: its rows x benchmarks."""
    if not cell.benchmarks:
        return []
    return grid.plan(cell.loading(), cell.benchmarks, matrix.data_dir, str(cell.folder / RESULTS))
