"""Vectors that are kept: every text is embedded once, whatever the order, the process, or the moment of a kill."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest

from vmsst_jax.retrieval import cache, embedders
from vmsst_jax.retrieval.vector_checks import BadVector


class Model:
    """Embeds a text as [its letters, its words, scale]; texts of more than 9 letters are truncated."""

    dim, batch_size, max_length, uses_language = 3, 2, 9, False
    embedding = {"pooling": "mean", "layer": None, "normalize": False, "prefix": ""}

    def __init__(self, scale=1.0):
        self.scale, self.asked = scale, []
        self.counts = {"sentences": 0, "empty": 0, "truncated": 0}

    def encode(self, texts, batch_size=None, normalize=False, progress=False, *, language=None):
        self.asked += texts
        self.counts["truncated"] += int(self.truncated(texts).sum())
        extra = len(language or "") if self.uses_language else 0
        return np.array([[len(t), len(t.split()) + extra, self.scale] for t in texts], np.float32)

    def encode_layers(self, texts, *, language=None, progress=False):
        return np.stack([layer * self.encode(texts) for layer in range(4)])

    def truncated(self, texts):
        return np.array([len(text) > 9 for text in texts], bool)

    def describe(self):
        return {"scale": self.scale}

    def fingerprint(self):
        return f"model {self.scale}"


TEXTS = ["one", "two words", "a longer one", "", "one"]


def test_a_second_pass_costs_nothing(tmp_path):
    model, direct = Model(), Model().encode(TEXTS)
    first = cache.Cached(model, tmp_path)
    assert first.encode(TEXTS).tolist() == direct.tolist()
    assert model.asked == TEXTS[:4]
    assert first.encode(TEXTS[::-1]).tolist() == direct[::-1].tolist()
    assert first.encode(["two words", "new", "one"]).tolist() == Model().encode(["two words", "new", "one"]).tolist()
    assert model.asked == [*TEXTS[:4], "new"]
    assert (first.computed, first.found) == (5, 8)

    other = Model()
    second = cache.Cached(other, tmp_path)
    assert second.encode(TEXTS[1:4], normalize=True) == pytest.approx(
        direct[1:4] / np.linalg.norm(direct[1:4], axis=1, keepdims=True)
    )
    assert other.asked == [] and "3 vectors found, 0 computed; the cache" in second.line()
    assert second.dim == 3 and second.fingerprint() == "model 1.0" and second.describe() == {"scale": 1.0}


def test_counts_are_of_what_was_asked_for(tmp_path):
    for _ in range(2):
        kept = cache.Cached(Model(), tmp_path)
        kept.encode(TEXTS)
        kept.encode(["a longer one", "one"])
        assert kept.counts == {"sentences": 7, "empty": 1, "truncated": 2}


def test_texts_that_were_embedded_together_stay_on_the_disk(tmp_path):
    cache.Cached(Model(), tmp_path).encode(["a", "b", "c", "d"])
    rows = cache.Cached(Model(), tmp_path).encode(["b", "c"])
    assert isinstance(rows, np.memmap)
    rows[:] = 7  # stays here
    assert cache.Cached(Model(), tmp_path).encode(["b", "c"])[:, 0].tolist() == [1, 1]


def test_what_makes_other_vectors_makes_another_shelf(tmp_path):
    cache.Cached(Model(), tmp_path).encode(["a"])
    assert cache.Cached(Model(2.0), tmp_path).encode(["a"]).tolist() == [[1, 1, 2]]
    # Languages matter only to models that treat them differently.
    indifferent, model = Model(), Model()
    cache.Cached(indifferent, tmp_path).encode(["a"], language="de")
    assert indifferent.asked == []
    model.uses_language = True
    kept = cache.Cached(model, tmp_path)
    found = [kept.encode(["a"], language=language)[0, 1] for language in (None, "de", "deu", "de")]
    assert found == [1, 3, 4, 3] and model.asked == ["a", "a"]


def test_layers(tmp_path):
    model = Model()
    kept = cache.Cached(model, tmp_path)
    wanted = Model().encode_layers(TEXTS)
    assert kept.encode_layers(TEXTS).tolist() == wanted.tolist()
    assert kept.encode(TEXTS).tolist() == Model().encode(TEXTS).tolist()  # a shelf of its own
    asked = len(model.asked)
    again = kept.encode_layers(TEXTS[2:])
    assert again.shape == (4, 3, 3) and again.tolist() == wanted[:, 2:].tolist() and len(model.asked) == asked
    assert kept.encode_layers([]).shape == (4, 0) or kept.encode_layers([]).shape[1] == 0


def test_long_lists_are_kept_block_by_block(tmp_path, monkeypatch):
    """A run that dies in the middle goes on behind the last finished block."""
    monkeypatch.setattr(cache, "BLOCK", 3)
    texts = [f"text {i}" for i in range(10)]
    model = Model()

    def dies(block, **options):
        if "text 7" in block:
            raise KeyboardInterrupt
        return Model.encode(model, block, **options)

    model.encode = dies
    with pytest.raises(KeyboardInterrupt):
        cache.Cached(model, tmp_path).encode(texts)
    after = Model()
    kept = cache.Cached(after, tmp_path)
    assert kept.encode(texts).tolist() == Model().encode(texts).tolist()
    assert after.asked == texts[6:]
    # Rows of several segments in any order.
    order = [9, 0, 4, 4, 8]
    assert kept.encode([texts[i] for i in order]).tolist() == Model().encode([texts[i] for i in order]).tolist()


def test_damaged_segments_are_made_anew(tmp_path):
    cache.Cached(Model(), tmp_path).encode(TEXTS)
    (keys,) = tmp_path.rglob("*.keys.npy")
    vectors = keys.with_name(keys.name.replace(".keys", ""))
    for damage in (
        lambda: vectors.unlink(),
        lambda: vectors.write_bytes(vectors.read_bytes()[:-8]),
        lambda: keys.write_bytes(b""),
        lambda: np.save(vectors, np.ones((2, 3), np.float32)),
    ):
        damage()
        model = Model()
        assert cache.Cached(model, tmp_path).encode(TEXTS).tolist() == Model().encode(TEXTS).tolist()
        assert model.asked == TEXTS[:4]


def test_a_folder_that_cannot_be_written_costs_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    model = Model()
    kept = cache.Cached(model, tmp_path / "file" / "below")
    for _ in range(2):
        assert kept.encode(TEXTS).tolist() == Model().encode(TEXTS).tolist()
    assert model.asked == TEXTS[:4]
    assert "vectors are not kept for another run" in caplog.text and "--cache_dir" in caplog.text


def test_a_bad_vector_is_that_of_the_same_text(tmp_path):
    def embed(texts):
        return np.array([[np.nan if "bad" in text else 0 if "zero" in text else 1] for text in texts])

    kept = cache.Cached(embedders.load(embedder=embed, batch_size=2), tmp_path)
    kept.encode(["a", "b"])
    with pytest.raises(BadVector, match="returned NaN or infinity for 'bad'") as error:
        kept.encode(["a", "b", "c", "c", "d", "bad"])
    assert error.value.row == 5
    assert kept.encode(["a", "zero"]).tolist() == [[1], [0]]
    with pytest.raises(BadVector, match="the vector of 'zero' holds NaN") as error:
        kept.encode(["a", "zero"], normalize=True)
    assert error.value.row == 1


def test_paused(tmp_path):
    model = Model()
    kept = cache.Cached(model, tmp_path)
    with cache.paused():
        assert kept.encode(TEXTS).tolist() == Model().encode(TEXTS).tolist()
    assert not list(tmp_path.iterdir()) and kept.counts["truncated"] == 1
    kept.encode(TEXTS)
    assert len(model.asked) == 9


def test_drafts_of_killed_writers_are_removed_after_a_day(tmp_path):
    cache.Cached(Model(), tmp_path).encode(["a"])
    (shelf,) = tmp_path.iterdir()
    old, new = shelf / ".a.new", shelf / ".b.new"
    for draft in (old, new):
        draft.write_bytes(b"half")
    os.utime(old, (time.time() - 2 * cache.STALE,) * 2)
    cache.Cached(Model(), tmp_path).encode(["a"])
    assert not old.exists() and new.exists()


WRITER = """
import sys
from vmsst_jax.retrieval import cache, embedders

