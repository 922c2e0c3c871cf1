"""Retrieval among held-out pairs, language by language: the number that says during training whether it works."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from vmsst_jax.benchmarks.metrics import macro_mean
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.retrieval.exact import nearest

Pair = tuple[str, str, str, str]


@dataclasses.dataclass(frozen=True)
class HeldOutScores:
    """One model's scores.

    Attributes:
      pivot: the language on one side of every pair.
      directions: the names of the two scores, e.g. ("xx->en", "en->xx").
      per_language: {code: {"pool": pairs, "xx->en": accuracy, "en->xx": accuracy}}, accuracies as shares of 1.
    """

    pivot: str
    directions: tuple[str, str]
    per_language: dict[str, dict]

    @property
    def means(self) -> dict[str, float]:
        """Macro means over languages of the pool and both accuracies."""
        return macro_mean(self.per_language.values(), ("pool", *self.directions))

    def metrics(self) -> dict[str, float]:
        """The mean accuracy of each direction and of both: retrieval_xx_en, retrieval_en_xx, retrieval."""
        to_pivot, from_pivot = (self.means[direction] for direction in self.directions)
        return {
            f"retrieval_xx_{self.pivot}": to_pivot,
            f"retrieval_{self.pivot}_xx": from_pivot,
            "retrieval": (to_pivot + from_pivot) / 2,
        }

    def table(self, untrained: HeldOutScores) -> str:
        """Both models' scores in percent, per language and on average; ``self`` is the trained one."""
        header = ["language", "pool", *(f"{d} {when}" for d in self.directions for when in ("untrained", "trained"))]
        before, after = ({**s.per_language, "mean": s.means} for s in (untrained, self))
        rows = [
            [
                name,
                f"{after[name]['pool']:.0f}",
                *(scores[name][d] for d in self.directions for scores in (before, after)),
            ]
            for name in after
        ]
        return format_table(header, rows)


class HeldOutRetrieval:
    """Does a sentence find its translation among all held-out pairs of its language?

    The sentence found is right if it is the very text that was wanted, or belongs to a pair of the same pivot text: a
    message that two catalogues translate differently has two right translations.

    Args:
      pairs: (source text, target text, source language, target language), the pivot on either side; exact repetitions
        count once.
      pivot: the language on one side of every pair.

    Attributes:
      pool_sizes: {language: number of pairs}, sorted by language.
      directions: the names of the two scores, e.g. ("xx->en", "en->xx").

    Raises:
      ValueError: no pairs, or a pair that doesn't have the pivot on exactly one side.
    """

    def __init__(self, pairs: Iterable[Pair], pivot: str = "en"):
        pools: dict[str, dict[tuple[str, str], None]] = {}
        for source, target, source_lang, target_lang in pairs:
            if (source_lang == pivot) == (target_lang == pivot):
                raise ValueError(
                    f"a held-out pair is {source_lang}-{target_lang}; wanted {pivot!r} on exactly one side, "
                    "or name another pivot"
                )
            other, text, pivot_text = (
                (target_lang, target, source) if source_lang == pivot else (source_lang, source, target)
            )
            pools.setdefault(other, {})[text, pivot_text] = None
        if not pools:
            raise ValueError(
                "there are no held-out pairs to score retrieval on; hold some out or switch the scoring off"
            )
        self._pools = {language: list(pools[language]) for language in sorted(pools)}
        self._texts = list(dict.fromkeys(t for pool in self._pools.values() for pair in pool for t in pair))
        self._id = {text: i for i, text in enumerate(self._texts)}
        self.pivot = pivot
        self.directions = (f"xx->{pivot}", f"{pivot}->xx")
        self.pool_sizes = {language: len(pool) for language, pool in self._pools.items()}

    def __call__(self, encode: Callable[[Sequence[str]], np.ndarray]) -> HeldOutScores:
        """Scores a model by cosine; ``encode``: sentences -> vectors [n, D], asked once for each distinct sentence."""
        vectors = np.asarray(encode(self._texts))
        per_language = {language: self._score(pool, vectors) for language, pool in self._pools.items()}
        return HeldOutScores(self.pivot, self.directions, per_language)

    def _score(self, pool: list[tuple[str, str]], vectors: np.ndarray) -> dict:
        other, pivot = np.array([[self._id[text] for text in pair] for pair in pool]).T  # [n] ids of texts each
        to_pivot = nearest(vectors[other], vectors[pivot])
        from_pivot = nearest(vectors[pivot], vectors[other])
        right = (
            pivot[to_pivot] == pivot,
            (pivot[from_pivot] == pivot) | (other[from_pivot] == other),
        )
        scores = {name: float(np.mean(r)) for name, r in zip(self.directions, right, strict=True)}
        return {"pool": len(pool), **scores}
