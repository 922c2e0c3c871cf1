"""The recipes of MLM, TLM and unsupervised translation: the papers' numbers, and the whole chain on made-up lines."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import types

import gin
import jax
import numpy as np
import pytest

from vmsst_jax import config, objectives, train, translate
from vmsst_jax.training import checkpoint, optimizers, schedules

FOLDER = pathlib.Path(__file__).parents[1] / "gin"
RECIPES = sorted(f.stem for kind in ("mlm", "tlm", "umt") for f in FOLDER.glob(f"{kind}_*.gin"))
# Bindings of a recipe's header, with values that are not read here.
GIVEN = {
    **dict.fromkeys(("DATA_DIR", "INIT_CHECKPOINT", "CACHE", "CODES", "VOCABULARY"), '"not/read"'),
    "LANGUAGES": '("en", "de")',
    "synthetic_pairs.files": '["not/read"]',
}


@pytest.fixture(autouse=True)
def clean():
    yield
    gin.clear_config()


def header(name):
    return "\n".join(re.findall(r"^#.*", (FOLDER / f"{name}.gin").read_text(), re.MULTILINE))


def recipe(name):
    """What a recipe means, nothing read, given what its header's first command of its own gives."""
    own = header(name).split(f"--gin_file={name}.gin", 1)[1].split("\n#\n")[0]
    given = [f"{key} = {value}" for key, value in GIVEN.items() if f"--gin.{key}=" in own]
    if name == "mlm_small":
        given.append('LANGUAGES = ("en", "de")')  # which the files would tell
    return types.SimpleNamespace(**config.configure([f"{name}.gin"], given).keywords)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_is_whole_and_says_how_to_run_it(name):
    r = recipe(name)
    assert r.model_dir == f"runs/{name}"
    for word in ("Devices:", "Time:", "Expect:"):
        assert word in header(name)
    if hasattr(r, "evaluators"):
        assert r.rhythm.steps % r.rhythm.evaluate_every == 0 and r.saving.best_metric
    for stream in r.streams:
        assert stream.data.shapes()


def assert_xlms_optimizer():
    adam = gin.get_bindings(optimizers.adam)
    assert {name: adam[name] for name in ("b1", "b2", "eps", "clip")} == {
        "b1": 0.9,
        "b2": 0.98,
        "eps": 1e-8,
        "clip": 5.0,
    }
    rate = gin.get_configurable(schedules.inverse_sqrt)()
    np.testing.assert_allclose([float(rate(s)) for s in (0, 4000, 16_000)], [1e-7, 1e-4, 5e-5], rtol=1e-5)


def test_umses_fine_tuning():
    """METHODS 4 and 4.1."""
    r = recipe("tlm_xlm100")
    (stream,) = r.streams
    data, options = stream.data, objectives.options(stream.objective)
    assert (data.batch_size, data.max_length, data.order, data.restart_positions) == (8, 100, "both", True)
    assert r.rhythm.steps == 20_000 // 8
    assert (options["mask_id"], options["special_ids"], options["rate"]) == (5, (2,), 0.15)
    assert gin.query_parameter("TextEncoderConfig.layer") == 12
    assert_xlms_optimizer()


def test_unsupervised_translation():
    """METHODS 4.3: per GPU 2,000 tokens and 32 sentences, on 8 of them; steps are a quarter of XLM's iterations."""
    r = recipe("umt_base")
    a, b, c, d = r.streams
    assert [(s.data.language, objectives.name(s.objective)) for s in (a, b)] == [
        ("en", "translation"), ("de", "translation"),
    ]  # fmt: skip
    assert [(s.data.language, s.data.through, objectives.name(s.objective)) for s in (c, d)] == [
        ("en", "de", "back_translation"), ("de", "en", "back_translation"),
    ]  # fmt: skip
    assert {s.data.batch_tokens for s in (a, b)} == {8 * 2000} and {s.data.batch_size for s in (c, d)} == {8 * 32}
    assert {s.data.max_length for s in r.streams} == {100} and r.schedule == "in_turn"
    noise = a.data.noise
    assert (noise.shuffle, noise.drop, noise.blank) == (3.0, 0.1, 0.1) and b.data.noise == noise
    weight = objectives.options(a.objective)["weight"]
    rounds = (0, 50_000, 100_000, 200_000, 300_000, 400_000)
    np.testing.assert_allclose([float(weight(4 * n)) for n in rounds], [1, 0.55, 0.1, 0.05, 0, 0], atol=1e-6)
    assert (r.saving.best_metric, r.saving.best_mode) == ("bleu", "max")
    assert_xlms_optimizer()


def test_the_language_model_below_it():
    r = recipe("umt_base_mlm")
    bert = r.model(2).config.backbone
    assert (bert.num_layers, bert.num_heads, bert.embed_dim, bert.mlp_dim, bert.num_languages) == (6, 8, 768, 3072, 2)
    assert (bert.position_offset, bert.token_types, bert.mask_after_layer, bert.mlm_head) == (0, 0, True, "bias")
    assert (bert.pad_id, bert.layer_norm_eps, bert.dropout) == (2, 1e-12, 0.1)
    assert (r.streams[0].data.length, r.streams[0].data.batch_size) == (256, 8 * 32)


