"""Nearest neighbours in both directions by ``neighbours.two_way`` beside faiss: two IndexFlatIP searches.

    python tests/perf/mining_speed.py [--rows=50000] [--width=384] [--k=4] [--repetitions=5]
    python tests/perf/mining_speed.py --rows=200000 --memory

Both get the same random unit vectors in memory and all cores; the two take turns in one process, and what counts is the
ratio. The last lines relate ours to the rate at which this machine multiplies matrices in JAX. ``--memory`` runs ours
alone, once, and prints by how much the process has grown above its vectors (Linux). Needs the extra ``bench``.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import statistics
import time

import numpy as np


def vectors(rows: int, width: int, seed: int) -> np.ndarray:
    """Unit vectors around a thousand common directions, so that neighbours are near, float32."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((1000, width), np.float32)
    x = draw.standard_normal((rows, width), np.float32)
    x += centres[draw.integers(0, 1000, rows)]
    x /= np.sqrt(np.einsum("nd,nd->n", x, x))[:, None]
    return x


def by_faiss(x: np.ndarray, y: np.ndarray, k: int) -> list[np.ndarray]:
    """[scores_xy, ids_xy, scores_yx, ids_yx]."""
    import faiss

    found = []
    for queries, corpus in ((x, y), (y, x)):
        index = faiss.IndexFlatIP(corpus.shape[1])
        index.add(corpus)
        found += index.search(queries, k)
    return found


def agreement(ours, theirs) -> float:
    """Share of neighbours that are the same; where scores are equal but for rounding, either order is right."""
    same = []
    for scores, ids, other_scores, other_ids in ((*ours[:2], *theirs[:2]), (*ours[2:], *theirs[2:])):
        assert np.abs(scores - other_scores).max() < 1e-5, "scores differ"
        close = np.abs(scores - other_scores) < 1e-6
        same.append(((ids == other_ids) | close & (np.sort(ids) == np.sort(other_ids))).mean())
    return float(np.mean(same))


def matmul_rate(width: int) -> float:
    """GFLOP/s of JAX's float32 product of two 2048 x width matrices, the best of ten."""
    import jax
    import jax.numpy as jnp

    x = jnp.ones((2048, width))
    product = jax.jit(lambda a, b: jnp.dot(a, b.T, precision="highest"))
    product(x, x).block_until_ready()
    times = []
    for _ in range(10):
        begin = time.perf_counter()
        product(x, x).block_until_ready()
        times.append(time.perf_counter() - begin)
    return 2 * 2048 * 2048 * width / min(times) / 1e9


def memory(name: str) -> float:
    """GiB of this process, Linux: "VmRSS" now, "VmHWM" at its peak."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{name}:\s+(\d+) kB", status)[1]) / 2**20


def seconds(function, *args) -> tuple[float, object]:
    begin = time.perf_counter()
    result = function(*args)
    return time.perf_counter() - begin, result


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rows", type=int, default=50_000)
    flags.add_argument("--width", type=int, default=384)
    flags.add_argument("--k", type=int, default=4)
    flags.add_argument("--repetitions", type=int, default=5)
    flags.add_argument("--memory", action="store_true")
    a = flags.parse_args()

    from vmsst_jax.retrieval.neighbours import two_way

    x, y = vectors(a.rows, a.width, 1), vectors(a.rows, a.width, 2)
    if a.memory:
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak from here on
        before = memory("VmRSS")
        took, _ = seconds(lambda: two_way(x, y, a.k, progress=True))
        grown = memory("VmHWM") - before
        print(f"{a.rows:,} x {a.rows:,}: {took:,.0f} s; memory above the vectors {grown:.2f} GiB")
        return
    import faiss

    faiss.omp_set_num_threads(os.cpu_count())
    two_way(x, y, a.k)  # compiles
    times = {"ours": [], "faiss": []}
    for _ in range(a.repetitions):
        took, ours = seconds(two_way, x, y, a.k)
        times["ours"].append(took)
        took, theirs = seconds(by_faiss, x, y, a.k)
        times["faiss"].append(took)
    print(f"same neighbours: {agreement(ours, theirs):.4%}")
    for name, took in times.items():
        print(f"{name}: {statistics.median(took):.1f} s (median of {a.repetitions})")
    ratios = [f / o for o, f in zip(times["ours"], times["faiss"], strict=True)]
    print(f"ratio: min {min(ratios):.2f}, median {statistics.median(ratios):.2f}, max {max(ratios):.2f}")
    rate, peak = 2 * a.rows**2 * a.width / min(times["ours"]) / 1e9, matmul_rate(a.width)
    print(f"one product of both sides: {rate:.0f} GFLOP/s, {rate / peak:.0%} of this machine's {peak:.0f} in JAX")


if __name__ == "__main__":
    main()
