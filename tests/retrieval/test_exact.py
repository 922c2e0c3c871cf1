import numpy as np
import pytest

from vmsst_jax.retrieval import tiles
from vmsst_jax.retrieval.exact import nearest, normalize, retrieval_accuracy, top_k


def loop_top_k(queries, corpus, k):
    """Every product by itself in float64, then a stable sort."""
    scores = np.array([[sum(float(a) * float(b) for a, b in zip(q, c, strict=True)) for c in corpus] for q in queries])
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, order, axis=1), order


@pytest.fixture
def small_tiles(monkeypatch):
    """So that a small problem has many tiles and blocks."""
    monkeypatch.setattr(tiles, "TILE", 16)
    monkeypatch.setattr(tiles, "STEP", 8)
    monkeypatch.setattr(tiles, "GROUP", 4)


@pytest.mark.parametrize("k", [1, 4, 40])
def test_equals_a_loop_whatever_the_block(small_tiles, k):
    draw = np.random.default_rng(0)
    queries, corpus = draw.normal(size=(19, 5)).astype(np.float32), draw.normal(size=(83, 5)).astype(np.float32)
    scores, indices = loop_top_k(queries, corpus, k)
    answers = [top_k(queries, corpus, k, block=block) for block in (1, 16, 40, 83, 1000)]
    for found_scores, found in answers:
        np.testing.assert_array_equal(found, indices)
        np.testing.assert_allclose(found_scores, scores, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found_scores, answers[0][0])  # to the last bit


def test_ties_go_to_the_lowest_index(small_tiles):
    draw = np.random.default_rng(1)
    distinct = draw.integers(-2, 3, size=(6, 4)).astype(np.float32)  # integers: equal scores are exactly equal
    distinct[:, 0] = [1, -1, 2, -2, 1, 1]  # no row of zeros
    corpus = distinct[draw.integers(0, 6, size=70)]
    queries = np.concatenate([distinct, [[0, 0, 0, 1], [0, 0, 0, -1]]]).astype(np.float32)
    for block in (16, 33, 70):
        np.testing.assert_array_equal(top_k(queries, corpus, 70, block=block)[1], loop_top_k(queries, corpus, 70)[1])


def test_zero_scores_of_either_sign_are_equal():
    corpus = np.array([[-1, 0], [0, 1], [1, 0]], np.float32)  # products with the query: -0.0, 1, 0.0
    assert top_k(np.array([[0, 1]], np.float32), corpus, 3)[1].tolist() == [[1, 0, 2]]


def test_repeated_rows_tie_at_a_realistic_width():
    draw = np.random.default_rng(2)
    distinct = draw.normal(size=(150, 257)).astype(np.float32)
    corpus = distinct[np.arange(600) % 150]
    indices = top_k(distinct, corpus, 4)[1]
    np.testing.assert_array_equal(indices, np.arange(150)[:, None] + [0, 150, 300, 450])


def test_reads_memory_maps_of_float16(tmp_path, small_tiles):
    draw = np.random.default_rng(3)
    corpus = draw.normal(size=(50, 6)).astype(np.float16)
    np.save(tmp_path / "x.npy", corpus)
    queries = draw.normal(size=(3, 6)).astype(np.float32)
    found = top_k(queries, np.load(tmp_path / "x.npy", mmap_mode="r"), 5, block=16)
    np.testing.assert_array_equal(found[1], loop_top_k(queries, corpus, 5)[1])
    assert found[0].dtype == np.float32 and found[1].dtype == np.int64


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf])
def test_names_the_row_that_is_no_vector(small_tiles, bad):
    x = np.ones((40, 3), np.float32)
    broken = x.copy()
    broken[[21, 37]] = bad
    with pytest.raises(ValueError, match="row 21 of corpus"):
        top_k(x, broken, 2, block=16)
    with pytest.raises(ValueError, match="row 21 of queries"):
        top_k(broken, x, 2)
    with pytest.raises(ValueError, match="row 21 of vectors"):
        normalize(broken)


def test_refuses_what_cannot_be_searched():
    x = np.ones((3, 2), np.float32)
    with pytest.raises(ValueError, match="k is 4 but the corpus has 3 rows"):
        top_k(x, x, 4)
    with pytest.raises(ValueError, match="same D"):
        top_k(x, np.ones((3, 5), np.float32), 1)
    with pytest.raises(ValueError, match="nothing to search"):
        top_k(x[:0], x, 1)
    with pytest.raises(ValueError, match="beyond float32"):
        top_k(np.full((1, 2), 3e38, np.float32), np.full((3, 2), 3e38, np.float32), 1)


def test_normalize():
    x = np.array([[3, 4], [3e-30, -4e-30], [3e37, 0]], np.float32)  # squares beyond float32's range
    np.testing.assert_allclose(normalize(x), [[0.6, 0.8], [0.6, -0.8], [1, 0]], rtol=1e-6)
    assert x[0, 0] == 3 and normalize(x[:1].astype(np.float16)).dtype == np.float32


def test_accuracy_by_hand():
    b = np.array([[1, 0], [0, 1], [-1, 0], [0, 5]], np.float32)  # 3 repeats the direction of 1
    a = np.array([[2, 0.1], [0.1, 1], [1, -0.2], [0, 1]], np.float32)  # nearest: 0, 1, 0, 1
    assert nearest(a, b).tolist() == [0, 1, 0, 1]
    assert retrieval_accuracy(a, b) == 0.5
    assert retrieval_accuracy(a[:2], b) == 1.0  # further rows of b are distractors
    assert retrieval_accuracy(a, b, [0, 1, 2, 1], [0, 1, 2, 1]) == 0.75
    with pytest.raises(ValueError, match="both|neither"):
        retrieval_accuracy(a, b, [0, 1, 2, 1])
    with pytest.raises(ValueError, match="b only 2"):
        retrieval_accuracy(a, b[:2])
    with pytest.raises(ValueError, match="groups have shapes"):
        retrieval_accuracy(a, b, [0, 1], [0, 1, 2, 1])
