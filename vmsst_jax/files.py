"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import pathlib


def write_atomically(path: str | os.PathLike, contents: bytes) -> None:
    """Puts ``contents`` at ``path`` through a draft beside it, so that a kill at any moment leaves the old or the new.

    A file that has these contents already is left alone.
    """
    path = pathlib.Path(path)
    if path.is_file() and path.read_bytes() == contents:
        return
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(draft, "wb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
