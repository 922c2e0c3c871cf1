"""Pipelines from nothing to a report: resumed, refused when something changed, done anew, killed."""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

from vmsst_jax import config
from vmsst_jax.experiments import processes
from vmsst_jax.pipelines import driver, plan

# Stands for `python -m`: adds a number to what it reads, one line at a time, and goes on where it was killed. It dies
# by its own hand in the third line of a stage that the environment names, once, and takes its driver along.
PROGRAM = """
import os, pathlib, signal, sys, time

flags = dict(f.removeprefix("--").partition("=")[::2] for f in sys.argv[2:])
if "sample" in flags:
    sys.exit(sys.argv[1] + ": error: there is no such language")
source, out = pathlib.Path(flags["input"]), pathlib.Path(flags["output"])
lines = source.read_text().split()
done = len(out.read_text().split()) if out.exists() else 0
for place, line in enumerate(lines[done:], done + 1):
    with out.open("a") as file:
        file.write(f"{int(line) + int(flags['seed'])}\\\\n")
    marker = pathlib.Path(os.environ.get("DIES_ONCE", "/nowhere"))
    if place == 3 and marker.name == out.parent.name and not marker.exists():
        marker.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
(out.parent / "report.txt").write_text(" ".join(out.read_text().split()))
"""
DRIVER = """
import sys
from vmsst_jax.experiments import processes
from vmsst_jax.pipelines import driver, plan

processes.PYTHON = (sys.executable, sys.argv[1])
driver.run(plan.pipeline(**eval(sys.argv[2])), None)
"""


def stage(source, add, **more):
    flags = {
        "checkpoint": "{here}",
        "input": source,
        "output": "{here}/out",
        "source": "en",
        "target": "de",
        "seed": add,
    }
    return {"command": "translate", "flags": flags, **more}


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Of a pipeline of three stages, the last two of which start from the first."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("\\\\n", "\\n"))
    monkeypatch.setattr(processes, "PYTHON", (sys.executable, str(program)))
    (tmp_path / "numbers").write_text("1\n2\n3\n4\n5\n")
    return {
        "stages": {
            "one": stage("{data}/numbers", "{step}", inputs=["{data}/numbers"]),
            "two": stage("{one}/out", 10),
            "three": stage("{one}/out", 100),
        },
        "output": str(tmp_path / "out"),
        "folders": {"data": str(tmp_path)},
        "values": {"step": 1},
    }


def run(settings, redo=(), **other):
    return driver.run(plan.pipeline(**{**settings, **other}), None, redo)


def evaluation(**settings):
    models, benchmarks = {"a": {"checkpoint": "{one}"}}, {"T": {"benchmark": "tatoeba"}}
    return {
        "command": "evaluate",
        "settings": {"models": models, "benchmarks": benchmarks, "data_dir": "x", **settings},
    }


SETTINGS = [
    ({"models": {"a": {"checkpoint": "{one}", "layr": 3}}}, "model 'a': "),
    ({"benchmarks": {"T": {"benchmark": "no such"}}}, ".*no such"),
    ({"absent": "never"}, "absent is 'never'; wanted"),
    ({"differences": {"d": ["a", "b"]}}, ""),
]


def changed(settings, name, **flags):
    stages = settings["stages"]
    return {**stages, name: {**stages[name], "flags": stages[name]["flags"] | flags}}


def test_done_stages_are_left_alone(settings, tmp_path, capsys):
    outcome = run(settings)
    assert outcome.report == (tmp_path / "out" / driver.REPORT).read_text()
    assert "## one\n\n```\n2 3 4 5 6\n```" in outcome.report and "102 103" in outcome.report
    record = json.loads((tmp_path / "out" / "two.json").read_text())
    flags = set(settings["stages"]["three"]["flags"])
    assert record["state"] == "done" and set(record["identity"]) == {"command", *flags, "stage one"}
    assert set(record["files"]) == {"out", "report.txt"}
    capsys.readouterr()
    assert run(settings) == outcome
    assert capsys.readouterr().out.count("done before") == 3
    # Elsewhere, with the data elsewhere, it is the same pipeline; a stage may be added.
    (tmp_path / "out").rename(tmp_path / "moved")
    (tmp_path / "data").mkdir()
    (tmp_path / "numbers").rename(tmp_path / "data" / "numbers")
    elsewhere = {"output": str(tmp_path / "moved"), "folders": {"data": str(tmp_path / "data"), "nothing": None}}
    more = {**settings["stages"], "four": stage("{two}/out", 1000, inputs=["{nothing}"]), "never": None}
    assert "1012" in run(settings, stages=more, **elsewhere).report
    assert capsys.readouterr().out.count("done before") == 3


