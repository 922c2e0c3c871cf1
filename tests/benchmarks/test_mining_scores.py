"""F1 and its threshold against a loop that follows LASER's bucc.py, and by hand."""

import numpy as np
import pytest

from vmsst_jax.benchmarks.mining_scores import Candidates, at_threshold, score, sweep


def laser_best(scores, right, gold):
    """The best F1 over the sorted list and its threshold, one candidate after the other."""
    found, best, threshold = 0, 0.0, 0.0
    for i in range(len(scores)):
        found += right[i]
        precision, recall = found / (i + 1), found / gold
        f1 = 2 * precision * recall / (precision + recall) if found else 0.0
        if f1 > best:
            best = f1
            threshold = (scores[i] + scores[i + 1]) / 2 if i + 1 < len(scores) else scores[i]
    return best, threshold


@pytest.mark.parametrize("seed", range(5))
def test_equals_a_loop(seed):
    draw = np.random.default_rng(seed)
    scores = np.sort(draw.normal(size=60))[::-1]
    right = draw.random(60) < np.linspace(0.95, 0.05, 60)
    best, threshold = laser_best(scores, right, 70)
    mined = Candidates(scores, right, 70)
    found = sweep(mined)
    assert found.f1[found.best] == pytest.approx(best) and found.thresholds[found.best] == pytest.approx(threshold)
    assert at_threshold(mined, threshold)[2] == pytest.approx(best)


def test_by_hand():
    mined = Candidates(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]), 2)
    found = sweep(mined)
    np.testing.assert_allclose(found.precision, [1, 1 / 2, 2 / 3])
    np.testing.assert_allclose(found.recall, [1 / 2, 1 / 2, 1])
    np.testing.assert_allclose(found.f1, [2 / 3, 1 / 2, 4 / 5])
    np.testing.assert_allclose(found.thresholds, [2.5, 1.5, 1])  # at the end of the list there is no next score
    assert at_threshold(mined, 1.0) == (pytest.approx(2 / 3), 1.0, pytest.approx(4 / 5))  # from the threshold on
    assert at_threshold(mined, 3.5) == (0.0, 0.0, 0.0)


def test_a_threshold_does_not_cut_between_equal_scores():
    found = sweep(Candidates(np.array([2.0, 2.0, 1.0]), np.array([True, False, False]), 1))
    np.testing.assert_allclose(found.thresholds, [1.5, 1.0])
    np.testing.assert_allclose(found.precision, [1 / 2, 1 / 3])


def test_the_threshold_of_another_set():
    mined = Candidates(np.array([0.9, 0.8, 0.7, 0.6]), np.array([True, True, False, True]), 3)
    tuned = Candidates(np.array([0.95, 0.72]), np.array([True, False]), 1)  # best: only the first, from 0.835 on
    scores = score({"absolute": mined, "ratio": mined}, {"absolute": tuned, "ratio": tuned}, "ratio")
    assert scores["threshold"] == pytest.approx(0.835) and scores["precision"] == 1
    assert scores["F1"] == scores["cosine F1"] == pytest.approx(2 * 1 / (1 + 3))
    assert scores["oracle"] == pytest.approx(2 * 3 / (4 + 3))


def test_nothing_to_score():
    with pytest.raises(ValueError, match="0 mined and 3 gold pairs"):
        sweep(Candidates(np.array([]), np.array([], bool), 3))
