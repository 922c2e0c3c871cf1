import pytest

from vmsst_jax.retrieval import lines
from vmsst_jax.retrieval.lines import read_lines, scan


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"\n\n", ["", ""]),
        (b"a\r\nb\rc\r\n", ["a", "b\rc"]),
        ("\ufeffa\u2028b\x0bc\x85d\n\ufeffe".encode(), ["a\u2028b\x0bc\x85d", "\ufeffe"]),
    ],
)
def test_only_newlines_end_lines(tmp_path, data, expected):
    path = tmp_path / "x.txt"
    path.write_bytes(data)
    assert read_lines(path) == expected
    assert scan(path).rows == len(expected) and scan(path).size == len(data)


def test_blocks_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.setattr(lines, "STRIDE", 4)
    path = tmp_path / "x.txt"
    path.write_text("".join(f"line {i}\n" for i in range(22)))
    text = scan(path)
    for first in (0, 3, 4, 21, 22):
        blocks = list(text.blocks(first, 5))
        assert sum(blocks, []) == [f"line {i}" for i in range(first, 22)]
        assert all(len(block) == 5 for block in blocks[:-1])
    assert text.line(13) == "line 13"


def test_bad_files(tmp_path):
    path = tmp_path / "x.txt"
    with pytest.raises(FileNotFoundError, match="x.txt does not exist"):
        scan(path)
    with pytest.raises(FileNotFoundError, match="is a folder"):
        scan(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(ValueError, match="x.txt is empty"):
        scan(path)
    path.write_bytes(b"good\nna\xefve\n")
    with pytest.raises(ValueError, match=r"x.txt, line 2: byte 3 \(0xef\) is not valid UTF-8"):
        scan(path)


def test_a_file_that_changes_while_it_is_read(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("a\nb\nc\n")
    blocks = scan(path).blocks(0, 1)
    assert next(blocks) == ["a"]
    with path.open("a") as file:
        file.write("d\n")
    with pytest.raises(ValueError, match="has changed"):
        next(blocks)
