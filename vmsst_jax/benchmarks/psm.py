"""Parallel sentence matching on newstest, all directions, and which layer is best at it (UMSE's Table 3 and Figure 1).

Data: ``newstest2012.cs``, ``newstest2012.de`` and so on: line i of all files of a set is the same sentence. UMSE tunes
on newstest2012 and tests on newstest2013, each with cs de en es fr ru.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import combinations, permutations
from pathlib import Path

import numpy as np

from vmsst_jax.benchmarks import language_sets
from vmsst_jax.benchmarks.metrics import DIRECTION_SCORES, WHAT_IS_HUBNESS, WHAT_IS_RIGHT, group_means, match_rows
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.benchmarks.sentences import Sentences, Vectors
from vmsst_jax.language_codes import canonical
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import read_lines, scan
from vmsst_jax.retrieval.neighbours import two_way
from vmsst_jax.retrieval.records import checksum

FOLDER = "newstest"


def find_files(data_dir: str | os.PathLike, test_set: str | None = None) -> tuple[str, dict[str, Path]]:
    """(name of the set, {language: its file}) of the files ``newstestYYYY.xx`` in ``data_dir``.

    Args:
      test_set: "newstest2012" or whichever, also of another name; None where there is only one ``newstestYYYY``.

    Raises:
      FileNotFoundError: there is no such set.
      ValueError: there are several and none is named, or it has a single language.
    """
    folder, sets = Path(data_dir), {}
    for path in sorted(folder.glob("*.*")):
        name, _, code = path.name.rpartition(".")
        if name == test_set or name.startswith("newstest"):
            sets.setdefault(name, {})[code] = path
    if test_set not in sets and (test_set or not sets):
        there = f"it has {', '.join(sets)}" if sets else "it has none"
        raise FileNotFoundError(f"{folder} holds no files {test_set or 'newstest2012'}.xx; {there}")
    if test_set is None and len(sets) > 1:
        raise ValueError(f"{folder} holds several sets; say which by test_set: {', '.join(sets)}")
    name = test_set or next(iter(sets))
    return name, sets[name]


def evaluate(
    embedder: Embedder,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    test_set: str | None = None,
    layers: bool | None = None,
) -> dict:
    """Matching accuracy in every direction between the languages there are, and of every hidden state.

    The scores per direction are of the model's own embedding; "layers" has the mean of each hidden state, pooled as the
    model pools, before any dense layer.

    Args:
      embedder: the model.
      data_dir: folder with files ``newstestYYYY.xx``.
      languages: codes; None for all.
      test_set: "newstest2012" or whichever, also one of your own; None where there is only one ``newstestYYYY``.
      layers: whether to score every hidden state too, which takes a second pass; None does where the model has them.

    Returns:
      The result, see ``suite``; keys of "per_language" are directions such as "cs->de".

    Raises:
      FileNotFoundError, ValueError: files missing, empty, not UTF-8 or of unequal length; an unknown language; layers
        of a model that has none.
    """
    name, files = find_files(data_dir, test_set)
    data = _read({code: files[code] for code in language_sets.choose(list(files), languages)})
    sentences = Sentences()
    for code, texts in data.items():
        sentences.add(code, texts, files[code])
    per_direction = _directions(data, sentences.embed(embedder))
    result = {
        "benchmark": "psm",
        "data": {
            "directory": str(data_dir),
            "sha256": checksum(scan(files[code]) for code in data),
            "distinct_sentences": sentences.distinct,
        },
        "split": name,
        "direction": list(per_direction),
        "scoring": f"accuracy: {WHAT_IS_RIGHT}; means are over directions; {WHAT_IS_HUBNESS}",
        "index": {"kind": "exact", "recall": 1.0},
        "scores": ["margin", "gap", "accuracy"],
        "numbers": ["skewness"],
        "per_language": per_direction,
        "means": group_means(per_direction, _groups(per_direction, list(data)), DIRECTION_SCORES),
    }
    if layers or (layers is None and _has_layers(embedder)):
        result |= _sweep(data, sentences, embedder)
    return result


def _read(files: dict[str, Path]) -> dict[str, list[str]]:
    data = {code: read_lines(path) for code, path in files.items()}
    if len(data) < 2:
        raise ValueError(f"there is only {', '.join(map(str, files.values()))}; wanted two languages or more to match")
    (first, texts), *others = data.items()
    for code, other in others:
        if len(other) != len(texts):
            raise ValueError(
                f"{files[first]} has {len(texts)} lines and {files[code]} {len(other)}; line i of one has to be line i "
                "of the other, so fetch both again"
            )
    return data


def _directions(data: dict[str, list[str]], vectors: Vectors) -> dict[str, dict]:
    sides = {code: vectors.of(code, texts) for code, texts in data.items()}
    found = {}
    for a, b in combinations(data, 2):
        found[f"{a}->{b}"], found[f"{b}->{a}"] = match_rows(sides[a], sides[b])
    return {f"{a}->{b}": {"pairs": len(data[a]), **found[f"{a}->{b}"]} for a, b in permutations(data, 2)}


def _groups(per_direction: dict, codes: list[str]) -> dict[str, list[str]]:
    """All directions, those with and without English, and those from and to each language."""
    ends = {key: key.split("->") for key in per_direction}
    english = [key for key, sides in ends.items() if "en" in map(canonical, sides)]
    groups = {"all": list(ends), "with en": english, "without en": [key for key in ends if key not in english]}
    for code in codes:
        groups[f"from {code}"] = [key for key, sides in ends.items() if sides[0] == code]
        groups[f"to {code}"] = [key for key, sides in ends.items() if sides[1] == code]
    return groups


def _has_layers(embedder: Embedder) -> bool:
    """Whether the model offers its hidden states: those that don't say so when they are asked for no sentence's."""
    try:
        embedder.encode_layers([])
    except (AttributeError, ValueError):
        return False
    return True


def _sweep(data: dict[str, list[str]], sentences: Sentences, embedder: Embedder) -> dict:
    """{"layers": [{"layer", "accuracy", "lowest", "highest"}], "best_layer", "figures"}: see ``evaluate``."""
    layers, rows = [], np.arange(len(next(iter(data.values()))))
    for layer, vectors in enumerate(sentences.embed_layers(embedder)):
        sides = {code: vectors.of(code, texts) for code, texts in data.items()}
        nearest = [two_way(sides[a], sides[b], 1) for a, b in combinations(data, 2)]
        found = [float(np.mean(ids[:, 0] == rows)) for pair in nearest for ids in (pair.ids_xy, pair.ids_yx)]
        layers.append({"layer": layer, "accuracy": float(np.mean(found)), "lowest": min(found), "highest": max(found)})
    best = max(layers, key=lambda row: row["accuracy"])
    points = [[row["layer"], round(100 * row["accuracy"], 3)] for row in layers]
    figure = {
        "kind": "lines",
        "title": f"Parallel sentence matching by layer, mean over {len(found)} directions",
        "x_label": "hidden state (0: the embeddings)",
        "y_label": "accuracy, percent",
        "series": {"accuracy": points},
        "marks": [[*points[best["layer"]], f"best: {best['layer']}"]],
    }
    return {"layers": layers, "best_layer": best["layer"], "figures": [figure]}


def table(result: dict) -> str:
    """The accuracies in percent as a matrix of directions, the means, and the layers where they were swept."""
    scores = result["per_language"]
    codes = list(dict.fromkeys(key.split("->")[0] for key in scores))
    rows = [[a, *(scores[f"{a}->{b}"]["accuracy"] if a != b else None for b in codes)] for a in codes]
    text = format_table(("from \\ to", *codes), rows) + "\n\n"
    means = [
        [name, mean["languages"], mean["accuracy"], mean["gap"]]
        for name, mean in result["means"].items()
        if mean["languages"]
    ]
    text += format_table(("mean of directions", "directions", "accuracy", "gap"), means)
    if "layers" in result:
        names = ("layer", "accuracy", "lowest", "highest")
        rows = [
            [f"{row['layer']}{' best' * (row['layer'] == result['best_layer'])}", *(row[n] for n in names[1:])]
            for row in result["layers"]
        ]
        text += "\n\n" + format_table(names, rows)
    return text
