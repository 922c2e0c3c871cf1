"""The command alone, with a stand-in model; tests/retrieval runs it on a real checkpoint."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from vmsst_jax import command, embed
from vmsst_jax.retrieval import embedder, store


class Lengths:
    """Embeds a sentence as (its number of letters, 1)."""

    dim, batch_size, max_length = 2, 4, 10
    embedding = {"normalize": False}

    def __init__(self):
        self.counts = {"sentences": 0, "empty": 0, "truncated": 0}

    def encode(self, texts, batch_size=None, normalize=False):
        self.counts["empty"] += sum(not text for text in texts)
        return np.array([[len(text), 1] for text in texts], np.float32)

    def describe(self):
        return {"step": 1}

    def fingerprint(self):
        return "abc"


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the command on ``data``: (exit code, flags that load got)."""
    loaded = {}

    def load(path, step=None, **options):
        loaded.update(path=path, step=step, **options)
        return Lengths()

    monkeypatch.setattr(embedder, "load", load)

    def run(data, *flags, output="out.npy"):
        if data is not None:
            (tmp_path / "in.txt").write_bytes(data)
        argv = ["--checkpoint=model", f"--input={tmp_path}/in.txt", f"--output={tmp_path / output}", *flags]
        try:
            command.run(embed.NAME, embed.main, argv)
        except SystemExit as stopped:
            return SimpleNamespace(code=stopped.code, loaded=loaded)
        return SimpleNamespace(code=0, loaded=loaded)

    return run


def test_one_row_per_line(run, tmp_path, capsys):
    flags = ("--step=best", "--max_length=7", "--batch_size=3", "--dtype=float16", "--prefix=query: ", "--layer=0")
    done = run("one\n\nthree\u2028four\r\nfive".encode(), *flags)
    said = {"path": "model", "step": "best", "max_length": 7, "batch_size": 3, "prefix": "query: ", "layer": 0}
    assert done.code == 0 and done.loaded == said
    found = np.load(tmp_path / "out.npy")
    assert found.dtype == np.float16 and found[:, 0].tolist() == [3, 0, 10, 4]
    assert json.loads((tmp_path / "out.json").read_text())["rows"] == 4
    assert "4 rows of 2 float16, 1 lines empty" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "in.txt does not exist"),
        (b"", "in.txt is empty"),
        (b"a\nb\n\xff\n", "in.txt, line 3: byte 1 (0xff) is not valid UTF-8"),
    ],
)
def test_bad_input_fails_before_the_model_is_loaded(run, tmp_path, capsys, data, message):
    done = run(data)
    err = capsys.readouterr().err
    assert done.code == 2 and not done.loaded and not list(tmp_path.glob("out*"))
    assert err.startswith("vmsst_jax.embed: error: ") and message in err and err.count("\n") == 1


def test_existing_output(run, tmp_path, capsys):
    (tmp_path / "out.npy").write_text("mine")
    assert run(b"a\n").code == 2
    assert "exists; use --overwrite" in capsys.readouterr().err
    assert (tmp_path / "out.npy").read_text() == "mine"
    assert run(b"a\n", "--overwrite").code == 0 and np.load(tmp_path / "out.npy").shape == (1, 2)


def test_bad_flags(run, capsys):
    for flag in ("--step=last", "--batch_size=0", "--dtype=int8", "--normalise"):
        assert run(b"a\n", flag).code == 2
        assert "vmsst_jax.embed: error: " in capsys.readouterr().err
    assert run(b"a\n", output="out.bin").code == 2
    assert "ends in .npy" in capsys.readouterr().err


def test_a_later_change_of_the_input_is_noticed(run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(store, "BLOCK", 1)
    real = store._append

    def append(file, vectors):
        with open(tmp_path / "in.txt", "a") as text:
            text.write("more\n")
        return real(file, vectors)

    monkeypatch.setattr(store, "_append", append)
    assert run(b"a\nb\nc\n").code == 2
    assert "has changed while it was being read" in capsys.readouterr().err
    assert not (tmp_path / "out.npy").exists()
