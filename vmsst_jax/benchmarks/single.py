"""One model on one benchmark, and results that are there already side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

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
      compare: results.json files of the same protocol to show beside this one.
      cache, cache_dir: see ``grid.evaluate``.

    Raises:
      FileExistsError: there is a result already.
      ValueError, FileNotFoundError: what loading and scoring raise; results of another protocol in ``compare``.
    """
    suite.check(benchmark, options)
    others = html_report.read_results(compare)
    if output:
        report.check_output(Path(output), overwrite)
    loaded = grid.load(model, cache, cache_dir)
    folder = Path(output) if output else report.default_output(loaded.embedder, benchmark, model)
    report.check_output(folder, overwrite)
    options = grid.with_passages(benchmark, grid.aside(benchmark, cache_dir) | options, loaded.passages)
    result, table = suite.run(benchmark, loaded.embedder, data_dir, options)
    written = report.write_results(folder, result, loaded.embedder)
    if loaded.cache:
        table += f"\n{loaded.cache.line()}"
    return Outcome(table, [written, _page(folder, [*html_report.read_results([written]), *others])])


def compare(results: Sequence[str], output: str | os.PathLike) -> Path:
    """Writes report.html over results of one protocol into ``output``, and returns its path.

    Raises ValueError and FileNotFoundError for files that are no results, and for results of several protocols.
    """
    return _page(Path(output), html_report.read_results(results))


def _page(folder: Path, results: list[dict]) -> Path:
    if len(results) > 1:
        html_report.check_comparable(results)
    folder.mkdir(parents=True, exist_ok=True)
    html_report.write_page(folder / grid.PAGE, results)
    return folder / grid.PAGE
