"""report.html: results of one or many models and benchmarks as one page that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from xml.etree.ElementTree import Element

from vmsst_jax import disk
from vmsst_jax.benchmarks import figures, language_families, report
from vmsst_jax.benchmarks.elements import el, is_number, markup, name, percent, plain
from vmsst_jax.benchmarks.html_tables import Cell, facts_table, language_table, matrix_table, means_table, table
from vmsst_jax.benchmarks.runs import PROTOCOL, Section, main_mean, main_score, protocol, sections

TITLE = "Sentence embeddings on benchmarks"
# What a result has at least, and of which type.
NEEDED = {
    "benchmark": str, "data": dict, "split": str, "direction": str | list, "scoring": str, "per_language": dict,
    "means": dict,
}  # fmt: skip
# Why a cell of a grid has no result, as summary.json calls it, and the heading over the reasons.
WITHOUT_RESULT = {"missing": "Missing", "no data": "Left out, no data"}
# Bars by family or script are drawn for so many languages and groups, or more.
FEWEST_LANGUAGES, FEWEST_GROUPS = 6, 3


def read_results(paths: Sequence[str | os.PathLike]) -> list[dict]:
    """The contents of results.json files, each with its path as "file".

    Args:
      paths: of the files or of the folders that hold them.

    Raises:
      FileNotFoundError: one is not there.
      ValueError: one is no JSON, or no result, or has no scores.
    """
    return [_read(Path(path)) for path in paths]


def found_in(paths: Sequence[str | os.PathLike]) -> list[Path]:
    """The results.json files that paths mean: a file, its folder, or a folder with those of several benchmarks in it.

    Raises FileNotFoundError for a folder without any.
    """
    files = []
    for path in map(Path, paths):
        inside = [path] if not path.is_dir() or (path / report.FILE).is_file() else sorted(path.rglob(report.FILE))
        if not inside:
            raise FileNotFoundError(f"there is no {report.FILE} in {path} or below; give what vmsst_jax.evaluate wrote")
        files += inside
    return files


def _read(path: Path) -> dict:
    if path.is_dir():
        path = path / report.FILE
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; give a {report.FILE} that vmsst_jax.evaluate wrote")

    def refuse(constant: str):
        raise ValueError(f"{path} holds {constant}, which is no score; evaluate again")

    try:
        result = json.loads(path.read_text("utf-8"), parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: this is no JSON ({error.msg}); give a {report.FILE}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text (byte {error.start}); give a {report.FILE}") from None
    parts = result if isinstance(result, dict) else {}
    missing = [part for part, kind in NEEDED.items() if not isinstance(parts.get(part), kind)]
    if missing or "sha256" not in parts["data"]:
        lacking = ", ".join(missing) or "sha256 in its data"
        raise ValueError(f"{path} is no result of a benchmark: it has no proper {lacking}; give a {report.FILE}")
    return {**parts, "file": str(path)}


def check_comparable(results: Sequence[dict]) -> None:
    """ValueError, naming what differs, unless all results are of one protocol: numbers that may stand side by side.

    The protocol is benchmark, checksum of the data, split, direction and scoring.
    """
    for other in results[1:]:
        wanted, found = protocol(results[0]), protocol(other)
        if differing := [field for field in PROTOCOL if found[field] != wanted[field]]:
            facts = "; ".join(f"{field} {_short(found[field])} against {_short(wanted[field])}" for field in differing)
            raise ValueError(
                f"{_origin(other)} is of another protocol than {_origin(results[0])}: {facts}; "
                "compare results of the same benchmark, data and options"
            )


def check_runs(runs: Sequence[Sequence[dict]]) -> None:
    """ValueError, naming what differs, where two runs share a benchmark but no protocol of it.

    One run may have a benchmark by several protocols, such as mining by two margins: each needs its like.

    Args:
      runs: the results of each run, of any benchmarks.
    """
    for i, run in enumerate(runs):
        for other, earlier in itertools.product(run, runs[:i]):
            same = [result for result in earlier if result["benchmark"] == other["benchmark"]]
            if same and all(protocol(result) != protocol(other) for result in same):
                check_comparable([same[0], other])


def once(why: dict[str, str], models: Iterable[str]) -> dict[str, str]:
    """{"BENCHMARK": reason} of {"MODEL x BENCHMARK": reason}: what holds for every model, said once."""
    found: dict[str, str] = {}
    for cell, reason in why.items():
        model = max((name for name in models if cell.startswith(f"{name} x ")), key=len, default=None)
        found.setdefault(cell if model is None else cell.removeprefix(f"{model} x "), reason)
    return found


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _origin(result: dict) -> str:
    return result.get("file", "the result just made")


def write_page(
    path: str | os.PathLike, results: Sequence[dict], title: str = TITLE, *, summary: dict | None = None
) -> None:
    """Writes one HTML file with tables and figures of all results, whole or not at all.

    Args:
      path: of the file.
      results: contents of results.json files, of any models and benchmarks. Those of one protocol go side by side.
      title: of the page.
      summary: contents of a grid's summary.json: {"columns": [name], "rows": {model: {column: score or None}}, and
        "missing", "no data": {cell: why}, "own table": False where its columns are no more than the overview's}.

    Raises:
      ValueError: no results, or one that has no scores or a figure that can't be drawn.
    """
    text = page(results, title, summary)
    with disk.writing(path):
        disk.write_atomically(path, text.encode("utf-8", "backslashreplace"))


def page(results: Sequence[dict], title: str = TITLE, summary: dict | None = None) -> str:
    """The text of the page, see ``write_page``; the same results give the same text."""
    if not results:
        raise ValueError("there are no results to show; evaluate a model first")
    for result in results:
        _check(result)
    parts = sections(results)
    models = len({run for part in parts for run in part.results})
    counts = f"{_count(models, 'model')}, {_count(len(parts), 'benchmark')}. Scores are multiplied by 100."
    script = _file("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    # No script but this one runs, and nothing is fetched, whatever the names in the results hold.
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'"
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", **{"http-equiv": "Content-Security-Policy", "content": policy}),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", **{"name": "color-scheme", "content": "light dark"}),
        el("title", title),
        el("style", _file("report.css")),
    )
    body = el(
        "body",
        el("header", el("h1", title, dir="auto"), el("p", counts, class_="lead")),
        el("main", _overview(parts, summary), [_section(part, i) for i, part in enumerate(parts)]),
        el("script", script),
    )
    return "<!DOCTYPE html>\n" + markup(el("html", head, body, lang="en")) + "\n"


def _file(file: str) -> str:
    return resources.files(__package__).joinpath(file).read_text("utf-8")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def _check(result: dict) -> None:
    rows, means = result["per_language"], result["means"]
    if not rows or not means:
        raise ValueError(f"{_origin(result)} ({result['benchmark']}) has no scores per language or no means")
    main = main_score(result)
    for key, row in [*rows.items(), *means.items()]:
        if not (row.get(main) is None or is_number(row[main])):
            raise ValueError(f"{_origin(result)}: the score {main} of {key} is {row[main]!r}; wanted a number")


def _overview(parts: list[Section], summary: dict | None) -> Element:
    """Models x benchmarks, a summary of a table's own columns, and what is missing."""
    summary = summary or {"columns": [], "rows": {}}
    without = {cell: what for what in WITHOUT_RESULT for cell in summary.get(what, ())}
    runs = list(dict.fromkeys(run for part in parts for run in part.results))
    header = [el("a", name(part.name), el("br"), el("small", part.main), href=f"#b{i}") for i, part in enumerate(parts)]
    columns = {
        part.name: {run: main_mean(part.results[run]) if run in part.results else None for run in runs}
        for part in parts
    }
    content = [el("h2", "Overview"), _scores_of_models("Main score of each benchmark, mean", header, columns, without)]
    more = set(summary["columns"]) - columns.keys() or set(summary["rows"]) - set(runs)
    if more and summary.get("own table", True):
        columns = {c: {model: row.get(c) for model, row in summary["rows"].items()} for c in summary["columns"]}
        content.append(_scores_of_models("The recipe's own table", [*map(name, columns)], columns, without))
    for what, title in WITHOUT_RESULT.items():
        if reasons := summary.get(what):
            reasons = once(reasons, summary["rows"]) if what == "no data" else reasons
            reasons = [[el("dt", name(cell)), el("dd", why, dir="auto")] for cell, why in reasons.items()]
            content += [el("h3", title), el("dl", reasons, class_="reasons")]
    return el("section", content, id="overview")


