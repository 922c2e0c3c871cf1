"""Embeddings of corpora larger than memory: one .npy file a shard, resumed behind the last finished one.

The folder's name holds a checksum over everything that decides the vectors, so another model, text or setting never
meets them, and a second search costs no second pass.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from vmsst_jax import checks, disk
from vmsst_jax.retrieval import cache
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.records import Records
from vmsst_jax.retrieval.rows import Joined
from vmsst_jax.retrieval.store import DTYPES, versions, write_json
from vmsst_jax.retrieval.vector_checks import naming

HOME = cache.place().parent / "passages"
# Rows of a shard: what a killed run does again at most.
ROWS = 65_536


def embed(
    records: Records,
    encode: Callable[[list], np.ndarray],
    identity: dict,
    folder: str | os.PathLike | None = None,
    *,
    shard_rows: int = ROWS,
    dtype: str = "float32",
    progress: bool = True,
) -> Joined:
    """The vectors of all records, from the disk where they are there already.

    Args:
      records: what to embed.
      encode: list of n records -> float32 [n, D].
      identity: what else decides the vectors, ready for JSON: model, language, prefix, ...
      folder: where to keep a folder of shards; None is the user's own ~/.cache/vmsst_jax/passages.
      shard_rows: rows of a shard; a run that was interrupted goes on behind the last finished one.
      dtype: "float32" or "float16", how they are stored.
      progress: show rate and time left.

    Returns:
      [records, D] in their order, read from memory maps by slices: for ``exact`` and ``nearest``.

    Raises:
      ValueError: a bad record, setting or kept shard, or a vector too large for float16.
      OSError: the folder cannot be written.
      BlockingIOError: another process is embedding the same.
    """
    checks.whole("shard_rows", shard_rows)
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; use one of {', '.join(DTYPES)}")
    identity = {**identity, "input": records.identity(), "dtype": dtype, "shard_rows": shard_rows}
    key = hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()[:16]
    first = records.files[0].path
    home = (Path(folder).expanduser() if folder else HOME) / f"{first.name}.{key}"
    spans = [(start, min(start + shard_rows, len(records))) for start in range(0, len(records), shard_rows)]
    files = {home / f"{i:05d}.npy": span for i, span in enumerate(spans)}
    if not all(file.exists() for file in files):
        _embed_missing(records, encode, files, identity, progress)
    shards = [np.load(file, mmap_mode="r", allow_pickle=False) for file in files]
    for (file, (start, stop)), shard in zip(files.items(), shards, strict=True):
        if shard.shape != (stop - start, shards[0].shape[-1]):
            raise ValueError(
                f"{file} holds vectors of shape {shard.shape}, wanted {stop - start} rows as wide as those of the "
                "first shard; remove it and start again"
            )
    return Joined(shards)


def _embed_missing(
    records: Records, encode, files: dict[Path, tuple[int, int]], identity: dict, progress: bool
) -> None:
    """Writes the files that are not there yet; each is to hold the rows from the first number to before the second."""
    home = next(iter(files)).parent
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = disk.open_locked(home / "lock")
    except BlockingIOError:
        raise BlockingIOError(f"another process is writing into {home}; wait for it, then start again") from None
    except OSError as error:
        raise OSError(
            error.errno,
            f"{os.strerror(error.errno)}; say with the option embeddings_dir where vectors can be kept",
            os.fspath(home),
        ) from None
    done = sum(stop - start for file, (start, stop) in files.items() if file.exists())
    with lock, Progress(f"embedding {records.files[0].path.name}", len(records), done, shown=progress) as shown:
        write_json(home / "about.json", {"rows": len(records), "identity": identity, "versions": versions()})
        for file, span in files.items():
            if not file.exists():
                _write(file, _vectors(records, encode, *span, np.dtype(identity["dtype"]), shown))
        (home / "lock").unlink()


def _vectors(records: Records, encode, start: int, stop: int, dtype: np.dtype, shown: Progress) -> np.ndarray:
    """Rows ``start`` to before ``stop`` as they are stored."""
    parts = []
    for block in records.blocks(start, stop):
        here = functools.partial(_where, records, start)
        with np.errstate(over="ignore"), cache.paused(), naming(here):  # these rows are kept here
            part = encode(block).astype(dtype)
        usable = np.isfinite(part).all(axis=1) & part.any(axis=1)
        if not usable.all():
            where = here(int(np.argmin(usable)))
            raise ValueError(f"{where}: its embedding has no direction or is too large for {dtype}; use float32")
        parts.append(part)
        start += len(block)
        shown.update(len(block))
    return np.concatenate(parts)


def _where(records: Records, start: int, row: int) -> str:
    return records.where(start + row)


def _write(file: Path, vectors: np.ndarray) -> None:
    """Writes a shard whole or not at all, also when the process dies."""
    with disk.writing(file), disk.replacing(file, alone=True) as opened:
        np.save(opened, vectors)
