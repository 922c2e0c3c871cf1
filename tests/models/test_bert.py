"""Options of the post-norm encoder that the comparisons with transformers don't reach."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax.models import t5
from vmsst_jax.models.bert import Bert, BertConfig
from vmsst_jax.models.output_layer import weighted_nll

SIZES = dict(vocab_size=40, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=2, max_positions=12)
XLM_R = BertConfig(**SIZES, mlm_head="dense", pooler=True)
XLM = BertConfig(
    **SIZES,
    family="xlm",
    position_offset=0,
    pad_id=2,
    token_types=0,
    num_languages=3,
    mask_after_layer=True,
    mlm_head="bias",
)
TOKENS = np.array([[0, 9, 8, 7, 6, 3], [0, 5, 3, 1, 1, 1]], np.int32)


def initialised(config, seed=0):
    module = Bert(config)
    return module, jax.jit(lambda key: module.init(key, jnp.asarray(TOKENS), method="touch"))(jax.random.key(seed))


@pytest.fixture(scope="module")
def xlm_r():
    return initialised(XLM_R)


def test_positions_can_start_anew(xlm_r):
    module, variables = xlm_r
    default = module.apply(variables, TOKENS)
    counted = np.broadcast_to(np.arange(6), TOKENS.shape)
    np.testing.assert_array_equal(module.apply(variables, TOKENS, positions=counted), default)
    restarted = module.apply(variables, TOKENS, positions=np.array([[0, 1, 2, 0, 1, 2]] * 2), all_layers=True)
    # Row 0: the embedding at position 3 is that of the same token at position 0 of another sentence.
    alone = module.apply(variables, np.array([[7, 6, 3]]), all_layers=True)
    np.testing.assert_allclose(restarted[0][0, 3:], alone[0][0], atol=1e-6)
    assert np.abs(restarted[-1] - default)[0].max() > 1e-4


def test_a_pad_id_of_the_tokenizer_beside_positions_from_zero():
    """multilingual-e5: BERT's positions, XLM-R's padding."""
    module, variables = initialised(dataclasses.replace(XLM_R, family="bert", position_offset=0))
    alone = module.apply(variables, TOKENS[1:, :3])
    np.testing.assert_allclose(module.apply(variables, TOKENS)[1, :3], alone[0], atol=1e-6)


def test_languages_are_added_per_token():
    module, variables = initialised(XLM)
    tokens = np.where(TOKENS == 1, 2, TOKENS)
    plain = module.apply(variables, tokens)
    one = module.apply(variables, tokens, languages=np.ones_like(tokens))
    mixed = module.apply(variables, tokens, languages=np.array([[1] * 6, [0] * 6]))
    assert np.abs(one - plain).max() > 1e-4
    np.testing.assert_allclose(mixed[0], one[0], atol=1e-6)
    assert np.abs(mixed - one)[1].max() > 1e-4
    np.testing.assert_array_equal(one[1, 3:], 0.0)  # XLM leaves nothing at the padding


def test_output_layer_in_parts_equals_the_logits(xlm_r):
    module, variables = xlm_r
    hidden = module.apply(variables, TOKENS)
    states, kernel, bias = module.apply(variables, hidden, method="mlm")
    bias = bias + jnp.linspace(-1, 1, 40)
    log_p = jax.nn.log_softmax(states @ kernel + bias)
    targets = jnp.asarray(np.where(TOKENS == 1, 0, TOKENS))  # 0 is what weighted_nll passes over
    ones = jnp.ones((2, 1))
    total, nll = weighted_nll((states,), (ones,), kernel, bias[None], (targets,), (jnp.ones(2),))
    expected = -jnp.take_along_axis(log_p, targets[..., None], -1)[..., 0] * (targets > 0)
    np.testing.assert_allclose(nll[0], expected.sum(1), rtol=1e-5)
    np.testing.assert_allclose(total, expected.sum(), rtol=1e-5)


@pytest.mark.parametrize("scan_layers", [False, True])
@pytest.mark.parametrize("remat", ["none", "dots", "full"])
def test_dropout_in_training(scan_layers, remat):
    module, variables = initialised(dataclasses.replace(XLM_R, scan_layers=scan_layers, remat=remat))

    def loss(variables, key):
        return jnp.sum(module.apply(variables, TOKENS, deterministic=False, rngs={"dropout": key})[0] ** 3)

    run = jax.jit(jax.value_and_grad(loss))
    (a, grads), (b, _) = run(variables, jax.random.key(1)), run(variables, jax.random.key(2))
    assert a != b and run(variables, jax.random.key(1))[0] == a
    assert all(np.isfinite(g).all() for g in jax.tree.leaves(grads))


def test_dropout_in_rematerialised_t5_layers():
    config = t5.T5Config(embed_dim=16, num_heads=2, head_dim=8, mlp_dim=24, dropout=0.5, remat="full")
    module, x, mask = t5.Encoder(config, 1), jnp.ones((1, 3, 16)), jnp.ones((1, 3))
    variables = module.init(jax.random.key(0), x, mask)
    run = jax.jit(lambda key: module.apply(variables, x, mask, False, rngs={"dropout": key}).sum())
    assert run(jax.random.key(1)) != run(jax.random.key(2))


def test_bfloat16_stays_close(xlm_r):
    module, variables = xlm_r
    rounded = Bert(dataclasses.replace(XLM_R, dtype="bfloat16")).apply(variables, TOKENS)
    assert rounded.dtype == jnp.bfloat16
    np.testing.assert_allclose(rounded.astype(np.float32), module.apply(variables, TOKENS), atol=0.1)


def test_bad_input_is_named(xlm_r):
    module, variables = xlm_r
    with pytest.raises(ValueError, match="rows of 11 tokens, but the position table serves 10"):
        module.apply(variables, np.full((1, 11), 5))
    with pytest.raises(ValueError, match="without a table"):
        module.apply(variables, TOKENS, languages=TOKENS)
    for field, value in {"activation": "swish", "mlm_head": "tied", "family": "electra", "num_heads": 3}.items():
        with pytest.raises(ValueError, match=field):
            BertConfig(**{**SIZES, field: value})
