"""LASER's Tatoeba similarity search: does a sentence find its translation among up to 1,000 (METHODS 5.1)?

Data: ``tatoeba.xxx-eng.xxx`` and ``tatoeba.xxx-eng.eng``, line i of one being line i of the other. Pairs without
English have a benchmark of their own, ``tatoeba_non_english``.

    VMSST tables 1, 3, 4, 7   all 112 languages, "mean" of both directions
    VMSST table 8             groups seen and unseen, ``baseline`` = BiTranslation's results.json
    CCP table 1               group ccp14
    XTREME                    languages xtreme36, direction "en->xx"
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from vmsst_jax.benchmarks import html_report, language_sets
from vmsst_jax.benchmarks.elements import is_number
from vmsst_jax.benchmarks.metrics import (
    HUBNESS_SCORES,
    TRANSLATION_SCORES,
    WHAT_IS_HUBNESS,
    WHAT_IS_RIGHT,
    CosineHistogram,
    cells,
    group_means,
    translation_scores,
)
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.benchmarks.sentences import Sentences
from vmsst_jax.conversion.model import UNDETERMINED
from vmsst_jax.language_codes import canonical
from vmsst_jax.retrieval import isomorphism
from vmsst_jax.retrieval.calibration import Calibrated
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import read_lines, scan
from vmsst_jax.retrieval.records import checksum

PAPER_UNSEEN = 19  # VMSST's text: 112 test languages, 93 in training
ENGLISH = "eng"
DIRECTIONS = ("both", *TRANSLATION_SCORES[:2])


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


def evaluate(
    embedder: Embedder,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    direction: str = "both",
    seen: Sequence[str] | None = None,
    baseline: str | os.PathLike | None = None,
    picture: str | Sequence[str] = (),
) -> dict:
    """Accuracy in both directions per language with the signs of hubness, and macro means over groups of languages.

    Groups are all languages, those seen and unseen in training, and each of ``language_sets.SETS`` that is all there.

    Args:
      embedder: the model.
      data_dir: folder with LASER's files.
      languages: codes or sets' names ("xtreme36"); None for all.
      direction: "both", whose main score is the mean of the two, or "xx->en", or "en->xx" as XTREME searches.
      seen: codes or sets' names ("laser93") of the languages in training; None takes the model's language table. Where
        neither says, no language counts as seen or unseen.
      baseline: results.json of another model on the same data, for VMSST's Table 8: by how much more this model
        gains on it in unseen than in seen languages.
      picture: languages to draw, each with English, before and after calibration (CCP, Figure 1): "de,tr" or a list.

    Returns:
      The result, see ``suite``; accuracies are shares of 1.

    Raises:
      FileNotFoundError, ValueError: files missing, empty, not UTF-8 or of unequal length; an unknown language or
        direction; a baseline of another protocol; a picture of a model without a calibration or of few pairs.
    """
    if direction not in DIRECTIONS:
        raise ValueError(f"direction is {direction!r}; use one of {', '.join(DIRECTIONS)}")
    data = {code: read_pairs(data_dir, code) for code in language_sets.choose(find_languages(data_dir), languages)}
    pictured = picture.split(",") if isinstance(picture, str) else picture
    drawn = language_sets.choose(list(data), pictured) if pictured else []
    if drawn and not isinstance(embedder, Calibrated):
        raise ValueError("a picture shows what calibration does; give the model one (--calibration=FILE)")
    sentences = Sentences()
    for code, pairs in data.items():
        for language, side, path in zip((code, ENGLISH), pairs, _paths(data_dir, code), strict=True):
            sentences.add(language, side, path)
    vectors = sentences.embed(embedder)
    trained, histogram, per_language = _trained(embedder, seen), CosineHistogram(), {}
    for code, pairs in data.items():
        foreign, english = vectors.of(code, pairs.foreign), vectors.of(ENGLISH, pairs.english)
        histogram.add(foreign, english)
        per_language[code] = {
            "pairs": len(pairs.foreign),
            "seen": canonical(code) in trained if trained else None,
            **translation_scores(foreign, english),
        }
    scores = [*TRANSLATION_SCORES] if direction == "both" else [direction]
    result = {
        "benchmark": "tatoeba",
        "data": {
            "directory": str(data_dir),
            "sha256": checksum(scan(path) for code in data for path in _paths(data_dir, code)),
            "distinct_sentences": sentences.distinct,
        },
        "split": "test",
        "direction": scores,
        "scoring": f"accuracy: {WHAT_IS_RIGHT}; means are over languages; in both directions: {WHAT_IS_HUBNESS}",
        "index": {"kind": "exact", "recall": 1.0},
        "scores": ["margin", "gap", *scores],
        "numbers": ["skewness"],
        "per_language": per_language,
        "means": group_means(per_language, _groups(per_language), (*TRANSLATION_SCORES, *HUBNESS_SCORES)),
        "figures": [histogram.figure()],
    }
    for code in drawn:
        result["figures"] += isomorphism.figures(embedder, list(zip(*data[code], strict=True)), (code, ENGLISH))
    return result if baseline is None else result | {"baseline": compare(result, baseline)}


def _trained(embedder: Embedder, seen: Sequence[str] | None) -> set[str]:
    """Canonical codes of the languages in training; empty where nobody knows, or a model's lack English."""
    codes = embedder.languages.codes if seen is None else language_sets.expand(seen)
    trained = {canonical(code) for code in codes} - {UNDETERMINED}
    return trained if seen is not None or canonical(ENGLISH) in trained else set()


