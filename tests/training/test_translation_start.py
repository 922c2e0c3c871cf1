"""A translation model's start: encoder and decoder are the language model, only the attention between them is not."""

import types

import jax
import numpy as np
import pytest

from vmsst_jax import models
from vmsst_jax.data.languages import Languages
from vmsst_jax.interop import trees
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.seq2seq import Seq2SeqConfig
from vmsst_jax.models.text_encoder import TextEncoderConfig
from vmsst_jax.training import checkpoint, warm_start

SIZES = dict(vocab_size=30, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=2, max_positions=20, pad_id=2)
XLM = dict(
    family="xlm", position_offset=0, token_types=0, mask_after_layer=True, mlm_head="bias", num_languages=2, **SIZES
)


def params_of(module, seed):
    return jax.jit(lambda key: models.init_params(module, key))(jax.random.key(seed))


@pytest.fixture(scope="module", params=[False, True], ids=["layers", "stacked"])
def language_model(request):
    module = models.build("encoder", TextEncoderConfig(BertConfig(scan_layers=request.param, **XLM)))
    return module, params_of(module, 0)


@pytest.fixture
def start(language_model, monkeypatch):
    """Function (codes of the run, codes of the language model) -> (fresh parameters, those to start from)."""
    module, params = language_model
    tokenizer = types.SimpleNamespace(sha256="0" * 64)

    def make(codes, known=("en", "de"), given=params):
        host = {"model": models.describe(module)}
        source = types.SimpleNamespace(
            tokenizer=tokenizer, params=given, languages=Languages(known), host=host, directory="a run"
        )
        monkeypatch.setattr(checkpoint, "load_model", lambda path: source)
        fresh = params_of(models.build("seq2seq", Seq2SeqConfig(BertConfig(**XLM))), 1)
        return fresh, warm_start.from_checkpoint("a run", tokenizer, Languages(codes))(fresh)

    return make


def test_only_the_attention_between_them_is_fresh(start, language_model):
    fresh, params = (trees.flatten(p) for p in start(["en", "de"]))
    untouched = {name for name in fresh if np.array_equal(fresh[name], params[name]) and np.ptp(fresh[name])}
    assert {name.split("/")[2] for name in untouched} == {"cross_attention"}
    assert len(untouched) == 2 * 4  # kernels; biases and norms begin as constants in both
    theirs = trees.flatten(language_model[1])
    for side in ("encoder", "decoder"):
        np.testing.assert_array_equal(
            params[f"{side}/token_embedder/embedding"], theirs["backbone/token_embedder/embedding"]
        )


def test_the_encoder_is_the_language_model(start, language_model):
    module, given = language_model
    _, params = start(["en", "de"])
    tokens = np.random.default_rng(0).integers(5, 30, (3, 9)).astype(np.int32)
    tokens[1, 6:] = 2
    lang = np.array([0, 1, 1], np.int32)
    seq2seq = models.build("seq2seq", Seq2SeqConfig(BertConfig(**XLM)))
    languages = np.repeat(lang[:, None], 9, 1)
    wanted = jax.jit(lambda p: module.apply({"params": p}, method=lambda m: m.backbone(tokens, languages=languages)))(
        given
    )
    found = jax.jit(lambda p: seq2seq.apply({"params": p}, tokens, lang, method="encode"))(params)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_languages_go_by_their_codes(start, language_model):
    _, params = start(["de", "en"])
    table = language_model[1]["backbone"]["language_embedder"]["embedding"]
    for side in ("encoder", "decoder"):
        np.testing.assert_array_equal(params[side]["language_embedder"]["embedding"], table[::-1])


def test_what_does_not_fit_is_named(start, language_model):
    with pytest.raises(ValueError, match="a run knows the languages en, fr, this run also has de"):
        start(["en", "de"], known=("en", "fr"))
    headless = {"backbone": {k: v for k, v in language_model[1]["backbone"].items() if k != "mlm_head"}}
    with pytest.raises(ValueError, match="decoder/mlm_head/bias: .* in this model, absent in the checkpoint"):
        start(["en", "de"], given=headless)
