"""The translation model: its decoder against one written with numpy, what may and may not matter, and its cache."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import erf, log_softmax, softmax

from vmsst_jax import models
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.generation import Decoding
from vmsst_jax.models.seq2seq import Seq2SeqConfig

EOS, PAD, VOCAB = 1, 2, 23
BERT = BertConfig(
    family="xlm", vocab_size=VOCAB, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=2, max_positions=24, pad_id=PAD,
    position_offset=0, token_types=0, num_languages=3, mask_after_layer=True, mlm_head="bias", layer_norm_eps=1e-12,
)  # fmt: skip
XLMR = dataclasses.replace(BERT, position_offset=2, pad_id=1, token_types=1, mask_after_layer=False, mlm_head="dense")


def rows(lengths, width, seed, eos=EOS, pad=PAD):
    rng = np.random.default_rng(seed)
    out = np.full((len(lengths), width), pad, np.int32)
    for row, n in zip(out, lengths, strict=True):
        row[:n] = [eos, *rng.integers(5, VOCAB, n - 2), eos]
    return out


def make(bert=BERT, eos=EOS, scale=6.0):
    """A module with weights large enough that everything matters."""
    module = models.build("seq2seq", Seq2SeqConfig(bert, eos))
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))
    rng = np.random.default_rng(0)

    def draw(path, x):
        noise = 0.2 * rng.normal(size=x.shape)
        return jnp.asarray(x + noise if x.ndim == 1 else scale * x, jnp.float32)

    return module, jax.tree_util.tree_map_with_path(draw, params)


@pytest.fixture(scope="module")
def model():
    return make()


SOURCE, TARGET = rows([7, 2, 5], 7, 1), rows([6, 4, 2], 6, 2)
LANGS = np.array([0, 1, 2], np.int32), np.array([2, 0, 1], np.int32)


class Numpy:
    """XLM's decoder (METHODS 1.3 and 4.3) for one sentence, in float64."""

    def __init__(self, params):
        self.p = jax.tree.map(lambda x: np.asarray(x, np.float64), params["decoder"])

    @staticmethod
    def norm(p, x):
        x = x - x.mean(axis=-1, keepdims=True)
        return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-12) * p["scale"] + p["bias"]

    @staticmethod
    def linear(p, x):
        return x @ p["kernel"] + p["bias"]

    def attention(self, p, x, memory, causal):
        q, k, v = (self.linear(p[n], y) for n, y in (("query", x), ("key", memory), ("value", memory)))
        out = []
        for head in (slice(0, 8), slice(8, 16)):
            scores = q[:, head] @ k[:, head].T / np.sqrt(8)
            if causal:
                scores = np.where(np.tril(np.ones(scores.shape)), scores, -np.inf)
            out.append(softmax(scores, axis=1) @ v[:, head])
        return self.linear(p["out"], np.concatenate(out, axis=1))

    def logits(self, tokens, lang, memory):
        p = self.p
        x = p["token_embedder"]["embedding"][tokens] + p["position_embedder"]["embedding"][: len(tokens)]
        x = self.norm(p["embedding_norm"], x + p["language_embedder"]["embedding"][lang])
        for i in range(2):
            layer = p[f"layers_{i}"]
            x = self.norm(layer["attention_norm"], x + self.attention(layer["attention"], x, x, True))
            x = self.norm(layer["cross_attention_norm"], x + self.attention(layer["cross_attention"], x, memory, False))
            h = self.linear(layer["mlp"]["wi"], x)
            h = h * (1 + erf(h / np.sqrt(2))) / 2
            x = self.norm(layer["mlp_norm"], x + self.linear(layer["mlp"]["wo"], h))
        return x @ p["token_embedder"]["embedding"].T + p["mlm_head"]["bias"]


def nll(module, params, source=SOURCE, target=TARGET, langs=LANGS):
    run = jax.jit(lambda p, *a: module.apply({"params": p}, *a, method="translation_nll", chunk_bytes=4 * 18 * 10))
    return run(params, source, langs[0], target, langs[1], np.array([0.5, 1.0, 2.0], np.float32))


def test_the_decoder_is_xlms(model):
    module, params = model
    memory = module.apply({"params": params}, SOURCE, LANGS[0], method="encode")
    total, found = nll(module, params)
    theirs = Numpy(params)
    wanted = []
    for s, t, lang, m in zip(SOURCE, TARGET, LANGS[1], np.asarray(memory, np.float64), strict=True):
        t = t[t != PAD]
        log_p = log_softmax(theirs.logits(t[:-1], lang, m[s != PAD]), axis=1)
        wanted.append(-log_p[np.arange(len(t) - 1), t[1:]].sum())
    np.testing.assert_allclose(found, wanted, rtol=2e-5)
    assert float(total) == pytest.approx(np.dot([0.5, 1.0, 2.0], wanted), rel=2e-5)


def test_what_matters_and_what_does_not(model):
    module, params = model
    _, base = nll(module, params)
    wider = [np.pad(x, ((0, 0), (0, 3)), constant_values=PAD) for x in (SOURCE, TARGET)]
    np.testing.assert_allclose(nll(module, params, *wider)[1], base, rtol=1e-5)
    other = SOURCE.copy()
    other[0, 3] = 6 if SOURCE[0, 3] != 6 else 7
    changed = np.asarray(nll(module, params, other)[1])
    assert changed[0] != pytest.approx(float(base[0]), rel=1e-4)
    np.testing.assert_allclose(changed[1:], base[1:], rtol=1e-6)
    for side in (0, 1):
        langs = [x.copy() for x in LANGS]
        langs[side][1] = 2
        changed = np.asarray(nll(module, params, langs=langs)[1])
        assert changed[1] != pytest.approx(float(base[1]), rel=1e-4) and changed[2] == pytest.approx(float(base[2]))


