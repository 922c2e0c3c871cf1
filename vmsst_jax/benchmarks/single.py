"""One model on one benchmark, and results that are there already side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmsst_jax import command
from vmsst_jax.benchmarks import grid, html_report, report, suite


class Outcome(NamedTuple):
    """The table to print, and the files written."""

    table: str
    files: list[Path]


def evaluate(
    model: dict,
    benchmark: str,
    data_dir: str | os.PathLike,
    options: dict,
    *,
    output: str | os.PathLike | None = None,
    overwrite: bool = False,
    compare: Sequence[str] = (),
    cache: bool = True,
    cache_dir: str | None = None,
) -> Outcome:
    """Scores a model on a benchmark and writes results.json and report.html.

    Args:
      model: see ``grid.load``.
      benchmark, data_dir, options: see ``suite.run``.
      output: the folder for both; None is ``report.default_output``.
      overwrite: replace an existing result.
      compare: results.json files of the same protocol, or folders of runs, to show beside this one.
      cache, cache_dir: see ``grid.evaluate``.

    Raises:
      FileExistsError: there is a result already.
      ValueError, FileNotFoundError: what loading and scoring raise; results of another protocol in ``compare``.
    """
    options = suite.fitted(benchmark, options)
    others = [[result for result in run if result["benchmark"] == benchmark] for run in _runs(compare)]
    if compare and not any(others):
        raise ValueError(f"none of {', '.join(compare)} holds results of {benchmark}; give runs of the same benchmark")
    if output:
        report.check_output(Path(output), overwrite)
    loaded = grid.load(model, cache, cache_dir)
    folder = Path(output) if output else report.default_output(loaded.embedder, benchmark, model)
    report.check_output(folder, overwrite)
    beside = grid.aside(benchmark, options, cache_dir, loaded.passages)
    try:
        result, table = suite.run(benchmark, loaded.embedder, data_dir, options, beside)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{command.describe(error)}{suite.hint(benchmark, Path(data_dir))}") from None
    written = report.write_results(folder, result, loaded.embedder)
    if loaded.cache:
        table += f"\n{loaded.cache.line()}"
    return Outcome(table, [written, _page(folder, [html_report.read_results([written]), *others])])


def compare(results: Sequence[str], output: str | os.PathLike) -> Path:
    """Writes report.html over results into ``output``, benchmark by benchmark, and returns its path.

    Args:
      results: results.json files, their folders, or folders with those of several benchmarks.

    Raises ValueError and FileNotFoundError for files that are no results, and for results of one benchmark that are of
    several protocols.
    """
    return _page(Path(output), _runs(results))


def _runs(paths: Sequence[str]) -> list[list[dict]]:
    """The results of each run that is named."""
    return [html_report.read_results(html_report.found_in([path])) for path in paths]


def _page(folder: Path, runs: list[list[dict]]) -> Path:
    html_report.check_runs(runs)
    folder.mkdir(parents=True, exist_ok=True)
    html_report.write_page(folder / grid.PAGE, [result for run in runs for result in run])
    return folder / grid.PAGE
