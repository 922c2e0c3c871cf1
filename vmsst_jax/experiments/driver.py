"""Works through the cells of an experiment and gathers their table. Several processes may work on one at a time."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from vmsst_jax import disk
from vmsst_jax.experiments import picture, scores, stages, table
from vmsst_jax.experiments.cells import Cell, of_matrix
from vmsst_jax.experiments.matrix import Matrix, check_names
from vmsst_jax.retrieval.store import write_json

TABLE, TEXT, PLOT, RECIPE = "table.json", "table.md", "table.svg", "recipe.gin"
WAIT = 5.0  # seconds between looks at cells that another process has


class Outcome(NamedTuple):
    """The table to print, the files written, {cell: why} of the chosen cells that failed, and the seconds of all."""

    table: str
    files: list[Path]
    failed: dict[str, str]
    seconds: float


def run(
    matrix: Matrix,
    resolve: Callable[[Sequence[str], Sequence[str]], str],
    only: Sequence[str] = (),
    seeds: Sequence[int] | None = None,
    collect: bool = False,
    search_paths: str = "",
) -> Outcome:
    """Does what is left of an experiment, or of a part of it, and writes table and plot over all cells that are done.

    Args:
      resolve: see ``cells.of_matrix``.
      only: rows to work on; none for all.
      seeds: to work on; None for all.
      collect: work on none, only gather.
      search_paths: folders with recipes, between commas, for training.

    Raises:
      ValueError: what ``cells.of_matrix`` raises; no such row or seed, no folder with data. What happens in a cell is
        in the outcome.
    """
    if matrix.benchmarks and not collect and not Path(matrix.data_dir).is_dir():
        raise ValueError(f"DATA_DIR is {matrix.data_dir}, and there is no such folder; leave it out to train alone")
    cells = of_matrix(matrix, resolve)
    chosen = choose(matrix, cells, only, seeds)
    chosen = [] if collect else chosen
    if matrix.output.exists() and not matrix.output.is_dir():
        raise ValueError(f"OUTPUT is {matrix.output}, which is a file; give a folder, or a name that is free")
    matrix.output.mkdir(parents=True, exist_ok=True)
    disk.write_atomically(matrix.output / RECIPE, matrix.config_text.encode())
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # by an exception, so that training is told
    try:
        failed = _work(matrix, chosen, search_paths)
    finally:
        signal.signal(signal.SIGTERM, before)
    text, files = gather(matrix, cells)
    records = [stages.read(cell) or {} for cell in cells]
    return Outcome(text, files, failed, sum(sum(record.get("seconds", {}).values()) for record in records))


def choose(matrix: Matrix, cells: Sequence[Cell], only: Sequence[str], seeds: Sequence[int] | None) -> list[Cell]:
    """The cells of these rows and seeds; ValueError for a row or seed that there isn't."""
    check_names("--only", only, matrix.rows)
    trained = {matrix.rows[name].trained for name in only} or {cell.row for cell in cells}
    known = {cell.seed for cell in cells if cell.row in trained}
    if unknown := sorted(set(seeds or ()) - known):
        raise ValueError(f"no seed {', '.join(map(str, unknown))}; there is {', '.join(map(str, sorted(known)))}")
    return [cell for cell in cells if cell.row in trained and (seeds is None or cell.seed in seeds)]


def _work(matrix: Matrix, cells: Sequence[Cell], search_paths: str) -> dict[str, str]:
    """Does the cells one after another, those that other processes have last; {cell: why} of those that failed."""
    failed: dict[str, str] = {}
    pending = list(cells)
    said: set[str] = set()
    while pending:
        busy = []
        for cell in pending:
            if str(cell) not in said:
                print(f"[{cells.index(cell) + 1} of {len(cells)}] {cell}", flush=True)
            began = time.monotonic()
            ended = stages.advance(matrix, cell, search_paths)
            if ended.state == stages.BUSY:
                busy.append(cell)
            if ended.state != stages.BUSY or str(cell) not in said:
                print(f"    {ended.state} ({time.monotonic() - began:.0f} s) {ended.why}".rstrip(), flush=True)
            if ended.state == stages.FAILED:
                failed[str(cell)] = ended.why
                print(f"    logs are in {cell.folder}", flush=True)
            said.add(str(cell))
        if len(busy) == len(pending):
            time.sleep(WAIT)
        pending = busy
    return failed


