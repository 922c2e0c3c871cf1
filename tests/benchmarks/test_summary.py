"""Columns, groups and means of a table, by hand (METHODS 5.8)."""

import pytest

from vmsst_jax.benchmarks import columns, summary
from vmsst_jax.benchmarks.columns import Column, Layout


@pytest.fixture
def layouts(monkeypatch):
    """Two tables: one in groups, one with a contrast."""
    groups = {
        "similarity": [Column(n, "STS", ("means", m, "pearson")) for n, m in (("Eng.", "English"), ("XL", "XL"))],
        "bitext": [Column("Tatoeba", "Tatoeba")],
    }  # fmt: skip
    seen = [Column(name, "Tatoeba", ("means", name, "mean")) for name in ("seen", "unseen")]
    monkeypatch.setattr(
        columns,
        "TABLES",
        {"main": Layout(groups, overall=True), "unseen": Layout({"": seen}, contrast=("unseen", "seen"))},
    )


def tatoeba(every, seen=None, unseen=None):
    means = {"all": {"xx->en": 0.0, "mean": every}, "seen": {"mean": seen}, "unseen": {"mean": unseen}}
    return {"means": means, "scores": ["xx->en", "mean"], "per_language": {}}


STS = {"means": {"English": {"pearson": 0.6}, "XL": {"pearson": 0.8}}, "scores": ["pearson"], "per_language": {}}


def test_scores_in_lists_are_named_by_their_place():
    result = {"layers": [{"accuracy": 0.25}, {"accuracy": 0.5}]}
    assert columns.score(Column("one", "psm", ("layers", "1", "accuracy")), result) == 0.5
    with pytest.raises(KeyError, match="no layers/2; there is 0, 1"):
        columns.score(Column("two", "psm", ("layers", "2", "accuracy")), result)


def test_group_and_overall_means(layouts):
    table = summary.table_of("main", ["STS", "Tatoeba"], ["A", "B"], {})
    results = {("A", "STS"): STS, ("A", "Tatoeba"): tatoeba(0.9), ("B", "STS"): STS}
    rows = summary.rows(table, results)
    assert rows.values["A"] == pytest.approx(
        {"Eng.": 0.6, "XL": 0.8, "Tatoeba": 0.9, "mean of similarity": 0.7, "mean of bitext": 0.9}
        | {"overall": 0.8, "flat mean": 2.3 / 3}
    )
    # Without one of its columns a mean would be of other tasks than the row above.
    b = rows.values["B"]
    assert (b["Tatoeba"], b["mean of bitext"], b["overall"], b["flat mean"]) == (None,) * 4
    assert b["mean of similarity"] == pytest.approx(0.7)
    text = summary.text(rows).splitlines()
    assert text[0].split()[:4] == ["model", "Eng.", "XL", "Tatoeba"]
    assert text[2].split() == ["B", "60.0", "80.0", "-", "70.0", "-", "-", "-"]
    assert list(summary.rows(table.without({"Tatoeba"}), results).values["A"]) == [
        "Eng.", "XL", "mean of similarity", "overall", "flat mean"
    ]  # fmt: skip


def test_the_gain_in_unseen_over_seen_languages(layouts):
    """VMSST's Table 8."""
    table = summary.table_of("unseen", ["Tatoeba"], ["VMSST", "BiTranslation"], {"gain": ("VMSST", "BiTranslation")})
    results = {
        ("VMSST", "Tatoeba"): tatoeba(0.5, seen=0.8, unseen=0.4),
        ("BiTranslation", "Tatoeba"): tatoeba(0.5, seen=0.7, unseen=0.2),
    }
    gain = summary.rows(table, results).values["gain"]
    assert gain == pytest.approx({"seen": 0.1, "unseen": 0.2, "unseen - seen": 0.1})


def test_a_score_that_a_result_lacks_is_named(layouts):
    table = summary.table_of("main", ["STS", "Tatoeba"], ["A"], {})
    del (lacks := {**STS, "means": dict(STS["means"])})["means"]["XL"]
    rows = summary.rows(table, {("A", "STS"): lacks, ("A", "Tatoeba"): tatoeba(0.9)})
    assert rows.values["A"]["XL"] is None and rows.values["A"]["overall"] is None
    assert rows.lacking == {"A x STS, column XL": "no means/XL; there is English"}


def test_without_a_table_each_benchmark_shows_its_main_score():
    table = summary.table_of(None, ["Tatoeba", "STS"], ["A"], {})
    rows = summary.rows(table, {("A", "STS"): STS, ("A", "Tatoeba"): tatoeba(0.9)})
    assert rows.values["A"] == pytest.approx({"Tatoeba": 0.9, "STS": 0.6})  # no mean of accuracy and correlation
    assert not table.own and summary.table_of(None, ["STS"], ["A", "B"], {"gain": ("A", "B")}).own


def test_many_columns_go_down(monkeypatch):
    many = Layout({"": [Column(f"c{i}", "T") for i in range(20)]})
    monkeypatch.setattr(columns, "TABLES", {"many": many})
    rows = summary.rows(summary.table_of("many", ["T"], ["A", "B"], {}), {("A", "T"): tatoeba(0.5)})
    lines = summary.text(rows).splitlines()
    assert lines[0].split() == ["score", "A", "B"] and lines[3].split() == ["c2", "50.0", "-"]


def test_what_does_not_fit(layouts):
    for arguments, message in (
        (("mian", ["STS"], ["A"], {}), "there is no table 'mian'; did you mean main?"),
        (("main", ["STS"], ["A"], {}), "the table main has columns of Tatoeba; benchmarks are STS"),
        ((None, ["STS"], ["A"], {"gain": ("A", "B")}), "difference 'gain' is of .*wanted two of the models A"),
    ):
        with pytest.raises(ValueError, match=message):
            summary.table_of(*arguments)


def test_every_table_has_columns_of_different_names():
    for name, layout in columns.TABLES.items():
        names = [column.name for group in layout.groups.values() for column in group]
        assert len(set(names)) == len(names) > 0, name
        assert layout.contrast is None or set(layout.contrast) <= set(names), name
