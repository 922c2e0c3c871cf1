"""What a recipe needs before it runs: memory, arithmetic and traffic of its steps on any mesh, and their real speed.

Nothing here reads data: batches have the recipe's shapes and random contents. On a machine without the devices in
question the steps are compiled for them all the same: for TPUs through their own compiler, else on fake CPU devices.
"""

from __future__ import annotations

import contextlib
import re
import statistics
import time
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from vmsst_jax import sharding
from vmsst_jax.data.languages import Languages
from vmsst_jax.training import cost, state
from vmsst_jax.training.step import check_objectives, jitted_step, loss_function, train_step

INDEX_ARRAYS = ("slot", "row", "text_id", "document_id")
LANGUAGE_ARRAYS = ("lang", "languages", "source_lang", "target_lang")


def profile(recipe: dict, devices: Sequence, *, steps: int = 0, trace: str | None = None) -> dict:
    """Compiles each stream's step of a recipe for ``devices`` and counts.

    Args:
      recipe: arguments of ``training.run.train``.
      devices: those of the mesh; compile-only ones of a TPU topology will do for ``steps`` 0.
      steps: how many steps of each stream to time, on real devices; 0 is none.
      trace: folder for a trace of one more step (TensorBoard, xprof); needs ``steps``.

    Returns:
      {"devices", "parameters", "bytes_per_device", "streams"}, ready for JSON; bytes are those of one device.

    Raises:
      ValueError: the mesh does not fit the devices, or a batch the mesh.
    """
    if not recipe["streams"]:
        raise ValueError("train.streams is empty; wanted at least one @Stream()")
    mesh = recipe["mesh"](devices=devices)
    module = recipe["model"](len(Languages(recipe["languages"])))
    check_objectives(recipe["streams"], module, mesh)
    target = state.abstract_state(module, recipe["optimizer"], mesh)
    counts = {
        "parameters": cost.shard_bytes(target.params),
        "optimizer": cost.shard_bytes(target.opt_state),
        "model_state": cost.shard_bytes(target.model_state),
        "gradients": cost.shard_bytes(target.params),
    }
    streams = {}
    for index, stream in enumerate(recipe["streams"]):
        job = _Job(module, recipe["optimizer"], stream, index, mesh, target, counts)
        streams[stream.name] = job.describe(steps, trace)
    return {
        "devices": {
            "kind": devices[0].device_kind,
            "platform": devices[0].platform,
            "count": len(devices),
            "mesh": dict(mesh.shape),
        },
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(target.params)),
        "bytes_per_device": counts,
        "streams": streams,
    }