def _scores_of_models(caption: str, header: list[Element], columns: dict[str, dict], without: dict) -> Element:
    """A row for each model; the highest of several scores, as it is shown, is in bold, ties included."""
    rows = []
    for model in next(iter(columns.values())):
        row = [Cell(name(model), model, heading=True)]
        for column, scores in columns.items():
            value, shown = scores[model], percent(scores[model])
            others = [other for other in scores.values() if other is not None]
            if value is None:
                row.append(Cell(without.get(f"{model} x {column}", shown), classes="muted"))
            elif len(others) > 1 and shown == percent(max(others)):
                row.append(Cell(el("strong", shown), value))
            else:
                row.append(Cell(shown, value))
        rows.append(row)
    return table(caption, ["model", *header], rows, sortable=True)


def _section(part: Section, number: int) -> Element:
    runs = [Section(f"{part.name}, {run}", {run: result}) for run, result in part.results.items()]
    if len(runs) == 1:
        per_run = matrix_table(part)
    else:
        per_run = [
            el(
                "details",
                el("summary", "All scores of ", name(next(iter(run.results)))),
                means_table(run),
                language_table(run),
                matrix_table(run),
            )
            for run in runs
        ]
    return el(
        "section",
        el("h2", name(part.name)),
        _protocol_lines(part),
        means_table(part),
        language_table(part),
        per_run,
        _figures(part, f"b{number}"),
        facts_table(part),
        id=f"b{number}",
    )


