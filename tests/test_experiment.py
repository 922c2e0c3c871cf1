"""The command, its recipes, and what makes a configuration another one."""

import pathlib
import re

import gin
import pytest

from vmsst_jax import command, config, experiment
from vmsst_jax.experiments import cells, driver, matrix, processes
from vmsst_jax.training.same_config import bindings, expanded

FOLDER = pathlib.Path(__file__).parents[1] / "gin"


@pytest.fixture
def clean():
    yield
    gin.clear_config()


RECIPE = """
include "include/experiment.gin"
OUTPUT = "out"
experiment.seeds = [7]
experiment.rows = {"one": {"recipe": "quickstart_contrastive.gin", "bindings": [{"TRAIN_STEPS": %N}, %OTHER]}}
OTHER = {"OBJECTIVE": "@vmsst()"}
experiment.scores = {"found": ["training", "evaluation", "retrieval"]}
N = 3
"""


def test_the_command(tmp_path, capsys, clean, monkeypatch):
    """A binding that doesn't hold is an error that names the row; a failing cell makes the exit code 1."""
    monkeypatch.chdir(tmp_path)
    ran = []

    def fails(log, arguments, lock):
        ran.append(arguments)
        raise processes.Failed("train: no memory")

    monkeypatch.setattr(processes, "run", fails)

    def main(*flags):
        with pytest.raises(SystemExit) as ended:
            command.run(experiment.NAME, experiment.main, ["--gin_file=mine.gin", *flags])
        return ended.value.code

    (tmp_path / "mine.gin").write_text(RECIPE)
    assert main("--gin.N=4") == 1
    shown = capsys.readouterr()
    assert "failed: one, seed 7: train: no memory" in shown.err and "1 cells failed; the same command" in shown.err
    assert "Missing (train: no memory): one, seed 7." in shown.out
    ((name, *flags),) = ran
    assert name == "vmsst_jax.train" and "--gin_file=quickstart_contrastive.gin" in flags
    for binding in ("OBJECTIVE = @vmsst()", "TRAIN_STEPS = 4", "train.seed = 7"):
        assert f"--gin_bindings={binding}" in flags
    assert "experiment.seeds = [7]" in (tmp_path / "out" / driver.RECIPE).read_text()
    (tmp_path / "mine.gin").write_text(RECIPE.replace("TRAIN_STEPS", "TRAIN_STEP"))
    assert main() == 2
    assert "row 'one': no recipe given here uses TRAIN_STEP; did you mean TRAIN_STEPS" in capsys.readouterr().err
    for seeds in ("a", "", ","):
        assert main(f"--seeds={seeds}") == 2
        assert f"{seeds!r} is no list of seeds such as 0,1" in capsys.readouterr().err
    (tmp_path / "mine.gin").write_text(RECIPE)
    assert main("--collect", "--only=two") == 2
    assert "--only: there is no 'two'" in capsys.readouterr().err
    start = RECIPE.replace("%OTHER]}}", '%OTHER]}, "two": {"recipe": "quickstart.gin", "start": "one"}}')
    (tmp_path / "mine.gin").write_text(start)
    assert main() == 2
    assert "row 'two': no recipe given here uses INIT_CHECKPOINT" in capsys.readouterr().err


def test_configurations_are_told_apart_by_all_but_places(clean):
    def configuration(**given):
        rows = {"x": {"recipe": "quickstart.gin", "bindings": given}}
        made = matrix.experiment(rows, {"loss": ["training", "train", "parallel", "loss"]}, "out", [0, 1])
        first, second = cells.of_matrix(made, config.resolved)
        assert first.configuration != second.configuration
        return first.configuration

    plain = configuration()
    assert configuration() == plain
    assert configuration(TASK="gettext") == plain  # what the recipe says already
    others = [configuration(**{name: value}) for name, value in (("vmsst.lam", 0.2), ("TRAIN_STEPS", 9))]
    assert len({plain, *others}) == 3
    sets = ["quickstart.gin", "include/corpus_local_sets.gin"]
    here, there = (
        cells.fingerprint(expanded(bindings(config.resolved(sets, [f"DATA_DIR = '{place}'"]))))
        for place in ("here", "there")
    )
    assert here == there != plain


@pytest.mark.parametrize("name", sorted(f.stem for f in (FOLDER / "experiments").glob("*.gin")))
def test_experiments_that_ship(name, clean):
    given = ["DATA_DIR = 'data'", *(["SAMPLES = 'text'"] if name == "ccp" else [])]
    made = config.configure([f"experiments/{name}.gin"], given, target=config.EXPERIMENT)()
    assert str(made.output) == f"runs/experiments/{name}"
    found = cells.of_matrix(made, config.resolved)
    trained = [row for row in made.rows.values() if row.trained == row.name]  # the others embed those again
    assert len(found) == len({cell.configuration for cell in found}) >= 2 * len(trained)
    assert {c.cell for c in made.scores} <= {matrix.TRAINING, *made.benchmarks}
    head = "\n".join(re.findall(r"^#.*", (FOLDER / "experiments" / f"{name}.gin").read_text(), re.MULTILINE))
    for words in (f"--gin_file=experiments/{name}.gin", "Devices:", "Time:"):
        assert words in head
