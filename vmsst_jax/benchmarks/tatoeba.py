"""LASER's Tatoeba similarity search: does a sentence find its translation among up to 1,000 (METHODS 5.1)?

Data: ``tatoeba.xxx-eng.xxx`` and ``tatoeba.xxx-eng.eng``, line i of one being line i of the other.
"""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmsst_jax.benchmarks.language_codes import canonical
from vmsst_jax.benchmarks.metrics import TRANSLATION_SCORES, macro_mean, translation_accuracy
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import read_lines

PAPER_UNSEEN = 19  # VMSST's text: 112 test languages, 93 in training


class Pairs(NamedTuple):
    """One language's test set, line-aligned."""

    foreign: list[str]
    english: list[str]


def find_languages(data_dir: str | os.PathLike) -> list[str]:
    """The codes xxx of the files in ``data_dir``, sorted; FileNotFoundError where there are none."""
    folder = Path(data_dir)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}; give the one with LASER's files tatoeba.xxx-eng.xxx")
    names = [path.name.split(".") for path in folder.glob("tatoeba.*-eng.*")]
    codes = {name[1].removesuffix("-eng") for name in names if len(name) == 3}
    if not codes:
        raise FileNotFoundError(
            f"{folder} holds no files tatoeba.xxx-eng.xxx and tatoeba.xxx-eng.eng, as LASER has them"
        )
    return sorted(codes)


def choose(found: Sequence[str], wanted: Sequence[str] | None) -> list[str]:
    """The codes of ``found`` that ``wanted`` names, by either standard's code ("de" is "deu"); None is all of them.

    Raises ValueError for one that is not there, or for none at all.
    """
    if wanted is None:
        return list(found)
    by_name = {canonical(code): code for code in found}
    by_name |= {code: code for code in found}
    names = [code if code in by_name else canonical(code) for code in wanted]
    for code, name in zip(wanted, names, strict=True):
        if name not in by_name:
            close = difflib.get_close_matches(code, by_name, n=3, cutoff=0.5)
            hint = f"closest: {', '.join(close)}; " if close else ""
            raise ValueError(f"the data has no language {code!r}; {hint}it has {', '.join(found)}")
    chosen = {by_name[name] for name in names}
    if not chosen:
        raise ValueError("no language is chosen; name some, or leave the choice away for all")
    return [code for code in found if code in chosen]


def read_pairs(data_dir: str | os.PathLike, code: str) -> Pairs:
    """One language's sentences; FileNotFoundError or ValueError for files missing, empty or of unequal length."""
    foreign, english = _paths(data_dir, code)
    pairs = Pairs(read_lines(foreign), read_lines(english))
    if len(pairs.foreign) != len(pairs.english):
        raise ValueError(
            f"{foreign} has {len(pairs.foreign)} lines and {english} {len(pairs.english)}; "
            "line i of one has to be line i of the other, so fetch both again"
        )
    return pairs


def evaluate(embedder: Embedder, data_dir: str | os.PathLike, *, languages: Sequence[str] | None = None) -> dict:
    """Accuracy in both directions per language, and macro means over all, seen and unseen languages.

    Every distinct sentence is embedded once. A language is seen if the model's language table has it.

    Args:
      embedder: the model.
      data_dir: folder with LASER's files.
      languages: codes of the languages wanted; None for all.

    Returns:
      The result, see ``suite``; accuracies are shares of 1.

    Raises:
      FileNotFoundError, ValueError: files missing, empty, not UTF-8 or of unequal length; an unknown language.
    """
    data = {code: read_pairs(data_dir, code) for code in choose(find_languages(data_dir), languages)}
    texts = list(dict.fromkeys(text for pairs in data.values() for side in pairs for text in side))
    row = {text: i for i, text in enumerate(texts)}
    vectors = embedder.encode(texts, normalize=True, progress=True)
    seen = {canonical(code) for code in embedder.languages.codes}
    per_language = {
        code: {
            "pairs": len(pairs.foreign),
            "seen": canonical(code) in seen,
            **translation_accuracy(*(vectors[[row[text] for text in side]] for side in pairs)),
        }
        for code, pairs in data.items()
    }
    return {
        "benchmark": "tatoeba",
        "data": {
            "directory": str(data_dir),
            "sha256": checksum(data_dir, list(data)),
            "distinct_sentences": len(texts),
        },
        "split": "test",
        "direction": list(TRANSLATION_SCORES),
        "scoring": "cosine, accuracy, the right row is the one of the same index",
        "index": {"kind": "exact", "recall": 1.0},
        "per_language": per_language,
        "means": _means(per_language),
    }


def _means(per_language: dict) -> dict:
    groups = {
        "all": list(per_language.values()),
        "seen": [s for s in per_language.values() if s["seen"]],
        "unseen": [s for s in per_language.values() if not s["seen"]],
    }
    return {
        name: {
            "languages": len(scores),
            **(macro_mean(scores, TRANSLATION_SCORES) or dict.fromkeys(TRANSLATION_SCORES)),
        }
        for name, scores in groups.items()
    }


def checksum(data_dir: str | os.PathLike, codes: Sequence[str]) -> str:
    """SHA-256 over the names and contents of the files of ``codes``, in the order of the codes."""
    digest = hashlib.sha256()
    for code in codes:
        for path in _paths(data_dir, code):
            digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def table(result: dict) -> str:
    """The scores in percent, language by language, then the means with the number of languages in each."""
    scores = result["per_language"]
    rows = [
        [code, "seen" if s["seen"] else "unseen", s["pairs"], *(s[name] for name in TRANSLATION_SCORES)]
        for code, s in scores.items()
    ]
    for name, means in result["means"].items():
        rows.append([f"mean of {name}", means["languages"], "", *(means[score] for score in TRANSLATION_SCORES)])
    text = format_table(("language", "in training", "pairs", *TRANSLATION_SCORES), rows)
    if len(scores) == 112:
        unseen = result["means"]["unseen"]["languages"]
        text += (
            f"\nunseen: {unseen} languages by this model's own language table (the VMSST paper's text: {PAPER_UNSEEN})"
        )
    return text


def _paths(data_dir: str | os.PathLike, code: str) -> tuple[Path, Path]:
    return Path(data_dir) / f"tatoeba.{code}-eng.{code}", Path(data_dir) / f"tatoeba.{code}-eng.eng"
