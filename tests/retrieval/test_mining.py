"""Margin mining against loops that follow LASER's wording, and against faiss."""

import faiss
import numpy as np
import pytest

from vmsst_jax.retrieval import mining
from vmsst_jax.retrieval.exact import normalize

MARGINS = {"ratio": lambda a, b: a / b, "distance": lambda a, b: a - b, "absolute": lambda a, b: a}


def sides(n=120, m=90, width=8, seed=0):
    """Some translations, with noise, among other sentences."""
    draw = np.random.default_rng(seed)
    x, y = draw.normal(size=(n, width)), draw.normal(size=(m, width))
    y[: m // 2] = x[: m // 2] + 0.3 * draw.normal(size=(m // 2, width))
    return normalize(x), normalize(y)


def laser(cosines_xy, ids_xy, cosines_yx, ids_yx, margin):
    """Pairs of every retrieval as mine_bitexts.py finds them, one sentence after the other."""
    n, m, k = len(ids_xy), len(ids_yx), ids_xy.shape[1]
    x_mean, y_mean = cosines_xy.mean(axis=1), cosines_yx.mean(axis=1)
    best = []
    for cosines, ids, own, other in ((cosines_xy, ids_xy, x_mean, y_mean), (cosines_yx, ids_yx, y_mean, x_mean)):
        found = []
        for i in range(len(ids)):
            scores = [margin(cosines[i, j], (own[i] + other[ids[i, j]]) / 2) for j in range(k)]
            found.append((max(scores), int(ids[i, int(np.argmax(scores))])))
        best.append(found)
    forward = [(score, i, j) for i, (score, j) in enumerate(best[0])]
    backward = [(score, i, j) for j, (score, i) in enumerate(best[1])]
    seen_x, seen_y, each_once = set(), set(), []
    for score, i, j in sorted(forward + backward, key=lambda pair: -pair[0]):
        if i not in seen_x and j not in seen_y:
            seen_x.add(i)
            seen_y.add(j)
            each_once.append((score, i, j))
    assert len(forward) == n and len(backward) == m
    return {
        "forward": forward,
        "backward": backward,
        "intersect": [pair for pair in forward if best[1][pair[2]][1] == pair[1]],
        "max": each_once,
    }


def assert_same(pairs, wanted):
    assert (np.diff(pairs.scores) <= 0).all()
    found = {(i, j): score for score, i, j in zip(*pairs, strict=True)}
    right = {(i, j): score for score, i, j in wanted}
    assert found.keys() == right.keys() and len(pairs.scores) == len(wanted)
    np.testing.assert_allclose([found[pair] for pair in right], list(right.values()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("margin", MARGINS)
def test_equals_a_loop(margin):
    x, y = sides()
    cosines = x.astype(np.float64) @ y.astype(np.float64).T
    ids = [np.argsort(-c, axis=1, kind="stable")[:, :4] for c in (cosines, cosines.T)]
    near = [np.take_along_axis(c, i, 1) for c, i in zip((cosines, cosines.T), ids, strict=True)]
    wanted = laser(near[0], ids[0], near[1], ids[1], MARGINS[margin])
    for retrieval, pairs in wanted.items():
        assert_same(mining.mine(x, y, margin=margin, retrieval=retrieval), pairs)
    assert wanted["intersect"] and len(wanted["intersect"]) < len(wanted["max"]) < len(x)


def test_equals_faiss_on_a_larger_set():
    """Clusters, as sentences of one topic make them, so that a sentence has several near neighbours and hubs."""
    draw = np.random.default_rng(1)
    centres = draw.normal(size=(150, 48))
    x, y = (centres[draw.integers(0, 150, rows)] + 0.4 * draw.normal(size=(rows, 48)) for rows in (3000, 3500))
    y[draw.permutation(3500)[:1200]] = x[:1200] + 0.25 * draw.normal(size=(1200, 48))
    x, y = normalize(x), normalize(y)
    near = []
    for queries, corpus in ((x, y), (y, x)):
        index = faiss.IndexFlatIP(48)
        index.add(corpus)
        near += index.search(queries, 4)
    wanted = laser(*near, MARGINS["ratio"])
    assert 1200 < len(wanted["intersect"]) < len(wanted["max"]) < 3000  # hubs leave some without a partner
    for retrieval, pairs in wanted.items():
        assert_same(mining.mine(x, y, retrieval=retrieval), pairs)


def test_by_hand():
    x = np.array([[1, 0], [0.6, 0.8]], np.float32)
    y = np.array([[0.8, 0.6], [0, 1]], np.float32)
    # cosines: x0 0.8, 0; x1 0.96, 0.8. Means of both: x0 0.4, x1 0.88; y0 0.88, y1 0.4.
    best = mining.mine(x, y, k=2)
    assert list(zip(best.source.tolist(), best.target.tolist(), strict=True)) == [(0, 0), (1, 1)]
    np.testing.assert_allclose(best.scores, [0.8 / 0.64, 0.8 / 0.64], rtol=1e-6)
    nearest = mining.mine(x, y, k=2, margin="absolute")
    assert list(zip(nearest.source.tolist(), nearest.target.tolist(), strict=True)) == [(1, 0)]
    assert len(best.from_score(1.26).scores) == 0 and len(best.from_score(1.2).scores) == 2


def test_unknown_settings():
    x, y = sides(8, 8)
    with pytest.raises(ValueError, match="margin is 'ration'; use one of ratio, distance, absolute"):
        mining.mine(x, y, margin="ration")
    with pytest.raises(ValueError, match="retrieval is 'both'; use one of max, intersect"):
        mining.mine(x, y, retrieval="both")
    with pytest.raises(ValueError, match="k is 9 but y has 8 rows"):
        mining.mine(x, y, k=9)
