"""Exact pruning: distances in a few principal axes are lower bounds, and most pairs need no more than that.

For orthonormal rows P the distance of P D and P E is at most that of D and E (docs/theory/distances.md, Eq. 14). A sweep in k
axes bounds all pairs. Those with the smallest bounds, evaluated in full, give thresholds. Only pairs whose bound is not above
the threshold of their row or column are evaluated in full. Nothing is lost whatever the axes are; good axes leave few pairs.
"""

from __future__ import annotations

import itertools
import threading
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32, Float64, Int32, Int64

from veil.distances.cpu.codegen import listed
from veil.distances.cpu.codegen.bounds import SEED
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import kernels
from veil.distances.cpu.pack import PackedSide, pack
from veil.distances.cpu.prepared import Prepared, aligned
from veil.distances.cpu.sweep import dense, packed
from veil.distances.pairs import distinct
from veil.threads import shared

# Bounds of one block of rows, two bytes each; parts of a block at least, each of which gives every column one seed; seeds of
# each row; and neighbors wanted of a column for each part, once thresholds are known. A seed is a pair of small bound that is
# evaluated in full for its upper bound.
BLOCK_BOUNDS, PARTS, ROW_SEEDS, SETTLED_PARTS = 1 << 24, 6, 4, 16
# Bytes of full left features in a tile of rows: they stay in the second-level cache while the tile's remaining pairs are
# evaluated.
TILE_BYTES = 1 << 19
# Largest share of a tile's pairs that may remain; with more, pruning gives up.
LEFT_MAX = 0.25
# Largest threshold: more than any squared distance of unit vectors, less than the infinity of padding.
NO_LIMIT = np.float32(1e30)
# Rows and columns of pairs of features.
Pairs = tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Flat:
    """Set in single precision as [feature][component][coordinate], each component padded with zeros to whole vectors.

    `squares` is |d0|^2 of each feature.
    """

    values: Float32[np.ndarray, "_ _ _"]
    squares: Float32[np.ndarray, "_"]


