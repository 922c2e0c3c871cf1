"""Vectors that were computed once: kept by model and text, so that a second benchmark or run costs no second pass.

A shelf is a folder of one model with one way to embed. It holds segments: ``NAME.npy`` [rows, ...] float32 beside
``NAME.keys.npy``, which says of which text each row is. A segment appears whole, its keys last, and never changes, so
any number of processes may read and write at once and be killed at any moment: at worst a text is embedded twice.
"""

from __future__ import annotations

import contextlib
import contextvars
import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

import vmsst_jax
from vmsst_jax import disk
from vmsst_jax.retrieval.embedder import check_texts
from vmsst_jax.retrieval.exact import normalize as normalize_rows
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.vector_checks import BadVector

logger = logging.getLogger(__name__)

# Texts embedded between two writes: what a killed run embeds again at most.
BLOCK = 4096
# A text's checksum in two halves, and whether the model cut it.
KEY = np.dtype([("high", "<u8"), ("low", "<u8"), ("truncated", "?")])
FOLDER = "embeddings"
STALE = 24 * 3600  # seconds after which a draft has no writer any more


_pausing = contextvars.ContextVar("pausing", default=False)


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Inside, embedders embed without looking up or keeping anything: for corpora whose vectors are kept elsewhere."""
    token = _pausing.set(True)
    try:
        yield
    finally:
        _pausing.reset(token)


def place(cache_dir: str | os.PathLike | None = None) -> Path:
    """The folder of the cache: in ``cache_dir``, or in the user's own ~/.cache/vmsst_jax."""
    return Path(cache_dir or Path.home() / ".cache" / "vmsst_jax").expanduser() / FOLDER


def cached(embedder, cache_dir: str | os.PathLike | None = None):
    """``embedder`` behind a cache in ``place(cache_dir)``; one that needs none, as ready vectors, comes back itself."""
    return Cached(embedder, place(cache_dir)) if getattr(embedder, "kept", True) else embedder


