"""Word-by-word translation: every word becomes the target word nearest to it by CSLS, in its place."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from vmsst_jax import disk
from vmsst_jax.data import synthetic_pairs
from vmsst_jax.retrieval import csls
from vmsst_jax.retrieval.exact import normalize
from vmsst_jax.retrieval.lines import TextFile, scan
from vmsst_jax.retrieval.progress import Progress
from vmsst_jax.retrieval.store import write_json
from vmsst_jax.words import lexicon, tokens
from vmsst_jax.words.mapped import WordMapping
from vmsst_jax.words.training import finished, seal

# Most frequent words of both sides that may be a translation and that densities are taken over.
CANDIDATES = 50_000
BLOCK = 4096


class WordTranslator:
    """Translates by a word mapping.

    What holds a letter and is known is translated, all else is copied: numbers, punctuation, unknown words, spaces.
    Words are written as the mapping knows them, but a text that begins with a capital letter is given one: which others
    have capitals differs between languages, and vectors trained with --keep_case know it.

    Args:
      mapping: the languages' words.
      source, target: codes.
      candidates: only so many of the most frequent target words are taken, and of these what holds a letter.
      k: neighbours in CSLS.

    Attributes:
      counts: {"words", "unknown"} with a letter that were translated so far, those not known included.

    Raises:
      ValueError: a language that the mapping lacks, twice the same, or one with fewer words than k.
    """

    def __init__(
        self, mapping: WordMapping, source: str, target: str, *, candidates: int = CANDIDATES, k: int = csls.K
    ):
        source, target = mapping.language(source), mapping.language(target)
        if source == target:
            raise ValueError(f"source and target are both {source!r}; there is nothing to translate")
        self.source, self.target = mapping.languages[source], mapping.languages[target]
        self.counts = {"words": 0, "unknown": 0}
        self._rows = {word: i for i, word in enumerate(self.source.words)}
        self._candidates = [i for i, word in enumerate(self.target.words[:candidates]) if tokens.has_letter(word)]
        self._corpus = normalize(self.target.vectors[self._candidates])
        frequent = normalize(self.source.vectors[:candidates])
        _, self._densities = csls.densities(frequent, self._corpus, k)
        self._known: dict[int, str] = {}

    def words(self, rows: Sequence[int]) -> list[str]:
        """The translations of the source words in ``rows``."""
        if missing := sorted(set(rows) - self._known.keys()):
            queries = normalize(self.source.vectors[missing])
            # A query's own density moves all its scores alike.
            none = np.zeros(len(missing), np.float32)
            best = csls.nearest(queries, self._corpus, none, self._densities, 1)[1][:, 0]
            self._known |= {
                row: self.target.words[self._candidates[i]] for row, i in zip(missing, best.tolist(), strict=True)
            }
        return [self._known[row] for row in rows]

    def translate(self, texts: Iterable[str]) -> list[str]:
        """The texts, word by word."""
        texts = [unicodedata.normalize("NFC", text) for text in texts]
        rows = {}
        for token in {token for text in texts for token in tokens.pattern().findall(text) if tokens.has_letter(token)}:
            if (row := tokens.find(self._rows, token)) is not None:
                rows[token] = row
        table = dict(zip(rows, self.words(list(rows.values())), strict=True))

        def replaced(match) -> str:
            token = match[0]
            if not tokens.has_letter(token):
                return token
            self.counts["words"] += 1
            if token not in table:
                self.counts["unknown"] += 1
                return token
            word = table[token]
            return word

        return [_begun_like(text, tokens.pattern().sub(replaced, text)) for text in texts]


def _begun_like(text: str, translation: str) -> str:
    """The translation with a capital letter first where the text has one."""
    return translation[:1].upper() + translation[1:] if text[:1].isupper() else translation


def translate_file(
    path: str | os.PathLike,
    text: str | os.PathLike,
    output: str | os.PathLike,
    source: str,
    target: str,
    *,
    candidates: int = CANDIDATES,
    pairs: str | os.PathLike | None = None,
    overwrite: bool = False,
    progress: bool = True,
) -> dict:
    """Writes ``output``, line i the translation of line i of ``text``, and how it was made to OUTPUT.json.

    An output that was made of the same is left alone.

    Args:
      path: what ``word_mapping map`` wrote.
      pairs: also a file for originals and translations together, see ``data.synthetic_pairs``.

    Returns:
      The contents of OUTPUT.json, and "found": whether it was there.

    Raises:
      ValueError, FileNotFoundError: what loading the mapping, ``WordTranslator`` and ``lines.scan`` raise.
      FileExistsError: an output exists, and is of something else.
    """
    output = Path(output)
    beside = output.with_name(output.name + ".json")
    _check_places([output, beside, *([Path(pairs)] if pairs else [])], (text, path))
    read, mapping = scan(text), WordMapping.load(path)
    about = {
        "input": read.identity(),
        "mapping": mapping.fingerprint(),
        "languages": [source, target],
        "candidates": candidates,
    }
    made = finished(output, beside, about, overwrite)
    found = made is not None
    if not found:
        translator = WordTranslator(mapping, source, target, candidates=candidates)
        made = seal(output, beside, _write(translator, read, output, beside, about, progress))
    if pairs:
        both = _lines(read), _lines(scan(output))
        synthetic_pairs.write(pairs, *both, (source, target), read.path, overwrite=overwrite)
    return {**made, "found": found}


def _check_places(written: list[Path], inputs) -> None:
    """FileNotFoundError where a folder is missing, ValueError where a file would be read and written, or twice."""
    for place in written:
        if not place.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {place.parent} to write {place.name} into; make it first")
        if place.is_dir():
            raise IsADirectoryError(f"{place} is a folder; give the name of a file")
    for source in inputs:
        disk.check_apart(source, written)
    if len({os.path.realpath(place) for place in written}) < len(written):
        raise ValueError(f"{written[-1]} would be written twice; use another name for the pairs")


def _write(translator: WordTranslator, read: TextFile, output: Path, beside: Path, about: dict, progress: bool) -> dict:
    """Writes the translations and, before they lie in their place, ``beside``, whose contents are returned."""
    with disk.writing(output), disk.replacing(output) as file:
        with Progress(f"translating {read.path}", read.rows, shown=progress) as told:
            for lines in read.blocks(0, BLOCK):
                file.write("".join(f"{line}\n" for line in translator.translate(lines)).encode())
                told.update(len(lines))
        about = {**about, "rows": read.rows, **translator.counts}
        write_json(beside, about)
    return about


def _lines(text: TextFile) -> Iterator[str]:
    for block in text.blocks(0, BLOCK):
        yield from block


def accuracy(
    mapping: WordMapping, dictionary: str | os.PathLike, source: str, target: str, *, candidates: int = CANDIDATES
) -> dict:
    """How many words of a dictionary are translated rightly.

    Args:
      dictionary: a file for ``lexicon.read``; of a word with several translations each is right. Case doesn't count
        where the mapping writes a word otherwise.

    Returns:
      {"words": of the dictionary, "covered": those that are known and of which a right translation is among the
      candidates, "accuracy": share of the covered that is translated rightly}.

    Raises:
      ValueError: none is covered; and what ``WordTranslator`` and ``lexicon.read`` raise.
    """
    right: dict[str, set[str]] = {}
    for word, translation in lexicon.read(dictionary):
        right.setdefault(word, set()).add(translation)
    translator = WordTranslator(mapping, source, target, candidates=candidates)
    within, own = _places(translator.target.words[:candidates]), _places(translator.source.words)
    asked = {
        word: tokens.find(own, word)
        for word, translations in right.items()
        if tokens.find(own, word) is not None and any(tokens.find(within, t) is not None for t in translations)
    }
    if not asked:
        raise ValueError(
            f"{dictionary}: the mapping covers none of its {len(right)} words; is {source} its first column?"
        )
    found = translator.words(list(asked.values()))
    hits = sum(
        within[answer] in {tokens.find(within, t) for t in right[word]}
        for word, answer in zip(asked, found, strict=True)
    )
    return {"words": len(right), "covered": len(asked), "accuracy": hits / len(asked)}


def _places(words: Sequence[str]) -> dict[str, int]:
    """{word: its place}, as it is written and, unless that is another word, lower-cased."""
    places = {word: place for place, word in enumerate(words)}
    for place, word in enumerate(words):
        places.setdefault(word.lower(), place)
    return places
