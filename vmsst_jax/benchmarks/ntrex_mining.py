"""Mining NTREX: translations of newstest2019 hidden among sentences of the same news (METHODS 5.2, "News set").

This project's own set, since BUCC's files are not to be had everywhere; its figures compare with each other alone.
Data: ``newstest2019-src.eng.txt`` and ``newstest2019-ref.xxx.txt``, line-aligned. Half of the sentences serves to
choose the threshold, the other to test. In each half some pairs stay whole, and of the others one side alone is kept.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from vmsst_jax import checks
from vmsst_jax.benchmarks import bucc, language_sets, mining_data
from vmsst_jax.benchmarks.mining_data import MiningSet
from vmsst_jax.retrieval import mining
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.lines import read_lines, scan
from vmsst_jax.retrieval.records import checksum

FOLDER = "ntrex"
ENGLISH = "eng"


def evaluate(
    embedder: Embedder,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    pairs: int = 250,
    seed: int = 0,
    margin: str = "ratio",
    k: int = mining.K,
) -> dict:
    """F1 of mining by margin and by cosine alone, each language with English, thresholds from the tuning half.

    Args:
      embedder: the model.
      data_dir: folder with NTREX's files.
      languages: codes as the files have them, or ISO 639-1; None for all.
      pairs: hidden in each half.
      seed: of the choice of sentences.
      margin: of the main score: "ratio", "distance", or "absolute" for the cosine.
      k: neighbours of the margin.

    Returns:
      The result, see ``suite``; F1, precision and recall are shares of 1.

    Raises:
      FileNotFoundError, ValueError: files missing, empty, not UTF-8 or of unequal length; an unknown language; too few
        sentences.
    """
    for name, value in (("pairs", pairs), ("k", k)):
        checks.whole(name, value)
    mining.check_settings(margin, "max")
    codes = language_sets.choose(find_languages(data_dir), languages)
    sets = {f"{code}-{ENGLISH}": _sets(data_dir, code, pairs, seed) for code in codes}
    files = dict.fromkeys(_path(data_dir, code) for code in (*codes, ENGLISH))
    return {
        "benchmark": "ntrex_mining",
        "data": {
            "directory": str(data_dir),
            "sha256": checksum(map(scan, files)),
            "hidden_pairs": pairs,
            "seed": seed,
        },
        "split": "test",
        **bucc.score_sets(embedder, sets, margin, k, "chosen on the other half"),
    }


def find_languages(data_dir: str | os.PathLike) -> list[str]:
    """The codes xxx of the files ``newstest2019-ref.xxx.txt``, sorted; FileNotFoundError where there are none."""
    codes = sorted(path.name.split(".")[1] for path in Path(data_dir).glob("newstest2019-ref.*.txt"))
    if not codes:
        raise FileNotFoundError(f"{data_dir} holds no files newstest2019-ref.xxx.txt, as NTREX has them")
    return codes


def _path(data_dir: str | os.PathLike, code: str) -> Path:
    return Path(data_dir) / f"newstest2019-{'src' if code == ENGLISH else 'ref'}.{code}.txt"


def _sets(data_dir: str | os.PathLike, code: str, hidden: int, seed: int) -> tuple[MiningSet, MiningSet]:
    """The set that is scored and the one that the threshold is from."""
    paths = _path(data_dir, code), _path(data_dir, ENGLISH)
    foreign, english = map(read_lines, paths)
    if len(foreign) != len(english):
        raise ValueError(
            f"{paths[0]} has {len(foreign)} lines and {paths[1]} {len(english)}; line i of one has to translate line i "
            "of the other"
        )
    made = mining_data.hide(
        list(zip(foreign, english, strict=True)),
        hidden,
        languages=(code, ENGLISH),
        seed=seed,
        files=(*paths, paths[0]),
    )
    return made["test"], made["training"]


table = bucc.table
