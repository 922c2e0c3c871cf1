"""The in-batch contrastive loss against loops over anchors in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from scipy.special import logsumexp

from vmsst_jax import sharding
from vmsst_jax.objectives.contrastive import contrastive, symmetric_softmax
from vmsst_jax.training.step import loss_function

B, K = 8, 5
# Pairs 0 and 3 share their source, 1 and 4 their target, and the target of 2 is the source of 5.
TEXT_ID = np.array([10, 11, 12, 10, 14, 15, 16, 17, 20, 21, 15, 23, 21, 25, 26, 27], np.int32)
CASES = [("dot", 1.0, "none"), ("dot", 1.0, "same_text"), ("cosine", 20.0, "none"), ("cosine", 20.0, "same_text")]


def by_hand(s, t, sim, scale, negative_mask, text_id=TEXT_ID):
    """(loss, accuracy) from the definitions, one anchor at a time."""
    total, wins = 0.0, 0
    for anchors, others in ((s, t), (t, s)):
        for i in range(len(s)):
            scores = {}
            for j in range(len(s)):
                shared = {text_id[i], text_id[len(s) + i]} & {text_id[j], text_id[len(s) + j]}
                if negative_mask == "same_text" and shared and j != i:
                    continue
                score = anchors[i] @ others[j]
                if sim == "cosine":
                    score /= np.linalg.norm(anchors[i]) * np.linalg.norm(others[j])
                scores[j] = scale * score
            total += logsumexp(list(scores.values())) - scores[i]
            wins += max(scores, key=scores.get) == i
    return total / (2 * len(s)), wins / (2 * len(s))


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    s = rng.normal(size=(B, K))
    return s, s + 0.8 * rng.normal(size=(B, K))


@pytest.mark.parametrize("sim, scale, negative_mask", CASES)
def test_loss_and_gradient_by_hand(vectors, sim, scale, negative_mask):
    options = {"sim": sim, "scale": scale, "negative_mask": negative_mask}

    def ours(x):
        return symmetric_softmax(*x, TEXT_ID, **options)

    (loss, accuracy), gradient = jax.jit(jax.value_and_grad(ours, has_aux=True))(np.float32(vectors))
    wanted, wanted_accuracy = by_hand(*vectors, **options)
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)
    np.testing.assert_allclose(accuracy, wanted_accuracy)
    assert 0 < wanted_accuracy < 1
    for where in ((0, 0, 0), (0, 3, 2), (1, 0, 1), (1, 5, 4), (1, 7, 0)):
        step = np.zeros((2, B, K))
        step[where] = 1e-5
        up, down = (by_hand(*(np.array(vectors) + sign * step), **options)[0] for sign in (1, -1))
        np.testing.assert_allclose(gradient[where], (up - down) / 2e-5, rtol=1e-4, atol=1e-5)


def test_masking_leaves_the_positive_when_all_texts_are_equal(vectors):
    loss, _ = symmetric_softmax(*vectors, np.zeros(2 * B, np.int32), negative_mask="same_text")
    assert loss == 0.0


def test_negatives_come_from_all_devices(vectors):
    """Four devices with two pairs each give the loss and gradients of one device with eight."""

    def value_and_grad(*x):
        return jax.value_and_grad(lambda *y: symmetric_softmax(*y)[0], argnums=(0, 1))(*x)

    s, t = (jnp.float32(x) for x in vectors)
    wanted = by_hand(*vectors, "dot", 1.0, "none")[0]
    one_loss, one_grads = jax.jit(value_and_grad)(s, t)
    mesh = sharding.make_mesh(devices=jax.devices()[:4])
    spread = [jax.device_put(x, NamedSharding(mesh, PartitionSpec(sharding.BATCH_AXES))) for x in (s, t)]
    with jax.set_mesh(mesh):
        four_loss, four_grads = jax.jit(value_and_grad)(*spread)
    np.testing.assert_allclose([one_loss, four_loss], wanted, rtol=1e-5)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), four_grads, one_grads)


def test_objective_pairs_the_model_s_vectors(tiny_model, make_batch):
    module, batch = tiny_model("contrastive", encoder_layers=1), make_batch(pairs=B, groups=2)
    batch["text_id"] = TEXT_ID
    objective = loss_function(module, lambda *args: contrastive(*args, negative_mask="same_text"), train=True)
    params = jax.jit(lambda: module.init(jax.random.key(0), batch))()["params"]
    loss, (metrics, _) = jax.jit(objective)(params, {}, batch, 0, jax.random.key(1))
    rows = [row for group in batch["tokens"] for row in group]
    length = max(map(len, rows))
    tokens = np.array([np.pad(rows[slot], (0, length - len(rows[slot]))) for slot in batch["slot"]])
    vectors = np.float64(jax.jit(lambda p: module.apply({"params": p}, tokens, method="embed"))(params))
    wanted, accuracy = by_hand(vectors[:B], vectors[B:], "dot", 1.0, "same_text")
    np.testing.assert_allclose([loss, metrics["contrastive"]], wanted, rtol=1e-5)
    np.testing.assert_allclose(metrics["contrastive_accuracy"], accuracy)


def test_unknown_options_are_refused(vectors):
    with pytest.raises(ValueError, match="'euclid' must be one of"):
        symmetric_softmax(*vectors, sim="euclid")
    with pytest.raises(ValueError, match="negative_mask 'same' one of"):
        symmetric_softmax(*vectors, negative_mask="same")
