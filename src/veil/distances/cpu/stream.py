"""Nearest few features of a large database to every query, in one pass over chunks of it during which thresholds fall."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float64, Int64

from veil.distances.cpu import candidates, prepared, prune
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.prepared import Prepared
from veil.distances.cpu.prune import axes_worth_it
from veil.distances.pairs import best
from veil.distances.sets import FeatureSet, dimension, take
from veil.progress import Progress
from veil.threads import shared

# Projection axes for bounds, or None where distances are bounded in all coordinates.
Axes = Float64[np.ndarray, "k dim"] | None
# Pairs of all queries with a chunk of the database, about, and least and most features of a chunk.
CHUNK_PAIRS, CHUNK_MIN, CHUNK_MAX = 1 << 22, 512, 1 << 15
# Features of the database by which it is decided whether bounds in few axes pay.
SAMPLE = 1 << 14
# Candidates that are evaluated in double precision at a time.
EVALUATED = 1 << 16


def nearest(
    queries: FeatureSet,
    database: FeatureSet,
    count: int,
    center: Float64[np.ndarray, "dim"],
    threads: int = 1,
    progress: Progress | None = None,
) -> tuple[Int64[np.ndarray, "queries count"], Float64[np.ndarray, "queries count"]]:
    """Indices and float64 distances of the `count` nearest database features of every query, nearest first.

    No more than a chunk of distances is held at a time. Both sides are centered on `center`; `progress(done, all)` counts
    features of the database.
    """
    m, n = dimension(database), dimension(queries)
    database_left = m <= n  # the side of smaller dimension is the left one
    plain = Shape(left=min(m, n) + 1, right=max(m, n) + 1, lanes=candidates.host_lanes())
    kind = prepared.stored(queries, database)
    centered = prepared.prepare(queries, center, plain, kind)
    shape = candidates.fixed_point_shape(plain, len(centered) * len(database[0])) if centered.orthonormal else plain
    axes = _axes(centered, database, center, shape, kind, database_left)
    query_operands = QueryOperands(centered, axes, shape, left=not database_left, neighbors=count)
    size = max(CHUNK_MIN, min(CHUNK_MAX, CHUNK_PAIRS // len(centered)))
    starts, room = range(0, len(database[0]), size), threading.local()

    def chunk(start: int) -> tuple[np.ndarray, np.ndarray]:
        entries = prepared.prepare(take(database, slice(start, start + size)), center, plain, kind)
        chunk_shape, unit = query_operands.units_for(entries)
        entry_operand = prune.operand(entries, axes, chunk_shape, left=database_left, neighbors=0, unit=unit)
        query_operand = query_operands.operand(chunk_shape, unit)
        sides = (entry_operand, query_operand) if database_left else (query_operand, entry_operand)
        # All pairs may remain: before thresholds are known, and where all distances are equal.
        remaining = prune.PrunedSearch(*sides, chunk_shape, error=2 * candidates.ENTRY_ERROR, left_max=1.0, room=room).run(1)
        assert remaining is not None
        pairs = remaining[0].astype(np.int64)[:, :: -1 if database_left else 1]  # (query, entry)
        pairs[:, 1] += start
        return pairs, remaining[1]

    parts = []
    for k, part in enumerate(shared(chunk, starts, threads)):
        parts.append(part)
        if progress is not None:
            progress(min((k + 1) * size, len(database[0])), len(database[0]))
    pairs, lower = (np.concatenate(each) for each in zip(*parts, strict=True))
    pairs = pairs[lower <= query_operands.operand(plain, 1.0).limits()[pairs[:, 0]]]
    pairs = pairs[np.argsort(pairs[:, 1], kind="stable")]
    values = [_evaluated(queries, database, part, center, threads) for part in _slices(pairs, EVALUATED)]
    distance = np.concatenate(values) if values else np.empty(0)
    return best(pairs[:, 0], pairs[:, 1], distance, len(centered), count)


class QueryOperands:
    """Queries as one operand for each shape and unit that a chunk needs; all of them share their thresholds."""

    def __init__(self, side: Prepared, axes: Axes, shape: Shape, *, left: bool, neighbors: int) -> None:
        self.side, self.axes, self.shape, self.left = side, axes, shape, left
        plain = replace(shape, fixed=False)
        self._known = {(plain, 1.0): prune.operand(side, axes, plain, left=left, neighbors=neighbors)}
        self._lock = threading.Lock()

    def units_for(self, chunk: Prepared) -> tuple[Shape, float]:
        """Shape and unit in which a chunk is bounded.

        In fixed point, where the search uses it and the chunk's bases are orthonormal, the unit is a power of two that no
        origin of the queries or of the chunk exceeds; in single precision it is 1.
        """
        if not (self.shape.fixed and chunk.orthonormal):
            return replace(self.shape, fixed=False), 1.0
        return self.shape, 2.0 ** int(np.ceil(np.log2(max(self.side.longest, chunk.longest) or 1.0)))

    def operand(self, shape: Shape, unit: float) -> prune.Operand:
        """Operand of the queries in a shape and unit, packed when it is first needed."""
        with self._lock:
            if (shape, unit) not in self._known:
                first = next(iter(self._known.values()))
                packed, error = prune.packed_in(self.side, self.axes, shape, left=self.left, unit=unit)
                self._known[shape, unit] = replace(first, packed=packed, unit=unit, error=error)
            return self._known[shape, unit]


def _axes(
    queries: Prepared, database: FeatureSet, center: Float64[np.ndarray, "dim"], shape: Shape, kind: str, database_left: bool
) -> np.ndarray | None:
    """Projection axes that a sample of the database says to save time, or None."""
    rows = np.unique(np.linspace(0, len(database[0]) - 1, SAMPLE).astype(np.int64))
    sample = prepared.prepare(take(database, rows), center, shape, kind)
    if database_left:
        return axes_worth_it(sample, queries, shape, owners="columns", ways=1, sizes=(len(database[0]), len(queries)))
    return axes_worth_it(queries, sample, shape, ways=1, sizes=(len(queries), len(database[0])))


def _evaluated(
    queries: FeatureSet,
    database: FeatureSet,
    pairs: Int64[np.ndarray, "pairs 2"],
    center: Float64[np.ndarray, "dim"],
    threads: int,
) -> Float64[np.ndarray, "pairs"]:
    """Float64 distances of listed pairs (query, entry)."""
    entries, place = np.unique(pairs[:, 1], return_inverse=True)
    both = candidates.compared(queries, take(database, entries), center)
    return candidates.distances(both, (pairs[:, 0], place.reshape(-1).astype(np.int64)), threads)


def _slices(pairs: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """Consecutive slices of at most `size` pairs."""
    for start in range(0, len(pairs), size):
        yield pairs[start : start + size]
