"""The mapping against plain loops, scipy's Procrustes, closed formulas, and spaces whose dictionary is known."""

import numpy as np
import pytest
import scipy.linalg

from vmsst_jax.words import mapping
from vmsst_jax.words.mapping import MappingSettings, Round

QUICK = MappingSettings(patience=5)


def learned(pair, settings=QUICK, start=None, **options):
    x, z = mapping.normalized(pair.one), mapping.normalized(pair.other)
    start = mapping.similarity_dictionary(x, z, settings) if start is None else start
    return x, z, mapping.learn(x, z, Round(*start, keep=settings.keep), settings, **options)


def right_share(pair, state):
    """How many words of the first language have their translation in the dictionary's first half."""
    return np.mean(state.target[: pair.words] == pair.right)


def test_normalized_by_hand():
    found = mapping.normalized(np.array([[3.0, 4.0], [0.0, 2.0], [1.0, 0.0]]))
    unit = np.array([[0.6, 0.8], [0, 1], [1, 0]])
    centred = unit - unit.mean(axis=0)
    np.testing.assert_allclose(found, centred / np.linalg.norm(centred, axis=1, keepdims=True), atol=1e-6)
    with pytest.raises(ValueError, match="are all vectors the same"):
        mapping.normalized(np.ones((3, 2)))


def test_orthogonal_is_scipy_s():
    rng = np.random.default_rng(0)
    for pairs in (50, 3):  # fewer pairs than dimensions too
        x, z = rng.normal(size=(2, pairs, 8))
        found, (wanted, _) = mapping.orthogonal(x, z), scipy.linalg.orthogonal_procrustes(x, z)
        np.testing.assert_allclose(found @ found.T, np.eye(8), atol=1e-12)
        if pairs > 8:
            np.testing.assert_allclose(found, wanted, atol=1e-10)
        assert np.linalg.norm(x @ found - z) == pytest.approx(np.linalg.norm(x @ wanted - z), abs=1e-10)


def test_symmetric_equals_the_steps_one_by_one():
    rng = np.random.default_rng(1)
    x, z = rng.normal(size=(2, 40, 5)) @ np.diag([3.0, 2, 1, 1, 0.5])
    z = z + x
    one, other = mapping.symmetric(x, z, 0.5)
    # Whitening by the inverse roots of the scatter matrices, which have one symmetric solution.
    a, b = (np.linalg.inv(scipy.linalg.sqrtm(side.T @ side)) for side in (x, z))
    u, s, v_t = np.linalg.svd((x @ a).T @ (z @ b))
    np.testing.assert_allclose((x @ a).T @ (x @ a), np.eye(5), atol=1e-10)
    mapped = []
    for side, white, turn in ((x, a, u), (z, b, v_t.T)):
        rows = []
        for row in side:
            turned = (row @ white) @ turn
            weighted = np.array([value * np.sqrt(weight) for value, weight in zip(turned, s, strict=True)])
            rows.append(weighted @ (turn.T @ np.linalg.inv(white) @ turn))
        mapped.append(np.array(rows))
    # The signs of singular vectors are free, one for both sides.
    signs = np.sign(np.einsum("nd,nd->d", mapped[0], x @ one))
    np.testing.assert_allclose(x @ one, mapped[0] * signs, atol=1e-8)
    np.testing.assert_allclose(z @ other, mapped[1] * signs, atol=1e-8)


def test_symmetric_without_weights_only_turns():
    """Whitening and de-whitening cancel: each side keeps its inner products."""
    x, z = np.random.default_rng(2).normal(size=(2, 30, 4))
    one, other = mapping.symmetric(x, z, 0.0)
    np.testing.assert_allclose(one @ one.T, np.eye(4), atol=1e-10)
    np.testing.assert_allclose((z @ other) @ (z @ other).T, z @ z.T, atol=1e-9)
    with pytest.raises(ValueError, match="a dictionary of 3 pairs does not span 4 dimensions"):
        mapping.symmetric(x[:3], z[:3])
    with pytest.raises(ValueError, match="a dictionary of 30 pairs does not span 4 dimensions"):
        mapping.symmetric(np.tile(x[:2], (15, 1)), z)


def test_the_first_dictionary_equals_a_loop(pair):
    x, z = mapping.normalized(pair.one), mapping.normalized(pair.other)
    settings = MappingSettings(start_words=60, k=4)
    shapes = []
    for side in (x[:60].astype(np.float64), z[:60].astype(np.float64)):
        root = scipy.linalg.sqrtm(side @ side.T).real
        rows = [sorted(row) for row in root]
        shapes.append(mapping.normalized(np.array(rows)).astype(np.float64))
    scores = np.zeros((60, 60))
    cosines = shapes[0] @ shapes[1].T
    for i in range(60):
        for j in range(60):
            around = sorted(cosines[i])[-4:], sorted(cosines[:, j])[-4:]
            scores[i, j] = 2 * cosines[i, j] - np.mean(around[0]) - np.mean(around[1])
    source, target = mapping.similarity_dictionary(x, z, settings)
    np.testing.assert_array_equal(source[:60], np.arange(60))
    np.testing.assert_array_equal(target[60:], np.arange(60))
    best = scores[np.arange(60), target[:60]], scores[source[60:], np.arange(60)]
    np.testing.assert_allclose(best[0], scores.max(axis=1), atol=1e-5)
    np.testing.assert_allclose(best[1], scores.max(axis=0), atol=1e-5)


