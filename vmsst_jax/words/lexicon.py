"""Bilingual word lists, and how often words occur."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from vmsst_jax.retrieval.lines import read_lines, scan
from vmsst_jax.words import tokens

BLOCK = 4096


def read(path: str | os.PathLike) -> list[tuple[str, str]]:
    """Pairs of a file whose lines are a word, white space and its translation, as MUSE's dictionaries are.

    A word may have several lines; blank lines are passed over.

    Raises FileNotFoundError, ValueError (file and line are named) for another number of words in a line, or no pairs.
    """
    pairs = []
    for number, line in enumerate(read_lines(path), 1):
        words = line.split()
        if words and len(words) != 2:
            raise ValueError(f"{path}, line {number}: {line[:60]!r} has {len(words)} words; wanted a pair")
        pairs += [(words[0], words[1])] if words else []
    if not pairs:
        raise ValueError(f"{path} has no pairs of words")
    return pairs


def rows(
    pairs: Iterable[tuple[str, str]], source: Sequence[str], target: Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Rows (int64 [p], int64 [p]) of those pairs of which both words are known."""
    known = [{word: i for i, word in enumerate(side)} for side in (source, target)]
    found = [(tokens.find(known[0], a), tokens.find(known[1], b)) for a, b in pairs]
    kept = [pair for pair in found if None not in pair]
    return tuple(np.array(kept, np.int64).reshape(-1, 2).T)


def idf(path: str | os.PathLike, words: Sequence[str], say: Callable[[str], None] = lambda line: None) -> np.ndarray:
    """Inverse document frequencies of words, a document being a line: float32 [n], above 0.

    log(1 + (N - n + 0.5) / (n + 0.5)) for a word in n of N lines, Lucene's, which like log(N / n) falls to almost 0 but
    never below; blank lines don't count.

    Raises ValueError where no line has any of the words, and what ``lines.scan`` raises.
    """
    text, known = scan(path), {word: i for i, word in enumerate(words)}
    frequencies, documents = np.zeros(len(words), np.int64), 0
    for lines in text.blocks(0, BLOCK):
        for line in lines:
            cut = tokens.tokenize(line, lower=False)
            documents += bool(cut)
            found = {row for token in cut for row in tokens.find_all(known, token)}
            frequencies[list(found)] += 1
    if not frequencies.any():
        raise ValueError(f"{path} has none of the {len(words):,} words; is it in the right language?")
    say(f"{path}: {documents:,} sentences, {np.count_nonzero(frequencies):,} of {len(words):,} words")
    return np.log1p((documents - frequencies + 0.5) / (frequencies + 0.5)).astype(np.float32)
