"""Models x benchmarks: every cell once, each by itself, gathered in one table."""

import json

import numpy as np
import pytest

from vmsst_jax import disk
from vmsst_jax.benchmarks import grid

MEANINGS = {"Hund": 0, "Maus": 1, "Katze": 2, "dog": 0, "mouse": 1, "cat": 2, "chien": 0, "souris": 1, "chat": 2}


def knows(words):
    """A function that embeds those words by their meaning and all others as the last direction."""

    def embed(texts):
        calls.append(list(texts))
        return np.eye(4)[[MEANINGS[text] if text in words else 3 for text in texts]]

    embed.fingerprint = " ".join(sorted(words))
    return embed


calls = []
MODELS = {
    "good": {"embedder": knows(MEANINGS)},
    "half": {"embedder": knows({"Hund", "dog", "Maus", "mouse"})},
}
BENCHMARKS = {"Tatoeba": {"benchmark": "tatoeba"}, "non-English": {"benchmark": "tatoeba_non_english"}}


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "tatoeba").mkdir(parents=True)
    (folder / "tatoeba_non_english").mkdir()
    for ending, lines in (("deu", ["Hund", "Maus", "Katze"]), ("eng", ["dog", "mouse", "cat"])):
        (folder / "tatoeba" / f"tatoeba.deu-eng.{ending}").write_text("".join(f"{line}\n" for line in lines))
    (folder / "tatoeba_non_english" / "deu-fra.tsv").write_text("Hund\tchien\nMaus\tsouris\nKatze\tchat\n")
    return folder


@pytest.fixture
def run(data, tmp_path, monkeypatch):
    """Function (models, benchmarks, **options) -> the outcome; drawing the report is left to a test of its own."""
    monkeypatch.setattr(grid.html_report, "write_page", lambda path, results, summary: None)

    def run(models=MODELS, benchmarks=BENCHMARKS, **options):
        calls.clear()
        options = {"cache_dir": str(tmp_path / "cache"), **options}
        return grid.evaluate(models, benchmarks, str(data), str(tmp_path / "out"), **options)

    return run


def asked():
    """Texts that the functions embedded, their two probes left out."""
    return [text for block in calls for text in block if text in MEANINGS]


def test_every_cell_has_its_result_and_all_of_them_a_table_and_a_report(run, tmp_path, monkeypatch):
    monkeypatch.undo()
    outcome = run()
    assert outcome.missing == outcome.absent == {}
    out = tmp_path / "out"
    assert {p.relative_to(out).as_posix() for p in out.rglob("*.*") if not p.name.startswith(".")} >= {
        "good/Tatoeba/results.json", "good/Tatoeba/table.txt", "good/non-English/results.json",
        "half/Tatoeba/results.json", "half/non-English/results.json", "summary.json", "report.html",
    }  # fmt: skip
    rows = {line.split()[0]: line.split()[1:] for line in outcome.table.splitlines()[1:]}
    assert rows["good"] == ["100.0", "100.0"]
    assert rows["half"][0] == "100.0" or float(rows["half"][0]) >= 66.6
    summary = json.loads((out / "summary.json").read_text())
    assert summary["columns"][:2] == ["Tatoeba", "non-English"] and summary["rows"]["good"]["Tatoeba"] == 1.0
    page = (out / "report.html").read_text()
    assert "good" in page and "half" in page and "non-English" in page


def test_a_second_benchmark_embeds_only_what_is_new(run):
    run({"good": MODELS["good"]})
    assert sorted(asked()) == sorted(MEANINGS)


def test_what_is_done_is_not_done_again(run, tmp_path, capsys):
    run(cache=False)
    capsys.readouterr()
    file = tmp_path / "out" / "good" / "Tatoeba" / "results.json"
    before = file.stat().st_mtime_ns
    assert run(cache=False).missing == {}
    assert asked() == [] and file.stat().st_mtime_ns == before
    assert capsys.readouterr().out.count("done (0 s) before") == 4


