import numpy as np
import pytest
import scipy.linalg

from vmsst_jax.retrieval import rotation
from vmsst_jax.retrieval.rotation import RotationSettings


def turn(dim, angle, seed=0):
    """A random rotation whose largest angle is ``angle`` (radians)."""
    skew = np.random.default_rng(seed).normal(size=(dim, dim))
    skew -= skew.T
    return scipy.linalg.expm(skew * angle / np.abs(np.linalg.eigvals(skew)).max())


def clusters(rows, dim, seed=0):
    """Vectors as sentences have them: topics of unequal size, a few strong directions, many weak ones."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(25, dim))
    members = rng.choice(25, rows, p=rng.dirichlet(np.ones(25)))
    return ((topics[members] + 0.7 * rng.normal(size=(rows, dim))) * np.linspace(2, 0.4, dim)).astype(np.float32)


def test_procrustes_equals_scipy():
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(2, 40, 7))
    expected, _ = scipy.linalg.orthogonal_procrustes(x, y)  # R with x R ~ y
    np.testing.assert_allclose(rotation.procrustes(x, y), expected.T, atol=1e-10)


def test_procrustes_recovers_a_rotation():
    x, w = clusters(200, 12).astype(np.float64), turn(12, 2.5)
    np.testing.assert_allclose(rotation.procrustes(x, x @ w.T), w, atol=1e-10)


@pytest.mark.parametrize("mutual", [False, True])
def test_refinement_recovers_a_small_rotation(mutual):
    x, w = clusters(600, 16), turn(16, 0.5)
    rng = np.random.default_rng(2)
    y = (x @ w.T + 0.05 * rng.normal(size=x.shape)).astype(np.float32)[rng.permutation(600)]
    lines = []
    found = rotation.learn(x, y, RotationSettings(mutual=mutual), lines.append)
    assert found.matrix.dtype == np.float32
    np.testing.assert_allclose(found.matrix, w, atol=0.05)
    np.testing.assert_allclose(found.matrix @ found.matrix.T, np.eye(16), atol=1e-5)
    assert np.abs(w - np.eye(16)).max() > 0.2  # or staying at the identity would do
    assert [step["stage"] for step in found.history] == ["start", *(f"round {i}" for i in range(1, 6))]
    criteria = [step["criterion"] for step in found.history]
    assert max(criteria) > criteria[0] and lines[-1] == f"kept: {found.history[int(np.argmax(criteria))]['stage']}"
    assert all(f"{c:.4f}" in line for c, line in zip(criteria, lines[:-1], strict=True))


def test_the_best_map_is_kept(monkeypatch):
    """A refinement that makes things worse is not returned."""
    x = clusters(300, 8)
    worse = turn(8, 2.0)
    monkeypatch.setattr(rotation, "procrustes", lambda x, y: worse)
    found = rotation.learn(x, x.copy(), RotationSettings(rounds=2))
    np.testing.assert_array_equal(found.matrix, np.eye(8))
    assert found.history[0]["criterion"] == pytest.approx(1, abs=1e-6)
    assert found.history[1]["criterion"] < 0.9


def test_a_fit_to_chance_is_not_kept():
    """Two draws from one space, few for its dimensions: the right map is the identity, the fitted ones are chance."""
    x, y = clusters(160, 40)[:80], clusters(160, 40)[80:]
    everything = rotation.learn(x, y, RotationSettings(held_out=0))
    assert everything.history[-1]["criterion"] == everything.history[-1]["fitted"] > everything.history[0]["fitted"]
    assert np.abs(everything.matrix - np.eye(40)).max() > 0.3
    careful = rotation.learn(x, y)
    np.testing.assert_array_equal(careful.matrix, np.eye(40))
    assert max(step["criterion"] for step in careful.history) == careful.history[0]["criterion"]
    assert careful.history[-1]["fitted"] > careful.history[0]["fitted"]
    assert careful.history[0]["pairs"] == 64


def test_split():
    rest, out = rotation.split(np.arange(100)[:, None], 0.1)
    assert out[:, 0].tolist() == [0, 11, 22, 33, 44, 55, 66, 77, 88, 99]
    assert sorted([*rest[:, 0], *out[:, 0]]) == list(range(100))


def test_errors():
    x = clusters(50, 8)
    with pytest.raises(ValueError, match=r"shapes \(50, 8\) and \(50, 7\)"):
        rotation.learn(x, x[:, :7])
    with pytest.raises(ValueError, match="5 pairs don't determine a rotation in 8 dimensions"):
        rotation.procrustes(x[:5], x[:5])
    with pytest.raises(ValueError, match="rotation is 'gan'; use one of refine, adversarial"):
        RotationSettings(method="gan")
    with pytest.raises(ValueError, match="RotationSettings.rounds is 0"):
        RotationSettings(rounds=0)
    with pytest.raises(ValueError, match="RotationSettings.held_out is 0.9; wanted a number of 0 or more and below"):
        RotationSettings(held_out=0.9)
