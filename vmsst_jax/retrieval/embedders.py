"""One call for every source of vectors: a checkpoint, a sentence-transformers model, mapped words, ready
vectors, a Python function.

Whatever the source, what comes back is used like ``embedder.Embedder``: ``encode``, ``encode_layers``, ``dim``,
``languages``, ``counts``, ``embedding``, ``source``, ``describe`` and ``fingerprint``.
"""

from __future__ import annotations

import copy
import hashlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from vmsst_jax.conversion.model import UNDETERMINED
from vmsst_jax.data.languages import Languages
from vmsst_jax.retrieval import embedder as checkpoints
from vmsst_jax.retrieval.exact import normalize as normalize_rows
from vmsst_jax.retrieval.lines import read_lines
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.vector_checks import BadVector

# Which options each source has, beside ``trained_languages``, which all have.
OPTIONS = {
    "checkpoint": (
        *("step", "max_length", "batch_size", "cache_dir"),
        *("pooling", "layer", "pool_special", "prefix", "tower"),
    ),
    "sentence_transformers": ("max_length", "batch_size", "prefix"),
    "word_mapping": ("idf",),
    "vectors": (),
    "embedder": ("batch_size", "prefix"),
}
# Sentences that a function gets at a time, and rows of ready vectors.
CALL = 128
# What a function is asked first: how wide its vectors are, and whether it is the function it was.
PROBE = ("Where is the library?", "¿Dónde está la biblioteca?")


def load(
    *,
    checkpoint: str | os.PathLike | None = None,
    sentence_transformers: str | None = None,
    word_mapping: str | os.PathLike | None = None,
    vectors: Sequence[str | os.PathLike] | str | None = None,
    embedder: str | Callable | None = None,
    trained_languages: Sequence[str] | None = None,
    **options,
):
    """The embedder of the one source that is named.

    Args:
      checkpoint: a model of ours, or of another project in a form that ``convert`` reads (see ``embedder.load``).
      sentence_transformers: folder or name of a model that the library sentence-transformers is to run.
      word_mapping: a file that ``word_mapping`` wrote, see ``words.embedder.MappedWords``.
      vectors: one or several files NAME.npy, see ``ReadyVectors``.
      embedder: "module:function" or the function itself, see ``Function``.
      trained_languages: codes of the languages in training, for a source that doesn't know them.
      **options: of that source, see ``OPTIONS``; None is as good as not given.

    Raises:
      ValueError, FileNotFoundError: none or several sources, an option that the source doesn't have, or one that can't
        be loaded.
    """
    given = {
        "checkpoint": checkpoint,
        "sentence_transformers": sentence_transformers,
        "word_mapping": word_mapping,
        "vectors": vectors,
        "embedder": embedder,
    }
    check_options({name: value for name, value in {**given, **options}.items() if value is not None})
    options = {name: value for name, value in options.items() if value is not None}
    if checkpoint is not None:
        model = checkpoints.load(checkpoint, **options)
    elif sentence_transformers is not None:
        from vmsst_jax.retrieval.sentence_transformers import SentenceTransformersModel

        model = SentenceTransformersModel(sentence_transformers, **options)
    elif word_mapping is not None:
        from vmsst_jax.words.embedder import MappedWords

        model = MappedWords(word_mapping, **options)
    elif vectors is not None:
        model = ReadyVectors([vectors] if isinstance(vectors, str | os.PathLike) else vectors)
    else:
        model = Function(embedder, **options)
    if trained_languages:
        if tuple(model.languages.codes) != (UNDETERMINED,):
            raise ValueError(
                f"the model has its own table of {len(model.languages.codes)} languages; leave trained_languages out"
            )
        model.languages = Languages(trained_languages)
    return model


