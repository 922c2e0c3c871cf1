"""Foreign models where one of our own is wanted: converted on first use, kept, and converted anew when they change."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import jax

from vmsst_jax.conversion import read, write
from vmsst_jax.interop import t5x

logger = logging.getLogger(__name__)

SUFFIX = ".vmsst_jax"


def own_form(path: str | os.PathLike, cache_dir: str | os.PathLike | None = None) -> str | os.PathLike:
    """``path`` itself, or the model directory with our copy of the foreign model that it holds.

    Args:
      cache_dir: where copies are kept; None keeps them beside the model.

    Raises:
      ValueError, FileNotFoundError: the model can't be read (see ``read.read``), or the folder can't be written.
    """
    if read.form_of(path) in (None, "vmsst_jax"):
        return path
    source = Path(path).expanduser().resolve()
    folder = place(source, cache_dir)
    found = fingerprint(source)
    if _is_current(folder, found):
        return folder
    if jax.process_count() > 1:
        raise ValueError(
            f"{path} is not in our own form; convert it first: python -m vmsst_jax.convert --input={path} --output=DIR"
        )
    beside = next(p for p in folder.parents if p.exists())
    if not os.access(beside, os.W_OK):
        raise PermissionError(f"{beside} is not writable; say with --cache_dir where to keep the converted model")
    model = read.read(source)
    model.origin["fingerprint"] = found
    for note in model.notes:
        logger.warning("%s: %s", path, note)
    write.write(model, folder, "vmsst_jax", overwrite=True)
    logger.warning("%s was converted to %s, which is used from now on", path, folder)
    return folder


def place(source: Path, cache_dir: str | os.PathLike | None) -> Path:
    """The folder of a model's copy."""
    if cache_dir is None:
        return source.with_name(source.name + SUFFIX)
    return (
        Path(cache_dir).expanduser() / f"{source.name}.{hashlib.sha256(str(source).encode()).hexdigest()[:8]}{SUFFIX}"
    )


def fingerprint(source: Path) -> str:
    """A checksum over names, sizes and times of a model's files; not over their contents, which may be gigabytes."""
    folder = source if source.is_dir() else source.parent
    if (t5x_folder := t5x.find(source)) is not None:
        folder = t5x_folder
    deep = folder == source or t5x_folder is not None
    found = sorted(p for p in (folder.rglob("*") if deep else folder.glob("*")) if p.is_file())
    digest = hashlib.sha256()
    for file in found:
        stat = file.stat()
        digest.update(f"{file.relative_to(folder)}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _is_current(folder: Path, found: str) -> bool:
    from vmsst_jax.training import checkpoint

    if not folder.is_dir():
        return False
    try:
        return checkpoint.read_host(folder).get("origin", {}).get("fingerprint") == found
    except (ValueError, OSError):  # no whole copy: it is made anew
        return False
