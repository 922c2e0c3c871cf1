"""Mining two files: distinct sentences in, OUT.tsv with their likely translations out, OUT.json beside it.

Vectors of text files are kept by content (``text_vectors``), and what the search for neighbours has finished lies in
OUT.tsv.neighbours.npz until OUT.tsv is whole: killed at any moment, the same call goes on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from vmsst_jax import disk
from vmsst_jax.retrieval import mining, nearest, text_vectors
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import TextFile, scan
from vmsst_jax.retrieval.neighbours import Neighbours, two_way
from vmsst_jax.retrieval.rows import Chosen, Unit
from vmsst_jax.retrieval.scann_index import LEAST
from vmsst_jax.retrieval.store import BLOCK, versions, write_json

# Pairs whose texts are in memory at a time.
PAIRS = 1_000_000


@dataclasses.dataclass(frozen=True)
class Side:
    """The distinct sentences of one file.

    Attributes:
      path: of the text, or of the vectors where there is no text.
      text: what ``lines.scan`` found; None where there are only vectors.
      vectors: [n, D], unit length, read by slices.
      rows: int64 [n], the row (line number - 1) of each in the file, rising: the first of equal ones.
      identity: what decides the vectors, ready for JSON.
      blank: number of blank lines, which are left out.
      model: what embedded them, ready for JSON; None for ready vectors.
    """

    path: Path
    text: TextFile | None
    vectors: np.ndarray | Chosen | Unit
    rows: np.ndarray
    identity: dict
    blank: int = 0
    model: dict | None = None

    def describe(self) -> dict:
        """For OUT.json."""
        model = {} if self.model is None else {"model": self.model}
        return {"path": str(self.path), "distinct": len(self.rows), "blank": self.blank, **self.identity, **model}


def embedded_side(path, embedder: Embedder, cache_dir=None, progress: bool = True) -> Side:
    """A text file whose lines are embedded, or were before.

    Raises:
      FileNotFoundError, ValueError: missing, empty, not UTF-8, or nothing but blank lines; what ``text_vectors.load``
        raises.
    """
    text = scan(path)
    rows, blank = _distinct_lines(text)
    vectors = text_vectors.load(embedder, text, cache_dir, progress)
    fingerprint = embedder.fingerprint()
    side = _side(text.path, text, vectors, rows, {**text.identity(), "model": fingerprint})
    return dataclasses.replace(side, blank=blank, model={**embedder.describe(), "fingerprint": fingerprint})


def ready_side(vectors_path, text_path=None) -> Side:
    """Vectors from a .npy file of any length and float type, with or without their text.

    Lines are distinct by their text; without one, rows by their numbers.

    Raises:
      FileNotFoundError, ValueError: a file is missing or damaged, no float [rows, D], or text and vectors have other
        numbers of rows. A row without direction is named once the search comes to it.
    """
    path = Path(vectors_path)
    vectors = _open(path)
    text = scan(text_path) if text_path is not None else None
    if text is not None and text.rows != len(vectors):
        raise ValueError(
            f"{text.path} has {text.rows} lines and {path} {len(vectors)} rows; row i has to be the vector of line i"
        )
    stat = path.stat()
    identity = {"vectors": str(path.resolve()), "shape": list(vectors.shape), "modified_ns": stat.st_mtime_ns}
    blank = 0
    if text is None:
        blocks = (vectors[start : start + BLOCK] for start in range(0, len(vectors), BLOCK))
        rows = first_of_equals([row.tobytes() for row in block] for block in blocks)
    else:
        (rows, blank), identity = _distinct_lines(text), identity | text.identity()
    side = _side(path if text is None else text.path, text, vectors, rows, identity)
    return dataclasses.replace(side, blank=blank)


def _side(path: Path, text: TextFile | None, vectors, rows: np.ndarray, identity: dict) -> Side:
    unit = Unit(vectors, lambda row: f"{path}, {'row' if text is None else 'line'} {row + 1}")
    return Side(path, text, unit if len(rows) == len(vectors) else Chosen(unit, rows), rows, identity)


def _open(path: Path) -> np.ndarray:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; give float vectors [rows, D] as vmsst_jax.embed writes them")
    try:
        vectors = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is no whole .npy file: {error}") from None
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or not vectors.size:
        raise ValueError(f"{path} holds {vectors.dtype} {list(vectors.shape)}; wanted float vectors [rows, D]")
    return vectors


def _distinct_lines(text: TextFile) -> tuple[np.ndarray, int]:
    """The rows of lines that are distinct, see ``first_of_equals``, and the number of blank ones."""
    blank = 0

    def contents() -> Iterator[list[bytes]]:
        nonlocal blank
        for lines in text.blocks(0, BLOCK):
            blank += sum(not line.strip() for line in lines)
            yield [line.encode() if line.strip() else b"" for line in lines]

    rows = first_of_equals(contents())
    if not len(rows):
        raise ValueError(f"{text.path} holds nothing but blank lines; give a text file with one sentence per line")
    return rows, blank


def first_of_equals(blocks: Iterable[Sequence[bytes]]) -> np.ndarray:
    """The numbers, counted through all blocks, of the first of all equal ones; empty ones don't count: int64 [n]."""
    digests, empty = [np.empty((0, 2), "<u8")], [np.empty(0, bool)]
    for block in blocks:
        joined = b"".join(hashlib.blake2b(item, digest_size=16).digest() for item in block)
        digests.append(np.frombuffer(joined, "<u8").reshape(-1, 2))
        empty.append(np.array([not item for item in block], bool))
    high, low = np.concatenate(digests).T
    order = np.lexsort((low, high))  # stable: equal ones stay in their order
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(high[order]) != 0) | (np.diff(low[order]) != 0)
    first = np.sort(order[new])
    return first[~np.concatenate(empty)[first]]