def check_options(given: dict) -> None:
    """ValueError unless ``given``, options of ``load`` by name, are those of exactly one source."""
    sources = [name for name in OPTIONS if name in given]
    if len(sources) != 1:
        found = " and ".join(sources) or "none"
        raise ValueError(f"where vectors come from: wanted one of {', '.join(OPTIONS)}, found {found}")
    known = (*sources, *OPTIONS[sources[0]], "trained_languages")
    if unknown := [name for name in given if name not in known]:
        has = ", ".join(known[1:])
        raise ValueError(f"{', '.join(unknown)} can't be set for {sources[0]}; what can: {has}")


class External:
    """What the sources of other projects share. Each has ``_embed(texts, language) -> [n, D]``, and sets ``dim``.

    Attributes:
      languages: the table of the languages in training, as far as known.
      uses_language: whether the same text has other vectors in another ``language``.
      kept: whether a cache is to keep its vectors.
      counts: {"sentences", "empty", "truncated"} embedded so far; "truncated" stays 0 where ``max_length`` is None:
        what a function does with long sentences isn't known here.
    """

    uses_language = False
    kept = True
    max_length: int | None = None
    dim: int

    def __init__(self, source: dict, *, batch_size: int | None = None, prefix: str = "", normalize: bool = False):
        self.source, self.batch_size = source, batch_size or CALL
        self.embedding = {"pooling": None, "layer": None, "normalize": normalize, "prefix": prefix}
        self.languages = Languages([UNDETERMINED])
        self.counts = {"sentences": 0, "empty": 0, "truncated": 0}

    def encode(
        self,
        texts: Sequence[str],
        batch_size: int | None = None,
        normalize: bool = False,
        progress: bool = False,
        *,
        language: str | None = None,
    ) -> np.ndarray:
        """Embeds sentences: float32 [len(texts), D], row i = sentence i, see ``embedder.Embedder.encode``."""
        checkpoints.check_texts(texts)
        out = np.empty((len(texts), self.dim), np.float32)
        size = batch_size or self.batch_size
        with Progress("embedding", len(texts), shown=progress) as shown:
            for start in range(0, len(texts), size):
                block = list(texts[start : start + size])
                out[start : start + len(block)] = self._checked(self._embed(block, language), block, start)
                shown.update(len(block))
        self.counts["sentences"] += len(texts)
        self.counts["empty"] += sum(not text.strip() for text in texts)
        return normalize_rows(out, texts) if len(out) and normalize else out

    def encode_layers(self, texts: Sequence[str], *, language: str | None = None, progress: bool = False) -> np.ndarray:
        """ValueError: only a checkpoint shows its layers."""
        raise ValueError(
            f"{self.source['kind']} gives one vector per sentence, not one per layer; for the layers of a model that "
            "vmsst_jax.convert reads, give it as checkpoint"
        )

    def without_prefix(self) -> External:
        """The same with nothing before a sentence; what either embeds is in the ``counts`` of both."""
        other = copy.copy(self)
        other.embedding = {**self.embedding, "prefix": ""}
        other._fingerprint = other._checksum()
        return other

    def _embed(self, texts: list[str], language: str | None):
        raise NotImplementedError

    def _checksum(self) -> str:
        return self._fingerprint

    def _checked(self, vectors, texts: list[str], first: int = 0) -> np.ndarray:
        """``vectors`` as an array; ValueError unless they are finite numbers [len(texts), dim].

        ``first``: the number of the first text.
        """
        vectors = np.asarray(vectors)
        fits = vectors.ndim == 2 and vectors.shape[0] == len(texts) and vectors.shape[1] > 0
        if not fits or vectors.dtype.kind not in "fiu":
            raise ValueError(
                f"{self._name()} returned {vectors.dtype} {list(vectors.shape)} for {len(texts)} sentences; "
                f"wanted numbers [{len(texts)}, D], row i for sentence i"
            )
        if vectors.shape[1] != (dim := getattr(self, "dim", vectors.shape[1])):
            raise ValueError(f"{self._name()} returned vectors of {vectors.shape[1]} numbers; its first had {dim}")
        if not (finite := np.isfinite(vectors).all(axis=1)).all():
            row = int(np.argmin(finite))
            raise BadVector(f"{self._name()} returned NaN or infinity for {texts[row][:80]!r}", first + row)
        return vectors

    def _name(self) -> str:
        return self.source["kind"]

    def describe(self) -> dict:
        """Where the vectors come from, ready for JSON."""
        return {
            **self.source,
            "layer": self.embedding["layer"],
            "pooling": self.embedding["pooling"],
            "prefix": self.embedding["prefix"],
            "model_normalizes": self.embedding["normalize"],
            "max_length": self.max_length,
            "dim": self.dim,
            "languages": len(self.languages.codes),
        }

    def fingerprint(self) -> str:
        """A checksum over all that decides a vector, as far as it can be seen from here."""
        return self._fingerprint


