"""A recipe's step without its data: bytes against those of real arrays, on one device and on eight."""

import json

import jax
import pytest

from vmsst_jax import models, runtime, sharding
from vmsst_jax.data.parallel import ParallelText
from vmsst_jax.data.translation import RoundTripText, TranslationText
from vmsst_jax.models.bert import BertConfig
from vmsst_jax.models.seq2seq import Seq2SeqConfig
from vmsst_jax.objectives.contrastive import contrastive
from vmsst_jax.objectives.translation import back_translation, translation
from vmsst_jax.objectives.vmsst import vmsst
from vmsst_jax.training import optimizers, profile_report, profiling, run, schedules, state


@pytest.fixture
def recipe(tiny_model):
    def make(kind="vmsst", objective=vmsst, accumulate=1, **options):
        text = ParallelText("not_registered", batch_size=16, max_length=8, widths=(4, 8))
        return {
            "mesh": sharding.make_mesh,
            "model": lambda languages: tiny_model(kind, num_languages=languages, **options),
            "languages": ("de", "en", "fr"),
            "optimizer": optimizers.adam(schedules.constant(1e-3)),
            "streams": [run.Stream(text, objective, accumulate=accumulate)],
        }

    return make


def nbytes(tree):
    return sum(leaf.nbytes for leaf in jax.tree.leaves(tree))


def test_one_device_is_measured(recipe, tmp_path):
    made = recipe(accumulate=2)
    device = jax.devices()[:1]
    found = profiling.profile(made, device, steps=2, trace=str(tmp_path / "trace"))
    mesh = sharding.make_mesh(devices=device)
    real = state.make_state(made["model"](3), made["optimizer"], 0, mesh)
    counts = found["bytes_per_device"]
    assert counts["parameters"] == counts["gradients"] == nbytes(real.params)
    assert counts["optimizer"] == nbytes(real.opt_state) == pytest.approx(2 * counts["parameters"], rel=1e-3)
    stream = found["streams"]["parallel"]
    assert (stream["examples"], stream["tokens"], stream["dtype"]) == (32, 2 * 16 * (4 + 8), "float32")
    assert 1 < stream["flops"]["executed"] / stream["flops"]["model"] < 1.1  # the output layer's logits are made twice
    assert stream["measured"]["examples_per_second"] == pytest.approx(32 / stream["measured"]["seconds"])
    assert stream["memory"]["arguments"] > counts["parameters"] + counts["optimizer"]
    assert list((tmp_path / "trace").rglob("*.pb"))
    profile_report.write(tmp_path / "found.json", found)
    assert json.loads((tmp_path / "found.json").read_text()) == found
    text = profile_report.text(found, memory_gb=1e-9)
    assert "32 examples and 384 tokens" in text and "does not fit 1e-09 GB by the compiler" in text


def test_eight_devices_share(recipe):
    one = profiling.profile(recipe("contrastive", contrastive, remat="full"), jax.devices()[:1])
    eight = profiling.profile(recipe("contrastive", contrastive, remat="full"), jax.devices())
    assert eight["devices"]["mesh"] == {"data": 8, "fsdp": 1, "model": 1}
    of_one, of_eight = one["streams"]["parallel"], eight["streams"]["parallel"]
    assert of_one["collectives"] == {} and of_eight["collectives"]["all-reduce"]["bytes"] >= nbytes_of(one)
    assert of_one["flops"]["model"] == of_eight["flops"]["model"] < 0.8 * of_eight["flops"]["executed"]
    kept = of_one["analytic"]["kept_for_backward"]
    assert of_eight["analytic"]["kept_for_backward"] == kept // 8
    assert "nothing crosses devices" not in profile_report.text(eight)


def nbytes_of(found):
    return found["bytes_per_device"]["gradients"]


def test_what_training_refuses_is_refused(recipe):
    with pytest.raises(ValueError, match="vmsst needs .*reconstruct, which a model of kind 'contrastive'"):
        profiling.profile(recipe("contrastive", vmsst), jax.devices()[:1])


def test_bfloat16_bytes_of_a_cpu_are_not_reported(recipe):
    found = profiling.profile(recipe(dtype="bfloat16"), jax.devices()[:1])
    assert found["streams"]["parallel"]["memory"] is None
    assert "not given, a CPU computes bfloat16 in float32" in profile_report.text(found)


def test_an_unknown_topology_is_named(monkeypatch):
    def refuse(**_):
        raise RuntimeError("no such thing\nmore")

    monkeypatch.setattr("jax.experimental.topologies.get_topology_desc", refuse)
    with pytest.raises(ValueError, match="no TPU topology 'v9:1' can be had: no such thing. Names are like v5e:2x4"):
        runtime.topology("v9:1")


def test_translations_that_a_step_writes_have_no_gradient():
    """Back translation writes one token at a time, at most as many as fit; the gradients come after it."""
    sizes = dict(vocab_size=40, embed_dim=16, num_heads=2, mlp_dim=24, num_layers=1, max_positions=40)
    bert = BertConfig(**sizes, num_languages=2, mlm_head="bias")
    text = RoundTripText("not_registered", "en", batch_size=8, widths=(8,), through="de")
    given = TranslationText("not_registered", batch_size=8, widths=(8,), source="en", target="de")
    made = {
        "mesh": sharding.make_mesh,
        "model": lambda languages: models.build("seq2seq", Seq2SeqConfig(bert, eos_id=2)),
        "languages": ("de", "en"),
        "optimizer": optimizers.adam(schedules.constant(1e-3)),
        "streams": [run.Stream(text, back_translation, "back"), run.Stream(given, translation, "given")],
    }
    found = profiling.profile(made, jax.devices()[:1], steps=1)["streams"]
    assert found["back"]["examples"] == 8 and found["back"]["measured"]["seconds"] > 0
    assert found["back"]["flops"]["model"] > 1.3 * found["given"]["flops"]["model"]
    assert 0.8 < found["back"]["flops"]["executed"] / found["back"]["flops"]["model"] < 1.2


def test_what_the_compiler_finds_too_large_is_said_in_a_line(recipe, monkeypatch):
    def compile(lowered):
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Ran out of memory on HBM, 32.16G of 15.75G.")

    monkeypatch.setattr(jax.stages.Lowered, "compile", compile)
    with pytest.raises(ValueError, match="the stream parallel does not fit: Ran out of .* 15.75G. Spread it over more"):
        profiling.profile(recipe(), jax.devices()[:1])
