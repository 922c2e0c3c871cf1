"""A corpus in shards gives the answers of the same corpus in one piece, and an interrupted run goes on where it was."""

import errno
import json

import numpy as np
import pytest

from vmsst_jax import disk
from vmsst_jax.retrieval import exact, shards
from vmsst_jax.retrieval.records import Records
from vmsst_jax.retrieval.rows import Joined


def random(rows, width=8, seed=0):
    # Few distinct values make ties, within shards and across them.
    return np.random.default_rng(seed).integers(-2, 3, (rows, width)).astype(np.float32) + 0.25


@pytest.mark.parametrize("cuts", [[100], [7, 50], [1, 2, 3, 99], list(range(10, 100, 10))])
@pytest.mark.parametrize("k", [1, 5, 40, 100])
def test_the_answer_does_not_depend_on_the_cuts(cuts, k):
    queries, corpus = random(9, seed=1), random(100)
    parts = Joined(np.split(corpus, cuts) if cuts != [100] else [corpus])
    scores, rows = exact.top_k(queries, parts, k)
    exact_scores = queries @ corpus.T
    order = np.argsort(-exact_scores, axis=1, kind="stable")[:, :k]  # ties: lowest row first
    np.testing.assert_array_equal(rows, order)
    np.testing.assert_array_equal(scores, np.take_along_axis(exact_scores, order, 1))
    np.testing.assert_array_equal(rows, exact.top_k(queries, corpus, k)[1])


@pytest.mark.parametrize("cuts", [[7, 50], [1, 2, 3, 99], [20, 20, 60]])
def test_slices_across_shards(cuts):
    corpus = random(100)
    parts = Joined(np.split(corpus, cuts))
    assert parts.shape == (100, 8) and len(parts) == 100
    for block in (slice(0, 1), slice(6, 8), slice(0, 100), slice(None), slice(48, 200), slice(100, 120), slice(5, 5)):
        np.testing.assert_array_equal(parts[block], corpus[block])


def test_more_neighbours_than_rows():
    with pytest.raises(ValueError, match="k is 11 but the corpus has 10 rows"):
        exact.top_k(random(1), Joined([random(5), random(5)]), 11)


def test_a_bad_row_is_counted_through_all_shards():
    second = random(5)
    second[2] = np.nan
    with pytest.raises(ValueError, match="row 7 of corpus is no usable vector"):
        exact.top_k(random(1), Joined([random(5), second]), 3)


@pytest.fixture
def records(tmp_path):
    (tmp_path / "corpus.txt").write_text("".join(f"{i}\n" for i in range(1, 26)))
    return Records([tmp_path / "corpus.txt"], float)


class Encoder:
    """x -> [x, 1]; dies at the call of this number."""

    def __init__(self, dies_at=None):
        self.seen, self.calls, self.dies_at = [], 0, dies_at

    def __call__(self, block):
        self.calls += 1
        if self.calls == self.dies_at:
            raise KeyboardInterrupt
        self.seen += block
        return np.stack([np.array(block, np.float32), np.ones(len(block), np.float32)], axis=1)


def embed(records, encoder, folder, identity="a", **options):
    return shards.embed(records, encoder, {"model": identity}, folder, shard_rows=10, progress=False, **options)


def test_shards_on_disk(records, tmp_path):
    vectors = embed(records, encoder := Encoder(), tmp_path / "store", dtype="float16")
    assert vectors.shape == (25, 2)
    assert isinstance(vectors[10:20], np.memmap) and vectors[10:20].dtype == np.float16
    np.testing.assert_array_equal(vectors[:][:, 0], np.arange(1, 26))
    (home,) = (tmp_path / "store").iterdir()
    assert sorted(path.name for path in home.iterdir()) == ["00000.npy", "00001.npy", "00002.npy", "about.json"]
    about = json.loads((home / "about.json").read_text())
    assert about["rows"] == 25 and about["identity"]["model"] == "a" and about["identity"]["dtype"] == "float16"
    embed(records, Encoder(dies_at=1), tmp_path / "store", dtype="float16")  # everything is there
    assert encoder.seen == list(range(1, 26))


@pytest.mark.parametrize("dies_at", [1, 2, 3])
def test_a_killed_run_goes_on_behind_its_last_shard(records, tmp_path, dies_at):
    whole = embed(records, Encoder(), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        embed(records, Encoder(dies_at), tmp_path / "store")
    vectors = embed(records, encoder := Encoder(), tmp_path / "store")
    assert encoder.seen == list(range(1 + 10 * (dies_at - 1), 26))
    np.testing.assert_array_equal(vectors[:], whole[:])


def test_what_decides_the_vectors_decides_the_folder(records, tmp_path):
    embed(records, Encoder(), tmp_path / "store")
    for identity, options in (("b", {}), ("a", {"dtype": "float16"})):
        embed(records, encoder := Encoder(), tmp_path / "store", identity, **options)
        assert len(encoder.seen) == 25
    records.files[0].path.write_text("9\n8\n")
    changed = Records([records.files[0].path], float)
    embed(changed, encoder := Encoder(), tmp_path / "store")
    assert encoder.seen == [9, 8] and len(list((tmp_path / "store").iterdir())) == 4


def test_progress_starts_behind_finished_shards(records, tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt):
        embed(records, Encoder(3), tmp_path / "store")
    shards.embed(records, Encoder(), {"model": "a"}, tmp_path / "store", shard_rows=10)
    shown = capsys.readouterr().err
    assert "goes on behind 20 finished" in shown and "25 of 25" in shown


def test_bad_vectors_and_settings(records, tmp_path):
    def fails(match, encode=lambda block: np.ones((len(block), 2), np.float32), **options):
        with pytest.raises(ValueError, match=match):
            shards.embed(records, encode, {}, tmp_path / "bad", progress=False, **options)

    fails("shard_rows is 0; wanted a whole number", shard_rows=0)
    fails("dtype is 'int8'", dtype="int8")
    fails(
        "corpus.txt, line 13: its embedding has no direction",
        lambda block: np.array([[x != 13, 0] for x in block], np.float32),
        shard_rows=10,
    )
    fails(
        "corpus.txt, line 3: its embedding .* too large for float16; use float32",
        lambda block: np.array([[1e5 if x == 3 else 1, 0] for x in block], np.float32),
        dtype="float16",
    )
    assert not list((tmp_path / "bad").rglob("*.new"))


def test_a_shard_of_another_shape(records, tmp_path):
    embed(records, Encoder(), tmp_path / "store")
    (file,) = (tmp_path / "store").rglob("00001.npy")
    np.save(file, np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"00001.npy holds vectors of shape \(3, 2\), wanted 10 rows .*remove it"):
        embed(records, Encoder(), tmp_path / "store")


def test_two_writers_and_full_disks(records, tmp_path, monkeypatch):
    with pytest.raises(KeyboardInterrupt):
        embed(records, Encoder(1), tmp_path / "store")
    (home,) = (tmp_path / "store").iterdir()
    with disk.open_locked(home / "lock"), pytest.raises(BlockingIOError, match="another process is writing into"):
        embed(records, Encoder(), tmp_path / "store")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(shards.np, "save", full)
        with pytest.raises(OSError, match="make room there"):
            embed(records, Encoder(), tmp_path / "store")
    assert not list(home.glob("*.new"))
    with pytest.raises(OSError, match="option embeddings_dir"):
        embed(records, Encoder(), records.files[0].path)  # a file, where no folder can be made
