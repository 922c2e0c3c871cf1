"""Benchmarks as evaluators and reports of a training run: what recipes name in train.evaluators and train.reports."""

from __future__ import annotations

import dataclasses

from vmsst_jax import sharding
from vmsst_jax.benchmarks.held_out import HeldOutRetrieval
from vmsst_jax.benchmarks.latent_use import latent_use, latent_use_text
from vmsst_jax.retrieval.embedder import Embedder
from vmsst_jax.training.context import Report, RunContext


@dataclasses.dataclass
class HeldOut:
    """Retrieval among the held-out pairs of a task.

    As an evaluator it returns the two directions' macro means and their mean, ``retrieval``. Recipes may name the same
    object (by a macro) as an evaluator and, through ``HeldOutReport``, as a report.

    Attributes:
      data: a ``ParallelText``; its ``validation_split`` is read whole.
      pivot: the language that every pair has on one side.
    """

    data: object
    validation_split: str = "validation"
    pivot: str = "en"
    batch_size: int | None = None

    def __post_init__(self):
        self._ready = None

    def prepare(self, run: RunContext) -> tuple[HeldOutRetrieval, Embedder]:
        """The pairs and an embedder for this run's module, made once."""
        if self._ready is None:
            examples = self.data.examples(self.validation_split)
            pairs = [(e["source"], e["target"], e["source_lang"], e["target_lang"]) for e in examples]
            embedder = Embedder(
                run.module, run.untrained(), run.tokenizer, run.languages, run.embedding,
                batch_size=self.batch_size, mesh=run.mesh,
            )  # fmt: skip
            self._ready = HeldOutRetrieval(pairs, pivot=self.pivot), embedder
        return self._ready

    def __call__(self, run: RunContext, state, step: int) -> dict[str, float]:
        benchmark, embedder = self.prepare(run)
        return benchmark(embedder.with_params(state.params).encode).metrics()


@dataclasses.dataclass
class HeldOutReport:
    """The table per language, trained beside untrained; its scores are ``HeldOut``'s, as ``untrained_...`` too."""

    held_out: HeldOut

    def __call__(self, run: RunContext, state) -> Report:
        benchmark, embedder = self.held_out.prepare(run)
        untrained = benchmark(embedder.with_params(run.untrained()).encode)
        trained = benchmark(embedder.with_params(state.params).encode)
        means = "  ".join(f"{name} {trained.means[name]:.3f}" for name in trained.directions)
        text = (
            f"retrieval among held-out pairs, percent right by cosine\n{trained.table(untrained)}\n"
            f"mean accuracy over {len(trained.per_language)} languages "
            f"(pools of {trained.means['pool']:.0f} pairs on average): {means}"
        )
        before = {f"untrained_{name}": score for name, score in untrained.metrics().items()}
        return Report(text, trained.metrics() | before)


@dataclasses.dataclass
class LatentUse:
    """Whether the decoder uses z_sem, on ``batches`` held-out batches of ``data`` (a ``ParallelText``).

    Its scores are nats per pair, ``reconstruction_own``, ``_other`` and ``_zero``, and ``latent_use``: by what share
    of the first another pair's z_sem costs more.
    """

    data: object
    batches: int = 8

    def __call__(self, run: RunContext, state) -> Report:
        stream = self.data.open(run.tokenizer, run.languages, run.seed, sharding.batch_shards(run.mesh))
        batches = [sharding.put_batch(stream.next()[0], run.mesh) for _ in range(self.batches)]
        values = latent_use(run.module, state.params, batches, run.mesh)
        scores = {f"reconstruction_{name}": nats for name, nats in values.items()}
        return Report(latent_use_text(values), scores | {"latent_use": values["other"] / values["own"] - 1})
