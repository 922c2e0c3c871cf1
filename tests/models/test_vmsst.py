"""The models' promises: what depends on what, and that the options change what they name."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.models import t5
from vmsst_jax.objectives.bitranslation import bitranslation
from vmsst_jax.objectives.vmsst import vmsst


def size(params):
    return sum(x.size for x in jax.tree.leaves(params))


def init(module, seed=0):
    return jax.jit(models.init_params, static_argnums=0)(module, jax.random.key(seed))


def apply(module, params, *args, method=None):
    """module.apply under jit: op by op these models take seconds each."""
    return jax.jit(lambda p, *a: module.apply({"params": p}, *a, method=method))(params, *args)


def per_sentence_nll(module, params, batch, conditions):
    return apply(module, params, batch, conditions, np.ones(conditions.shape[:2], np.float32), method="reconstruct")[1]


@pytest.mark.parametrize("condition", ["bgt_linear", "output_only", "memory2"])
def test_reconstruction_depends_on_both_latents(tiny_model, make_batch, condition):
    module, batch = tiny_model(decoder_cond=condition), make_batch()
    params = init(module)
    z = jax.random.normal(jax.random.key(1), (1, 16, 32))
    base = per_sentence_nll(module, params, batch, z)
    for half in (slice(0, 16), slice(16, 32)):
        changed = per_sentence_nll(module, params, batch, z.at[..., half].add(1.0))
        assert np.all(np.abs(changed - base) > 1e-4)


def test_decoder_is_causal(tiny_model):
    """Changing a later token leaves earlier positions' states alone."""
    module = tiny_model()
    params = init(module)
    config = module.config.t5
    decoder = t5.Decoder(config, config.decoder_layers)
    stack = {k: v for k, v in params["decoder"].items() if not k.startswith("logits")}
    x = jax.random.normal(jax.random.key(0), (2, 7, 16))
    c = jax.random.normal(jax.random.key(1), (2, 32))
    before, after = (apply(decoder, stack, inputs, c) for inputs in (x, x.at[:, 4].add(1.0)))
    np.testing.assert_array_equal(before[:, :4], after[:, :4])
    assert np.all(np.abs(before[:, 4:] - after[:, 4:]).max(-1) > 1e-4)


def test_embedding_ignores_padding_and_neighbours(tiny_model):
    module = tiny_model("contrastive")
    params = init(module)
    tokens = np.array([[7, 8, 9, 1], [5, 1, 0, 0]], np.int32)
    padded = np.pad(tokens, ((0, 0), (0, 9)))
    whole = apply(module, params, tokens, method="embed")
    np.testing.assert_allclose(whole, apply(module, params, padded, method="embed"), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole[1:], apply(module, params, tokens[1:, :2], method="embed"), rtol=1e-5, atol=1e-6)


def test_groups_of_widths_change_nothing(tiny_model, make_batch):
    module = tiny_model()
    params = init(module)
    whole, grouped = make_batch(groups=1), make_batch(groups=4)
    for method in ("semantic_posterior", "language_posterior"):
        a, b = (apply(module, params, batch, method=method) for batch in (whole, grouped))
        jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5), a, b)
    z = jax.random.normal(jax.random.key(1), (2, 16, 32))
    a, b = (per_sentence_nll(module, params, batch, z) for batch in (whole, grouped))
    np.testing.assert_allclose(a, b, rtol=1e-5)


def test_reconstruct_keeps_sentence_order(tiny_model, make_batch):
    """Sentence i's loss is that of decoding it alone from its own condition."""
    module, batch = tiny_model(), make_batch(groups=2)
    params = init(module)
    z = jax.random.normal(jax.random.key(1), (2, 16, 32))
    nll = per_sentence_nll(module, params, batch, z)
    rows = [row for group in batch["tokens"] for row in group]
    for i in (0, 5, 15):
        tokens = rows[batch["slot"][i]][None]
        inputs = apply(module, params, tokens, batch["lang"][i : i + 1], method="decoder_inputs")
        for p in range(2):
            decoder = models.vmsst.ConditionalDecoder(module.config.t5, 32)
            table = params["token_embedder"]["embedding"]
            args = ((inputs,), (z[p, i][None],), (tokens,), (jnp.ones(1),), table)
            _, alone = apply(decoder, params["decoder"], *args)
            np.testing.assert_allclose(nll[p, i], alone[0][0], rtol=1e-5)


