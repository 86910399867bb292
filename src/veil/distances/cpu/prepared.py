"""Sets centered in double precision, from which the sweep is packed, and float64 distances of listed pairs of two such sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Float64, Int32, Int64

from veil.distances.cpu.codegen.double import padded, scratch_doubles
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import kernels
from veil.distances.sets import FeatureSet
from veil.threads import shared

# Origins, then one array for each direction of the bases, each (features, dim), or in fixed point (features, dim / 2) integers
# of two coordinates each.
Components = Sequence[Float[np.ndarray, "_ _"] | Int32[np.ndarray, "_ _"]]
# Alignment of packed memory: one cache line, one AVX-512 vector.
ALIGNMENT = 64
Item = TypeVar("Item")
Result = TypeVar("Result")
# Least work of a thread: numbers of origins and bases that it prepares at a time, and products that it sums for listed pairs.
# Less takes about as long as waking the thread.
PART_NUMBERS, PART_PRODUCTS = 1 << 19, 1 << 21
# Indices of features, or None for all of them.
Indices = Int64[np.ndarray, "some"] | None
# Largest entry of the defect D D^T - I that is corrected to first order; pairs of other bases take the residual form.
DEFECT_MAX = 1e-6
# Squared distance below which a pair takes the residual form, as one of infinite reach does: Eq. 4 cancels even in double.
SQUARE_TRUSTED = 1e-4


def aligned(count: int, kind: type = np.float32) -> np.ndarray:
    """Uninitialized array of `count` numbers from an aligned address."""
    size = np.dtype(kind).itemsize
    raw = np.empty(count * size + ALIGNMENT, dtype=np.uint8)
    first = -raw.ctypes.data % ALIGNMENT
    return raw[first : first + count * size].view(kind)


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """Set centered on a common point, with minimal origins, in double precision.

    `origin` is padded with zeros to whole vectors of the processor. `squares` is |d0|^2 of every origin. `factor` is the
    first-order correction W = I - (D D^T - I) / 2 of every basis, padded likewise; its first row and column stand for the
    origin, which it leaves as it is. `orthonormal` is False where the defect of a basis exceeds `DEFECT_MAX`, too much for W.
    """

    origin: Float64[np.ndarray, "_ _"]
    basis: Float[np.ndarray, "_ _ _"]
    squares: Float64[np.ndarray, "_"]
    factor: Float64[np.ndarray, "_ _ _"]
    orthonormal: bool

    @property
    def m(self) -> int:
        return self.basis.shape[1]

    def __len__(self) -> int:
        return len(self.origin)

    @property
    def components(self) -> Components:
        """Origins, then one array for each direction of the bases, as the sweep packs them."""
        return [self.origin[:, : self.basis.shape[2]], *np.swapaxes(self.basis, 0, 1)]

    @property
    def longest(self) -> float:
        """Length of the longest origin."""
        return float(np.sqrt(self.squares.max(initial=0.0)))

    def take(self, which: np.ndarray) -> Prepared:
        """The features at the indices `which`."""
        return Prepared(
            origin=self.origin[which],
            basis=self.basis[which],
            squares=self.squares[which],
            factor=self.factor[which],
            orthonormal=self.orthonormal,
        )


def stored(*sets: FeatureSet) -> str:
    """Type of number, "float" or "double", in which bases are kept for compiled code: "float" only if nothing is lost."""
    return "float" if all(part is None or part.dtype.itemsize <= 4 for side in sets for part in side) else "double"


def each_of(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> list[Result]:
    """Results of `work` for each item, in order, shared out among threads.

    Compiled code calls no BLAS, so that a single thread needs none of the limits on BLAS that `veil.threads.shared` sets.
    """
    items = list(items)
    return list(map(work, items)) if min(threads, len(items)) <= 1 else list(shared(work, items, threads))


def prepare(side: FeatureSet, center: Float64[np.ndarray, "dim"], shape: Shape, kind: str) -> Prepared:
    """Set centered on `center`, with minimal origins, bases kept as `kind` ("float" or "double"), and their corrections."""
    return prepared([side], center, shape, kind)[0]


def prepared(
    sides: Sequence[FeatureSet], center: Float64[np.ndarray, "dim"], shape: Shape, kind: str, threads: int = 1
) -> list[Prepared]:
    """Sets prepared as by `prepare`, with the work of all of them shared out among threads."""
    plans = [_plan(side, center, shape, kind) for side in sides]
    each_of(lambda task: task(), [task for tasks, _ in plans for task in tasks], threads)
    return [finish() for _, finish in plans]


def _plan(
    side: FeatureSet, center: Float64[np.ndarray, "dim"], shape: Shape, kind: str
) -> tuple[list[Callable[[], None]], Callable[[], Prepared]]:
    """Tasks that prepare a set, in any order, and the function that returns the result when all of them are done."""
    kept = np.float32 if kind == "float" else np.float64
    origin = np.ascontiguousarray(side[0], dtype=kept)
    count, dim = origin.shape
    basis = np.empty((count, 0, dim), dtype=kept) if side[1] is None else np.ascontiguousarray(side[1], dtype=kept)
    m, wide, width = basis.shape[1], padded(dim, shape), padded(basis.shape[1] + 1, shape)
    moved, squares = aligned(count * wide, np.float64).reshape(count, wide), np.empty(count)
    factor, defect = aligned(count * (m + 1) * width, np.float64).reshape(count, m + 1, width), np.empty(count)
    middle = np.ascontiguousarray(center, dtype=np.float64)
    function = kernels(Shape(left=1, right=m + 1, lanes=shape.lanes), f"minimal {_stored(kind, dim, shape)}")["minimal"]

    def work(start: int, stop: int) -> None:
        some = (each[start:stop] for each in (moved, squares, factor, defect))
        pointers = (part.ctypes.data for part in (origin[start:], basis[start:], middle, *some))
        function(*pointers, stop - start, dim, wide)

    def finish() -> Prepared:
        orthonormal = bool((defect <= DEFECT_MAX).all())
        return Prepared(origin=moved, basis=basis, squares=squares, factor=factor, orthonormal=orthonormal)

    size = max(1, PART_NUMBERS // ((m + 1) * dim))
    return [partial(work, start, min(start + size, count)) for start in range(0, count, size)], finish


def _stored(kind: str, dim: int, shape: Shape) -> str:
    """Name of the variant of compiled code that reads rows of `dim` numbers: "whole" if they fill vectors exactly."""
    return f"{kind} whole" if dim == padded(dim, shape) else kind


def distances(
    left: Prepared, right: Prepared, rows: np.ndarray, columns: np.ndarray, shape: Shape, threads: int = 1
) -> tuple[Float64[np.ndarray, "pairs"], Bool[np.ndarray, "pairs"]]:
    """Float64 distances of listed pairs, and a mask of the pairs that need the residual form instead.

    `left` is the side of smaller dimension. Distances are those of docs/theory/distances.md, Eq. 4.
    """
    if not (left.orthonormal and right.orthonormal):
        return np.zeros(len(rows)), np.ones(len(rows), dtype=bool)
    kind, dim = "float" if left.basis.dtype == np.float32 else "double", left.basis.shape[2]
    function = kernels(shape, f"exact {_stored(kind, dim, shape)}")["exact"]
    order = np.argsort(columns, kind="stable") if right.m > left.m else None  # so that rows of the larger side are fetched once
    if order is not None:
        rows, columns = rows[order], columns[order]
    per_block = shape.lanes // 2
    blocks = -(-len(rows) // per_block)
    padding = blocks * per_block - len(rows)
    rows, columns = (np.concatenate([part, part[-1:].repeat(padding)]).astype(np.int64) for part in (rows, columns))
    out = aligned(2 * blocks * per_block, np.float64)

    def work(part: np.ndarray) -> None:
        first, scratch = int(part[0]), aligned(scratch_doubles(shape), np.float64)
        sides = (left.origin, right.origin, left.basis, right.basis, left.squares, right.squares, left.factor, right.factor)
        pairs = (rows[first * per_block :], columns[first * per_block :])
        pointers = (memory.ctypes.data for memory in (*sides, *pairs, scratch, out[2 * first * per_block :]))
        function(*pointers, dim, left.origin.shape[1], len(part))

    threads = max(1, min(threads, len(rows) * shape.left * shape.right * dim // PART_PRODUCTS))
    parts = [part for part in np.array_split(np.arange(blocks), threads) if len(part)]
    each_of(work, parts, threads)
    square, reach = (out.reshape(blocks, 2, per_block)[:, k].reshape(-1)[: blocks * per_block - padding] for k in range(2))
    sorted_distance, sorted_unsound = np.sqrt(square), (square < SQUARE_TRUSTED) | ~np.isfinite(reach)
    if order is None:
        return sorted_distance, sorted_unsound
    distance, unsound = np.empty_like(sorted_distance), np.empty_like(sorted_unsound)
    distance[order], unsound[order] = sorted_distance, sorted_unsound
    return distance, unsound
