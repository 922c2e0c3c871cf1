import jax
import numpy as np
import pytest
import scipy.linalg

from vmsst_jax.retrieval import adversarial, rotation
from vmsst_jax.retrieval.adversarial import Adversarial


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_one_step_by_hand():
    """One vector on each side, so that nothing is left to chance: backpropagation written out in NumPy."""
    rng = np.random.default_rng(0)
    d, h = 3, 4
    x, y = rng.normal(size=(2, d))
    w1, b1, w2, b2, w = (rng.normal(size=s) for s in ((d, h), (h,), (h,), (1,), (d, d)))
    settings = Adversarial(
        batch_size=2, discriminator_steps=1, layers=1, hidden=h, input_dropout=0.0, learning_rate=0.3, beta=0.01
    )

    def forward(v):
        before = v @ w1 + b1
        return before, np.where(before > 0, before, 0.2 * before) @ w2 + b2[0]

    def backward(v, label):
        """Gradients of one vector's cross-entropy: (w1, b1, w2, b2, the vector)."""
        before, logit = forward(v)
        top = sigmoid(logit) - label
        inside = top * w2 * np.where(before > 0, 1, 0.2)
        return (
            np.outer(v, inside), inside, top * np.where(before > 0, before, 0.2 * before), np.array([top]), w1 @ inside
        )  # fmt: skip

    params = {
        "Dense_0": {"kernel": np.float32(w1), "bias": np.float32(b1)},
        "Dense_1": {"kernel": np.float32(w2[:, None]), "bias": np.float32(b2)},
    }
    (found, new), loss = adversarial.run_steps(
        (np.float32(w), params), np.float32(x[None]), np.float32(y[None]), jax.random.key(0), 0, 0.7, settings, 1
    )
    chance, labels = sigmoid(np.array([forward(w @ x)[1], forward(y)[1]])), np.array([0.9, 0.1])
    expected = -np.mean(labels * np.log(chance) + (1 - labels) * np.log(1 - chance))
    assert float(loss) == pytest.approx(expected, abs=1e-5)
    means = [(p + q) / 2 for p, q in zip(backward(w @ x, 0.9), backward(y, 0.1), strict=True)]
    w1, b1, w2, b2 = (old - 0.3 * step for old, step in zip((w1, b1, w2, b2), means[:4], strict=True))
    np.testing.assert_allclose(new["Dense_0"]["kernel"], w1, atol=1e-5)
    np.testing.assert_allclose(new["Dense_1"]["bias"], b2, atol=1e-5)
    # The map deceives the discriminator that has just learned: labels swapped, the target's part has no gradient.
    w = w - 0.7 * np.outer(backward(w @ x, 0.1)[4], x) / 2
    np.testing.assert_allclose(found, 1.01 * w - 0.01 * w @ w.T @ w, atol=1e-5)


def test_steps_keep_the_map_orthogonal():
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(50, 4)).astype(np.float32) for _ in range(2))
    settings = Adversarial(batch_size=4, discriminator_steps=1, layers=1, hidden=8, beta=0.1)
    params = adversarial.Discriminator(1, 8, 0.1).init(jax.random.key(1), y[:1], train=False)["params"]
    off = 1.1 * np.eye(4, dtype=np.float32)
    (near, _), _ = adversarial.run_steps((off, params), x, y, jax.random.key(0), 0, 0.001, settings, 50)
    assert np.abs(near @ near.T - np.eye(4)).max() < 0.01 < np.abs(off @ off.T - np.eye(4)).max()


def test_recovers_a_rotation_that_refinement_alone_does_not():
    rng = np.random.default_rng(0)
    skew = rng.normal(size=(4, 4))
    skew -= skew.T
    w = scipy.linalg.expm(skew * 1.5 / np.abs(np.linalg.eigvals(skew)).max())
    x, y = ((rng.exponential(size=(500, 4)) - 1) * np.linspace(1.5, 0.5, 4) for _ in range(2))
    x, y = x.astype(np.float32), (y @ w.T).astype(np.float32)  # different draws: no vector has a partner
    settings = Adversarial(epochs=2, epoch_size=10_000, hidden=64)
    lines = []
    found = rotation.learn(x, y, rotation.RotationSettings("adversarial", rounds=2, adversarial=settings), lines.append)
    assert np.abs(found.matrix - w).max() < 0.2
    assert np.abs(rotation.learn(x, y, rotation.RotationSettings(rounds=2)).matrix - w).max() > 0.5
    assert [step["stage"] for step in found.history] == ["start", "epoch 1", "epoch 2", "round 1", "round 2"]
    assert sum("discriminator's loss" in line for line in lines) == 2


def test_rates_fall_as_muse_s(monkeypatch):
    """0.98 per epoch; halved too where the criterion lies below its best for at least the second time."""
    rates = []

    def run(state, x, y, key, first, rate, settings, length):
        rates.append(rate)
        return state, 0.5

    monkeypatch.setattr(adversarial, "run_steps", run)
    criteria = iter([0.5, 0.4, 0.6, 0.55, 0.3, 0.7])
    settings = Adversarial(epochs=6, epoch_size=32, hidden=2)
    x = np.ones((3, 2), np.float32)
    adversarial.train(x, x, settings, lambda matrix, stage: next(criteria))
    steps = np.array([1, 0.98, 0.98, 0.98, 0.98 * 0.5, 0.98 * 0.5])
    np.testing.assert_allclose(rates, 0.1 * np.cumprod(steps))


def test_divergence_is_an_error(monkeypatch):
    monkeypatch.setattr(adversarial, "run_steps", lambda state, *rest: (state, np.nan))
    x = np.ones((3, 2), np.float32)
    with pytest.raises(ValueError, match="diverged in epoch 1; use a smaller learning rate, or refinement alone"):
        adversarial.train(x, x, Adversarial(hidden=2), lambda matrix, stage: 0.0)


def test_settings():
    with pytest.raises(ValueError, match="Adversarial.smoothing is 0.5; wanted a number of 0 or more and below 0.5"):
        Adversarial(smoothing=0.5)
    with pytest.raises(ValueError, match="Adversarial.epochs is 0"):
        Adversarial(epochs=0)
