"""Files in, pairs out: duplicates, ready vectors, interruptions, and messages about bad input."""

import functools
import json

import numpy as np
import pytest

from vmsst_jax import command, disk, mine, search
from vmsst_jax.retrieval import embedders, mining, mining_files, neighbours, tiles
from vmsst_jax.retrieval.exact import normalize
from vmsst_jax.retrieval.vector_checks import BadVector

LETTERS = "abcdefgh"


def vector(text):
    return [1 + 5 * text.count(letter) for letter in LETTERS]


class Counting:
    """Embeds a text as how often each letter is in it."""

    dim, batch_size, max_length = 8, 4, None
    embedding = {"normalize": False}

    def __init__(self):
        self.counts = {"sentences": 0, "empty": 0, "truncated": 0}
        self.asked = []

    def encode(self, texts, *, batch_size=None, normalize=False, language=None, progress=False):
        self.asked += texts
        return normalize_rows(np.array([vector(text) for text in texts], np.float32))

    def describe(self):
        return {"kind": "letters"}

    def fingerprint(self):
        return "letters"


class Strict(Counting):
    """Has no vector for nothing."""

    def encode(self, texts, **options):
        if any(not text.strip() for text in texts):
            raise BadVector("nothing but zeros", 0)
        return super().encode(texts, **options)


def normalize_rows(x):
    return normalize(x)


SOURCE = ["abc", "", "aab", "abc", "ddd\te", "  ", "fgh"]
TARGET = ["x hgf", "baa", "bca", "baa", "edd d"]


@pytest.fixture
def files(tmp_path):
    for name, lines in (("a", SOURCE), ("b", TARGET)):
        (tmp_path / f"{name}.txt").write_text("".join(line + "\n" for line in lines))
        np.save(tmp_path / f"{name}.npy", np.array([vector(line) for line in lines], np.float16) * 3)
    return tmp_path


def rows(path):
    return [line.split("\t") for line in path.read_text().splitlines()]


WANTED = {("1", "3", "abc", "bca"), ("3", "2", "aab", "baa"), ("5", "5", "ddd e", "edd d"), ("7", "1", "fgh", "x hgf")}


def test_from_text(files):
    embedder, output = Counting(), files / "out.tsv"
    sides = [mining_files.embedded_side(files / f"{name}.txt", embedder, progress=False) for name in "ab"]
    assert [side.rows.tolist() for side in sides] == [[0, 2, 4, 6], [0, 1, 2, 4]]
    about = mining_files.mine(*sides, output, k=2, progress=False)
    found = rows(output)
    assert {tuple(row[1:]) for row in found} == WANTED and about["pairs"] == 4
    scores = [float(row[0]) for row in found]
    assert scores == sorted(scores, reverse=True)
    pairs = mining.mine(*(np.asarray(side.vectors[:]) for side in sides), k=2)
    np.testing.assert_allclose(scores, pairs.scores, atol=1e-6)
    saved = json.loads((files / "out.json").read_text())
    assert saved == about and saved["source"]["distinct"] == 4 and saved["index"] == {"kind": "exact", "recall": 1.0}
    assert sorted(path.name for path in files.glob("out*")) == ["out.json", "out.tsv"]
    mining_files.embedded_side(files / "a.txt", embedder, progress=False)
    # Blank lines are counted, not embedded; the others are kept from the first time.
    assert len(embedder.asked) == len(SOURCE) - 2 + len(TARGET)
    assert (saved["source"]["blank"], saved["target"]["blank"]) == (2, 0)
    assert saved["source"]["model"] == {"kind": "letters", "fingerprint": "letters"}


def test_a_model_without_a_vector_for_nothing(files, monkeypatch, capsys):
    """Blank lines are left out, by mining and by searching, and their number is said."""
    monkeypatch.setattr(embedders, "load", lambda **options: Strict())
    both = ["--checkpoint=m", f"--source={files / 'a.txt'}", f"--target={files / 'b.txt'}", "--k=2"]
    mine.main([*both, f"--output={files / 'out.tsv'}"])
    assert {tuple(row[1:]) for row in rows(files / "out.tsv")} == WANTED
    assert "left out: 2 blank lines of the source, 0 of the target" in capsys.readouterr().out
    search.main(["--checkpoint=m", f"--corpus={files / 'a.txt'}", "--query=gfh", "--top_k=1"])
    shown = capsys.readouterr()
    assert "line 7: fgh" in shown.out and "2 of 7 lines are blank and left out" in shown.err
    mine.main([*both, f"--output={files / 'none.tsv'}", "--threshold=9"])
    assert "warning: 0 pairs are written; a lower --threshold" in capsys.readouterr().err


