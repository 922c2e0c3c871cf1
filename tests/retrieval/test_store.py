"""Embedding a file: resumed after a kill at any block it ends in the same bytes, and nothing is lost on the way."""

import errno
import json

import numpy as np
import pytest

import vmsst_jax
from vmsst_jax import disk
from vmsst_jax.retrieval import embedders, store
from vmsst_jax.retrieval.store import embed_file

LINES = ["the dog barks", "", "a big house", "le chien aboie fort " * 6, "dog", "der hund"] * 4 + ["last one"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(store, "BLOCK", 7)


@pytest.fixture(scope="module")
def embedder(model_dir):
    return vmsst_jax.load(model_dir, batch_size=8)


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "in.txt"
    path.write_text("\n".join(LINES) + "\n")
    return path


def test_row_i_is_line_i(embedder, text, tmp_path):
    about = embed_file(embedder, text, tmp_path / "out.npy")
    found = np.load(tmp_path / "out.npy", mmap_mode="r")
    np.testing.assert_allclose(found, embedder.encode(LINES), atol=1e-6)
    assert about == json.loads((tmp_path / "out.json").read_text())
    assert (about["rows"], about["dim"], about["empty_lines"], about["truncated_lines"]) == (25, 16, 4, 4)
    assert about["model"]["step"] == 7 and about["model"]["layer"] is None and about["model"]["pooling"] == "mean"
    assert about["model"]["tokenizer_sha256"] == embedder.tokenizer.sha256 and not about["normalized"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.txt", "out.json", "out.npy"]


class Killed(BaseException):
    pass


@pytest.mark.parametrize("where", ["_vectors", "_append", "write_json", "replace"])
@pytest.mark.parametrize("call", [1, 3])
def test_resumed_run_gives_the_same_bytes(embedder, text, tmp_path, monkeypatch, where, call):
    embed_file(embedder, text, tmp_path / "whole.npy", dtype="float16", normalize=True)
    module = store.os if where == "replace" else store
    real, calls = getattr(module, where), []

    def dies(*args):
        calls.append(args)
        if len(calls) == call:
            raise Killed
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(module, where, dies)
        with pytest.raises(Killed):
            embed_file(embedder, text, tmp_path / "out.npy", dtype="float16", normalize=True)
    about = embed_file(embedder, text, tmp_path / "out.npy", dtype="float16", normalize=True)
    assert (tmp_path / "out.npy").read_bytes() == (tmp_path / "whole.npy").read_bytes()
    assert about == json.loads((tmp_path / "whole.json").read_text())
    assert not list(tmp_path.glob("out.npy.*"))


def interrupted(embedder, text, output, monkeypatch, **options):
    """A run that dies in its third block."""
    real, calls = store._vectors, []

    def dies(*args):
        calls.append(args)
        if len(calls) == 3:
            raise Killed
        return real(*args)

    with monkeypatch.context() as patch:
        patch.setattr(store, "_vectors", dies)
        with pytest.raises(Killed):
            embed_file(embedder, text, output, **options)


def test_finished_blocks_are_not_embedded_again(embedder, text, tmp_path, monkeypatch):
    interrupted(embedder, text, tmp_path / "out.npy", monkeypatch)
    before = embedder.counts["sentences"]
    about = embed_file(embedder, text, tmp_path / "out.npy")
    assert embedder.counts["sentences"] - before == 25 - 14
    assert (about["empty_lines"], about["truncated_lines"]) == (4, 4)


def test_progress_of_something_else_is_refused(embedder, text, tmp_path, monkeypatch, model_dir):
    out = tmp_path / "out.npy"
    interrupted(embedder, text, out, monkeypatch)
    with pytest.raises(ValueError, match="holds 14 rows of an interrupted run that differs in: model"):
        embed_file(vmsst_jax.load(model_dir, step=3, batch_size=8), text, out)
    with pytest.raises(ValueError, match="differs in: dtype, normalize"):
        embed_file(embedder, text, out, dtype="float16", normalize=True)
    text.write_text("something else\n")
    with pytest.raises(ValueError, match="differs in: input.*--overwrite"):
        embed_file(embedder, text, out)
    embed_file(embedder, text, out, overwrite=True)
    assert np.load(out).shape == (1, 16)


def test_progress_without_its_rows_starts_anew(embedder, text, tmp_path, monkeypatch):
    out = tmp_path / "out.npy"
    interrupted(embedder, text, out, monkeypatch)
    (tmp_path / "out.npy.partial").unlink()
    embed_file(embedder, text, out)
    np.testing.assert_allclose(np.load(out), embedder.encode(LINES), atol=1e-6)


def test_existing_outputs_are_kept(embedder, text, tmp_path):
    for name in ("out.npy", "out.json"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(FileExistsError, match=f"{name} exists; use --overwrite"):
            embed_file(embedder, text, tmp_path / "out.npy")
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()


def test_two_writers(embedder, text, tmp_path):
    with disk.open_locked(tmp_path / "out.npy.partial"), pytest.raises(BlockingIOError, match="another process"):
        embed_file(embedder, text, tmp_path / "out.npy")


def test_full_disk(embedder, text, tmp_path, monkeypatch):
    def full(file, vectors):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(store, "_append", full)
        with pytest.raises(OSError, match="No space left on device; make room there.*out.npy.partial"):
            embed_file(embedder, text, tmp_path / "out.npy")
    assert [p.name for p in tmp_path.iterdir()] == ["in.txt"]
    embed_file(embedder, text, tmp_path / "out.npy")
    assert np.load(tmp_path / "out.npy").shape == (25, 16)


def test_a_full_disk_leaves_no_drafts(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(OSError, match="make room there.*results.json'"):
        store.write_json(tmp_path / "results.json", {})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("damage", ["{", "[]", '{"identity": {}}'])
def test_damaged_progress(embedder, text, tmp_path, monkeypatch, damage):
    out = tmp_path / "out.npy"
    interrupted(embedder, text, out, monkeypatch)
    (tmp_path / "out.npy.progress.json").write_text(damage)
    with pytest.raises(ValueError, match=r"progress\.json is damaged.*--overwrite"):
        embed_file(embedder, text, out)
    embed_file(embedder, text, out, overwrite=True)
    assert np.load(out).shape == (25, 16)


@pytest.mark.parametrize("name", ["o.npy", "o.json", "o.npy.partial", "o.npy.progress.json"])
def test_the_input_is_never_written(embedder, text, tmp_path, name):
    (tmp_path / name).hardlink_to(text)
    for source in (tmp_path / name, text):
        with pytest.raises(ValueError, match="the input .* is among the files to be written"):
            embed_file(embedder, source, tmp_path / "o.npy", overwrite=True)
    assert text.read_text() == "\n".join(LINES) + "\n"


def test_a_line_without_a_vector_is_named(text, tmp_path):
    def embed(texts):
        return np.array([[np.nan if line == "last one" else 1.0] for line in texts])

    with pytest.raises(ValueError, match="in.txt, line 25: the function .* returned NaN or infinity for 'last one'"):
        embed_file(embedders.load(embedder=embed), text, tmp_path / "out.npy")


def test_bad_outputs_and_vectors(embedder, text, tmp_path):
    with pytest.raises(ValueError, match="ends in .npy"):
        embed_file(embedder, text, tmp_path / "out.txt")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        embed_file(embedder, text, tmp_path / "nowhere" / "out.npy")
    with pytest.raises(ValueError, match="dtype is 'int8'"):
        embed_file(embedder, text, tmp_path / "out.npy", dtype="int8")
    huge = embedder.with_params({**embedder.params, "semantic_mean": {"kernel": np.full((16, 16), 1e6, np.float32)}})
    with pytest.raises(ValueError, match="in.txt, line 1: its embedding is too large for float16"):
        embed_file(huge, text, tmp_path / "out.npy", dtype="float16")
