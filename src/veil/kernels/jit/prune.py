"""Exact pruning: distances in a few principal axes are lower bounds, and most pairs need no more than that.

For orthonormal rows P the distance of P D and P E is at most that of D and E (docs/theory/distances.md, Eq. 14). A sweep in k
axes bounds all pairs; those with the smallest bounds, evaluated in full, give thresholds; only pairs whose bound is not above
the threshold of their row or column are evaluated in full. Nothing is lost whatever the axes are; good ones leave few pairs.
"""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64, Int32, Int64

from veil.kernels.jit import listed
from veil.kernels.jit.bounds import SEED
from veil.kernels.jit.compile import kernels
from veil.kernels.jit.double import Prepared
from veil.kernels.jit.pack import aligned, pack_left, pack_right
from veil.kernels.jit.shape import Shape
from veil.kernels.jit.sweep import dense

# Axes that are tried, and Gram entries below which trying is not worth its time.
AXES = (24, 32, 48, 64)
ENTRIES_MIN = 1 << 24
# Rows and columns of the sample that decides, and descriptors that principal axes are taken from.
SAMPLE_ROWS, SAMPLE_COLUMNS, FITTED = 16, 512, 1024
# Costs of one pair relative to the full sweep: an evaluation of its own, the solve of a sweep, writing and reading a bound.
LISTED, SOLVE, SCAN = 2.0, 0.06, 0.05
# Pruning must promise at least this share of the plain sweep's time.
WORTH = 0.85
# Floats of the bounds of one block of rows, its parts (each gives every column one seed), and seeds of each row.
BLOCK_FLOATS, PARTS, ROW_SEEDS = 1 << 24, 6, 4
# Features that are projected at a time: what is needed in between stays in the cache.
PROJECTED = 512
# Bytes of full left features in a tile of rows: they stay in the second cache while what is left of the tile is evaluated.
TILE_BYTES = 1 << 19
# Share of a block's pairs that may be left over; more, and pruning gives up.
LEFT_MAX = 0.25
# |alpha|^2 over the largest |d0|^2 + |e0|^2 beyond which a bound or a distance in single precision is not used.
REACH = 4.0
# Larger thresholds are this one: more than any squared distance of unit vectors, less than the infinity of padding.
NO_LIMIT = np.float32(1e30)
Pairs = tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Flat:
    """A set with all components of a feature side by side, each padded with zeros to whole vectors."""

    values: Float32[np.ndarray, "_ _ _"]
    squares: Float32[np.ndarray, "_"]


