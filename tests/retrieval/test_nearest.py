"""The choice of an index, ScaNN itself, and recall that is measured."""

import sys

import numpy as np
import pytest

from vmsst_jax.retrieval import exact, nearest, scann_index
from vmsst_jax.retrieval.exact import normalize
from vmsst_jax.retrieval.rows import Joined
from vmsst_jax.retrieval.scann_index import ScannIndex, Settings


@pytest.fixture(scope="module")
def clustered():
    """Queries and a corpus of unit vectors around common centres, as sentences and their translations are."""
    draw = np.random.default_rng(0)
    centres = draw.normal(size=(60, 32))
    corpus = centres[draw.integers(0, 60, 3000)] + 0.5 * draw.normal(size=(3000, 32))
    return normalize(corpus[:200] + 0.1 * draw.normal(size=(200, 32))), normalize(corpus)


TREE = Settings(rows=3000, leaves=40, searched=0.3, block=2, candidates=60)


@pytest.mark.parametrize("settings", [None, TREE])
def test_scann_finds_most_and_says_how_many(clustered, settings):
    queries, corpus = clustered
    found = nearest.top_k(queries, corpus, 4, "scann", settings=settings, threads=2)
    scores, right = exact.top_k(queries, corpus, 4)
    hits = np.mean([len(set(a) & set(b)) / 4 for a, b in zip(found.indices, right, strict=True)])
    assert found.index["recall"] == pytest.approx(hits) and hits > 0.9
    assert found.index["kind"] == "scann" and found.index["sampled_queries"] == 200 and found.index["k"] == 4
    assert found.index["settings"]["leaves"] == (settings.leaves if settings else 0)
    products = np.einsum("nd,nkd->nk", queries, corpus[found.indices])
    np.testing.assert_allclose(found.scores, products, atol=1e-5)  # candidates are scored exactly
    assert (np.diff(found.scores, axis=1) <= 0).all() and found.indices.dtype == np.int64


@pytest.mark.parametrize("k", [4, 40])
def test_a_large_corpus_is_indexed_in_parts(clustered, monkeypatch, k):
    queries, corpus = clustered
    monkeypatch.setattr(nearest, "SCANN_ROWS", 900)
    shards = Joined(np.split(corpus, [100, 1700]))
    found = nearest.top_k(queries, shards, k, "scann", threads=2)
    assert found.index["parts"] == 4 and found.index["recall"] > 0.95 and found.scores.shape == (200, k)
    products = np.einsum("nd,nkd->nk", queries, corpus[found.indices])
    np.testing.assert_allclose(found.scores, products, atol=1e-5)
    assert (np.diff(found.scores, axis=1) <= 0).all() and all(len(set(row)) == k for row in found.indices.tolist())
    right = exact.top_k(queries, corpus, k)[1]
    hits = np.mean([len(set(a) & set(b)) / k for a, b in zip(found.indices, right, strict=True)])
    assert found.index["recall"] == pytest.approx(hits)


def test_several_searches_together():
    exactly, nearly = ({"kind": kind, "recall": recall, "k": 4} for kind, recall in (("exact", 1.0), ("scann", 0.98)))
    assert nearest.together([exactly, exactly]) == exactly
    assert nearest.together([exactly, nearly]) == {"kind": "exact and scann", "recall": 0.98, "k": 4}


def test_recall_by_hand(monkeypatch):
    corpus = np.eye(4, dtype=np.float32)
    queries = np.array([[1, 0.5, 0, 0], [0, 0, 1, 0.5]], np.float32)
    assert nearest.measured_recall(queries, corpus, np.array([[0, 1], [3, 2]])) == (1.0, 2)
    assert nearest.measured_recall(queries, corpus, np.array([[0, 2], [0, 1]])) == (0.25, 2)
    tied = np.array([[1, 0, 0, 0]], np.float32)  # all others are equally far: any of them is right
    assert nearest.measured_recall(tied, corpus, np.array([[0, 3]])) == (1.0, 1)
    monkeypatch.setattr(nearest, "SAMPLE", 1)
    assert nearest.measured_recall(queries, corpus, np.array([[0, 1], [2, 3]]))[1] == 1


def test_leaves_that_hold_too_few(clustered):
    queries, corpus = clustered
    found = ScannIndex(corpus[:200], 100, settings=Settings(200, 20, 0.05, 2, 50)).top_k(queries[:5], 100)
    assert np.isfinite(found[0]).all()
    assert all(len(set(row)) == 100 for row in found[1].tolist())


def test_approximate_selection_is_exact_on_a_cpu(clustered):
    queries, corpus = clustered
    found = nearest.top_k(queries, corpus, 5, "approx")
    np.testing.assert_array_equal(found.indices, exact.top_k(queries, corpus, 5)[1])
    assert found.index["recall"] == 1.0


def test_the_choice_by_size(monkeypatch):
    assert nearest.choose(1000, 100_000) == "exact"
    assert nearest.choose(1_000_000, 1_000_000) == "scann"
    monkeypatch.setattr(scann_index, "available", lambda: False)
    assert nearest.choose(1_000_000, 1_000_000) == "exact"
    monkeypatch.setattr(nearest.jax, "default_backend", lambda: "tpu")
    assert nearest.choose(1, 6_000_000) == "approx" and nearest.choose(10_000_000, 1_000_000) == "exact"
    monkeypatch.setattr(nearest.jax, "default_backend", lambda: "gpu")
    assert nearest.choose(200_000, 60_000_000) == "exact"
    assert nearest.choose(1, 10, "scann") == "scann"
    with pytest.raises(ValueError, match="index is 'hnsw'; use one of auto, exact, scann, approx"):
        nearest.choose(1, 1, "hnsw")


def test_settings_grow_with_the_corpus():
    sizes = [settings.rows for settings in scann_index.SETTINGS]
    assert sizes == sorted(sizes) and sizes[-1] == float("inf")
    assert scann_index.settings_for(200_000).rows >= 200_000
    assert scann_index.settings_for(10**9) == scann_index.SETTINGS[-1]


def test_what_scann_cannot_index(clustered, monkeypatch):
    queries, corpus = clustered

    def fails(match, queries=queries, corpus=corpus, k=4):
        with pytest.raises(ValueError, match=match):
            nearest.top_k(queries, corpus, k, "scann")

    fails("the corpus has 15 rows; ScaNN needs at least 16", corpus=corpus[:15])
    fails("k is 17 but the corpus has 16 rows", corpus=corpus[:16], k=17)
    fails("k is 1001; ScaNN finds 1 to 1000", k=1001)
    fails("same D", queries=queries[:, :31])
    fails("row 7 of corpus is not of length 1; normalize", corpus=corpus * (1 + (np.arange(3000) == 7)[:, None]))
    for bad in (np.nan, np.inf, 0):
        broken = corpus[:200].copy()
        broken[7] = bad
        fails("row 7 of corpus is not of length 1", corpus=broken)
        fails("row 7 of queries is no usable vector", queries=broken)
    index = ScannIndex(corpus[:100], 3)
    with pytest.raises(ValueError, match="k is 4, but the index was made for up to 3"):
        index.top_k(queries, 4)
    for name in [name for name in sys.modules if name.split(".")[0] == "scann"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "scann", None)
    fails("ScaNN cannot be loaded .*; install scann, which exists for x86-64 Linux, or search exactly")
    assert not scann_index.available()
