"""What an experiment is: rows of recipes, seeds, benchmarks and scores, checked."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import operator
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from vmsst_jax import checks, command
from vmsst_jax.benchmarks import columns

# The name under which training's own scores are called, where others have a benchmark's name.
TRAINING = "training"
KINDS = ("train", "evaluation", "report")  # of them
# Of a row that trains, of one that embeds another row's models in another way, and of one whose model is there already.
OPTIONS_READY, OPTIONS_OF = {"model", "benchmarks"}, {"of", "model"}
OPTIONS = {"recipe", "bindings", "seeds", "start", *OPTIONS_READY}
# The binding by which a row's training gets the model that it starts from.
START = "INIT_CHECKPOINT"
# A checkpoint more than this one is of no use once the run has ended; a row's own bindings come later.
DISK = {"Saving.keep_last": 1}


class Row(NamedTuple):
    """A line of the table.

    Attributes:
      name: as the recipe calls it.
      trained: the row whose cells hold its models: itself, or the one that it is "of".
      recipes, bindings, seeds: of its training; empty for one that is "of" another. One whose model is there already
        has one seed and no recipe.
      model: options of ``grid.load`` but the checkpoint, by which its models embed.
      start: the row from whose model of the same seed its training starts, or None.
      benchmarks: names of those that its models are scored by; None for all.
    """

    name: str
    trained: str
    recipes: tuple[str, ...]
    bindings: dict[str, object]
    seeds: tuple[int, ...]
    model: dict
    start: str | None = None
    benchmarks: tuple[str, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Matrix:
    """An experiment, checked; see ``experiment`` for its parts."""

    rows: dict[str, Row]
    scores: list[columns.Column]
    output: Path
    benchmarks: dict[str, dict]
    data_dir: str | None
    calibration: dict
    score_differences: dict[str, tuple[str, str]]
    differences: dict[str, tuple[str, str]]
    plain: tuple[str, ...]
    config_text: str


def experiment(
    rows: dict[str, dict],
    scores: dict[str, Sequence[str]],
    output: str,
    seeds: Sequence[int] = (0, 1, 2),
    bindings: dict[str, object] | None = None,
    benchmarks: dict[str, dict] | None = None,
    data_dir: str | None = None,
    calibration: dict | None = None,
    differences: dict[str, Sequence[str]] | None = None,
    score_differences: dict[str, Sequence[str]] | None = None,
    plain: Sequence[str] = (),
    config_text: str = "",
) -> Matrix:
    """An experiment as its recipe describes it.

    Args:
      rows: {name: options}. One that trains: {"recipe": a name or several, "bindings": {name: value} or a list of such
        dictionaries, "seeds": a list if not that of all, "model": options of ``grid.evaluate``'s models, "start": an
        earlier row, whose model of the same seed is bound to INIT_CHECKPOINT, "benchmarks": names of those that it is
        scored by if not all}. One that embeds a row's models otherwise: {"of": that row, "model": {...}}. One whose
        model is there already: {"model": {...}, "benchmarks": ...}, with which one it is among the options
        ("word_mapping": FILE, "checkpoint": DIR and so on); it has the first seed. "calibration_steps" in "model" has a
        calibration fitted, once for a cell. In bindings, text that begins with @ or % is a reference as in a recipe.
      scores: {column: path}: ["training", "train", STREAM, METRIC] the mean over the records of the last tenth of the
        steps; ["training", "evaluation", METRIC] the last evaluation; ["training", "report", SCORE] of the reports;
        [BENCHMARK] its main score; [BENCHMARK, "means", GROUP, SCORE] and so on, from its result.
      output: the folder for everything.
      seeds: of every row that names none.
      bindings: of every row; a row's own come later.
      benchmarks, data_dir: as in ``grid.evaluate``; without the folder there are none.
      calibration: {"samples": a folder with CODE.txt for each language, FLAG: VALUE of ``vmsst_jax.calibrate``}.
      differences: {name: (row, row)}, the first minus the second, seed by seed.
      score_differences: {name: (score, score)}, further columns, the first minus the second, cell by cell.
      plain: scores that are no shares of 1 and shown as they are, the others in percent.
      config_text: the recipe, kept with the results.

    Raises:
      ValueError: what can be seen to be wrong before anything runs.
    """
    for what, named in (("rows", rows), ("scores", scores)):
        if not isinstance(named, dict) or not named or not all(isinstance(name, str) for name in named):
            raise ValueError(f"experiment.{what} are {named!r:.200}; wanted {{NAME: ..., ...}} with at least one")
    optional = {"bindings": bindings, "benchmarks": benchmarks, "calibration": calibration}
    for what, named in (optional | {"differences": differences, "score_differences": score_differences}).items():
        if not isinstance(named, dict | None):
            raise ValueError(f"experiment.{what} is {named!r:.200}; wanted {{NAME: ...}}")
    seeds = _seeds("experiment.seeds", seeds)
    made = {name: _row(name, options, rows, bindings or {}, seeds) for name, options in rows.items()}
    _check_starts(made)
    for row in made.values():
        if not isinstance(row.benchmarks, list | tuple | None):
            raise ValueError(f"row {row.name!r}: benchmarks are {row.benchmarks!r}; wanted a list of names")
        check_names(f"benchmarks of row {row.name!r}", row.benchmarks or (), benchmarks or {})
    listed = [_column(name, path) for name, path in scores.items()]
    benchmarks = (benchmarks or {}) if data_dir is not None else {}
    if benchmarks:
        _check_calibration(made, calibration or {})
    differences = _pairs("experiment.differences", differences or {}, rows)
    score_differences = _pairs("experiment.score_differences", score_differences or {}, scores)
    if taken := sorted(scores.keys() & score_differences.keys()):
        raise ValueError(f"experiment.score_differences has {', '.join(taken)}, as experiment.scores has; rename one")
    check_names("experiment.plain", plain, [*scores, *score_differences])
    listed = [column for column in listed if data_dir is not None or column.cell == TRAINING]
    if unknown := sorted({c.cell for c in listed} - {TRAINING, *benchmarks}):
        raise ValueError(
            f"experiment.scores are of {', '.join(unknown)}; benchmarks are {', '.join(benchmarks)}, and the scores of "
            f'training begin with "{TRAINING}"'
        )
    known = {column.name for column in listed}
    score_differences = {name: pair for name, pair in score_differences.items() if known.issuperset(pair)}
    return Matrix(
        made, listed, Path(output), benchmarks, data_dir, calibration or {}, score_differences, differences,
        tuple(plain), config_text,
    )  # fmt: skip


def written(value: object) -> str:
    """A value as gin reads it; ValueError for one that it can't."""
    if isinstance(value, str) and value[:1] in ("@", "%"):
        return value
    try:
        if ast.literal_eval(repr(value)) == value:
            return repr(value)
    except (ValueError, SyntaxError):
        pass
    raise ValueError(f"{value!r:.200} can't be written into a recipe; wanted text, numbers, lists, True, False or None")


