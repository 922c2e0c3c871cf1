"""Whole files: lines, pairs, what is said of them; an interrupted run ends in the same bytes; outputs are not lost."""

import json

import pytest

from vmsst_jax.retrieval.lines import scan
from vmsst_jax.translation import files


@pytest.fixture
def text(tmp_path):
    words = "red green blue old new big small river hill town king queen ship road".split()
    lines = [
        f"the {a} and the {b}" if (i + j) % 5 else "" for i, a in enumerate(words) for j, b in enumerate(words[:3])
    ]
    path = tmp_path / "in.txt"
    path.write_text("".join(line + "\n" for line in lines), "utf-8")
    return scan(path)


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    monkeypatch.setattr(files, "BLOCK", 8)


def run(translator, text, output, **options):
    return files.translate_file(translator, text, output, "en", "de", progress=False, **options)


def test_lines_and_pairs(make, text, tmp_path):
    translator = make()
    about = run(translator, text, tmp_path / "out", pairs=tmp_path / "pairs.tsv")
    originals = text.path.read_text().splitlines()
    wanted = make().translate(originals, "en", "de")
    assert (tmp_path / "out").read_text("utf-8") == "".join(f"{line}\n" for line in wanted)
    pairs = [line.split("\t") for line in (tmp_path / "pairs.tsv").read_text("utf-8").splitlines()]
    assert pairs == [["en", "de", a, b] for a, b in zip(originals, wanted, strict=True) if a and b]
    assert about == json.loads((tmp_path / "out.json").read_text())
    assert (about["rows"], about["empty"]) == (len(originals), originals.count("")) and about["tokens"] > 0
    assert about["pairs"]["rows"] == len(pairs) and about["languages"] == ["en", "de"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.txt", "out", "out.json", "pairs.tsv"]


def test_an_interrupted_run_goes_on_and_ends_in_the_same_bytes(make, text, tmp_path, monkeypatch):
    run(make(), text, tmp_path / "straight", pairs=tmp_path / "straight.tsv")
    translator, calls = make(), []

    def breaks(lines, *args, **options):
        calls.append(len(lines))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return type(translator).translate(translator, lines, *args, **options)

    monkeypatch.setattr(translator, "translate", breaks)
    options = {"pairs": tmp_path / "out.tsv"}
    with pytest.raises(KeyboardInterrupt):
        run(translator, text, tmp_path / "out", **options)
    assert json.loads((tmp_path / "out.progress.json").read_text())["rows"] == 16 and not (tmp_path / "out").exists()
    with open(tmp_path / "out.partial", "a") as torn:
        torn.write("half a li")
    with pytest.raises(ValueError, match="holds 16 lines of an interrupted run that differs in: model"):
        run(make(max_length=12), text, tmp_path / "out", **options)
    about = run(make(), text, tmp_path / "out", **options)
    for name in ("", ".tsv"):
        assert (tmp_path / f"out{name}").read_bytes() == (tmp_path / f"straight{name}").read_bytes()
    assert {k: about[k] for k in ("rows", *files.COUNTS)} == {
        k: json.loads((tmp_path / "straight.json").read_text())[k] for k in ("rows", *files.COUNTS)
    }


def test_outputs_are_not_lost(make, text, tmp_path):
    (tmp_path / "out").write_text("mine\n")
    with pytest.raises(FileExistsError, match="out exists; use --overwrite"):
        run(make(), text, tmp_path / "out")
    run(make(), text, tmp_path / "out", overwrite=True)
    assert len((tmp_path / "out").read_text().splitlines()) == text.rows
    for output, pairs, message in (
        (text.path, None, "the input .* is among the files"),
        (tmp_path / "o", tmp_path / "o", "would be written twice"),
    ):
        with pytest.raises(ValueError, match=message):
            files.check_output(output, pairs, text.path, overwrite=True)
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="folder is a folder; give the name of a file"):
        files.check_output(tmp_path / "o", tmp_path / "folder", text.path, overwrite=True)
    with pytest.raises(FileNotFoundError, match="there is no folder .*nowhere"):
        files.check_output(tmp_path / "nowhere" / "o", None, text.path)


def test_an_empty_set_of_pairs_is_an_error(make, tmp_path):
    (tmp_path / "blank").write_text("\n \n")
    with pytest.raises(ValueError, match="of its 2 lines none has both text and a translation"):
        run(make(), scan(tmp_path / "blank"), tmp_path / "out", pairs=tmp_path / "p.tsv")
    assert not (tmp_path / "p.tsv").exists()


def test_progress_says_tokens_a_second(make):
    translator = make()
    progress = files.TokenProgress(translator, "translating", 10, shown=False)
    translator.counts["tokens"] += 500
    progress.update(4)
    assert progress.line(2.0) == "translating: 4 of 10 sentences, 2/s, 0 min 03 s left, 250 tokens/s"
