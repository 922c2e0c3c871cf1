"""Every recipe that ships: it parses, its model has the size that its equations give, its numbers are the paper's."""

import dataclasses
import functools
import math
import pathlib
import re
import types

import gin
import jax
import pytest

from vmsst_jax import config, models, objectives
from vmsst_jax.training import schedules

FOLDER = pathlib.Path(__file__).parents[1] / "gin"
OTHERS = ("include", "evaluate", "experiments")  # parts of recipes, and recipes that train nothing
RECIPES = sorted(
    f.relative_to(FOLDER).as_posix()
    for f in FOLDER.rglob("*.gin")
    if f.parent.name not in OTHERS
    and not f.name.startswith(("ccp", "dpr", "mlm", "tlm", "umse", "umt"))  # have tests of their own
)
PAPER = [name for name in RECIPES if not name.startswith(("quickstart", "small"))]

# Objective, layers, starts from mT5, dropout, lambda: section 2.7 of the method's description, row by row.
TRAINING = {
    "contrastive_24l.gin": ("contrastive", 24, True, 0.1, None),
    "contrastive_24l_random.gin": ("contrastive", 24, False, 0.1, None),
    "contrastive_6l.gin": ("contrastive", 6, False, 0.1, None),
    "bitranslation_24l.gin": ("bitranslation", 24, True, 0.0, None),
    "bitranslation_24l_random.gin": ("bitranslation", 24, False, 0.0, None),
    "bitranslation_6l.gin": ("bitranslation", 6, False, 0.0, None),
    "vmsst_24l.gin": ("vmsst", 24, True, 0.0, 0.025),
    "vmsst_24l_random.gin": ("vmsst", 24, False, 0.0, 0.1),
    "vmsst_6l.gin": ("vmsst", 6, False, 0.0, 0.1),
    "vmsst_contrastive_24l.gin": ("vmsst_contrastive", 24, True, 0.0, 0.0005),
    "vmsst_contrastive_24l_random.gin": ("vmsst_contrastive", 24, False, 0.1, 0.001),
    "vmsst_contrastive_6l.gin": ("vmsst_contrastive", 6, False, 0.0, 0.0005),
}
BATCHES = {
    f"ablations/{kind}_{layers}l_batch_{batch}.gin": (f"{kind}_{base}.gin", batch)
    for kind in ("contrastive", "vmsst")
    for layers, base in ((6, "6l"), (24, "24l_random"))
    for batch in (4096, 8192)
}

# Of mT5-Large. V pieces, d width, f MLP width, N languages; 16 heads of 64 are d wide together, 32 position buckets.
V, D, F, N = 250_112, 1024, 2816, 92
ATTENTION, MLP, POSITIONS = 4 * D * D, 3 * D * F, 16 * 32


def encoder(layers):
    return layers * (ATTENTION + MLP + 2 * D) + POSITIONS + D


def decoder(layers, condition):
    """`condition`: width of what the linear map in place of cross-attention takes beside the hidden state."""
    return layers * (ATTENTION + MLP + 3 * D + (D + condition) * D) + POSITIONS + D