@pytest.mark.parametrize(("bert", "eos"), [(BERT, 1), (XLMR, 2)], ids=["xlm", "xlm-r"])
def test_the_cache_gives_what_whole_rows_give(bert, eos):
    module, params = make(bert, eos)
    source = rows([7, 2, 5], 7, 1, eos, bert.pad_id)
    target = rows([6, 6, 6], 6, 2, eos, bert.pad_id)

    def whole(m):
        memory = m.encode(source, LANGS[0])
        return m.decoder.logits(m.decoder(target, LANGS[1], memory, source != bert.pad_id, True))

    def cached(m):
        """Two hypotheses a row, the second one the target backwards."""
        both = jnp.stack([target, target[:, ::-1]], axis=1)
        cache, memory = m.decoder.start(m.encode(source, LANGS[0]), 2, 9)
        out = []
        for place in range(6):
            logits, cache = m.decoder.step(both[..., place], LANGS[1], place, cache, memory, source != bert.pad_id)
            out.append(logits[:, 0])
        return jnp.stack(out, axis=1)

    found = [jax.jit(lambda p, f=f: module.apply({"params": p}, method=f))(params) for f in (whole, cached)]
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5, atol=1e-4)


def uncached_greedy(module, params, source, langs, limit):
    """One sentence, everything anew for every token."""
    run = jax.jit(
        lambda p, s, t: module.apply(
            {"params": p},
            method=lambda m: m.decoder.logits(m.decoder(t, langs[1], m.encode(s, langs[0]), s != PAD, True)),
        )
    )
    tokens = [EOS]
    while len(tokens) < limit - 1:
        padded = np.array([tokens + [PAD] * (limit - len(tokens))], np.int32)
        logits = np.array(run(params, source, padded)[0, len(tokens) - 1])
        logits[[0, PAD]] = -np.inf
        tokens.append(int(logits.argmax()))
        if tokens[-1] == EOS:
            return tokens
    return [*tokens, EOS]


def test_translations_are_those_of_a_loop_without_cache(model):
    module, params = model
    run = jax.jit(lambda p, s, a, b: module.apply({"params": p}, s, a, b, method="translate"))
    found, _ = run(params, SOURCE, *LANGS)
    assert found.shape == (3, 13 * 7 // 10 + 5)
    for i, n in enumerate((7, 2, 5)):
        langs = [x[i : i + 1] for x in LANGS]
        wanted = uncached_greedy(module, params, SOURCE[i : i + 1, :n], langs, 13 * n // 10 + 5)
        row = found[i].tolist()
        assert row == wanted + [PAD] * (len(row) - len(wanted))
    # Alone, in wider rows, beside rows of padding: the same.
    wide = np.full((4, 10), PAD, np.int32)
    wide[1, :5] = SOURCE[2, :5]
    lang = np.array([0, LANGS[0][2], 0, 0]), np.array([0, LANGS[1][2], 0, 0])
    alone = run(params, wide, *lang)[0].tolist()
    assert alone[1][:11] == found[2, :11].tolist() and alone[0] == [EOS] + [PAD] * 17


def test_no_gradient_through_translations(model):
    module, params = model

    def loss(p):
        def both(m):
            made, _ = m.translate(SOURCE, *LANGS)
            weights = jnp.ones(3)
            return m.translation_nll(made, LANGS[1], SOURCE, LANGS[0], weights)[0], made

        return module.apply({"params": p}, method=both)

    (value, made), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)
    given = jax.jit(
        jax.value_and_grad(
            lambda p: module.apply(
                {"params": p}, made, LANGS[1], SOURCE, LANGS[0], jnp.ones(3), method="translation_nll"
            )[0]
        )
    )(params)
    assert float(value) == pytest.approx(float(given[0]), rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), grads, given[1])


def test_samples_follow_the_distribution(model):
    module, params = model
    source, lang = np.repeat(SOURCE[1:2], 800, axis=0), np.zeros(800, np.int32)
    run = jax.jit(
        lambda p, t, key: module.apply(
            {"params": p},
            source,
            lang,
            lang + 1,
            Decoding(sample=True, temperature=t),
            jax.random.split(key, 800),
            method="translate",
        )[0],
        static_argnums=1,
    )
    langs = lang[:1], lang[:1] + 1
    logits = module.apply(
        {"params": params},
        method=lambda m: m.decoder.logits(
            m.decoder(np.array([[EOS]]), langs[1], m.encode(source[:1], langs[0]), source[:1] != PAD, True)
        ),
    )[0, 0]
    logits = np.array(logits, np.float64)
    logits[[0, PAD]] = -np.inf
    drawn = np.asarray(run(params, 2.0, jax.random.key(0)))
    assert (drawn != np.asarray(run(params, 2.0, jax.random.key(1)))).any()
    shares = np.bincount(drawn[:, 1], minlength=VOCAB) / 800
    np.testing.assert_allclose(shares, softmax(logits / 2.0), atol=0.07)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_languages": 0}, "needs num_languages .* found num_languages 0"),
        ({"mlm_head": "none"}, "mlm_head 'none'"),
        ({"scan_layers": True}, "scan_layers True"),
        ({"pad_id": 1}, "eos_id is 1; 0 and the padding 1"),
    ],
)
def test_geometries_that_do_not_translate(change, message):
    with pytest.raises(ValueError, match=message):
        Seq2SeqConfig(dataclasses.replace(BERT, **change))


def test_its_description_makes_the_same_module(model):
    described = models.describe(model[0])
    assert models.build(**described).config == model[0].config