@pytest.mark.parametrize(("n", "m"), [(300, 280), (37, 600)])  # more and less than a block
def test_dictionaries_are_those_of_brute_force(n, m):
    rng = np.random.default_rng(3)
    x, z = (mapping.normalized(rng.normal(size=(rows, 6)) + 0.4) for rows in (n, m))
    cosines = x.astype(np.float64) @ z.astype(np.float64).T
    around = np.sort(cosines, axis=1)[:, -10:].mean(axis=1), np.sort(cosines, axis=0)[-10:].mean(axis=0)
    scores = 2 * cosines - around[0][:, None] - around[1][None]
    source, target, objective = mapping.dictionary(x, z, 1.0, 0, MappingSettings())
    np.testing.assert_array_equal(source[:n], np.arange(n))
    np.testing.assert_array_equal(target[n:], np.arange(m))
    np.testing.assert_allclose(scores[np.arange(n), target[:n]], scores.max(axis=1), atol=1e-5)
    np.testing.assert_allclose(scores[source[n:], np.arange(m)], scores.max(axis=0), atol=1e-5)
    assert (scores.argmax(axis=1) != cosines.argmax(axis=1)).any()  # or CSLS would not be tested
    assert objective == pytest.approx((cosines.max(axis=1).mean() + cosines.max(axis=0).mean()) / 2, abs=1e-6)


def test_a_share_of_the_similarities_is_looked_at():
    """Of 400 candidates of which 40 are looked at, the best that is left ranks about tenth of all."""
    rng = np.random.default_rng(4)
    x, z = (mapping.normalized(rng.normal(size=(400, 5))) for _ in range(2))
    cosines = x @ z.T
    around = np.sort(cosines, axis=0)[-10:].mean(axis=0)
    scores = cosines - around / 2
    found = {number: mapping.dictionary(x, z, 0.1, number, MappingSettings(seed=5)) for number in (0, 1)}
    ranks = [(scores > scores[np.arange(400), target[:400]][:, None]).sum(axis=1) for _, target, _ in found.values()]
    for rank in ranks:
        assert 7 < rank.mean() < 11 and (rank == 0).mean() == pytest.approx(0.1, abs=0.05)
    assert (ranks[0] != ranks[1]).mean() > 0.8  # other rounds, other draws
    again = mapping.dictionary(x, z, 0.1, 1, MappingSettings(seed=5))
    np.testing.assert_array_equal(again[1], found[1][1])
    assert (mapping.dictionary(x, z, 0.1, 1, MappingSettings(seed=6))[1] != found[1][1]).mean() > 0.4
    assert found[0][2] == found[1][2] == mapping.dictionary(x, z, 1.0, 0, MappingSettings())[2]


def test_turned_spaces_are_mapped_without_translations(pair):
    said = []
    x, z, state = learned(pair, say=said.append)
    start = mapping.similarity_dictionary(x, z, QUICK)
    assert np.mean(start[1][: pair.words] == pair.right) < 0.5  # there is something to learn
    assert right_share(pair, state) > 0.97
    assert state.keep == 1 and said[-1].startswith("learned: objective 0.9")
    assert len([line for line in said if "of the similarities" in line]) == 4  # 20, 40, 80, 100 %


def test_unlike_spaces_are_not(make_languages):
    unlike = make_languages(words=200, unlike=True)
    _, _, state = learned(unlike)
    assert right_share(unlike, state) < 0.05 and state.objective < 0.9


def test_identical_pairs_are_enough_to_begin_with(pair):
    rows = np.arange(0, 300, 12)
    assert right_share(pair, learned(pair, start=(rows, pair.right[rows]))[2]) > 0.97


def test_it_goes_on_where_it_stopped(easy):
    states = []
    x, z, straight = learned(easy, save=states.append)
    assert len(states) == straight.done > 15
    resumed = mapping.learn(x, z, states[9], QUICK)
    np.testing.assert_array_equal(resumed.source, straight.source)
    np.testing.assert_array_equal(resumed.target, straight.target)
    assert resumed[2:] == straight[2:]


def test_bad_settings(pair):
    for options, message in (
        ({"start": "luck"}, "the start is 'luck'; use one of similarities"),
        ({"words": 0}, "MappingSettings.words is 0"),
        ({"keep": 0}, "MappingSettings.keep is 0"),
        ({"keep": 2.0}, "keep is 2.0"),
        ({"growth": 1.0}, "growth 1.0"),
        ({"seed": -1}, "MappingSettings.seed is -1"),
    ):
        with pytest.raises(ValueError, match=message):
            MappingSettings(**options)
    few = mapping.normalized(pair.one[:8])
    with pytest.raises(ValueError, match="10 neighbours, but the sides have 8 and 300 words"):
        mapping.learn(few, mapping.normalized(pair.other), Round(np.arange(8), np.arange(8)), MappingSettings())
