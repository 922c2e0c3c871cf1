"""The benchmarks by name, each a function ``(embedder, data_dir, *, languages=None, options) -> result``.

A result is a dictionary ready for JSON that holds at least "benchmark", "data", "split", "direction", "scoring",
"index" (kind and recall), "per_language" and "means". The module has ``table(result) -> str`` beside it.
"""

from __future__ import annotations

import importlib
import inspect
import os

from vmsst_jax.retrieval.embedder import Embedder

# Module of each: named, not imported, so that listing them costs nothing.
BENCHMARKS = {"tatoeba": "vmsst_jax.benchmarks.tatoeba"}


def check(name: str) -> None:
    """ValueError, listing the known ones, if there is no benchmark of this name."""
    if name not in BENCHMARKS:
        raise ValueError(f"there is no benchmark {name!r}; known: {', '.join(sorted(BENCHMARKS))}")


def run(name: str, embedder: Embedder, data_dir: str | os.PathLike, options: dict) -> tuple[dict, str]:
    """Scores ``embedder`` on a benchmark: (result, the table to print).

    Args:
      name: a key of ``BENCHMARKS``.
      data_dir: where its files lie.
      options: the benchmark's own, by name; "languages" (codes, or None for all) is known to each.

    Raises:
      ValueError: there is no such benchmark or option; and what the benchmark itself raises.
    """
    check(name)
    module = importlib.import_module(BENCHMARKS[name])
    known = [p.name for p in inspect.signature(module.evaluate).parameters.values() if p.kind is p.KEYWORD_ONLY]
    if unknown := sorted(options.keys() - set(known)):
        raise ValueError(f"the benchmark {name} has no option {', '.join(unknown)}; it has {', '.join(known)}")
    result = module.evaluate(embedder, data_dir, **options)
    return result, module.table(result)
