"""The command alone, with a stand-in model; tests/retrieval runs it on a real checkpoint."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from vmsst_jax import command, evaluate
from vmsst_jax.retrieval import embedder


class Letters:
    """Embeds a sentence by its first letter, whatever its case."""

    languages = SimpleNamespace(codes=("en", "de"))
    batch_size = 1
    counts = {"sentences": 6, "empty": 0, "truncated": 0}

    def __init__(self, directory):
        self.source = {"directory": str(directory / "checkpoints" / "9"), "step": 9}

    def encode(self, texts, normalize, progress):
        return np.eye(26, dtype=np.float32)[[ord(text[0].lower()) - ord("a") for text in texts]]

    def describe(self):
        return {**self.source, "layer": None, "pooling": "mean"}

    def fingerprint(self):
        return "abc"


@pytest.fixture
def run(tmp_path, monkeypatch):
    for ending, text in (("deu", "Hund\nMaus\nKatze\n"), ("eng", "hound\nmouse\ncat\n")):
        (tmp_path / f"tatoeba.deu-eng.{ending}").write_text(text)
    monkeypatch.setattr(embedder, "load", lambda path, *args, **options: Letters(tmp_path / path))

    def run(*flags):
        argv = ["--checkpoint=model", "--benchmark=tatoeba", f"--data_dir={tmp_path}", *flags]
        try:
            command.run(evaluate.NAME, evaluate.main, argv)
        except SystemExit as stopped:
            return stopped.code
        return 0

    return run


def test_prints_a_table_and_writes_results(run, tmp_path, capsys):
    assert run("--languages=de") == 0
    path = tmp_path / "model" / "evaluations" / "tatoeba" / "step_9" / "results.json"
    out = capsys.readouterr().out
    assert "66.7" in out and str(path) in out
    saved = json.loads(path.read_text())
    assert saved["per_language"]["deu"]["xx->en"] == pytest.approx(2 / 3)
    assert saved["model"]["step"] == 9 and saved["model"]["fingerprint"] == "abc"


def test_an_existing_result_is_kept(run, tmp_path, capsys):
    out = tmp_path / "results"
    assert run(f"--output={out}") == 0
    before = (out / "results.json").read_bytes()
    assert run(f"--output={out}") == 2
    assert "results.json exists; use --overwrite" in capsys.readouterr().err
    assert (out / "results.json").read_bytes() == before
    assert run(f"--output={out}", "--overwrite") == 0


def test_bad_flags(run, capsys):
    for flag, message in (
        ("--benchmark=tatoba", "there is no benchmark 'tatoba'; known: tatoeba"),
        ("--languages=xyz", "the data has no language 'xyz'"),
        ("--data_dir=/nowhere", "there is no folder /nowhere"),
    ):
        assert run(flag) == 2
        err = capsys.readouterr().err
        assert err.startswith("vmsst_jax.evaluate: error: ") and message in err and err.count("\n") == 1