def embed(texts):
    return [[len(t), sum(map(ord, t))] for t in texts]

texts = [f"text {i}" for i in range(600)]
texts = texts[int(sys.argv[2]):] + texts[:int(sys.argv[2])]
cache.BLOCK = 20
kept = cache.Cached(embedders.load(embedder=embed), sys.argv[1])
assert kept.encode(texts).tolist() == embed(texts)
"""


def test_processes_write_at_once_and_are_killed(tmp_path):
    """Whoever is killed when, the other and those that come after read whole rows."""
    script, folder = tmp_path / "writer.py", tmp_path / "cache"
    script.write_text(WRITER)
    victim, other = (subprocess.Popen([sys.executable, script, folder, shift]) for shift in ("0", "300"))
    until = time.monotonic() + 100
    while not list(folder.glob("*/*.keys.npy")) and time.monotonic() < until:
        time.sleep(0.002)
    victim.kill()
    victim.wait()
    assert other.wait(timeout=100) == 0
    (shelf,) = folder.iterdir()
    rows = {}
    for keys in shelf.glob("*.keys.npy"):
        vectors = np.load(keys.with_name(keys.name.replace(".keys", "")))
        rows |= {key.tobytes(): row.tolist() for key, row in zip(np.load(keys), vectors, strict=True)}
    assert len(rows) == 600 and len({tuple(row) for row in rows.values()}) > 40


def test_ready_vectors_are_not_kept_twice(tmp_path):
    (tmp_path / "a.txt").write_text("one\n")
    np.save(tmp_path / "a.npy", np.ones((1, 2)))
    ready = embedders.load(vectors=tmp_path / "a.npy")
    assert cache.cached(ready, tmp_path) is ready
    function = embedders.load(embedder=lambda texts: np.ones((len(texts), 2)))
    assert cache.cached(function, tmp_path).folder == tmp_path / "embeddings"
