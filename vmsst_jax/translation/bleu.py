"""BLEU of a translation model in training, on held-out pairs, by sacrebleu."""

from __future__ import annotations

import dataclasses
from itertools import permutations

from vmsst_jax import checks
from vmsst_jax.models.generation import Decoding
from vmsst_jax.training.context import Report, RunContext
from vmsst_jax.translation.translator import ENDS, Translator

SHOWN = 4  # translations in a report


def bleu_score(translations: list[str], references: list[str], tokenize: str = "13a") -> float:
    """Corpus BLEU, 0 to 100, of one reference each, as sacrebleu has it."""
    import sacrebleu

    return sacrebleu.corpus_bleu(translations, [references], tokenize=tokenize).score


@dataclasses.dataclass
class Bleu:
    """BLEU in both directions of every two languages; the scores are ``bleu_en_de`` and so on, and their mean ``bleu``.

    Recipes may name the same object as an evaluator and, through ``BleuReport``, as a report.

    Attributes:
      data: pairs as text: an object with ``examples(split)``, such as a ``TranslationText``.
      split: which of its splits is translated, whole or its first ``limit`` pairs.
      decoding: how translations are written.
      tokenize: sacrebleu's tokenization: "13a", "intl", "zh", "ja-mecab", ...
    """

    data: object
    split: str = "validation"
    limit: int | None = None
    decoding: Decoding = Decoding()
    tokenize: str = "13a"

    def __post_init__(self):
        if self.limit is not None:
            checks.whole("Bleu.limit", self.limit)
        self._ready = None

    def prepare(self, run: RunContext) -> tuple[Translator, dict[tuple[str, str], list[tuple[str, str]]]]:
        """(translator, {(source, target): pairs}), made once. ValueError where there are no pairs to score."""
        if self._ready is None:
            pairs: dict[tuple[str, str], list[tuple[str, str]]] = {}
            for e in self.data.examples(self.split):
                sides = {e["source_lang"]: e["source"], e["target_lang"]: e["target"]}
                for a, b in permutations(sides, 2):
                    pairs.setdefault((a, b), []).append((sides[a], sides[b]))
            pairs = {direction: rows[: self.limit] for direction, rows in pairs.items()}
            if not pairs:
                raise ValueError(f"Bleu.data has no pairs in the split {self.split!r}: there is nothing to score")
            longest = run.embedding["max_length"] - ENDS
            options = {"decoding": self.decoding, "max_length": longest, "mesh": run.mesh, "seed": run.seed}
            self._ready = Translator(run.module, None, run.tokenizer, run.languages, **options), pairs
        return self._ready

    def translations(self, run: RunContext, params) -> dict[tuple[str, str], tuple[list, list[str]]]:
        """{(source, target): (pairs, translations)}."""
        translator, pairs = self.prepare(run)
        translator = translator.with_params(params)
        return {(a, b): (rows, translator.translate([s for s, _ in rows], a, b)) for (a, b), rows in pairs.items()}

    def scores(self, found) -> dict[str, float]:
        """{"bleu_en_de": ..., ..., "bleu": their mean} of what ``translations`` gives."""
        scores = {
            f"bleu_{a}_{b}": bleu_score(written, [target for _, target in rows], self.tokenize)
            for (a, b), (rows, written) in found.items()
        }
        return {**scores, "bleu": sum(scores.values()) / len(scores)}

    def __call__(self, run: RunContext, state, step: int) -> dict[str, float]:
        return self.scores(self.translations(run, state.params))


@dataclasses.dataclass
class BleuReport:
    """A table of BLEU beside that of copying the source, and some translations."""

    bleu: Bleu

    def __call__(self, run: RunContext, state) -> Report:
        found = self.bleu.translations(run, state.params)
        scores, lines = self.bleu.scores(found), []
        for (a, b), (rows, written) in found.items():
            copied = bleu_score([s for s, _ in rows], [t for _, t in rows], self.bleu.tokenize)
            scores[f"copied_{a}_{b}"] = copied
            lines.append(f"  {a} -> {b}  {scores[f'bleu_{a}_{b}']:6.2f}   the source copied {copied:6.2f}")
            for (source, target), text in list(zip(rows, written, strict=True))[:SHOWN]:
                lines += [f"      {source}", f"      {text}", f"      (reference) {target}", ""]
        count = len(next(iter(found.values()))[0])
        title = f"BLEU (sacrebleu, {self.bleu.tokenize}) on {count:,} pairs of the split {self.bleu.split!r}"
        return Report("\n".join([title, *lines]), scores)
