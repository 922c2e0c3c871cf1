import numpy as np
import pytest

import vmsst_jax
from vmsst_jax.retrieval import text_vectors
from vmsst_jax.retrieval.text_search import TextSearch

LINES = ["the dog barks", "a big house", "le chien aboie fort", "der hund bellt laut", "the dog barks"]


@pytest.fixture(scope="module")
def embedder(model_dir):
    return vmsst_jax.load(model_dir, batch_size=8)


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(LINES))
    return path


def test_finds_the_nearest_lines(embedder, corpus):
    vectors = embedder.encode(LINES, normalize=True)
    for query, hits in zip(LINES, TextSearch(embedder, corpus).search(LINES, 3), strict=True):
        cosines = embedder.encode([query], normalize=True)[0] @ vectors.T
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(cosines)[::-1][:3], atol=1e-5)
        assert hits[0].text == query and all(hit.text == LINES[hit.line - 1] for hit in hits)
        assert hits[0].line == LINES.index(query) + 1
    assert len(TextSearch(embedder, corpus).search(["dog"], 50)[0]) == 5


def test_vectors_are_kept_by_content(embedder, corpus, tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    TextSearch(embedder, corpus, folder)
    (first,) = folder.glob("*.npy")
    with monkeypatch.context() as patch:
        patch.setattr(text_vectors, "embed_file", None)  # must not be needed again
        TextSearch(embedder, corpus, folder)
    corpus.write_text("other\n")
    TextSearch(embedder, corpus, folder)
    assert len(list(folder.glob("*.npy"))) == 2
    first.write_bytes(first.read_bytes()[:-4])
    corpus.write_text("\n".join(LINES))
    assert TextSearch(embedder, corpus, folder).vectors.shape == (5, 16)  # embedded again
    np.save(first, np.ones((2, 2), np.float32))
    corpus.write_text("\n".join(LINES))
    with pytest.raises(ValueError, match="remove it and start again"):
        TextSearch(embedder, corpus, folder)


def test_blank_lines_are_not_found(embedder, tmp_path):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(["", LINES[0], "  ", "", LINES[1], ""]) + "\n")
    hits = TextSearch(embedder, corpus).search(["dog", LINES[1]], 5)
    assert [sorted((hit.line, hit.text) for hit in found) for found in hits] == 2 * [[(2, LINES[0]), (5, LINES[1])]]
    assert hits[1][0].line == 5 and hits[1][0].score == pytest.approx(1, abs=1e-5)
    corpus.write_text("\n \n")
    with pytest.raises(ValueError, match="nothing but blank lines"):
        TextSearch(embedder, corpus)
