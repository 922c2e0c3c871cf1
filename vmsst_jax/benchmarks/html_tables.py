"""The tables of the page: scores by language, means by group, from language to language, and how they were made."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from vmsst_jax.benchmarks import language_families
from vmsst_jax.benchmarks.elements import NOTHING, decimal, difference, el, name, percent, plain
from vmsst_jax.benchmarks.runs import Section, flatten, scores

# Shades of a score, s0 the lowest; report.css has their colours.
SHADES = 10
# More columns than these are printed across the page.
WIDE = 12


class Cell(NamedTuple):
    """What a cell shows.

    Attributes:
      content: text or an element.
      value: what the column is sorted by; None goes last.
      classes: of the stylesheet.
      heading: whether it is the heading of its row.
      columns: over which it stretches.
    """

    content: str | Element
    value: float | str | None = None
    classes: str = ""
    heading: bool = False
    columns: int = 1

    def element(self, numeric: bool) -> Element:
        classes = f"{'n ' * numeric}{self.classes}".strip()
        attributes = {"class": classes or None, "data-value": self.value}
        attributes |= {"scope": "row" if self.heading else None, "colspan": self.columns if self.columns > 1 else None}
        return el("th" if self.heading else "td", self.content, **attributes)


class Column(NamedTuple):
    """A column of scores: of run number ``run``; with ``base``, what it has more than run number ``base``."""

    heading: str | Element
    score: str
    run: int = 0
    base: int | None = None


def table(
    caption: str,
    header: Sequence[str | Element],
    rows: Iterable[Sequence[Cell]],
    *,
    label: str | None = None,
    sortable: bool = False,
    sorted_by: int | None = None,
) -> Element:
    """A table in a box of its own that scrolls where the page is too narrow.

    Args:
      caption: says what it shows.
      header: of the columns; texts or elements.
      rows: of cells; a column of numbers is set to the right.
      label: the box's name for those who don't see what it belongs to; None is the caption.
      sortable: whether the script of the page sorts it when a heading is clicked.
      sorted_by: the column by which the rows are in falling order already.
    """
    rows = [list(row) for row in rows]
    numeric = [_is_numeric([row[i] for row in rows if i < len(row)]) for i in range(len(header))]
    head = [
        el("th", t, scope="col", class_="n" if numeric[i] else None, aria_sort="descending" if i == sorted_by else None)
        for i, t in enumerate(header)
    ]
    content = el(
        "table",
        el("caption", el("span", caption)),
        el("thead", el("tr", head)),
        el("tbody", [el("tr", [cell.element(numeric[i]) for i, cell in enumerate(row)]) for row in rows]),
        class_=" ".join(["sortable"] * sortable + ["wide"] * (len(header) > WIDE)) or None,
    )
    return el("div", content, class_="scroll", role="region", tabindex="0", aria_label=label or caption)


def _is_numeric(cells: list[Cell]) -> bool:
    values = [cell.value for cell in cells if cell.value is not None]
    return (
        all(isinstance(value, int | float) for value in values) if values else all(c.content == NOTHING for c in cells)
    )


def language_table(section: Section) -> Element:
    """A row for each language, the best first: all scores of one run, or the main score of several side by side."""
    keys, columns, others = section.keys(), _columns(section), _others(section.first)
    known = {key: language_families.find(key) for key in keys}
    names = {key: language_families.name(key) for key in keys}
    named, grouped = any(names.values()), any(known.values())
    rows = []
    for key in keys:
        of_runs = [result["per_language"].get(key, {}) for result in section.results.values()]
        facts = known[key][1:] if known[key] else ("", "")
        rows.append(
            [
                Cell(name(key), key, heading=True),
                *([Cell(names[key], names[key] or None)] if named else []),
                *_score_cells(section, columns, of_runs),
                *(_plain_cell(_first(of_runs, other)) for other in others),
                *([Cell(fact, fact or None, "muted") for fact in facts] if grouped else []),
            ]
        )
    header = [
        *(["language", "name"] if named else ["set"]),
        *(column.heading for column in columns),
        *others,
        *(["family", "script"] if grouped else []),
    ]
    low, high = map(percent, section.range())
    caption = f"Row by row: {_what(section)}{f'; shades from {low} to {high}' if low != high else ''}"
    label = f"{section.name}: scores row by row"
    return table(caption, header, rows, label=label, sortable=True, sorted_by=2 if named else 1)


def means_table(section: Section) -> Element:
    """A row for each group of languages that has a mean."""
    columns, rows = _columns(section), []
    for group in dict.fromkeys(group for result in section.results.values() for group in result["means"]):
        of_runs = [result["means"].get(group, {}) for result in section.results.values()]
        size = _first(of_runs, "languages")
        if size != 0:
            row = [Cell(name(group), group, heading=True), _plain_cell(size)]
            rows.append(row + _score_cells(section, columns, of_runs))
    header = ["mean of", "number", *(column.heading for column in columns)]
    return table(f"Means: {_what(section)}", header, rows, label=f"{section.name}: means")


def _what(section: Section) -> str:
    runs = list(section.results)
    return f"score “{section.main}” and differences from {runs[0]}" if len(runs) > 1 else "all scores"


def _columns(section: Section) -> list[Column]:
    runs = list(section.results)
    if len(runs) == 1:
        return [Column(score, score) for score in (*scores(section.first), *section.first.get("numbers", ()))]
    columns = [Column(name(runs[0]), section.main)]
    for i, run in enumerate(runs[1:], 1):
        columns += [Column(name(run), section.main, i), Column("difference", section.main, i, base=0)]
    return columns


def _score_cells(section: Section, columns: list[Column], of_runs: list[dict]) -> list[Cell]:
    low, high = section.range()
    cells = []
    for column in columns:
        value = of_runs[column.run].get(column.score)
        if column.base is not None:
            other = of_runs[column.base].get(column.score)
            gain = None if value is None or other is None else value - other
            sign = "" if not gain else "more" if gain > 0 else "less"
            cells.append(Cell(difference(gain), gain, f"difference {sign}".strip()))
        elif column.score in section.first.get("numbers", ()):
            cells.append(Cell(decimal(value), value))
        else:
            cells.append(Cell(percent(value), value, shade(value, low, high)))
    return cells


def shade(value: float | None, low: float, high: float) -> str:
    """The class of a score between the lowest and the highest, "" where there is nothing to tell apart."""
    if value is None or low >= high:
        return ""
    step = int(SHADES * (value - low) / (high - low))
    return f"s{min(max(step, 0), SHADES - 1)}"


def matrix_table(section: Section) -> Element | None:
    """The main score of one run from each language to each, where its rows are such pairs or it has a "matrix"."""
    result = section.first
    matrix = result.get("matrix") or {}
    for key, row in result["per_language"].items() if not matrix else ():
        a, arrow, b = key.partition("->")
        if not arrow:
            return None
        matrix.setdefault(a, {})[b] = row.get(section.main)
    ends = list(dict.fromkeys([*matrix, *(b for row in matrix.values() for b in row)]))
    if len(ends) < 3:
        return None
    values = [value for row in matrix.values() for value in row.values() if value is not None]
    low, high = min(values, default=0), max(values, default=0)
    rows = [
        [Cell(name(a), heading=True)]
        + [Cell(percent(v), v, shade(v, low, high)) for b in ends for v in [matrix.get(a, {}).get(b)]]
        for a in ends
    ]
    what = "share found" if result.get("matrix") else f"score “{section.main}”"
    caption = f"From the row's language to the column's: {what}"
    return table(caption, ["", *map(name, ends)], rows, label=f"{section.name}: matrix")


def _others(result: dict) -> list[str]:
    """What rows hold beside scores: counts, whether seen in training and so on."""
    known = {*scores(result), *result.get("numbers", ())}
    rows = result["per_language"].values()
    names = dict.fromkeys(key for row in rows for key in row)
    return [key for key in names if key not in known and not any(isinstance(row.get(key), dict | list) for row in rows)]


def _first(rows: list[dict], key: str) -> object:
    return next((row[key] for row in rows if key in row), None)


def _plain_cell(value: object) -> Cell:
    return Cell(plain(value), plain(value) if isinstance(value, bool) else value)


def facts_table(section: Section) -> Element:
    """How each run's numbers were made: model, layer, pooling, index, versions; what all share is said once."""
    facts = [_facts(result) for result in section.results.values()]
    rows = []
    for fact in dict.fromkeys(fact for run in facts for fact in run):
        values = [run.get(fact) for run in facts]
        cells = [Cell(_fact(value)) for value in values]
        if len({repr(value) for value in values}) == 1:
            cells = [cells[0]._replace(columns=len(facts))]
        if any(value is not None for value in values):
            rows.append([Cell(fact, heading=True), *cells])
    header = ["", *map(name, section.results)]
    return table("How these numbers were made", header, rows, label=f"{section.name}: how these numbers were made")


def _facts(result: dict) -> dict[str, object]:
    model = flatten(result.get("model", {}))
    first = {fact: model.pop(fact, None) for fact in ("layer", "pooling", "prefix", "max_length")}
    if first["layer"] is None and first["pooling"] is not None:
        first["layer"] = "the model's own output"
    index = ", ".join(f"{k} {plain(v)}".removeprefix("kind ") for k, v in result.get("index", {}).items())
    sentences = ", ".join(f"{plain(v)} {k}" for k, v in result.get("sentences", {}).items())
    versions = ", ".join(f"{k} {v}" for k, v in result.get("versions", {}).items())
    last = {"sentences": sentences or None, "versions": versions or None, "file": result.get("file")}
    facts = {**first, "index": index or None, **model, **last}
    return {fact.replace("_", " ").replace(".", ": "): value for fact, value in facts.items()}


def _fact(value: object) -> str | Element:
    if isinstance(value, str):
        return el("code", value, dir="auto") if value else "none"
    return NOTHING if value is None else plain(value)