def flat(side: Prepared, lanes: int) -> Flat:
    """Prepared set in the layout of `Flat`, for vectors of `lanes` floats."""
    dim = side.basis.shape[2]
    wide = -(-dim // lanes) * lanes
    values = aligned(len(side) * (side.m + 1) * wide).reshape(len(side), side.m + 1, wide)
    values[:, :, dim:] = 0
    values[:, 0, :dim] = side.origin[:, :dim]
    values[:, 1:, :dim] = side.basis
    squares = aligned(len(side))
    squares[:] = side.squares
    return Flat(values=values, squares=squares)


def squares_of(left: Flat, right: Flat, pairs: Int32[np.ndarray, "pairs 2"], shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """Squared distance and reach |alpha|^2 of each listed pair (left, right), in single precision."""
    blocks = -(-len(pairs) // shape.lanes)
    padded = np.zeros((blocks * shape.lanes, 2), dtype=np.int32)
    padded[: len(pairs)] = pairs
    out, scratch = aligned(2 * blocks * shape.lanes), aligned(listed.scratch_floats(shape))
    if blocks:
        arrays = (left.values, right.values, left.squares, right.squares, padded, scratch, out)
        kernels(shape, "listed")["listed"](*(memory.ctypes.data for memory in arrays), left.values.shape[2], blocks)
    results = out.reshape(blocks, 2, shape.lanes)
    return results[:, 0].reshape(-1)[: len(pairs)], results[:, 1].reshape(-1)[: len(pairs)]


@dataclass(eq=False)
class Operand:
    """One side of a search, in full and packed for bounds, with upper bounds of each feature's smallest squared distances.

    In fixed point `packed` is in units of `unit`, and `error` is the largest error |q| of a row of it; else these are 1 and 0.
    `largest_square` is the largest |d0|^2. `best` holds one bound for each neighbor that is looked for, none where the features
    of this side look for none. Bounds only ever fall, under the lock.
    """

    full: Flat
    packed: PackedSide
    unit: float
    error: float
    largest_square: float
    best: Float32[np.ndarray, "_ _"]
    lock: AbstractContextManager[bool]

    @property
    def neighbors(self) -> int:
        """Number of nearest neighbors that each feature of this side looks for."""
        return self.best.shape[1]

    def limits(self, part: slice = slice(None)) -> Float32[np.ndarray, "_"]:
        """Largest squared distance still needed, per feature of `part`; -`NO_LIMIT` where no neighbors are looked for."""
        best = self.best[part]
        return best.max(axis=1) if self.neighbors else np.full(len(best), -NO_LIMIT)

    def lower(self, values: Float32[np.ndarray, "_ seeds"], part: slice = slice(None)) -> None:
        """Lower the bounds of the features of `part` by upper bounds of squared distances of some more, distinct pairs."""
        with self.lock:
            both = np.concatenate([self.best[part], values], axis=1)
            self.best[part] = np.partition(both, self.neighbors - 1, axis=1)[:, : self.neighbors]


def operand(
    side: Prepared, axes: Float64[np.ndarray, "k dim"] | None, shape: Shape, *, left: bool, neighbors: int, unit: float = 1.0
) -> Operand:
    """Left or right side of a search whose features look for a number of `neighbors`.

    Without axes the bounds of pairs are the distances themselves. In fixed point no origin may be longer than `unit`.
    """
    packed, error = packed_in(side, axes, shape, left=left, unit=unit)
    return Operand(
        full=flat(side, shape.lanes),
        packed=packed,
        unit=unit,
        error=error,
        largest_square=float(side.squares.max()),
        best=np.full((len(packed.squares), neighbors), NO_LIMIT, dtype=np.float32),
        lock=threading.Lock(),
    )


def packed_in(
    side: Prepared, axes: Float64[np.ndarray, "k dim"] | None, shape: Shape, *, left: bool, unit: float
) -> tuple[PackedSide, float]:
    """Side packed for bounds, projected on the axes if there are any, and the largest error |q| of a row in fixed point."""
    return pack(side if axes is None else projected(side, axes), shape, left=left, unit=unit)


def candidates(
    a: Prepared, b: Prepared, axes: Float64[np.ndarray, "k dim"], shape: Shape, error: float, threads: int
) -> Pairs | None:
    """Distinct pairs (a, b) among which are the two nearest of every feature, by pruning; None where too many pairs remain.

    `error` bounds the error of d^2 for each unit of |d0|^2 + |e0|^2 + |alpha|^2 (docs/theory/distances.md, Eq. 13).
    """
    unit = max(a.longest, b.longest) or 1.0 if shape.fixed else 1.0
    left = operand(a, axes, shape, left=True, neighbors=2, unit=unit)
    right = operand(b, axes, shape, left=False, neighbors=2, unit=unit)
    remaining = PrunedSearch(left, right, shape, error=error).run(threads)
    if remaining is None:
        return None
    rows, columns = remaining[0].T.astype(np.int64)
    return distinct(rows, columns)


class PrunedSearch:
    """Search for the nearest of every feature of the sides that look for neighbors; threads share the thresholds.

    `error` is that of `candidates`. `left_max` is the share of a tile's pairs that may remain (`LEFT_MAX`). `room` keeps the
    memory of bounds from search to search, as fresh pages cost as much time as what is written to them.
    """

    def __init__(
        self,
        left: Operand,
        right: Operand,
        shape: Shape,
        *,
        error: float,
        left_max: float | None = None,
        room: threading.local | None = None,
    ) -> None:
        assert left.unit == right.unit
        self.left, self.right, self.shape, self.full = left, right, shape, replace(shape, fixed=False)
        scale, self.unit = left.largest_square + right.largest_square, left.unit
        self.reach, self.bound_reach = REACH * scale, (FIXED_REACH if shape.fixed else REACH) * scale
        # Errors of full squared distances and of bounds, for pairs up to these reaches.
        self.slack = np.float32(error * (scale + self.reach))
        lost = error + 2 * (left.error + right.error)
        self.bound_slack = np.float32(lost * (max(scale, self.unit**2 if shape.fixed else 0.0) + self.bound_reach))
        self.panels = len(right.packed.squares) // shape.lanes
        # Once every column has thresholds, few seeds lower them further: each part costs a call.
        settled = bool((right.limits()[: right.packed.count] < NO_LIMIT).all())
        column_parts = right.neighbors // SETTLED_PARTS if settled else right.neighbors + 4
        self.parts = max(PARTS, column_parts) if right.neighbors else 1
        self.seeds = max(ROW_SEEDS, left.neighbors + 2)
        self.left_max = LEFT_MAX if left_max is None else left_max
        self.room = room or threading.local()

    def run(self, threads: int) -> tuple[Int32[np.ndarray, "pairs 2"], Float32[np.ndarray, "pairs"]] | None:
        """Pairs (left, right) that may be among the nearest, and lower bounds of their squared distances.

        None where too many pairs remain.
        """
        groups, per_group = len(self.left.packed.squares) // self.shape.features, self.shape.features
        row_bytes = 4 * self.left.full.values[0].size
        tile = max(1, TILE_BYTES // (row_bytes * per_group))
        most = max(tile, BLOCK_BOUNDS // threads // (self.panels * self.shape.lanes * per_group))
        blocks = max(-(-groups // most), min(threads, -(-groups // tile)))
        starts = np.linspace(0, groups, blocks + 1).astype(int).tolist()
        parts = []
        for part in shared(lambda ends: self._block(range(*ends), tile), itertools.pairwise(starts), threads):
            if part is None:
                return None
            parts.append(part)
        pairs, lower = (np.concatenate(each) for each in zip(*parts, strict=True))
        kept = lower <= np.maximum(self.left.limits()[pairs[:, 0]], self.right.limits()[pairs[:, 1]])
        return pairs[kept], lower[kept]

    def _block(self, groups: range, tile: int) -> tuple[np.ndarray, np.ndarray] | None:
        """Remaining pairs of some groups of rows, and lower bounds of their squared distances (0 where unknown)."""
        tile = min(tile, -(-len(groups) // self.parts))  # else columns would lack seeds
        tiles = [range(start, min(start + tile, groups.stop)) for start in range(groups.start, groups.stop, tile)]
        bounds = self._bounded(tiles, self._memory(tiles))
        column_limits, parts = self.right.limits(), []
        for part, tile_bounds in zip(tiles, bounds, strict=True):
            first = part.start * self.shape.features
            row_limits = self.left.limits(slice(first, part.stop * self.shape.features))
            pairs = self._below(tile_bounds, first, row_limits, column_limits)
            if pairs is None:
                return None
            squares, reach = squares_of(self.left.full, self.right.full, pairs, self.full)
            lower = np.where(reach <= self.reach, squares - self.slack, np.float32(0))
            kept = lower <= np.maximum(row_limits[pairs[:, 0] - first], column_limits[pairs[:, 1]])
            parts.append((pairs[kept], lower[kept]))
        pairs, lower = (np.concatenate(each) for each in zip(*parts, strict=True))
        return pairs, lower

    def _memory(self, tiles: list[range]) -> list[np.ndarray]:
        """Memory for the bounds of each tile, [panel][row][lane], which this thread uses again for every block."""
        width = self.panels * self.shape.lanes * self.shape.features
        ends = np.cumsum([len(groups) * width for groups in tiles])
        if getattr(self.room, "memory", np.empty(0)).size < ends[-1]:
            self.room.memory = aligned(int(ends[-1]), np.uint16)
        return np.split(self.room.memory[: ends[-1]], ends[:-1])

    def _bounded(self, tiles: list[range], bounds: list[np.ndarray]) -> list[np.ndarray]:
        """Bounds of all pairs of each tile, filled into `bounds`, and thresholds lowered by the pairs with the smallest.

        Evaluated in full are some pairs of each row, and one of each column in each part of the tiles.
        """
        shape, lanes, left, right = self.shape, self.shape.lanes, self.left.packed, self.right.packed
        scratch, values = aligned(shape.scratch_floats), []
        start, stop = tiles[0].start * shape.features, tiles[-1].stop * shape.features
        rows = _fresh(stop - start, lanes)
        for part in np.array_split(np.arange(len(tiles)), min(self.parts, len(tiles))):
            columns = _fresh(self.panels, lanes)
            for groups, out in ((tiles[k], bounds[k]) for k in part):
                first = groups.start * shape.features
                kernels(shape, "bounds")["bounds"](
                    left.values.ctypes.data + groups.start * left.group_bytes,
                    left.squares.ctypes.data + 4 * first,
                    right.values.ctypes.data,
                    right.squares.ctypes.data,
                    *(memory.ctypes.data for memory in (scratch, out, rows[first - start :], columns)),
                    left.coordinates,
                    len(groups),
                    self.panels,
                    first,
                    self.bound_reach / self.unit**2,
                )
            if self.right.neighbors:
                values.append(self._evaluated(columns[:, 1].view(np.int32).reshape(-1, 1), transpose=True))
        if self.right.neighbors:
            self.right.lower(np.concatenate(values, axis=1))
        if self.left.neighbors:
            index = rows[:, 1].view(np.int32)
            if lanes > self.seeds:
                best = np.argpartition(rows[:, 0], self.seeds - 1, axis=1)[:, : self.seeds]
                index = np.take_along_axis(index, best, axis=1)
            self.left.lower(self._evaluated(index, first=start), slice(start, stop))
        return bounds

    def _evaluated(self, others: Int32[np.ndarray, "owners seeds"], *, first: int = 0, transpose: bool = False) -> np.ndarray:
        """Upper bounds of the squared distances of each owner to its seeds, `NO_LIMIT` where there is no such pair.

        Owners are rows from `first` on, or with `transpose` columns; `others` are indices of the other side, -1 for none.
        """
        owner = np.broadcast_to(np.arange(first, first + len(others), dtype=np.int32)[:, None], others.shape)
        known = (others >= 0) & (owner < (self.right if transpose else self.left).packed.count)
        pairs = np.stack([owner[known], others[known]][:: -1 if transpose else 1], axis=1)
        squares, reach = squares_of(self.left.full, self.right.full, pairs, self.full)
        values = np.full(others.shape, NO_LIMIT)
        values[known] = np.where(reach <= self.reach, squares + self.slack, NO_LIMIT)
        return values

    def _below(
        self, bounds: np.ndarray, first: int, row_limits: np.ndarray, column_limits: np.ndarray
    ) -> Int32[np.ndarray, "pairs 2"] | None:
        """Pairs of one tile whose bound does not exceed the larger of its row's and its column's limit; None if too many."""
        limits = aligned(len(row_limits)), aligned(len(column_limits))
        for limit, each in zip(limits, (row_limits, column_limits), strict=True):
            limit[:] = np.minimum((each + self.bound_slack) / np.float32(self.unit**2), NO_LIMIT)
        capacity = 4096 + int(self.left_max * bounds.size)
        pairs = np.empty(2 * capacity + 4, dtype=np.int32)
        pairs[:4].view(np.int64)[:] = capacity, 0
        places = (memory.ctypes.data for memory in (bounds, *limits, pairs))
        kernels(self.shape, "bounds")["below"](*places, len(row_limits), self.panels, first)
        count = int(pairs[2:4].view(np.int64)[0])
        return None if count > capacity else pairs[4:].reshape(-1, 2)[:count]


def _fresh(count: int, lanes: int) -> np.ndarray:
    """Initial seeds of `count` rows or panels, infinite with index -1: [row or panel][value, index][lane]."""
    seeds = aligned(count * SEED * lanes).reshape(count, SEED, lanes)
    seeds[:, 0] = np.inf
    seeds[:, 1].view(np.int32)[:] = -1
    return seeds


# Numbers of axes that are tried; Gram entries of a search below which trying is not worth its time, in single precision and in
# fixed point, whose sweep takes less time.
AXES = (24, 32, 48, 64)
ENTRIES_MIN, FIXED_ENTRIES_MIN = 1 << 27, 1 << 30
# The sample that decides: features whose nearest are looked for, features among which, how many of the latter get bounds; and
# descriptors of a side, about, from which principal axes are computed.
OWNERS, OTHERS, BOUNDED, FITTED = 16, 2048, 512, 1024
# Costs of one pair relative to the full sweep of it: its solve, and writing and reading its bound.
SOLVE, SCAN = 0.06, 0.05
# Cost of projecting a feature, for each pair of its components and each axis, in multiplications of the sweep.
PROJECTION = 150
# Largest share of the plain sweep's time that a pruned search may be predicted to take, or it is not tried.
WORTH = 0.85
# Features that are projected at a time, so that intermediate results stay in the cache.
PROJECTED = 512
# |alpha|^2 over the largest |d0|^2 + |e0|^2 beyond which a bound or a distance in single precision is not used.
REACH = 4.0
# Largest such reach for bounds in fixed point, and the time of multiplications in fixed point relative to those of floats.
FIXED_REACH, FIXED_TIME = 1.0, 0.5


def principal_axes(*sides: Prepared, most: int) -> Float64[np.ndarray, "most dim"]:
    """Orthonormal rows near the `most` leading eigenvectors of the origins' second moments, by two block power iterations."""
    some = [side.origin[:: max(1, len(side) // FITTED), : side.basis.shape[2]].astype(np.float32) for side in sides]
    moments = sum(part.T @ part for part in some).astype(np.float64)  # type: ignore[union-attr]
    order = np.argsort(-np.diagonal(moments), kind="stable")[:most]
    axes = np.linalg.qr(moments[:, order])[0]
    axes = np.linalg.qr(moments @ axes)[0]
    _, vectors = np.linalg.eigh(axes.T @ moments @ axes)
    return np.ascontiguousarray((axes @ vectors[:, ::-1]).T)


def projected(side: Prepared, axes: Float64[np.ndarray, "k dim"]) -> Prepared:
    """Set projected on orthonormal axes, with bases made orthonormal and origins minimal again.

    A direction that vanishes in the projection may become any other: the span is only larger, and the bound smaller.
    """
    count, m, dim = side.basis.shape
    turn, few = np.ascontiguousarray(axes.T), len(axes)
    origin, basis, squares = np.empty((count, few)), np.empty((count, m, few), dtype=np.float32), np.empty(count)
    for start in range(0, count, PROJECTED):
        part = slice(start, start + PROJECTED)
        moved = side.origin[part, :dim] @ turn
        directions = [side.basis[part, j].astype(np.float64) @ turn for j in range(m)]
        for j, direction in enumerate(directions):
            direction /= np.maximum(np.sqrt(np.einsum("fk,fk->f", direction, direction)), 1e-30)[:, None]
            for other in (*directions[j + 1 :], moved):
                other -= np.einsum("fk,fk->f", other, direction)[:, None] * direction
            basis[part, j] = direction
        origin[part], squares[part] = moved, np.einsum("fk,fk->f", moved, moved)
    return Prepared(origin=origin, basis=basis, squares=squares, factor=np.empty((count, 0, 0)), orthonormal=True)


def axes_worth_it(
    a: Prepared,
    b: Prepared,
    shape: Shape,
    *,
    owners: str = "rows",
    ways: int = 2,
    sizes: tuple[int, int] | None = None,
) -> Float64[np.ndarray, "k dim"] | None:
    """Axes for which a sample predicts the shortest search, or None where the plain sweep is about as fast.

    In the sample a few features of one side, the `owners` ("rows": of `a`, "columns": of `b`), look for their two nearest among
    many of the other. `ways` is 2 if the search finds the neighbors of both sides, 1 if those of one. `sizes` are the numbers
    of features of the whole search where the given sets are parts of it.
    """
    dim, sizes = a.basis.shape[2], sizes or (len(a), len(b))
    entries = sizes[0] * sizes[1] * shape.left * shape.right
    counts = [k for k in AXES if max(2 * (max(a.m, b.m) + 1), 8) <= k <= dim // 2]
    large = min(len(a), len(b)) > 1 and entries >= (FIXED_ENTRIES_MIN if shape.fixed else ENTRIES_MIN)
    if not (large and counts and a.orthonormal and b.orthonormal):
        return None
    samples, axis = ((OWNERS, OTHERS), 1) if owners == "rows" else ((OTHERS, OWNERS), 0)
    x, y = (_spread(side, count) for side, count in zip((a, b), samples, strict=True))
    second = np.take(np.partition(_dense(x, y, shape), 1, axis=axis), [1], axis=axis)
    x, y = (_spread(side, min(count, BOUNDED)) for side, count in zip((x, y), samples, strict=True))
    axes = principal_axes(a, b, most=counts[-1])
    costs, time = [], FIXED_TIME if shape.fixed else 1.0
    prepared = PROJECTION * (sizes[0] * shape.left**2 + sizes[1] * shape.right**2) / (entries * dim)
    for k in counts:
        left = float((_dense(projected(x, axes[:k]), projected(y, axes[:k]), shape) <= second).mean())
        costs.append(time * k / dim * (1 - SOLVE) + SOLVE + SCAN + ways * listed_cost(shape) * left + prepared * k)
    best = int(np.argmin(costs))
    return axes[: counts[best]] if costs[best] < WORTH * (time * (1 - SOLVE) + SOLVE) else None


def _spread(side: Prepared, count: int) -> Prepared:
    """At most `count` features of a set, evenly spaced in its order."""
    return side.take(np.unique(np.linspace(0, len(side) - 1, count).astype(np.int64)))


def listed_cost(shape: Shape) -> float:
    """Cost of evaluating a pair by itself, relative to that in the full sweep: its components are fetched for it alone."""
    return 1 + 6 * (shape.left + shape.right) / (shape.left * shape.right)


def _dense(x: Prepared, y: Prepared, shape: Shape) -> Float32[np.ndarray, "_ _"]:
    """Squared distances of all pairs in single precision; -1 where that is not trusted, which counts as near."""
    shape = replace(shape, fixed=False)
    return dense(*packed(x, y, shape), shape, REACH * float(x.squares.max() + y.squares.max()))