def _protocol_lines(part: Section) -> Element:
    """What all numbers of the section have in common."""
    result = part.first
    direction = result["direction"]
    data = {k: v for k, v in result["data"].items() if k not in ("sha256", "directory")}
    counts = ", ".join(f"{plain(v)} {k.replace('_', ' ')}" for k, v in data.items() if is_number(v))
    directions = direction if isinstance(direction, list) else [direction]
    facts = {
        "benchmark": f"{result['benchmark']}, split {result['split']}",
        "direction": [[", " if i else None, el("span", d, class_="whole")] for i, d in enumerate(directions)],
        "scoring": result["scoring"],
        "data": [counts, " " if counts else None, el("code", f"sha256 {result['data']['sha256']}")],
    }
    if result.get("missing"):
        facts["missing"] = ", ".join(map(str, result["missing"]))
    return el("dl", [[el("dt", fact), el("dd", value, dir="auto")] for fact, value in facts.items()], class_="protocol")


def _figures(part: Section, prefix: str) -> Element | None:
    """Bars by family and by script, then what the results hold."""
    shown = [("", figure) for figure in _by_language_facts(part)]
    if together := _lines_together(part):
        shown.append(("", together))
    for run, result in part.results.items():
        for figure in result.get("figures", ()):
            if not (together and figure.get("title") == together["title"]):
                shown.append((run if len(part.results) > 1 else "", figure))
    drawn = [_figure(figure, run, f"{prefix}f{i}", part) for i, (run, figure) in enumerate(shown)]
    return el("div", drawn, class_="figures") if drawn else None


def _lines_together(part: Section) -> dict | None:
    """One figure of the curves of all runs, if they have one each, such as the scores of their layers."""
    curves = [
        [f for f in r.get("figures", ()) if f.get("kind") == "lines" and len(f.get("series", ())) == 1]
        for r in part.results.values()
    ]
    labels = {(f.get("title"), f.get("x_label"), f.get("y_label")) for figures in curves for f in figures}
    if len(curves) < 2 or len(labels) > 1 or {len(figures) for figures in curves} != {1}:
        return None
    series = {run: next(iter(figure["series"].values())) for run, (figure,) in zip(part.results, curves, strict=True)}
    return {
        **curves[0][0],
        "series": series,
        "marks": [mark for (figure,) in curves for mark in figure.get("marks", ())],
    }


def _by_language_facts(part: Section) -> list[dict]:
    found = {key: language for key in part.keys() if (language := language_families.find(key))}
    made = []
    for fact in ("family", "script"):
        groups: dict[str, list[str]] = {}
        for key, language in found.items():
            groups.setdefault(getattr(language, fact), []).append(key)
        if len(found) < FEWEST_LANGUAGES or len(groups) < FEWEST_GROUPS:
            continue
        by_run = {run: _group_means(result, groups, part.main) for run, result in part.results.items()}
        common = {"title": f"By {fact} (number of languages): {part.main}", "y_label": f"{part.main} × 100"}
        first = next(iter(by_run.values()))
        order = sorted(first, key=first.get, reverse=True)
        if len(by_run) == 1 and first:
            made.append({"kind": "bars", **common, "bars": {group: first[group] for group in order}})
        elif all(by_run.values()):
            series = {run: {g: means[g] for g in [*order, *means] if g in means} for run, means in by_run.items()}
            made.append({"kind": "dots", **common, "series": series})
    return made


def _group_means(result: dict, groups: dict[str, list[str]], score: str) -> dict[str, float]:
    """{group and its size: mean of the score over its languages, times 100}, of the groups that have all scores."""
    means = {}
    for group, keys in groups.items():
        values = [result["per_language"].get(key, {}).get(score) for key in keys]
        if None not in values:
            means[f"{group} ({len(keys)})"] = round(100 * sum(values) / len(values), 1)
    return means


def _figure(figure: dict, run: str | None, prefix: str, part: Section) -> Element:
    try:
        picture = figures.svg(figure, prefix)
    except ValueError as error:
        raise ValueError(f"{part.name}{f', {run}' if run else ''}: {error}") from None
    title = str(figure.get("title") or "")
    picture.set("role", "img")
    picture.set("aria-label", f"{title}. {figures.description(figure)}")
    caption = el("figcaption", el("span", title, dir="auto"), [el("br"), el("small", name(run))] if run else None)
    return el("figure", caption, _legend(figure), picture, _values(figure))


def _legend(figure: dict) -> Element | None:
    series = figure.get("series") or figure.get("groups") or {}
    if len(series) < 2:
        return None
    items = [el("li", figures.swatch(figure, i), name(text)) for i, text in enumerate(series)]
    return el("ul", items, class_="legend")


def _values(figure: dict) -> Element | None:
    found = figures.values(figure)
    if found is None:
        return None
    header, rows = found
    cells = [[Cell(name(plain(row[0])), row[0], heading=True), *(Cell(plain(v), v) for v in row[1:])] for row in rows]
    return el(
        "details",
        el("summary", "Values"),
        table(str(figure.get("title") or "values"), [name(h) for h in header], cells),
    )
