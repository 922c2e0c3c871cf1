"""Figures of results as SVG: lines, histograms, scatter plots, bars, dots.

Drawn by matplotlib with text as text: colours of ink and grid follow the page, fonts too, and the same figure gives the
same bytes every time.
"""

from __future__ import annotations

import io
import re
import unicodedata
import warnings
from typing import NamedTuple
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from vmsst_jax.benchmarks.elements import is_number, plain

WIDTH, HEIGHT, FONT = 5.4, 3.4, 9.5  # inches, inches, points: on a phone about as large as on paper
# Colours that stand for those of the page, which may be light or dark.
INK, GRID = "#010203", "#040506"
PAGE_COLOURS = {INK: "currentColor", GRID: "var(--line)"}
# More points than these are drawn as a picture inside the SVG, which is smaller then.
MOST_POINTS = 3000
# Characters that XML doesn't have; a name may hold them all the same.
NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
LONGEST_LABEL = 34  # characters
MOST_MARKERS = 40  # along a line
MOST_ROWS = 60  # of a table beside a figure


class Style(NamedTuple):
    """How one series is told from the others, by colour and without: dashes as matplotlib and SVG have them."""

    colour: str
    dash: tuple[float, ...]
    marker: str


# Okabe and Ito's colours, which most colour-blind people can tell apart, those that are seen on black and white first.
STYLES = (
    Style("#0072b2", (), "o"),
    Style("#d55e00", (5, 2), "s"),
    Style("#009e73", (1.5, 1.5), "^"),
    Style("#cc79a7", (6, 2, 1.5, 2), "D"),
    Style("#e69f00", (3, 1), "v"),
    Style("#56b4e9", (8, 2), "P"),
)
# The markers for a legend, as SVG paths around the origin.
MARKERS = {
    "o": "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "s": "M-3.5-3.5h7v7h-7z",
    "^": "M0-4.5l4.5 8h-9z",
    "D": "M0-5l5 5l-5 5l-5-5z",
    "v": "M0 4.5l4.5-8h-9z",
    "P": "M-1.5-4.5h3v3h3v3h-3v3h-3v-3h-3v-3h3z",
}


def style(i: int) -> Style:
    return STYLES[i % len(STYLES)]


def svg(figure: dict, prefix: str) -> Element:
    """The figure as an ``svg`` element without a namespace, as HTML has it.

    Args:
      figure: see ``check``.
      prefix: begins every id inside, so that several figures fit on one page.

    Raises:
      ValueError: see ``check``.
    """
    import matplotlib
    from matplotlib.figure import Figure

    check(figure)
    settings = {
        "svg.fonttype": "none",
        "svg.hashsalt": "vmsst_jax",
        "text.parse_math": False,
        "font.family": "DejaVu Sans",
        "font.size": FONT,
        "axes.unicode_minus": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.axisbelow": True,
        "axes.grid": True,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "grid.linewidth": 0.6,
        "grid.color": GRID,
        "axes.edgecolor": INK,
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
    }
    out = io.StringIO()
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # The reader's fonts draw the text; that ours lacks a letter matters only for its width.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        drawn = Figure(figsize=(WIDTH, HEIGHT), layout="constrained")
        _DRAW[figure["kind"]](drawn, figure)
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        drawn.savefig(out, format="svg", transparent=True, metadata=nothing, dpi=200)
    return _clean(out.getvalue(), prefix)


