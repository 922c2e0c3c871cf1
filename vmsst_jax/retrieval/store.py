"""Embeddings on disk: a text file becomes ``OUT.npy`` [rows, D], row i = line i, beside ``OUT.json`` that says how.

The work is done in blocks. Finished rows lie in ``OUT.npy.partial``, and ``OUT.npy.progress.json`` says how many there
are and of what; killed at any moment, the same call goes on behind the last finished block and ends in the same bytes.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import sys
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

import vmsst_jax
from vmsst_jax import disk
from vmsst_jax.retrieval import cache
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import TextFile, scan
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.vector_checks import naming

# Lines between two saves of the progress: what a killed run does again at most.
BLOCK = 4096
DTYPES = ("float32", "float16")


class Paths(NamedTuple):
    """The four files of one output."""

    vectors: Path
    about: Path
    partial: Path
    progress: Path


def check_output(output: str | os.PathLike, source: str | os.PathLike, overwrite: bool = False) -> Paths:
    """Where the files of the output for the text ``source`` lie, to be called before anything slow.

    Raises:
      ValueError: the name does not end in .npy, or one of the files is the text itself.
      FileNotFoundError: its folder does not exist.
      FileExistsError: the output exists and ``overwrite`` is False.
    """
    output = disk.check_place(output, (".npy",))
    beside = (output.with_name(output.name + ending) for ending in (".partial", ".progress.json"))
    paths = Paths(output, output.with_suffix(".json"), *beside)
    disk.check_apart(source, paths)
    # A description without vectors is what a run killed on its very last step leaves, if its progress lies beside it.
    for path in (paths.vectors, paths.about):
        if path.exists() and not overwrite and not (path is paths.about and paths.progress.exists()):
            raise FileExistsError(f"{path} exists; use --overwrite to replace it, or another --output")
    return paths


def embed_file(
    embedder: Embedder,
    source: str | os.PathLike | TextFile,
    output: str | os.PathLike,
    *,
    dtype: str = "float32",
    normalize: bool = False,
    overwrite: bool = False,
    progress: bool = True,
    skip_blank: bool = False,
) -> dict:
    """Embeds every line of a text file, empty ones too, in memory that does not grow with the file.

    Args:
      embedder: the model.
      source: path of a UTF-8 text file, or what ``lines.scan`` made of it.
      output: path ending in .npy; the description goes to the same name with .json.
      dtype: "float32" or "float16", how vectors are stored.
      normalize: store unit length vectors.
      overwrite: replace an existing output, and drop what an interrupted run of other contents left.
      progress: show rate and time left.
      skip_blank: don't embed blank lines, whose rows are zeros then: not every model has a vector for nothing.

    Returns:
      The contents of OUT.json.

    Raises:
      FileNotFoundError, ValueError: the input is missing, empty or not UTF-8, or changes meanwhile; an interrupted run
        left rows of another input, model or setting; a vector is not finite or too large for float16.
      FileExistsError: the output exists.
      BlockingIOError: another process is writing it.
    """
    paths = check_output(output, source.path if isinstance(source, TextFile) else source, overwrite)
    if dtype not in DTYPES:
        raise ValueError(f"dtype is {dtype!r}; use one of {', '.join(DTYPES)}")
    text = source if isinstance(source, TextFile) else scan(source)
    identity = {
        "input": text.identity(),
        "model": embedder.fingerprint(),
        "batch_size": embedder.batch_size,
        "dtype": dtype,
        "normalize": normalize,
        **({"blank_lines": "zeros"} if skip_blank else {}),
    }
    with disk.open_alone(paths.partial) as file:
        state = _resume(paths, identity, overwrite)
        if os.fstat(file.fileno()).st_size < state["bytes"]:  # the progress is there but its rows are gone
            state = _fresh(identity)
        if not state["rows"]:
            paths.progress.unlink(missing_ok=True)
        try:
            with disk.writing(paths.partial):
                _write_rows(embedder, text, paths, file, state, progress)
        except BaseException:
            if not paths.progress.exists():  # no rows to go on from
                paths.partial.unlink()
            raise
        about = _about(embedder, text, state, identity)
        write_json(paths.about, about)
        os.replace(paths.partial, paths.vectors)
    paths.progress.unlink()
    return about


def _write_rows(embedder: Embedder, text: TextFile, paths: Paths, file: BinaryIO, state: dict, progress: bool) -> None:
    """Embeds the lines that ``state`` lacks and brings it, its file and the rows in ``file`` up to date."""
    dtype = np.dtype(state["identity"]["dtype"])
    header = _start(file, state["rows"], text.rows, embedder.dim, dtype)
    with Progress(f"embedding {text.path}", text.rows, state["rows"], shown=progress) as shown:
        for lines in text.blocks(state["rows"], BLOCK):
            vectors = _vectors(embedder, lines, state, dtype, text.path)
            state["bytes"] = _append(file, vectors)
            write_json(paths.progress, state)
            shown.update(len(lines))
    if file.tell() != header + text.rows * embedder.dim * dtype.itemsize:
        raise ValueError(f"{paths.partial} has {file.tell()} bytes, not those of {text.rows} rows; use --overwrite")


def _vectors(embedder: Embedder, lines: list[str], state: dict, dtype, path: Path) -> np.ndarray:
    """One block's rows as they are stored; brings ``state`` up to date."""
    before, identity = dict(embedder.counts), state["identity"]
    wanted = [row for row, line in enumerate(lines) if line.strip() or "blank_lines" not in identity]
    exact = np.zeros((len(lines), embedder.dim), np.float32)
    with cache.paused(), naming(lambda i: f"{path}, line {state['rows'] + wanted[i] + 1}"):  # these rows are kept here
        if wanted:
            exact[wanted] = embedder.encode([lines[row] for row in wanted], normalize=identity["normalize"])
    with np.errstate(over="ignore"):
        vectors = exact.astype(dtype)
    if not np.isfinite(vectors).all():
        row = state["rows"] + int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise ValueError(f"{path}, line {row + 1}: its embedding is too large for {dtype}; use float32 or --normalize")
    state["rows"] += len(lines)
    state["empty"] += len(lines) - len(wanted)
    for name in ("empty", "truncated"):
        state[name] += embedder.counts[name] - before[name]
    return vectors


