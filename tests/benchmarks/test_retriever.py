"""Questions and passages may go through two models or behind two prefixes, and a result says so."""

import numpy as np
import pytest

from vmsst_jax.benchmarks.retriever import Retriever
from vmsst_jax.retrieval.cache import Cached
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


def test_a_prefix_before_the_models_own_is_refused(letters):
    Retriever(letters("query: "))
    for option in ("query_prefix", "passage_prefix"):
        with pytest.raises(ValueError, match=f"{option} is 'passage: ', but the model itself puts 'query: '"):
            Retriever(letters("query: "), **{option: "passage: "})


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


def test_a_corpus_is_kept_once(letters, tmp_path):
    (tmp_path / "corpus.txt").write_text("ab\ncd\nef\n")
    records = Records([tmp_path / "corpus.txt"], str)
    cached = Cached(letters(), tmp_path / "cache")
    retriever = Retriever(cached, embeddings_dir=tmp_path / "store", shard_rows=2)
    parts = retriever.corpus(records, str.upper, "upper case", "en")
    assert [len(part) for part in parts] == [2, 1]
    assert cached.embedder.asked == [("en", "AB"), ("en", "CD"), ("en", "EF")]
    assert not list(tmp_path.glob("cache/**/*.npy"))
    retriever.corpus(records, str.upper, "upper case", "en")
    assert len(cached.embedder.asked) == 3
    retriever.corpus(records, str, "as it is", "en")
    assert len(cached.embedder.asked) == 6