def check(figure: dict) -> None:
    """ValueError, naming the figure and the part, unless it is one of these, all numbers finite.

    {"kind": "lines", "title", "x_label", "y_label", "series": {name: [[x, y], ...]}, "marks": [[x, y, label], ...]},
    {"kind": "histogram", "title", "x_label", "edges": [n + 1], "series": {name: [n counts]}},
    {"kind": "scatter", "title", "groups": {name: [[x, y], ...]}, "links": [[x1, y1, x2, y2], ...]},
    {"kind": "bars", "title", "y_label", "bars": {name: value}},
    {"kind": "dots", "title", "y_label", "series": {name: {row: value}}}. Labels, marks and links may be missing.
    """
    title, kind = figure.get("title"), figure.get("kind")
    if kind not in _DRAW:
        raise ValueError(f"figure {title!r} is of kind {kind!r}; known: {', '.join(_DRAW)}")
    part = {"scatter": "groups", "bars": "bars"}.get(kind, "series")
    shown = figure.get(part)
    if not (isinstance(shown, dict) and shown and (kind == "bars" or all(shown.values()))):
        raise ValueError(f"figure {title!r}: {part!r} is {shown!r:.80}; wanted {{name: values}}, none of them empty")
    for name, values in shown.items():
        where = f"{part} {name!r}"
        if kind in ("lines", "scatter"):
            _check_points(title, where, values, 2)
        elif kind == "bars":
            _check_points(title, where, [[values]], 1)
        else:
            _check_points(title, where, [[v] for v in (values.values() if kind == "dots" else values)], 1)
    if kind == "histogram":
        _check_points(title, "edges", [[edge] for edge in figure["edges"]], 1)
        for name, counts in shown.items():
            if len(counts) + 1 != len(figure["edges"]):
                raise ValueError(
                    f"figure {title!r}: {name!r} has {len(counts)} bins and there are {len(figure['edges'])} edges; "
                    "wanted one edge more than bins"
                )
    _check_points(title, "marks", [mark[:2] for mark in figure.get("marks", [])], 2)
    _check_points(title, "links", figure.get("links", []), 4)


def _check_points(title: str, where: str, points: list, length: int) -> None:
    for i, point in enumerate(points):
        if len(point) != length or not all(map(is_number, point)):
            wanted = f"{length} finite numbers" if length > 1 else "a finite number"
            raise ValueError(f"figure {title!r}: {where}, entry {i} is {point!r:.80}; wanted {wanted}")


def _axes(drawn, figure: dict):
    axes = drawn.add_subplot()
    axes.set_xlabel(_text(figure.get("x_label", "")))
    axes.set_ylabel(_text(figure.get("y_label", "")))
    axes.spines[["left", "bottom"]].set_linewidth(0.6)
    return axes


def _text(text: object) -> str:
    return NOT_XML.sub("\N{REPLACEMENT CHARACTER}", str(text))


def _lines(drawn, figure: dict) -> None:
    axes = _axes(drawn, figure)
    for i, points in enumerate(figure["series"].values()):
        colour, dash, marker = style(i)
        x, y = zip(*points, strict=True)
        shown = marker if _has_markers(figure) else None
        axes.plot(x, y, color=colour, linewidth=1.6, dashes=dash or (None, None), marker=shown, ms=4)
    low, high = axes.get_xlim()
    for i, (x, y, label) in enumerate(figure.get("marks", [])):
        right = x > (low + high) / 2  # the label goes where there is room
        axes.plot([x], [y], marker="o", ms=9, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.2)
        axes.annotate(
            _text(label),
            (x, y),
            (-8 if right else 8, -16 if i % 2 else 9),
            textcoords="offset points",
            ha="right" if right else "left",
        )
    axes.margins(y=0.12)


def _has_markers(figure: dict) -> bool:
    return max(map(len, figure["series"].values())) <= MOST_MARKERS


def _histogram(drawn, figure: dict) -> None:
    axes = _axes(drawn, figure | {"y_label": "percent of its series"})
    edges, series = figure["edges"], figure["series"]
    filled = [i for counts in series.values() for i, count in enumerate(counts) if count]
    for i, counts in enumerate(series.values()):
        colour, dash, _ = style(i)
        shares = [100 * count / (sum(counts) or 1) for count in counts]
        axes.stairs(shares, edges, fill=True, color=colour, alpha=0.22)
        axes.stairs(shares, edges, color=colour, linewidth=1.4, linestyle=(0, dash) if dash else "-")
    if filled:  # empty bins at the ends are left out
        axes.set_xlim(edges[max(min(filled) - 1, 0)], edges[min(max(filled) + 2, len(edges) - 1)])
    axes.set_ylim(bottom=0)


