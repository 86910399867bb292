"""Time of the nearest two of a large database, as a share of the matrix product that the distances contain.

    python lab/benchmarks/search.py PHOTOGRAPHS [--queries 1000] [--entries 200000] [--m 4] [--threads 2] [--repeats 3]

Queries are SIFT descriptors of the bundled photographs, lifted with half of the bundled decoys; the database is descriptors of
the photographs given, repeated with other rounding noise if they have too few. The floor is the product of all components of
the queries with the database by the fastest BLAS of the run, in slices of 10,000 entries. Seconds are those of the clock; the
repeats are interleaved, the best of each counts. A sample of the answers is compared with float64 before anything is timed.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from distances import _pools, _set
from veil import distances
from veil.distances import reference
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.photographs.pictures import named_pictures, read_picture
from veil.mechanisms.public import publish

try:
    import torch
except ImportError:
    torch = None

SLICE, CHECKED = 10_000, 5


def main() -> int:
    """Print one line; exit code 1 if the answers are wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photographs", type=Path, nargs="+")
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--entries", type=int, default=200_000)
    parser.add_argument("--m", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    random = np.random.default_rng(0)
    queries = _set(random, _pools()[:2], arguments.queries, arguments.m)
    words = _database(random, arguments.photographs, arguments.entries)
    if not _right(queries, words):
        print("red: the answers differ from float64; not timed")
        return 1
    with threadpool_limits(arguments.threads):
        if torch is not None:
            torch.set_num_threads(arguments.threads)
        times: dict[str, float] = {}
        for _ in range(arguments.repeats):
            for name, work in _works(queries, words, arguments.threads).items():
                start = time.perf_counter()
                work()
                times[name] = min(times.get(name, np.inf), time.perf_counter() - start)
        tracemalloc.start()
        distances.nearest(queries, (words, None), 2, backend="cpu", threads=arguments.threads)
        peak = tracemalloc.get_traced_memory()[1] / 1e6
    floor = min((name for name in times if name != "search"), key=lambda name: times[name])
    search, product = times["search"], times[floor]
    print(f"{arguments.queries} queries (m = {arguments.m}) in {len(words)} entries, {arguments.threads} thread(s):")
    print(f"{search:.2f} s, the product alone {product:.2f} s ({floor}): {search / product:.2f} times that; {peak:.0f} MB")
    return 0


def _works(queries: distances.FeatureSet, words: np.ndarray, threads: int) -> dict[str, Callable[[], object]]:
    """The search, and the matrix product that it contains by each BLAS, by name."""
    origin, basis = queries
    parts = [origin[:, None]] if basis is None else [origin[:, None], basis]
    rows = np.ascontiguousarray(np.concatenate(parts, axis=1).reshape(-1, origin.shape[1]))
    slices = [words[start : start + SLICE] for start in range(0, len(words), SLICE)]
    works: dict[str, Callable[[], object]] = {
        "search": lambda: distances.nearest(queries, (words, None), 2, backend="cpu", threads=threads),
        "NumPy": lambda: [np.matmul(rows, part.T).shape for part in slices],
    }
    if torch is not None:
        works["torch"] = lambda: [torch.mm(torch.from_numpy(rows), torch.from_numpy(part).T).shape for part in slices]
    return works


def _database(random: np.random.Generator, photographs: list[Path], entries: int) -> np.ndarray:
    """Descriptors of photographs, repeated with noise of their rounding if there are too few."""
    parts: list[np.ndarray] = []
    for _, path in named_pictures(photographs):
        if sum(map(len, parts)) >= entries:
            break
        parts.append(publish(extract_sift(read_picture(path), SiftOptions(max_features=2000))).vectors)
    words = np.concatenate(parts)
    if len(words) < entries:
        words = words[np.arange(entries) % len(words)]
        words = words + random.normal(scale=0.5 / 512, size=words.shape).astype(np.float32)
        words /= np.linalg.norm(words, axis=1, keepdims=True)
    return np.ascontiguousarray(words[:entries], dtype=np.float32)


def _right(queries: distances.FeatureSet, words: np.ndarray) -> bool:
    """Whether the answers for some queries are those of float64."""
    few = queries[0][:CHECKED], None if queries[1] is None else queries[1][:CHECKED]
    nearest = distances.nearest(few, (words, None), 2, backend="cpu")
    truth = reference.point_to_subspace(words, (few[0], few[1])).T  # type: ignore[arg-type]
    return bool((nearest.index == np.argsort(truth, axis=1, kind="stable")[:, :2]).all())


if __name__ == "__main__":
    sys.exit(main())
