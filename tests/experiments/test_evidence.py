"""The figures in docs/evidence.md and docs/umse.md are those of the tables that the experiments wrote."""

import json
import re
from pathlib import Path

import pytest

from vmsst_jax import config
from vmsst_jax.experiments import table

ROOT = Path(__file__).parents[2]
LINES = (ROOT / "docs" / "evidence.md").read_text("utf-8").splitlines()
FOUND = json.loads((ROOT / "docs" / "evidence" / "vmsst.json").read_text("utf-8"))


@pytest.fixture
def experiment():
    return config.configure(["experiments/vmsst.gin"], ["DATA_DIR = 'data'"], target=config.EXPERIMENT)()


def claims():
    """(differences, figures, rows) of every claim that was tried, from its line in the table of claims."""
    for line in LINES:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 5 and cells[1].startswith("`"):
            labels = [part.strip("`") for part in cells[1].split("<br>")]
            rows = [part.strip("`") for part in cells[4].split("`, `")]
            yield pytest.param(labels, cells[2].split("<br>"), rows, id=cells[0][:40])


def figure(label: str, score: str) -> str:
    return table.cell(FOUND["differences"][label][score], score in FOUND["plain"], sign=True)


@pytest.mark.parametrize(("labels", "figures", "rows"), list(claims()))
def test_figures_are_those_of_the_table(labels, figures, rows):
    assert len(labels) == len(figures)
    for label, shown in zip(labels, figures, strict=True):
        for part in shown.split("; "):
            score = max((name for name in FOUND["scores"] if part.startswith(f"{name} ")), key=len)
            assert part == f"{score} {figure(label, score)}"


def test_figures_of_what_was_changed_are_those_of_the_table():
    tables = [[cell.strip() for cell in line.strip("|").split("|")] for line in LINES if line.startswith("| ")]
    begin = next(i for i, cells in enumerate(tables) if cells[0] == "changed")
    names, rows = tables[begin][2:], [cells for cells in tables[begin + 1 :] if len(cells) == len(tables[begin])]
    assert len(rows) == 6
    for _, label, *shown in rows:
        assert shown == [figure(label.strip("`"), name) for name in names]


def test_differences_in_the_text_are_in_the_table():
    known = {figure(label, score) for label, found in FOUND["differences"].items() for score in found}
    told = re.findall(r"[+-][\d.]+ ± [\d.]+ \(\d of \d\)", " ".join(LINES))
    assert len(told) > 200 and set(told) <= known


@pytest.mark.parametrize(("labels", "figures", "rows"), list(claims()))
def test_the_rows_of_a_claim_are_those_that_its_differences_need(labels, figures, rows, experiment):
    assert set(rows) == {row for label in labels for row in experiment.differences[label]}


def test_every_claim_is_there():
    assert len(list(claims())) == 19  # and two that want mT5


def test_the_table_is_whole(experiment):
    assert FOUND["notes"] == []
    assert list(FOUND["rows"]) == list(experiment.rows) and list(FOUND["differences"]) == list(experiment.differences)
    for row, scores in FOUND["rows"].items():
        assert {found["n"] for found in scores.values() if found} == {len(experiment.rows[row].seeds)}, row


UMSE = json.loads((ROOT / "docs" / "evidence" / "umse.json").read_text("utf-8"))
LAYERS = {"English and German": "pair", "Czech and French": "others"}


def umse_tables():
    """The cells of the tables in docs/umse.md's last section, without the dashes beneath the head."""
    text = (ROOT / "docs" / "umse.md").read_text("utf-8").split("\n## Does it help")[1]
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.splitlines()]
        yield [rows[0], *rows[2:]]


def shown(row: str, score: str) -> str:
    if row.startswith("`"):
        return table.cell(UMSE["differences"][row.strip("`")][score], score in UMSE["plain"], sign=True)
    return table.cell(UMSE["rows"][row][score], score in UMSE["plain"]).rsplit(" (", 1)[0]


def test_umses_figures_are_those_of_the_table():
    layers, main, *_ = umse_tables()
    assert layers[0] == ["layer", "0", "1", "2", "3", "4"] and len(layers) == 1 + 2 * 5
    for name, *cells in layers[1:]:
        group, row = name.split(", ", 1)
        assert cells == [shown(row, f"{LAYERS[group]} {i}") for i in range(5)], name
    assert {row for row, *_ in main[1:]} == {*UMSE["rows"], *(f"`{name}`" for name in UMSE["differences"])}
    for row, *cells in main[1:]:
        assert cells == [shown(row, score) for score in main[0][1:]], row


def test_umses_table_is_whole():
    given = ["DATA_DIR = 'data'", "PAIRS = ['a.tsv']"]
    experiment = config.configure(["experiments/umse.gin"], given, target=config.EXPERIMENT)()
    assert UMSE["notes"] == []
    assert list(UMSE["rows"]) == list(experiment.rows) and list(UMSE["differences"]) == list(experiment.differences)
    for row, scores in UMSE["rows"].items():
        assert {found["n"] for found in scores.values()} == {len(next(iter(experiment.rows.values())).seeds)} == {3}, (
            row
        )
