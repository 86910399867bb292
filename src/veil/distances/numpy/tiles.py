"""Tiles of squared distances of all pairs with plain NumPy, and from them the two nearest of every row and column.

Each tile is computed in the cheapest of three formulations: planes, orthogonal complement, or pair by pair in float64. Of a
large database the nearest few are kept of one strip after another.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, Int64

from veil.distances.numpy import planes
from veil.distances.pairs import best, exact
from veil.distances.sets import FeatureSet, dimension, take
from veil.progress import Progress
from veil.threads import shared


def tiles(left: FeatureSet, right: FeatureSet, middle: np.ndarray, by_pairs: bool = False, reach: float = np.inf):  # type: ignore[no-untyped-def]
    """Tiles (first row, first column, squared distances) that cover all pairs, in the cheapest formulation.

    Planes serve small dimensions, the orthogonal complement points among subspaces of at least half the descriptor's length
    (distances.md#the-dual-form), and the residual form in float64 all others, or everything with `by_pairs`. Both sides are
    centered on `middle` in planes; there pairs whose reach exceeds `reach` times the largest |d0|^2 + |e0|^2 hold 0
    (docs/theory/distances.md, Eq. 13).
    """
    if by_pairs:
        return _pairwise_tiles(left, right)
    m, n = dimension(left), dimension(right)
    dim = left[0].shape[1]
    if min(m, n) == 0 and 2 * max(m, n) >= dim:
        return _complement_tiles(left, right)
    if min(m, n) > planes.PLANE_M_MAX:
        return _pairwise_tiles(left, right)
    return _plane_tiles(left, right, middle, reach)


def _plane_tiles(left: FeatureSet, right: FeatureSet, middle: np.ndarray, reach: float):  # type: ignore[no-untyped-def]
    """Tiles by `veil.distances.numpy.planes`, in float32."""
    a, b = planes.pack(*left, middle), planes.pack(*right, middle)
    reach *= float(a.squared.max() + b.squared.max())
    if a.m <= b.m:
        yield from planes.squared_tiles(a, b, reach)
    else:  # the side of smaller dimension is the one left after elimination
        for row, column, tile in planes.squared_tiles(b, a, reach):
            yield column, row, tile.T


def center(left: FeatureSet, right: FeatureSet) -> Float64[np.ndarray, "dim"]:
    """Mean of both sides' mean origins, on which both are centered, which changes no distance."""
    return 0.5 * (left[0].mean(axis=0, dtype=np.float64) + right[0].mean(axis=0, dtype=np.float64))


def _complement_tiles(left: FeatureSet, right: FeatureSet):  # type: ignore[no-untyped-def]
    """Tiles of points against subspaces, by projection on the orthogonal complement (Dusmanu et al. 2021, Eq. 17-18)."""
    if left[1] is not None:
        for row, column, tile in _complement_tiles(right, left):
            yield column, row, tile.T
        return
    points, (origin, basis) = left[0].astype(np.float64), right
    assert basis is not None
    for column in range(len(origin)):
        complement = np.linalg.svd(basis[column].astype(np.float64), full_matrices=True)[2][basis.shape[1] :]
        projected = (points - origin[column]) @ complement.T
        yield 0, column, (projected**2).sum(axis=1, keepdims=True)


def _pairwise_tiles(left: FeatureSet, right: FeatureSet):  # type: ignore[no-untyped-def]
    """Tiles by the residual form in float64, a row of pairs at a time, for large m on both sides."""
    columns = np.arange(len(right[0]))
    for row in range(len(left[0])):
        yield row, 0, exact(left, right, np.full_like(columns, row), columns)[None] ** 2


def sweep(left: FeatureSet, right: FeatureSet, threads: int, by_pairs: bool = False) -> tuple[Best, Best]:
    """Two smallest squared distances of every row and of every column over all tiles; threads share the row blocks."""
    blocks = np.array_split(np.arange(len(left[0])), max(1, min(threads, len(left[0]) // 64)))
    middle = center(left, right)  # of everything, so that results do not depend on the number of threads
    parts = list(shared(lambda block: _sweep_block(left, right, block, middle, by_pairs), blocks, len(blocks)))
    rows = Best(np.concatenate([p[0].value for p in parts]), np.concatenate([p[0].index for p in parts]))
    columns = parts[0][1]
    for _, part in parts[1:]:
        columns = columns.merged(part.value, part.index)
    return rows, columns


def _sweep_block(
    left: FeatureSet, right: FeatureSet, block: np.ndarray, middle: np.ndarray, by_pairs: bool
) -> tuple[Best, Best]:
    """Two smallest squared distances of every row of a block, and of every column within that block."""
    first = int(block[0])
    part = take(left, block)
    rows, columns = Best.empty(len(block)), Best.empty(len(right[0]))
    for row, column, tile in tiles(part, right, middle, by_pairs):
        row_slice = slice(row, row + tile.shape[0])
        column_slice = slice(column, column + tile.shape[1])
        index, value = two_smallest(tile)
        rows.absorb(row_slice, value, np.where(index >= 0, index + column, -1))
        index, value = two_smallest(tile.T)
        columns.absorb(column_slice, value, np.where(index >= 0, index + row + first, -1))
    return rows, columns


class Best:
    """Two smallest values so far of every feature, with their indices; ties keep the smaller index, (-1, inf) is none."""

    def __init__(self, value: np.ndarray, index: np.ndarray) -> None:
        self.value, self.index = value, index

    @staticmethod
    def empty(count: int) -> Best:
        """Initial bests of `count` features: (-1, inf)."""
        return Best(np.full((count, 2), np.inf), np.full((count, 2), -1, dtype=np.int64))

    def merged(self, value: np.ndarray, index: np.ndarray) -> Best:
        """Bests merged with further values and indices, one row for each feature."""
        values = np.concatenate([self.value, value], axis=1)
        indices = np.concatenate([self.index, index], axis=1)
        order = np.lexsort((indices, values), axis=1)[:, :2]
        return Best(np.take_along_axis(values, order, axis=1), np.take_along_axis(indices, order, axis=1))

    def absorb(self, where: slice, value: np.ndarray, index: np.ndarray) -> None:
        """Take some more values of the features `where` into the bests, in place."""
        best = Best(self.value[where], self.index[where]).merged(value, index)
        self.value[where], self.index[where] = best.value, best.index


def two_smallest(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Indices and values of the two smallest entries of every row of a matrix; (-1, inf) pads a single column."""
    rows = np.arange(len(matrix))
    first = matrix.argmin(axis=1)
    best = matrix[rows, first].astype(np.float64)
    if matrix.shape[1] == 1:
        index = np.stack([first, np.full_like(first, -1)], axis=1)
        return index, np.stack([best, np.full_like(best, np.inf)], axis=1)
    rest = matrix.copy()
    rest[rows, first] = np.inf
    second = rest.argmin(axis=1)
    return np.stack([first, second], axis=1), np.stack([best, rest[rows, second].astype(np.float64)], axis=1)


def refined(left: FeatureSet, right: FeatureSet, best: Best, *, transpose: bool) -> tuple[np.ndarray, np.ndarray]:
    """Indices and float64 distances of the two nearest in `best`, evaluated again and put in order.

    `best` is of the left features, or of the right ones with `transpose`.
    """
    index = best.index
    distance = np.full(index.shape, np.inf)
    owner, place = np.nonzero(index >= 0)
    other = index[owner, place]
    pair = (other, owner) if transpose else (owner, other)
    distance[owner, place] = exact(left, right, *pair)
    order = np.lexsort((index, distance), axis=1)
    return np.take_along_axis(index, order, axis=1), np.take_along_axis(distance, order, axis=1)


# Queries and database entries that are compared at a time: their distances in float32 take 64 MB.
QUERIES, ENTRIES = 256, 1 << 16
# Entries that are kept beyond the `count` nearest, as single precision cannot order what is near the last of these.
SLACK = 8
# Squared distances of a strip (slices of queries and of entries), and exact distances of listed pairs (queries, entries).
Strip = Callable[[slice, slice], np.ndarray]
Exact = Callable[[np.ndarray, np.ndarray], np.ndarray]


def nearest_by_strips(
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
