import numpy as np
import pytest
import scipy.stats

from vmsst_jax.benchmarks import metrics


def sides(n=60, dim=5, noise=1.2, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(n, dim)) + 0.8  # off centre, so that there are hubs
    return a.astype(np.float32), (a + noise * rng.normal(size=(n, dim))).astype(np.float32)


def brute_force(a, b):
    """Scores of a -> b by loops over the definitions, in float64."""
    unit = [x.astype(float) / np.linalg.norm(x.astype(float), axis=1, keepdims=True) for x in (a, b)]
    cosine = unit[0] @ unit[1].T
    n = len(cosine)
    nearest = [sorted(range(n), key=lambda j, i=i: (-cosine[i, j], j)) for i in range(n)]
    back = [sorted(range(n), key=lambda i, j=j: (-cosine[i, j], i)) for j in range(n)]
    right = by_margin = 0
    for i in range(n):
        right += nearest[i][0] == i
        around_i = sum(cosine[i, j] for j in nearest[i][:4]) / 4
        margins = {
            j: cosine[i, j] / ((around_i + sum(cosine[m, j] for m in back[j][:4]) / 4) / 2) for j in nearest[i][:4]
        }
        by_margin += max(margins, key=margins.get) == i
    occurrences = [sum(j in nearest[i][:10] for i in range(n)) for j in range(n)]
    return {
        "accuracy": right / n,
        "margin": by_margin / n,
        "gap": (by_margin - right) / n,
        "skewness": scipy.stats.skew(occurrences),
    }


def test_both_directions_against_loops():
    a, b = sides()
    forth, back = metrics.match_rows(a, b)
    assert forth == pytest.approx(brute_force(a, b))
    assert back == pytest.approx(brute_force(b, a))
    assert 0.1 < forth["accuracy"] < 0.9 and forth["gap"] != 0 and forth["skewness"] != back["skewness"]


def test_translation_scores_are_means_of_directions():
    a, b = sides(seed=1)
    forth, back = brute_force(a, b), brute_force(b, a)
    found = metrics.translation_scores(a, b)
    assert list(found) == ["xx->en", "en->xx", "mean", "margin", "gap", "skewness"]
    assert (found["xx->en"], found["en->xx"]) == pytest.approx((forth["accuracy"], back["accuracy"]))
    for name in ("margin", "gap", "skewness"):
        assert found[name] == pytest.approx((forth[name] + back[name]) / 2)
    assert found["gap"] == pytest.approx(found["margin"] - found["mean"])


def test_the_margin_helps_against_a_hub():
    """One target is close to everything; the margin takes that into account."""
    targets = np.concatenate([np.eye(6), np.full((1, 6), 1.0)]).astype(np.float32)
    queries = targets + np.array([0.45] * 6, np.float32)
    queries[6] = targets[6]
    forth, _ = metrics.match_rows(queries, targets)
    assert forth["accuracy"] == pytest.approx(1 / 7) and forth["margin"] == 1.0 and forth["gap"] == pytest.approx(6 / 7)


def test_skewness_by_hand():
    assert metrics.k_occurrence_skewness(np.array([[0, 1], [1, 2], [2, 0]]), 3) == 0.0  # no hub
    neighbours = np.array([[0], [0], [0], [3]])
    occurrences = np.array([3, 0, 0, 1])
    assert metrics.k_occurrence_skewness(neighbours, 4) == pytest.approx(scipy.stats.skew(occurrences))


def test_few_rows_have_no_hubness():
    a, b = sides(n=5)
    forth, _ = metrics.match_rows(a, b)
    assert forth["skewness"] is None and forth["margin"] is not None
    forth, _ = metrics.match_rows(a[:3], b[:3])
    assert forth["margin"] is forth["gap"] is forth["skewness"] is None and forth["accuracy"] in (0, 1 / 3, 2 / 3, 1)


def test_bad_rows():
    a, b = sides(n=12)
    with pytest.raises(ValueError, match="a has 12 rows and b 11"):
        metrics.match_rows(a, b[:11])
    b[7] = np.nan
    with pytest.raises(ValueError, match="row 7 .*NaN"):
        metrics.match_rows(a, b)


def test_group_means():
    scores = {"x": {"s": 0.5, "t": None}, "y": {"s": 1.0, "t": 2.0}, "z": {"s": 0.0, "t": 4.0}}
    means = metrics.group_means(scores, {"all": list(scores), "last": ["y", "z"], "none": []}, ("s", "t"))
    assert means == {
        "all": {"languages": 3, "s": 0.5, "t": None},
        "last": {"languages": 2, "s": 0.5, "t": 3.0},
        "none": {"languages": 0, "s": None, "t": None},
    }
    assert metrics.cells({"a": 0.5, "skewness": 1.234, "b": None}, ("a", "skewness", "b")) == [0.5, "1.23", None]


def test_histogram_of_cosines():
    histogram = metrics.CosineHistogram()
    a = np.eye(4, dtype=np.float32)
    histogram.add(a, a)
    histogram.add(a[:1], -a[:1])  # a single pair has no other sentence
    figure = histogram.figure()
    edges, series = figure["edges"], figure["series"]
    assert len(edges) == 101 and (edges[0], edges[50], edges[100]) == (-1, 0, 1)
    assert series["translations"][99] == 4 and series["translations"][0] == 1 and sum(series["translations"]) == 5
    assert series["others"][50] == 4 == sum(series["others"])
