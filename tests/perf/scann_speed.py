"""ScaNN with the saved settings beside our exact search: recall@4, queries per second, time to build.

    python -m vmsst_jax.embed --checkpoint=MODEL --input=LINES.txt --output=VECTORS.npy --normalize
    python tests/perf/scann_speed.py --vectors=VECTORS.npy [--rows=200000] [--queries=2000] [--k=4] [--threads=2]

LINES.txt should be real sentences, distinct ones: the first ``rows`` vectors are the corpus, the next ``queries`` the
queries. The two searches take turns in one process; building is reported but not counted.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np


def seconds(function, *args) -> tuple[float, object]:
    begin = time.perf_counter()
    result = function(*args)
    return time.perf_counter() - begin, result


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--vectors", required=True, metavar="FILE.npy")
    flags.add_argument("--rows", type=int, default=200_000)
    flags.add_argument("--queries", type=int, default=2000)
    flags.add_argument("--k", type=int, default=4)
    flags.add_argument("--threads", type=int, default=2)
    flags.add_argument("--repetitions", type=int, default=5)
    a = flags.parse_args()

    from vmsst_jax.retrieval import exact, nearest
    from vmsst_jax.retrieval.scann_index import ScannIndex

    vectors = np.load(a.vectors, mmap_mode="r")
    if len(vectors) < a.rows + a.queries:
        raise SystemExit(f"{a.vectors} has {len(vectors):,} rows; {a.rows:,} + {a.queries:,} are wanted")
    corpus, queries = exact.normalize(vectors[: a.rows]), exact.normalize(vectors[a.rows : a.rows + a.queries])
    index = ScannIndex(corpus, a.k, threads=a.threads)
    print(f"built in {index.build_seconds:.0f} s: {index.settings}")
    exact.top_k(queries, corpus, a.k)  # compiles
    times = {"scann": [], "exact": []}
    for _ in range(a.repetitions):
        took, (_, found) = seconds(index.top_k, queries, a.k)
        times["scann"].append(took)
        took, _ = seconds(exact.top_k, queries, corpus, a.k)
        times["exact"].append(took)
    recall, sampled = nearest.measured_recall(queries, corpus, found)
    print(f"recall@{a.k}: {recall:.4f} on {sampled:,} queries")
    for name, took in times.items():
        print(f"{name}: {a.queries / statistics.median(took):,.0f} queries/s (median of {a.repetitions})")
    ratios = [e / s for s, e in zip(times["scann"], times["exact"], strict=True)]
    print(f"ratio: min {min(ratios):.1f}, median {statistics.median(ratios):.1f}, max {max(ratios):.1f}")


if __name__ == "__main__":
    main()
