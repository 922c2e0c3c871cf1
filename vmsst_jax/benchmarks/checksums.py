"""Checksums of the data that a result belongs to."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path


def folder(path: str | os.PathLike, files: Iterable[Path] | None = None) -> str:
    """SHA-256 over the names and contents of a file, or of all files in a folder and those below it but hidden ones.

    Args:
      path: the file or folder.
      files: only these.

    Raises FileNotFoundError where there is nothing.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}")
    if files is None:
        files = [path] if path.is_file() else (f for f in path.rglob("[!.]*") if f.is_file())
    if not (files := sorted(files)):
        raise FileNotFoundError(f"{path} has no files")
    digest = hashlib.sha256()
    for file in files:
        stat = file.stat()
        name = os.path.relpath(file, path)
        digest.update(f"{name}\0{_contents(file, stat.st_size, stat.st_mtime_ns)}\n".encode())
    return digest.hexdigest()


def of_file(path: str | os.PathLike) -> str:
    """SHA-256 of a file's contents, as ``sha256sum`` prints it; FileNotFoundError where there is none."""
    stat = os.stat(path)
    return _contents(Path(path), stat.st_size, stat.st_mtime_ns)


@functools.cache
def _contents(file: Path, size: int, modified_ns: int) -> str:
    """A file's checksum, read once in a process: many models are scored on the same data."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