@pytest.mark.parametrize("change", ["data", "option", "model", "damage"])
def test_what_makes_a_cell_run_again(run, data, tmp_path, change):
    run(cache=False)
    models, benchmarks = dict(MODELS), dict(BENCHMARKS)
    if change == "data":
        file = data / "tatoeba" / "tatoeba.deu-eng.deu"
        file.write_text(file.read_text().replace("Maus", "Katze", 1))
    elif change == "option":
        benchmarks["Tatoeba"] = {"benchmark": "tatoeba", "direction": "xx->en"}
    elif change == "model":
        models = {"good": {"embedder": knows({"Hund"})}, "half": MODELS["half"]}
    else:
        (tmp_path / "out" / "good" / "Tatoeba" / "results.json").write_text('{"half')
    run(models, benchmarks, cache=False)
    texts = asked()
    assert texts
    # The other benchmark's French words are embedded again only where the model has changed.
    assert ("chien" in texts) == (change == "model")


def fails(texts):
    raise RuntimeError("out of memory, say")


def test_a_failure_is_told_and_stops_nobody(run, data, tmp_path):
    (data / "tatoeba_non_english" / "deu-fra.tsv").write_text("no tab here\n")
    models = {"broken": {"embedder": fails}, "good": MODELS["good"]}
    outcome = run(models)
    assert set(outcome.missing) == {"broken x Tatoeba", "broken x non-English", "good x non-English"}
    assert outcome.missing["broken x Tatoeba"] == "RuntimeError: out of memory, say"
    assert "deu-fra.tsv, line 1" in outcome.missing["good x non-English"]
    failure = tmp_path / "out" / "good" / "non-English" / "failure.json"
    assert "ValueError" in json.loads(failure.read_text())["traceback"]
    rows = {line.split()[0]: line.split()[1:] for line in outcome.table.splitlines()[1:]}
    assert rows == {"broken": ["-", "-"], "good": ["100.0", "-"]}
    # Put right, only what is missing runs.
    (data / "tatoeba_non_english" / "deu-fra.tsv").write_text("Hund\tchien\n")
    outcome = run({"good": MODELS["good"]}, cache=False)
    assert outcome.missing == {} and not failure.exists()
    assert sorted(asked()) == ["Hund", "chien"]


def test_data_that_is_not_there(run, data):
    more = {**BENCHMARKS, "STS": {"benchmark": "sts"}, "newstest": {"benchmark": "psm"}}
    (data / "newstest").mkdir()
    (data / "newstest" / "README").write_text("nothing yet")
    outcome = run({"good": MODELS["good"]}, more)
    assert set(outcome.missing) == {"good x STS", "good x newstest"} and outcome.absent == {}
    outcome = run({"good": MODELS["good"]}, more, absent="skip")
    assert outcome.missing == {} and set(outcome.absent) == {"STS", "newstest"}
    assert outcome.table.splitlines()[0].split()[:3] == ["model", "Tatoeba", "non-English"]
    assert "STS" not in outcome.table
    assert set(run(MODELS, more, absent="skip").absent) == {"STS", "newstest"}  # once, not for each model


def test_a_folder_one_level_off_is_named(run, data, tmp_path):
    for folder, meant in ((data / "tatoeba", data / "tatoeba"), (tmp_path, data / "tatoeba")):
        missing = grid.evaluate(
            {"good": MODELS["good"]}, {"tatoeba": {}}, str(folder), str(tmp_path / "out"), cache=False
        ).missing
        assert missing["good x tatoeba"].endswith(f"; did you mean the folder {meant}?")


def fails_at_cats(texts):
    calls.append(list(texts))
    if "cat" in texts:
        raise RuntimeError("no cats")
    return np.eye(4)[[MEANINGS.get(text, 3) for text in texts]]


