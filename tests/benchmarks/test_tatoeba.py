import json
import os
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from vmsst_jax.benchmarks import report, suite, tatoeba

DATA = Path(os.environ.get("VMSST_DATA_DIR", Path(__file__).parents[3] / "shared" / "data")) / "tatoeba"
ANGLES = {"Hund": 0, "Katze": 50, "Maus": 100, "dog": 10, "cat": 80, "mouse": 95, "chien": 20, "hond": 12}


class Angles:
    """A model whose embedding of a word is a direction in the plane, in degrees."""

    languages = SimpleNamespace(codes=("en", "de"))
    counts = {"sentences": 0, "empty": 0, "truncated": 0}
    batch_size = 1

    def __init__(self):
        self.asked = []

    def encode(self, texts, normalize=False, progress=False):
        self.asked += texts
        angles = np.deg2rad([ANGLES[text] for text in texts])
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    def describe(self):
        return {"layer": 3, "pooling": "mean", "step": 1}

    def fingerprint(self):
        return "abc"


@pytest.fixture
def data(tmp_path):
    write(tmp_path, "deu", ["Hund", "Katze", "Maus"], ["dog", "cat", "mouse"])
    write(tmp_path, "fra", ["chien"], ["dog"])
    return tmp_path


def write(folder, code, foreign, english):
    for ending, lines in ((code, foreign), ("eng", english)):
        (folder / f"tatoeba.{code}-eng.{ending}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def test_scores_by_hand(data):
    model = Angles()
    result, table = suite.run("tatoeba", model, data, {"languages": None})
    # Hund 0 -> dog 10 right; Katze 50 -> cat 80 right; Maus 100 -> mouse 95 right.
    # dog 10 -> Hund 0 right; cat 80 -> Maus 100 wrong; mouse 95 -> Maus 100 right.
    assert result["per_language"]["deu"] == {
        "pairs": 3, "seen": True, "xx->en": 1.0, "en->xx": pytest.approx(2 / 3), "mean": pytest.approx(5 / 6)
    }  # fmt: skip
    means = result["means"]
    assert {name: means[name]["languages"] for name in means} == {"all": 2, "seen": 1, "unseen": 1}
    assert means["all"]["en->xx"] == pytest.approx((2 / 3 + 1) / 2)  # macro: one pair of French counts as much
    assert means["unseen"]["mean"] == 1.0
    assert Counter(model.asked) == Counter(["Hund", "Katze", "Maus", "dog", "cat", "mouse", "chien"])
    assert result["index"] == {"kind": "exact", "recall": 1.0}
    assert "deu" in table and "66.7" in table and "mean of unseen" in table


def test_a_repeated_sentence_is_an_error_at_its_second_place(tmp_path):
    write(tmp_path, "deu", ["Hund", "Hund", "Maus"], ["dog", "dog", "mouse"])
    scores = tatoeba.evaluate(Angles(), tmp_path)["per_language"]["deu"]
    assert scores["xx->en"] == scores["en->xx"] == pytest.approx(2 / 3)


def test_without_unseen_languages(data):
    result, table = suite.run("tatoeba", Angles(), data, {"languages": ["de"]})
    assert list(result["per_language"]) == ["deu"]
    assert result["means"]["unseen"] == {"languages": 0, "xx->en": None, "en->xx": None, "mean": None}
    assert table.splitlines()[-1].split() == ["mean", "of", "unseen", "0", "-", "-", "-"]


def test_results_file_has_what_a_reader_needs(data, tmp_path):
    result, _ = suite.run("tatoeba", Angles(), data, {"languages": None})
    path = report.write_results(tmp_path / "new" / "folder", result, Angles())
    saved = json.loads(path.read_text())
    wanted = "benchmark data split direction scoring layer pooling index per_language means versions model".split()
    assert set(wanted) <= set(saved)
    assert saved["layer"] == 3 and saved["versions"]["jax"] and saved["index"]["recall"] == 1.0
    before = saved["data"]["sha256"]
    with pytest.raises(FileExistsError, match="--overwrite"):
        report.check_output(path.parent)
    write(data, "fra", ["hond"], ["dog"])
    assert tatoeba.checksum(data, ["deu", "fra"]) != before


def test_bad_data(data, tmp_path):
    def fails(error, match, folder=data, languages=None):
        with pytest.raises(error, match=match):
            tatoeba.evaluate(Angles(), folder, languages=languages)

    fails(FileNotFoundError, "there is no folder", data / "none")
    (tmp_path / "empty").mkdir()
    fails(FileNotFoundError, "holds no files tatoeba", tmp_path / "empty")
    fails(ValueError, "no language 'dau'; closest: deu", languages=["dau"])
    write(data, "fra", ["chien", "Hund"], ["dog"])
    fails(ValueError, r"tatoeba.fra-eng.fra has 2 lines and .*tatoeba.fra-eng.eng 1")
    write(data, "fra", [], [])
    fails(ValueError, "tatoeba.fra-eng.fra is empty")
    (data / "tatoeba.fra-eng.fra").unlink()
    fails(FileNotFoundError, "tatoeba.fra-eng.fra does not exist")
    with pytest.raises(ValueError, match="no benchmark 'tatoba'; known: tatoeba"):
        suite.run("tatoba", Angles(), data, {})


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no Tatoeba data at {DATA}: set VMSST_DATA_DIR")
def test_real_files_against_a_loop():
    found = tatoeba.find_languages(DATA)
    assert len(found) == 112
    sizes = {code: len(tatoeba.read_pairs(DATA, code).english) for code in ("kat", "kaz", "khm", "swh", "deu")}
    assert sizes == {"kat": 746, "kaz": 575, "khm": 722, "swh": 390, "deu": 1000}

    class Trigrams(Angles):
        def encode(self, texts, normalize=False, progress=False):
            x = np.full((len(texts), 64), 1e-3, np.float32)
            for i, text in enumerate(texts):
                for j in range(len(text)):
                    x[i, sum(map(ord, text[j : j + 3])) % 64] += 1
            return x / np.linalg.norm(x, axis=1, keepdims=True)

    scores = tatoeba.evaluate(Trigrams(), DATA, languages=["deu"])["per_language"]["deu"]
    a, b = (Trigrams().encode(side).astype(np.float64) for side in tatoeba.read_pairs(DATA, "deu"))
    distance = ((a[:, None] - b[None]) ** 2).sum(-1)  # LASER's own wording: L2 between unit vectors
    # Sentences of equal trigrams tie, which float64 breaks at random: of those within 1e-6 the first one counts.
    right = [np.flatnonzero(row <= row.min() + 1e-6)[0] == i for i, row in enumerate(distance)]
    assert scores["xx->en"] == pytest.approx(np.mean(right), abs=0.003)
