"""Models x benchmarks: every cell by itself, resumed where it was left, gathered in one table and one report.

``OUTPUT/MODEL/BENCHMARK/results.json`` is a cell. It is left alone as long as it was made with the same options, of the
same data, with the same model; a cell that fails says so in ``failure.json`` and doesn't stop the others. Several
processes may work on one grid: a cell belongs to one of them at a time.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import vmsst_jax
from vmsst_jax import command, disk
from vmsst_jax.benchmarks import checksums, html_report, report, suite, summary
from vmsst_jax.benchmarks.report import slug
from vmsst_jax.conversion import towers
from vmsst_jax.retrieval import cache as vector_cache
from vmsst_jax.retrieval import calibration as calibrations
from vmsst_jax.retrieval import embedders
from vmsst_jax.retrieval.embedder import load_passages
from vmsst_jax.retrieval.store import write_json

FAILURE, TABLE, SUMMARY, PAGE, RECIPE = "failure.json", "table.txt", "summary.json", "report.html", "recipe.gin"
# Options of a model that are not of ``embedders.load`` but of ``calibration.applied``, and of benchmarks with passages.
CALIBRATION, PASSAGES = ("calibration", "calibration_steps"), "passage_encoder"
# What ends a cell: DONE it has a result, ABSENT the data folder doesn't have its files, LEFT it has none.
DONE, ABSENT, LEFT = "done", "no data", "missing"


class Cell(NamedTuple):
    """One benchmark of one model.

    Attributes:
      model, name: as the recipe calls them.
      benchmark: a key of ``suite.BENCHMARKS``.
      data: the folder with its files.
      options: its own.
      folder: where its result goes.
    """

    model: str
    name: str
    benchmark: str
    data: Path
    options: dict
    folder: Path

    def __str__(self) -> str:
        return f"{self.model} x {self.name}"


class Ended(NamedTuple):
    """How a cell ended: one of ``DONE``, ``ABSENT``, ``LEFT``; its result, or why it has none."""

    state: str
    result: dict | None = None
    why: str = ""


class Outcome(NamedTuple):
    """What ``evaluate`` did: the table to print, the files written, {benchmark: why} without data, {cell: why} without
    a result."""

    table: str
    files: list[Path]
    absent: dict[str, str]
    missing: dict[str, str]


def evaluate(
    models: dict[str, dict],
    benchmarks: dict[str, dict],
    data_dir: str,
    output: str,
    columns: str | None = None,
    differences: dict[str, Sequence[str]] | None = None,
    absent: str = "fail",
    compare: Sequence[str] = (),
    cache: bool = True,
    cache_dir: str | None = None,
    config_text: str = "",
) -> Outcome:
    """Scores every model on every benchmark, as far as that hasn't been done already.

    Args:
      models: {name: options of ``embedders.load``; "calibration", a file, with "calibration_steps" where only the first
        ones of its steps are wanted; "passage_encoder", a checkpoint, for models of two towers in two folders; of one
        that holds both, without "tower", each embeds its side}.
      benchmarks: {name: {"benchmark": its name in ``suite``, if that differs, "folder": its files' folder below
        ``data_dir``, if not the usual one, and its own options}}.
      data_dir: holds one folder for each benchmark.
      output: the folder for results, summary and report.
      columns: a name in ``columns.TABLES``; None shows the main score of each benchmark.
      differences: {name: (model, model)}, further rows of the table, the first minus the second.
      absent: "fail" counts a benchmark whose files are not there as missing, "skip" doesn't.
      compare: results.json files of other runs, or their folders, to show in the report.
      cache: keep vectors, in ``cache_dir`` if that is given (see ``retrieval.cache``).
      config_text: the recipe, kept with the results.

    Raises:
      ValueError: nothing to do, an unknown benchmark, option or table, a value that is none of an option; once all is
        scored, results in ``compare`` that are of another protocol. What happens inside a cell is in the outcome.
    """
    cells, table = checked(models, benchmarks, data_dir, output, columns, differences, absent)
    others = [html_report.read_results(html_report.found_in([run])) for run in compare]
    folder = Path(output)
    folder.mkdir(parents=True, exist_ok=True)
    if config_text:
        disk.write_atomically(folder / RECIPE, config_text.encode())
    ended: list[tuple[Cell, Ended]] = []
    for name, options in models.items():
        model = _Model(options, cache, cache_dir)
        for cell in (cell for cell in cells if cell.model == name):
            print(f"[{len(ended) + 1} of {len(cells)}] {cell}", flush=True)
            began = time.monotonic()
            end = _one(cell, model, absent == "skip")
            ended.append((cell, end))
            why = end.why if end.state != ABSENT else ""  # the same for all models, said at the end
            print(f"    {end.state} ({time.monotonic() - began:.0f} s) {why}".rstrip(), flush=True)
        model.say_cache()
    return _gather(folder, table, ended, others, ABSENT if absent == "skip" else LEFT)


def checked(
    models: dict[str, dict],
    benchmarks: dict[str, dict],
    data_dir: str,
    output: str,
    columns: str | None = None,
    differences: dict[str, Sequence[str]] | None = None,
    absent: str = "fail",
) -> tuple[list[Cell], summary.Table]:
    """The cells and the table of ``evaluate``; ValueError for what is wrong before anything is scored."""
    cells = plan(models, benchmarks, data_dir, output)
    if absent not in ("fail", "skip"):
        raise ValueError(f'absent is {absent!r}; wanted "fail" or "skip"')
    return cells, summary.table_of(columns, benchmarks, models, differences or {})


def plan(models: dict[str, dict], benchmarks: dict[str, dict], data_dir: str, output: str) -> list[Cell]:
    """The cells, model by model; ValueError for what could not run, before anything does."""
    for what, named in (("models", models), ("benchmarks", benchmarks)):
        if not isinstance(named, dict) or not all(isinstance(options, dict) for options in named.values()):
            raise ValueError(f"{what} are {named!r:.200}; wanted {{NAME: {{OPTION: VALUE, ...}}, ...}}")
        if not named:
            raise ValueError(f"no {what} are named")
    for name, options in models.items():
        try:
            others = (*CALIBRATION, PASSAGES)
            embedders.check_options({k: v for k, v in options.items() if v is not None and k not in others})
        except ValueError as error:
            raise ValueError(f"model {name!r}: {error}") from None
    cells = []
    for name, options in benchmarks.items():
        own = {key: value for key, value in options.items() if key not in ("benchmark", "folder")}
        benchmark = options.get("benchmark", name)
        own = suite.fitted(benchmark, own)
        data = Path(data_dir, options.get("folder", suite.folder(benchmark)))
        for model in models:
            if PASSAGES in models[model] and PASSAGES not in suite.options_of(benchmark):
                raise ValueError(f"model {model!r} has a {PASSAGES}, but {name!r} has no passages")
            cells.append(Cell(model, name, benchmark, data, own, Path(output, slug(model), slug(name))))
    if len({cell.folder for cell in cells}) < len(cells):
        raise ValueError(
            "two models or two benchmarks have names that give the same folder; name them more differently"
        )
    return sorted(cells, key=lambda cell: list(models).index(cell.model))


class _Model:
    """A model that is loaded when it is first needed; one that can't be loaded fails each of its cells alike."""

    def __init__(self, options: dict, cache: bool, cache_dir: str | None):
        self._how, self.cache_dir = (options, cache, cache_dir), cache_dir
        self._loaded: Loaded | Exception | None = None

    def loaded(self) -> Loaded:
        if self._loaded is None:
            try:
                self._loaded = load(*self._how)
            except Exception as error:
                self._loaded = error
        if isinstance(self._loaded, Exception):
            raise self._loaded
        return self._loaded

    def say_cache(self) -> None:
        kept = self._loaded.cache if isinstance(self._loaded, Loaded) else None
        if kept and (kept.found or kept.computed):
            print(kept.line(), flush=True)