class _Job:
    """One stream's step on one mesh."""

    def __init__(self, module, optimizer, stream, index: int, mesh, target, counts: dict):
        self.module, self.stream, self.mesh, self.target, self.counts = module, stream, mesh, target, counts
        self.optimizer = optimizer
        self.shards = sharding.batch_shards(mesh)
        self.accumulate = stream.accumulate
        self.axis = 1 if self.accumulate > 1 else 0
        self.shapes = stream.data.shapes(self.shards, self.accumulate)
        self.step = train_step(module, stream.objective, optimizer, stream=index, accumulate=self.accumulate)

    def describe(self, steps: int, trace: str | None) -> dict:
        batch = self._map_shapes(self._abstract)
        with jax.set_mesh(self.mesh):
            begin = time.perf_counter()
            lowered = jitted_step(self.step, self.target, self.mesh).lower(self.target, batch)
            traced = time.perf_counter()
            compiled = self._compile(lowered)
            ready = time.perf_counter()
            executed = cost.matmul_flops(self.step, self.target, batch)
            forward, written = self._forward_flops()
            analytic = self._analytic()
        dtype = "bfloat16" if "bf16" in lowered.as_text() else "float32"
        facts = {
            "examples": self._examples(batch),
            "tokens": sum(x.size for x in jax.tree.leaves(batch) if x.ndim > 1 + self.axis),
            "dtype": dtype,
            "flops": {
                # Forward, and twice as much for the gradients: what is made again under remat doesn't count. What
                # the model writes by itself has no gradient.
                "model": self.accumulate * (3 * forward + written),
                "executed": executed,
                "xla": self._xla_flops(compiled),
            },
            "collectives": cost.collective_bytes(compiled.as_text()),
            "memory": self._memory(compiled, dtype),
            "analytic": analytic,
            "seconds": {"trace": traced - begin, "compile": ready - traced},
        }
        if steps:
            found = self._measure(compiled, dtype, steps, trace)
            rate = facts["flops"]["model"] / found["seconds"]
            found |= {"examples_per_second": facts["examples"] / found["seconds"], "flops_per_second": rate}
            facts["measured"] = found | {"utilization": rate / found["matmul_flops_per_second"]}
        return facts

    def _compile(self, lowered):
        try:
            return lowered.compile()
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            found = re.search(r"Ran out of memory.*", str(error)) or re.search(r".*RESOURCE_EXHAUSTED.*", str(error))
            raise ValueError(
                f"the stream {self.stream.name} does not fit: {found[0]} Spread it over more devices "
                "(make_mesh.fsdp), keep less for the backward pass (T5Config.remat, model.encoder_chunk), or take "
                "smaller micro-batches (Stream.accumulate)"
            ) from None

    def _map_shapes(self, function: Callable):
        """The batch with ``function(name, shape)`` in place of every array."""
        return {
            name: tuple(function(name, s) for s in shape) if isinstance(shape[0], tuple) else function(name, shape)
            for name, shape in self.shapes.items()
        }

    def _abstract(self, name: str, shape):
        return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=sharding.batch_sharding(shape, self.mesh, self.axis))

    def _random(self, name: str, shape):
        """Rows without padding; index arrays count, as every permutation costs the same."""
        if name in INDEX_ARRAYS:
            counted = np.arange(np.prod(shape[self.axis :]), dtype=np.int32).reshape(shape[self.axis :])
            return np.broadcast_to(counted, shape)
        high = 1 if name in LANGUAGE_ARRAYS else self.module.vocab_size
        return np.random.default_rng(0).integers(min(3, high - 1), high, shape, np.int32)

    def _examples(self, batch) -> int:
        """Pairs of an update, or rows where a batch has no pairs."""
        if "slot" in batch:
            return batch["slot"].size // 2
        first = next(x for x in jax.tree.leaves(batch) if x.ndim > 1)
        return first.size // first.shape[-1]

    def _loss(self) -> tuple:
        """(loss as a function of parameters, model state, batch and key, and the latter three's shapes)."""
        function = loss_function(self.module, self.stream.objective, True)

        def loss(params, model_state, batch, key):
            return function(params, model_state, batch, jnp.int32(0), key)[0]

        micro = self._map_shapes(lambda _, shape: jax.ShapeDtypeStruct(shape[self.axis :], jnp.int32))
        return loss, (self.target.model_state, micro, jax.eval_shape(lambda: jax.random.key(0)))

    def _forward_flops(self) -> tuple[float, float]:
        """Of the loss of a micro-batch, and of the sentences that the model writes for it."""
        loss, rest = self._loss()
        forward = cost.matmul_flops(loss, self.target.params, *rest, writing=False)
        return forward, cost.matmul_flops(loss, self.target.params, *rest) - forward

    def _xla_flops(self, compiled) -> float | None:
        """XLA's own count over all devices, which takes a loop's body once; None where there is none."""
        analysis = compiled.cost_analysis() or {}
        return analysis["flops"] * self.mesh.size if "flops" in analysis else None

    def _memory(self, compiled, dtype: str) -> dict | None:
        """The compiler's plan for one device; None for bfloat16 on CPU, which is computed in float32 there."""
        found = compiled.memory_analysis()
        if found is None or (dtype == "bfloat16" and self.mesh.devices.flat[0].platform == "cpu"):
            return None
        sizes = {"arguments": found.argument_size_in_bytes, "temporaries": found.temp_size_in_bytes}
        sizes["results"] = found.output_size_in_bytes - found.alias_size_in_bytes
        return {**sizes, "total": sum(sizes.values())}

    def _analytic(self) -> dict:
        """One device's bytes by counting: state, gradients (twice under accumulation), what the backward pass keeps.

        Short-lived arrays are left out: one layer's states made again, one chunk of logits.
        """
        loss, rest = self._loss()
        kept = cost.residual_bytes(loss, self.target.params, *rest) // self.shards
        gradients = self.counts["gradients"] * (2 if self.accumulate > 1 else 1)
        of_state = sum(self.counts[name] for name in ("parameters", "optimizer", "model_state"))
        return {"kept_for_backward": kept, "gradients": gradients, "total": of_state + gradients + kept}

    def _measure(self, compiled, dtype: str, steps: int, trace: str | None) -> dict:
        """Median seconds of ``steps`` steps on random batches, and of one large matrix product."""
        current = state.make_state(self.module, self.optimizer, 0, self.mesh)
        batch = sharding.put_batch(self._map_shapes(self._random), self.mesh, self.axis)
        current, _ = jax.block_until_ready(compiled(current, batch))
        times = []
        for number in range(steps + bool(trace)):
            with jax.profiler.trace(trace) if number == steps else contextlib.nullcontext():
                begin = time.perf_counter()
                current, _ = jax.block_until_ready(compiled(current, batch))
                times.append(time.perf_counter() - begin)
        return {
            "seconds": statistics.median(times[:steps]),
            "matmul_flops_per_second": matmul_rate(jax.local_devices()[0], dtype) * self.mesh.size,
        }


def matmul_rate(device, dtype: str, size: int = 4096) -> float:
    """FLOP/s of one device multiplying matrices [size, size] (a quarter of it on CPU), the best of five times."""
    size = size // 4 if device.platform == "cpu" else size
    x = jax.device_put(jnp.ones((size, size), dtype), device)
    # Sixteen products in a row, so that starting the program doesn't count.
    product = jax.jit(lambda x: jax.lax.fori_loop(0, 16, lambda _, y: (x @ y) / size, x))
    jax.block_until_ready(product(x))
    times = []
    for _ in range(5):
        begin = time.perf_counter()
        jax.block_until_ready(product(x))
        times.append(time.perf_counter() - begin)
    return 16 * 2 * size**3 / min(times)
