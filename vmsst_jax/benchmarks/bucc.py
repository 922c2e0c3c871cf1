"""BUCC 2018: which sentences of two monolingual collections translate each other (METHODS 5.2)?

Data in the official form, see ``mining_data``; sets that ``mining_data.make_from_files`` made are read alike.

    VMSST    split training, threshold of the same split; BUCC (c.) margin absolute, BUCC (m.) margin ratio
    UMSE     split test, threshold_split training (gold of test was not published: gold_dir)
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from vmsst_jax import checks
from vmsst_jax.benchmarks import language_sets, mining_data, mining_scores
from vmsst_jax.benchmarks.metrics import group_means
from vmsst_jax.benchmarks.mining_data import MiningSet
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.benchmarks.sentences import Sentences
from vmsst_jax.language_codes import canonical
from vmsst_jax.retrieval import mining
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import scan
from vmsst_jax.retrieval.records import checksum

FOLDER = "bucc2018"


def evaluate(
    embedder: Embedder,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    split: str = "training",
    threshold_split: str | None = None,
    gold_dir: str | os.PathLike | None = None,
    margin: str = "ratio",
    k: int = mining.K,
) -> dict:
    """F1 of mining by margin and by cosine alone, per pair of languages, and the mean over pairs.

    Args:
      embedder: the model.
      data_dir: folder with BUCC's files or with BUCC's folders.
      languages: codes; pairs with one of them are scored. None for all.
      split: which is scored: "training", "sample", "test", or another that is there.
      threshold_split: on which the thresholds are chosen; None takes the best ones for ``split`` itself, which is what
        the papers report on the training set.
      gold_dir: where ``xx-en.SPLIT.gold`` of ``split`` lies, if not beside the sentences.
      margin: of the main score: "ratio", "distance", or "absolute" for the cosine.
      k: neighbours of the margin.

    Returns:
      The result, see ``suite``; F1, precision and recall are shares of 1. A pair with English is called by its other
      language.

    Raises:
      FileNotFoundError, ValueError: an unknown margin or language; fewer sentences than k; what ``mining_data.read``
        raises.
    """
    checks.whole("k", k)
    mining.check_settings(margin, "max")
    tuned_on = split if threshold_split is None else threshold_split
    pairs = _choose(mining_data.find_pairs(data_dir, split), languages)
    sets = {}
    for pair in pairs:
        scored = mining_data.read(data_dir, pair, split, gold_dir)
        sets[pair] = scored, scored if tuned_on == split else mining_data.read(data_dir, pair, tuned_on)
    files = dict.fromkeys(path for both in sets.values() for contents in both for path in contents.files)
    return {
        "benchmark": "bucc",
        "data": {"directory": str(data_dir), "sha256": checksum(map(scan, files))},
        "split": split,
        **score_sets(embedder, sets, margin, k, _where(split, tuned_on)),
    }


def _choose(pairs: list[str], languages: Sequence[str] | None) -> list[str]:
    by_code = {code: pair for pair in pairs for code in pair.split("-") if canonical(code) != "en"}
    return sorted({by_code[code] for code in language_sets.choose(sorted(by_code), languages)})


def _where(split: str, tuned_on: str) -> str:
    return f"best on {split} itself" if tuned_on == split else f"chosen on {tuned_on}"


def score_sets(
    embedder: Embedder, sets: dict[str, tuple[MiningSet, MiningSet]], margin: str, k: int, where: str
) -> dict:
    """Embeds, mines and scores; what every result of mining has.

    Args:
      sets: {"xx-yy": (set that is scored, set whose best thresholds are used)}.
      margin: see ``retrieval.mining``.
      k: its neighbours.
      where: how the thresholds were chosen, in words.
    """
    sentences = Sentences()
    for pair, both in sets.items():
        for contents in both:
            mining_scores.add_sentences(sentences, contents, tuple(pair.split("-")))
    vectors, pictures, per_language = sentences.embed(embedder), mining_scores.Pictures(), {}
    for pair, (scored, tuned) in sets.items():
        codes, margins = tuple(pair.split("-")), ("absolute", margin)
        mined = mining_scores.candidates(scored, codes, vectors, k, margins)
        best = mined if tuned is scored else mining_scores.candidates(tuned, codes, vectors, k, margins)
        foreign = [code for code in codes if canonical(code) != "en"]
        key = foreign[0] if len(foreign) == 1 else pair
        scores = mining_scores.score(mined, best, margin)
        pictures.add_gold(scored, codes, vectors)
        pictures.add_curve(key, mined[margin], scores)
        counts = {"source": len(scored.source), "target": len(scored.target), "gold": len(scored.gold)}
        per_language[key] = counts | scores
    formula = {"ratio": "ratio margin", "distance": "distance margin", "absolute": "cosine"}[margin]
    return {
        "direction": "both: neighbours of source in target and of target in source",
        "scoring": (
            f"F1 of pairs from the highest {formula} down, each sentence used once; margins are over the {k} nearest "
            f"neighbours of both sides; threshold {where}, oracle: best F1 of any threshold; "
            f"{mining_scores.COSINE}: by cosine alone, its threshold likewise; equal sentences are one in the search, "
            "and pairs with a sentence of several ids are dropped"
        ),
        "index": {"kind": "exact", "recall": 1.0},
        "scores": list(mining_scores.SCORES),
        "numbers": list(mining_scores.NUMBERS),
        "per_language": per_language,
        "means": group_means(per_language, {"all": list(per_language)}, mining_scores.SCORES),
        "figures": pictures.figures(),
    }


def table(result: dict) -> str:
    """Scores in percent and the threshold, language by language, then the mean."""
    names = mining_scores.SCORES
    rows = [
        [key, scores["gold"], f"{scores['threshold']:.4f}", *(scores[name] for name in names)]
        for key, scores in result["per_language"].items()
    ]
    mean = result["means"]["all"]
    rows.append([f"mean of {mean['languages']}", "", "", *(mean[name] for name in names)])
    return format_table(("language", "gold", "threshold", *names), rows)
