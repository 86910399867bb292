"""A set in double precision next to its single-precision sweep, and the distances of listed pairs of two sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
from jaxtyping import Bool, Float, Float64, Int64

from veil.distances.cpu.codegen.double import padded, scratch_doubles
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import kernels
from veil.distances.cpu.pack import Components, aligned
from veil.threads import shared

Set = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _ _"] | None]
Item = TypeVar("Item")
Result = TypeVar("Result")
# Numbers of origins and bases that a thread prepares at a time, and products that it sums of listed pairs, at least: less takes
# about as long as waking it.
PART_NUMBERS, PART_PRODUCTS = 1 << 19, 1 << 21
# Features by index, or all of them.
Some = Int64[np.ndarray, "some"] | None
# Bases with a larger defect D D^T - I are not corrected to first order; their pairs take the slow way.
DEFECT_MAX = 1e-6
# Pairs nearer than this (squared), or of infinite reach, are left to the residual form: Eq. 4 cancels there even in double.
SQUARE_TRUSTED = 1e-4


@dataclass(frozen=True, kw_only=True, eq=False)
class Prepared:
    """A set centered on a common point, with minimal origins, in double precision; `factor` is W of each basis.

    `origin` is padded with zeros to whole vectors; so is `factor`, whose first line and column stand for the origin, which no
    basis touches. `orthonormal` is False where W would not do.
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
        """Origins and directions as the sweep packs them."""
        return [self.origin[:, : self.basis.shape[2]], *np.swapaxes(self.basis, 0, 1)]

    @property
    def longest(self) -> float:
        """The length of the longest origin."""
        return float(np.sqrt(self.squares.max(initial=0.0)))

    def take(self, which: np.ndarray) -> Prepared:
        """Some of the features."""
        return Prepared(
            origin=self.origin[which],
            basis=self.basis[which],
            squares=self.squares[which],
            factor=self.factor[which],
            orthonormal=self.orthonormal,
        )


def stored(*sets: Set) -> str:
    """How the bases of these sets are kept for the compiled code: float only if nothing is lost."""
    return "float" if all(part is None or part.dtype.itemsize <= 4 for side in sets for part in side) else "double"


def each_of(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> list[Result]:
    """`work` of each item, shared out among threads; compiled code calls no BLAS, so that one thread needs no limit of it."""
    items = list(items)
    return list(map(work, items)) if min(threads, len(items)) <= 1 else list(shared(work, items, threads))


def prepare(side: Set, center: Float64[np.ndarray, "dim"], shape: Shape, kind: str) -> Prepared:
    """Center, make minimal, and find how far each basis is from orthonormal."""
    return prepared([side], center, shape, kind)[0]


def prepared(
    sides: Sequence[Set], center: Float64[np.ndarray, "dim"], shape: Shape, kind: str, threads: int = 1
) -> list[Prepared]:
    """The same for several sets, shared out among threads."""
    begun = [_begun(side, center, shape, kind) for side in sides]
    each_of(lambda part: part(), [part for parts, _ in begun for part in parts], threads)
    return [end() for _, end in begun]


def _begun(
    side: Set, center: Float64[np.ndarray, "dim"], shape: Shape, kind: str
) -> tuple[list[Callable[[], None]], Callable[[], Prepared]]:
    """Parts of the work, and what makes the result when all are done."""
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

    def end() -> Prepared:
        orthonormal = bool((defect <= DEFECT_MAX).all())
        return Prepared(origin=moved, basis=basis, squares=squares, factor=factor, orthonormal=orthonormal)

    size = max(1, PART_NUMBERS // ((m + 1) * dim))
    return [partial(work, start, min(start + size, count)) for start in range(0, count, size)], end


def _stored(kind: str, dim: int, shape: Shape) -> str:
    """How the compiled code reads rows of this length."""
    return f"{kind} whole" if dim == padded(dim, shape) else kind


def distances(
    left: Prepared, right: Prepared, rows: np.ndarray, columns: np.ndarray, shape: Shape, threads: int = 1
) -> tuple[Float64[np.ndarray, "pairs"], Bool[np.ndarray, "pairs"]]:
    """Distances of the listed pairs (left.m <= right.m), and for which of them the residual form is needed instead."""
    if not (left.orthonormal and right.orthonormal):
        return np.zeros(len(rows)), np.ones(len(rows), dtype=bool)
    kind, dim = "float" if left.basis.dtype == np.float32 else "double", left.basis.shape[2]
    function = kernels(shape, f"exact {_stored(kind, dim, shape)}")["exact"]
    order = np.argsort(columns, kind="stable") if right.m > left.m else None  # what is larger is fetched once
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
    found, unsound = np.sqrt(square), (square < SQUARE_TRUSTED) | ~np.isfinite(reach)
    if order is None:
        return found, unsound
    value, doubt = np.empty_like(found), np.empty_like(unsound)
    value[order], doubt[order] = found, unsound
    return value, doubt
