"""Does a sentence find a neighbour of its own document? CCP's task on held-out documents: an evaluator and a report."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from vmsst_jax import checks
from vmsst_jax.benchmarks.metrics import macro_mean
from vmsst_jax.benchmarks.report import format_table
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.retrieval.exact import top_k
from vmsst_jax.training.context import Report, RunContext

SCORES = ("near", "next")


class ContextPool:
    """The sentences of one language's documents, each text once, and where they stand.

    Every sentence with a neighbour in its document asks for the most similar other text of the pool. That is right as
    "near" if it stands within ``window`` sentences of the one that asks, as "next" if it stands right beside it. Texts
    that several documents hold are in the pool once and right wherever they stand.

    Attributes:
      texts: the pool, in the order of first appearance.
    """

    def __init__(self, documents: Iterable[Sequence[str]], window: int):
        number: dict[str, int] = {}
        rows = [[number.setdefault(text, len(number)) for text in document] for document in documents]
        self.texts = list(number)
        # One asking sentence after another: its text, and the texts that would be right.
        self._asks: list[int] = []
        self._right: dict[str, list[set[int]]] = {name: [] for name in SCORES}
        for row in rows:
            for i, text in enumerate(row):
                near = [set(row[max(i - w, 0) : i + w + 1]) - {text} for w in (window, 1)]
                if near[1]:
                    self._asks.append(text)
                    for name, right in zip(SCORES, near, strict=True):
                        self._right[name].append(right)

    def __len__(self) -> int:
        """How many sentences ask."""
        return len(self._asks)

    def scores(self, vectors: np.ndarray) -> dict[str, float]:
        """{"near", "next"}: shares of 1, by unit vectors [P, D] of ``texts``."""
        _, found = top_k(vectors, vectors, 2)
        itself = np.arange(len(vectors))
        # Vectors may be equal without the texts being so: then the text itself is found second, or not at all.
        best = np.where(found[:, 0] == itself, found[:, 1], found[:, 0])
        return {
            name: float(np.mean([best[text] in wanted for text, wanted in zip(self._asks, right, strict=True)]))
            for name, right in self._right.items()
        }

    def chance(self) -> float:
        """The share of "near" that a random answer would have."""
        return float(np.mean([len(right) for right in self._right["near"]])) / (len(self.texts) - 1)


@dataclasses.dataclass
class ContextRetrieval:
    """Context retrieval among the held-out documents of a task, language by language.

    As an evaluator it returns the means over languages, ``context_near`` and ``context_next``.

    Attributes:
      data: a ``Documents`` of the split to ask in; its cleaning counts, and its window says what is near.
      batch_size: sentences per device call; None is what suits the device.
    """

    data: object
    batch_size: int | None = None

    def __post_init__(self):
        if self.batch_size is not None:
            checks.whole("ContextRetrieval.batch_size", self.batch_size)
        self._ready = None

    def prepare(self, run: RunContext) -> tuple[dict[str, ContextPool], Embedder]:
        """{language: its pool} and an embedder for this run's module, made once; ValueError where nothing can ask."""
        if self._ready is None:
            documents: dict[str, list[list[str]]] = defaultdict(list)
            for example, sentences in self.data.documents.cleaned(run.tokenizer, run.languages):
                documents[example["lang"]].append(sentences)
            pools = {code: ContextPool(documents[code], self.data.window) for code in sorted(documents)}
            pools = {code: pool for code, pool in pools.items() if len(pool) and len(pool.texts) > 2}
            if not pools:
                raise ValueError(
                    f"of the documents of {self.data.task!r}, split {self.data.split!r}, cleaning leaves none with two "
                    "sentences side by side: hold more documents out, or lower Documents.min_pieces"
                )
            embedder = Embedder(
                run.module, run.untrained(), run.tokenizer, run.languages, run.embedding,
                batch_size=self.batch_size, mesh=run.mesh,
            )  # fmt: skip
            self._ready = pools, embedder
        return self._ready

    def per_language(self, run: RunContext, params) -> dict[str, dict[str, float]]:
        """{code: {"pool": texts, "near", "next": shares of 1}} with the parameters of a run's module."""
        pools, embedder = self.prepare(run)
        encode: Callable = embedder.with_params(params).encode
        return {
            code: {"pool": len(pool.texts), **pool.scores(encode(pool.texts, language=code, normalize=True))}
            for code, pool in pools.items()
        }

    def __call__(self, run: RunContext, state, step: int) -> dict[str, float]:
        means = macro_mean(self.per_language(run, state.params).values(), SCORES)
        return {f"context_{name}": means[name] for name in SCORES}


@dataclasses.dataclass
class ContextRetrievalReport:
    """The table per language, trained beside untrained; its scores are the evaluator's, as ``untrained_...`` too."""

    retrieval: ContextRetrieval

    def __call__(self, run: RunContext, state) -> Report:
        pools, _ = self.retrieval.prepare(run)
        scores = [self.retrieval.per_language(run, params) for params in (run.untrained(), state.params)]
        for of_model in scores:
            of_model["mean"] = macro_mean(list(of_model.values()), ("pool", *SCORES))
        window = self.retrieval.data.window
        chance = {code: pool.chance() for code, pool in pools.items()}
        chance["mean"] = float(np.mean(list(chance.values())))
        columns = ((f"within {window}", "near"), ("next to it", "next"))
        header = ["language", "pool", "chance", *(f"{c} {w}" for c, _ in columns for w in ("untrained", "trained"))]
        rows = [
            [code, f"{after['pool']:.0f}", chance[code], *(of[code][name] for _, name in columns for of in scores)]
            for code, after in scores[1].items()
        ]
        text = (
            "a neighbour among all held-out sentences of the language, percent found by cosine: within "
            f"{window} sentences of the same document, or right beside\n{format_table(header, rows)}\n"
            f"mean over {len(pools)} languages (pools of {scores[1]['mean']['pool']:.0f} sentences on average): "
            f"within {window} {scores[1]['mean']['near']:.3f}, untrained {scores[0]['mean']['near']:.3f}"
        )
        if without := [code for code in run.languages.codes if code not in pools]:
            text += f"\nnot asked, since none of their documents is held out: {', '.join(without)}"
        before, after = ({f"context_{name}": of["mean"][name] for name in SCORES} for of in scores)
        return Report(text, after | {f"untrained_{name}": score for name, score in before.items()})
