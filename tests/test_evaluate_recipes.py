"""Every recipe that evaluates: it parses, its models, benchmarks and columns fit, its head says how to run it."""

import pathlib
import re

import gin
import pytest

from vmsst_jax import config
from vmsst_jax.benchmarks import columns, grid, summary

FOLDER = pathlib.Path(__file__).parents[1] / "gin"
RECIPES = sorted(f.stem for f in (FOLDER / "evaluate").glob("*.gin"))
TABLES = {f"vmsst_table{i}" for i in range(1, 9)} | {f"ccp_table{i}" for i in range(1, 7)}
TABLES |= {f"umse_table{i}" for i in range(1, 5)} | {"umse_figure1"}


@pytest.fixture(autouse=True)
def clean():
    yield
    gin.clear_config()


def read(name, *more):
    bindings = ['DATA_DIR = "data"', *(['CHECKPOINT = "model"'] if name == "all" else []), *more]
    return config.configure([f"evaluate/{name}.gin"], bindings, target=config.EVALUATE).keywords


def test_one_for_every_table():
    assert set(RECIPES) == TABLES | {"all"}


@pytest.mark.parametrize("name", RECIPES)
def test_models_benchmarks_and_columns_fit(name):
    r = read(name)
    cells = grid.plan(r["models"], r["benchmarks"], r["data_dir"], r["output"])
    assert len(cells) == len(r["models"]) * len(r["benchmarks"])
    summary.table_of(r["columns"], r["benchmarks"], r["models"], r.get("differences", {}))
    assert r["output"] == f"runs/evaluate/{name}"
    head = "\n".join(re.findall(r"^#.*", (FOLDER / "evaluate" / f"{name}.gin").read_text(), re.MULTILINE))
    assert f"--gin_file=evaluate/{name}.gin" in head and "--gin.DATA_DIR=" in head and "Needs:" in head


def test_every_table_of_columns_has_a_recipe():
    assert {read(name)["columns"] for name in RECIPES} == set(columns.TABLES)


def test_the_four_groups_of_models_of_the_papers():
    assert len(read("vmsst_table1")["models"]) == 12
    assert len(read("vmsst_table7")["models"]) == 12
    assert {m["layer"] for m in read("ccp_table1")["models"].values() if "layer" in m} == {14}
    assert {m["layer"] for m in read("umse_table3")["models"].values()} == {12}
    assert {m["layer"] for m in read("umse_table3", "LAYER = 8")["models"].values()} == {8}


def test_trained_models_are_where_their_recipes_leave_them():
    """A default such as runs/ablations/fact belongs to gin/ablations/fact.gin."""
    places = {model.get("checkpoint", "") for name in RECIPES for model in read(name)["models"].values()}
    # UMSE's models are made by other means, and a DPR by one recipe from any encoder.
    ours = {place for place in places if re.match(r"runs/(?!umse|dpr_(?!nq))", place)}
    assert len(ours) > 40
    for place in ours:
        assert (FOLDER / f"{place.removeprefix('runs/')}.gin").is_file(), place


def test_evaluating_and_training_recipes_are_not_confused():
    with pytest.raises(ValueError, match="nothing binds train.languages"):
        config.configure(["evaluate/vmsst_table3.gin"], ['DATA_DIR = "data"'])
    with pytest.raises(ValueError, match='nothing binds evaluate.benchmarks.*include "evaluate/all.gin"'):
        config.configure(["quickstart.gin"], [], target=config.EVALUATE)
    with pytest.raises(ValueError, match="no recipe given: name one, as in --gin_file=evaluate/all.gin"):
        config.configure([], [], target=config.EVALUATE)
    with pytest.raises(ValueError, match="train.seed changes nothing"):
        read("vmsst_table3", "train.seed = 1")
