"""BiTranslation and VMSST against their definitions: one pair at a time, one sentence at a time, all logits at once."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from vmsst_jax.models import t5
from vmsst_jax.models.output_layer import OutputOptions
from vmsst_jax.objectives.bitranslation import bitranslation
from vmsst_jax.objectives.vmsst import vmsst, vmsst_contrastive
from vmsst_jax.training.step import loss_function

PAIRS, K, STEP = 4, 8, 100_000
SIZES = dict(encoder_layers=1, decoder_layers=1, latent_dim=K)
# These programs run once or twice: compiling them without optimisation takes half the time.
jit = functools.partial(jax.jit, compiler_options={"xla_backend_optimization_level": 0})


def encode(params, config, encoder, tokens, tag=0.0):
    """Mean over one sentence's real tokens of the last hidden state; ``tag`` is added to its embeddings. [L] -> [D]"""
    x = params["token_embedder"]["embedding"][tokens] + tag
    stack = t5.Encoder(config, config.encoder_layers)
    h = stack.apply({"params": params[encoder]}, x[None], (tokens > 0)[None])[0]
    return jnp.sum(h * (tokens > 0)[:, None], axis=0) / jnp.sum(tokens > 0)


def nll(decoder, params, config, tokens, lang, c):
    """-log p(sentence | c), with logits [h ; c] W."""
    embedding, tags = params["token_embedder"]["embedding"], params["decoder_tags"]["embedding"]
    inputs = jnp.concatenate([tags[lang][None], embedding[tokens[:-1]]])
    stack = {k: v for k, v in decoder.items() if not k.startswith("logits")}
    h = t5.Decoder(config, config.decoder_layers).apply({"params": stack}, inputs[None], condition=c[None])[0]
    w = jnp.concatenate([decoder["logits_dense"]["kernel"], decoder["logits_latent"]["kernel"]])
    log_p = jax.nn.log_softmax(jnp.concatenate([h, jnp.broadcast_to(c, (len(tokens), len(c)))], axis=1) @ w)
    return -jnp.sum(jnp.where(tokens > 0, log_p[jnp.arange(len(tokens)), tokens], 0.0))


def kl(mu, logvar):
    return jnp.sum(mu**2 + jnp.exp(logvar) - 1 - logvar) / 2


def translation_of_pair(params, config, tokens, lang, mu):
    """Half the sum of each sentence's NLL given the other's mu_sem."""
    decoder = params.get("translation_decoder", params["decoder"])
    rest = decoder["logits_latent"]["kernel"].shape[0] - K  # where VMSST's decoder is shared, z_lang = 0
    c = [jnp.concatenate([mu[other], jnp.zeros(rest)]) for other in (1, 0)]
    return sum(nll(decoder, params, config, tokens[i], lang[i], c[i]) for i in range(2)) / 2


def bound_of_pair(params, config, tokens, lang, sem, source, noise, kl_weight):
    """J of METHODS 2.1 with terms; ``sem`` [(mu, logvar)] * 2, ``noise`` [3, K] for z_sem, z_a, z_b."""
    mu, logvar = (jnp.where(source, x, y) for x, y in zip(*sem, strict=True))
    z_sem = mu + jnp.exp(logvar / 2) * noise[0]
    reconstruction, kl_language = 0.0, 0.0
    for i in range(2):
        h = encode(params, config, "language_encoder", tokens[i], params["language_tags"]["embedding"][lang[i]])
        mu_l, logvar_l = h @ params["language_mean"]["kernel"], h @ params["language_logvar"]["kernel"]
        c = jnp.concatenate([z_sem, mu_l + jnp.exp(logvar_l / 2) * noise[1 + i]])
        reconstruction += nll(params["decoder"], params, config, tokens[i], lang[i], c)
        kl_language += kl(mu_l, logvar_l)
    terms = {"reconstruction": reconstruction, "kl_semantic": kl(mu, logvar), "kl_language": kl_language}
    return reconstruction + kl_weight * (terms["kl_semantic"] + kl_language), terms


