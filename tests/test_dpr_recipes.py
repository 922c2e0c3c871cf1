"""DPR's recipes: the paper's numbers, and a run on a few made-up paragraphs from encoder to benchmark."""

import contextlib
import io
import json
import pathlib
import re
import shutil
import types

import gin
import jax
import numpy as np
import pytest

from vmsst_jax import config, embed, evaluate, models, objectives, train
from vmsst_jax.data import tokenizers
from vmsst_jax.data.tokenizer_xlmr import XlmrTokenizer
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.text_encoder import TextEncoderConfig
from vmsst_jax.training import optimizers, schedules
from vmsst_jax.training.checkpoint import Checkpoints, load_model, read_host

FOLDER = pathlib.Path(__file__).parents[1] / "gin"
RECIPES = ("dpr_nq", "dpr_xor", "dpr_xquad", "dpr_xquad_small")
WORDS = "red green blue old new big small north south river hill town king queen ship road bell tree stone bird".split()


@pytest.fixture(autouse=True)
def clean():
    yield
    gin.clear_config()


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """XQuAD's files in two languages: 40 articles of two paragraphs; a question repeats words of its paragraph."""
    folder, rng = tmp_path_factory.mktemp("xquad"), np.random.default_rng(0)
    texts = {(a, p): rng.permutation(WORDS)[:6].tolist() for a in range(40) for p in range(2)}
    for code in ("en", "de"):
        mark = "the" if code == "en" else "das"
        paragraphs = [f"{a}\t{p}\tT\t{mark} {' '.join(words)}\n" for (a, p), words in texts.items()]
        questions = [f"q{a}{p}\t{a}\t{p}\t{mark} {' '.join(w[:3])}?\tx\n" for (a, p), w in texts.items()]
        (folder / f"paragraphs.{code}.tsv").write_text("".join(paragraphs))
        (folder / f"questions.{code}.tsv").write_text("".join(questions))
    return folder


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    """The checkpoint of a random encoder with a masked language model head."""
    tokenizer = XlmrTokenizer.train([f"the {a} das {b}" for a in WORDS for b in WORDS], 46, character_coverage=1.0)
    bert = BertConfig(
        vocab_size=46, embed_dim=16, num_heads=2, mlp_dim=16, num_layers=1, max_positions=258, mlm_head="dense"
    )
    module = models.build("encoder", TextEncoderConfig(bert))
    params = jax.jit(lambda key: models.init_params(module, key))(jax.random.key(0))
    host = {
        "model": models.describe(module),
        "languages": ["en", "de"],
        "tokenizer": tokenizers.to_record(tokenizer),
        "embedding": {"pooling": "mean", "layer": None, "normalize": False, "prefix": "", "max_length": 20},
    }
    folder = tmp_path_factory.mktemp("encoder")
    with Checkpoints(folder) as checkpoints:
        checkpoints.save(0, {"params": params}, host)
    return folder


@pytest.fixture
def recipe(encoder, data):
    def read(name):
        bindings = {
            "dpr_xquad_small": [f'DATA_DIR = "{data}"'],
            "dpr_xquad": [f'DATA_DIR = "{data}"', f'INIT_CHECKPOINT = "{encoder}"'],
        }
        paper = [f'INIT_CHECKPOINT = "{encoder}"', 'TRAIN_FILE = "train.json"', 'DEV_FILE = "dev.json"']
        arguments = config.configure([f"{name}.gin"], bindings.get(name, paper)).keywords
        (stream,) = arguments["streams"]
        return types.SimpleNamespace(
            **arguments, module=arguments["model"](1), data=stream.data, options=objectives.options(stream.objective)
        )

    return read


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_whole_and_says_how_to_run_it(recipe, name):
    r = recipe(name)
    header = "\n".join(re.findall(r"^#.*", (FOLDER / f"{name}.gin").read_text(), re.MULTILINE))
    assert r.model_dir == f"runs/{name}" and f"--gin_file={name}.gin" in header
    for word in ("Devices:", "Time:", "Expect:"):
        assert word in header
    for macro in ("DATA_DIR", "INIT_CHECKPOINT", "TRAIN_FILE", "DEV_FILE"):
        assert (f"--gin.{macro}=" in header) == (f"%{macro}" in r.config_text)
    assert r.module.kind == "dual_encoder" and r.module.config.shared == (name == "dpr_xquad_small")
    assert (r.saving.best_metric, r.saving.best_mode) == ("validation_loss", "min")
    assert r.rhythm.steps % r.rhythm.evaluate_every == 0
    assert r.evaluators[0].data.source != r.data.source