class Loaded(NamedTuple):
    """An embedder, the cache inside of it if it has one, and that of passages if it is another."""

    embedder: object
    cache: vector_cache.Cached | None
    passages: object | None


def load(options: dict, cache: bool = True, cache_dir: str | None = None) -> Loaded:
    """The model that ``options`` describe, see ``evaluate``.

    Raises what loading a model, a calibration, or putting one on the other raises.
    """
    options = dict(options)
    calibration = [options.pop(name, None) for name in CALIBRATION]
    calibrations.check(*calibration)
    passages = options.pop(PASSAGES, None)
    if cache_dir is not None and options.get("checkpoint") is not None:
        options.setdefault("cache_dir", cache_dir)
    model = options.get("checkpoint")
    both = passages is None and model is not None and options.get("tower") is None and towers.has_two(model)
    model = embedders.load(**options | ({"tower": "query"} if both else {}))
    if cache:
        model = vector_cache.cached(model, cache_dir)
    kept = model if isinstance(model, vector_cache.Cached) else None
    # Outside of the cache: one pass serves every calibration.
    model = calibrations.applied(model, *calibration)
    if both:
        return Loaded(model, kept, embedders.load(**options | {"tower": "passage"}))
    return Loaded(model, kept, passages and load_passages(passages, cache_dir=cache_dir))


