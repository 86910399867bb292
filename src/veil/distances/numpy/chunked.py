"""The nearest few of a large database without a compiler: strips of squared distances, the smallest of which are kept."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64

from veil.distances.pairs import best
from veil.progress import Progress

# Queries and entries that are compared at a time: their distances in float32 take 64 MB.
QUERIES, ENTRIES = 256, 1 << 16
# Entries that are kept beyond those asked for; near the last one the order of single precision is that of rounding.
SLACK = 8
# Distances of strips (slices of queries and entries), and exact ones of listed pairs.
Strip = Callable[[slice, slice], np.ndarray]
Exact = Callable[[np.ndarray, np.ndarray], np.ndarray]


def nearest(
    queries: int, entries: int, count: int, squares: Strip, exact: Exact, progress: Progress | None
) -> tuple[Int64[np.ndarray, "queries count"], Float64[np.ndarray, "queries count"]]:
    """Indices and exact distances of the nearest, in order; ties keep the smaller index."""
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
    """Merge new squared distances into the smallest so far, in place."""
    kept = rows.shape[1]
    if tile.shape[1] > kept:
        found = np.argpartition(tile, kept - 1, axis=1)[:, :kept]
        tile = np.take_along_axis(tile, found, axis=1)
    else:
        found = np.broadcast_to(np.arange(tile.shape[1]), tile.shape)
    values = np.concatenate([value, tile], axis=1)
    candidates = np.concatenate([rows, found + first], axis=1)
    smallest = np.argpartition(values, kept - 1, axis=1)[:, :kept]
    value[:], rows[:] = np.take_along_axis(values, smallest, axis=1), np.take_along_axis(candidates, smallest, axis=1)