def check_names(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """ValueError with the closest known ones for a name that is not among them."""
    known = list(known)
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(str(name), known, n=3)
            hint = f"did you mean {' or '.join(map(repr, close))}?" if close else f"known: {', '.join(known)}"
            raise ValueError(f"{what}: there is no {name!r}; {hint}")


def _row(name: str, options: dict, rows: dict, bindings: dict, seeds: tuple[int, ...]) -> Row:
    allowed = OPTIONS_OF if isinstance(options, dict) and "of" in options else OPTIONS
    if not isinstance(options, dict) or not options or not options.keys() <= allowed:
        raise ValueError(
            f"row {name!r} is {options!r:.200}; wanted {{'recipe': NAME}}, with {', '.join(sorted(OPTIONS))}, or "
            "{'of': ROW, 'model': {OPTION: VALUE}}, or {'model': {'checkpoint': DIR}} of a model that is there"
        )
    model, ready = options.get("model") or {}, options.keys() <= OPTIONS_READY
    sources = [source for source in command.SOURCES if source in model] if isinstance(model, dict) else None
    if sources is None or len(sources) != ready:
        wanted = f"exactly one of {', '.join(command.SOURCES)} among them" if ready else "without the checkpoint"
        raise ValueError(f"row {name!r}: model is {model!r:.200}; wanted {{OPTION: VALUE}}, {wanted}")
    if ready:
        source = model[sources[0]]
        listed = source if isinstance(source, list | tuple) else [source]
        if not listed or not all(isinstance(text, str) and text for text in listed):
            raise ValueError(f"row {name!r}: {sources[0]} of its model is {source!r}; say which model it is, as text")
        return Row(name, name, (), {}, seeds[:1], model, benchmarks=options.get("benchmarks"))
    if "of" in options:
        check_names(f"row {name!r}", [options["of"]], [n for n, o in rows.items() if "of" not in o])
        return Row(name, options["of"], (), {}, (), model)
    recipe = options.get("recipe")
    given = options.get("bindings") or {}
    parts = given if isinstance(given, tuple | list) else [given]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError(f"row {name!r}: bindings are {given!r:.200}; wanted {{NAME: VALUE}} or a list of such")
    own = functools.reduce(operator.or_, parts, DISK | bindings)
    if taken := sorted({"train.seed", "train.model_dir", "MODEL_DIR"} & own.keys()):
        raise ValueError(f"row {name!r} binds {', '.join(taken)}, which the experiment chooses; seeds are a list")
    for key, value in own.items():
        try:
            written(value)
        except ValueError as error:
            raise ValueError(f"row {name!r}, binding {key}: {error}") from None
    if not isinstance(recipe, str | tuple | list):
        raise ValueError(f"row {name!r}: recipe is {recipe!r:.200}; wanted the name of one, or a list of them")
    recipes = (recipe,) if isinstance(recipe, str) else tuple(recipe)
    seeds = _seeds(f"seeds of row {name!r}", options["seeds"]) if "seeds" in options else seeds
    return Row(name, name, recipes, own, seeds, model, options.get("start"), options.get("benchmarks"))


def _check_starts(rows: dict[str, Row]) -> None:
    """Rows start from rows that train, earlier and with their seeds."""
    before: dict[str, Row] = {}
    for row in rows.values():
        if row.start is not None:
            check_names(f"row {row.name!r} starts from an earlier one that trains", [row.start], before)
            if lacking := sorted(set(row.seeds) - set(before[row.start].seeds)):
                raise ValueError(f"row {row.name!r} starts from {row.start!r}, which has no seed {lacking[0]}")
            if START in row.bindings:
                raise ValueError(f"row {row.name!r} binds {START}, which its start {row.start!r} gives")
        if row.recipes:
            before[row.name] = row


def _seeds(what: str, seeds: Sequence[int]) -> tuple[int, ...]:
    try:
        seeds = tuple(seeds)
    except TypeError:
        raise ValueError(f"{what} is {seeds!r}; wanted a list of whole numbers") from None
    for seed in seeds:
        checks.whole(what, seed, 0)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"{what} is {seeds!r}; wanted at least one, and none twice")
    return seeds