def test_scanned_layers_equal_a_loop(tiny_model, make_batch):
    loop, scan = tiny_model(), tiny_model(scan_layers=True, remat="full")
    params, batch = init(loop), make_batch()

    def stacked(tree):
        out = {k: stacked(v) if isinstance(v, dict) else v for k, v in tree.items() if not k.startswith("layers_")}
        layers = [tree[k] for k in sorted(tree) if k.startswith("layers_")]
        return out | ({"layers": jax.tree.map(lambda *x: jnp.stack(x), *layers)} if layers else {})

    def loss(module, p):
        return module.apply({"params": p}, batch)[0]

    scanned = stacked(params)
    assert jax.tree.map(jnp.shape, scanned) == jax.tree.map(jnp.shape, init(scan))
    a, grads_a = jax.jit(jax.value_and_grad(lambda p: loss(loop, p)))(params)
    b, grads_b = jax.jit(jax.value_and_grad(lambda p: loss(scan, p)))(scanned)
    np.testing.assert_allclose(a, b, rtol=1e-6)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-3, atol=1e-4), stacked(grads_a), grads_b)


def test_hidden_states_are_numbered_from_the_embeddings(tiny_model):
    for scan in (False, True):
        module = tiny_model("contrastive", scan_layers=scan)
        params = init(module)
        tokens = np.array([[7, 8, 9, 1]], np.int32)
        states = apply(module, params, tokens, method="hidden_states")
        assert len(states) == 3
        np.testing.assert_array_equal(states[0], params["token_embedder"]["embedding"][tokens])
        pooled = states[-1].mean(axis=1) @ params["semantic_mean"]["kernel"]
        embedding = apply(module, params, tokens, method="embed")
        np.testing.assert_allclose(pooled, embedding, rtol=1e-4, atol=1e-5)


def test_routed_stacks_use_the_language_s_own(tiny_model, make_batch):
    """Two language encoders equal running each alone on its languages' sentences."""
    module, batch = tiny_model(encoder_of_language=(0, 1, 0)), make_batch()
    params = init(module)
    mu, _ = apply(module, params, batch, method="language_posterior")
    plain = tiny_model()
    for which in (0, 1):
        one = {**params, "language_encoder": jax.tree.map(lambda x, i=which: x[i], params["language_encoder"]["stack"])}
        alone, _ = apply(plain, one, batch, method="language_posterior")
        mine = np.isin(batch["lang"], [lang for lang, e in enumerate((0, 1, 0)) if e == which])
        np.testing.assert_allclose(mu[mine], alone[mine], rtol=1e-4, atol=1e-5)
        assert np.abs(mu[~mine] - alone[~mine]).max() > 1e-3


def test_routed_decoders_use_the_language_s_own(tiny_model, make_batch):
    """Two decoders equal decoding with each alone its languages' sentences, in several passes."""
    module, batch = tiny_model(decoder_of_language=(0, 1, 0)), make_batch()
    params = init(module)
    conditions = jax.random.normal(jax.random.key(1), (2, 16, 32))
    nll = per_sentence_nll(module, params, batch, conditions)
    plain = tiny_model()
    names = init(plain)["decoder"].keys()
    for which in (0, 1):
        own = jax.tree.map(lambda x, i=which: x[i], params["decoder"]["stack"])
        decoder = {**{k: v for k, v in params["decoder"].items() if k != "stack"}, **own}
        assert decoder.keys() == names
        alone = per_sentence_nll(plain, {**params, "decoder": decoder}, batch, conditions)
        mine = np.isin(batch["lang"], [lang for lang, d in enumerate((0, 1, 0)) if d == which])
        np.testing.assert_allclose(nll[:, mine], alone[:, mine], rtol=1e-4, atol=1e-5)
        assert np.abs(nll[:, ~mine] - alone[:, ~mine]).max() > 1e-3


def test_language_reaches_the_language_encoder_unless_switched_off(tiny_model, make_batch):
    batch = make_batch()
    other = {**batch, "lang": (batch["lang"] + 1) % 3}
    for mode, changes in (("add", True), ("prepend", True), ("none", False)):
        module = tiny_model(enc_lang=mode)
        params = init(module)
        a, b = (apply(module, params, x, method="language_posterior")[0] for x in (batch, other))
        assert (np.abs(a - b).max() > 1e-4) == changes
        assert "language_tags" not in params or changes