def pair_loss(params, config, tokens, lang, source, noise, numbers):
    """What one pair adds to the loss, from the weights of its terms in ``numbers``."""
    pooled = [encode(params, config, "semantic_encoder", tokens[i]) for i in range(2)]
    mu = [h @ params["semantic_mean"]["kernel"] for h in pooled]
    terms = {"translation": translation_of_pair(params, config, tokens, lang, mu)}
    loss = numbers["translation"] * terms["translation"]
    if "language_encoder" in params:
        sem = [(m, h @ params["semantic_logvar"]["kernel"]) for m, h in zip(mu, pooled, strict=True)]
        bound, more = bound_of_pair(params, config, tokens, lang, sem, source, noise, numbers["kl_weight"])
        loss, terms = loss + numbers["lam"] * bound, terms | more
    return loss, terms


def contrastive_loss(params, config, tokens, same):
    """L_C with dot products; ``same`` [PAIRS, PAIRS] marks negatives to leave out."""
    mus = jax.vmap(lambda x: encode(params, config, "semantic_encoder", x) @ params["semantic_mean"]["kernel"])(tokens)
    logits = jnp.where(same, -jnp.inf, mus[:PAIRS] @ mus[PAIRS:].T)
    return -(jnp.diag(jax.nn.log_softmax(logits, 1)) + jnp.diag(jax.nn.log_softmax(logits, 0))).sum() / (2 * PAIRS)


@pytest.fixture(scope="module")
def batches(make_batch):
    """The same pairs in one group of rows, and in two groups of different width."""
    made = {groups: make_batch(pairs=PAIRS, groups=groups) for groups in (1, 2)}
    for batch in made.values():
        batch["text_id"][[0, 2]] = 99  # pairs 0 and 2 share their source
    return made


@pytest.fixture(scope="module")
def run(tiny_model, batches):
    """Function (kind, objective, ...) -> (T5 geometry, params, loss, metrics, gradients), each compiled once."""
    modules, compiled = {}, {}

    def call(kind, objective, step=STEP, train=True, groups=1, bt_decoder="shared_zero_lang", **options):
        name = (kind, bt_decoder)
        if name not in modules:
            output = OutputOptions(chunk_bytes=1)
            module = tiny_model(kind, **SIZES, bt_decoder=bt_decoder, output=output)
            modules[name] = module, jit(lambda: module.init(jax.random.key(3), batches[1])["params"])()
        module, params = modules[name]
        key = (name, objective, train, groups, tuple(options.items()))
        if key not in compiled:
            loss_fn = loss_function(module, functools.partial(objective, **options), train)
            compiled[key] = jit(jax.value_and_grad(loss_fn, has_aux=True))
        (loss, (metrics, _)), grads = compiled[key](params, {}, batches[groups], step, jax.random.key(0))
        return module.config.t5, params, loss, metrics, grads

    return call


@pytest.fixture(scope="module")
def reference(batches):
    """Function (config, params, numbers, source, noise) -> (loss, mean terms, gradients), a Python loop over pairs."""
    batch = batches[1]
    rows = [row for group in batch["tokens"] for row in group]
    length = max(map(len, rows))
    tokens = np.array([np.pad(rows[slot], (0, length - len(rows[slot]))) for slot in batch["slot"]])
    step = jit(jax.value_and_grad(pair_loss, has_aux=True), static_argnums=1)

    def call(config, params, numbers, source=np.zeros(PAIRS, bool), noise=np.zeros((PAIRS, 3, K))):
        pairs = [np.array([i, PAIRS + i]) for i in range(PAIRS)]
        results = [
            step(params, config, tokens[p], batch["lang"][p], source[i], noise[i], numbers) for i, p in enumerate(pairs)
        ]
        ((loss, terms), grads) = jax.tree.map(lambda *x: np.mean(np.array(x), axis=0), *results)
        return loss, terms, grads

    call.tokens = tokens
    return call


def draws():
    """The objective's own draws, in its order: sides, noise of z_sem, noise of z_lang."""
    source_key, sem_key, lang_key = jax.random.split(jax.random.split(jax.random.key(0))[0], 3)
    source = np.array(jax.random.bernoulli(source_key, 0.5, (PAIRS,)))
    assert 0 < source.sum() < PAIRS
    lang = np.array(jax.random.normal(lang_key, (2 * PAIRS, K)))
    noise = np.stack([np.array(jax.random.normal(sem_key, (PAIRS, K))), lang[:PAIRS], lang[PAIRS:]], axis=1)
    return source, noise