def aside(benchmark: str, options: dict, cache_dir: str | None, passages) -> dict:
    """What ``suite.run`` gets beside a benchmark's ``options``, where it takes such: a place in ``cache_dir`` for a
    corpus' vectors, and the encoder of passages of a model with two towers; ValueError where it has no passages."""
    found = {}
    if cache_dir is not None and "embeddings_dir" in suite.options_of(benchmark):
        found["embeddings_dir"] = str(vector_cache.place(cache_dir))
    if passages is None or options.get(PASSAGES) is not None:
        return found
    if PASSAGES not in suite.options_of(benchmark):
        raise ValueError(
            f"the model has two towers, and {benchmark} has no questions and passages: say with --tower=query or "
            '--tower=passage (in a recipe by "tower") which of them embeds'
        )
    return {**found, PASSAGES: passages}


def _one(cell: Cell, model: _Model, skip_absent: bool) -> Ended:
    """Scores one cell, or finds it done."""
    try:
        cell.folder.mkdir(parents=True, exist_ok=True)
        with disk.open_locked(cell.folder / ".lock"):
            return _locked(cell, model, skip_absent)
    except BlockingIOError:
        return Ended(LEFT, why="another process is at it")
    except Exception as error:
        why = f"{type(error).__name__}: {command.describe(error)}"
        try:
            write_json(cell.folder / FAILURE, {"cell": str(cell), "error": why, "traceback": traceback.format_exc()})
        except OSError as second:
            why += f" (and {second})"
        return Ended(LEFT, why=why)


def _locked(cell: Cell, model: _Model, skip_absent: bool) -> Ended:
    (cell.folder / FAILURE).unlink(missing_ok=True)
    try:
        data_sha256 = data_checksum(cell)
    except FileNotFoundError as error:
        why = f"{command.describe(error)}{suite.hint(cell.benchmark, cell.data)}"
        return Ended(ABSENT if skip_absent else LEFT, why=why)
    embedder, _, passages = model.loaded()
    identity = {
        "model": cell.model,
        "benchmark": cell.name,
        "configuration": configuration(cell),
        "data_sha256": data_sha256,
        PASSAGES: passages and passages.fingerprint(),
    }
    done = read(cell.folder / report.FILE)
    if done and done.get("cell") == identity and done["model"]["fingerprint"] == embedder.fingerprint():
        return Ended(DONE, done, "before")
    try:
        beside = aside(cell.benchmark, cell.options, model.cache_dir, passages)
        result, table = suite.run(cell.benchmark, embedder, cell.data, cell.options, beside)
    except FileNotFoundError as error:
        if not skip_absent:
            raise
        return Ended(ABSENT, why=str(error))
    path = report.write_results(cell.folder, {**result, "cell": identity}, embedder)
    disk.write_atomically(cell.folder / TABLE, (table + "\n").encode())
    return Ended(DONE, read(path))


def data_checksum(cell: Cell) -> str:
    """A checksum over the files that a cell reads; FileNotFoundError where they are not there."""
    return checksums.folder(cell.data, suite.files(cell.benchmark, cell.data, cell.options))


def configuration(cell: Cell) -> str:
    """A checksum over a cell's protocol: benchmark, options, the files that these name, version of this package."""
    files = {
        name: checksums.folder(value)
        for name, value in cell.options.items()
        if isinstance(value, str) and os.path.exists(value)
    }
    what = [vmsst_jax.__version__, cell.benchmark, cell.options, files]
    return hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()


def read(path: Path) -> dict | None:
    """A result; None where there is none or a damaged one."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None


def _gather(
    folder: Path, table: summary.Table, ended: list[tuple[Cell, Ended]], others: list[list[dict]], lacking: str
) -> Outcome:
    """Writes the summary over all cells that have a result, and the report over these and the runs ``others``.

    ``lacking``: how a cell is called whose result lacks a score of the table, as of a language that isn't there.
    """
    results = {(cell.model, cell.name): end.result for cell, end in ended if end.state == DONE}
    why = {state: {str(c): e.why for c, e in ended if e.state == state} for state in (ABSENT, LEFT)}
    # A column whose benchmark has no data is left out, unless that is an error.
    gone = {cell.name for cell, end in ended if end.state == ABSENT}
    rows = summary.rows(table.without(gone), results)
    files = [folder / SUMMARY]
    why[lacking] |= rows.lacking
    gathered = {
        **{"columns": rows.header, "rows": rows.values, "own table": table.own},
        **{"no data": why[ABSENT], "missing": why[LEFT]},
    }
    write_json(files[0], gathered)
    if results:
        html_report.check_runs([list(results.values()), *others])
        files.append(folder / PAGE)
        shown = [*results.values(), *itertools.chain.from_iterable(others)]
        html_report.write_page(files[1], shown, summary=gathered)
    return Outcome(summary.text(rows), files, html_report.once(why[ABSENT], table.models), why[LEFT])
