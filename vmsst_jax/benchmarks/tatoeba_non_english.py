"""Similarity search between two languages of which none is English (CCP's Table 2).

Data: ``aaa-bbb.tsv``, a sentence and its translation with a tab between. The pairs of CCP's table are not named in its
text, so they are an option.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vmsst_jax.benchmarks import language_sets
from vmsst_jax.benchmarks.metrics import (
    HUBNESS_SCORES,
    WHAT_IS_HUBNESS,
    WHAT_IS_RIGHT,
    CosineHistogram,
    cells,
    group_means,
    translation_scores,
)
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.benchmarks.sentences import Sentences, read_columns
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import scan
from vmsst_jax.retrieval.records import checksum

SCORES = ("a->b", "b->a", "mean")


def find_pairs(data_dir: str | os.PathLike) -> dict[tuple[str, str], Path]:
    """{(a, b): file} of the files ``a-b.tsv`` in ``data_dir``, sorted; FileNotFoundError where there are none."""
    folder = Path(data_dir)
    names = {path: path.stem.split("-") for path in sorted(folder.glob("*-*.tsv"))}
    pairs = {(name[0], name[1]): path for path, name in names.items() if len(name) == 2 and all(name)}
    if not pairs:
        raise FileNotFoundError(f"{folder} holds no files aaa-bbb.tsv with a sentence, a tab and its translation")
    return pairs


def evaluate(
    embedder: Embedder,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    pairs: Sequence[str] | None = None,
) -> dict:
    """Accuracy in both directions per pair with the signs of hubness; macro means over all pairs and per language.

    Args:
      embedder: the model.
      data_dir: folder with files ``aaa-bbb.tsv``.
      languages: codes or sets' names; pairs of two of them are scored. None for all.
      pairs: names of pairs as the files have them ("ara-deu"); None for all.

    Returns:
      The result, see ``suite``; accuracies are shares of 1.

    Raises:
      FileNotFoundError, ValueError: files missing, empty, not UTF-8 or with other columns; an unknown language or pair.
    """
    files = _chosen(find_pairs(data_dir), languages, pairs)
    data = {pair: read_columns(path, 2, "sentence, translation") for pair, path in files.items()}
    sentences = Sentences()
    for pair, rows in data.items():
        for language, side in zip(pair, zip(*rows, strict=True), strict=True):
            sentences.add(language, side, files[pair])
    vectors, histogram, per_pair = sentences.embed(embedder), CosineHistogram(), {}
    for pair, rows in data.items():
        a, b = (vectors.of(code, side) for code, side in zip(pair, zip(*rows, strict=True), strict=True))
        histogram.add(a, b)
        per_pair["-".join(pair)] = {"pairs": len(rows), **translation_scores(a, b, SCORES)}
    codes = sorted({code for pair in data for code in pair})
    groups = {"all": list(per_pair)} | {code: ["-".join(pair) for pair in data if code in pair] for code in codes}
    return {
        "benchmark": "tatoeba_non_english",
        "data": {
            "directory": str(data_dir),
            "sha256": checksum(map(scan, files.values())),
            "distinct_sentences": sentences.distinct,
        },
        "split": "test",
        "direction": list(SCORES),
        "scoring": f"accuracy: {WHAT_IS_RIGHT}; means are over pairs; in both directions: {WHAT_IS_HUBNESS}",
        "index": {"kind": "exact", "recall": 1.0},
        "scores": ["margin", "gap", *SCORES],
        "numbers": ["skewness"],
        "per_language": per_pair,
        "means": group_means(per_pair, groups, (*SCORES, *HUBNESS_SCORES)),
        "figures": [histogram.figure()],
    }


def _chosen(files: dict[tuple[str, str], Path], languages: Sequence[str] | None, pairs: Sequence[str] | None) -> dict:
    found = sorted({code for pair in files for code in pair})
    codes = set(language_sets.choose(found, languages))
    by_name = {"-".join(pair): pair for pair in files}
    if unknown := sorted(set(pairs or ()) - by_name.keys()):
        raise ValueError(f"the data has no pair {', '.join(unknown)}; it has {', '.join(by_name)}")
    chosen = {
        pair: path
        for pair, path in files.items()
        if codes.issuperset(pair) and (pairs is None or "-".join(pair) in pairs)
    }
    if not chosen:
        raise ValueError(
            f"no pair is chosen by languages {languages} and pairs {pairs}; there are {', '.join(by_name)}"
        )
    return chosen


def table(result: dict) -> str:
    """The scores in percent, pair by pair, then the means with the number of pairs in each."""
    names = (*SCORES, "gap", "skewness")
    rows = [[pair, scores["pairs"], *cells(scores, names)] for pair, scores in result["per_language"].items()]
    rows += [[f"mean of {name}", means["languages"], *cells(means, names)] for name, means in result["means"].items()]
    return format_table(("pair", "pairs", *names), rows)
