import json
import types

import numpy as np
import pytest

from vmsst_jax.benchmarks import html_report, report, suite, tatoeba
from vmsst_jax.retrieval import calibration_fit
from vmsst_jax.retrieval.calibration import Calibrated

ANGLES = {"Hund": 0, "Katze": 50, "Maus": 100, "dog": 10, "cat": 80, "mouse": 95, "chien": 20, "hond": 12}
VECTORS = {text: (np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))) for text, degrees in ANGLES.items()}


@pytest.fixture
def angles(text_vectors):
    """A model whose embedding of a word is a direction in the plane."""
    return text_vectors(VECTORS)


@pytest.fixture
def data(tmp_path):
    write(tmp_path, "deu", ["Hund", "Katze", "Maus"], ["dog", "cat", "mouse"])
    write(tmp_path, "fra", ["chien"], ["dog"])
    return tmp_path


def write(folder, code, foreign, english):
    for ending, lines in ((code, foreign), ("eng", english)):
        (folder / f"tatoeba.{code}-eng.{ending}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def write_many(folder, codes, n=12):
    for code in codes:
        write(folder, code, [f"{code} {i}" for i in range(n)], [f"eng {i}" for i in range(n)])


def test_scores_by_hand(data, angles):
    result, table = suite.run("tatoeba", angles, data, {"languages": None})
    # Hund 0 -> dog 10 right; Katze 50 -> cat 80 right; Maus 100 -> mouse 95 right.
    # dog 10 -> Hund 0 right; cat 80 -> Maus 100 wrong; mouse 95 -> Maus 100 right.
    assert result["per_language"]["deu"] == {
        "pairs": 3, "seen": True, "xx->en": 1.0, "en->xx": pytest.approx(2 / 3), "mean": pytest.approx(5 / 6),
        "margin": None, "gap": None, "skewness": None,
    }  # fmt: skip
    means = result["means"]
    assert {name: means[name]["languages"] for name in means} == {"all": 2, "seen": 1, "unseen": 1}
    assert means["all"]["en->xx"] == pytest.approx((2 / 3 + 1) / 2)  # macro: one pair of French counts as much
    assert means["unseen"]["mean"] == 1.0
    assert result["index"] == {"kind": "exact", "recall": 1.0}
    assert result["scores"][-1] == "mean"
    assert "deu" in table and "66.7" in table and "mean of unseen" in table


def test_every_sentence_is_embedded_once_with_its_language(data, angles):
    tatoeba.evaluate(angles, data)
    assert sorted(angles.asked) == sorted(
        [("deu", "Hund"), ("deu", "Katze"), ("deu", "Maus"), ("fra", "chien")]
        + [("eng", "dog"), ("eng", "cat"), ("eng", "mouse")]
    )


def test_a_repeated_sentence_is_an_error_at_its_second_place(tmp_path, angles):
    write(tmp_path, "deu", ["Hund", "Hund", "Maus"], ["dog", "dog", "mouse"])
    scores = tatoeba.evaluate(angles, tmp_path)["per_language"]["deu"]
    assert scores["xx->en"] == scores["en->xx"] == pytest.approx(2 / 3)


def test_without_unseen_languages(data, angles):
    result, table = suite.run("tatoeba", angles, data, {"languages": ["de"]})
    assert list(result["per_language"]) == ["deu"]
    empty = result["means"]["unseen"]
    assert empty["languages"] == 0 and set(empty.values()) == {0, None}
    assert table.splitlines()[-1].split() == ["mean", "of", "unseen", "0", *"-----"]


def test_seen_languages(data, text_vectors):
    unknown = tatoeba.evaluate(text_vectors(VECTORS, codes=("und",)), data)
    assert {s["seen"] for s in unknown["per_language"].values()} == {None}
    assert unknown["means"]["seen"]["languages"] == unknown["means"]["unseen"]["languages"] == 0
    said = tatoeba.evaluate(text_vectors(VECTORS, codes=("und",)), data, seen=["fr"])
    assert [s["seen"] for s in said["per_language"].values()] == [False, True]
    laser = tatoeba.evaluate(text_vectors(VECTORS, codes=("und",)), data, seen=["laser93"])
    assert laser["means"]["seen"]["languages"] == 2


def test_named_sets_and_xtreme_direction(tmp_path, text_vectors):
    ccp = "ara bul cmn deu ell fra hin rus spa swh tha tur urd vie".split()
    write_many(tmp_path, [*ccp, "xho"])
    everything = tatoeba.evaluate(text_vectors(), tmp_path)
    chosen, table = suite.run("tatoeba", text_vectors(), tmp_path, {"languages": ["ccp14"], "direction": "en->xx"})
    assert list(chosen["per_language"]) == ccp
    assert chosen["means"]["all"] == everything["means"]["ccp14"] != everything["means"]["all"]
    assert chosen["direction"] == ["en->xx"] and chosen["scores"][-1] == "en->xx"
    assert table.splitlines()[0].split() == ["language", "in", "training", "pairs", "en->xx", "gap", "skewness"]
    assert sum(chosen["figures"][0]["series"]["translations"]) == 14 * 12


def test_gain_in_unseen_over_seen_languages(tmp_path, text_vectors):
    """VMSST's Table 8, with a baseline that knows nothing and a model that knows German, seen, and half of Xhosa."""
    write_many(tmp_path, ["deu", "xho"])
    baseline = tatoeba.evaluate(text_vectors(), tmp_path)
    file = report.write_results(tmp_path / "old", baseline, text_vectors())
    knows = {f"deu {i}": text_vectors().vector(f"eng {i}") for i in range(12)}
    knows |= {f"xho {i}": text_vectors().vector(f"eng {i}") for i in range(6)}
    result, table = suite.run("tatoeba", text_vectors(knows), tmp_path, {"baseline": file})
    found = result["baseline"]
    old = {code: s["mean"] for code, s in baseline["per_language"].items()}
    new = {code: s["mean"] for code, s in result["per_language"].items()}
    assert new["deu"] == 1.0 and 0.4 < new["xho"] < 0.8
    assert found["seen"] == pytest.approx(new["deu"] - old["deu"])
    assert found["delta"] == pytest.approx(new["xho"] - old["xho"] - (new["deu"] - old["deu"]))
    assert found["model"] == "abc" and f"delta {100 * found['delta']:+.1f}" in table

    def fails(match, **options):
        with pytest.raises(ValueError, match=match):
            tatoeba.evaluate(options.pop("model", text_vectors()), tmp_path, baseline=file, **options)

    fails("another protocol: direction", direction="en->xx")
    fails("another protocol: data", languages=["deu"])
    fails(r"another protocol: languages in training \['deu'\], here \['deu', 'xho'\]", seen=["de", "xh"])
    file.write_text(json.dumps(tatoeba.evaluate(text_vectors(), tmp_path, seen=["de", "xh"])))
    fails("none is unseen", seen=["de", "xh"])
    file.write_text('{"benchmark":\n "tatoeba"')
    fails("results.json, line 2: this is no JSON")


def test_the_calibration_picture(tmp_path, letters):
    draw = np.random.default_rng(0)
    for code in ("deu", "fra"):
        words = ["".join(word) for word in draw.choice(list("abcdefghij"), (40, 6))]
        write(tmp_path, code, [f"{word} {code * 3}" for word in words], [f"{word} one" for word in words])
    model = letters()
    samples = {
        code: model.encode(["".join(word) + end for word in draw.choice(list("abcdefghij"), (150, 6))])
        for code, end in (("de", " deudeudeu"), ("fr", " frafrafra"), ("en", " one"))
    }
    fitted = calibration_fit.fit(samples, steps=("shift",), model={"fingerprint": model.fingerprint()})
    calibrated = Calibrated(model, fitted)
    result = tatoeba.evaluate(calibrated, tmp_path, picture="de")
    _, before, after = result["figures"]
    assert (before["title"], after["title"]) == ("deu and eng, as embedded", "deu and eng, calibrated (shift)")
    assert {key: len(points) for key, points in before["groups"].items()} == {"deu": 40, "eng": 40}

    def apart(figure):  # distance of the two clouds' centres
        return np.linalg.norm(np.subtract(*(np.mean(points, axis=0) for points in figure["groups"].values())))

    assert apart(before) > 3 * apart(after) and len(before["links"]) == len(after["links"]) == 5
    page = html_report.page([result | {"model": {"fingerprint": "x"}}])
    assert page.count("deu and eng, as embedded") > 0 and page.count("deu and eng, calibrated (shift)") > 0
    assert "figures" in tatoeba.evaluate(calibrated, tmp_path) and len(result["figures"]) == 3
    both = tatoeba.evaluate(calibrated, tmp_path, picture=["fra", "deu"])["figures"]
    assert [figure["title"].split()[0] for figure in both[1:]] == ["deu", "deu", "fra", "fra"]
    with pytest.raises(ValueError, match="a picture shows what calibration does; give the model one"):
        tatoeba.evaluate(model, tmp_path, picture="de")
    with pytest.raises(ValueError, match="no language 'it'"):
        tatoeba.evaluate(calibrated, tmp_path, picture="it")


def test_results_file_has_what_a_reader_needs(data, tmp_path, angles):
    result, _ = suite.run("tatoeba", angles, data, {"languages": None})
    path = report.write_results(tmp_path / "new" / "folder", result, angles)
    saved = json.loads(path.read_text())
    wanted = "benchmark data split direction scoring layer pooling index per_language means versions model".split()
    assert set(wanted) <= set(saved)
    assert saved["layer"] == 3 and saved["versions"]["jax"] and saved["index"]["recall"] == 1.0
    with pytest.raises(FileExistsError, match="--overwrite"):
        report.check_output(path.parent)
    write(data, "fra", ["hond"], ["dog"])
    assert tatoeba.evaluate(angles, data)["data"]["sha256"] != saved["data"]["sha256"]


def test_sentences_without_text_or_vector(data, broken):
    write(data, "fra", [" ", ""], ["dog", "cat"])
    with pytest.raises(ValueError, match="tatoeba.fra-eng.fra: all 2 sentences of fra are blank"):
        tatoeba.evaluate(broken(), data)
    write(data, "fra", ["a", "", "zz"], ["dog", "cat", "x"])
    with pytest.raises(ValueError, match="tatoeba.fra-eng.fra, line 3: no vector"):
        tatoeba.evaluate(broken(), data, languages=["fra"])


def test_a_baseline_that_is_none(data, angles, tmp_path):
    file = tmp_path / "results.json"
    for contents, match in (("[1]", "is no result of a benchmark"), ("{", "line 1: this is no JSON")):
        file.write_text(contents)
        with pytest.raises(ValueError, match=match):
            tatoeba.evaluate(angles, data, baseline=file)
    written = report.write_results(tmp_path / "old", tatoeba.evaluate(angles, data), angles)
    changed = json.loads(written.read_text())
    changed["means"]["unseen"] = {"languages": 0}
    file.write_text(json.dumps(changed))
    with pytest.raises(ValueError, match="results.json has no mean mean of unseen languages"):
        tatoeba.evaluate(angles, data, baseline=file)


def test_bad_data(data, tmp_path, angles):
    def fails(error, match, folder=data, **options):
        with pytest.raises(error, match=match):
            tatoeba.evaluate(angles, folder, **options)

    fails(FileNotFoundError, "there is no folder", data / "none")
    (tmp_path / "empty").mkdir()
    fails(FileNotFoundError, "holds no files tatoeba", tmp_path / "empty")
    fails(ValueError, "no language 'dau'; closest: deu", languages=["dau"])
    fails(ValueError, "direction is 'en'; use one of both, xx->en, en->xx", direction="en")
    write(data, "fra", ["chien", "Hund"], ["dog"])
    fails(ValueError, r"tatoeba.fra-eng.fra has 2 lines and .*tatoeba.fra-eng.eng 1")
    write(data, "fra", [], [])
    fails(ValueError, "tatoeba.fra-eng.fra is empty")
    (data / "tatoeba.fra-eng.fra").unlink()
    fails(FileNotFoundError, "tatoeba.fra-eng.fra does not exist")
    with pytest.raises(ValueError, match="no benchmark 'tatoba'.*; known: .*tatoeba"):
        suite.run("tatoba", angles, data, {})


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.0])
def test_a_useless_vector_is_named_by_file_and_line(data, text_vectors, bad):
    model = text_vectors({**VECTORS, "cat": (bad, 0.0)})
    with pytest.raises(ValueError, match="tatoeba.deu-eng.eng, line 2: the vector of 'cat' holds NaN or infinity, or"):
        tatoeba.evaluate(model, data)
    model.encode = lambda texts, language: np.ones((1, 2))
    with pytest.raises(ValueError, match=r"vectors of shape \(1, 2\) for 3 sentences"):
        tatoeba.evaluate(model, data)


@pytest.mark.parametrize(("codes", "trained"), [(("de", "en"), {"de", "en"}), (("de", "fi"), set())])
def test_without_english_in_training_no_pair_counts_as_seen(codes, trained):
    embedder = types.SimpleNamespace(languages=types.SimpleNamespace(codes=codes))
    assert tatoeba._trained(embedder, None) == {tatoeba.canonical(code) for code in trained}
