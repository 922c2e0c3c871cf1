"""What a run refuses before it begins, and what it keeps when the disk fails."""

import json
import os
import types

import pytest

from vmsst_jax import disk
from vmsst_jax.training import logging
from vmsst_jax.training.run import check_text
from vmsst_jax.training.same_config import FREE_BINDINGS, check_same_config

QUIET = ("train.evaluators=[]", "train.reports=[]")


@pytest.mark.parametrize(
    ("binding", "message"),
    [
        ("TRAIN_STEPS=-1", "Rhythm.steps is -1; wanted a whole number of at least 0"),
        ("TRAIN_STEPS=2.5", "Rhythm.steps is 2.5"),
        ("TRAIN_STEPS='abc'", "Rhythm.steps is 'abc'"),
        ("Rhythm.save_every=None", "Rhythm.save_every is None; wanted a number"),
        ("Rhythm.evaluate_every=0", "Rhythm.evaluate_every is 0; .*, or None for never"),
        ("train.seed=-1", "train.seed is -1"),
        ("train.max_length=1", "train.max_length is 1; wanted at least 2"),
        ("train.streams=[]", "train.streams is empty"),
        ("ValidationLoss.batches=0", "ValidationLoss.batches is 0"),
        ("MODEL_DIR='/dev/null'", "MODEL_DIR is '/dev/null', and no folder can be made there .File exists.: name a"),
        ("MODEL_DIR='/dev/null/x'", "MODEL_DIR is '/dev/null/x', and no folder can be made there"),
        ("MODEL_DIR=''", "MODEL_DIR is ''; wanted the name of a folder"),
    ],
)
def test_wrong_settings_are_refused_at_once(run_recipe, tmp_path, binding, message):
    with pytest.raises(ValueError, match=message):
        run_recipe(tmp_path, binding)
    assert not (tmp_path / "checkpoints").exists()


def test_an_unknown_best_metric_costs_no_step(run_recipe, tmp_path):
    with pytest.raises(ValueError, match="best_metric is 'nope', and the evaluators give retrieval.* Step 3 is saved"):
        run_recipe(tmp_path, "Saving.best_metric='nope'", "Rhythm.evaluate_every=3", "train.evaluators=[@HeldOut()]")
    assert (tmp_path / "checkpoints" / "3").is_dir()


def test_a_macro_that_changes_what_a_step_means_is_noticed():
    saved = "TRAIN_STEPS = 8\nRhythm.steps = %TRAIN_STEPS\nvmsst.kl_warmup_steps = %TRAIN_STEPS\n"
    longer = saved.replace("8", "12")
    with pytest.raises(ValueError, match=r"vmsst.kl_warmup_steps: 8 in the checkpoint, 12 in this run"):
        check_same_config(saved, longer, ignore=("Rhythm.steps",))
    without = "\n".join(line for line in saved.splitlines() if "kl_warmup" not in line)
    check_same_config(without, without.replace("8", "12"), ignore=("Rhythm.steps",))


def test_a_kill_while_the_log_is_cut_back_loses_nothing(tmp_path, monkeypatch):
    log = tmp_path / "metrics.jsonl"
    log.write_text("".join(json.dumps({"step": s}) + "\n" for s in range(1, 9)) + '{"step": 9, "lo')
    before = log.read_bytes()

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            logging.truncate_log(log, 5)
    assert log.read_bytes() == before
    logging.truncate_log(log, 5)
    assert [json.loads(line)["step"] for line in log.read_text().splitlines()] == [1, 2, 3, 4, 5]


def test_a_full_disk_ends_the_run_with_a_message(tmp_path, monkeypatch):
    log = logging.Log(tmp_path, steps=3)
    log.write(1, "train", {"loss": 1.0})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log._board, "add", full)
    with pytest.raises(ValueError, match="cannot write the log of step 2 to .*: No space left on device. Make room"):
        log.write(2, "train", {"loss": 1.0})
    log.close()


def test_tensorboard_reads_what_is_written(tmp_path):
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = logging.Log(tmp_path, steps=3)
    for step in (1, 2):
        log.write(step, "train", {"loss": 0.5 * step}, stream="parallel", speed={"pairs_per_second": 10.0})
    log.close()
    events = reader.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/parallel/loss")] == [(1, 0.5), (2, 1.0)]


def test_atomic_files(tmp_path):
    path = tmp_path / "a"
    disk.write_atomically(path, b"one")
    stamp = path.stat().st_mtime_ns
    disk.write_atomically(path, b"one")  # left alone
    assert path.stat().st_mtime_ns == stamp
    disk.write_atomically(path, b"two")
    assert path.read_bytes() == b"two" and list(tmp_path.iterdir()) == [path]


def test_text_that_changed_is_noticed():
    data = types.SimpleNamespace(checksums=lambda: {"a": "1" * 64, "b": "2" * 64})
    check_text("parallel", None, data)  # of a checkpoint that kept none
    check_text("parallel", {"a": "1" * 64, "b": "2" * 64}, data)
    with pytest.raises(ValueError, match="stream 'ccp' is not what .* trained on: b .SHA-256 3{12} then, 2{12} now"):
        check_text("ccp", {"a": "1" * 64, "b": "3" * 64}, data)
    with pytest.raises(ValueError, match="trained on: c, b .SHA-256 3{12} then, none now"):
        check_text("ccp", {"a": "1" * 64, "c": "3" * 64}, data)


@pytest.mark.parametrize(
    "name", ["Documents.cache", "mlm/MaskedText.cache", "ParallelText.cache", "common_crawl.data_root"]
)
def test_a_run_goes_on_where_its_data_lie_elsewhere(name):
    saved = f"CACHE = 'here'\n{name} = %CACHE\nvmsst.lam = 1.0\n"
    check_same_config(saved, saved.replace("here", "there"), ignore=FREE_BINDINGS)
    with pytest.raises(ValueError, match=r"vmsst.lam: 1.0 in the checkpoint, 2.0 in this run"):
        check_same_config(saved, saved.replace("1.0", "2.0"), ignore=FREE_BINDINGS)
