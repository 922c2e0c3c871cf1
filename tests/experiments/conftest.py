"""Experiments whose stages are played by a small program, and a model that embeds by first letters."""

import ast
import json
import pathlib
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from vmsst_jax.benchmarks import grid
from vmsst_jax.experiments import driver, matrix, processes
from vmsst_jax.retrieval import embedder

# Stands for `python -m`: trains ten steps, one number each, and goes on where it was killed. It dies by its own hand
# after the fifth step of a run for which the environment names a file that isn't there yet, and takes its driver along.
PROGRAM = """
import ast, json, os, pathlib, signal, sys

name, *flags = sys.argv[1:]
bindings = dict(f.removeprefix("--gin_bindings=").split(" = ", 1) for f in flags if f.startswith("--gin_bindings="))
values = {key: ast.literal_eval(value) for key, value in bindings.items()}
model = pathlib.Path(values["train.model_dir"])
if "INIT_CHECKPOINT" in values:
    start = json.loads((pathlib.Path(values["INIT_CHECKPOINT"]) / "report.json").read_text())
    values["run.level"] = values.get("run.level", 0) + 10 * start["step"]
model.mkdir(parents=True, exist_ok=True)
if values.get("run.broken"):
    sys.exit("something to ignore\\n" + name + ": error: there is no such corpus")
log = model / "metrics.jsonl"
done = len(log.read_text().splitlines()) if log.exists() else 0
for step in range(done + 1, values["run.steps"] + 1):
    loss = values["train.seed"] + values.get("run.level", 0) + 10 - step
    with log.open("a") as file:
        file.write(json.dumps({"step": step, "kind": "train", "stream": "parallel", "loss": loss}) + "\\n")
    marker = os.environ.get("DIES_ONCE")
    if step == 5 and marker and "row_b" in str(model) and not os.path.exists(marker):
        pathlib.Path(marker).touch()
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
with log.open("a") as file:
    score = {"retrieval": (values["train.seed"] + values.get("run.level", 0)) / 100}
    file.write(json.dumps({"step": values["run.steps"], "kind": "evaluation", **score}) + "\\n")
report = {"step": values["run.steps"], "data": {"corpus": "abc"}, "reports": [{"use": 0.25}, {"pool": 7.0}]}
(model / "report.json").write_text(json.dumps(report))
"""
SCORES = {
    "loss": ["training", "train", "parallel", "loss"],
    "found": ["training", "evaluation", "retrieval"],
    "use": ["training", "report", "use"],
}
SETTINGS = {
    "rows": {"row a": {"recipe": "a.gin"}, "row b": {"recipe": "a.gin", "bindings": {"run.level": 3}, "seeds": [1, 2]}},
    "scores": SCORES,
    "seeds": [0, 1, 2],
    "bindings": {"run.steps": 10},
    "differences": {"b - a": ("row b", "row a")},
    "plain": ["loss"],
}


@pytest.fixture
def settings(tmp_path):
    """Of an experiment of two rows, by whose program seeds and levels become scores."""
    return {**SETTINGS, "output": str(tmp_path / "out")}


@pytest.fixture
def scores():
    return dict(SCORES)


@pytest.fixture
def resolve():
    """Every binding of a row, without gin."""
    return lambda recipes, bindings: "\n".join([f"recipe.names = {recipes!r}", *bindings])


@pytest.fixture
def program(tmp_path, monkeypatch):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    monkeypatch.setattr(processes, "PYTHON", (sys.executable, str(file)))
    return file


@pytest.fixture
def run(tmp_path, program, settings, resolve):
    """Function (output, **settings that differ) -> outcome."""

    def run(output="out", *, only=(), of_seeds=None, collect=False, **other):
        made = matrix.experiment(**{**settings, "output": str(tmp_path / output), **other})
        return driver.run(made, resolve, only, of_seeds, collect)

    return run


@pytest.fixture
def table(tmp_path):
    """Function (output) -> what its table.json says."""
    return lambda output="out": json.loads((tmp_path / output / driver.TABLE).read_text())


class Letters:
    """Embeds a sentence by its first letter, whatever its case."""

    languages = SimpleNamespace(codes=("en", "de"))
    dim, batch_size, max_length = 26, 1, None
    counts = {"sentences": 6, "empty": 0, "truncated": 0}

    def __init__(self, path, **options):
        self.source, self._options = {"directory": str(path), "step": 10}, options

    def encode(self, texts, batch_size=None, normalize=False, progress=False, *, language=None):
        return np.eye(26, dtype=np.float32)[[ord(text[0].lower()) - ord("a") for text in texts]]

    def describe(self):
        return {**self.source, "layer": None, "pooling": "mean"}

    def fingerprint(self):
        return f"letters {self._options}"


@pytest.fixture
def played(run, tmp_path, monkeypatch):
    """The names of the stages run, training as before and scoring with ``Letters`` in this process."""
    ran, process = [], processes.run

    def play(log, arguments, lock):
        ran.append((arguments[0], arguments[1:]))
        if arguments[0] == "vmsst_jax.train":
            process(log, arguments, lock)
        elif arguments[0] == "vmsst_jax.evaluate":
            recipe = pathlib.Path(arguments[1].removeprefix("--gin_file=")).read_text()
            values = dict(line.removeprefix("evaluate.").split(" = ", 1) for line in recipe.splitlines())
            outcome = grid.evaluate(**{key: ast.literal_eval(value) for key, value in values.items()})
            if outcome.missing:
                raise processes.Failed(f"evaluate: {outcome.missing}")

    monkeypatch.setattr(processes, "run", play)
    monkeypatch.setattr(embedder, "load", lambda path, *args, **options: Letters(path, **options))
    monkeypatch.setattr(grid.html_report, "write_page", lambda *args, **more: None)
    none = SimpleNamespace(check=lambda *_: None, applied=lambda model, *_: model)
    monkeypatch.setattr(grid, "calibrations", none)
    return ran


@pytest.fixture
def data(tmp_path):
    (tmp_path / "data" / "tatoeba").mkdir(parents=True)
    for ending, text in (("deu", "Hund\nMaus\nKatze\n"), ("eng", "hound\nmouse\ncat\n")):
        (tmp_path / "data" / "tatoeba" / f"tatoeba.deu-eng.{ending}").write_text(text)
    return tmp_path / "data"