class Cached:
    """An embedder that looks every text up before it embeds it.

    What is kept are the embedder's own vectors, before ``normalize``. What makes them other vectors makes another
    shelf: the embedder's fingerprint (parameters, tokenizer, layer, pooling, prefix, max_length ...), the version of
    this package, and the language where the embedder treats languages differently. A folder that can't be written costs
    a warning, not the run.

    Args:
      embedder: any embedder.
      folder: where the shelves are.

    Attributes:
      counts: {"sentences", "empty", "truncated"} asked for, found ones included.
      found, computed: of the texts asked for, those that were there and those that were embedded now.
    """

    def __init__(self, embedder, folder: str | os.PathLike):
        self.embedder, self.folder = embedder, Path(folder)
        self.counts = {"sentences": 0, "empty": 0, "truncated": 0}
        self._looked_up = {"found": 0, "computed": 0}
        self._print = embedder.fingerprint()
        self._shelves: dict[str, Shelf] = {}

    dim = property(lambda self: self.embedder.dim, doc="Width of the vectors.")
    languages = property(lambda self: self.embedder.languages, doc="The model's language table.")
    embedding = property(lambda self: self.embedder.embedding, doc="How it embeds, see ``Embedder``.")
    source = property(lambda self: self.embedder.source, doc="Where the model comes from.")
    batch_size = property(lambda self: self.embedder.batch_size, doc="The model's.")
    found = property(lambda self: self._looked_up["found"], doc="See the class.")
    computed = property(lambda self: self._looked_up["computed"], doc="See the class.")
    max_length = property(lambda self: self.embedder.max_length, doc="The model's.")

    def describe(self) -> dict:
        """The embedder's own."""
        return self.embedder.describe()

    def fingerprint(self) -> str:
        """The embedder's own: where vectors come from doesn't change them."""
        return self._print

    def without_prefix(self) -> Cached:
        """The embedder's own, behind the same cache; what either is asked for is in the ``counts`` of both."""
        other = Cached(self.embedder.without_prefix(), self.folder)
        other.counts, other._looked_up = self.counts, self._looked_up
        return other

    def encode(
        self,
        texts: Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        progress: bool = False,
        *,
        language: str | None = None,
    ) -> np.ndarray:
        """float32 [len(texts), D], row i = sentence i, as the embedder's own ``encode``.

        The array may be a private view of a file on disk: texts that were embedded together take no memory.
        """

        def embed(block: list[str]) -> np.ndarray:
            return self.embedder.encode(block, batch_size=batch_size, language=language)

        rows = self._rows("vectors", texts, language, embed, progress)
        return normalize_rows(rows, texts) if len(rows) and normalize else rows

    def encode_layers(self, texts: Sequence[str], *, language: str | None = None, progress: bool = False) -> np.ndarray:
        """float32 [num_layers + 1, len(texts), D], as the embedder's own ``encode_layers``."""
        if not len(texts):
            return self.embedder.encode_layers(texts, language=language)

        def embed(block: list[str]) -> np.ndarray:
            return np.moveaxis(self.embedder.encode_layers(block, language=language), 0, 1)

        return np.moveaxis(self._rows("layers", texts, language, embed, progress), 1, 0)

    def _rows(
        self,
        what: str,
        texts: Sequence[str],
        language: str | None,
        embed: Callable[[list[str]], np.ndarray],
        progress: bool,
    ) -> np.ndarray:
        """The rows of ``texts``, those that are missing embedded block by block."""
        check_texts(texts)
        if not len(texts):
            return np.empty((0, self.embedder.dim), np.float32)
        if _pausing.get():
            return self._pass_on(texts, embed)
        shelf = self._shelf(what, language if getattr(self.embedder, "uses_language", False) else None)
        keys = _keys(texts)
        missing = np.flatnonzero(shelf.find(keys) < 0)
        _, first = np.unique(keys[missing], return_index=True)
        wanted = missing[np.sort(first)]
        with Progress("embedding", len(wanted), shown=progress and len(wanted) > 0) as shown:
            for start in range(0, len(wanted), BLOCK):
                places = wanted[start : start + BLOCK]
                block = [texts[i] for i in places]
                cut = self.embedder.counts["truncated"]
                try:
                    rows = np.asarray(embed(block), np.float32)
                except BadVector as error:
                    raise BadVector(str(error), int(places[error.row])) from None
                if self.embedder.counts["truncated"] > cut:
                    keys["truncated"][places] = self.embedder.truncated(block)
                shelf.add(keys[places], rows)
                shown.update(len(places))
        self._looked_up["computed"] += len(wanted)
        self._looked_up["found"] += len(texts) - len(wanted)
        places = shelf.find(keys)
        self.counts["sentences"] += len(texts)
        self.counts["empty"] += sum(not text.strip() for text in texts)
        self.counts["truncated"] += int(shelf.keys["truncated"][places].sum())
        return shelf.take(places)

    def _pass_on(self, texts: Sequence[str], embed: Callable[[list[str]], np.ndarray]) -> np.ndarray:
        """The rows of ``texts`` as if there were no cache."""
        before = dict(self.embedder.counts)
        rows = embed(list(texts))
        for name in self.counts:
            self.counts[name] += self.embedder.counts[name] - before[name]
        return rows

    def _shelf(self, what: str, language: str | None) -> Shelf:
        identity = {
            "what": what,
            "language": language,
            "vmsst_jax": vmsst_jax.__version__,
            "fingerprint": self._print,
        }
        name = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:24]
        if name not in self._shelves:
            self._shelves[name] = Shelf(self.folder / name, {**identity, "model": self.embedder.describe()})
        return self._shelves[name]

    def line(self) -> str:
        """What the cache did and how large it is, for people."""
        found, computed = f"{self.found:,} vectors found", f"{self.computed:,} computed"
        return f"{found}, {computed}; the cache {self.folder} holds {size(self.folder) / 1e6:,.1f} MB"


