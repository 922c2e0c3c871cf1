"""A translation model of a few thousand random parameters, with a vocabulary trained on a few words."""

import pytest

WORDS = "red green blue old new big small river hill town king queen ship road bell tree stone bird".split()
LINES = [f"the {a} and the {b}" for a in WORDS for b in WORDS[:6]]


@pytest.fixture(scope="session")
def tiny():
    """(module, parameters, tokenizer, languages en, de and fr)."""
    import jax

    from vmsst_jax import models
    from vmsst_jax.data.languages import Languages
    from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer
    from vmsst_jax.models.bert import BertConfig
    from vmsst_jax.models.seq2seq import Seq2SeqConfig

    tokenizer = XlmrTokenizer.train(LINES, 44, character_coverage=1.0)
    sizes = dict(vocab_size=44, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=1, max_positions=40, pad_id=1)
    options = dict(position_offset=0, token_types=0, num_languages=3, mask_after_layer=True, mlm_head="bias")
    module = models.build("seq2seq", Seq2SeqConfig(BertConfig(family="xlm", **sizes, **options), eos_id=2))
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))
    weights = {True: 60.0, False: 10.0}  # what is written shall depend on the source
    params = jax.tree_util.tree_map_with_path(
        lambda path, x: weights["cross_attention" in str(path)] * x if x.ndim > 1 else x, params
    )
    bias = params["decoder"]["mlm_head"]["bias"]
    params["decoder"]["mlm_head"]["bias"] = bias.at[2].set(-6.0)  # so that it writes several words
    return module, params, tokenizer, Languages(["en", "de", "fr"])


@pytest.fixture
def make(tiny):
    """Function (**options) -> a ``Translator`` of that model."""
    from vmsst_jax.translation.translator import Translator

    return lambda **options: Translator(*tiny, **{"max_length": 14, **options})
