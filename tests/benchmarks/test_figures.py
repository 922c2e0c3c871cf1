import re

import pytest

from vmsst_jax.benchmarks import figures

FIGURES = {
    "lines": {"series": {"a": [[0, 20], [1, 40.5]], "_b": [[0, 1], [1, 2]]}, "marks": [[1, 40.5, "$x_1$ <&>"]]},
    "histogram": {"edges": [0, 0.5, 1], "series": {"gold": [1, 3], "random": [4, 0]}},
    "scatter": {"groups": {"de": [[0, 0], [1, 2]], "he": [[2, 1]]}, "links": [[0, 0, 2, 1]]},
    "bars": {"bars": {"中文 <b>": 81.25, "العربية": -2}},
    "dots": {"series": {"m": {"x": 1, "y": 2}, "n": {"x": 3}}},
}


def texts(picture):
    return [text.text for text in picture.iter("text")]


def points(path):
    """The corners of a path, [(x, y)]."""
    return [(float(x), float(y)) for x, y in re.findall(r"[ML] ([\d.]+) ([\d.]+)", path.get("d"))]


@pytest.mark.parametrize("kind", FIGURES)
def test_the_same_figure_gives_the_same_bytes_with_ids_of_its_own(kind, recwarn):
    from xml.etree import ElementTree

    figure = {"kind": kind, "title": "t", **FIGURES[kind]}
    once, again, other = (ElementTree.tostring(figures.svg(figure, prefix)) for prefix in ("p", "p", "q"))
    assert once == again != other
    ids = [re.findall(rb'id="([^"]*)"', text) for text in (once, other)]
    assert len(set(ids[0])) == len(ids[0]) and not set(ids[0]) & set(ids[1])
    assert b"<style" not in once and b"DejaVu" not in once and b"http" not in once
    assert figures.INK.encode() not in once and figures.GRID.encode() not in once
    assert not recwarn.list  # letters that our font lacks are the reader's fonts' business


def test_text_stays_text():
    lines, bars = (figures.svg({"kind": kind, "title": "t", **FIGURES[kind]}, "p") for kind in ("lines", "bars"))
    assert "$x_1$ <&>" in texts(lines)
    assert {"中文 <b>", "العربية", "81.25", "−2.00"} <= set(texts(bars))


def test_bars_are_as_long_as_their_values():
    picture = figures.svg({"kind": "bars", "title": "t", "bars": {"x": 10, "y": 40, "z": -20}}, "p")
    bars = [points(path) for path in picture.iter("path") if "opacity: 0.85" in path.get("style", "")]
    widths = [max(x for x, _ in bar) - min(x for x, _ in bar) for bar in bars]
    assert [width / widths[0] for width in widths] == pytest.approx([1, 4, 2], rel=1e-4)
    assert bars[0][0][1] < bars[1][0][1]  # the first is on top


def test_a_line_goes_through_its_points():
    figure = {"kind": "lines", "title": "t", "series": {"a": [[0, 0], [1, 30], [3, 10]]}}
    picture = figures.svg(figure, "p")
    (line,) = [points(p) for p in picture.iter("path") if "stroke-width: 1.6" in p.get("style", "")]
    (x0, y0), (x1, y1), (x2, y2) = line
    assert (x2 - x0) / (x1 - x0) == pytest.approx(3, rel=1e-4) and (y0 - y1) / (y0 - y2) == pytest.approx(3, rel=1e-4)


def test_many_points_become_a_picture():
    many = {"kind": "scatter", "title": "many", "groups": {"x": [[i % 70, i // 70] for i in range(5000)]}}
    picture = figures.svg(many, "p")
    (image,) = picture.iter("image")
    assert image.get("href").startswith("data:image/png;base64,") and len(list(picture.iter("use"))) < 100


def test_values_as_a_table():
    assert figures.values({"kind": "bars", "y_label": "F1", "bars": {"a": 1}}) == (["", "F1"], [["a", 1]])
    lines = {"kind": "lines", "x_label": "layer", "series": {"a": [[2, 5], [1, 4]], "b": [[1, 3]]}}
    assert figures.values(lines) == (["layer", "a", "b"], [[1, 4, 3], [2, 5, None]])
    assert figures.values({"kind": "lines", "series": {"a": [[i, i] for i in range(1000)]}}) is None
    assert figures.values({"kind": "scatter", **FIGURES["scatter"]}) is None


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ({"kind": "pie"}, "of kind 'pie'; known: lines, histogram, scatter, bars, dots"),
        ({"kind": "lines", "series": {}}, "'series' is {}; wanted"),
        ({"kind": "lines", "series": {"a": []}}, "none of them empty"),
        (
            {"kind": "lines", "series": {"a": [[0, 1], [1, None]]}},
            r"series 'a', entry 1 is \[1, None\]; wanted 2 finite",
        ),
        ({"kind": "scatter", "groups": {"a": [[0, float("inf")]]}}, "groups 'a', entry 0"),
        ({"kind": "bars", "bars": {"a": True}}, "bars 'a', entry 0 is .*; wanted a finite number"),
        ({"kind": "histogram", "edges": [0, 1], "series": {"a": [1, 2]}}, "'a' has 2 bins and there are 2 edges"),
        ({"kind": "scatter", "groups": {"a": [[0, 1]]}, "links": [[0, 1, 2]]}, "links, entry 0 .*4 finite numbers"),
    ],
)
def test_figures_that_cannot_be_drawn(figure, message):
    with pytest.raises(ValueError, match=rf"^figure 'F'.*{message}"):
        figures.svg({"title": "F", **figure}, "p")
