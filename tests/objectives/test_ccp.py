"""CCP's loss against loops over anchors, and what the bank holds after it."""

import functools
import math

import jax
import jax.numpy as jnp
import jax.test_util
import numpy as np
import pytest

from vmsst_jax import models, objectives
from vmsst_jax.models.ccp import CcpConfig
from vmsst_jax.objectives import ccp as ccp_module
from vmsst_jax.objectives.ccp import ccp
from vmsst_jax.training.step import loss_function

TAU = 0.2


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def loss_by_hand(u, tau, banks=None):
    """Mean of l(c, i) over a group's anchors, u [2N, D]; banks[c] is the list of vectors that anchor c meets."""
    count = len(u)
    losses = []
    for c in range(count):
        i = (c + count // 2) % count
        terms = [math.exp(u[c] @ u[k] / tau) for k in range(count) if k != c]
        terms += [math.exp(u[c] @ b / tau) for b in (banks[c] if banks else [])]
        losses.append(-math.log(math.exp(u[c] @ u[i] / tau) / sum(terms)))
    return np.mean(losses)


def wins(u, banks):
    """Which anchors' neighbours beat every other vector that they meet."""
    count = len(u)
    for c in range(count):
        i = (c + count // 2) % count
        others = [u[k] for k in range(count) if k not in (c, i)] + list(banks[c])
        yield all(u[c] @ u[i] > u[c] @ other for other in others)


def test_an_empty_bank_leaves_nt_xent():
    u = unit(np.random.default_rng(0).normal(size=(2, 6, 5)))
    loss, accuracy = jax.jit(ccp_module.anchor_loss)(u.astype(np.float32), TAU)
    assert float(loss) == pytest.approx(np.mean([loss_by_hand(g, TAU) for g in u]), rel=1e-6)
    assert float(accuracy) == pytest.approx(np.mean([list(wins(g, [[]] * 6)) for g in u]))
    assert ccp_module.anchor_loss(jnp.ones((1, 6, 5)), TAU)[1] == 0  # collapsed


class Recorder:
    """A run of the objective, micro-batch by micro-batch, with the state kept and the vectors that it saw."""

    def __init__(self, module, objective):
        self.module = module
        self.variables = jax.jit(module.init)(jax.random.key(0), models.example_batch())
        loss = loss_function(module, objective, train=True)

        def vectors(model, batch):
            return model.project(model.encode_pairs(batch), batch["lang"], True)[0]

        @jax.jit
        def step(variables, batch):
            state = {k: v for k, v in variables.items() if k != "params"}
            z, _ = module.apply(variables, batch, method=vectors, mutable=["batch_stats"])
            value, (metrics, state) = loss(variables["params"], state, batch, 0, jax.random.key(1))
            return value, metrics, z, state

        self.step = step

    def __call__(self, batch):
        """(loss, metrics, unit vectors [G, 2N, D] that the loss compared)."""
        loss, metrics, z, state = self.step(self.variables, batch)
        self.variables = {**self.variables, **state}
        return float(loss), metrics, unit(np.asarray(z))

    @property
    def memory(self):
        return self.variables["memory"]["memory_bank"]


# Of the slots (vector, language, document) written so far, which an anchor of this language and document meets.
MEETS = {
    ("per_language", "none"): lambda slot, lang, doc: slot[1] == lang,
    ("per_language", "document"): lambda slot, lang, doc: slot[1] == lang and slot[2] != doc,
    ("tagged", "document"): lambda slot, lang, doc: slot[1] == lang and slot[2] != doc,
    ("plain", "none"): lambda slot, lang, doc: True,
}


@pytest.mark.parametrize(("layout", "mask"), MEETS)
def test_the_loss_with_a_bank_that_wraps_around(tiny_ccp, make_documents, layout, mask):
    """Rings as plain lists: 14 slots and 6 vectors a group, so that groups lie across the end."""
    module = tiny_ccp("mean", bank=layout, bank_size=14, bn="none")
    run = Recorder(module, functools.partial(ccp, temperature=TAU, bank_mask=mask))
    rings, masked = {}, 0
    for step, lang in enumerate([(0, 1), (1, 1), (2, 0), (1, 2), (1, 1), (0, 1)]):
        batch = make_documents(lang=lang, documents=8, seed=step)
        loss, metrics, u = run(batch)
        documents = np.concatenate([batch["document_id"]] * 2, axis=1)
        wanted, used, right = [], [], []
        for g, language in enumerate(lang):
            ring = rings.get(language if layout == "per_language" else 0, [])
            banks = [[s[0] for s in ring if MEETS[layout, mask](s, language, d)] for d in documents[g]]
            wanted.append(loss_by_hand(u[g], TAU, banks))
            used += map(len, banks)
            right += wins(u[g], banks)
        assert loss == pytest.approx(np.mean(wanted), rel=1e-5)
        assert float(metrics["bank_negatives"]) == pytest.approx(np.mean(used))
        assert float(metrics["contrastive_accuracy"]) == pytest.approx(np.mean(right))
        masked += float(metrics["bank_masked"])
        for g, language in enumerate(lang):
            ring = rings.setdefault(language if layout == "per_language" else 0, [])
            ring += [(u[g, i], language, documents[g, i]) for i in range(6)]
            del ring[:-14]
    assert (masked > 0) == (mask == "document")
    for name, ring in rings.items():
        count, pointer = len(ring), int(run.memory["pointer"][name])
        assert int(run.memory["filled"][name]) == count
        oldest_first = np.roll(run.memory["vectors"][name], -pointer, axis=0)[-count:]
        np.testing.assert_allclose(oldest_first, [s[0] for s in ring], atol=1e-5)
        assert list(np.roll(run.memory["document"][name], -pointer)[-count:]) == [s[2] for s in ring]


def test_no_gradient_reaches_the_bank_and_the_rest_is_right(tiny_ccp, make_documents):
    """The gradient with respect to the queries by differences; with respect to the slots it is zero."""
    module = tiny_ccp(bank_size=32)
    run = Recorder(module, functools.partial(ccp, temperature=TAU))
    run(make_documents(lang=(0, 1), seed=0))
    state, lang = run.variables, jnp.array([0, 1])
    documents = jnp.asarray(np.random.default_rng(1).integers(0, 20, (2, 4)))
    queries = jnp.asarray(np.random.default_rng(0).normal(size=(2, 4, 8)), jnp.float32)

    @jax.jit
    def total(queries, vectors):
        bank = state["memory"]["memory_bank"] | {"vectors": vectors}
        variables = state | {"memory": {"memory_bank": bank}}
        return jnp.sin(module.apply(variables, queries, lang, documents, method="negatives").log_sum).sum()

    vectors = state["memory"]["memory_bank"]["vectors"]
    jax.test_util.check_grads(lambda q: total(q, vectors), (queries,), order=1, modes=["rev"], eps=1e-2, rtol=1e-2)
    assert not jnp.any(jax.grad(total, argnums=1)(queries, vectors))


def test_without_l2_norm_plain_products_are_compared_and_kept(tiny_ccp, make_documents):
    batch = make_documents(lang=(0, 0))
    run = Recorder(tiny_ccp(bn="none"), functools.partial(ccp, temperature=2.0, l2_norm=False))
    loss, metrics, z, state = run.step(run.variables, batch)
    assert float(loss) == pytest.approx(np.mean([loss_by_hand(np.asarray(g), 2.0) for g in z]), rel=1e-5)
    np.testing.assert_allclose(state["memory"]["memory_bank"]["vectors"][0, :12], z.reshape(12, 8), atol=1e-6)
    assert -1 <= metrics["positive_cosine"] <= 1


def test_a_bank_of_half_the_size_in_bfloat16(tiny_ccp, make_documents):
    losses = {}
    for dtype in ("float32", "bfloat16"):
        run = Recorder(tiny_ccp(bn="none", bank_dtype=dtype), functools.partial(ccp, temperature=TAU))
        losses[dtype] = [run(make_documents(lang=(0, 0), seed=step))[0] for step in range(2)]
        assert run.memory["vectors"].dtype == dtype
    assert losses["bfloat16"][0] == losses["float32"][0]
    assert losses["bfloat16"][1] == pytest.approx(losses["float32"][1], rel=1e-2)


def test_evaluation_changes_nothing(tiny_ccp, make_documents):
    objective = functools.partial(ccp, temperature=TAU)
    run = Recorder(tiny_ccp(), objective)
    run(make_documents(seed=0))
    state = {k: v for k, v in run.variables.items() if k != "params"}
    evaluate = jax.jit(loss_function(run.module, objective, train=False))
    loss, (metrics, after) = evaluate(run.variables["params"], state, make_documents(seed=1), 0, jax.random.key(0))
    jax.tree.map(np.testing.assert_array_equal, after, state)
    assert float(metrics["bank_negatives"]) > 0 and math.isfinite(loss)


def test_diagnostics_by_hand():
    rng = np.random.default_rng(3)
    u = unit(rng.normal(size=(2, 8, 5))).astype(np.float32)
    found = jax.jit(ccp_module.cosines)(u)
    others = [u[g, i] @ u[g, k] for g in range(2) for i in range(8) for k in range(8) if (i - k) % 4]
    positive = np.mean(np.sum(u[:, :4] * u[:, 4:], axis=-1))
    assert float(found["positive_cosine"]) == pytest.approx(positive, rel=1e-5)
    assert float(found["alignment"]) == pytest.approx(np.mean(np.sum((u[:, :4] - u[:, 4:]) ** 2, -1)), rel=1e-5)
    assert float(found["negative_cosine"]) == pytest.approx(np.mean(others), abs=1e-6)
    spread = np.mean([math.exp(-2 * (2 - 2 * c)) for c in others])
    assert float(found["uniformity"]) == pytest.approx(math.log(spread), rel=1e-5)

    x = rng.normal(size=(2, 12, 4)) @ np.diag([3.0, 1.0, 0.5, 0.1])
    eigenvalues = [np.linalg.eigvalsh(np.cov(g.T)) for g in x]
    wanted = np.mean([e.sum() ** 2 / (e**2).sum() for e in eigenvalues])
    rank = jax.jit(ccp_module.effective_rank)
    assert float(rank(x)) == pytest.approx(wanted, rel=1e-5)
    line = np.arange(6.0)[None, :, None] * np.ones((1, 1, 4))
    assert float(rank(line)) == pytest.approx(1.0, rel=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"temperature": 0.0}, "ccp.temperature is 0.0; wanted a number above 0"),
        ({"bank_mask": "sentence"}, "ccp.bank_mask is 'sentence'; use one of 'none', 'document'"),
    ],
)
def test_settings_are_checked_before_training(tiny_ccp, options, message):
    with pytest.raises(ValueError, match=message):
        objectives.check_model(functools.partial(ccp, **options), tiny_ccp())