def test_what_changed_is_an_error_that_says_what_to_do(settings, tmp_path):
    run(settings)
    (tmp_path / "numbers").write_text("1\n2\n")
    with pytest.raises(ValueError, match=r"(?s)stage one was made .* input \{data\}/numbers: \w+ then.*--redo=one"):
        run(settings)
    assert "2 3\n" in run(settings, redo=["one"]).report  # and the others with it
    assert "102 103\n" in (tmp_path / "out" / driver.REPORT).read_text()
    with pytest.raises(ValueError, match=r"(?s)stage three was made otherwise .* seed: 100 then, 200 now"):
        run(settings, stages=changed(settings, "three", seed=200))
    assert "202" in run(settings, redo=["three"], stages=changed(settings, "three", seed=200)).report
    with pytest.raises(ValueError, match="(?s)stage one .* seed: 1 then, 2 now"):
        run(settings, stages=changed(settings, "three", seed=200), values={"step": 2})
    with pytest.raises(ValueError, match="--redo: there is no 'ones'; did you mean 'one'"):
        run(settings, redo=["ones"])
    (tmp_path / "numbers").unlink()
    with pytest.raises(FileNotFoundError, match="stage one reads .*numbers, and there is no such file"):
        run(settings)


def test_a_file_that_is_not_the_one_that_is_wanted(settings, tmp_path):
    sha256 = hashlib.sha256((tmp_path / "numbers").read_bytes()).hexdigest()
    run(settings, checksums={"{data}/numbers": sha256})
    run(settings, checksums={"{data}/numbers": None})
    with pytest.raises(ValueError, match=f"reads .*numbers, whose SHA-256 is {sha256}; the recipe wants 12ab: fetch"):
        run(settings, checksums={"{data}/numbers": "12ab"})
    with pytest.raises(ValueError, match="pipeline.checksums: there is no '{data}/number'; did you mean"):
        run(settings, checksums={"{data}/number": "12ab"})


def test_a_file_that_is_gone(settings, tmp_path):
    run(settings)
    (tmp_path / "out" / "one" / "out").unlink()
    run(settings)  # nothing needs it
    with pytest.raises(ValueError, match="stage one is done, but .*one/out is gone or of another size: .*--redo=one"):
        run(settings, redo=["two"])
    (tmp_path / "out" / "one.json").write_text("{")
    with pytest.raises(ValueError, match="one.json is damaged .*--redo=one"):
        run(settings)


def test_what_was_altered_or_is_none_of_ours_is_noticed(settings, tmp_path):
    out = tmp_path / "out"
    run(settings)
    (out / "one" / "out").write_text((out / "one" / "out").read_text().replace("2", "9", 1))  # of the same size
    with pytest.raises(
        ValueError, match="stage one is done, but the files in .*one are not those that it left.*--redo=one"
    ):
        run(settings, redo=["two"])
    run(settings, redo=["one"])
    (out / "three" / "report.txt").unlink()
    with pytest.raises(ValueError, match="stage three is done, but .*three/report.txt is gone"):  # the report shows it
        run(settings)
    run(settings, redo=["three"])
    (out / "one.json").write_text("{}")
    with pytest.raises(ValueError, match="one.json is damaged .*'state'.*--redo=one"):
        run(settings)
    (out / "one.json").unlink()
    for redo in ([], ["one"]):
        with pytest.raises(
            ValueError, match="out/one is there, and one.json beside it is not, so this pipeline has not"
        ):
            run(settings, redo=redo)
    assert (out / "one" / "out").exists()