@pytest.mark.parametrize("cache", [True, False])
def test_each_cell_counts_its_own_sentences(run, tmp_path, cache):
    def counted(model, name):
        return json.loads((tmp_path / "out" / model / name / "results.json").read_text())["sentences"]

    own = {"sentences": 6, "empty": 0, "truncated": 0}
    run(cache=cache)
    assert all(counted(model, name) == own for model in MODELS for name in BENCHMARKS)
    outcome = run({"afraid": {"embedder": fails_at_cats}}, cache=cache)
    assert list(outcome.missing) == ["afraid x Tatoeba"] and "Hund" in asked()
    assert counted("afraid", "non-English") == own


def test_values_of_options_are_checked_before_a_model_is_loaded(run):
    for options, message in (
        ({"benchmark": "sts", "years": ["2017"]}, "the option sts.years is .*; wanted a whole number or several"),
        ({"benchmark": "xquad", "articles": [1]}, "xquad.articles is .*; wanted 2 values between commas"),
    ):
        with pytest.raises(ValueError, match=message):
            run(benchmarks={"a": options})
    assert not calls


def test_a_cell_belongs_to_one_process_at_a_time(run, tmp_path):
    folder = tmp_path / "out" / "good" / "Tatoeba"
    folder.mkdir(parents=True)
    with disk.open_locked(folder / ".lock"):
        outcome = run({"good": MODELS["good"]})
    assert outcome.missing == {"good x Tatoeba": "another process is at it"}
    assert run({"good": MODELS["good"]}).missing == {}


def test_differences_and_recipe_are_kept(run, tmp_path):
    outcome = run(differences={"gain": ("good", "half")}, config_text="evaluate.x = 1\n")
    rows = json.loads((tmp_path / "out" / "summary.json").read_text())["rows"]
    assert rows["gain"]["Tatoeba"] == pytest.approx(rows["good"]["Tatoeba"] - rows["half"]["Tatoeba"])
    assert "gain" in outcome.table
    assert (tmp_path / "out" / "recipe.gin").read_text() == "evaluate.x = 1\n"


def test_ready_vectors_beside_a_function(run, tmp_path):
    """Another tool's vectors of the same texts are another model in the same table."""
    (tmp_path / "texts.txt").write_text("".join(f"{word}\n" for word in MEANINGS))
    np.save(tmp_path / "texts.npy", np.eye(4)[list(MEANINGS.values())])
    models = {"good": MODELS["good"], "ready": {"vectors": str(tmp_path / "texts.npy")}}
    rows = run(models).table.splitlines()[1:]
    assert [row.split()[1:] for row in rows] == [["100.0", "100.0"]] * 2


def test_what_could_not_run_is_refused_at_once(run, tmp_path):
    for arguments, message in (
        (({}, BENCHMARKS), "no models are named"),
        ((MODELS, {"x": {"benchmark": "tatoba"}}), "there is no benchmark 'tatoba'; did you mean tatoeba"),
        ((MODELS, {"tatoeba": {"directoin": "xx->en"}}), "the benchmark tatoeba has no option directoin; it has"),
        (({"a": {"embedder": fails, "layer": 3}}, BENCHMARKS), "model 'a': layer can't be set for embedder"),
        (({"a": {"vectors": "x.npy", "passage_encoder": "y"}}, BENCHMARKS), "but 'Tatoeba' has no passages"),
        (({"a b": MODELS["good"], "a/b": MODELS["good"]}, BENCHMARKS), "names that give the same folder"),
        ((["a"], BENCHMARKS), "models are .*wanted {NAME: {OPTION: VALUE"),
    ):
        with pytest.raises(ValueError, match=message):
            run(*arguments)
    with pytest.raises(ValueError, match="absent is \"?'?ignore"):
        run(absent="ignore")
    with pytest.raises(ValueError, match="there is no table 'ccp_tatoba'; did you mean ccp_tatoeba"):
        run(columns="ccp_tatoba")
    assert not (tmp_path / "out").exists()