def _scatter(drawn, figure: dict) -> None:
    axes = _axes(drawn, figure)
    many = sum(map(len, figure["groups"].values())) > MOST_POINTS
    size = 2.2 if sum(map(len, figure["groups"].values())) > 200 else 4
    for i, points in enumerate(figure["groups"].values()):
        x, y = zip(*points, strict=True)
        axes.plot(
            x, y, linestyle="none", marker=style(i).marker, ms=size, color=style(i).colour, mew=0, rasterized=many
        )
    for x1, y1, x2, y2 in figure.get("links", []):
        axes.plot([x1, x2], [y1, y2], color=INK, linewidth=1.0, marker="o", ms=4.5, mfc="none", mew=1.0)
    axes.set_aspect("equal", adjustable="datalim")
    axes.tick_params(labelbottom=False, labelleft=False)


def _rows(drawn, names: list[str], figure: dict):
    """Axes with one labelled row for each name from the top down, and room for the labels whatever their script."""
    labels = [_text(n if len(n) <= LONGEST_LABEL else n[: LONGEST_LABEL - 1] + "…") for n in names]
    height = 0.62 + 0.235 * len(labels)
    left = (0.2 + FONT / 72 * max(map(_ems, labels))) / WIDTH
    drawn.set_layout_engine("none")
    drawn.set_size_inches(WIDTH, height)
    axes = drawn.add_axes((left, 0.5 / height, 0.93 - left, 1 - 0.58 / height))
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_xlabel(_text(figure.get("y_label", "")))
    axes.grid(visible=False, axis="y")
    axes.spines[["left", "bottom"]].set_visible(False)
    return axes


def _ems(text: str) -> float:
    """About how wide a text is, in units of the font's size; our own font can't tell for letters that it lacks."""
    return sum(
        1.0 if unicodedata.east_asian_width(c) in "WF" else 0.0 if unicodedata.combining(c) else 0.58 for c in text
    )


def _bars(drawn, figure: dict) -> None:
    bars = figure["bars"]
    axes = _rows(drawn, list(bars), figure)
    axes.barh(range(len(bars)), list(bars.values()), height=0.66, color=STYLES[0].colour, alpha=0.85)
    axes.axvline(0, color=INK, linewidth=0.8)
    low, high = axes.get_xlim()  # and room for the numbers at the ends
    axes.set_xlim(low - 0.12 * (high - low) * (min(bars.values()) < 0), high + 0.06 * (high - low))
    decimals = max(len(plain(float(value)).partition(".")[2]) for value in bars.values())
    for i, value in enumerate(bars.values()):
        text = f"{value:,.{decimals}f}".replace("-", "−")
        side, ha = (-4, "right") if value < 0 else (4, "left")
        offset = {"xytext": (side, 0), "textcoords": "offset points"}
        axes.annotate(text, (value, i), **offset, ha=ha, va="center_baseline")


def _dots(drawn, figure: dict) -> None:
    series = figure["series"]
    names = list(dict.fromkeys(name for values in series.values() for name in values))
    axes = _rows(drawn, names, figure)
    axes.grid(visible=True, axis="y")
    for i, name in enumerate(names):
        ends = [values[name] for values in series.values() if name in values]
        axes.plot([min(ends), max(ends)], [i, i], color=INK, linewidth=0.8)
    for i, values in enumerate(series.values()):
        rows = [names.index(name) for name in values]
        colour, _, marker = style(i)
        axes.plot(
            list(values.values()), rows, linestyle="none", marker=marker, ms=6, color=colour, mew=0, clip_on=False
        )


_DRAW = {"lines": _lines, "histogram": _histogram, "scatter": _scatter, "bars": _bars, "dots": _dots}


def _clean(text: str, prefix: str) -> Element:
    """matplotlib's SVG without namespaces and rules for the whole page, with ids of its own and the page's colours."""
    root = ElementTree.fromstring(text)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.text, element.tail = (part.strip() or None if part else None for part in (element.text, element.tail))
        attributes = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        element.attrib.clear()
        element.attrib.update({name: _attribute(name, value, prefix) for name, value in attributes.items()})
    for element in root.iter():
        for child in [child for child in element if child.tag in ("style", "metadata")]:
            element.remove(child)
        _share_style(element)
    for name in ("width", "height", "version"):
        del root.attrib[name]
    return root