WORDS = {"en": "red green blue old house tree town ship bird king".split()}
WORDS["de"] = [word[::-1] for word in WORDS["en"]]
TINY = {
    **{"BertConfig.embed_dim": 16, "BertConfig.num_heads": 2, "BertConfig.mlp_dim": 16, "BertConfig.num_layers": 1},
    **{"VOCAB_SIZE": 40, "MASK": 39, "MaskedText.batch_size": 8, "MaskedText.length": 16, "TRAIN_STEPS": 2},
    **{"validation/MaskedText.batch_size": 8, "ValidationLoss.batches": 1, "Rhythm.log_every": 1},
    **{"Rhythm.evaluate_every": 2},
}
SHORT = {
    **{"DENOISING_TOKENS": 96, "ROUND_TRIPS": 8, "MAX_PIECES": 10, "NoisyText.widths": (12,), "train.max_length": 12},
    **{"RoundTripText.widths": (12,), "Rhythm.log_every": 1, "Rhythm.evaluate_every": 8, "Rhythm.save_every": 4},
}


NO_STEPS = {"TRAIN_STEPS": 0}


def run(name, model_dir, **bindings):
    values = {key: value for part in bindings.values() for key, value in part.items()}
    values["MODEL_DIR"] = str(model_dir)
    flags = [f"--gin.{k}={json.dumps(v) if isinstance(v, str) else v}" for k, v in values.items()]
    train.main([f"--gin_file={name}.gin", *flags])


