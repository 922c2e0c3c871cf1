"""Text files as numbered lines: read twice, once to check and count, once to use, and never held whole.

Lines end at \\n alone, so that line i is line i for every tool that counts newlines (Python's ``splitlines`` also cuts
at U+2028, form feeds and others). A \\r before it is dropped, as is a byte order mark at the start of the file.
"""

from __future__ import annotations

import codecs
import dataclasses
import hashlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

STRIDE = 1024


@dataclasses.dataclass(frozen=True)
class TextFile:
    """What ``scan`` found.

    Attributes:
      path: where.
      rows: number of lines; a last line without \\n counts, nothing after a last \\n does.
      size: bytes.
      sha256: checksum of the bytes.
      modified_ns: time of the last change.
      marks: where every ``STRIDE``-th line begins, in bytes.
    """

    path: Path
    rows: int
    size: int
    sha256: str
    modified_ns: int
    marks: tuple[int, ...]

    def identity(self) -> dict:
        """What makes it this text and no other, wherever it lies."""
        return {"rows": self.rows, "bytes": self.size, "sha256": self.sha256}

    def blocks(self, first: int, size: int) -> Iterator[list[str]]:
        """Lists of ``size`` lines (the last one shorter) from line number ``first`` on, counted from 0.

        Raises ValueError where the file is no longer what ``scan`` read.
        """
        if first >= self.rows:
            return
        with open(self.path, "rb") as file:
            file.seek(self.marks[first // STRIDE])
            for _ in range(first % STRIDE):
                next(file)
            for start in range(first, self.rows, size):
                raw = list(itertools.islice(file, min(size, self.rows - start)))
                stat = os.fstat(file.fileno())
                if (stat.st_size, stat.st_mtime_ns) != (self.size, self.modified_ns):
                    raise ValueError(f"{self.path} has changed while it was being read; start again")
                yield [_decode(line, self.path, start + i) for i, line in enumerate(raw)]

    def line(self, row: int) -> str:
        """Line number ``row``, counted from 0."""
        return next(self.blocks(row, 1))[0]


def scan(path: str | os.PathLike) -> TextFile:
    """Counts and checks the lines of a UTF-8 text file in one pass.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: the file is empty, or not UTF-8 (file and line are named).
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise FileNotFoundError(f"{path} {what}; give a text file with one sentence per line")
    digest, marks, rows, size = hashlib.sha256(), [], 0, 0
    with open(path, "rb") as file:
        stat = os.fstat(file.fileno())
        for raw in file:
            _decode(raw, path, rows)
            digest.update(raw)
            if rows % STRIDE == 0:
                marks.append(size)
            rows += 1
            size += len(raw)
    if not rows:
        raise ValueError(f"{path} is empty; give a text file with one sentence per line")
    return TextFile(path, rows, size, digest.hexdigest(), stat.st_mtime_ns, tuple(marks))


def read_lines(path: str | os.PathLike) -> list[str]:
    """All lines of a small file; raises what ``scan`` does."""
    file = scan(path)
    return next(file.blocks(0, file.rows))


def _decode(raw: bytes, path: Path, row: int) -> str:
    if row == 0:
        raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        return raw.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path}, line {row + 1}: byte {error.start + 1} (0x{raw[error.start]:02x}) is not valid UTF-8; "
            "convert the file first, e.g. with `iconv -f LATIN1 -t UTF-8`"
        ) from None