def check_output(output, inputs: Iterable[str | os.PathLike | None], overwrite: bool = False) -> Path:
    """The path of the .tsv to be written, to be called before anything slow.

    Raises:
      ValueError: the name does not end in .tsv, or is one of the inputs.
      FileNotFoundError: its folder does not exist.
      FileExistsError: it exists and ``overwrite`` is False.
    """
    output = disk.check_place(output, (".tsv",))
    for path in inputs:
        if path is not None:
            disk.check_apart(path, (output, output.with_suffix(".json")))
    if output.exists() and not overwrite:
        raise FileExistsError(f"{output} exists; use --overwrite to replace it, or another --output")
    return output


def mine(
    source: Side,
    target: Side,
    output: str | os.PathLike,
    *,
    k: int = mining.K,
    margin: str = "ratio",
    retrieval: str = "max",
    threshold: float | None = None,
    index: str = "exact",
    progress: bool = True,
) -> dict:
    """Writes ``output``: score, source line, target line (from 1) and, where known, both texts, tabs between.

    Pairs go from the highest score down. A tab within a text becomes a space.

    Args:
      source, target: the sides.
      output: path of the .tsv; what was run goes to the same name with .json.
      k: neighbours on the other side that a sentence is compared with.
      margin, retrieval: see ``mining``.
      threshold: least score of a pair; None writes all.
      index: "exact", or a kind of ``nearest`` for one approximate search in each direction.
      progress: show rate and time left.

    Returns:
      The contents of the .json.

    Raises:
      ValueError: unknown settings, k larger than a side, sides of other width, an unusable vector, or what an
        interrupted run with other inputs left.
      BlockingIOError: another process is writing the output.
    """
    mining.check_settings(margin, retrieval)
    if threshold is not None and not math.isfinite(threshold):
        raise ValueError(f"threshold is {threshold}; wanted a number such as 1.06, or none for all pairs")
    kind = nearest.choose(len(source.rows), len(target.rows), index)
    for side in (source, target):
        if not 1 <= k <= len(side.rows):
            raise ValueError(f"k is {k} but {side.path} has {len(side.rows)} distinct rows; ask for fewer neighbours")
        if kind == "scann" and len(side.rows) < LEAST:
            raise ValueError(
                f"{side.path} has {len(side.rows)} distinct rows and ScaNN needs at least {LEAST}; search exactly"
            )
    widths = source.vectors.shape[1], target.vectors.shape[1]
    if widths[0] != widths[1]:
        raise ValueError(f"{source.path} has vectors of {widths[0]} numbers and {target.path} of {widths[1]}")
    output = Path(output)
    saved = output.with_name(output.name + ".neighbours.npz")
    partial = output.with_name(output.name + ".partial")
    with disk.open_alone(partial) as file:
        try:
            neighbours, used = _neighbours(source, target, k, index, saved, progress)
            pairs = mining.margin_pairs(neighbours, margin, retrieval)
            pairs = pairs if threshold is None else pairs.from_score(threshold)
            with disk.writing(partial):
                file.truncate(0)
                _write(file, pairs, source, target)
        except BaseException:
            partial.unlink()
            raise
        settings = {"k": k, "margin": margin, "retrieval": retrieval, "threshold": threshold, "index": used}
        sides = {"source": source.describe(), "target": target.describe()}
        about = {"pairs": len(pairs.scores), **settings, **sides, "versions": versions()}
        write_json(output.with_suffix(".json"), about)
        os.replace(partial, output)
    saved.unlink(missing_ok=True)
    return about


def _neighbours(source: Side, target: Side, k: int, index: str, saved: Path, progress: bool) -> tuple[Neighbours, dict]:
    """Both sides' neighbours, and how they were found."""
    x, y = source.vectors, target.vectors
    if nearest.choose(len(x), len(y), index) == "exact":
        identity = {"source": source.identity, "target": target.identity}
        return two_way(x, y, k, progress=progress, saved=saved, identity=identity), {"kind": "exact", "recall": 1.0}
    there, back = nearest.top_k(x, y, k, index), nearest.top_k(y, x, k, index)
    recall = min(there.index["recall"], back.index["recall"])
    return Neighbours(*there[:2], *back[:2]), {**there.index, "recall": recall}


def _write(file: BinaryIO, pairs: mining.Pairs, source: Side, target: Side) -> None:
    for start in range(0, len(pairs.scores), PAIRS):
        part = mining.Pairs(*(column[start : start + PAIRS] for column in pairs))
        rows = source.rows[part.source], target.rows[part.target]
        columns: list[Iterator[str]] = [
            (f"{score:.6f}" for score in part.scores),
            *((str(row + 1) for row in side) for side in rows),
        ]
        for side, wanted in zip((source, target), rows, strict=True):
            if side.text is not None:
                columns.append(map(_lines_of(side.text, wanted), wanted.tolist()))
        lines = "".join("\t".join(cells) + "\n" for cells in zip(*columns, strict=True)).encode()
        while lines:
            lines = lines[file.write(lines) :]
    os.fsync(file.fileno())


def _lines_of(text: TextFile, rows: np.ndarray) -> Callable[[int], str]:
    """A function from each of these rows to its line, without tabs."""
    wanted, known = np.unique(rows), {}
    for number, lines in enumerate(text.blocks(0, BLOCK)):
        first = number * BLOCK
        for row in wanted[slice(*np.searchsorted(wanted, (first, first + len(lines))))].tolist():
            known[row] = lines[row - first].replace("\t", " ")
    return known.__getitem__
