"""The nearest few of a large database to every query: the database passes in chunks, thresholds fall as it goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil.distances.cpu import candidates, prepared, prune
from veil.distances.cpu.axes import axes_worth_it
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.prepared import Prepared
from veil.distances.pairs import best
from veil.progress import Progress
from veil.threads import shared

Set = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _ _"] | None]
Axes = Float64[np.ndarray, "k dim"] | None
# Pairs of queries and a chunk of the database, and features of that at least and at most.
CHUNK_PAIRS, CHUNK_MIN, CHUNK_MAX = 1 << 22, 512, 1 << 15
# Features of the database by which it is decided whether bounds in few axes pay.
SAMPLE = 1 << 14
# Candidates that are evaluated in double precision at a time.
EVALUATED = 1 << 16


def nearest(
    queries: Set,
    database: Set,
    count: int,
    center: Float64[np.ndarray, "dim"],
    threads: int = 1,
    progress: Progress | None = None,
) -> tuple[Int64[np.ndarray, "queries count"], Float64[np.ndarray, "queries count"]]:
    """Indices and distances of the `count` nearest, those of float64; no more than a chunk of distances is held at a time."""
    m, n = (0 if basis is None else basis.shape[1] for _, basis in (database, queries))
    first = m <= n  # the side of smaller dimension is the left one
    plain = Shape(left=min(m, n) + 1, right=max(m, n) + 1, lanes=candidates.host_lanes())
    kind = prepared.stored(queries, database)
    asked = prepared.prepare(queries, center, plain, kind)
    shape = candidates.in_fixed_point(plain, len(asked) * len(database[0])) if asked.orthonormal else plain
    axes = _axes(asked, database, center, shape, kind, first)
    ours = Units(asked, axes, shape, left=not first, wanted=count)
    size = max(CHUNK_MIN, min(CHUNK_MAX, CHUNK_PAIRS // len(asked)))
    starts, room = range(0, len(database[0]), size), threading.local()

    def chunk(start: int) -> tuple[np.ndarray, np.ndarray]:
        entries = prepared.prepare(_part(database, slice(start, start + size)), center, plain, kind)
        way, unit = ours.of(entries)
        theirs = prune.operand(entries, axes, way, left=first, wanted=0, unit=unit)
        sides = (theirs, ours.operand(way, unit)) if first else (ours.operand(way, unit), theirs)
        # As many may be left over as there are: before thresholds are known, and where all is the same.
        found = prune.Search(*sides, way, error=2 * candidates.ENTRY_ERROR, left_max=1.0, room=room).run(1)
        assert found is not None
        pairs = found[0].astype(np.int64)[:, :: -1 if first else 1]  # (query, entry)
        pairs[:, 1] += start
        return pairs, found[1]

    parts = []
    for k, part in enumerate(shared(chunk, starts, threads)):
        parts.append(part)
        if progress is not None:
            progress(min((k + 1) * size, len(database[0])), len(database[0]))
    pairs, lower = (np.concatenate(each) for each in zip(*parts, strict=True))
    pairs = pairs[lower <= ours.operand(plain, 1.0).limits()[pairs[:, 0]]]
    pairs = pairs[np.argsort(pairs[:, 1], kind="stable")]
    values = [_evaluated(queries, database, part, center, threads) for part in _slices(pairs, EVALUATED)]
    distance = np.concatenate(values) if values else np.empty(0)
    return best(pairs[:, 0], pairs[:, 1], distance, len(asked), count)


class Units:
    """The queries as one operand for each unit that chunks ask for; all of these share their thresholds."""

    def __init__(self, side: Prepared, axes: Axes, shape: Shape, *, left: bool, wanted: int) -> None:
        self.side, self.axes, self.shape, self.left = side, axes, shape, left
        plain = replace(shape, fixed=False)
        self._known = {(plain, 1.0): prune.operand(side, axes, plain, left=left, wanted=wanted)}
        self._lock = threading.Lock()

    def of(self, chunk: Prepared) -> tuple[Shape, float]:
        """How this chunk is bounded: in fixed point if its bases allow, in units of a power of two that no origin exceeds."""
        if not (self.shape.fixed and chunk.orthonormal):
            return replace(self.shape, fixed=False), 1.0
        return self.shape, 2.0 ** int(np.ceil(np.log2(max(self.side.longest, chunk.longest) or 1.0)))

    def operand(self, shape: Shape, unit: float) -> prune.Operand:
        """The queries in these units."""
        with self._lock:
            if (shape, unit) not in self._known:
                first = next(iter(self._known.values()))
                packed, error = prune.packed_in(self.side, self.axes, shape, left=self.left, unit=unit)
                self._known[shape, unit] = replace(first, packed=packed, unit=unit, error=error)
            return self._known[shape, unit]


def _axes(
    asked: Prepared, database: Set, center: Float64[np.ndarray, "dim"], shape: Shape, kind: str, first: bool
) -> np.ndarray | None:
    some = np.unique(np.linspace(0, len(database[0]) - 1, SAMPLE).astype(np.int64))
    sample = prepared.prepare(_part(database, some), center, shape, kind)
    if first:
        return axes_worth_it(sample, asked, shape, owners="columns", ways=1, sizes=(len(database[0]), len(asked)))
    return axes_worth_it(asked, sample, shape, ways=1, sizes=(len(asked), len(database[0])))


def _evaluated(
    queries: Set, database: Set, pairs: Int64[np.ndarray, "pairs 2"], center: Float64[np.ndarray, "dim"], threads: int
) -> Float64[np.ndarray, "pairs"]:
    entries, place = np.unique(pairs[:, 1], return_inverse=True)
    both = candidates.compared(queries, _part(database, entries), center)
    return candidates.distances(both, (pairs[:, 0], place.reshape(-1).astype(np.int64)), threads)


def _part(side: Set, which: slice | np.ndarray) -> Set:
    return side[0][which], None if side[1] is None else side[1][which]


def _slices(pairs: np.ndarray, size: int) -> Iterator[np.ndarray]:
    for start in range(0, len(pairs), size):
        yield pairs[start : start + size]