def _fresh(identity: dict) -> dict:
    """Progress: of what, finished rows and the partial file's size with them, empty and truncated lines among them."""
    return {"identity": identity, "rows": 0, "bytes": 0, "empty": 0, "truncated": 0}


def _resume(paths: Paths, identity: dict, overwrite: bool) -> dict:
    """The state to go on from, see ``_fresh``."""
    if not paths.progress.exists():
        return _fresh(identity)
    state = _read_progress(paths.progress)
    if state and state["identity"] == identity:
        return state
    if overwrite:
        return _fresh(identity)
    if not state:
        raise ValueError(
            f"{paths.progress} is damaged: how far an interrupted run came is not known. Use --overwrite to start anew"
        )
    other = ", ".join(name for name in identity if identity[name] != state["identity"].get(name))
    raise ValueError(
        f"{paths.partial} holds {state['rows']} rows of an interrupted run that differs in: {other}. "
        "Repeat that run to finish it, or use --overwrite to start anew"
    )


def _read_progress(path: Path) -> dict:
    """What ``_fresh`` describes, or {} if the file is damaged."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return {}
    if not isinstance(state, dict) or not isinstance(state.get("identity"), dict):
        return {}
    return state if all(isinstance(state.get(name), int) for name in ("rows", "bytes", "empty", "truncated")) else {}


def _start(file: BinaryIO, done: int, rows: int, dim: int, dtype: np.dtype) -> int:
    """Writes the .npy header, or cuts off what lies behind the rows that are done. Returns the header's size."""
    file.seek(0)
    what = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": (rows, dim)}
    np.lib.format.write_array_header_1_0(file, what)
    header = file.tell()
    # An ordinary file, not a memory map: on a full disk a write fails with a message, a touched page kills the process.
    file.truncate(header + done * dim * dtype.itemsize)
    file.seek(0, os.SEEK_END)
    return header


def _append(file: BinaryIO, vectors: np.ndarray) -> int:
    """Writes rows through to the disk and returns the file's size."""
    data = memoryview(vectors).cast("B")
    while data:
        data = data[file.write(data) :]
    os.fsync(file.fileno())
    return file.tell()


def _about(embedder: Embedder, text: TextFile, state: dict, identity: dict) -> dict:
    return {
        "rows": state["rows"],
        "dim": embedder.dim,
        "dtype": identity["dtype"],
        "normalized": identity["normalize"] or embedder.embedding["normalize"],
        "empty_lines": state["empty"],
        **{name: identity[name] for name in ("blank_lines",) if name in identity},
        "truncated_lines": state["truncated"],
        "input": {"path": str(text.path), **text.identity()},
        "model": {**embedder.describe(), "fingerprint": identity["model"]},
        "versions": versions(),
    }


def versions() -> dict:
    """Of Python and of the packages that decide a number."""
    packages = {name: importlib.metadata.version(name) for name in ("jax", "jaxlib", "flax", "numpy", "sentencepiece")}
    return {"vmsst_jax": vmsst_jax.__version__, "python": sys.version.split()[0], **packages}


def write_json(path: Path, contents: dict) -> None:
    """Writes a JSON file whole or not at all, also when the process dies."""
    text = json.dumps(contents, indent=1, ensure_ascii=False, allow_nan=False)
    with disk.writing(path):
        disk.write_atomically(path, text.encode())
