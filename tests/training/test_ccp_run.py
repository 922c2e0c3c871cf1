"""A run of CCP and the masked language model by a recipe: stopped and resumed, embedding, and a start for others."""

import json
import pathlib
import sys
import threading

import jax
import numpy as np
import pytest

from vmsst_jax import models, sharding, train
from vmsst_jax.data.languages import Languages
from vmsst_jax.models.text_encoder import TextEncoderConfig
from vmsst_jax.retrieval import embedder
from vmsst_jax.training import checkpoint, encoder_start, optimizers, schedules, warm_start

MODULE = """
from vmsst_jax.tasks import documents

documents.register_text("my_documents", {{"en": {en!r}, "de": {de!r}}}, layout="sentences")
"""
RECIPE = """
include "include/ccp.gin"

TASK_MODULES = ["my_documents"]
TASK = "my_documents"
LANGUAGES = ("de", "en")
MODEL_DIR = "run"
TRAIN_STEPS = 6
ACCUMULATE = 2
train.tokenizer = @train_xlmr_sentencepiece
train_xlmr_sentencepiece.task = %TASK
train_xlmr_sentencepiece.vocab_size = 30
train.max_length = 12
BertConfig.vocab_size = 30
BertConfig.embed_dim = 16
BertConfig.num_heads = 2
BertConfig.mlp_dim = 24
BertConfig.num_layers = 2
BertConfig.max_positions = 34
TextEncoderConfig.pooling = "mean"
ccp_model.bank_size = 64
Documents.groups = 2
Documents.pairs = 4
Documents.max_length = 12
Documents.min_pieces = 1
MaskedText.batch_size = 8
MaskedText.length = 32
masked_lm.mask_id = 29
warmup_linear.peak = 1e-3
warmup_linear.warmup = 2
Rhythm.log_every = 1
Rhythm.save_every = 3
"""
WORDS = {
    "en": "river boat water wind stone bread house winter".split(),
    "de": "fluss boot wasser wind stein brot haus winter".split(),
}


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A folder with documents of made-up sentences in two languages, their task and a recipe."""
    folder = tmp_path_factory.mktemp("ccp")
    rng = np.random.default_rng(0)
    for lang, words in WORDS.items():
        documents = ["\n".join(" ".join(rng.choice(words, 5)) for _ in range(6)) for _ in range(12)]
        (folder / f"{lang}.txt").write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    files = {lang: str(folder / f"{lang}.txt") for lang in WORDS}
    (folder / "my_documents.py").write_text(MODULE.format(**files), encoding="utf-8")
    (folder / "tiny_ccp.gin").write_text(RECIPE, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run(workplace):
    """Function (name, *bindings) -> the model directory of a run of the recipe in this process."""

    def go(name, *bindings):
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(workplace)
            patch.setattr(sys, "path", [str(workplace), *sys.path])
            flags = [f"--gin.{b}" for b in (f'MODEL_DIR="{name}"', *bindings)]
            train.main(["--gin_file=tiny_ccp.gin", *flags])
        return workplace / name

    return go


@pytest.fixture(scope="module")
def trained(run):
    return run("straight")


def records(folder):
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "speed"} for line in lines]


def test_two_tasks_take_turns_at_random_and_resume_exactly(run, trained):
    straight = records(trained)
    assert {r["stream"] for r in straight} == {"ccp", "mlm"}
    assert any(r.get("bank_negatives", 0) > 0 for r in straight)
    assert all(np.isfinite(v) for r in straight for v in r.values() if isinstance(v, float))
    run("pieces", "TRAIN_STEPS=3", "warmup_linear.total=6")
    # The rate depends on the number of steps; given apart, it stays.
    assert records(run("pieces", "warmup_linear.total=6")) == straight


def test_a_checkpoint_embeds_by_the_encoder_and_any_layer(trained):
    plain, first = embedder.load(trained), embedder.load(trained, layer=1, pooling="cls")
    assert plain.dim == first.dim == 16 and plain.embedding["pooling"] == "mean"
    texts = ["river boat", "stein brot haus"]
    loaded = checkpoint.load_model(trained)
    ids, _ = loaded.tokenizer.encode(texts, 12)
    tokens = np.ones((2, 12), np.int32)
    for row, sentence in zip(tokens, ids, strict=True):
        row[: len(sentence)] = sentence
    states = loaded.module.apply({"params": loaded.params}, tokens, method="hidden_states")
    mask = (tokens != 1)[..., None]
    np.testing.assert_allclose(plain.encode(texts), (states[-1] * mask).sum(1) / mask.sum(1), atol=1e-5)
    np.testing.assert_allclose(first.encode(texts), states[1][:, 0], atol=1e-5)


def test_what_a_checkpoint_starts(trained, tiny_ccp, tiny_model):
    """A plain encoder, another CCP with its layers stacked; but no model with a T5's stacks."""
    loaded = checkpoint.load_model(trained)
    init = warm_start.from_checkpoint(trained, loaded.tokenizer, Languages(["de", "en"]))
    mesh, optimizer = sharding.make_mesh(devices=jax.devices()[:1]), optimizers.adam(schedules.constant())
    bert = encoder_start.checkpoint_bert(str(trained), scan_layers=True)
    assert bert.embed_dim == 16 and bert.scan_layers
    assert encoder_start.checkpoint_tokenizer(str(trained)).sha256 == loaded.tokenizer.sha256
    wo = loaded.params["encoder"]["backbone"]["encoder"]["layers_1"]["mlp"]["wo"]["kernel"]

    encoder = models.build("encoder", TextEncoderConfig(bert))
    params = warm_start.initial_state(encoder, optimizer, 1, mesh, init).params
    np.testing.assert_array_equal(params["backbone"]["encoder"]["layers"]["mlp"]["wo"]["kernel"][1], wo)

    sizes = {"vocab_size": 30, "num_layers": 2, "max_positions": 34, "mlm_head": "dense", "scan_layers": True}
    ccp = tiny_ccp(**sizes, head_features=128)
    params = warm_start.initial_state(ccp, optimizer, 1, mesh, init).params
    np.testing.assert_array_equal(params["encoder"]["backbone"]["encoder"]["layers"]["mlp"]["wo"]["kernel"][1], wo)
    np.testing.assert_array_equal(params["head"]["norm"]["scale"], loaded.params["head"]["norm"]["scale"])
    with pytest.raises(ValueError, match="is a CCP model: only a T5's parameters fit this model's stacks"):
        warm_start.initial_state(tiny_model("contrastive"), optimizer, 1, mesh, init)


def test_no_thread_is_left_where_an_evaluator_can_t_begin(run, tmp_path):
    before = threading.active_count()
    with pytest.raises(ValueError, match="has no split 'validation'; it has .*Register it with held_out=0.05"):
        run(tmp_path / "run", "train.evaluators=[@ContextRetrieval()]", "ContextRetrieval.data=@held_out/Documents()",
            "held_out/Documents.split='validation'")  # fmt: skip
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("BertConfig.pad_id=0", "the vocabulary pads with 1, the model with 0: set BertConfig.pad_id to 1"),
        ("BertConfig.vocab_size=29", "masked_lm.mask_id is 29, and the model has 29 rows"),
        ("ccp_model.bank_size=60", "bank_size is 60, and 8 devices can't own equal shares"),
        ("ccp_model.bn='asymetric'", "bn is 'asymetric'; use one of 'asymmetric', 'vanilla', 'none'"),
        ("ccp.bank_mask='language'", "ccp.bank_mask is 'language'; use one of 'none', 'document'"),
    ],
)
def test_mistakes_are_found_before_the_first_step(run, tmp_path, binding, message):
    with pytest.raises(ValueError, match=message):
        run(tmp_path / "run", binding)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
