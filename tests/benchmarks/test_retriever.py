"""Questions and passages may go through two models or behind two prefixes, and a result says so."""

import inspect
import typing

import numpy as np
import pytest

from vmsst_jax.benchmarks import suite
from vmsst_jax.benchmarks.retriever import Retriever, RetrieverOptions, TowerOptions
from vmsst_jax.retrieval import calibration_fit, embedders, nearest
from vmsst_jax.retrieval.cache import Cached
from vmsst_jax.retrieval.calibration import Calibrated
from vmsst_jax.retrieval.exact import normalize
from vmsst_jax.retrieval.records import Records


def test_prefixes_and_languages(letters):
    model = letters()
    retriever = Retriever(model, query_prefix="q ", passage_prefix="p ")
    retriever.questions(["ab?"], "fi")
    retriever.passages(["cd"], "en")
    assert model.asked == [("fi", "q ab?"), ("en", "p cd")]
    described = retriever.describe()
    assert (described["query_prefix"], described["passage_prefix"]) == ("q ", "p ")
    assert described["passage_encoder"] is None


@pytest.mark.parametrize(
    ("options", "before"),
    [
        ({}, ("own ", "own ")),
        ({"passage_prefix": "p "}, ("own ", "p ")),
        ({"query_prefix": ""}, ("", "own ")),
        ({"query_prefix": "q ", "passage_prefix": "p "}, ("q ", "p ")),
    ],
)
def test_prefixes_replace_the_models_own(letters, tmp_path, options, before):
    for model in (letters("own "), Cached(letters("own "), tmp_path)):
        asked = getattr(model, "embedder", model).asked
        retriever = Retriever(model, **options)
        retriever.questions(["ab"], "fi")
        retriever.passages(["cd"], "en")
        assert asked == [("fi", f"{before[0]}ab"), ("en", f"{before[1]}cd")]
        described = retriever.describe()
        assert (described["query_prefix"], described["passage_prefix"]) == before
        assert described["passage_encoder"] is None


def test_a_model_without_its_prefix(tmp_path):
    """The same vectors, fingerprint and shelf as of a model that was loaded without one, counted in one place."""

    def lengths(texts):
        return [[len(text), 1.0] for text in texts]

    plain, prefixed = (
        Cached(embedders.load(embedder=lengths, **options), tmp_path) for options in ({}, {"prefix": "p "})
    )
    bare = prefixed.without_prefix()
    assert bare.fingerprint() == plain.fingerprint() != prefixed.fingerprint()
    assert prefixed.encode(["ab"]).tolist() == [[4, 1]] and bare.encode(["ab"]).tolist() == [[2, 1]]
    assert plain.encode(["ab"]).tolist() == [[2, 1]] and (plain.found, plain.computed) == (1, 0)
    assert prefixed.counts["sentences"] == 2 and (prefixed.found, prefixed.computed) == (0, 2)
    assert prefixed.describe()["prefix"] == "p "


def test_a_calibration_keeps_its_prefix(letters):
    model = letters("own ")
    rows = np.random.default_rng(0).normal(size=(100, 26))
    fitted = calibration_fit.fit({"en": rows}, steps=["shift"], model={"fingerprint": model.fingerprint()})
    Retriever(Calibrated(model, fitted), query_prefix="own ")
    with pytest.raises(ValueError, match="fitted with the prefix 'own '; leave query_prefix and passage_prefix out"):
        Retriever(Calibrated(model, fitted), query_prefix="q ")


def test_two_towers(letters):
    questions, passages = letters(), letters()
    retriever = Retriever(questions, passage_encoder=passages)
    retriever.questions(["ab"], "en")
    retriever.passages(["cd"], "en")
    assert questions.asked == [("en", "ab")] and passages.asked == [("en", "cd")]
    assert retriever.describe()["passage_encoder"] == {"kind": "letters", "fingerprint": "letters "}
    wide = letters()
    wide.dim = 30
    with pytest.raises(ValueError, match="26 numbers and those of passage_encoder 30"):
        Retriever(questions, passage_encoder=wide)
    with pytest.raises(FileNotFoundError, match="nowhere"):
        Retriever(questions, passage_encoder="/nowhere/at/all")


def test_similarity_and_question_marks(letters):
    np.testing.assert_allclose(Retriever(letters()).questions(["aab"], "en")[0, :2], np.array([2, 1]) / 5**0.5)
    dot = Retriever(model := letters(), similarity="dot", strip_question_mark=True)
    assert dot.questions(["aab ?", "a?b", "b??"], "en")[:, :2].tolist() == [[2, 1], [1, 1], [0, 1]]
    assert [text for _, text in model.asked] == ["aab", "a?b", "b?"]
    with pytest.raises(ValueError, match="similarity is 'euclid'; use one of cosine, dot"):
        Retriever(letters(), similarity="euclid")


def test_how_the_nearest_are_found(letters, monkeypatch):
    draw = np.random.default_rng(0)
    corpus = normalize(draw.normal(size=(300, 26)))
    queries = normalize(corpus[:20] + 0.05 * draw.normal(size=(20, 26)))
    assert Retriever(letters()).nearest(queries, corpus, 2).index == {"kind": "exact", "recall": 1.0, "k": 2}
    by_scann = Retriever(letters(), index="scann").nearest(queries, corpus, 2)
    assert by_scann.indices[:, 0].tolist() == list(range(20)) and by_scann.index["sampled_queries"] == 20
    monkeypatch.setattr(nearest, "SCANN_FROM", 20 * 300)
    assert Retriever(letters()).nearest(queries, corpus, 2).index["kind"] == "scann"
    assert Retriever(letters(), similarity="dot").nearest(queries, corpus, 2).index["kind"] == "exact"
    with pytest.raises(ValueError, match="ScaNN's settings are for the cosine"):
        Retriever(letters(), similarity="dot", index="scann")
    with pytest.raises(ValueError, match="index is 'faiss'; use one of auto, exact, scann, approx"):
        Retriever(letters(), index="faiss")


def test_options_of_benchmarks_are_those_of_the_retriever():
    own = set(inspect.signature(Retriever).parameters) - {"embedder"}
    assert own == set(typing.get_type_hints(RetrieverOptions)) and "index" in own
    for name in ("mrtydi", "xor_retrieve"):
        assert own <= set(suite.options_of(name))
    assert set(suite.options_of("xquad")) == {"languages", "articles", *typing.get_type_hints(TowerOptions)}
    assert {"base", "index"} <= set(suite.options_of("question_retrieval"))
    assert "similarity" not in suite.options_of("question_retrieval")


def test_a_corpus_is_kept_once(letters, tmp_path):
    (tmp_path / "corpus.txt").write_text("ab\ncd\nef\n")
    records = Records([tmp_path / "corpus.txt"], str)
    cached = Cached(letters(), tmp_path / "cache")
    retriever = Retriever(cached, embeddings_dir=tmp_path / "store", shard_rows=2)
    vectors = retriever.corpus(records, str.upper, "upper case", "en")
    assert vectors.shape == (3, 26) and len(list(tmp_path.glob("store/*/*.npy"))) == 2
    assert cached.embedder.asked == [("en", "AB"), ("en", "CD"), ("en", "EF")]
    assert not list(tmp_path.glob("cache/**/*.npy"))
    retriever.corpus(records, str.upper, "upper case", "en")
    assert len(cached.embedder.asked) == 3
    retriever.corpus(records, str, "as it is", "en")
    assert len(cached.embedder.asked) == 6
