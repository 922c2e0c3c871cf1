"""The page read back by Python's own HTML parser: what it says is what the results say."""

import json
import re
from html.parser import HTMLParser

import pytest

from vmsst_jax.benchmarks import html_report, html_tables

VOID = {"br", "meta"}


class Page(HTMLParser):
    """Tables by label: [[cell text]] with the heading first; everything else a test asks for."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.tables, self.attributes = [], [], {}, []
        self.text, self.figures, self.classes = "", [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.tags.append(tag)
        self.attributes.append(attributes)
        if tag not in VOID:
            self.open.append(tag)
        if attributes.get("class") == "scroll":
            self.rows = self.tables.setdefault(attributes["aria-label"], [])
            assert self.rows == [], "two tables of one label"
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.classes.append(attributes.get("class") or "")
        if attributes.get("role") == "img":
            self.figures.append(attributes["aria-label"])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text += data
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def result(scores, *, fingerprint="aaa", sha256="0" * 64, **changes):
    """A result like those of Tatoeba; ``scores`` {language: (xx->en, en->xx)}."""
    names = ("xx->en", "en->xx", "mean")
    rows = {
        code: {"pairs": 1000, "seen": code != "war", **dict(zip(names, (a, b, (a + b) / 2), strict=True))}
        for code, (a, b) in scores.items()
    }
    means = {name: sum(row[name] for row in rows.values()) / len(rows) for name in names}
    return {
        "benchmark": "tatoeba",
        "data": {"directory": "data", "sha256": sha256, "distinct_sentences": 12345},
        "split": "test",
        "direction": list(names),
        "scoring": "cosine, accuracy",
        "index": {"kind": "exact", "recall": 1.0},
        "scores": list(names),
        "per_language": rows,
        "means": {"all": {"languages": len(rows), **means}, "none": {"languages": 0, **dict.fromkeys(names)}},
        "model": {
            "directory": "/m/e5/checkpoints/7",
            "step": 7,
            "layer": None,
            "pooling": "mean",
            "prefix": "query: ",
            "fingerprint": fingerprint,
        },  # fmt: skip
        "sentences": {"sentences": 12345, "empty": 0, "truncated": 3},
        "versions": {"vmsst_jax": "0.1.0", "jax": "0.10.2"},
        **changes,
    }


@pytest.fixture
def saved(tmp_path):
    """Function (name, result) -> the path of its results.json."""

    def save(name, contents):
        path = tmp_path / name / "results.json"
        path.parent.mkdir()
        path.write_text(contents if isinstance(contents, str) else json.dumps(contents), encoding="utf-8")
        return path

    return save


LINES = {
    "kind": "lines",
    "title": "layers $x_1$",
    "x_label": "層",
    "series": {"a": [[0, 20], [1, 40.5]], "_b": [[0, 1], [1, 2]]},
    "marks": [[1, 40.5, "best <&>"]],
}
FIGURES = [
    LINES,
    {"kind": "histogram", "title": "h", "edges": [0, 0.5, 1], "series": {"gold": [1, 3], "random": [4, 0]}},
    {"kind": "scatter", "title": "p", "groups": {"de": [[0, 0], [1, 2]], "עברית": [[2, 1]]}, "links": [[0, 0, 2, 1]]},
    {"kind": "bars", "title": "b", "y_label": "F1", "bars": {"<b>& 中文": 81.25, "العربية": -2}},
    {"kind": "dots", "title": "d", "y_label": "F1", "series": {"m": {"x": 1, "y": 2}, "n": {"x": 3}}},
]


def test_one_result_is_a_table_of_all_its_scores():
    page = Page(html_report.page([result({"deu": (0.9, 0.95), "war": (0.25, 0.15), "fra": (0.5, 0.625)})]))
    assert page.tables["tatoeba: scores row by row"] == [
        ["language", "name", "mean", "xx->en", "en->xx", "pairs", "seen", "family", "script"],
        ["deu", "German", "92.5", "90.0", "95.0", "1,000", "yes", "Germanic", "Latin"],
        ["fra", "French", "56.2", "50.0", "62.5", "1,000", "yes", "Romance", "Latin"],
        ["war", "Waray", "20.0", "25.0", "15.0", "1,000", "no", "Austronesian", "Latin"],
    ]
    assert page.tables["tatoeba: means"] == [
        ["mean of", "number", "mean", "xx->en", "en->xx"],
        ["all", "3", "56.2", "55.0", "57.5"],
    ]
    facts = {row[0]: row[1] for row in page.tables["tatoeba: how these numbers were made"]}
    assert facts["index"] == "exact, recall 1" and facts["prefix"] == "query: " and facts["pooling"] == "mean"
    assert facts["sentences"] == "12,345 sentences, 0 empty, 3 truncated" and "jax 0.10.2" in facts["versions"]
    assert facts["fingerprint"] == "aaa"
    for words in ("tatoeba, split test", "cosine, accuracy", f"sha256 {'0' * 64}", "12,345 distinct sentences"):
        assert words in page.text


def test_the_page_needs_nothing_else_and_works_without_script():
    text = html_report.page([result({"deu": (0.9, 0.9)}) | {"figures": FIGURES}])
    page = Page(text)
    assert page.tags.count("html") == page.tags.count("main") == page.tags.count("h1") == page.tags.count("script") == 1
    assert not {"link", "iframe", "img", "object"} & set(page.tags)
    for attributes in page.attributes:
        for name in ("src", "href", "xlink:href", "action"):
            assert attributes.get(name, "#").startswith("#")
    assert not re.search(r"https?://|url\((?!#)|@import", text)
    ids = [a["id"] for a in page.attributes if "id" in a]
    assert len(ids) == len(set(ids))
    used = {a["href"][1:] for a in page.attributes if "href" in a} | set(re.findall(r"url\(#([^)]*)\)", text))
    assert used <= set(ids)
    viewport = {a.get("name"): a.get("content") for a in page.attributes}["viewport"]
    assert viewport == "width=device-width, initial-scale=1"
    assert "button" not in page.tags  # the script makes them


def test_models_side_by_side_with_differences_and_the_best_in_bold():
    first = result({"deu": (0.9, 0.9), "fra": (0.5, 0.5)}, cell={"model": "ours", "benchmark": "Tatoeba"})
    cell = {"model": "theirs", "benchmark": "Tatoeba"}
    second = result({"deu": (0.8, 0.8), "fra": (0.75, 0.75)}, fingerprint="b", cell=cell)
    text = html_report.page([first, second])
    page = Page(text)
    assert page.tables["Tatoeba: scores row by row"][:3] == [
        ["language", "name", "ours", "theirs", "difference", "pairs", "seen", "family", "script"],
        ["deu", "German", "90.0", "80.0", "−10.0", "1,000", "yes", "Germanic", "Latin"],
        ["fra", "French", "50.0", "75.0", "+25.0", "1,000", "yes", "Romance", "Latin"],
    ]
    assert page.tables["Main score of each benchmark, mean"][1:] == [["ours", "70.0"], ["theirs", "77.5"]]
    assert re.findall(r"<strong>(.*?)</strong>", text) == ["77.5"]
    assert page.tables["Tatoeba, ours: scores row by row"][1][2:5] == ["90.0", "90.0", "90.0"]
    index = next(row for row in page.tables["Tatoeba: how these numbers were made"] if row[0] == "index")
    assert index == ["index", "exact, recall 1"]  # said once for both


def test_several_protocols_and_missing_cells():
    a = result({"deu": (0.9, 0.9)}, cell={"model": "A", "benchmark": "t"})
    other = result({"deu": (0.7, 0.7)}, sha256="12345678" + "0" * 56, cell={"model": "A", "benchmark": "t"})
    summary = {
        "columns": ["t", "overall"],
        "rows": {"A": {"t": 0.9, "overall": 0.85}, "B": {"t": None, "overall": None}},
        "missing": {"B x t": "ValueError: line 3 is <empty>"},
        "no data": {},
    }
    page = Page(html_report.page([a, other], summary=summary))
    header, *rows = page.tables["Main score of each benchmark, mean"]
    assert header == ["model", "t, data 00000000mean", "t, data 12345678mean"] and rows == [["A", "90.0", "70.0"]]
    assert page.tables["The recipe's own table"] == [
        ["model", "t", "overall"], ["A", "90.0", "85.0"], ["B", "missing", "–"]
    ]  # fmt: skip
    assert "ValueError: line 3 is <empty>" in page.text
    # Without a recipe's table there is no section of it; what no model has data for is said once.
    summary |= {"own table": False, "no data": {"A x u": "no folder u", "B x u": "no folder u"}}
    page = Page(html_report.page([a, other], summary=summary))
    assert "The recipe's own table" not in page.tables and page.text.count("no folder u") == 1


def test_runs_need_one_protocol_in_common():
    ratio, distance = (result({"deu": (0.9, 0.9)}, scoring=scoring) for scoring in ("ratio", "distance"))
    psm = result({"deu": (0.9, 0.9)}, benchmark="psm")
    html_report.check_runs([[ratio, distance], [distance, ratio, psm], [psm]])
    with pytest.raises(ValueError, match='scoring "distance" against "ratio"'):
        html_report.check_runs([[ratio, psm], [psm, distance]])


def test_models_are_told_apart_by_what_differs():
    e5 = {"origin": {"path": "/models/e5"}, "step": 0, "layer": None, "prefix": "query: ", "fingerprint": "1"}
    scores = {"deu": (0.9, 0.9)}
    results = [
        result(scores, model=e5),
        result(scores, model=e5 | {"layer": 8, "prefix": "", "fingerprint": "2"}),
        result(scores),
        result(scores, model={"kind": "ready vectors", "files": ["/x/mine.npy"], "fingerprint": "4"}),
        result(scores, model=e5),
    ]
    header = Page(html_report.page(results)).tables["tatoeba: how these numbers were made"][0]
    short, at_8 = 'e5 (prefix "query: ")', "e5 (layer 8, no prefix)"
    assert header[1:] == [short, at_8, "e5 step 7", "mine", f"{short} #2"]


def test_names_cannot_become_markup():
    bad = '</script><script>alert(1)</script><b onload="x">&amp;\u202e\ud800'
    shown = result({"deu": (0.9, 0.9), bad: (0.5, 0.5)}, cell={"model": bad, "benchmark": bad}, scoring=bad)
    shown["figures"] = [figure | {"title": f"{bad}{i}", "y_label": bad} for i, figure in enumerate(FIGURES)]
    shown["figures"].append({"kind": "bars", "title": "", "bars": {bad[-3:]: 1}})
    page = Page(html_report.page([shown], title=bad).encode("utf-8", "backslashreplace").decode())
    assert page.tags.count("script") == 1 and "b" not in page.tags
    escaped = bad.replace("\ud800", "\\ud800")
    assert page.text.count(escaped) >= 8
    assert any(row[0] == escaped for row in page.tables[f"{escaped}: scores row by row"])


def test_every_kind_of_figure():
    page = Page(html_report.page([result({"deu": (0.9, 0.9)}) | {"figures": FIGURES}]))
    assert page.figures == [
        "layers $x_1$. Lines: a, 2 points, lowest 20 at 0, highest 40.5 at 1; "
        "_b, 2 points, lowest 1 at 0, highest 2 at 1; marked: best <&> at 1.",
        "h. Histogram: gold (4), most between 0.5 and 1; random (4), most between 0 and 0.5.",
        "p. Scatter plot: de (2 points), עברית (1 points); 1 pairs of points are joined.",
        "b. Bars: 2, from العربية −2 to <b>& 中文 81.25.",
        "d. Dots: 2 rows, in each of them m, n.",
    ]
    assert page.tags.count("figure") == 5
    for words in ("best <&>", "層", "$x_1$", "_b", "עברית", "<b>& 中文", "−2.00", "81.25"):
        assert words in page.text
    assert page.tables["layers $x_1$"] == [["層", "a", "_b"], ["0", "20", "1"], ["1", "40.5", "2"]]


def test_bars_by_family_and_script_and_curves_of_several_models_in_one_figure():
    shares = {"deu": 0.9, "nld": 0.7, "fra": 0.6, "rus": 0.5, "ukr": 0.4, "bul": 0.3, "jpn": 0.2}
    layers = {"kind": "lines", "title": "by layer", "x_label": "layer", "series": {"accuracy": [[0, 1], [1, 2]]}}
    a, b = ({"name": name, "fingerprint": name} for name in "AB")
    one = result({code: (x, x) for code, x in shares.items()}, model=a, figures=[layers])
    page = Page(html_report.page([one]))
    assert page.tables["By family (number of languages): mean"][1:] == [
        ["Germanic (2)", "80"], ["Romance (1)", "60"], ["Slavic (3)", "40"], ["Japonic (1)", "20"]
    ]  # fmt: skip
    assert page.tables["By script (number of languages): mean"][1] == ["Latin (3)", "73.3"]
    assert len(page.figures) == 3
    other = {**layers, "series": {"accuracy": [[0, 3], [1, 5]]}}
    two = result({code: (x / 2, x / 2) for code, x in shares.items()}, model=b, figures=[other])
    page = Page(html_report.page([one, two]))
    assert page.tables["By family (number of languages): mean"][:2] == [["", "A", "B"], ["Germanic (2)", "80", "40"]]
    assert page.tables["by layer"] == [["layer", "A", "B"], ["0", "1", "3"], ["1", "2", "5"]]
    assert len(page.figures) == 3


def test_directions_become_a_matrix():
    shares = {"cs->de": 0.5, "de->cs": 0.6, "cs->en": 0.7, "en->cs": 0.8, "de->en": 0.9, "en->de": 1.0}
    rows = {key: {"accuracy": x} for key, x in shares.items()}
    psm = result({"deu": (0.9, 0.9)}) | {
        "per_language": rows,
        "means": {"all": {"accuracy": 0.75}},
        "scores": ["accuracy"],
    }
    page = Page(html_report.page([psm]))
    assert page.tables["tatoeba: matrix"] == [
        ["", "cs", "de", "en"], ["cs", "–", "50.0", "70.0"], ["de", "60.0", "–", "90.0"], ["en", "80.0", "100.0", "–"]
    ]  # fmt: skip
    assert page.tables["tatoeba: scores row by row"][1][:2] == ["en->de", "English → German"]


def test_results_from_before_scores_were_named(saved):
    old = result({"deu": (0.9, 0.95), "fra": (0.5, 0.5)})
    del old["scores"]
    page = Page(html_report.page(html_report.read_results([saved("old", old).parent])))
    assert page.tables["tatoeba: scores row by row"][1][:5] == ["deu", "German", "92.5", "90.0", "95.0"]
    assert page.tables["Main score of each benchmark, mean"][1] == ["e5 step 7", "71.2"]


def test_scores_that_are_missing_negative_or_no_shares():
    rows = {"a": {"gap": -0.0001, "rho": -0.25, "t": 1.0632}, "b": {"gap": 0.1, "rho": None, "t": None}}
    means = {"all": {"languages": 2, "gap": None, "rho": None, "t": None}}
    changes = {"scores": ["gap", "rho"], "numbers": ["t"], "per_language": rows, "means": means}
    page = Page(html_report.page([result({"deu": (0.9, 0.9)}) | changes]))
    assert page.tables["tatoeba: scores row by row"] == [
        ["set", "rho", "gap", "t"], ["a", "−25.0", "0.0", "1.063"], ["b", "–", "10.0", "–"]
    ]  # fmt: skip


def test_shades_follow_the_scores_and_can_be_read():
    shades = [html_tables.shade(x, 0.2, 0.7) for x in (0.1, 0.2, 0.449, 0.451, 0.7, None)]
    assert shades == ["s0", "s0", "s4", "s5", "s9", ""]
    assert html_tables.shade(0.5, 0.5, 0.5) == ""
    css = html_report.page([result({"deu": (0.9, 0.9)})]).split("</style>")[0]
    light, dark = (dict(re.findall(r"--(\w+): #(\w{6})", block)) for block in re.findall(r":root \{(.*?)\}", css, re.S))

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a, b):
        low, high = sorted((luminance(a), luminance(b)))
        return (high + 0.05) / (low + 0.05)

    for colours in (light, dark):
        assert min(contrast(colours["ink"], colours[ground]) for ground in ("paper", "pale", "deep")) >= 5
        assert min(contrast(colours[text], colours["paper"]) for text in ("muted", "link", "more", "less")) >= 4.5


def test_results_of_another_protocol_are_refused(saved):
    first = saved("a", result({"deu": (0.9, 0.9)}))
    same = saved("same", result({"deu": (0.5, 0.5)}, fingerprint="b"))
    html_report.check_comparable(html_report.read_results([first, same]))
    for i, (change, message) in enumerate(
        (
            ({"benchmark": "psm"}, 'benchmark "psm" against "tatoeba"'),
            ({"data": {"sha256": "f00"}}, f'data checksum "f00" against "{"0" * 64}"'),
            ({"split": "dev"}, 'split "dev" against "test"'),
            ({"direction": "en->xx"}, 'direction "en->xx" against ["xx->en", "en->xx", "mean"]'),
            ({"scoring": "margin"}, 'scoring "margin" against "cosine, accuracy"'),
        )
    ):
        other = saved(str(i), result({"deu": (0.5, 0.5)}) | change)
        with pytest.raises(ValueError) as error:
            html_report.check_comparable(html_report.read_results([first, other]))
        assert str(error.value) == (
            f"{other} is of another protocol than {first}: {message}; "
            "compare results of the same benchmark, data and options"
        )


def test_files_that_are_no_results(saved, tmp_path):
    def fails(error, match, path):
        with pytest.raises(error, match=match):
            html_report.read_results([path])

    fails(FileNotFoundError, "there is no file .*nowhere", tmp_path / "nowhere")
    fails(ValueError, r"b.results.json, line 2: this is no JSON", saved("b", '{"benchmark":\n,'))
    fails(ValueError, r"c.results.json is no result .* no proper benchmark, data", saved("c", "[1]"))
    no_means = result({"deu": (0.9, 0.9)})
    del no_means["means"]
    fails(ValueError, "d.results.json is no result .* no proper means;", saved("d", no_means))
    fails(ValueError, "sha256 in its data", saved("e", result({"deu": (0.9, 0.9)}) | {"data": {}}))
    fails(ValueError, "f.results.json holds NaN", saved("f", result({"deu": (float("nan"), 0.9)})))


def test_nothing_is_shown_over_nothing(tmp_path):
    good = result({"deu": (0.9, 0.9)})
    for results, match in (
        ([], "no results to show"),
        ([good | {"per_language": {}}], "no scores per language"),
        ([good | {"per_language": {"deu": {"mean": "high"}}}], "the score mean of deu is 'high'; wanted a number"),
        ([good | {"scores": None, "per_language": {"deu": {"pairs": 3}}}], "has no scores; evaluate again"),
    ):
        with pytest.raises(ValueError, match=match):
            html_report.write_page(tmp_path / "report.html", results)
    assert not list(tmp_path.iterdir())


def test_a_figure_that_cannot_be_drawn_names_benchmark_and_model():
    shown = [result({"deu": (0.9, 0.9)}, model={"name": n, "fingerprint": n}, figures=[{"kind": "pie"}]) for n in "AB"]
    with pytest.raises(ValueError, match="^tatoeba, A: figure None is of kind 'pie'"):
        html_report.page(shown)


def test_the_page_replaces_an_older_one(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("old")
    html_report.write_page(path, [result({"deu": (0.9, 0.9)})], title="Results")
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>") and "<title>Results</title>" in path.read_text("utf-8")
    assert list(tmp_path.iterdir()) == [path]
