"""Translation's losses by hand, what weights and dropout do, and that both objectives teach a made-up language."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from vmsst_jax import models, objectives
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.seq2seq import Seq2SeqConfig
from vmsst_jax.objectives.translation import back_translation, translation
from vmsst_jax.training.schedules import piecewise_linear
from vmsst_jax.training.step import loss_function

EOS, PAD, VOCAB, WORDS = 1, 2, 24, 8  # words of language 0 are 5 .. 12, of language 1 are 14 .. 21


def make(**options):
    sizes = dict(vocab_size=VOCAB, embed_dim=32, num_heads=4, mlp_dim=64, num_layers=1, max_positions=24, pad_id=PAD)
    sizes |= dict(
        position_offset=0, token_types=0, num_languages=2, mask_after_layer=True, mlm_head="bias", family="xlm"
    )
    module = models.build(
        "seq2seq", Seq2SeqConfig(BertConfig(**{**sizes, "dropout": 0.0, "attention_dropout": 0.0, **options}))
    )
    return module, jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))


@pytest.fixture(scope="module")
def model():
    return make()


def batch(seed=0, rows=8, width=8):
    """The same sentences in both languages, word by word."""
    rng = np.random.default_rng(seed)
    out = {name: np.full((rows, width), PAD, np.int32) for name in ("source", "target")}
    for r in range(rows):
        words = rng.integers(0, WORDS, rng.integers(2, width - 1))
        out["source"][r, : len(words) + 2] = [EOS, *(5 + words), EOS]
        out["target"][r, : len(words) + 2] = [EOS, *(14 + words), EOS]
    lang = np.zeros(rows, np.int32)
    return {**out, "source_lang": lang, "target_lang": lang + 1}


@functools.cache
def jitted(module, method):
    return jax.jit(lambda params, *args: module.apply({"params": params}, *args, method=method))


def mean_nll(module, params, source, given):
    weights = np.ones(len(source), np.float32)
    args = (source, given["source_lang"], given["target"], given["target_lang"], weights)
    total, _ = jitted(module, "translation_nll")(params, *args)
    return float(total) / (given["target"][:, 1:] != PAD).sum()


def test_the_mean_over_tokens_and_the_weight(model):
    module, params = model
    given = batch()
    weight = piecewise_linear([(0, 1.0), (100, 0.1), (300, 0.0)])
    objective = functools.partial(translation, weight=weight)
    wanted = mean_nll(module, params, given["source"], given)
    loss = jax.jit(loss_function(module, objective, train=True))
    for step, factor in ((0, 1.0), (50, 0.55), (100, 0.1), (200, 0.05), (400, 0.0)):
        value, (metrics, _) = loss(params, {}, given, step, jax.random.key(0))
        assert float(metrics["nll"]) == pytest.approx(wanted, rel=1e-5)
        assert float(value) == pytest.approx(factor * wanted, rel=1e-5)
    value, _ = jax.jit(loss_function(module, objective, train=False))(params, {}, given, 100, jax.random.key(0))
    assert float(value) == pytest.approx(wanted, rel=1e-5)


def test_back_translation_is_translation_of_what_the_model_writes(model):
    module, params = model
    params = jax.tree.map(lambda x: 8 * x if x.ndim > 1 else x, params)
    bias = params["decoder"]["mlm_head"]["bias"]
    params["decoder"]["mlm_head"]["bias"] = bias.at[EOS].set(-4.0)  # so that it writes something
    given = batch()
    args = (given["target"], given["target_lang"], given["source_lang"])
    written, _ = jitted(module, "translate")(params, *args)
    filled = {name: np.concatenate([x, np.full_like(x, PAD) if x.ndim > 1 else x]) for name, x in given.items()}
    filled.pop("source")
    value, (metrics, _) = jax.jit(loss_function(module, back_translation, train=True))(
        params, {}, filled, 0, jax.random.key(0)
    )
    assert float(value) == pytest.approx(mean_nll(module, params, np.asarray(written), given), rel=1e-5)
    written = [[t for t in row[1:] if t not in (PAD, EOS)] for row in np.asarray(written).tolist()]
    targets = [row[row != PAD].tolist() for row in given["target"]]
    same = sum(a == b for w, t in zip(written, targets, strict=True) for a, b in zip(w, t[1:], strict=False))
    assert float(metrics["copied"]) == pytest.approx(same / sum(map(len, written)))
    assert float(metrics["written_length"]) == pytest.approx(
        sum(len(w) + 1 for w in written) / sum(len(t) - 1 for t in targets), rel=1e-5
    )


def test_sources_are_written_of_what_may_be_written(model):
    """The words of one language alone, though an untrained model would take any."""
    module, params = model
    params = jax.tree.map(lambda x: 8 * x if x.ndim > 1 else x, params)
    bias = params["decoder"]["mlm_head"]["bias"]
    params["decoder"]["mlm_head"]["bias"] = bias.at[EOS].set(-4.0)  # so that it writes something
    given = batch()
    writable = np.zeros((len(given["target"]), VOCAB), bool)
    writable[:, [EOS, *range(5, 5 + WORDS)]] = True
    args = (given["target"], given["target_lang"], given["source_lang"])
    free, _ = jitted(module, "translate")(params, *args)
    written, _ = jax.jit(
        lambda p: module.apply({"params": p}, *args, writable=jnp.array(writable), method="translate")
    )(params)
    fewer, _ = jax.jit(
        lambda p: module.apply({"params": p}, *args, writable=jnp.array(writable[:, :-2]), method="translate")
    )(params)
    assert not writable[:, -2:].any() and (fewer == written).all()  # the table may have more rows than pieces
    allowed = {EOS, PAD, *range(5, 5 + WORDS)}
    assert set(np.unique(written)) <= allowed and not set(np.unique(free)) <= allowed
    trip = {name: x for name, x in given.items() if name != "source"} | {"writable": writable}
    value, _ = jax.jit(loss_function(module, back_translation, train=True))(params, {}, trip, 0, jax.random.key(0))
    assert float(value) == pytest.approx(mean_nll(module, params, np.asarray(written), given), rel=1e-5)


def test_what_is_written_knows_no_dropout(model):
    """The gradient's pass has dropout: two keys, two losses; the written sources are the same."""
    module, params = make(dropout=0.3, attention_dropout=0.3)
    given = batch()
    given.pop("source")
    loss = jax.jit(loss_function(module, back_translation, train=True))
    values, lengths = [], []
    for key in (0, 1):
        value, (metrics, _) = loss(params, {}, given, 0, jax.random.key(key))
        values.append(float(value))
        lengths.append((float(metrics["written_length"]), float(metrics["copied"])))
    assert values[0] != values[1] and lengths[0] == lengths[1]