def _column(name: str, path: Sequence[str]) -> columns.Column:
    if not isinstance(path, tuple | list) or not path or not all(isinstance(part, str) for part in path):
        raise ValueError(f"score {name!r} is {path!r}; wanted a list such as ['{TRAINING}', 'evaluation', 'retrieval']")
    if path[0] == TRAINING and (len(path) < 3 or path[1] not in KINDS):
        raise ValueError(
            f"score {name!r} is {path!r}; of training it has to name one: ['{TRAINING}', KIND, SCORE], KIND one of "
            f"{', '.join(KINDS)}"
        )
    return columns.Column(name, path[0], tuple(path[1:]))


def _check_calibration(rows: dict[str, Row], calibration: dict) -> None:
    wanting = [row.name for row in rows.values() if row.model.get("calibration_steps")]
    if wanting and not isinstance(calibration.get("samples"), str):
        raise ValueError(
            f"rows {', '.join(map(repr, wanting))} are calibrated; wanted experiment.calibration = {{'samples': DIR}}, "
            "a folder with CODE.txt for each language"
        )


def _pairs(what: str, pairs: dict, known: Iterable[str]) -> dict[str, tuple[str, str]]:
    for name, pair in pairs.items():
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise ValueError(f"{what}: {name!r} is {pair!r}; wanted two, the first minus the second")
        check_names(f"{what}, {name!r}", pair, known)
    return {name: tuple(pair) for name, pair in pairs.items()}