class Function(External):
    """A Python function that embeds: called with a list of strings, it returns numbers [n, D].

    It is called with ``batch_size`` sentences at a time, and with ``language=CODE`` if it has a parameter of that name
    (the code is None where the sentences' language isn't known). Its vectors are checked for shape and finiteness.

    Its fingerprint is made from its module's source, an attribute ``fingerprint`` of the function if it has one, and
    the vectors of two sentences: other weights behind the same code are noticed.

    Args:
      function: the function, or "module:function", found as ``import`` finds it from the current folder.
      batch_size: sentences per call, 128 unless said otherwise.
      prefix: put before every sentence.
    """

    def __init__(self, function: str | Callable, *, batch_size: int | None = None, prefix: str = ""):
        self.function = import_function(function) if isinstance(function, str) else function
        name = function if isinstance(function, str) else f"{self.function.__module__}:{self.function.__qualname__}"
        super().__init__({"kind": "function", "name": name}, batch_size=batch_size, prefix=prefix)
        try:
            parameters = inspect.signature(self.function).parameters.values()
        except (TypeError, ValueError):  # it is written in C
            parameters = ()
        self.uses_language = any(p.name == "language" or p.kind is p.VAR_KEYWORD for p in parameters)
        self._fingerprint = self._checksum()

    def _checksum(self) -> str:
        probe = self._checked(self._embed(list(PROBE), None), list(PROBE))
        self.dim = probe.shape[1]
        name, prefix = self.source["name"], self.embedding["prefix"]
        about = (name, prefix, _source(self.function), getattr(self.function, "fingerprint", None), self.dim)
        digest = hashlib.sha256(repr(about).encode())
        digest.update(np.ascontiguousarray(probe, np.float32).tobytes())
        return digest.hexdigest()

    def _embed(self, texts: list[str], language: str | None):
        texts = [self.embedding["prefix"] + text for text in texts]
        return self.function(texts, language=language) if self.uses_language else self.function(texts)

    def _name(self) -> str:
        return f"the function {self.source['name']}"


def import_function(path: str) -> Callable:
    """The function that "module:function" names; ValueError if there is none."""
    module_name, _, name = path.partition(":")
    if not (module_name and name):
        raise ValueError(f"the embedder is {path!r}; wanted module:function, such as my_model:embed")
    try:
        found = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != module_name.split(".")[0]:
            raise  # something that the module itself imports
        raise ValueError(
            f"the embedder is {path!r}, and there is no module {error.name}; give the command in the folder that holds "
            "it, or name that folder in PYTHONPATH"
        ) from None
    for part in name.split("."):
        if not hasattr(found, part):
            raise ValueError(f"the embedder is {path!r}, and {module_name} has no {name}")
        found = getattr(found, part)
    if not callable(found):
        raise ValueError(f"the embedder is {path!r}, of type {type(found).__name__}; wanted a function")
    return found