@pytest.mark.parametrize(("name", "epoch"), [("dpr_nq", 58_880 // 48), ("dpr_xor", 15_250 // 48)])
def test_the_papers_numbers(recipe, name, epoch):
    """METHODS 5.5."""
    r, bert = recipe(name), recipe(name).module.config.encoder.backbone
    assert (r.data.batch_size, r.data.hard_negatives, r.data.query_length, r.data.passage_length) == (48, 1, 256, 256)
    assert (r.data.title_separator, r.data.strip_question_mark) == ("</s></s>", True)
    assert r.options == {"sim": "dot", "scale": 1.0, "negative_mask": "none"}
    assert (r.rhythm.steps, r.rhythm.evaluate_every) == (20 * epoch, epoch)
    assert r.module.config.encoder.pooling == "cls" and r.module.config.encoder.dense == ()
    assert (bert.dropout, bert.attention_dropout, bert.mlm_head, bert.num_layers) == (0.1, 0.1, "none", 1)
    rate = gin.get_configurable(schedules.warmup_linear)()
    steps = (0, 1237, (1237 + 20 * epoch) / 2, 20 * epoch)
    np.testing.assert_allclose([float(rate(step)) for step in steps], [0, 1e-5, 5e-6, 0], atol=1e-9)
    adamw = gin.get_bindings(optimizers.adamw)
    wanted = {"b1": 0.9, "b2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "clip": 2.0}
    assert {name: adamw[name] for name in wanted} == wanted


@pytest.fixture(scope="module")
def trained(encoder, data, tmp_path_factory):
    """(folder of a run of 4 updates in two parts, folder of one straight run, what the latter printed)."""
    folder = tmp_path_factory.mktemp("runs")
    small = {
        "DATA_DIR": f"'{data}'", "INIT_CHECKPOINT": f"'{encoder}'", "BATCH_SIZE": 8, "QUERY_LENGTH": 8,
        "PASSAGE_LENGTH": 12, "ValidationLoss.batches": 1, "EPOCH": 2, "warmup_linear.peak": 0.01,
        "warmup_linear.warmup": 1, "Rhythm.log_every": 1,
    }  # fmt: skip

    def run(name, steps):
        more = {"MODEL_DIR": f"'{folder / name}'", "Rhythm.steps": steps}
        train.main(["--gin_file=dpr_xquad.gin", *(f"--gin.{k}={v}" for k, v in {**small, **more}.items())])
        gin.clear_config()
        return folder / name

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        straight = run("straight", 4)
    # As if it had been killed after its third update.
    shutil.copytree(straight, folder / "parts")
    shutil.rmtree(folder / "parts" / "checkpoints" / "4")
    return run("parts", 4), straight, printed.getvalue()


def test_a_run_in_parts_equals_the_straight_one(trained):
    parts, straight, printed = trained
    logs = [
        [{k: v for k, v in json.loads(line).items() if k != "speed"} for line in (run / "metrics.jsonl").open()]
        for run in (parts, straight)
    ]
    assert logs[0] == logs[1] and [r["step"] for r in logs[0] if r["kind"] == "train"] == [1, 2, 3, 4]
    assert {"validation_loss", "passage_mean_rank"} <= logs[0][-1].keys()
    assert "64 questions, 64 passages, 8 steps an epoch" in printed
    assert "15 negatives for each sentence, from all devices" in printed
    assert re.search(r"the right passage of 12 questions among 12, by dot\n.*\nuntrained .*\ntrained ", printed)
    params = load_model(straight).params
    query, passage = (jax.tree.leaves(params[f"{tower}_encoder"]) for tower in ("query", "passage"))
    assert any(np.abs(a - b).max() > 0.01 for a, b in zip(query, passage, strict=True))
    assert read_host(straight)["embedding"] == {
        "pooling": "mean", "layer": None, "normalize": False, "prefix": "", "max_length": 12
    }  # fmt: skip


def test_both_towers_are_scored(trained, data, tmp_path, capsys):
    flags = [f"--checkpoint={trained[1]}", "--benchmark=xquad", f"--data_dir={data}", "--no_cache"]
    flags += ["--option=articles=(32, 40)", "--option=similarity=dot", "--option=strip_question_mark=True"]
    results = {}
    for name, more in (("both", []), ("query", ["--tower=query"]), ("passage", ["--tower=passage"])):
        evaluate.main([*flags, f"--output={tmp_path / name}", *more])
        results[name] = json.loads((tmp_path / name / "results.json").read_text())
    towers = {name: r["retriever"]["passage_encoder"] for name, r in results.items()}
    assert towers["query"] is towers["passage"] is None and towers["both"]["tower"] == "passage"
    both = results["both"]
    assert both["model"]["tower"] == "query" and both["split"] == "articles 32 to 39"
    assert {lang: s["questions"] for lang, s in both["per_language"].items()} == {"de": 16, "en": 16}
    prints = {name: r["model"]["fingerprint"] for name, r in results.items()}
    assert prints["both"] == prints["query"] != prints["passage"] == towers["both"]["fingerprint"]


def test_a_tower_has_to_be_named_elsewhere(trained, data, tmp_path):
    _, run, _ = trained
    (tmp_path / "text").write_text("the red hill\n")
    flags = [f"--checkpoint={run}", f"--input={tmp_path / 'text'}"]
    with pytest.raises(ValueError, match="has two towers: say with --tower=query .* --tower=passage"):
        embed.main([*flags, f"--output={tmp_path / 'a.npy'}"])
    for tower in ("query", "passage"):
        embed.main([*flags, f"--output={tmp_path / tower}.npy", f"--tower={tower}"])
    assert np.abs(np.load(tmp_path / "query.npy") - np.load(tmp_path / "passage.npy")).max() > 0.01
    (tmp_path / "tatoeba").mkdir()
    for side in ("deu", "eng"):
        (tmp_path / "tatoeba" / f"tatoeba.deu-eng.{side}").write_text("red\nhill\n")
    flags = [f"--checkpoint={run}", "--benchmark=tatoeba", f"--data_dir={tmp_path / 'tatoeba'}", "--no_cache"]
    with pytest.raises(ValueError, match="two towers, and tatoeba has no questions and passages: say with --tower"):
        evaluate.main([*flags, f"--output={tmp_path / 'out'}"])
