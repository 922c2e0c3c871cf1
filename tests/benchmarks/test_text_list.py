"""The texts that benchmarks embed, written down, embedded by another tool, and brought back."""

import os

import numpy as np
import pytest

from vmsst_jax.benchmarks import suite, text_list
from vmsst_jax.retrieval import embedders


@pytest.fixture
def data(tmp_path):
    for ending, lines in (("deu", ["Hund", "Maus", "Hund"]), ("eng", ["dog", "mouse", "dog"])):
        (tmp_path / f"tatoeba.deu-eng.{ending}").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "deu-fra.tsv").write_text("Hund\tchien\nKatze\tchat\n")
    return tmp_path


def test_there_and_back(data, tmp_path):
    runs = [("tatoeba", data, {}), ("tatoeba_non_english", data, {})]
    file = tmp_path / "texts.txt"
    assert text_list.write(file, runs) == 7
    lines = file.read_text().splitlines()
    assert sorted(lines) == ["Hund", "Katze", "Maus", "chat", "chien", "dog", "mouse"]
    with pytest.raises(FileExistsError, match="texts.txt exists"):
        text_list.write(file, runs)
    meanings = {"Hund": 0, "dog": 0, "chien": 0, "Maus": 1, "mouse": 1, "Katze": 2, "chat": 2}
    np.save(tmp_path / "texts.npy", np.eye(3)[[meanings[line] for line in lines]])
    ready = embedders.load(vectors=tmp_path / "texts.npy")
    result, _ = suite.run("tatoeba_non_english", ready, data, {})
    assert result["means"]["all"]["mean"] == 1.0


def test_line_breaks_and_layers(tmp_path):
    recorder = text_list.Recorder()
    vectors = recorder.encode(["two\nlines", "two lines", "other"], normalize=True)
    assert list(recorder.texts) == ["two lines", "other"]
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0)
    assert recorder.encode(["other"]).tolist() == recorder.encode(["other", "more"])[:1].tolist()
    assert recorder.encode_layers(["a", "b"]).shape == (2, 2, recorder.dim)


def test_a_corpus_leaves_nothing_behind(tmp_path, monkeypatch):
    """Vectors of passages would be checksums, which nobody may find later."""
    seen = []

    class Corpus:
        @staticmethod
        def evaluate(embedder, data_dir, *, languages=None, embeddings_dir=None):
            seen.append(embeddings_dir)
            embedder.encode(["passage"], language="en")
            return {}

        @staticmethod
        def table(result):
            return ""

    monkeypatch.setitem(suite.BENCHMARKS, "corpus", "corpus")
    monkeypatch.setattr(suite, "_module", lambda name: Corpus)
    assert text_list.write(tmp_path / "texts.txt", [("corpus", tmp_path, {})]) == 1
    (folder,) = seen
    assert folder and not os.path.exists(folder)
