"""The training loss on held-out pairs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import jax
import numpy as np

from vmsst_jax import sharding
from vmsst_jax.training.context import RunContext
from vmsst_jax.training.step import loss_function


@dataclasses.dataclass
class ValidationLoss:
    """Mean of an objective's metrics over ``batches`` held-out batches, always the same, without dropout or sampling.

    ``data`` opens like a training stream (a ``ParallelText`` on the validation split). Metrics come back with the
    prefix ``validation_``.
    """

    data: object
    objective: Callable
    batches: int = 8

    def __post_init__(self):
        if not isinstance(self.batches, int) or self.batches < 1:
            raise ValueError(f"ValidationLoss.batches is {self.batches!r}; wanted a whole number of at least 1")
        self._cached = None

    def prepare(self, run: RunContext):
        """(batches on the devices, compiled metrics), made once."""
        if self._cached is None:
            self._cached = self._open(run)
        return self._cached

    def _open(self, run: RunContext):
        stream = self.data.open(run.tokenizer, run.languages, run.seed, sharding.batch_shards(run.mesh))
        batches = [sharding.put_batch(stream.next()[0], run.mesh) for _ in range(self.batches)]
        loss_fn = loss_function(run.module, self.objective, train=False)

        def metrics(state, batch):
            return loss_fn(state.params, state.model_state, batch, state.step, jax.random.key(run.seed))[1][0]

        return batches, jax.jit(metrics)

    def __call__(self, run: RunContext, state, step: int) -> dict[str, float]:
        batches, metrics = self.prepare(run)
        with jax.set_mesh(run.mesh):
            values = [metrics(state, batch) for batch in batches]
        return {f"validation_{name}": float(np.mean([v[name] for v in values])) for name in values[0]}