def test_the_command_with_ready_vectors(files, capsys):
    flags = [f"--source_vectors={files}/a.npy", f"--target_vectors={files}/b.npy", f"--output={files}/out.tsv", "--k=2"]
    command.run(mine.NAME, mine.main, [*flags, f"--source={files}/a.txt", f"--target={files}/b.txt"])
    assert {tuple(row[1:]) for row in rows(files / "out.tsv")} == WANTED
    assert "4 pairs of 4 source and 4 target sentences, exact search" in capsys.readouterr().out
    # Without texts, rows are distinct by their numbers: here blank lines have vectors too.
    command.run(mine.NAME, mine.main, [*flags, "--overwrite", "--threshold=1.05", "--margin=ratio"])
    found = rows(files / "out.tsv")
    assert all(len(row) == 3 and float(row[0]) >= 1.05 for row in found)
    assert {tuple(row[1:]) for row in found} <= {pair[:2] for pair in WANTED} and found


def test_equal_rows_are_found_once():
    blocks = [[b"b", b"", b"a"], [b"a", b"b", b"c", b""]]
    assert mining_files.first_of_equals(blocks).tolist() == [0, 2, 5]


class Killed(BaseException):
    pass


def test_a_killed_run_goes_on(files, monkeypatch):
    monkeypatch.setattr(tiles, "TILE", 16)
    monkeypatch.setattr(tiles, "STEP", 16)
    monkeypatch.setattr(mining_files, "two_way", functools.partial(neighbours.two_way, block=16))
    monkeypatch.setattr(neighbours, "SECONDS_BETWEEN_SAVES", 0)
    draw = np.random.default_rng(0)
    for name in "xy":
        np.save(files / f"{name}.npy", draw.normal(size=(300, 6)).astype(np.float32))
    sides = [mining_files.ready_side(files / f"{name}.npy") for name in "xy"]
    whole = mining_files.mine(*sides, files / "whole.tsv", progress=False)
    search, blocks = neighbours._search_block, []

    def dies(x, y, k, offset, *rest):
        if len(blocks) == 1:
            raise Killed
        blocks.append(offset)
        search(x, y, k, offset, *rest)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(neighbours, "_search_block", dies)
        mining_files.mine(*sides, files / "out.tsv", progress=False)
    assert not (files / "out.tsv").exists() and (files / "out.tsv.neighbours.npz").exists()
    with pytest.raises(ValueError, match=r"out.tsv.neighbours.npz is of an interrupted run that differs in: k"):
        mining_files.mine(*sides, files / "out.tsv", k=5, progress=False)

    def second(x, y, k, offset, *rest):
        assert offset > 0
        blocks.append(offset)
        search(x, y, k, offset, *rest)

    monkeypatch.setattr(neighbours, "_search_block", second)
    assert mining_files.mine(*sides, files / "out.tsv", progress=False) == whole
    assert (files / "out.tsv").read_bytes() == (files / "whole.tsv").read_bytes()
    assert len(blocks) == len(set(blocks)) > 1 and not (files / "out.tsv.neighbours.npz").exists()


def test_an_approximate_index_reports_its_recall(files):
    draw = np.random.default_rng(1)
    x = draw.normal(size=(40, 16)).astype(np.float32)
    np.save(files / "x.npy", x)
    np.save(files / "y.npy", x[::-1] + 0.01)
    sides = [mining_files.ready_side(files / f"{name}.npy") for name in "xy"]
    about = mining_files.mine(*sides, files / "out.tsv", index="approx", progress=False)
    assert about["index"]["kind"] == "approx" and about["index"]["recall"] == 1.0  # a CPU selects exactly
    assert {tuple(row[1:]) for row in rows(files / "out.tsv")} == {(str(i), str(41 - i)) for i in range(1, 41)}


