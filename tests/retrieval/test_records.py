"""Records of several files are numbered through, and what is wrong with one is said with its file and line."""

import pytest

from vmsst_jax.retrieval.records import Records, checksum, columns, json_object


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.txt").write_text("HEAD\n0\n1\n2\n", encoding="utf-8")
    (tmp_path / "b.txt").write_text("3\n4", encoding="utf-8")
    (tmp_path / "c.txt").write_text("HEAD\n" + "".join(f"{i}\n" for i in range(5, 3000)), encoding="utf-8")
    return [tmp_path / name for name in ("a.txt", "b.txt", "c.txt")]


def test_numbers_go_through_all_files(files):
    records = Records(files, int, header="HEAD")
    assert len(records) == 3000 and list(records) == list(range(3000))
    for number in (0, 2, 3, 4, 5, 1028, 1029, 1030, 2999):
        assert records[number] == number
    assert records.where(2) == f"{files[0]}, line 4"
    assert records.where(3) == f"{files[1]}, line 1"
    assert records.where(5) == f"{files[2]}, line 2"
    with pytest.raises(IndexError):
        records[3000]


@pytest.mark.parametrize("size", [1, 2, 4, 5000])
@pytest.mark.parametrize(("start", "stop"), [(0, None), (1, 4), (2, 8), (4, 4), (2990, 3000)])
def test_blocks(files, size, start, stop):
    blocks = list(Records(files, int, header="HEAD").blocks(start, stop, size))
    assert [number for block in blocks for number in block] == list(range(start, 3000 if stop is None else stop))
    assert all(0 < len(block) <= size for block in blocks)


def test_checksum_knows_names_and_contents(files, tmp_path):
    before = checksum(Records(files, int, header="HEAD").files)
    files[1].write_text("3\n5")
    assert checksum(Records(files, int, header="HEAD").files) != before
    files[1].write_text("3\n4")
    assert checksum(Records(files, int, header="HEAD").files) == before
    renamed = files[1].rename(tmp_path / "d.txt")
    assert checksum(Records([files[0], renamed, files[2]], int, header="HEAD").files) != before


def test_bad_files(files, tmp_path):
    with pytest.raises(FileNotFoundError, match="no files of records"):
        Records([], int)
    with pytest.raises(FileNotFoundError, match="nothing.txt does not exist"):
        Records([tmp_path / "nothing.txt"], int)
    with pytest.raises(ValueError, match="a.jsonl.gz is compressed; unpack it first"):
        Records([tmp_path / "a.jsonl.gz"], int)
    (tmp_path / "head.txt").write_text("HEAD\n")
    with pytest.raises(ValueError, match="head.txt holds nothing but its header"):
        Records([files[1], tmp_path / "head.txt"], int, header="HEAD")
    (tmp_path / "b.txt").write_text("3\nvier\n")
    records = Records(files, int, header="HEAD")
    assert records[3] == 3
    with pytest.raises(ValueError, match="b.txt, line 2: .*'vier'"):
        list(records)


def test_lines_of_columns_and_of_json():
    assert columns("a\t\tb c", ("x", "y", "z")) == ["a", "", "b c"]
    with pytest.raises(ValueError, match="found 2 columns.*wanted 3: x, y, z"):
        columns("a\tb", ("x", "y", "z"))
    assert json_object('{"id": 1, "text": "a"}', "id") == {"id": 1, "text": "a"}
    for line, match in (
        ('{"id": 1', "malformed JSON"),
        ("[1]", "the JSON of a list"),
        ('{"id": 1}', "has no text; it has id"),
    ):
        with pytest.raises(ValueError, match=match):
            json_object(line, "id", "text")