def _groups(per_language: dict) -> dict[str, list[str]]:
    return {
        "all": list(per_language),
        "seen": [code for code, scores in per_language.items() if scores["seen"] is True],
        "unseen": [code for code, scores in per_language.items() if scores["seen"] is False],
        **language_sets.whole_sets(list(per_language)),
    }


def compare(result: dict, baseline: str | os.PathLike) -> dict:
    """VMSST's Table 8: the gain on another model's result in unseen languages less that in seen ones.

    Args:
      result: of this model.
      baseline: the other one's results.json.

    Returns:
      {"file", "model": the baseline's fingerprint, "score": which is compared, "seen": gain, "unseen": gain, "delta"}.

    Raises:
      ValueError: the baseline has other data, another direction or other seen languages, or a group is empty.
    """
    (other,) = html_report.read_results([baseline])
    score = result["scores"][-1]
    for name, ours, theirs in (
        ("benchmark", result["benchmark"], other.get("benchmark")),
        ("data", result["data"]["sha256"], other.get("data", {}).get("sha256")),
        ("direction", result["direction"], other.get("direction")),
        ("languages in training", *(_groups(r.get("per_language", {}))["seen"] for r in (result, other))),
    ):
        if ours != theirs:
            raise ValueError(f"{baseline} is of another protocol: {name} {theirs}, here {ours}; evaluate both alike")
    for group in ("seen", "unseen"):
        if not result["means"][group]["languages"]:
            raise ValueError(f"the delta wants seen and unseen languages, but none is {group}; say which with `seen`")
        if not is_number(other["means"].get(group, {}).get(score)):
            raise ValueError(f"{baseline} has no mean {score} of {group} languages; evaluate it again")
    gains = {g: result["means"][g][score] - other["means"][g][score] for g in ("seen", "unseen")}
    return {
        "file": str(baseline),
        "model": other.get("model", {}).get("fingerprint"),
        "score": score,
        **gains,
        "delta": gains["unseen"] - gains["seen"],
    }


def table(result: dict) -> str:
    """The scores in percent, language by language, then the means with the number of languages in each."""
    names = (*result["scores"][2:], "gap", "skewness")
    known = {True: "seen", False: "unseen", None: None}
    rows = [[code, known[s["seen"]], s["pairs"], *cells(s, names)] for code, s in result["per_language"].items()]
    rows += [[f"mean of {name}", m["languages"], "", *cells(m, names)] for name, m in result["means"].items()]
    text = format_table(("language", "in training", "pairs", *names), rows)
    unseen = result["means"]["unseen"]["languages"]
    if len(result["per_language"]) == 112 and unseen:
        text += f"\nunseen: {unseen} of 112 languages (the VMSST paper's text: {PAPER_UNSEEN})"
    if "baseline" in result:
        gain = {name: f"{100 * result['baseline'][name]:+.1f}" for name in ("seen", "unseen", "delta")}
        text += f"\ngain on {result['baseline']['file']}: seen {gain['seen']}, unseen {gain['unseen']}, "
        text += f"delta {gain['delta']}"
    return text


def _paths(data_dir: str | os.PathLike, code: str) -> tuple[Path, Path]:
    return Path(data_dir) / f"tatoeba.{code}-eng.{code}", Path(data_dir) / f"tatoeba.{code}-eng.{ENGLISH}"