def test_bad_input(files):
    def fails(error, match, function, *args, **options):
        with pytest.raises(error, match=match):
            function(*args, **options)

    ready, mine_files, output = mining_files.ready_side, mining_files.mine, files / "out.tsv"
    a, b = ready(files / "a.npy", files / "a.txt"), ready(files / "b.npy", files / "b.txt")
    fails(ValueError, r"k is 5 but .*a.txt has 4 distinct rows", mine_files, a, b, output, k=5)
    fails(ValueError, "margin is 'x'", mine_files, a, b, output, margin="x")
    fails(ValueError, "index is 'x'; use one of auto, exact", mine_files, a, b, output, index="x")
    fails(ValueError, r"b.txt has 5 lines and .*a.npy 7 rows", ready, files / "a.npy", files / "b.txt")
    fails(FileNotFoundError, "there is no file .*none.npy", ready, files / "none.npy")
    (files / "cut.npy").write_bytes((files / "a.npy").read_bytes()[:-3])
    fails(ValueError, "cut.npy is no whole .npy file", ready, files / "cut.npy")
    np.save(files / "narrow.npy", np.ones((5, 3), np.float32) + np.eye(5, 3))
    narrow = ready(files / "narrow.npy")
    fails(ValueError, r"a.txt has vectors of 8 numbers and .*narrow.npy of 3", mine_files, a, narrow, output, k=2)
    np.save(files / "int.npy", np.ones((5, 3), np.int32))
    fails(ValueError, r"int.npy holds int32 \[5, 3\]; wanted float", ready, files / "int.npy")
    for bad in (np.nan, np.inf, 0):
        broken = np.load(files / "a.npy")
        broken[2] = bad
        np.save(files / "broken.npy", broken)
        side = ready(files / "broken.npy", files / "a.txt")
        fails(ValueError, r"a.txt, line 3: its vector holds NaN or infinity", mine_files, side, b, output, k=2)
        fails(ValueError, r"a.txt, line 3: its vector holds NaN or infinity", mine_files, b, side, output, k=2)
    fails(ValueError, r"a.txt has 4 distinct rows and ScaNN needs at least 16", mine_files, a, b, output, index="scann")
    fails(ValueError, "threshold is nan; wanted a number", mine_files, a, b, output, threshold=float("nan"))
    (files / "blank.txt").write_text("\n \n\n\n\n")
    fails(ValueError, "blank.txt holds nothing but blank lines", ready, files / "b.npy", files / "blank.txt")
    assert not list(files.glob("out*"))
    with disk.open_locked(files / "out.tsv.partial"):
        fails(BlockingIOError, "another process is writing .*out.tsv.partial", mine_files, a, b, output, k=2)


def test_bad_output(files):
    check = mining_files.check_output
    with pytest.raises(ValueError, match="wanted a name that ends in .tsv"):
        check(files / "out.txt", [])
    with pytest.raises(FileNotFoundError, match="make it first"):
        check(files / "none" / "out.tsv", [])
    (files / "in.tsv").write_text("x\n")
    with pytest.raises(ValueError, match="the input .*in.tsv is among the files to be written"):
        check(files / "in.tsv", [None, files / "in.tsv"], True)
    with pytest.raises(FileExistsError, match="in.tsv exists; use --overwrite"):
        check(files / "in.tsv", [])
    assert check(files / "in.tsv", [], True) == files / "in.tsv"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--source=a.txt", "--target=b.txt"], "one of --checkpoint, --sentence_transformers"),
        (["--source=a.txt", "--checkpoint=m"], "--source and --target, or vectors of both"),
        (["--source_vectors=a.npy"], "go together"),
        (["--source_vectors=a.npy", "--target_vectors=b.npy", "--checkpoint=m"], "there is nothing to embed"),
    ],
)
def test_flags_that_make_no_sides(flags, message, capsys):
    with pytest.raises(SystemExit):
        mine.main([*flags, "--output=out.tsv"])
    assert message in capsys.readouterr().err