def test_decoder_tag_can_be_switched_off(tiny_model, make_batch):
    batch = make_batch()
    other = {**batch, "lang": (batch["lang"] + 1) % 3}
    z = jax.random.normal(jax.random.key(1), (1, 16, 32))
    for mode, changes in (("tag", True), ("none", False)):
        module = tiny_model(dec_lang=mode)
        params = init(module)
        a, b = (per_sentence_nll(module, params, x, z) for x in (batch, other))
        assert (np.abs(a - b).max() > 1e-4) == changes


@pytest.mark.parametrize("k", [16, 8])
def test_factored_output_saves_what_the_paper_counts(tiny_model, k):
    d, v = 16, 50
    plain, factored = (size(init(tiny_model(latent_dim=k, factored_output=f))) for f in (False, True))
    assert plain - factored == (d + 2 * k) * v - (d * v + (d + 2 * k) * d)


def test_tied_output_reads_the_embeddings(tiny_model, make_batch):
    """The same loss as a matrix of its own that holds the scaled embeddings; k V fewer parameters."""
    tied, plain, batch = tiny_model(tied_output=True), tiny_model(), make_batch()
    params = init(tied)
    assert size(init(plain)) - size(params) == 16 * 50
    kernel = params["token_embedder"]["embedding"].T / 4.0  # sqrt(D) = 4
    untied = {**params, "decoder": {**params["decoder"], "logits_dense": {"kernel": kernel}}}
    z = jax.random.normal(jax.random.key(1), (1, 16, 32))
    a, b = per_sentence_nll(tied, params, batch, z), per_sentence_nll(plain, untied, batch, z)
    np.testing.assert_allclose(a, b, rtol=1e-6)


def test_bfloat16_stays_close_to_float32(tiny_model, make_batch):
    batch = make_batch()
    exact, rounded = tiny_model(), tiny_model(dtype="bfloat16")
    params = init(exact)
    a, b = (apply(m, params, batch)[0] for m in (exact, rounded))
    assert a.dtype == b.dtype == jnp.float32
    assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(init(rounded)))
    np.testing.assert_allclose(a, b, rtol=0.02)


def test_shared_encoder_has_one_stack_and_two_roles(tiny_model, make_batch):
    module = tiny_model(shared_encoder=True)
    params = init(module)
    assert "language_encoder" not in params
    mu, _ = apply(module, params, make_batch(), method="language_posterior")
    sem, _ = apply(module, params, make_batch(), method="semantic_posterior")
    assert np.abs(mu - sem).max() > 1e-3


def test_describe_builds_the_same_module(tiny_model):
    module = tiny_model(encoder_of_language=(0, 1, 0), decoder_cond="memory2", mlp_activations=("relu",))
    assert models.build(**models.describe(module)) == module


def test_wrong_options_say_what_is_allowed(tiny_model):
    with pytest.raises(ValueError, match="enc_lang is 'sum'; use one of 'add'"):
        tiny_model(enc_lang="sum")
    with pytest.raises(ValueError, match="routes 2 languages, the table has 3"):
        tiny_model(encoder_of_language=(0, 1))
    with pytest.raises(ValueError, match="known kinds are contrastive"):
        models.build("vmst", {})


@pytest.mark.parametrize("objective", [vmsst, bitranslation])
def test_stacks_share_one_lookup_of_tokens(tiny_model, make_batch, objective):
    batch = make_batch(groups=2)

    def gradient(**options):
        module = tiny_model(objective.__name__, vocab_size=77, **options)

        def loss(bound):
            return objective(bound, batch, 0, jax.random.key(0), False)[0]

        return init(module), jax.jit(jax.grad(lambda params: nn.apply(loss, module)({"params": params})))

    params, shared = gradient()
    _, apart = gradient(encoder_chunk=1000)
    # The gradient of a look-up is scattered into an array of the table's shape.
    counts = [str(jax.make_jaxpr(f)(params)).count("f32[77,16] = scatter-add") for f in (shared, apart)]
    assert counts[0] == 1 < counts[1]
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6), shared(params), apart(params))
