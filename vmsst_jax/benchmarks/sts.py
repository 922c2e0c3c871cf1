"""Semantic textual similarity: SemEval 2012 to 2016 in English, and the tracks of 2017 (METHODS 5.3).

VMSST tables 1, 4, 6, 7   Pearson of "English" and "XL"
VMSST table 2             Spearman of single tracks and years, as the literature has it
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from vmsst_jax.benchmarks import language_sets
from vmsst_jax.benchmarks.metrics import group_means
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.benchmarks.sentences import Sentences
from vmsst_jax.benchmarks.sts_files import Files, Scored, find_semeval
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import scan
from vmsst_jax.retrieval.records import checksum

SCORES = ("spearman", "pearson")
ENGLISH = {
    2012: ("MSRpar", "MSRvid", "SMTeuroparl", "surprise.OnWN", "surprise.SMTnews"),
    2013: ("FNWN", "headlines", "OnWN", "SMT"),
    2014: ("deft-forum", "deft-news", "headlines", "images", "OnWN", "tweet-news"),
    2015: ("answers-forums", "answers-students", "belief", "headlines", "images"),
    2016: ("answer-answer", "headlines", "plagiarism", "postediting", "question-question"),
}
# The languages of each track's first and second sentence: not always in the order of the track's name.
TRACKS = {
    "track1.ar-ar": ("ar", "ar"),
    "track2.ar-en": ("en", "ar"),
    "track3.es-es": ("es", "es"),
    "track4a.es-en": ("es", "en"),
    "track4b.es-en": ("en", "es"),
    "track5.en-en": ("en", "en"),
    "track6.tr-en": ("en", "tr"),
}
XL = ("track1.ar-ar", "track2.ar-en", "track3.es-es", "track4a.es-en", "track6.tr-en")
LANGUAGES = {(year, name): ("en", "en") for year, names in ENGLISH.items() for name in names} | {
    (2017, name): languages for name, languages in TRACKS.items()
}


def evaluate(
    embedder: Embedder,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    years: Sequence[int] | None = None,
) -> dict:
    """Correlation of cosine and gold score per set; means over the sets of a year, then over years.

    Sets that are not there are named in "missing"; a mean is over those that are.

    Args:
      embedder: the model.
      data_dir: folder with the sets' files, see ``sts_files.find_semeval``.
      languages: codes or sets' names; sets with both sentences in them are scored. None for all.
      years: of 2012 to 2017; None for all that are there.

    Returns:
      The result, see ``suite``. Groups are the years, "English" (the mean of the years 2012 to 2016) and "XL" (VMSST's
      five tracks of 2017); correlations are shares of 1.

    Raises:
      FileNotFoundError, ValueError: no set is there; files missing, malformed or without gold scores; an unknown year,
        language or set.
    """
    files = find_semeval(data_dir)
    if not files:
        raise FileNotFoundError(
            f"{data_dir} holds no STS sets; wanted sts12.MSRpar.tsv and so on, or SemEval's STS.input.MSRpar.txt and "
            "STS.gs.MSRpar.txt in folders named after the year"
        )
    for key in files.keys() - LANGUAGES.keys():
        known = ", ".join(name for year, name in LANGUAGES if year == key[0])
        raise ValueError(f"{files[key].paths[0]}: STS {key[0]} has no set {key[1]!r}; it has {known}")
    wanted = _wanted(files, languages, years)
    found = {f"{year} {name}": (year, name) for year, name in wanted if (year, name) in files}
    if not found:
        raise ValueError(f"{data_dir} has no set of the years {years} in the languages {languages}")
    sets = {name: (files[key], LANGUAGES[key]) for name, key in found.items()}
    per_set, data = correlate(embedder, sets)
    return {
        "benchmark": "sts",
        "data": {"directory": str(data_dir), **data},
        "split": "test",
        **protocol("means are over sets within a year, then over years"),
        "missing": [f"{year} {name}" for year, name in wanted if (year, name) not in files],
        "per_language": per_set,
        "means": _means(per_set, found),
    }


def _wanted(files: dict[tuple[int, str], Files], languages, years) -> list[tuple[int, str]]:
    """The sets that there should be: of the families (English, tracks) that are there, as far as they are chosen."""
    chosen = None if years is None else set(map(str, years))
    if unknown := sorted((chosen or set()) - {str(year) for year, _ in LANGUAGES}):
        raise ValueError(f"there is no STS of {', '.join(unknown)}; years are 2012 to 2017")
    codes = set(language_sets.choose(["ar", "en", "es", "tr"], languages))
    families = {year == 2017 for year, _ in files}
    return [
        (year, name)
        for (year, name), sides in LANGUAGES.items()
        if ((year == 2017) in families if chosen is None else str(year) in chosen) and codes.issuperset(sides)
    ]


def _means(per_set: dict[str, dict], found: dict[str, tuple[int, str]]) -> dict[str, dict]:
    groups: dict[str, list[str]] = {}
    for name, (year, _) in found.items():
        groups.setdefault(str(year), []).append(name)
    means = group_means(per_set, groups, SCORES)
    years = [str(year) for year in ENGLISH if str(year) in groups]
    if years:
        means |= group_means(means, {"English": years}, SCORES)
    if xl := [name for name, (_, track) in found.items() if track in XL]:
        means |= group_means(per_set, {"XL": xl}, SCORES)
    return means


def correlate(embedder: Embedder, sets: dict[str, tuple[Files, tuple[str, str]]]) -> tuple[dict, dict]:
    """Scores any number of sets, each distinct sentence embedded once.

    Args:
      sets: {name: (its files, the languages of its first and second sentences)}.

    Returns:
      ({name: {"languages", "pairs", "unscored", "spearman", "pearson"}}, {"sha256", "distinct_sentences"}).
    """
    data = {name: files.read() for name, (files, _) in sets.items()}
    sentences = Sentences()
    for name, (files, (first, second)) in sets.items():
        sentences.add(first, data[name].first, files.paths[0], data[name].lines)
        sentences.add(second, data[name].second, files.paths[0], data[name].lines)
    vectors, scores = sentences.embed(embedder), {}
    for name, (files, (first, second)) in sets.items():
        a, b = vectors.of(first, data[name].first), vectors.of(second, data[name].second)
        cosines = np.einsum("nd,nd->n", a, b, dtype=np.float64)
        scores[name] = {
            "languages": f"{first}-{second}",
            "pairs": len(cosines),
            "unscored": data[name].unscored,
            **correlations(cosines, data[name], files),
        }
    checked = checksum(scan(path) for files, _ in sets.values() for path in files.paths)
    return scores, {"sha256": checked, "distinct_sentences": sentences.distinct}


def correlations(cosines: np.ndarray, scored: Scored, files: Files) -> dict[str, float]:
    """Spearman's (ties share their mean rank) and Pearson's correlation of cosines [n] with the gold scores.

    Raises ValueError where the cosines are all the same but for rounding, which correlates with nothing.
    """
    from scipy import stats

    if np.ptp(cosines) < 1e-6:
        raise ValueError(f"{files.paths[0]}: the cosines of all {len(cosines)} pairs are the same; no correlation")
    return {
        "spearman": float(stats.spearmanr(cosines, scored.gold).statistic),
        "pearson": float(stats.pearsonr(cosines, scored.gold).statistic),
    }


def protocol(means: str) -> dict:
    """What the results of all these benchmarks say of how they were made."""
    return {
        "direction": "none",
        "scoring": f"Pearson's and Spearman's correlation of cosine and gold; pairs without gold are left out; {means}",
        "index": {"kind": "none", "recall": 1.0},
        "scores": list(SCORES),
    }


def table(result: dict) -> str:
    """The correlations times 100, set by set, then the means, then the sets that are missing."""
    rows = [
        [name, s["languages"], s["pairs"], *(s[score] for score in SCORES)]
        for name, s in result["per_language"].items()
    ]
    for name, mean in result["means"].items():
        rows.append([f"mean of {name}", "", mean["languages"], *(mean[score] for score in SCORES)])
    text = format_table(("set", "languages", "pairs", *SCORES), rows)
    if result.get("missing"):
        text += f"\nmissing, so in no mean: {', '.join(result['missing'])}"
    return text
