"""Word vectors in word2vec's text form: a line "WORDS WIDTH", then a word and its numbers in every line.

word2vec, fastText, gensim and VecMap write and read it. Words stand by falling frequency. A name that ends in .gz is
compressed.
"""

from __future__ import annotations

import gzip
import itertools
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vmsst_jax import disk

MOST = 200_000


class WordVectors(NamedTuple):
    """The words of one language.

    Attributes:
      words: the most frequent first, each once.
      vectors: float32 [n, D].
    """

    words: list[str]
    vectors: np.ndarray


def read(path: str | os.PathLike, most: int | None = MOST) -> WordVectors:
    """The first ``most`` words of a file, None for all. Of a word that occurs twice the first vector is kept.

    Raises:
      FileNotFoundError: there is no such file.
      ValueError: no header, a line that is not a word and its numbers, NaN, infinity or nothing but zeros among them,
        not UTF-8, fewer or more lines than announced, a damaged .gz; file and line are named.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}; wanted word vectors in word2vec's text form (.vec, .vec.gz)")
    lines = _lines(path)
    rows, width = _header(next(lines, ""), path)
    wanted = rows if most is None else min(rows, most)
    first = next(lines, None)
    if first is not None:  # before memory is taken for a width that only the header has
        _word(first, width, f"{path}, line 2")
        lines = itertools.chain([first], lines)
    # No more memory than the file can fill, whatever its header says.
    fit = wanted if path.suffix == ".gz" else min(wanted, path.stat().st_size // (2 * (width + 1)) + 1)
    words: dict[str, int] = {}
    vectors = np.empty((fit, width), np.float32)
    for number in range(wanted):
        line = next(lines, None)
        if line is None:
            raise ValueError(f"{path}, line 1 announces {rows} words, and it ends after {number}: is it whole?")
        word, vector = _word(line, width, f"{path}, line {number + 2}")
        if word not in words:
            vectors[len(words)] = vector
            words[word] = len(words)
    if wanted == rows and (more := next(lines, None)) is not None:
        raise ValueError(f"{path}, line {rows + 2}: {more[:60]!r} follows the {rows} words that line 1 announces")
    return WordVectors(list(words), vectors[: len(words)])


def write(path: str | os.PathLike, found: WordVectors) -> None:
    """Writes the file whole or not at all, with six decimals.

    Raises ValueError for a word with white space, which no reader could tell from numbers; OSError for a full disk.
    """
    for word in found.words:
        if not word or word.split() != [word]:
            raise ValueError(f"the word {word!r} is empty or has white space; word2vec's text form can't hold it")
    with disk.writing(path), disk.replacing(path) as file:
        # No date inside, so that the same vectors are the same bytes.
        packed = gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) if Path(path).suffix == ".gz" else None
        out = packed or file
        out.write(f"{len(found.words)} {found.vectors.shape[1]}\n".encode())
        for word, vector in zip(found.words, found.vectors.tolist(), strict=True):
            out.write(f"{word} {' '.join(f'{x:.6f}' for x in vector)}\n".encode())
        if packed:
            packed.close()


def _lines(path: Path) -> Iterator[str]:
    number = 0
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else open(path, "rb") as file:
            for raw in file:
                number += 1
                yield raw.decode().rstrip("\r\n ")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path}, line {number}: not UTF-8 text; word2vec's binary form has to be written as text first "
            "(gensim: load_word2vec_format(..., binary=True), save_word2vec_format)"
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is no whole gzip file, behind line {number}: {error}") from None


def _header(line: str, path: Path) -> tuple[int, int]:
    parts = line.split(" ")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise ValueError(
            f"{path}, line 1: {line[:60]!r}; wanted the number of words and the width of their vectors, such as "
            "'200000 300' (GloVe's files lack this line: put it in front)"
        )
    return int(parts[0]), int(parts[1])


def _word(line: str, width: int, where: str) -> tuple[str, np.ndarray]:
    word, *numbers = line.split(" ")
    if not word or len(numbers) != width:
        raise ValueError(f"{where}: {line[:60]!r} has {len(numbers)} numbers; wanted a word and {width} numbers")
    try:
        vector = np.array(list(map(float, numbers)), np.float32)
    except ValueError as error:
        raise ValueError(f"{where}, {word!r}: {error}; wanted a word and {width} numbers") from None
    if not (np.isfinite(vector).all() and vector.any()):
        raise ValueError(f"{where}: the vector of {word!r} holds NaN or infinity, or nothing but zeros; take it out")
    return word, vector
