"""Nearest few features of a large database without a compiler: the smallest squared distances of one strip after another."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64

from veil.distances.pairs import best
from veil.progress import Progress

# Queries and database entries that are compared at a time: their distances in float32 take 64 MB.
QUERIES, ENTRIES = 256, 1 << 16
# Entries that are kept beyond the `count` nearest, as single precision cannot order what is near the last of these.
SLACK = 8
# Squared distances of a strip (slices of queries and of entries), and exact distances of listed pairs (queries, entries).
Strip = Callable[[slice, slice], np.ndarray]
Exact = Callable[[np.ndarray, np.ndarray], np.ndarray]


def nearest(
    queries: int, entries: int, count: int, squares: Strip, exact: Exact, progress: Progress | None
) -> tuple[Int64[np.ndarray, "queries count"], Float64[np.ndarray, "queries count"]]:
    """Indices and exact distances of the `count` nearest entries of every query, nearest first; ties keep the smaller index.

    `queries` and `entries` are the numbers of either. `squares` chooses which entries are evaluated by `exact`.
    """
    kept = min(count + SLACK, entries)
    rows, value = np.zeros((queries, kept), dtype=np.int64), np.full((queries, kept), np.inf)
    for first in range(0, entries, ENTRIES):
        stop = min(first + ENTRIES, entries)
        for begin in range(0, queries, QUERIES):
            part = slice(begin, min(begin + QUERIES, queries))
            _keep_smallest(rows[part], value[part], squares(part, slice(first, stop)), first)
        if progress is not None:
            progress(stop, entries)
    owner = np.repeat(np.arange(queries), kept)
    return best(owner, rows.reshape(-1), exact(owner, rows.reshape(-1)), queries, count)


def _keep_smallest(rows: np.ndarray, value: np.ndarray, tile: np.ndarray, first: int) -> None:
    """Merge the squared distances `tile`, of entries from `first` on, into the smallest so far (`rows`, `value`), in place."""
    kept = rows.shape[1]
    if tile.shape[1] > kept:
        columns = np.argpartition(tile, kept - 1, axis=1)[:, :kept]
        tile = np.take_along_axis(tile, columns, axis=1)
    else:
        columns = np.broadcast_to(np.arange(tile.shape[1]), tile.shape)
    values = np.concatenate([value, tile], axis=1)
    candidates = np.concatenate([rows, columns + first], axis=1)
    smallest = np.argpartition(values, kept - 1, axis=1)[:, :kept]
    value[:], rows[:] = np.take_along_axis(values, smallest, axis=1), np.take_along_axis(candidates, smallest, axis=1)
