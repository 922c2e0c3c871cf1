"""The masked language model's loss: whole logits by hand, both kinds of model, every mesh, and what it leaves alone."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax import models, objectives, sharding
from vmsst_jax.objectives.masked_lm import masked_lm
from vmsst_jax.objectives.masking import mask_tokens
from vmsst_jax.training.step import loss_function

OPTIONS = {"mask_id": 39, "special_ids": (0, 1, 2, 3), "rate": 0.4}


def blocks(rows=8, length=12, seed=0):
    tokens = np.random.default_rng(seed).integers(4, 39, (rows, length)).astype(np.int32)
    tokens[:, 0], tokens[:, -1] = 0, 2
    return {"tokens": tokens, "lang": np.zeros(rows, np.int32)}


@pytest.fixture(scope="module")
def ccp_module(tiny_ccp):
    return tiny_ccp(mlm_head="dense")


@pytest.fixture(scope="module")
def variables(ccp_module):
    return jax.jit(ccp_module.init)(jax.random.key(0), models.example_batch())


def by_hand(encoder, params, batch, key):
    """Mean over the targets of -log softmax of all logits."""
    given = {"vocab_size": 40, **OPTIONS}
    inputs, positions, ids, weights = mask_tokens(key, jnp.asarray(batch["tokens"]), **given)
    logits = jax.jit(
        lambda p, t: encoder.apply({"params": p}, t, method=lambda m, t: m.backbone.logits(m.backbone(t)))
    )(params, inputs)
    logits = np.asarray(logits, np.float64)
    terms = []
    for b, p in zip(*np.nonzero(weights), strict=True):
        row = logits[b, positions[b, p]]
        terms.append(np.log(np.exp(row).sum()) - row[ids[b, p]])
    return np.mean(terms), len(terms)


def test_both_kinds_give_the_mean_over_targets_and_the_bank_stays(ccp_module, variables):
    objective = functools.partial(masked_lm, **OPTIONS, chunk_bytes=4 * 5 * 40 * 3)  # 3 rows at a time would be allowed
    encoder = models.build("encoder", ccp_module.config.encoder)
    params = variables["params"]["encoder"]
    batch, key = blocks(), jax.random.key(4)
    wanted, count = by_hand(encoder, params, batch, jax.random.split(key)[0])
    state = {k: v for k, v in variables.items() if k != "params"}
    for module, given, its_state in ((ccp_module, variables["params"], state), (encoder, params, {})):
        loss = jax.jit(loss_function(module, objective, train=True))
        last = {**OPTIONS, "mask_id": OPTIONS["mask_id"] - module.vocab_size}
        from_the_end = loss_function(module, functools.partial(objective, **last), train=True)
        value, (metrics, after) = loss(given, its_state, batch, 0, key)
        assert float(value) == pytest.approx(wanted, rel=1e-5)
        assert float(value) == float(jax.jit(from_the_end)(given, its_state, batch, 0, key)[0])
        assert float(metrics["masked_share"]) == pytest.approx(count / batch["tokens"].size)
        jax.tree.map(np.testing.assert_array_equal, after, its_state)


def test_a_table_with_more_rows_than_pieces(ccp_module, variables):
    """Masks count from the vocabulary's end, and nothing beyond it is put in the place of a token."""
    encoder = models.build("encoder", ccp_module.config.encoder)
    state = {k: v for k, v in variables.items() if k != "params"}
    batch = {**blocks(), "tokens": np.minimum(blocks()["tokens"], 29)}
    own, fewer = {**OPTIONS, "mask_id": -1}, {**OPTIONS, "mask_id": 29, "vocab_size": 30}
    for module, given, its_state in (
        (ccp_module, variables["params"], state),
        (encoder, variables["params"]["encoder"], {}),
    ):
        losses = [
            jax.jit(loss_function(m, functools.partial(masked_lm, **o), train=True))(
                given, its_state, batch, 0, jax.random.key(4)
            )[0]
            for m, o in ((models.of_vocabulary(module, 30), own), (module, fewer), (module, own))
        ]
        assert float(losses[0]) == float(losses[1]) != float(losses[2])


def test_the_same_loss_and_gradient_on_8_devices(ccp_module, variables):
    objective, key = functools.partial(masked_lm, **OPTIONS), jax.random.key(4)
    state = {k: v for k, v in variables.items() if k != "params"}
    value_and_grad = jax.value_and_grad(loss_function(ccp_module, objective, train=True), has_aux=True)
    results = []
    for mesh in (sharding.make_mesh(devices=jax.devices()[:1]), sharding.make_mesh()):
        with jax.set_mesh(mesh):
            batch = sharding.put_batch(blocks(), mesh)
            (loss, _), grads = jax.jit(value_and_grad)(variables["params"], state, batch, 0, key)
        results.append((loss, grads["encoder"]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), *results)


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ({}, {}, "needs a masked language model head, .* set BertConfig.mlm_head to 'dense'"),
        ({"mlm_head": "dense"}, {"mask_id": 40}, "masked_lm.mask_id is 40, and the model has 40 rows"),
        ({"mlm_head": "dense"}, {"mask_id": -41}, "masked_lm.mask_id is -41, and the model has 40 rows"),
    ],
)
def test_what_can_not_be_trained_is_refused_before_the_first_step(tiny_ccp, model, options, message):
    objective = functools.partial(masked_lm, **{**OPTIONS, **options})
    with pytest.raises(ValueError, match=message):
        objectives.check_model(objective, tiny_ccp(**model))