def assert_equal(ours, wanted):
    loss, metrics, grads = ours
    wanted_loss, terms, wanted_grads = wanted
    np.testing.assert_allclose(loss, wanted_loss, rtol=1e-5)
    assert terms.keys() - metrics.keys() <= {"translation"}
    for name in metrics.keys() & terms.keys():
        np.testing.assert_allclose(metrics[name], terms[name], rtol=1e-5, err_msg=name)

    def close(path, a, b):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5 * np.abs(b).max(), err_msg=jax.tree_util.keystr(path))

    jax.tree_util.tree_map_with_path(close, grads, wanted_grads)


def test_bitranslation(run, reference):
    config, params, *ours = run("bitranslation", bitranslation)
    assert_equal(ours, reference(config, params, {"translation": 1.0}))


# Options of the objective -> weights of the terms, and whether noise enters.
CASES = {
    "defaults": ({}, {}, True),
    "means, summed over the batch": ({"latent": "mean", "elbo_reduction": "batch_sum"}, {"lam": 0.1 * PAIRS}, False),
    "bound alone": ({"translation": False, "lam": 0.3}, {"translation": 0.0, "lam": 0.3}, True),
    "no KL": ({"kl": False}, {"kl_weight": 0.0}, False),
}


@pytest.mark.parametrize("case", CASES)
def test_vmsst(run, reference, case):
    options, changes, sampled = CASES[case]
    source, noise = draws()
    config, params, *ours = run("vmsst", vmsst, **options)
    numbers = {"translation": 1.0, "lam": 0.1, "kl_weight": 0.1} | changes
    assert ("translation" in ours[1]) == bool(numbers["translation"])
    assert_equal(ours, reference(config, params, numbers, source, noise * sampled))


def test_kl_warms_up(run):
    """w(100,000) = 0.1 in a million steps, and the loss grows by exactly what the weight adds."""
    start = run("vmsst", vmsst, step=0)[2]
    for step, weight in ((STEP, 0.1), (10**6, 1.0), (2 * 10**6, 1.0)):
        loss, metrics = run("vmsst", vmsst, step=step)[2:4]
        np.testing.assert_allclose(metrics["kl_weight"], weight, rtol=1e-6)
        divergence = metrics["kl_semantic"] + metrics["kl_language"]
        np.testing.assert_allclose(loss - start, 0.1 * weight * divergence, rtol=1e-4, atol=1e-5)


def test_evaluation_takes_the_means(run, reference):
    source, noise = draws()
    config, params, *ours = run("vmsst", vmsst, train=False, groups=2)
    assert_equal(ours, reference(config, params, {"translation": 1.0, "lam": 0.1, "kl_weight": 0.1}, source, noise * 0))


def test_sides_by_turns_and_a_decoder_for_translation(run, reference):
    for step, from_source in ((STEP, True), (STEP + 1, False)):
        config, params, *ours = run("vmsst", vmsst, step, bt_decoder="separate", sem_source="alternate_batch")
        assert "translation_decoder" in params
        numbers = {"translation": 1.0, "lam": 0.1, "kl_weight": step / 1e6}
        assert_equal(ours, reference(config, params, numbers, np.full(PAIRS, from_source), draws()[1]))


def test_vmsst_contrastive(run, reference):
    source, noise = draws()
    config, params, *ours = run("vmsst", vmsst_contrastive, negative_mask="same_text")
    assert "translation" not in ours[1]
    numbers = {"translation": 0.0, "lam": 0.0005, "kl_weight": 0.1}
    loss, terms, grads = reference(config, params, numbers, source, noise)
    same = np.zeros((PAIRS, PAIRS), bool)
    same[0, 2] = same[2, 0] = True
    by_hand = jit(jax.value_and_grad(contrastive_loss), static_argnums=1)
    loss_c, grads_c = by_hand(params, config, reference.tokens, same)
    assert_equal(ours, (loss + loss_c, terms | {"contrastive": loss_c}, jax.tree.map(np.add, grads, grads_c)))