class Shelf:
    """The segments of one folder.

    Attributes:
      keys: of all rows, segment after segment, ``KEY`` [rows].
    """

    def __init__(self, folder: Path, about: dict):
        self.folder, self.about = folder, about
        self.keys = np.empty(0, KEY)
        self.segments: list[Path | np.ndarray] = []  # an array where the file could not be written
        self.starts = np.zeros(1, np.int64)
        self._order: np.ndarray | None = None
        _remove_drafts(folder)
        for path in sorted(folder.glob("*.keys.npy")):
            vectors = path.with_name(path.name.replace(".keys.npy", ".npy"))
            try:
                keys = np.load(path, allow_pickle=False)
                rows = len(np.load(vectors, mmap_mode="r", allow_pickle=False))
            except (OSError, ValueError, EOFError):  # damaged or half removed: its texts are embedded anew
                continue
            if keys.dtype == KEY and keys.ndim == 1 and len(keys) == rows:
                self._append(keys, vectors)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """int64 [n]: the row of each key, -1 where there is none."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        if self._order is None:
            self._order = np.lexsort((self.keys["low"], self.keys["high"]))
        place = np.searchsorted(self.keys["high"], keys["high"], sorter=self._order)
        rows = self._order[np.minimum(place, len(self.keys) - 1)]
        # Of two texts with the same first half (never seen yet) one would be embedded each time.
        return np.where((self.keys["high"][rows] == keys["high"]) & (self.keys["low"][rows] == keys["low"]), rows, -1)

    def add(self, keys: np.ndarray, rows: np.ndarray) -> None:
        """Keeps ``rows`` [n, ...] under ``keys`` [n], in memory where the disk is full or can't be written."""
        path = self.folder / f"{hashlib.sha256(keys.tobytes()).hexdigest()[:24]}.npy"
        segment: Path | np.ndarray = path
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            about = self.folder / "about.json"
            if not about.exists():
                disk.write_atomically(about, json.dumps(self.about, indent=1, ensure_ascii=False).encode())
            _save(path, rows)
            _save(path.with_name(f"{path.stem}.keys.npy"), keys)
        except OSError as error:
            logger.warning("vectors are not kept for another run: %s: %s; see --cache_dir", path, error.strerror)
            segment = rows
        self._append(keys, segment)

    def take(self, places: np.ndarray) -> np.ndarray:
        """The rows at ``places`` [n]; a view of the file where they lie in it one behind the other."""
        number = np.searchsorted(self.starts, places, side="right") - 1
        if number[0] == number[-1] and (np.diff(places) == 1).all():
            segment = self._open(number[0])
            start = places[0] - self.starts[number[0]]
            return segment[start : start + len(places)]
        out: np.ndarray | None = None
        for i in np.unique(number):
            # Opened one by one: thousands of open maps would exhaust what a process may have open.
            segment, chosen = self._open(i), number == i
            if out is None:
                out = np.empty((len(places), *segment.shape[1:]), np.float32)
            out[chosen] = segment[places[chosen] - self.starts[i]]
        return out

    def _open(self, number: int) -> np.ndarray:
        segment = self.segments[number]
        # Copy on write: what a caller does to its array stays with the caller.
        return np.load(segment, mmap_mode="c", allow_pickle=False) if isinstance(segment, Path) else segment

    def _append(self, keys: np.ndarray, segment: Path | np.ndarray) -> None:
        self.keys = np.concatenate([self.keys, keys])
        self.segments.append(segment)
        self.starts = np.append(self.starts, len(self.keys))
        self._order = None


def size(folder: str | os.PathLike) -> int:
    """Bytes of all files below ``folder``."""
    total = 0
    for directory, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(directory, name)).st_size
            except FileNotFoundError:  # a draft that was renamed just now
                continue
    return total


def _keys(texts: Sequence[str]) -> np.ndarray:
    keys = np.zeros(len(texts), KEY)
    digests = b"".join(hashlib.blake2b(text.encode(), digest_size=16).digest() for text in texts)
    halves = np.frombuffer(digests, "<u8").reshape(-1, 2)
    keys["high"], keys["low"] = halves[:, 0], halves[:, 1]
    return keys


def _save(path: Path, array: np.ndarray) -> None:
    """Writes an array whole or not at all, whoever else is writing the same one."""
    with disk.replacing(path) as file:
        np.save(file, array, allow_pickle=False)


def _remove_drafts(folder: Path) -> None:
    """Removes what killed writers left."""
    for draft in folder.glob(".*.new"):
        try:
            if time.time() - draft.stat().st_mtime > STALE:
                draft.unlink()
        except OSError:  # its writer or another reader was faster, or the folder is not ours
            continue