def gather(matrix: Matrix, cells: Sequence[Cell]) -> tuple[str, list[Path]]:
    """Writes the table, as JSON and Markdown, and the plot over all cells that are done; (Markdown, files)."""
    values: table.Values = {row: {} for row in matrix.rows}
    lacking: dict[str, str] = {}
    records = {cell.folder: stages.read(cell) or {} for cell in cells}
    for cell in cells:
        record = records[cell.folder]
        if not record or (cell.recipes and "training" not in record):
            continue
        try:
            fits = stages.fits(matrix, cell, record)
            found, why = scores.of_cell(matrix, cell, fits)
            whole = scores.whole(matrix, cell, stages.absent(record))
        except (OSError, ValueError) as error:
            record |= {"state": stages.FAILED, "error": str(error)}
            continue
        if record.get("state") == stages.DONE and cell.benchmarks and not (fits and whole):
            how = "damaged" if fits else "scored with other options"
            record |= {"state": f"{how}; the same command without --collect scores it anew"}
        lacking |= why
        for row, own in found.items():
            for name, value in own.items():
                if value is not None:
                    values[row].setdefault(name, {})[cell.seed] = value
    gathered = table.summary(matrix, values)
    has = {name for own in values.values() for name in own}
    gathered["notes"] = [
        *_missing(cells, records),
        *_absent(records),
        *_different_data(cells, records),
        *(f"No cell has the score {name}: {why}." for name, why in lacking.items() if name not in has),
    ]
    files = [matrix.output / name for name in (TABLE, TEXT, PLOT)]
    text = table.markdown(gathered)
    write_json(files[0], gathered)
    disk.write_atomically(files[1], text.encode())
    disk.write_atomically(files[2], picture.svg(gathered))
    return text, files


def _missing(cells: Sequence[Cell], records: dict[Path, dict]) -> list[str]:
    """The cells that are not done, those with the same reason together, by row."""
    why: dict[str, dict[str, list[str]]] = {}
    for cell in cells:
        record = records[cell.folder]
        if record.get("state") != stages.DONE:
            reason = (cell.lacking or record.get("error") or "").rstrip(".") or record.get("state") or "not begun"
            why.setdefault(reason, {}).setdefault(cell.row, []).append(str(cell.seed))
    named = {reason: [f"{row}, seed {' '.join(seeds)}" for row, seeds in rows.items()] for reason, rows in why.items()}
    return [f"Missing ({reason}): {'; '.join(names)}." for reason, names in named.items()]


def _absent(records: dict[Path, dict]) -> list[str]:
    """The benchmarks whose data wasn't there."""
    names = sorted({name for record in records.values() for name in stages.absent(record)})
    return [f"Left out, as DATA_DIR has no files of theirs: {', '.join(names)}."] if names else []


def _different_data(cells: Sequence[Cell], records: dict[Path, dict]) -> list[str]:
    """Data that was not the same in all cells, of a row or of all: their scores don't belong into one table."""
    found: dict[tuple[str, str], dict[str | None, list[str]]] = {}
    for cell in cells:
        record = records[cell.folder]
        data = {("", name): sha256 for name, sha256 in ((record.get("evaluation") or {}).get("data") or {}).items()}
        # Rows may be trained on different languages; their seeds may not.
        data |= {(cell.row, name): sha256 for name, sha256 in (record.get("training") or {}).get("data", {}).items()}
        for key, sha256 in data.items():
            found.setdefault(key, {}).setdefault(sha256, []).append(str(cell))
    return [
        f"Not the same data, {name}: {' | '.join('; '.join(names) for names in groups.values())}."
        for (_, name), groups in found.items()
        if len(groups) > 1
    ]