def log(model_dir):
    lines = (pathlib.Path(model_dir) / "metrics.jsonl").read_text("utf-8").splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "speed"} for line in lines]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of aligned lines in two languages, the second one spelt backwards."""
    folder, rng = tmp_path_factory.mktemp("lines"), np.random.default_rng(0)
    for name, count in (("train", 80), ("val", 10), ("test_2016_flickr", 6)):
        rows = [rng.permutation(10)[: rng.integers(2, 5)] for _ in range(count)]
        for code, words in WORDS.items():
            (folder / f"{name}.{code}").write_text("".join(" ".join(words[i] for i in row) + "\n" for row in rows))
    return {"DATA_DIR": str(folder)}


@pytest.fixture(scope="module")
def language_model(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlm")
    run("umt_small_mlm", folder, data=data, tiny=TINY)
    return {"INIT_CHECKPOINT": str(folder)}


def test_from_text_to_translations_to_tlm(data, language_model, tmp_path, monkeypatch, capsys):
    """The same losses straight and resumed, the best step by BLEU, pairs from translate, and TLM on them."""
    given = {"data": data, "start": language_model, "short": SHORT}
    run("umt_small", tmp_path / "straight", **given, steps={"TRAIN_STEPS": 8})
    shutil.copytree(tmp_path / "straight", tmp_path / "resumed")
    shutil.rmtree(tmp_path / "resumed" / "checkpoints" / "8")
    (tmp_path / "resumed" / "report.txt").unlink()
    run("umt_small", tmp_path / "resumed", **given, steps={"TRAIN_STEPS": 8})
    straight, resumed = log(tmp_path / "straight"), log(tmp_path / "resumed")
    assert straight == resumed
    names = ["denoise_first", "denoise_second", "first_second_first", "second_first_second"]
    assert [record["stream"] for record in straight if record["kind"] == "train"] == 2 * names
    scores = next(record for record in straight if record["kind"] == "evaluation")
    assert scores["bleu"] == pytest.approx((scores["bleu_en_de"] + scores["bleu_de_en"]) / 2)
    report, again = ((tmp_path / name / "report.txt").read_text("utf-8") for name in ("straight", "resumed"))
    assert report == again and "on 6 pairs of the split 'test'" in report
    assert checkpoint.read_host(tmp_path / "straight", "best")["languages"] == ["en", "de"]
    assert f"python -m vmsst_jax.translate --checkpoint={tmp_path}/straight" in capsys.readouterr().out

    (tmp_path / "pairs").mkdir()
    for source, target in (("en", "de"), ("de", "en")):
        output = tmp_path / f"{source}.txt"
        translate.main([
            f"--checkpoint={tmp_path}/straight", "--step=best", f"--input={data['DATA_DIR']}/val.{source}",
            f"--source={source}", f"--target={target}", f"--output={output}", "--max_length=10",
            "--sample", "--temperature=3.0", f"--pairs={tmp_path}/pairs/{source}.tsv",
        ])  # fmt: skip
        assert len(output.read_text("utf-8").splitlines()) == 10
    pairs = {
        "TASK_MODULES": ["synthetic_pairs"],
        "TASK": "synthetic_pairs",
        "synthetic_pairs.files": f"{tmp_path}/pairs/*.tsv",
        **{"MASK": 39, "TRAIN_STEPS": 2, "TlmText.max_length": 20, "TlmText.widths": (44,), "Rhythm.log_every": 1},
    }
    run("tlm_small", tmp_path / "tlm", data=data, start=language_model, pairs=pairs)
    assert [record["stream"] for record in log(tmp_path / "tlm")] == ["tlm", "tlm"]
    read = [json.loads((tmp_path / name / "report.json").read_text())["data"] for name in ("straight", "tlm")]
    assert [sorted(data) for data in read] == [
        [f"{name}, split 'train'"] for name in ("folder_text", "synthetic_pairs")
    ]
    assert all(len(sha256) == 64 for data in read for sha256 in data.values())


def test_one_device_learns_what_eight_do(data, language_model, tmp_path):
    """Seven rows a batch of denoising, dropout on, translations written: the arrays of eight devices hold one more."""
    more = {"TRAIN_STEPS": 4, "DENOISING_TOKENS": 84, "train.reports": []}
    assert jax.device_count() == 8
    run("umt_small", tmp_path / "eight", data=data, start=language_model, short=SHORT, more=more)
    values = {**data, **language_model, **SHORT, **more, "MODEL_DIR": str(tmp_path / "one")}
    flags = [f"--gin.{k}={json.dumps(v) if isinstance(v, str) else v}" for k, v in values.items()]
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=1"}
    command = [sys.executable, "-m", "vmsst_jax.train", "--gin_file=umt_small.gin", *flags]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    for one, eight in zip(log(tmp_path / "one"), log(tmp_path / "eight"), strict=True):
        assert one.keys() == eight.keys() and one["step"] == eight["step"]
        for name in one.keys() - {"step", "kind", "stream"}:
            assert one[name] == pytest.approx(eight[name], rel=1e-5), name


def test_start_from_word_by_word_translations(data, language_model, tmp_path):
    """Originals alone are written, and the next run begins with exactly what the start learned."""
    folder = pathlib.Path(data["DATA_DIR"])
    for code, other in (("en", "de"), ("de", "en")):
        table = dict(zip(WORDS[code], WORDS[other], strict=True))
        lines = [line.split() for line in (folder / f"val.{code}").read_text().splitlines()]
        rows = ["\t".join((code, other, " ".join(line), " ".join(table[word] for word in line))) for line in lines]
        (tmp_path / f"{code}.tsv").write_text("\n".join(rows) + "\n")
    pairs = {"synthetic_pairs.files": f"{tmp_path}/*.tsv", "TranslationText.widths": (12,)}
    given = {"data": data, "short": SHORT}
    run("umt_small_start", tmp_path / "start", **given, start=language_model, pairs=pairs, steps={"TRAIN_STEPS": 8})
    streams = [record["stream"] for record in log(tmp_path / "start") if record["kind"] == "train"]
    assert streams == 2 * ["denoise_first", "denoise_second", "to_second", "to_first"]
    run("umt_small", tmp_path / "next", **given, start={"INIT_CHECKPOINT": str(tmp_path / "start")}, steps=NO_STEPS)
    first, then = (checkpoint.load_model(tmp_path / name).params for name in ("start", "next"))
    jax.tree.map(np.testing.assert_array_equal, first, then)
    report = json.loads((tmp_path / "start" / "report.json").read_text())
    assert sorted(report["data"]) == [f"{name}, split 'train'" for name in ("folder_text", "synthetic_pairs")]


def test_the_starts_targets_are_originals():
    streams = {stream.name: stream for stream in recipe("umt_small_start").streams}
    for name, source, target in (("to_second", "en", "de"), ("to_first", "de", "en")):
        data = streams[name].data
        assert (data.task, data.source, data.target, data.order) == ("synthetic_pairs", source, target, "reversed")
        assert objectives.options(streams[name].objective).get("weight") is None


def test_what_can_not_be_translated_is_refused_at_once(data, language_model, tmp_path):
    given = {"data": data, "start": language_model, "short": SHORT, "steps": {"TRAIN_STEPS": 4}}
    with pytest.raises(ValueError, match="knows the languages en, de, this run also has fr"):
        (pathlib.Path(data["DATA_DIR"]) / "train.fr").write_text("un\ndeux\ntrois\nquatre\n" * 20)
        (pathlib.Path(data["DATA_DIR"]) / "val.fr").write_text("un\n" * 10)
        run("umt_small", tmp_path / "a", **given, more={"SECOND": "fr"})
    with pytest.raises(ValueError, match="ends sentences with 2, the model with 3: set translation_model.eos_id to 2"):
        run("umt_small", tmp_path / "b", **given, more={"translation_model.eos_id": 3})
    with pytest.raises(ValueError, match="is a model of kind 'encoder', which does not translate"):
        translate.main([
            f"--checkpoint={language_model['INIT_CHECKPOINT']}", f"--input={data['DATA_DIR']}/val.en",
            "--source=en", "--target=de", f"--output={tmp_path}/out",
        ])  # fmt: skip
