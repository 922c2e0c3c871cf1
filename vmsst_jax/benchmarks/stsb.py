"""STS-B in English and its machine translations into other languages: both sentences in one language."""

from __future__ import annotations

import os
from collections.abc import Sequence

from vmsst_jax.benchmarks import language_sets
from vmsst_jax.benchmarks.metrics import group_means
from vmsst_jax.benchmarks.sts import SCORES, correlate, protocol, table
from vmsst_jax.benchmarks.sts_files import find_stsb
from vmsst_jax.retrieval.embedder import Embedder

FOLDER = "stsb_multi_mt"

__all__ = ["FOLDER", "evaluate", "table"]


def evaluate(
    embedder: Embedder,
    data_dir: str | os.PathLike,
    *,
    languages: Sequence[str] | None = None,
    split: str | None = None,
) -> dict:
    """Correlation of cosine and gold score per language, and its mean over languages.

    Args:
      embedder: the model.
      data_dir: folder with the files, see ``sts_files.find_stsb``.
      languages: codes or sets' names; None for all.
      split: "dev", "test" or "train"; None where there is only one.

    Returns:
      The result, see ``suite``; correlations are shares of 1.

    Raises:
      FileNotFoundError, ValueError: files missing, malformed or without gold scores; an unknown language or split.
    """
    files = find_stsb(data_dir)
    splits = sorted({found for found, _ in files})
    if not files or (split and split not in splits):
        there = f"it has {', '.join(splits)}" if splits else "it has none"
        raise FileNotFoundError(f"{data_dir} holds no files stsb.xx.{split or 'dev'}.tsv; {there}")
    if split is None and len(splits) > 1:
        raise ValueError(f"{data_dir} holds several splits; say which by split: {', '.join(splits)}")
    of_language = {code: found for (name, code), found in files.items() if name == (split or splits[0])}
    codes = language_sets.choose(sorted(of_language), languages)
    scores, data = correlate(embedder, {code: (of_language[code], (code, code)) for code in codes})
    return {
        "benchmark": "stsb",
        "data": {"directory": str(data_dir), **data},
        "split": split or splits[0],
        **protocol("means are over languages"),
        "per_language": scores,
        "means": group_means(scores, {"all": codes}, SCORES),
    }