def test_what_a_batch_must_have(tiny_ccp, make_documents):
    batch = make_documents()
    run = Recorder(tiny_ccp(), functools.partial(ccp, bank_mask="document"))
    del batch["document_id"]
    with pytest.raises(ValueError, match="the batch has centre, context, lang; wanted document_id too"):
        run(batch)


def test_a_group_larger_than_the_bank(tiny_ccp, make_documents):
    run = Recorder(tiny_ccp(bank_size=8), ccp)
    with pytest.raises(
        ValueError, match="a group of a micro-batch gives 10 vectors, more than the 8 slots of bank_size"
    ):
        run(make_documents(pairs=5))


def test_groups_of_one_pair_have_no_others():
    vectors = np.random.default_rng(5).normal(size=(3, 2, 4))
    found = ccp_module.cosines(jnp.asarray(unit(vectors), jnp.float32))
    assert set(found) == {"positive_cosine", "alignment"}
    loss, _ = ccp_module.anchor_loss(jnp.ones((3, 2, 4)), 0.1)
    assert float(loss) == 0.0  # of the two sentences one is the anchor, the other its neighbour


@pytest.mark.parametrize(
    ("shapes", "changes", "message"),
    [
        ({"centre": (8, 1, 32)}, {}, "Documents.pairs is 1, and one pair has no batch statistics"),
        ({"centre": (2, 8, 1, 32)}, {}, "Documents.pairs is 1"),
        ({"centre": (8, 33, 32)}, {}, "ccp_model.bank_size is 64, and a group of 33 pairs gives 66 vectors"),
        ({"centre": (8, 32, 32)}, {"bank_size": 65}, "ccp_model.bank_size is 65, and 2 devices can't own equal shares"),
        ({"tokens": (8, 32), "lang": (8,)}, {}, "its stream gives tokens, lang: give it @Documents"),
    ],
)
def test_batches_that_the_model_cannot_take(shapes, changes, message):
    def module(**changes):
        return models.build("ccp", CcpConfig(**{"bank_size": 64, **changes}))

    with pytest.raises(ValueError, match=message):
        objectives.check_batch(ccp, module(**changes), lambda: shapes, 2)
    objectives.check_batch(ccp, module(), lambda: {"centre": (8, 32, 32)}, 2)
    objectives.check_batch(ccp, module(bn="none"), lambda: {"centre": (8, 1, 32)}, 2)
