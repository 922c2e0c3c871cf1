"""One row for every model: a column for every score, the means of groups of columns, and means over all of them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from vmsst_jax.benchmarks import columns
from vmsst_jax.benchmarks.report import format_table


class Table(NamedTuple):
    """What ``rows`` makes: columns in groups, and rows that are one model minus another.

    ``own`` is False where it shows no more than the main score of each benchmark of each model.
    """

    models: list[str]
    layout: columns.Layout
    differences: dict[str, tuple[str, str]]
    own: bool

    def without(self, benchmarks: set[str]) -> Table:
        """The table without the columns of these benchmarks."""
        groups = {
            name: kept
            for name, group in self.layout.groups.items()
            if (kept := [c for c in group if c.cell not in benchmarks])
        }
        return self._replace(layout=self.layout._replace(groups=groups))


class Rows(NamedTuple):
    """{row: {column: share of 1, or None}}, the columns in order, and {cell: scores that its result lacks}."""

    header: list[str]
    values: dict[str, dict[str, float | None]]
    lacking: dict[str, str]


def table_of(
    name: str | None, benchmarks: Sequence[str], models: Sequence[str], differences: dict[str, Sequence[str]]
) -> Table:
    """The table of this name in ``columns.TABLES``; None has the main score of each benchmark.

    Raises:
      ValueError: no such table, one with columns of other benchmarks than these, or differences of unknown models.
    """
    if name is None:
        # Accuracies, correlations and F1 have no mean that says anything.
        layout = columns.Layout({"": [columns.Column(each, each) for each in benchmarks]}, means=False)
    elif name in columns.TABLES:
        layout = columns.TABLES[name]
    else:
        close = difflib.get_close_matches(str(name), columns.TABLES, n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else f"; known: {', '.join(columns.TABLES)}"
        raise ValueError(f"there is no table {name!r}{hint}")
    wanted = {column.cell for group in layout.groups.values() for column in group}
    if missing := sorted(wanted - set(benchmarks)):
        raise ValueError(
            f"the table {name} has columns of {', '.join(missing)}; benchmarks are {', '.join(benchmarks)}. Without a "
            "table (columns = None), each of them shows its main score"
        )
    for row, pair in differences.items():
        if len(pair) != 2 or not set(pair) <= set(models):
            raise ValueError(f"difference {row!r} is of {pair!r}; wanted two of the models {', '.join(models)}")
    pairs = {row: (pair[0], pair[1]) for row, pair in differences.items()}
    return Table(list(models), layout, pairs, name in columns.TABLES or bool(pairs))


def rows(table: Table, results: dict[tuple[str, str], dict]) -> Rows:
    """The scores of ``results`` {(model, benchmark): result}; one that is not there is None, as is a mean over it."""
    lacking: dict[str, str] = {}
    values = {model: _row(table.layout, model, results, lacking) for model in table.models}
    for name, (first, second) in table.differences.items():
        values[name] = {column: _minus(values[first][column], values[second][column]) for column in values[first]}
    return Rows(list(next(iter(values.values()))), values, lacking)


def _row(layout: columns.Layout, model: str, results: dict, lacking: dict[str, str]) -> dict[str, float | None]:
    """One model's scores and means (METHODS 5.8); ``lacking`` gets {cell: why} for scores that a result has not."""
    row, group_means = {}, {}
    for group, members in layout.groups.items():
        scores = dict.fromkeys(column.name for column in members)
        for column in members:
            try:
                if result := results.get((model, column.cell)):
                    scores[column.name] = columns.score(column, result)
            except KeyError as error:
                lacking[f"{model} x {column.cell}, column {column.name}"] = error.args[0]
        row |= scores
        if layout.overall or (layout.means and len(scores) > 1 and layout.contrast is None):
            group_means[f"mean of {group}"] = _mean(scores.values())
    flat = _mean(row.values())
    row |= group_means
    if layout.overall:
        row |= {"overall": _mean(group_means.values()), "flat mean": flat}
    if layout.contrast:
        first, second = layout.contrast
        row[f"{first} - {second}"] = _minus(row[first], row[second])
    return row


def text(rows: Rows) -> str:
    """The table for people: columns across while they fit, down where there are many."""
    names = list(rows.values)
    if len(rows.header) <= 14:
        return format_table(["model", *rows.header], [[name, *rows.values[name].values()] for name in names])
    return format_table(["score", *names], [[c, *(rows.values[name][c] for name in names)] for c in rows.header])


def _mean(scores) -> float | None:
    scores = list(scores)
    return sum(scores) / len(scores) if scores and None not in scores else None


def _minus(a: float | None, b: float | None) -> float | None:
    return None if a is None or b is None else a - b
