import numpy as np
import pytest

from vmsst_jax.retrieval import csls
from vmsst_jax.retrieval.exact import normalize


def brute_force(a, b, k):
    """CSLS [n, m] in float64, by sorting whole rows and columns of the cosines."""
    cosines = a.astype(np.float64) @ b.astype(np.float64).T
    r_a = np.sort(cosines, axis=1)[:, -k:].mean(axis=1)
    r_b = np.sort(cosines, axis=0)[-k:].mean(axis=0)
    return 2 * cosines - r_a[:, None] - r_b[None], cosines


@pytest.fixture(scope="module")
def sides():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(90, 12)) + 0.5  # off centre, so that there are hubs
    b = np.concatenate([a[:50] + 0.6 * rng.normal(size=(50, 12)), rng.normal(size=(70, 12))])
    return normalize(a), normalize(b)


def test_by_hand():
    """b_0 is a hub: the nearest of a_0 and, by cosine alone, of a_1, which CSLS pairs with b_3."""
    a = np.eye(5, dtype=np.float32)[:4]
    b = np.array(
        [[0.8, 0.6, 0, 0, 0], [0.6, 0, 0.8, 0, 0], [0, 0, 0.6, 0.8, 0], [0, 0.5, 0, 0, np.sqrt(0.75)]], np.float32
    )
    r_a, r_b = csls.densities(a, b, k=2)
    np.testing.assert_allclose(r_a, [0.7, 0.55, 0.7, 0.4], atol=1e-6)
    np.testing.assert_allclose(r_b, [0.7, 0.7, 0.7, 0.25], atol=1e-6)
    for mutual in (False, True):
        pairs, criterion = csls.dictionary(a, b, k=2, mutual=mutual)
        assert dict(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)) == {0: 0, 1: 3, 2: 1, 3: 2}
        assert pairs.source[0] == 3 and pairs.source[3] == 1
        np.testing.assert_allclose(pairs.confidence, [0.5 - -0.65, 0.4, 0.4, 0.2 - -0.05], atol=1e-6)
        assert criterion == pytest.approx((0.8 + 0.5 + 0.8 + 0.8) / 4, abs=1e-6)


def test_equals_brute_force(sides):
    a, b = sides
    scores, cosines = brute_force(a, b, csls.K)
    pairs, criterion = csls.dictionary(a, b)
    order = np.argsort(pairs.source)
    np.testing.assert_array_equal(pairs.source[order], np.arange(90))
    np.testing.assert_array_equal(pairs.target[order], scores.argmax(axis=1))
    assert (scores.argmax(axis=1) != cosines.argmax(axis=1)).any()  # or hubs would not be tested
    best = np.sort(scores, axis=1)
    np.testing.assert_allclose(pairs.confidence[order], best[:, -1] - best[:, -2], atol=1e-5)
    assert (np.diff(pairs.confidence) <= 0).all()
    assert criterion == pytest.approx(cosines[np.arange(90), scores.argmax(axis=1)].mean(), abs=1e-6)
    assert csls.mean_cosine(a, b, pairs, most=7) == pytest.approx(
        cosines[pairs.source[:7], pairs.target[:7]].mean(), abs=1e-6
    )


def test_mutual_pairs_are_each_other_s_best(sides):
    a, b = sides
    scores, _ = brute_force(a, b, csls.K)
    expected = {(i, int(j)) for i, j in enumerate(scores.argmax(axis=1)) if scores[:, j].argmax() == i}
    pairs, criterion = csls.dictionary(a, b, mutual=True)
    assert set(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)) == expected
    assert 0 < len(expected) < 90
    assert criterion == csls.dictionary(a, b)[1]


def test_candidates_are_spread_over_the_sources(sides):
    a, b = sides
    whole, some = csls.dictionary(a, b)[0], csls.dictionary(a, b, candidates=10)[0]
    assert sorted(some.source) == np.linspace(0, 89, 10).astype(int).tolist()
    partner = dict(zip(whole.source.tolist(), whole.target.tolist(), strict=True))
    assert [partner[i] for i in some.source.tolist()] == some.target.tolist()  # densities are those of all rows


def test_too_few_rows():
    with pytest.raises(ValueError, match="10 neighbours, but the sides have 9 and 20 rows"):
        csls.dictionary(np.eye(9, 20, dtype=np.float32), np.eye(20, dtype=np.float32))