@pytest.mark.parametrize(("output", "data"), [("data/out", "data"), ("data", "data/deep")])
def test_the_output_lies_apart_from_what_is_read(settings, tmp_path, output, data):
    (tmp_path / "data" / "deep").mkdir(parents=True)
    (tmp_path / "data" / "deep" / "numbers").write_text("1\n")
    stages = {"one": stage("{data}/deep/numbers" if data == "data" else "{data}/numbers", 1, inputs=["{data}"])}
    with pytest.raises(ValueError, match="the output is .* one of them is the other or lies in it"):
        run(settings, stages=stages, output=str(tmp_path / output), folders={"data": str(tmp_path / data)})
    assert (tmp_path / "data" / "deep" / "numbers").read_text() == "1\n"


def test_mistakes_of_later_stages_come_before_anything_runs(settings, tmp_path):
    def broken(recipes, bindings):
        raise ValueError("there is no recipe")

    for last, message in (
        ({"command": "train", "recipe": "nothing.gin"}, "stage 'four': there is no recipe"),
        *((evaluation(**settings), f"settings of stage 'four': {message}") for settings, message in SETTINGS),
        (
            {"command": "evaluate", "settings": {"modls": {}}},
            "settings of stage 'four': there is no 'modls'; did you mean",
        ),
        (
            stage("{one}/out", 1, flags={"input": "{one}"}),
            "flags of stage 'four': the following arguments are required",
        ),
        (
            changed(settings, "three", beems=2)["three"],
            "flags of stage 'four': unrecognized arguments: --beems=2; did you mean --beams",
        ),
        (
            changed(settings, "three", beams="{one:f.json:a}", seed="x")["three"],
            "stage 'four': argument --seed: 'x' is",
        ),
        (
            {
                "command": "word_mapping map",
                "flags": {"output": "{here}/o", "vectors": ["en=a"], "starts": "identical"},
            },
            "flags of stage 'four': unrecognized arguments: --starts=identical; did you mean --start",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            driver.run(plan.pipeline(**{**settings, "stages": {**settings["stages"], "four": last}}), broken)
        assert not (tmp_path / "out" / "one").exists()


def test_the_report_begins_with_what_the_recipe_says(settings):
    settings["about"] = "step {step}, stage two is {one:../two.json:state}"
    assert run(settings).report.startswith("step 1, stage two is done\n\n## one")


def test_what_others_put_beside_a_stages_work_is_none_of_it(settings, tmp_path):
    """As `evaluate` does in a model's folder. And nothing is removed before it is known that what it needs is whole."""
    before = run(settings).report
    (tmp_path / "out" / "one" / "evaluations").mkdir()
    (tmp_path / "out" / "one" / "evaluations" / "results.json").write_text("{}")
    assert run(settings, redo=["three"]).report == before
    (tmp_path / "out" / "one" / "out").write_text("9")
    with pytest.raises(ValueError, match="stage one is done, but .*out is gone or of another size"):
        run(settings, redo=["three"])
    assert (tmp_path / "out" / "three" / "report.txt").is_file()


def test_a_stage_that_fails_is_tried_again(settings, tmp_path):
    with pytest.raises(
        driver.StageFailed, match="stage two: translate: there is no such language; its log is .*two.log"
    ):
        run(settings, stages=changed(settings, "two", sample=True))
    with pytest.raises(ValueError, match="(?s)stage two was begun otherwise .* sample: true then, nothing now"):
        run(settings)
    assert "12 13" in run(settings, redo=["two"]).report


@pytest.mark.parametrize("name", ["one", "three"])
def test_killed_and_started_again_it_ends_the_same(settings, tmp_path, name):
    """The driver and the stage's process are killed; the stage goes on with its fourth line."""
    straight = run(settings, output=str(tmp_path / "straight")).report
    environment = {**os.environ, "DIES_ONCE": str(tmp_path / name)}
    program = processes.PYTHON[1]
    command = [sys.executable, "-c", DRIVER, program, repr(settings)]
    assert subprocess.run(command, env=environment, check=False).returncode == -signal.SIGKILL
    assert len((tmp_path / "out" / name / "out").read_text().split()) == 3
    while True:
        try:
            assert run(settings).report == straight
            break
        except BlockingIOError as error:  # the stage's process, which kills itself last, may still be about to
            assert "fuser" in str(error)
            time.sleep(0.05)
    assert len((tmp_path / "out" / name / "out").read_text().split()) == 5


RECIPE = """
include "include/pipeline.gin"
OUTPUT = "out"
STEPS = 60
pipeline.folders = {"data": %DATA}
pipeline.stages = {
    "language_model": {
        "command": "train",
        "recipe": "umt_small_mlm.gin",
        "inputs": ["{data}/*.en"],
        "bindings": {
            "DATA_DIR": "{data}", "LANGUAGES": ["en", "de"], "VOCAB_SIZE": 40, "MASK": 39, "TRAIN_STEPS": %STEPS,
            "BertConfig.embed_dim": 16, "BertConfig.num_heads": 2, "BertConfig.mlp_dim": 16,
            "BertConfig.num_layers": 1, "MaskedText.batch_size": 8, "MaskedText.length": 16,
            "validation/MaskedText.batch_size": 8, "ValidationLoss.batches": 1, "Rhythm.log_every": 1,
            "Rhythm.evaluate_every": 60, "Rhythm.save_every": 3,
        },
    },
}
"""


def log(folder):
    lines = (folder / "language_model" / "metrics.jsonl").read_text("utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "speed"} for line in lines]


@pytest.mark.slow
def test_training_that_is_killed_ends_with_the_same_numbers(tmp_path, monkeypatch):
    """A real stage, of the recipes that ship, killed while it trains."""
    words = "red green blue old house tree town ship bird king".split()
    for name, count in (("train", 80), ("val", 10)):
        rows = [[words[(i * i + j * 7) % 10] for j in range(2 + i % 3)] for i in range(count)]
        (tmp_path / f"{name}.en").write_text("".join(" ".join(row) + "\n" for row in rows))
        (tmp_path / f"{name}.de").write_text("".join(" ".join(w[::-1] for w in row) + "\n" for row in rows))
    (tmp_path / "mine.gin").write_text(RECIPE)

    def start(output):
        bindings = [f"DATA = {str(tmp_path)!r}", f"OUTPUT = {str(tmp_path / output)!r}"]
        made = config.configure(["mine.gin"], bindings, [str(tmp_path)], config.PIPELINE)()
        return driver.run(made, lambda r, b: config.resolved(r, b, [str(tmp_path)]), search_paths=str(tmp_path))

    start("straight")
    started, popen = [], subprocess.Popen

    def remember(*args, **more):
        started.append(popen(*args, **more))
        return started[-1]

    def kill():
        metrics = tmp_path / "killed" / "language_model" / "metrics.jsonl"
        while not metrics.exists() or len(metrics.read_text().splitlines()) < 10:
            time.sleep(0.005)
        started[0].kill()

    monkeypatch.setattr(subprocess, "Popen", remember)
    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(driver.StageFailed, match="stage language_model: train: ended by SIGKILL; .* goes on"):
        start("killed")
    killer.join()
    start("killed")
    assert log(tmp_path / "killed") == log(tmp_path / "straight")
    assert len(log(tmp_path / "killed")) == 61
    record = json.loads(pathlib.Path(tmp_path, "killed", "language_model.json").read_text())
    assert {"input {data}/*.en train.en", "input {data}/*.en val.en", "Rhythm.steps"} <= record["identity"].keys()
    with pytest.raises(ValueError, match="(?s)Rhythm.steps: 60 then, 70 now"):
        config_70 = [f"DATA = {str(tmp_path)!r}", f"OUTPUT = {str(tmp_path / 'killed')!r}", "STEPS = 70"]
        made = config.configure(["mine.gin"], config_70, [str(tmp_path)], config.PIPELINE)()
        driver.run(made, lambda r, b: config.resolved(r, b, [str(tmp_path)]), search_paths=str(tmp_path))
