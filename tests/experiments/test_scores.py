"""Scoring as a stage of a cell: what is done when, and what of it reaches the table."""

import json
import shutil

import pytest

from vmsst_jax.experiments import cells, matrix, stages


def test_results_that_are_damaged_or_of_other_options_are_scored_anew(run, played, data, table, tmp_path):
    settings = {
        "rows": {"raw": {"recipe": "a.gin"}, "first": {"of": "raw", "model": {"layer": 0}}},
        "scores": {"T": ["T"]},
        "benchmarks": {"T": {"benchmark": "tatoeba"}, "STS": {"benchmark": "sts"}},
        "data_dir": str(data),
        **{"differences": {}, "plain": []},
    }
    run(of_seeds=[0], **settings)
    whole = table()
    assert whole["rows"]["raw"]["T"]["n"] == 1
    assert "Left out, as DATA_DIR has no files of theirs: STS." in whole["notes"]
    (results,) = (tmp_path / "out").glob("raw/*/results")
    for damage in (
        lambda: (results / "raw" / "T" / "results.json").write_text('{"benchm'),
        lambda: shutil.rmtree(results),
    ):
        damage()
        run(collect=True, **settings)
        assert any("damaged; the same command without --collect" in note for note in table()["notes"])
        before = len(played)
        run(of_seeds=[0], **settings)
        assert [name for name, _ in played[before:]] == ["vmsst_jax.evaluate"] and table() == whole
    # Training alone leaves what was scored.
    run(of_seeds=[0], **{**settings, "data_dir": None, "scores": {"found": ["training", "evaluation", "retrieval"]}})
    run(of_seeds=[0], **settings)
    assert len(played) == before + 1 and table() == whole
    settings["rows"]["first"] = {"of": "raw", "model": {"layer": 1}}
    run(collect=True, **settings)
    assert table()["rows"]["first"]["T"] is None
    assert any("scored with other options; the same command" in note for note in table()["notes"])
    run(of_seeds=[0], **settings)
    assert table()["rows"]["first"]["T"]["n"] == 1 and len(played) == before + 2