def _attribute(name: str, value: str, prefix: str) -> str:
    if name == "id":
        return prefix + value
    if name == "href":
        return f"#{prefix}{value[1:]}" if value.startswith("#") else re.sub(r"\s", "", value)  # or a picture's data
    if name == "style":
        value = re.sub(r"font-family: [^;]*;? ?", "", value)
        for stand_in, colour in PAGE_COLOURS.items():
            value = value.replace(stand_in, colour)
    return re.sub(r"\s*\n\s*", " ", value).strip().replace("url(#", f"url(#{prefix}")


def _share_style(group: Element) -> None:
    """A style that all of many children have goes to the group: half of the size of a scatter plot."""
    styles = {child.get("style") for child in group}
    if len(group) > 2 and len(styles) == 1 and None not in styles and "style" not in group.attrib:
        group.set("style", styles.pop())
        for child in group:
            del child.attrib["style"]


def description(figure: dict) -> str:
    """The figure in a sentence, for those who can't see it."""
    kind = figure["kind"]
    if kind == "bars":
        ends = sorted(figure["bars"].items(), key=lambda item: item[1])
        return f"Bars: {len(ends)}, from {_item(*ends[0])} to {_item(*ends[-1])}."
    if kind == "scatter":
        groups = ", ".join(f"{name} ({len(points):,} points)" for name, points in figure["groups"].items())
        links = f"; {len(figure['links'])} pairs of points are joined" if figure.get("links") else ""
        return f"Scatter plot: {groups}{links}."
    if kind == "histogram":
        peaks = (_peak(name, counts, figure["edges"]) for name, counts in figure["series"].items())
        return f"Histogram: {'; '.join(peaks)}."
    if kind == "dots":
        rows = {row for values in figure["series"].values() for row in values}
        return f"Dots: {len(rows)} rows, in each of them {', '.join(figure['series'])}."
    lines = "; ".join(_course(name, points) for name, points in figure["series"].items())
    marks = "".join(f"; marked: {label} at {plain(float(x))}" for x, _, label in figure.get("marks", []))
    return f"Lines: {lines}{marks}."


def _item(name: str, value: float) -> str:
    return f"{name} {plain(float(value))}"


def _peak(name: str, counts: list, edges: list) -> str:
    top = counts.index(max(counts))
    return f"{name} ({sum(counts):,}), most between {plain(float(edges[top]))} and {plain(float(edges[top + 1]))}"


def _course(name: str, points: list) -> str:
    lowest, highest = (end(points, key=lambda point: point[1]) for end in (min, max))
    ends = (f"{plain(float(y))} at {plain(float(x))}" for x, y in (lowest, highest))
    return f"{name}, {len(points)} points, lowest {next(ends)}, highest {next(ends)}"


def values(figure: dict) -> tuple[list[str], list[list]] | None:
    """(header, rows) of a table with the figure's values; None where it would be no reading."""
    if figure["kind"] == "bars":
        return ["", figure.get("y_label") or "value"], [list(item) for item in figure["bars"].items()]
    if figure["kind"] not in ("lines", "dots"):
        return None
    series = {name: dict(points) for name, points in figure["series"].items()}
    rows = list(dict.fromkeys(row for points in series.values() for row in points))
    if figure["kind"] == "lines":
        rows.sort()
    if len(rows) > MOST_ROWS:
        return None
    return [figure.get("x_label", ""), *series], [
        [row, *(points.get(row) for points in series.values())] for row in rows
    ]


def swatch(figure: dict, i: int) -> Element:
    """What series ``i`` looks like, small, for a legend."""
    kind, (colour, dash, marker) = figure["kind"], style(i)
    element = Element("svg", {"viewBox": "0 0 28 12", "aria-hidden": "true"})
    if kind == "histogram":
        box = {"x": "1", "y": "1.5", "width": "26", "height": "9"}
        SubElement(element, "rect", box | {"fill": colour, "fill-opacity": "0.22"})
    if kind in ("lines", "histogram"):
        height = "6" if kind == "lines" else "1.5"
        line = {"x1": "1", "x2": "27", "y1": height, "y2": height, "stroke": colour, "stroke-width": "2"}
        SubElement(element, "line", line | ({"stroke-dasharray": " ".join(map(str, dash))} if dash else {}))
    if kind in ("scatter", "dots") or (kind == "lines" and _has_markers(figure)):
        SubElement(element, "path", {"d": MARKERS[marker], "transform": "translate(14 6)", "fill": colour})
    return element
