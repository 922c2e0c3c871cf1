"""Text files of one record a line, numbered through: read in blocks or one by one, never held whole."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vmsst_jax.retrieval.lines import TextFile, scan

BLOCK = 4096


class Records:
    """The records of one or more files; number i is the i-th line over all of them.

    Args:
      paths: UTF-8 text files.
      parse: line -> record. Its ValueError says what is wrong with a line; file and line number are put before it.
      header: a first line that is no record, where a file has it.

    Attributes:
      files: what ``lines.scan`` found in each.

    Raises (also while records are read):
      FileNotFoundError: no files, or one that does not exist.
      ValueError: a file that is empty, compressed or not UTF-8, that holds nothing but its header, or a bad line.
    """

    def __init__(self, paths: Iterable[str | os.PathLike], parse: Callable[[str], Any], header: str | None = None):
        self.files = [scan(_plain(Path(path))) for path in paths]
        if not self.files:
            raise FileNotFoundError("no files of records are given; name at least one")
        self._parse = parse
        self._skipped = [int(header is not None and file.line(0) == header) for file in self.files]
        for file, skipped in zip(self.files, self._skipped, strict=True):
            if file.rows == skipped:
                raise ValueError(f"{file.path} holds nothing but its header; give a file with records")
        counts = [file.rows - skipped for file, skipped in zip(self.files, self._skipped, strict=True)]
        self._ends = np.cumsum(counts)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, number: int) -> Any:
        return next(self.blocks(range(len(self))[number], size=1))[0]

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain.from_iterable(self.blocks())

    def blocks(self, start: int = 0, stop: int | None = None, size: int = BLOCK) -> Iterator[list]:
        """Lists of at most ``size`` records, from number ``start`` to before ``stop`` (None: to the end)."""
        stop = len(self) if stop is None else stop
        while start < stop:
            index, line = self._place(start)
            end = min(stop, int(self._ends[index]))
            for lines in self.files[index].blocks(line, size):
                lines = lines[: end - start]
                yield [self._record(index, line + i, text) for i, text in enumerate(lines)]
                start, line = start + len(lines), line + len(lines)
                if start >= end:
                    break

    def where(self, number: int) -> str:
        """File and line of a record, for messages."""
        index, line = self._place(number)
        return f"{self.files[index].path}, line {line + 1}"

    def identity(self) -> list[dict]:
        """What makes them these records, wherever the files lie."""
        return [file.identity() for file in self.files]

    def _place(self, number: int) -> tuple[int, int]:
        """File and line, both counted from 0."""
        index = int(np.searchsorted(self._ends, number, side="right"))
        before = int(self._ends[index - 1]) if index else 0
        return index, number - before + self._skipped[index]

    def _record(self, index: int, line: int, text: str) -> Any:
        try:
            return self._parse(text)
        except ValueError as error:
            raise ValueError(f"{self.files[index].path}, line {line + 1}: {error}") from None


def columns(line: str, names: Sequence[str]) -> list[str]:
    """A line's fields between tabs; ValueError unless there is one for each of ``names``."""
    fields = line.split("\t")
    if len(fields) != len(names):
        raise ValueError(
            f"found {len(fields)} columns between tabs ({line[:80]!r}); wanted {len(names)}: {', '.join(names)}"
        )
    return fields


def json_object(line: str, *keys: str) -> dict:
    """A line's JSON object; ValueError for anything else, or where one of ``keys`` is missing."""
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"malformed JSON ({error}): {line[:80]!r}; wanted one object a line") from None
    if not isinstance(found, dict):
        raise ValueError(f"found the JSON of a {type(found).__name__} ({line[:80]!r}); wanted an object")
    if missing := [key for key in keys if key not in found]:
        raise ValueError(f"the object has no {', '.join(missing)}; it has {', '.join(map(str, found))}")
    return found


def checksum(files: Iterable[TextFile]) -> str:
    """SHA-256 over the names and contents of files, in their order."""
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.path.name} {file.sha256}\n".encode())
    return digest.hexdigest()


def _plain(path: Path) -> Path:
    if path.suffix in (".gz", ".bz2", ".xz", ".zst"):
        raise ValueError(f"{path} is compressed; unpack it first, since records are found again by their line")
    return path