def size(objective, layers, languages=N):
    """Parameters of a model, added up from the method's equations."""
    contrastive = V * D + encoder(layers) + D * D
    if objective == "contrastive":
        return contrastive
    if objective == "bitranslation":
        return contrastive + decoder(layers, D) + 2 * D * V + languages * D
    heads = 3 * D * D  # beside the semantic mean: semantic variance, language mean and variance
    tags = 2 * languages * D
    return contrastive + encoder(layers) + decoder(layers, 2 * D) + 3 * D * V + heads + tags


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Function (name) -> what the recipe means, evaluated; nothing is read but tables of languages."""
    data = tmp_path_factory.mktemp("data")
    for file in ("bible_gospels_acts/de.tsv", "quran/quran.ar.tsv", "python_docs/en-ja.tsv", "multi30k/train.cs"):
        (data / file).parent.mkdir()
        (data / file).write_text("not read\n")
    small = dict.fromkeys(("small.gin", "small_contrastive.gin"), [f'DATA_DIR = "{data}"'])
    bindings = {**small, **dict.fromkeys(PAPER, ['VOCABULARY_FILE = "not/read"'])}

    @functools.cache
    def evaluated(name):
        arguments = config.configure([name], bindings.get(name, [])).keywords
        (stream,) = arguments["streams"]
        # Functions that gin hands out look their bindings up when they are called, so all of them are called now.
        module = arguments["model"](len(arguments["languages"]))
        rate = gin.get_configurable(schedules.warmup_rsqrt)()
        return types.SimpleNamespace(
            **arguments,
            stream=stream,
            module=module,
            objective=objectives.name(stream.objective),
            options=objectives.options(stream.objective),
            pairs=stream.data.batch_size * stream.accumulate,
            rates=[float(rate(step)) for step in (4000, 16_000, 100_000)],
            adafactor=set(gin.get_bindings("adafactor")),
            params=models.abstract_params(module),
        )

    yield evaluated
    gin.clear_config()


def count(params):
    return sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(params))


def names(params):
    paths = (path for path, _ in jax.tree_util.tree_leaves_with_path(params))
    return {jax.tree_util.keystr(path, simple=True, separator="/") for path in paths}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_whole_and_says_how_to_run_it(recipe, name):
    r = recipe(name)
    assert count(r.params) > 1e6
    assert r.model_dir == "runs/" + name.removesuffix(".gin")
    header = "\n".join(re.findall(r"^#.*", (FOLDER / name).read_text(), re.MULTILINE))
    assert f"--gin_file={name}" in header
    for word in ("Devices:", "Time:", "Expect:"):
        assert word in header
    for macro in ("VOCABULARY_FILE", "DATA_DIR", "INIT_CHECKPOINT"):
        assert (f"--gin.{macro}=" in header) == (f"%{macro}" in r.config_text)


@pytest.mark.parametrize("name", TRAINING)
def test_training_configurations(recipe, name):
    objective, layers, pretrained, dropout, lam = TRAINING[name]
    r, t5 = recipe(name), recipe(name).module.config.t5
    assert (r.objective, t5.encoder_layers, t5.decoder_layers, t5.dropout) == (objective, layers, layers, dropout)
    assert r.options.get("lam") == lam
    assert hasattr(r, "init_required") == pretrained
    assert count(r.params) == size(objective, layers)
    if lam is not None:
        assert (r.options["kl"], r.options["kl_warmup_steps"]) == (True, 1_000_000)
        assert (r.options["latent"], r.options["sem_source"]) == ("sample", "per_example")
    if "contrastive" in objective:
        assert [r.options[option] for option in ("sim", "scale", "negative_mask")] == ["dot", 1.0, "none"]
        assert r.stream.accumulate == 1


@pytest.mark.parametrize("name", PAPER)
def test_what_all_of_the_papers_runs_share(recipe, name):
    r, t5 = recipe(name), recipe(name).module.config.t5
    assert r.pairs == BATCHES.get(name, (None, 2048))[1]
    assert (r.stream.data.max_length, r.stream.data.cache) == (32, "none")
    assert r.rates == pytest.approx([1e-3, 5e-4, 2e-4], rel=1e-5)
    assert r.adafactor == {"schedule"}  # all else as T5X has it
    assert (r.rhythm.steps, r.rhythm.save_every, r.saving.keep_every) == (100_000, 1000, 10_000)
    assert (t5.vocab_size, t5.embed_dim, t5.num_heads, t5.head_dim, t5.mlp_dim) == (V, D, 16, 64, F)
    assert (t5.scan_layers, t5.remat, t5.dtype, t5.mlp_activations) == (True, "full", "bfloat16", ("gelu", "linear"))
    assert r.module.config.output.z_loss == 1e-4
    assert len(r.languages) == len(set(r.languages)) == (4 if r.stream.data.task == "opus_4" else 92)
    assert isinstance(r.tokenizer, type(lambda: 0))


def test_the_size_of_vmsst_and_what_factoring_saves(recipe):
    whole, factored = recipe("vmsst_24l_random.gin"), recipe("ablations/fact.gin")
    assert count(whole.params) == 2_029_359_616
    assert count(whole.params) - count(factored.params) == 509_083_648 == 2 * D * V - 3 * D * D


LAYER = decoder(1, 2 * D) - decoder(0, 2 * D)
# Recipe -> (the one field that differs from the random 24-layer VMSST, its value, parameters more).
ABLATIONS = {
    "fact": ("factored_output", True, -509_083_648),
    "1enc": ("shared_encoder", True, -encoder(24)),
    "no_enc_le": ("enc_lang", "none", -N * D),
    "no_dec_le": ("dec_lang", "none", -N * D),
    "1l_dec": ("decoder_layers", 1, -23 * LAYER),
    "12l_dec": ("decoder_layers", 12, -12 * LAYER),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_changes_one_thing(recipe, name):
    field, value, more = ABLATIONS[name]
    base, r = recipe("vmsst_24l_random.gin"), recipe(f"ablations/{name}.gin")
    expected = base.module.config
    if field == "decoder_layers":
        expected = dataclasses.replace(expected, t5=dataclasses.replace(expected.t5, decoder_layers=value))
    else:
        expected = dataclasses.replace(expected, **{field: value})
    assert r.module.config == expected
    assert r.options == base.options
    assert count(r.params) - count(base.params) == more


def test_no_kl_changes_the_objective_alone(recipe):
    base, r = recipe("vmsst_24l_random.gin"), recipe("ablations/no_kl.gin")
    assert r.module.config == base.module.config
    assert r.options == {**base.options, "kl": False}


def test_four_encoders_share_out_the_languages(recipe):
    base, r = recipe("vmsst_24l_random.gin"), recipe("ablations/4enc.gin")
    routing = r.module.config.encoder_of_language
    assert sorted(routing.count(i) for i in range(4)) == [23] * 4
    assert list(routing) != sorted(routing)
    assert count(r.params) - count(base.params) == 3 * encoder(24)


def test_a_stack_per_language(recipe):
    full = recipe("ablations/full_enc_full_dec.gin")
    assert full.languages == ("en", "ar", "es", "tr")
    assert full.module.config.encoder_of_language == full.module.config.decoder_of_language == (0, 1, 2, 3)
    shared = size("vmsst", 6, languages=4)
    assert count(full.params) == shared + 3 * encoder(6) + 3 * decoder(6, 2 * D)
    for kind in ("vmsst", "bitranslation"):
        r = recipe(f"ablations/{kind}_4_languages.gin")
        assert count(r.params) == size(kind, 6, languages=4)
        assert (r.languages, r.stream.data) == (full.languages, full.stream.data)
        assert (r.objective, r.options.get("lam")) == (kind, 0.1 if kind == "vmsst" else None)


@pytest.mark.parametrize("name", BATCHES)
def test_larger_batches_change_the_batch_alone(recipe, name):
    base, r = recipe(BATCHES[name][0]), recipe(name)
    assert (r.module.config, r.options) == (base.module.config, base.options)
    assert base.pairs == 2048


def mt5_names(stack, attention, layers="layers"):
    """Names of one mT5 stack in T5X, its layers stacked."""
    block = {f"{attention}/{part}/kernel" for part in ("query", "key", "value", "out")}
    block |= {f"mlp/{part}/kernel" for part in ("wi_0", "wi_1", "wo")}
    block |= {f"pre_{attention}_layer_norm/scale", "pre_mlp_layer_norm/scale"}
    return {f"{stack}/{layers}/{leaf}" for leaf in block} | {f"{stack}/relpos_bias/rel_embedding"}


ENCODERS = {
    name: mt5_names(name, "attention") | {f"{name}/encoder_norm/scale"}
    for name in ("semantic_encoder", "language_encoder")
}
DECODER = mt5_names("decoder", "self_attention") | {"decoder/decoder_norm/scale", "decoder/logits_dense/kernel"}
CROSS_ATTENTION = {
    "decoder/layers/pre_cross_attention_layer_norm/scale",
    *(f"decoder/layers/encoder_decoder_attention/{part}/kernel" for part in ("query", "key", "value", "out")),
}
IMPORTED = {"token_embedder/embedding"} | ENCODERS["semantic_encoder"] | ENCODERS["language_encoder"] | DECODER


@pytest.mark.parametrize(
    ("objective", "taken"),
    [
        ("contrastive", {"token_embedder/embedding"} | ENCODERS["semantic_encoder"]),
        ("bitranslation", IMPORTED - ENCODERS["language_encoder"]),
        ("vmsst", IMPORTED),
        ("vmsst_contrastive", IMPORTED),
    ],
)
def test_what_must_come_from_mt5(recipe, objective, taken):
    r = recipe(f"{objective}_24l.gin")

    def may_differ(name):
        return any(re.fullmatch(pattern, name) for pattern in r.init_allow_missing)

    here = names(r.params)
    assert {name for name in here if not may_differ(name)} == taken
    assert all(may_differ(name) for name in (IMPORTED | CROSS_ATTENTION) - here)
    assert count(r.params) == count(recipe(f"{objective}_24l_random.gin").params)


def test_starting_from_mt5_without_a_checkpoint_says_where_it_lies(tmp_path):
    bindings = ['VOCABULARY_FILE = "not/read"', f'MODEL_DIR = "{tmp_path}/run"']
    train = config.configure(["vmsst_24l.gin"], bindings)
    with pytest.raises(
        ValueError, match="INIT_CHECKPOINT is not set: .*converted copy of mT5-Large.*gs://t5-data.*vmsst_jax.convert"
    ):
        train()
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["quickstart.gin", "quickstart_vmsst_contrastive.gin", "small.gin"])
def test_small_runs_end_with_the_papers_kl_weight(recipe, name):
    r = recipe(name)
    assert r.options["kl_warmup_steps"] == 10 * r.rhythm.steps
    assert r.module.config.t5.vocab_size == gin_value(r.config_text, "VOCAB_SIZE")


def gin_value(text, macro):
    return int(re.search(rf"^{macro} = (\d+)$", text, re.MULTILINE)[1])


def test_recipes_find_their_devices(recipe):
    """make_mesh is bound, so that its sizes can be changed; 8 devices are faked for the tests."""
    train = config.configure(["vmsst_6l.gin"], ['VOCABULARY_FILE = "x"', "make_mesh.fsdp = 4"])
    assert dict(train.keywords["mesh"]().shape) == {"data": 2, "fsdp": 4, "model": 1}