def test_pairs_teach_one_direction_and_round_trips_the_other(model):
    """From pairs a model learns to translate 0 -> 1; what it writes that way teaches it 1 -> 0, unseen in any pair."""
    module, params = model
    optimizer = optax.adam(3e-3)
    forwards, backwards = (loss_function(module, o, train=True) for o in (translation, back_translation))

    def right(params, names):
        given = batch(9999, rows=64)
        found, _ = module.apply(
            {"params": params}, given[names[0]], given[f"{names[0]}_lang"], given[f"{names[1]}_lang"],
            method="translate",
        )  # fmt: skip
        return (found[:, :8] == given[names[1]]).all(axis=1).mean()

    def trained(params, count, with_round_trips):
        def loss(params, given):
            value = forwards(params, {}, given, 0, jax.random.key(0))[0]
            if with_round_trips:
                trip = {"target": given["source"][::-1], "target_lang": given["source_lang"]}
                trip["source_lang"] = given["target_lang"]
                value += backwards(params, {}, trip, 0, jax.random.key(0))[0]
            return value

        def one(carry, given):
            params, state = carry
            updates, state = optimizer.update(jax.grad(loss)(params, given), state)
            return (optax.apply_updates(params, updates), state), None

        batches = [batch(seed, rows=24) for seed in range(count)]
        stacked = {name: jnp.stack([b[name] for b in batches]) for name in batches[0]}
        return jax.jit(lambda p: jax.lax.scan(one, (p, optimizer.init(p)), stacked)[0][0])(params)

    there, back = (
        jax.jit(functools.partial(right, names=names)) for names in (("source", "target"), ("target", "source"))
    )
    taught = trained(params, 220, False)
    assert there(taught) > 0.9 and back(taught) < 0.1
    both = trained(taught, 280, True)
    assert there(both) > 0.9 and back(both) > 0.8


def test_other_models_are_refused(tiny_ccp):
    for objective in (translation, back_translation):
        with pytest.raises(ValueError, match="needs .*translation_nll"):
            objectives.check_model(objective, tiny_ccp())