def _source(function: Callable) -> str:
    """The text of the file that defines a function, "" where there is none."""
    try:
        return Path(inspect.getfile(inspect.unwrap(function))).read_text("utf-8", "replace")
    except (TypeError, OSError):  # an object that can be called, or code that was never in a file
        module = sys.modules.get(getattr(function, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        return Path(file).read_text("utf-8", "replace") if file else ""


class ReadyVectors(External):
    """Vectors that another tool made: row i of NAME.npy belongs to line i of the text file NAME or NAME.txt beside it.

    Args:
      files: the .npy files, numbers [rows, D]; they are memory-mapped. Of a text that occurs several times, the first
        row is taken. A line break inside a text is looked up as a space, as ``benchmarks.text_list`` writes it.

    Raises:
      FileNotFoundError, ValueError: a file is missing, no array of numbers [rows, D], has other rows than its text has
        lines or another D than the others; a text is asked for that is in none of them.
    """

    kept = False  # they are

    def __init__(self, files: Sequence[str | os.PathLike]):
        if not files:
            raise ValueError("no vectors are named; give files such as sentences.npy")
        super().__init__({"kind": "ready vectors", "files": [str(file) for file in files]}, batch_size=8192)
        self.arrays: list[np.ndarray] = []
        self.rows: dict[str, tuple[int, int]] = {}
        digest = hashlib.sha256()
        for number, file in enumerate(map(Path, files)):
            text, vectors = _text_of(file), _open_vectors(file)
            lines = read_lines(text)
            if len(lines) != len(vectors):
                raise ValueError(f"{text} has {len(lines)} lines and {file} {len(vectors)} rows; row i is for line i")
            if self.arrays and self.arrays[0].shape[1] != vectors.shape[1]:
                raise ValueError(
                    f"{files[0]} has vectors of {self.arrays[0].shape[1]} numbers and {file} of {vectors.shape[1]}; "
                    "all have to come from one model"
                )
            self.arrays.append(vectors)
            for row, line in enumerate(lines):
                self.rows.setdefault(line, (number, row))
            for part in (text, file):
                with open(part, "rb") as opened:
                    digest.update(hashlib.file_digest(opened, "sha256").digest())
        self.dim = self.arrays[0].shape[1]
        self._fingerprint = digest.hexdigest()

    def _embed(self, texts: list[str], language: str | None) -> np.ndarray:
        places = [self.rows.get(one_line(text)) for text in texts]
        if missing := [text for text, place in zip(texts, places, strict=True) if place is None]:
            raise ValueError(
                f"{', '.join(self.source['files'])} have no vector for {missing[0][:80]!r}"
                + (f" and {len(missing) - 1} more of these {len(texts)} texts" if missing[1:] else "")
                + "; evaluate --write_texts=FILE writes all texts that a benchmark embeds"
            )
        return np.stack([self.arrays[number][row] for number, row in places])

    def _name(self) -> str:
        return " ".join(self.source["files"])


def one_line(text: str) -> str:
    """A text as a line of a file holds it: line breaks become spaces."""
    return text.replace("\r\n", " ").replace("\n", " ").replace("\r", " ") if "\n" in text or "\r" in text else text


def _text_of(file: Path) -> Path:
    """The text file beside NAME.npy."""
    if file.suffix != ".npy":
        raise ValueError(f"the vectors are {file}; wanted a file NAME.npy beside its text, NAME or NAME.txt")
    if not file.is_file():
        raise FileNotFoundError(f"there is no file {file}")
    found = [path for path in (file.with_suffix(""), file.with_suffix(".txt")) if path.is_file()]
    if len(found) != 1:
        what = f"both {found[0]} and {found[1]}" if found else f"neither {file.with_suffix('')} nor one with .txt"
        raise ValueError(f"beside {file} is {what}; wanted one text whose line i is the sentence of row i")
    return found[0]


def _open_vectors(file: Path) -> np.ndarray:
    try:
        vectors = np.load(file, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{file} can't be read as an array ({error}); wanted what numpy.save writes") from None
    if vectors.ndim != 2 or not vectors.size or vectors.dtype.kind not in "fiu":
        raise ValueError(f"{file} holds {vectors.dtype} {list(vectors.shape)}; wanted numbers [rows, D]")
    return vectors