def flat(side: Prepared, lanes: int) -> Flat:
    """Single precision, [feature][component][coordinate]."""
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
    """d^2 and reach of the listed pairs in single precision."""
    blocks = -(-len(pairs) // shape.lanes)
    padded = np.zeros((blocks * shape.lanes, 2), dtype=np.int32)
    padded[: len(pairs)] = pairs
    out, scratch = aligned(2 * blocks * shape.lanes), aligned(listed.scratch_floats(shape))
    if blocks:
        sides = (left.values, right.values, left.squares, right.squares, padded, scratch, out)
        kernels(shape, "listed")["listed"](*(memory.ctypes.data for memory in sides), left.values.shape[2], blocks)
    found = out.reshape(blocks, 2, shape.lanes)
    return found[:, 0].reshape(-1)[: len(pairs)], found[:, 1].reshape(-1)[: len(pairs)]


def principal_axes(*sides: Prepared, most: int) -> Float64[np.ndarray, "most dim"]:
    """Orthonormal rows near the leading eigenvectors of the origins' second moments, by two block power iterations."""
    some = [side.origin[:: max(1, len(side) // FITTED), : side.basis.shape[2]].astype(np.float32) for side in sides]
    moments = sum(part.T @ part for part in some).astype(np.float64)  # type: ignore[union-attr]
    order = np.argsort(-np.diagonal(moments), kind="stable")[:most]
    axes = np.linalg.qr(moments[:, order])[0]
    axes = np.linalg.qr(moments @ axes)[0]
    _, vectors = np.linalg.eigh(axes.T @ moments @ axes)
    return np.ascontiguousarray((axes @ vectors[:, ::-1]).T)


def projected(side: Prepared, axes: Float64[np.ndarray, "k dim"]) -> Prepared:
    """The set in these axes, orthonormal and minimal again. A direction that vanishes there may become any other: its span is
    only larger, and the bound smaller."""
    count, m, dim = side.basis.shape
    turn, few = np.ascontiguousarray(axes.T), len(axes)
    origin, basis, squares = np.empty((count, few)), np.empty((count, m, few), dtype=np.float32), np.empty(count)
    for start in range(0, count, PROJECTED):
        part = slice(start, start + PROJECTED)
        moved = side.origin[part, :dim] @ turn
        directions = [side.basis[part, j].astype(np.float64) @ turn for j in range(m)]
        for j, own in enumerate(directions):
            own /= np.maximum(np.sqrt(np.einsum("fk,fk->f", own, own)), 1e-30)[:, None]
            for other in (*directions[j + 1 :], moved):
                other -= np.einsum("fk,fk->f", other, own)[:, None] * own
            basis[part, j] = own
        origin[part], squares[part] = moved, np.einsum("fk,fk->f", moved, moved)
    return Prepared(origin=origin, basis=basis, squares=squares, factor=np.empty((count, 0, 0)), orthonormal=True)


def axes_worth_it(a: Prepared, b: Prepared, shape: Shape) -> Float64[np.ndarray, "k dim"] | None:
    """The axes by which a sample promises the least time, or None where the plain sweep is as fast."""
    dim = a.basis.shape[2]
    counts = [k for k in AXES if max(2 * (b.m + 1), 8) <= k <= dim // 2]
    large = min(len(a), len(b)) > 1 and len(a) * len(b) * shape.left * shape.right >= ENTRIES_MIN
    if not (large and counts and a.orthonormal and b.orthonormal):
        return None
    rows = np.unique(np.linspace(0, len(a) - 1, SAMPLE_ROWS).astype(np.int64))
    columns = np.unique(np.linspace(0, len(b) - 1, SAMPLE_COLUMNS).astype(np.int64))
    x, y = a.take(rows), b.take(columns)
    second = np.partition(_dense(x, y, shape), 1, axis=1)[:, 1:2]
    axes = principal_axes(a, b, most=counts[-1])
    costs = []
    for k in counts:
        left = float((_dense(projected(x, axes[:k]), projected(y, axes[:k]), shape) <= second).mean())
        costs.append(k / dim * (1 - SOLVE) + SOLVE + SCAN + 2 * LISTED * left)
    best = int(np.argmin(costs))
    return axes[: counts[best]] if costs[best] < WORTH else None


def _dense(x: Prepared, y: Prepared, shape: Shape) -> Float32[np.ndarray, "_ _"]:
    panels = pack_left(x.components, x.squares, shape), pack_right(y.components, y.squares, shape)
    return dense(*panels, shape, REACH * float(x.squares.max() + y.squares.max()))


def candidates(
    a: Prepared, b: Prepared, axes: Float64[np.ndarray, "k dim"], shape: Shape, error: float, threads: int
) -> Pairs | None:
    """Distinct pairs among which are the two nearest of every row and column; None where too many are left over.

    `error` bounds the error of d^2 of a unit of |d0|^2 + |e0|^2 + |alpha|^2 (Eq. 13).
    """
    found = _Pruned(a, b, axes, shape, error).run(threads)
    if found is None:
        return None
    keys = np.unique(found[:, 0].astype(np.int64) * len(b) + found[:, 1])
    return keys // len(b), keys % len(b)


class _Pruned:
    """What the threads of one search share; thresholds of columns only ever fall."""

    def __init__(self, a: Prepared, b: Prepared, axes: Float64[np.ndarray, "k dim"], shape: Shape, error: float) -> None:
        self.shape = shape
        self.full = flat(a, shape.lanes), flat(b, shape.lanes)
        self.few: tuple[Prepared, Prepared] = projected(a, axes), projected(b, axes)
        self.size = float(a.squares.max() + b.squares.max())
        self.reach = REACH * self.size
        # Errors of bounds and of full distances up to that reach.
        self.slack = np.float32(error * (self.size + self.reach))
        self.left = pack_left(self.few[0].components, self.few[0].squares, shape)
        self.right = pack_right(self.few[1].components, self.few[1].squares, shape)
        self.panels = len(self.right.squares) // shape.lanes
        self.columns = np.full((self.panels * shape.lanes, 2), NO_LIMIT, dtype=np.float32)
        self.lock, self.own = threading.Lock(), threading.local()

    def run(self, threads: int) -> Int32[np.ndarray, "pairs 2"] | None:
        """All blocks of rows; what is left of each under the thresholds at its time, then under the last ones."""
        groups, per_group = len(self.left.squares) // self.shape.features, self.shape.features
        row_bytes = 4 * self.full[0].values[0].size
        tile = max(1, TILE_BYTES // (row_bytes * per_group))
        most = max(tile, BLOCK_FLOATS // threads // (self.panels * self.shape.lanes * per_group))
        blocks = max(-(-groups // most), min(threads, -(-groups // tile)))
        starts = np.linspace(0, groups, blocks + 1).astype(int).tolist()
        parts = []
        with ThreadPoolExecutor(max_workers=min(threads, blocks)) as pool:
            for part in pool.map(lambda ends: self._block(range(*ends), tile), itertools.pairwise(starts)):
                if part is None:
                    return None
                parts.append(part)
        pairs, squares, limits = (np.concatenate(each) for each in zip(*parts, strict=True))
        kept = squares <= np.maximum(limits, self.columns[pairs[:, 1], 1] + self.slack)
        return pairs[kept]

    def _block(self, groups: range, tile: int) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
        """Pairs that are left of some groups of rows, their d^2 (0 where unknown) and their rows' limits."""
        tile = min(tile, -(-len(groups) // PARTS))  # or columns would lack seeds
        tiles = [range(start, min(start + tile, groups.stop)) for start in range(groups.start, groups.stop, tile)]
        bounds, row_limits, seeds = self._bounded(tiles, self._memory(tiles))
        with self.lock:
            self.columns = np.partition(np.concatenate([self.columns, seeds], axis=1), 1, axis=1)[:, :2]
            column_limits = self.columns[:, 1].copy()
        first, parts = groups.start * self.shape.features, []
        for part, own in zip(tiles, bounds, strict=True):
            pairs = self._below(own, part.start * self.shape.features, row_limits, column_limits, first)
            if pairs is None:
                return None
            squares, reach = squares_of(*self.full, pairs, self.shape)
            squares[~(reach <= self.reach)] = 0
            limits = row_limits[pairs[:, 0] - first] + self.slack
            kept = squares <= np.maximum(limits, column_limits[pairs[:, 1]] + self.slack)
            parts.append((pairs[kept], squares[kept], limits[kept]))
        pairs, squares, limits = (np.concatenate(each) for each in zip(*parts, strict=True))
        return pairs, squares, limits

    def _memory(self, tiles: list[range]) -> list[np.ndarray]:
        """Room for the bounds of each tile, [panel][row][lane]: this thread's, again and again, as fresh pages cost as much."""
        width = self.panels * self.shape.lanes * self.shape.features
        ends = np.cumsum([len(groups) * width for groups in tiles])
        if getattr(self.own, "memory", np.empty(0)).size < ends[-1]:
            self.own.memory = aligned(int(ends[-1]))
        return np.split(self.own.memory[: ends[-1]], ends[:-1])

    def _bounded(self, tiles: list[range], bounds: list[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
        """Fill in the bounds of each tile; upper bounds of each row's second smallest d^2, and of d^2 of one pair for each
        column and each of a few parts of the rows."""
        shape, lanes = self.shape, self.shape.lanes
        scratch, values = aligned(shape.scratch_floats), []
        start, count = tiles[0].start * shape.features, sum(map(len, tiles)) * shape.features
        rows = _fresh(count, lanes)
        for part in np.array_split(np.arange(len(tiles)), min(PARTS, len(tiles))):
            columns = _fresh(self.panels, lanes)
            for groups, out in ((tiles[k], bounds[k]) for k in part):
                first = groups.start * shape.features
                kernels(shape, "bounds")["bounds"](
                    self.left.values.ctypes.data + groups.start * self.left.group_bytes,
                    self.left.squares.ctypes.data + 4 * first,
                    self.right.values.ctypes.data,
                    self.right.squares.ctypes.data,
                    *(memory.ctypes.data for memory in (scratch, out, rows[first - start :], columns)),
                    self.left.coordinates,
                    len(groups),
                    self.panels,
                    first,
                    self.reach,
                )
            values.append(self._evaluated(columns[:, 1].view(np.int32).reshape(-1, 1), transpose=True))
        index = rows[:, 1].view(np.int32)
        if lanes > ROW_SEEDS:
            best = np.argpartition(rows[:, 0], ROW_SEEDS - 1, axis=1)[:, :ROW_SEEDS]
            index = np.take_along_axis(index, best, axis=1)
        own = self._evaluated(index, first=start)
        return bounds, np.partition(own, 1, axis=1)[:, 1], np.concatenate(values, axis=1)

    def _evaluated(self, others: Int32[np.ndarray, "owners seeds"], *, first: int = 0, transpose: bool = False) -> np.ndarray:
        """Upper bounds of d^2 of each owner with its seeds, without a limit where there is no such pair."""
        owner = np.broadcast_to(np.arange(first, first + len(others), dtype=np.int32)[:, None], others.shape)
        known = (others >= 0) & (owner < (self.right.count if transpose else self.left.count))
        pairs = np.stack([owner[known], others[known]][:: -1 if transpose else 1], axis=1)
        squares, reach = squares_of(*self.full, pairs, self.shape)
        values = np.full(others.shape, NO_LIMIT)
        values[known] = np.where(reach <= self.reach, squares + self.slack, NO_LIMIT)
        return values

    def _below(
        self, bounds: np.ndarray, first: int, row_limits: np.ndarray, column_limits: np.ndarray, start: int
    ) -> Int32[np.ndarray, "pairs 2"] | None:
        """What the bounds of one tile leave over; None where that is too much."""
        rows = bounds.size // len(column_limits)
        limits = aligned(rows), aligned(len(column_limits))
        limits[0][:] = row_limits[first - start : first - start + rows] + self.slack
        limits[1][:] = column_limits + self.slack
        capacity = 4096 + int(LEFT_MAX * bounds.size)
        pairs = np.empty(2 * capacity + 4, dtype=np.int32)
        pairs[:4].view(np.int64)[:] = capacity, 0
        places = (memory.ctypes.data for memory in (bounds, *limits, pairs))
        kernels(self.shape, "bounds")["below"](*places, rows, self.panels, first)
        count = int(pairs[2:4].view(np.int64)[0])
        return None if count > capacity else pairs[4:].reshape(-1, 2)[:count]


def _fresh(count: int, lanes: int) -> np.ndarray:
    seeds = aligned(count * SEED * lanes).reshape(count, SEED, lanes)
    seeds[:, 0] = np.inf
    seeds[:, 1].view(np.int32)[:] = -1
    return seeds
