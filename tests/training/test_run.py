"""Whole runs of a tiny recipe on real text: what they leave behind, and how they go on."""

import json
import math

import jax
import numpy as np
import pytest

from vmsst_jax.training.checkpoint import load_model, read_host


@pytest.fixture(scope="module")
def straight(workplace, tmp_path_factory):
    """The model directory of an uninterrupted run of 12 steps with evaluations, and what it printed."""
    import contextlib
    import io

    from vmsst_jax import train

    folder, out = tmp_path_factory.mktemp("straight"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.chdir(workplace)
        patch.syspath_prepend(workplace)
        train.main(["--gin_file=tiny.gin", f'--gin.MODEL_DIR="{folder}"', "--gin.Rhythm.evaluate_every=6"])
    return folder, out.getvalue()


def params_of(folder):
    return jax.device_get(load_model(folder).params)


def test_what_a_run_prints(straight):
    _, out = straight
    for words in (
        "all parameters",
        "have more tokens than their stream's max_length and are cut",
        "mesh data 8 x fsdp 1 x model 1",
        "16 pairs an update",
        "steps an epoch",
        "KL weight at step 12: 0.1",
        "step 12/12",
        "pairs/s",
        "ETA",
        "nats per pair",
        "with another pair's z_sem",
        "xx->en trained",
    ):
        assert words in out


def test_what_a_run_leaves_behind(straight, records):
    folder, out = straight
    log = records(folder)
    assert [r["step"] for r in log if r["kind"] == "train"] == list(range(1, 13))
    assert all(math.isfinite(r["loss"]) for r in log if r["kind"] == "train")
    evaluations = [r for r in log if r["kind"] == "evaluation"]
    assert [r["step"] for r in evaluations] == [6, 12]
    assert {"validation_loss", "validation_reconstruction", "retrieval", "retrieval_xx_en"} <= evaluations[0].keys()
    assert (folder / "report.txt").read_text() in out
    report = json.loads((folder / "report.json").read_text())
    latent_use, held_out = report["reports"]
    assert report["step"] == 12 and [len(sha256) for sha256 in report["data"].values()] == [64]
    assert (
        f"({latent_use['latent_use']:+.1%})" in out and f"{latent_use['reconstruction_own']:.2f} with the right" in out
    )
    assert held_out["retrieval"] == evaluations[-1]["retrieval"] and "untrained_retrieval" in held_out
    assert list((folder / "tensorboard").iterdir())
    host = read_host(folder)
    assert host["text"] == {"parallel": report["data"]}
    assert host["languages"] == ["en", "fr"] and host["model"]["kind"] == "vmsst"
    assert "vmsst.kl_warmup_steps = 120" in host["gin"]
    assert load_model(folder).tokenizer.serialized == (folder / "tokenizer.model").read_bytes()


def test_no_steps_leave_the_untrained_model(straight, run_recipe, tmp_path, records):
    folder = run_recipe(tmp_path, "TRAIN_STEPS=0", "Rhythm.evaluate_every=6")
    (log,) = records(folder)
    held_out = json.loads((folder / "report.json").read_text())["reports"][1]
    assert (log["kind"], log["step"]) == ("evaluation", 0)
    assert log["retrieval"] == held_out["retrieval"] == held_out["untrained_retrieval"]
    assert load_model(folder).tokenizer.serialized == (folder / "tokenizer.model").read_bytes()
    run_recipe(tmp_path, "TRAIN_STEPS=2", "train.evaluators=[]", "train.reports=[]")
    whole = [record for record in records(straight[0]) if record["kind"] == "train"]
    assert records(folder)[1:] == whole[:2]  # it goes on as any other run


def test_training_moves_parameters_and_lowers_the_loss(run_recipe, tmp_path, records):
    log = records(run_recipe(tmp_path, "TRAIN_STEPS=40", "train.evaluators=[]", "train.reports=[]"))
    losses = [r["reconstruction"] for r in log]
    assert np.mean(losses[-5:]) < 0.9 * np.mean(losses[:5])


def test_a_run_in_pieces_equals_the_straight_one(straight, run_recipe, tmp_path, records):
    folder, _ = straight
    for steps in (3, 6, 7, 12):
        run_recipe(tmp_path, f"TRAIN_STEPS={steps}", "Rhythm.evaluate_every=6")
    pieces = records(tmp_path)
    # the pieces evaluate at their last steps too
    assert [r for r in pieces if r["kind"] == "train"] == [r for r in records(folder) if r["kind"] == "train"]
    jax.tree.map(np.testing.assert_array_equal, params_of(tmp_path), params_of(folder))


def test_a_damaged_newest_checkpoint_is_passed_over(straight, run_recipe, tmp_path, records, caplog):
    folder, _ = straight
    run_recipe(tmp_path, "TRAIN_STEPS=8", "train.evaluators=[]", "train.reports=[]")
    files = [f for f in (tmp_path / "checkpoints" / "8" / "state").rglob("*") if f.is_file()]
    biggest = max(files, key=lambda f: f.stat().st_size)
    biggest.write_bytes(biggest.read_bytes()[: biggest.stat().st_size // 2])
    run_recipe(tmp_path, "train.evaluators=[]", "train.reports=[]")
    assert "step 8" in caplog.text and "going on from step 4" in caplog.text
    assert records(tmp_path) == [r for r in records(folder) if r["kind"] == "train"]


def test_seqio_streaming_resumes_exactly(run_recipe, tmp_path, records):
    options = ("ParallelText.cache='none'", "train.evaluators=[]", "train.reports=[]")
    whole = run_recipe(tmp_path / "whole", "TRAIN_STEPS=8", *options)
    for steps in (5, 8):
        pieces = run_recipe(tmp_path / "pieces", f"TRAIN_STEPS={steps}", *options)
    assert records(pieces) == records(whole)


def test_another_configuration_is_refused_with_what_differs(straight, run_recipe):
    folder, _ = straight
    with pytest.raises(ValueError, match=r"warmup_rsqrt.base: 0.01 in the checkpoint, 0.02 in this run"):
        run_recipe(folder, "warmup_rsqrt.base=0.02", "Rhythm.evaluate_every=6")


def test_another_tokenizer_is_refused(run_recipe, tmp_path):
    options = ("TRAIN_STEPS=2", "train.evaluators=[]", "train.reports=[]")
    run_recipe(tmp_path, *options)
    (tmp_path / "tokenizer.model").write_bytes(b"something else")
    with pytest.raises(ValueError, match="is not the vocabulary that the checkpoints"):
        run_recipe(tmp_path, *options)


def test_divergence_names_the_step_and_the_pairs(run_recipe, tmp_path, records):
    with pytest.raises(ValueError, match=r"step \d+, stream parallel: .*loss = (nan|inf).* pair ids are \d+, \d+"):
        run_recipe(tmp_path, "warmup_rsqrt.base=1e30", "warmup_rsqrt.warmup=1", "train.evaluators=[]")
    assert all(math.isfinite(r["loss"]) for r in records(tmp_path))


def test_a_batch_must_divide_over_the_devices(run_recipe, tmp_path):
    with pytest.raises(ValueError, match=r"12"):
        run_recipe(tmp_path, "ParallelText.batch_size=12")


def test_warm_start_takes_over_parameters(straight, run_recipe, tmp_path):
    folder, _ = straight
    options = ("TRAIN_STEPS=1", "train.evaluators=[]", "train.reports=[]", "warmup_rsqrt.base=1e-12")
    vocabulary = ("train.tokenizer=@sentencepiece_file", f'sentencepiece_file.path="{folder}/tokenizer.model"')
    started = run_recipe(tmp_path / "a", *options, *vocabulary, f'train.init_checkpoint="{folder}"')
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), params_of(started), params_of(folder)
    )
    with pytest.raises(ValueError, match=r"wi_0/kernel: \(16, 32\) in this model, \(16, 16\) in the checkpoint"):
        run_recipe(tmp_path / "b", *options, *vocabulary, f'train.init_checkpoint="{folder}"', "T5Config.mlp_dim=32")


def test_warm_start_matches_languages_by_code(straight, run_recipe, tmp_path):
    folder, _ = straight
    vocabulary = ("train.tokenizer=@sentencepiece_file", f'sentencepiece_file.path="{folder}/tokenizer.model"')
    missing = "train.init_allow_missing=['.*_tags/embedding']"
    started = run_recipe(
        tmp_path, 'LANGUAGES=("de", "fr", "en")', "TRAIN_STEPS=1", "train.evaluators=[]", "train.reports=[]",
        "warmup_rsqrt.base=1e-12", *vocabulary, f'train.init_checkpoint="{folder}"', missing,
    )  # fmt: skip
    for table in ("language_tags", "decoder_tags"):
        new, old = (params_of(f)[table]["embedding"] for f in (started, folder))
        np.testing.assert_allclose(new[1:], old[::-1], rtol=1e-5, atol=1e-6)
        assert np.abs(new[0] - old).max() > 0.1
