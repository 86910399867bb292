"""Efficiency of two workers against one, on tasks of real work, for each engine; all in one run.

    python lab/benchmarks/engines.py [--tasks 16] [--engines local dask] [--rounds 3]

A task assigns 12,000 descriptors to the nearest of 4,000 words, the step that k-means consists of, with one thread: some tenths
of a second, far shorter than the tasks that engines are made for. Workers are started, and have done a task, before the clock
runs; engines take turns in each round, and the least seconds of all rounds count.

Columns: `one` and `two` are seconds with one and with two worker processes, `efficiency` is one / (2 two), and `in tasks` is
the part of the two workers' time that was spent inside of tasks, in the best round: the rest went into packing, sending and
waiting. The last line, `none`, is two plain processes that share the tasks half and half: the efficiency that the machine
allowed at that time. Two cores that others use too do not do twice the work of one; `in tasks` shows the engine's part.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from veil.engine import Engine
from veil.threads import settle

DESCRIPTORS, WORDS, BLOCK = 12_000, 4_000, 1_000


def assigned(seed: int) -> tuple[int, float]:
    """A sum over the nearest words of the descriptors of one seeded problem, and the seconds that it took."""
    import numpy as np

    begun = time.perf_counter()
    random = np.random.default_rng(seed)
    descriptors = random.standard_normal((DESCRIPTORS, 128), dtype=np.float32)
    words = random.standard_normal((WORDS, 128), dtype=np.float32)
    half = (words**2).sum(1) / 2
    parts = range(0, DESCRIPTORS, BLOCK)
    total = sum(int((half - descriptors[start : start + BLOCK] @ words.T).argmin(1).sum()) for start in parts)
    return total, time.perf_counter() - begun


def all_assigned(seeds: list[int]) -> list[tuple[int, float]]:
    """The results of several problems."""
    return [assigned(seed) for seed in seeds]


def seconds(work: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds of a piece of work, and its result."""
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def engine_of(kind: str, workers: int) -> Engine:
    """An engine whose workers are processes also if it is one."""
    if kind == "local":
        from veil.engine.local import LocalEngine

        return LocalEngine(workers, memory_bytes=1 << 40)  # a limit that is never reached: else one worker is this process
    from veil.engine.dask_engine import DaskEngine

    return DaskEngine.start(workers)


def main() -> None:
    """Print one line for each engine."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--engines", nargs="+", default=["local", "dask"], choices=("local", "dask"))
    arguments = parser.parse_args()
    tasks = list(range(arguments.tasks))
    expected = dict(enumerate(all_assigned(tasks)))
    engines = {(kind, workers): engine_of(kind, workers) for kind in arguments.engines for workers in (1, 2)}
    least: dict[Any, float] = {}
    inside: dict[Any, float] = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=settle) as plain:
        list(plain.map(all_assigned, [tasks[:2]] * 4))
        for engine in engines.values():
            list(engine.map(assigned, tasks[:4]))
        for _ in range(arguments.rounds):
            for key, engine in engines.items():
                took, sums = seconds(lambda engine=engine: dict(engine.map(assigned, tasks)))  # type: ignore[misc]
                for index, (total, _) in sums.items():
                    assert total == expected[index][0], f"{key}: other results than without an engine"
                least[key] = min(least.get(key, took), took)
                part = sum(each for _, each in sums.values()) / (key[1] * took)
                inside[key] = max(inside.get(key, part), part)
            for workers in (1, 2):
                shares = [tasks[start::workers] for start in range(workers)]
                took, done = seconds(lambda shares=shares: list(plain.map(all_assigned, shares)))  # type: ignore[misc]
                least["none", workers] = min(least.get(("none", workers), took), took)
                part = sum(each for share in done for _, each in share) / (workers * took)
                inside["none", workers] = max(inside.get(("none", workers), part), part)
    for engine in engines.values():
        engine.close()
    print(f"{arguments.tasks} tasks of {least['none', 1] / arguments.tasks:.2f} s")
    print(f"{'engine':8}{'one':>8}{'two':>8}{'efficiency':>12}{'in tasks':>10}")
    for kind in (*arguments.engines, "none"):
        one, two = least[kind, 1], least[kind, 2]
        print(f"{kind:8}{one:8.2f}{two:8.2f}{one / two / 2:12.2f}{inside[kind, 2]:10.2f}")


if __name__ == "__main__":
    settle()
    main()
