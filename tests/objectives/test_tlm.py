"""The masked language model on TLM's rows: positions and languages reach the model, the targets follow XLM's rules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.text_encoder import TextEncoderConfig
from vmsst_jax.objectives.masked_lm import masked_lm
from vmsst_jax.objectives.masking import mask_tokens
from vmsst_jax.training.step import loss_function

EOS, PAD, MASK, VOCAB = 1, 2, 5, 40
OPTIONS = {"mask_id": MASK, "special_ids": (PAD,)}
XLM = dict(
    family="xlm", vocab_size=VOCAB, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=2, max_positions=12, pad_id=PAD
)
XLM |= dict(position_offset=0, token_types=0, mask_after_layer=True, mlm_head="bias", layer_norm_eps=1e-12)
XLM |= dict(dropout=0.0, attention_dropout=0.0)


def batch(rows=4, seed=0):
    rng = np.random.default_rng(seed)
    tokens = np.full((rows, 12), PAD, np.int32)
    positions, languages = np.tile(np.arange(12, dtype=np.int32), (rows, 1)), np.zeros((rows, 12), np.int32)
    for r in range(rows):
        a, b = rng.integers(1, 5, 2)
        row = [EOS, *rng.integers(14, VOCAB, a), EOS, EOS, *rng.integers(14, VOCAB, b), EOS]
        tokens[r, : len(row)] = row
        positions[r, a + 2 :] -= a + 2
        languages[r, a + 2 :] = 1
    return {"tokens": tokens, "positions": positions, "languages": languages}


@pytest.mark.parametrize("languages", [0, 2])
def test_the_loss_by_hand(languages):
    module = models.build("encoder", TextEncoderConfig(BertConfig(num_languages=languages, **XLM)))
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))
    params = jax.tree.map(lambda x: 3 * x, params)
    given, key = batch(), jax.random.key(3)
    objective_key = jax.random.split(key)[0]
    inputs, positions, ids, weights = mask_tokens(
        objective_key, jnp.asarray(given["tokens"]), vocab_size=VOCAB, **OPTIONS
    )

    @jax.jit
    def logits(params, tokens, places, langs):
        def run(m):
            return m.backbone.logits(m.backbone(tokens, positions=places, languages=langs))

        return module.apply({"params": params}, method=run)

    def mean(places, langs):
        found = np.asarray(jax.nn.log_softmax(logits(params, inputs, places, langs)), np.float64)
        at = [(b, positions[b, p], ids[b, p]) for b, p in zip(*np.nonzero(weights), strict=True)]
        return -np.mean([found[index] for index in at])

    langs = given["languages"] if languages else None
    loss = jax.jit(loss_function(module, functools.partial(masked_lm, **OPTIONS), train=True))
    value, _ = loss(params, {}, given, 0, key)
    assert float(value) == pytest.approx(mean(given["positions"], langs), rel=1e-5)
    assert float(value) != pytest.approx(mean(None, langs), rel=1e-5)  # positions that don't restart
    if languages:
        assert float(value) != pytest.approx(mean(given["positions"], 1 - langs), rel=1e-5)
        # Blocks of one language say it once a row.
        rows = {"tokens": given["tokens"], "lang": np.array([1, 0, 1, 1], np.int32)}
        whole = {"tokens": given["tokens"], "languages": np.repeat(rows["lang"][:, None], 12, axis=1)}
        assert float(loss(params, {}, rows, 0, key)[0]) == float(loss(params, {}, whole, 0, key)[0])


def test_targets_are_any_token_but_padding_and_the_first():
    given = batch(2000)
    inputs, positions, ids, weights = map(
        np.asarray, mask_tokens(jax.random.key(0), jnp.asarray(given["tokens"]), vocab_size=VOCAB, **OPTIONS)
    )
    chosen, where = ids[weights > 0], positions[weights > 0]
    assert (where > 0).all() and (chosen != PAD).all() and (chosen == EOS).any()
    candidates = (given["tokens"][:, 1:] != PAD).sum()
    assert weights.sum() == pytest.approx(0.15 * candidates, rel=0.02)
    shown = np.take_along_axis(inputs, positions, axis=1)[weights > 0]
    shares = [(shown == MASK).mean(), (shown == chosen).mean()]
    np.testing.assert_allclose(shares, [0.8 + 0.1 / VOCAB, 0.1 + 0.1 / VOCAB], atol=0.02)
    second = np.take_along_axis(given["languages"], positions, axis=1)[weights > 0]
    assert 0.4 < second.mean() < 0.6  # both sides are hidden


def test_rows_of_padding_alone_change_nothing():
    module = models.build("encoder", TextEncoderConfig(BertConfig(**XLM)))
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))
    objective = functools.partial(masked_lm, **OPTIONS)
    loss = jax.jit(jax.value_and_grad(loss_function(module, objective, train=True), has_aux=True))
    filled = {name: array.copy() for name, array in batch().items()}
    filled["tokens"][:] = PAD
    (value, _), grads = loss(params, {}, filled, 0, jax.random.key(0))
    assert float(value) == 0 and all(np.abs(g).max() == 0 for g in jax.tree.leaves(grads))