def test_a_model_that_is_there_already(run, played, data, table, tmp_path):
    """It is scored beside those that are trained, once, by what it can do, and again when its files change."""
    ready, samples = tmp_path / "ready", tmp_path / "samples"
    for file in (ready / "params", samples / "en.txt", samples / "de.txt"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("a\n")
    settings = {
        "rows": {
            "ready": {"model": {"checkpoint": str(ready), "layer": 0}, "benchmarks": ["T"]},
            "trained": {"recipe": "a.gin", "benchmarks": ["T"]},
            "shifted": {"of": "ready", "model": {"calibration_steps": ["shift"]}},
        },
        "scores": {"T": ["T"], "loss": ["training", "train", "parallel", "loss"]},
        "benchmarks": {"T": {"benchmark": "tatoeba"}, "xx": {"benchmark": "tatoeba", "languages": ["xx"]}},
        "data_dir": str(data),
        "calibration": {"samples": str(samples)},
        "differences": {"d": ("trained", "ready")},
        "seeds": [3, 4],
    }
    assert run(**settings).failed == {}
    ran = [name.removeprefix("vmsst_jax.") for name, _ in played]
    assert ran == ["calibrate", "evaluate", *["train", "evaluate"] * 2]
    assert f"--checkpoint={ready}" in played[0][1] and "--layer=0" not in played[0][1]
    found = table()
    assert found["rows"]["ready"]["T"]["values"] == {"3": pytest.approx(2 / 3)}
    assert found["rows"]["shifted"]["T"]["n"] == 1 and found["rows"]["ready"]["loss"] is None
    assert found["differences"]["d"]["T"]["values"] == {"3": pytest.approx(0)} and found["notes"] == []
    assert run(**settings).failed == {} and len(played) == 6  # nothing to do
    (ready / "params").write_text("b\n")
    assert run(**settings).failed == {}
    assert [name.removeprefix("vmsst_jax.") for name, _ in played[6:]] == ["calibrate", "evaluate"]
    shutil.rmtree(tmp_path / "out" / "ready")
    assert len(run(collect=True, **settings).failed) == 0
    assert table()["notes"] == ["Missing (not begun): ready, seed 3."]


@pytest.mark.parametrize(
    "kind, given, files",
    [
        ("vectors", ["a.npy", "b.npy"], ("a.npy", "b.npy", "a", "b.txt")),
        ("vectors", "a.npy,b.npy", ("a.npy", "b.npy", "a", "b.txt")),
        ("embedder", "mine:embed", ("mine.py",)),
        ("word_mapping", "m.npz", ("m.npz",)),
    ],
)
def test_what_a_model_that_is_there_is_made_of(kind, given, files, tmp_path, monkeypatch):
    """Any of it that changes has it scored anew."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in files:
        (tmp_path / name).write_text("x")
    (cell,) = cells.of_matrix(
        matrix.experiment({"r": {"model": {kind: given}}}, {"T": ["T"]}, "out", data_dir=None), None
    )
    seen = [stages._ready(cell)]
    for name in files:
        (tmp_path / name).write_text("changed")
        seen.append(stages._ready(cell))
    assert len({json.dumps(found) for found in seen}) == 1 + len(files)
    assert cell.lacking == ""
    (tmp_path / files[0]).unlink()
    (cell,) = cells.of_matrix(matrix.experiment({"r": {"model": {kind: given}}}, {"T": ["T"]}, "out"), None)
    assert cell.lacking == ("" if kind == "embedder" else f"there is no {files[0]}, its model")


def test_scoring_calibrated_and_not(run, played, data, scores, table, tmp_path):
    samples = tmp_path / "samples"
    samples.mkdir()
    for code in ("de", "en"):
        (samples / f"{code}.txt").write_text("text\n")
    settings = {
        "rows": {
            "raw": {"recipe": "a.gin"},
            "shifted": {"of": "raw", "model": {"calibration_steps": ["shift"], "layer": 0}},
        },
        "scores": {"found": scores["found"], "T": ["T"], "to English": ["T", "means", "all", "xx->en"]},
        "score_differences": {"gain": ("T", "found")},
        "benchmarks": {"T": {"benchmark": "tatoeba"}, "STS": {"benchmark": "sts"}},
        "data_dir": str(data),
        "calibration": {"samples": str(samples), "held_out": 0.1, "mutual": True},
        "differences": {"d": ("shifted", "raw")},
        "plain": [],
    }

    def names():
        return [name.removeprefix("vmsst_jax.") for name, _ in played]

    assert run(of_seeds=[1], **settings).failed == {}
    assert names() == ["train", "calibrate", "evaluate"]
    flags = played[1][1]
    assert {"--held_out=0.1", "--mutual", "--layer=0", f"--samples=de={samples}/de.txt,en={samples}/en.txt"} <= set(
        flags
    )
    rows = table()["rows"]
    # Katze and cat begin with other letters. Training's own score is of the row that was trained.
    for row, found in (("raw", 0.01), ("shifted", None)):
        values = {name: score and score["values"]["1"] for name, score in rows[row].items()}
        assert values["T"] == values["to English"] == pytest.approx(2 / 3)
        assert values["found"] == found and values["gain"] == (found and pytest.approx(2 / 3 - found))
    (cell,) = (tmp_path / "out").glob("raw/*")
    assert not (cell / "vectors").exists() and (cell / "results" / "shifted" / "T" / "results.json").is_file()
    record = json.loads((cell / "cell.json").read_text())
    assert record["evaluation"]["data"]["STS"] is None and len(record["evaluation"]["data"]["T"]) == 64
    assert run(of_seeds=[1], **settings).failed == {} and len(played) == 3  # nothing to do
    (data / "tatoeba" / "tatoeba.deu-eng.deu").write_text("Hund\nMaus\nCatze\n")
    assert run(of_seeds=[1], **settings).failed == {}
    assert names()[3:] == ["calibrate", "evaluate"]
    assert table()["rows"]["raw"]["T"]["mean"] == 1.0
    # Scoring that fails keeps training's scores, and no score of another protocol.
    settings["benchmarks"] = {"T": {"benchmark": "tatoeba", "languages": ["fr"]}}
    (why,) = run(of_seeds=[1], **settings).failed.values()
    assert why.startswith("evaluate: ") and names()[5:] == ["calibrate", "evaluate"]
    rows = table()["rows"]
    assert rows["raw"]["T"] is None and rows["raw"]["found"]["n"] == 1
