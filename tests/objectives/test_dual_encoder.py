"""DPR's loss against a loop over questions, and what its masks leave out."""

import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax import objectives
from vmsst_jax.objectives.dual_encoder import dual_encoder, passage_softmax

B, P, D = 5, 12, 4
# Questions 0 and 3 share their passage, which is a hard negative too; two rows hold no passage.
IDS = np.array([7, 1, 2, 7, 4, 7, 8, 9, -1, 1, 6, -1], np.int32)


@pytest.fixture(scope="module")
def vectors():
    rng = np.random.default_rng(0)
    return rng.normal(size=(B, D)).astype(np.float32), rng.normal(size=(P, D)).astype(np.float32)


def by_hand(q, p, ids, similarity, scale, masked):
    """(loss, accuracy, mean rank), row by row."""
    losses, ranks = [], []
    for i, question in enumerate(q):
        scores = {}
        for j, passage in enumerate(p):
            out = ids is not None and (ids[j] == -1 or masked and ids[j] == ids[i])
            if j == i or not out:
                product = float(np.dot(question.astype(float), passage.astype(float)))
                if similarity == "cosine":
                    product /= math.sqrt(sum(x * x for x in question)) * math.sqrt(sum(x * x for x in passage))
                scores[j] = scale * product
        losses.append(math.log(sum(math.exp(s) for s in scores.values())) - scores[i])
        ranks.append(1 + sum(s > scores[i] for s in scores.values()))
    return np.mean(losses), np.mean([r == 1 for r in ranks]), np.mean(ranks)


@pytest.mark.parametrize("ids", [None, IDS], ids=["all rows", "ids"])
@pytest.mark.parametrize(("sim", "scale"), [("dot", 1.0), ("cosine", 5.0)])
@pytest.mark.parametrize("mask", ["none", "same_passage"])
def test_against_a_loop(vectors, ids, sim, scale, mask):
    loss, metrics = passage_softmax(*vectors, ids, sim=sim, scale=scale, negative_mask=mask)
    wanted = by_hand(*vectors, ids, sim, scale, mask == "same_passage")
    found = (loss, metrics["retrieval_accuracy"], metrics["mean_rank"])
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_rows_without_a_passage_have_no_gradient(vectors):
    q, p = vectors
    gradient = jax.grad(lambda p: passage_softmax(q, p, IDS)[0])(p)
    assert np.isfinite(gradient).all()
    assert (np.abs(gradient).max(axis=1) > 0).tolist() == (IDS >= 0).tolist()


def test_a_collapsed_encoder_finds_nothing():
    loss, metrics = passage_softmax(jnp.ones((B, D)), jnp.ones((P, D)))
    assert (float(metrics["retrieval_accuracy"]), float(metrics["mean_rank"])) == (0.0, P)
    assert float(loss) == pytest.approx(math.log(P))


def test_the_objective_embeds_each_side_with_its_tower(vectors):
    asked = []

    def tower(name, rows):
        return lambda tokens, deterministic: asked.append((name, tokens, deterministic)) or rows

    model = types.SimpleNamespace(
        embed_questions=tower("question", vectors[0]), embed_passages=tower("passage", vectors[1])
    )
    batch = {"question": "Q", "passage": "P", "passage_id": IDS}
    loss, metrics = dual_encoder(model, batch, 0, None, True, negative_mask="same_passage")
    assert asked == [("question", "Q", False), ("passage", "P", False)]
    assert loss == metrics["dual_encoder"]
    assert float(loss) == pytest.approx(by_hand(*vectors, IDS, "dot", 1.0, True)[0], rel=1e-5)


def test_what_it_needs():
    assert objectives.needs_whole_batch(dual_encoder)
    module = types.new_class("Module")()
    with pytest.raises(ValueError, match="needs embed_questions, embed_passages"):
        objectives.check_model(dual_encoder, module)
    type(module).embed_questions = type(module).embed_passages = None
    objectives.check_model(objectives.configured(dual_encoder)(sim="cosine"), module)
    for options, message in (
        ({"sim": "euclid"}, "dual_encoder.sim is 'euclid'; use one of 'dot', 'cosine'"),
        ({"negative_mask": "same_text"}, "negative_mask is 'same_text'; use one of 'none', 'same_passage'"),
        ({"scale": 0}, "dual_encoder.scale is 0; wanted a number above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            objectives.check_model(objectives.configured(dual_encoder)(**options), module)
