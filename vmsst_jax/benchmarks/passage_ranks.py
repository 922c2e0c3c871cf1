"""Where a question's passage stands among all passages of a source: an evaluator and a report for DPR's runs."""

from __future__ import annotations

import dataclasses

import numpy as np

from vmsst_jax import checks
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.data.question_passages import QuestionTexts
from vmsst_jax.models.text_encoder import TextEncoder
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.training.context import Report, RunContext

QUERIES = 1024  # questions compared with all passages at once
SIMILARITIES = ("dot", "cosine")


@dataclasses.dataclass
class PassageRanks:
    """Mean rank of the right passage, mean of the rank's inverse, and the share of questions that find it first.

    The pool is every question's own passage and its first ``negatives`` others, each once (DPR's average rank).

    Attributes:
      data: a ``QuestionPassages``; its source is read whole, and its lengths are not used.
      negatives: of each question; None for all.
      similarity: "dot" or "cosine".
      batch_size: texts per device call; None is what suits the device.
    """

    data: object
    negatives: int | None = 1
    similarity: str = "dot"
    batch_size: int | None = None

    def __post_init__(self):
        if self.negatives is not None:
            checks.whole("PassageRanks.negatives", self.negatives, 0)
        if self.similarity not in SIMILARITIES:
            raise ValueError(f"PassageRanks.similarity is {self.similarity!r}; use one of {', '.join(SIMILARITIES)}")
        self._ready = None

    def prepare(self, run: RunContext) -> tuple[QuestionTexts, np.ndarray, dict[str, Embedder]]:
        """The questions, the numbers of the passages in the pool, and an embedder for each tower, made once."""
        if self._ready is None:
            texts = self.data.texts()
            pool = np.unique(np.concatenate([texts.positive, *(n[: self.negatives] for n in texts.negatives)]))
            self._ready = texts, pool, {tower: self._embedder(run, tower) for tower in ("query", "passage")}
        return self._ready

    def _embedder(self, run: RunContext, tower: str) -> Embedder:
        config = run.module.config
        return Embedder(
            TextEncoder(config.encoder), run.untrained()[config.parameters_of(tower)], run.tokenizer, run.languages,
            run.embedding, batch_size=self.batch_size, mesh=run.mesh,
        )  # fmt: skip

    def scores(self, run: RunContext, params) -> dict[str, float]:
        """{"accuracy", "mrr", "mean_rank"} with the parameters of a run's module."""
        texts, pool, embedders = self.prepare(run)

        def embed(tower: str, what: list[str]) -> np.ndarray:
            embedder = embedders[tower].with_params(params[run.module.config.parameters_of(tower)])
            return embedder.encode(what, normalize=self.similarity == "cosine")

        passages = embed("passage", [texts.passages[i] for i in pool])
        ranks = ranks_of(embed("query", texts.questions), passages, np.searchsorted(pool, texts.positive))
        return {
            "accuracy": float(np.mean(ranks == 1)),
            "mrr": float(np.mean(1 / ranks)),
            "mean_rank": float(np.mean(ranks)),
        }

    def __call__(self, run: RunContext, state, step: int) -> dict[str, float]:
        return {f"passage_{name}": score for name, score in self.scores(run, state.params).items()}


@dataclasses.dataclass
class PassageRanksReport:
    """The scores, trained beside untrained; its scores are named as ``PassageRanks``' and ``untrained_...``."""

    ranks: PassageRanks

    def __call__(self, run: RunContext, state) -> Report:
        texts, pool, _ = self.ranks.prepare(run)
        untrained, trained = (self.ranks.scores(run, params) for params in (run.untrained(), state.params))
        table = format_table(
            ("", "accuracy", "mrr", "mean rank"),
            [
                [name, scores["accuracy"], scores["mrr"], f"{scores['mean_rank']:.1f}"]
                for name, scores in (("untrained", untrained), ("trained", trained))
            ],
        )
        named = {f"passage_{name}": score for name, score in trained.items()}
        named |= {f"untrained_passage_{name}": score for name, score in untrained.items()}
        head = f"the right passage of {len(texts):,} questions among {len(pool):,}, by {self.ranks.similarity}"
        return Report(f"{head}\n{table}", named)


def ranks_of(questions: np.ndarray, passages: np.ndarray, right: np.ndarray) -> np.ndarray:
    """The rank of each question's own passage, 1 at best; one as similar as it counts as before it.

    Args:
      questions: [B, D]; passages: [P, D]; right: [B], the rows of ``passages`` that are the questions' own.
    """
    ranks = []
    for start in range(0, len(questions), QUERIES):
        similar = questions[start : start + QUERIES] @ passages.T
        own = np.take_along_axis(similar, right[start : start + QUERIES, None], axis=1)
        ranks.append((similar >= own).sum(axis=1))
    return np.concatenate(ranks)
