"""What the benchmarks share: functions that take turns in one process, and the ratios of their times."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Callable


def take_turns(functions: dict[str, Callable[[], object]], repetitions: int) -> dict[str, list[float]]:
    """Seconds of each function, ``repetitions`` times in turn after one call that isn't counted.

    Functions wait for their results themselves, or return JAX arrays, which are waited for.
    """
    import jax

    for function in functions.values():
        jax.block_until_ready(function())
    times = {name: [] for name in functions}
    for _ in range(repetitions):
        for name, function in functions.items():
            begin = time.perf_counter()
            jax.block_until_ready(function())
            times[name].append(time.perf_counter() - begin)
    return times


def ratios(times: dict[str, list[float]], name: str, base: str) -> str:
    """How many times as long ``base`` takes as ``name``, turn by turn: minimum, median and maximum."""
    values = [b / a for a, b in zip(times[name], times[base], strict=True)]
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{base} / {name}: min {low:.2f}, median {middle:.2f}, max {high:.2f} of {len(values)}"


def seconds(times: dict[str, list[float]]) -> str:
    return "\n".join(
        f"{name}: {statistics.median(ts):.3f} s (median), {min(ts):.3f} s (least)" for name, ts in times.items()
    )


def matmul_rate() -> float:
    """GFLOP/s of JAX's float32 product of two 2048 x 2048 matrices, the best of five."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones((2048, 2048))
    product = jax.jit(lambda a, b: jnp.dot(a, b, precision="highest"))
    times = take_turns({"product": lambda: product(x, x)}, 5)["product"]
    return 2 * 2048**3 / min(times) / 1e9


def machine(*packages: str) -> str:
    """Processor, cores and versions, to stand beside every figure."""
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "jaxlib", "numpy", *packages))
    return f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores; {versions}"
