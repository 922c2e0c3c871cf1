"""Experiments from nothing to tables: resumed, in parts, with failing cells, beside other processes."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from vmsst_jax import disk
from vmsst_jax.experiments import cells, driver, matrix, processes, stages

DRIVER = """
import sys
from vmsst_jax.experiments import cells, driver, matrix, processes, stages

processes.PYTHON = (sys.executable, sys.argv[1])
made = matrix.experiment(**eval(sys.argv[2]))
driver.run(made, lambda recipes, bindings: "\\n".join([f"recipe.names = {recipes!r}", *bindings]))
"""


def test_table_of_means_and_paired_differences(run, table, tmp_path):
    outcome = run()
    assert outcome.failed == {}
    found = table()
    # The last tenth of ten steps is the last one: its loss is seed + level.
    assert found["rows"]["row a"]["loss"] == {"mean": 1.0, "sd": 1.0, "n": 3, "values": {"0": 0, "1": 1, "2": 2}}
    assert found["rows"]["row b"]["loss"]["mean"] == 4.5
    assert found["rows"]["row b"]["loss"]["sd"] == pytest.approx(math.sqrt(0.5))
    # Of seeds 1 and 2 alone, which both rows have: unpaired it would be 3.5.
    assert found["differences"]["b - a"]["loss"] == {
        **{"mean": 3.0, "sd": 0.0, "n": 2, "values": {"1": 3, "2": 3}, "above": 2}
    }
    lines = (tmp_path / "out" / "table.md").read_text().splitlines()
    assert lines[0] == "|  | loss | found | use |"
    assert lines[2] == "| row a | 1 ± 1 (3) | 1.0 ± 1.0 (3) | 25.0 ± 0.0 (3) |"
    assert lines[4].startswith("| *b - a* | +3 ± 0 (2 of 2) | +3.0 ± 0.0 (2 of 2) | +0.0 ± 0.0 (0 of 2)")
    assert found["notes"] == [] and "Missing" not in outcome.table
    drawing = (tmp_path / "out" / "table.svg").read_bytes()
    assert all(f">{text}</text>".encode() in drawing for text in ("row a", "row b", "loss", "found, %"))
    run(collect=True)
    assert (tmp_path / "out" / "table.svg").read_bytes() == drawing
    (file,) = (tmp_path / "out").glob("row_b/seed_2_*/cell.json")
    record = json.loads(file.read_text())
    assert record["state"] == "done" and record["training"]["data"] == {"corpus": "abc"}
    assert 1 <= record["cpus"] <= os.cpu_count()
    assert "run.level = 3" in record["bindings"] and file.parent.name == f"seed_2_{record['configuration'][:8]}"


def test_killed_and_resumed_ends_with_the_same_table(run, program, settings, tmp_path):
    run("straight")
    driven = [sys.executable, "-c", DRIVER, str(program), repr({**settings, "output": str(tmp_path / "killed")})]
    environment = {**os.environ, "DIES_ONCE": str(tmp_path / "died")}
    killed = subprocess.run(driven, env=environment, capture_output=True, text=True)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (tmp_path / "killed" / "table.md").exists()
    done = {file: file.stat().st_mtime_ns for file in (tmp_path / "killed").glob("*/*/model/report.json")}
    assert len(done) == 1  # row a, seed 0, which comes first
    (log,) = (tmp_path / "killed").glob("row_b/seed_1_*/model/metrics.jsonl")
    assert len(log.read_text().splitlines()) == 5
    run("killed")
    for name in (driver.TABLE, driver.TEXT, driver.PLOT):
        assert (tmp_path / "killed" / name).read_bytes() == (tmp_path / "straight" / name).read_bytes()
    assert all(file.stat().st_mtime_ns == before for file, before in done.items())  # not trained twice
    os.rename(tmp_path / "killed", tmp_path / "elsewhere")
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "elsewhere").glob("*/*/*.log")}
    run("elsewhere")
    assert before and before == {file: file.stat().st_mtime_ns for file in (tmp_path / "elsewhere").glob("*/*/*.log")}


def test_a_failing_cell_is_named_and_stops_no_other(run, table, settings, capsys):
    broken = {"row a": {"recipe": "a.gin", "bindings": {"run.broken": True}}, "row b": settings["rows"]["row b"]}
    outcome = run(rows=broken)
    assert outcome.failed == dict.fromkeys(
        ["row a, seed 0", "row a, seed 1", "row a, seed 2"], "train: there is no such corpus"
    )
    found = table()
    assert found["rows"]["row a"]["loss"] is None and found["rows"]["row b"]["loss"]["n"] == 2
    note = "Missing (train: there is no such corpus): row a, seed 0 1 2."
    assert found["notes"] == [note] and note in outcome.table
    assert "logs are in" in capsys.readouterr().out


def test_parts(run, table):
    assert run(only=["row b"], of_seeds=[2]).failed == {}
    found = table()
    assert found["rows"]["row a"]["loss"] is None and list(found["rows"]["row b"]["loss"]["values"]) == ["2"]
    assert found["notes"] == ["Missing (not begun): row a, seed 0 1 2; row b, seed 1."]
    with pytest.raises(ValueError, match="--only: there is no 'row c'; did you mean 'row"):
        run(only=["row c"])
    with pytest.raises(ValueError, match="no seed 0; there is 1, 2"):
        run(only=["row b"], of_seeds=[0])


def test_a_changed_binding_is_another_cell(run, table, tmp_path):
    run(only=["row a"], of_seeds=[0])
    run(only=["row a"], of_seeds=[0], bindings={"run.steps": 5})
    assert len(list((tmp_path / "out" / "row_a").iterdir())) == 2
    assert table()["rows"]["row a"]["loss"]["values"] == {"0": 5}


def test_other_contents_of_a_file_are_another_cell(run, table, settings, tmp_path):
    """Wherever the file lies: its name alone is none."""
    for name, text in (("a.tsv", "a"), ("b.tsv", "a"), ("c.tsv", "c")):
        (tmp_path / name).write_text(text)

    def folders(*names):
        row = {"recipe": "a.gin", "bindings": {"synthetic_pairs.files": [str(tmp_path / name) for name in names]}}
        assert run(rows={"row a": row}, seeds=[0], differences={}).failed == {}
        return {folder.name for folder in (tmp_path / "out" / "row_a").iterdir()}

    first = folders("a.tsv")
    assert folders("b.tsv") == first == folders("[b].tsv") and len(first) == 1
    assert len(folders("c.tsv")) == 2 and len(folders("a.tsv", "c.tsv")) == 3
    (tmp_path / "a.tsv").write_text("altered")
    assert len(folders("a.tsv")) == 4
    # Beside a row whose file is gone the others go on, and what they have is in the table.
    files = {name: {"synthetic_pairs.files": str(tmp_path / name)} for name in ("c.tsv", "d")}
    rows = {name: {"recipe": "a.gin", "bindings": bindings} for name, bindings in files.items()}
    (why,) = run(rows=rows, seeds=[0], differences={}).failed.values()
    assert why.startswith(f"synthetic_pairs.files: {tmp_path}/d: no such corpus file")
    assert table()["rows"]["c.tsv"]["loss"]["n"] == 1 and table()["notes"][0].startswith(f"Missing ({why[:40]}")
    assert run(rows=rows, seeds=[0], differences={}, collect=True).failed == {}
    for value in (3, [None], str(tmp_path)):  # training has a message for these, or reads what lies in the folder
        rows = {"row a": {"recipe": "a.gin", "bindings": {"synthetic_pairs.files": value}}}
        assert run(rows=rows, seeds=[0], differences={}).failed == {}


@pytest.fixture
def chain(settings):
    """Rows that start from the models of other rows."""
    return {
        **settings["rows"],
        "row c": {"recipe": "a.gin", "start": "row b", "seeds": [2]},
        "row d": {"recipe": "a.gin", "start": "row c", "bindings": {"run.steps": 5}, "seeds": [2]},
    }


def test_rows_that_start_from_others(run, table, chain, tmp_path):
    assert run(rows=chain).failed == {}
    found = table()["rows"]
    assert found["row c"]["found"]["values"] == {"2": (2 + 10 * 10) / 100}
    assert found["row d"]["found"]["values"] == {"2": (2 + 10 * 10) / 100}
    before = cells.of_matrix(matrix.experiment(**of_chain(chain, tmp_path)), lambda r, b: "\n".join(b))
    assert [str(cell) for cell in before][-3:] == ["row c, seed 2", "row d, seed 2", "row a, seed 2"]
    record = json.loads(next((tmp_path / "out").glob("row_c/seed_2_*/cell.json")).read_text())
    assert record["start"] == "row b, seed 2"
    # Another start is another cell.
    chain["row b"] = {**chain["row b"], "bindings": {"run.level": 4}}
    others = cells.of_matrix(matrix.experiment(**of_chain(chain, tmp_path)), lambda r, b: "\n".join(b))
    same = {cell.folder for cell in before} & {cell.folder for cell in others}
    assert {folder.parent.name for folder in same} == {"row_a"}


def of_chain(rows, tmp_path):
    return {"rows": rows, "scores": {"loss": ["training", "train", "parallel", "loss"]}, "output": str(tmp_path)}


def test_a_start_that_is_not_trained(run, table, chain, settings):
    why = {"row c, seed 2": "it starts from row b, seed 2, which isn't trained; train that row first"}
    assert run(rows=chain, only=["row c"]).failed == why
    assert any(note.startswith("Missing (it starts from row b, seed 2, which") for note in table()["notes"])
    chain["row b"] = {**chain["row b"], "bindings": {"run.broken": True}}
    assert run(rows=chain, only=["row b", "row c"]).failed == why | {
        "row b, seed 1": "train: there is no such corpus",
        "row b, seed 2": "train: there is no such corpus",
    }


def test_a_start_that_another_process_trains_is_waited_for(chain, resolve, settings, program):
    made = matrix.experiment(**{**settings, "rows": chain})
    cell = next(cell for cell in cells.of_matrix(made, resolve) if cell.row == "row c")
    cell.start.folder.mkdir(parents=True)
    with disk.open_locked(cell.start.folder / stages.LOCK):
        assert stages.advance(made, cell) == (stages.BUSY, "")
    assert stages.advance(made, cell).state == stages.FAILED


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("model/metrics.jsonl", lambda text: text[: len(text) // 2 - 5], "is missing or damaged"),
        ("model/metrics.jsonl", lambda text: text.splitlines(keepends=True)[0], "ends at step 1 of 10"),
        ("model/metrics.jsonl", None, "is missing or damaged"),
        ("model/report.json", lambda text: text[:20], "is missing or damaged"),
    ],
)
def test_a_damaged_cell_is_named_and_stops_no_other(run, table, tmp_path, file, damage, message):
    run()
    whole = table()
    (cell,) = (tmp_path / "out").glob("row_a/seed_1_*")
    text = (cell / file).read_text()
    (cell / file).unlink()
    if damage:
        (cell / file).write_text(damage(text))
    run(collect=True)
    assert table()["rows"]["row a"]["loss"]["n"] == 2 and table()["rows"]["row b"] == whole["rows"]["row b"]
    for _ in range(2):
        (why,) = run().failed.values()
    assert message in why and f"remove {cell}, and the same command trains this cell anew" in why
    shutil.rmtree(cell)
    assert run().failed == {} and table() == whole


@pytest.mark.parametrize("record", ["[1]", '{"state": "done"}', '{"state": "do'])
def test_a_damaged_record_is_made_anew(run, table, tmp_path, record):
    run()
    whole = table()
    (file,) = (tmp_path / "out").glob("row_a/seed_1_*/cell.json")
    file.write_text(record)
    assert run().failed == {} and table() == whole


def test_scores_that_are_no_numbers_are_said(run, table):
    paths = {"short": ["training", "train", "parallel"], "long": ["training", "evaluation", "retrieval", "x"]}
    run(only=["row a"], of_seeds=[0], scores=paths, plain=[])
    assert "No cell has the score short: train/parallel is no number; there is loss." in table()["notes"]
    assert any("No cell has the score long: no evaluation/retrieval/x; evaluation" in note for note in table()["notes"])


def test_data_that_are_not_there(run, tmp_path):
    given = {"benchmarks": {"T": {"benchmark": "tatoeba"}}, "data_dir": str(tmp_path / "dta")}
    with pytest.raises(ValueError, match="DATA_DIR is .*dta, and there is no such folder; leave it out"):
        run(**given)
    assert not (tmp_path / "out").exists() and run(collect=True, **given).failed == {}


def test_output_that_is_a_file(run, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(ValueError, match="OUTPUT is .*out, which is a file; give a folder"):
        run()


def test_data_that_differ_between_seeds_are_said(run, table, tmp_path):
    run(only=["row a"])
    (record,) = (tmp_path / "out").glob("row_a/seed_1_*/cell.json")
    record.write_text(record.read_text().replace('"abc"', '"xyz"'))
    run(collect=True)
    assert "Not the same data, corpus: row a, seed 0; row a, seed 2 | row a, seed 1." in table()["notes"]


def test_a_cell_of_another_process_is_waited_for(settings, resolve, program, monkeypatch, capsys):
    made = matrix.experiment(**settings)
    cell = cells.of_matrix(made, resolve)[0]
    cell.folder.mkdir(parents=True)
    lock = disk.open_locked(cell.folder / stages.LOCK)
    assert stages.advance(made, cell) == (stages.BUSY, "")
    monkeypatch.setattr(driver.time, "sleep", lambda seconds: lock.close())
    assert driver.run(made, resolve, ["row a"], [0]).failed == {}
    assert capsys.readouterr().out.count("row a, seed 0\n") == 1


def test_stopping_tells_training_and_frees_the_cell(settings, resolve, tmp_path, monkeypatch):
    """Ctrl-C in the driver: the process gets SIGTERM, as training wants it, and may finish what it saves."""
    saved = tmp_path / "saved"
    code = (
        f"import signal, time; signal.signal(15, lambda *_: (open({str(saved)!r}, 'w'), exit(0))); print(1, flush=True)"
    )
    program = tmp_path / "program.py"
    program.write_text(code + "\ntime.sleep(60)")
    monkeypatch.setattr(processes, "PYTHON", (sys.executable, str(program)))
    made = matrix.experiment(**settings)
    cell = cells.of_matrix(made, resolve)[0]

    def interrupted(process):
        log = cell.folder / "train.log"
        while not log.stat().st_size:
            time.sleep(0.01)
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        stages.advance(made, cell)
    assert saved.exists()
    assert stages.read(cell)["state"] == "begun"
    disk.open_locked(cell.folder / stages.LOCK).close()


@pytest.mark.parametrize(
    ("printed", "code", "words"),
    [
        ("step 1\nvmsst_jax.train: error: no folder x\n", 2, "no folder x"),
        ("Traceback ...\n  File\nKeyError: 'a'\n\n", 1, "KeyError: 'a'"),
        ("table\nmissing: a x b: bad\nvmsst_jax.evaluate: 1 cell is missing\n", 1, "missing: a x b: bad"),
        ("step 1\n", -9, "ended by SIGKILL"),
        ("", 3, "exit code 3"),
    ],
)
def test_last_words(printed, code, words):
    assert processes.last_words(printed, code) == words
