"""The compiled sweep between the door and the kernels: which pairs must be evaluated in float64 so that no rounding decides.

The sweep knows d^2 up to an error (`slack`); every pair that could be among the two nearest of its row or column is
listed, and float64 decides between them (docs/theory/distances.md, "The compiled kernel").
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from veil.distances.cpu import prepared, prune, sides
from veil.distances.cpu.axes import axes_worth_it
from veil.distances.cpu.bests import Running, States
from veil.distances.cpu.codegen.outputs import UNTRUSTED
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import adds_pairs, host_lanes
from veil.distances.cpu.pack import Packed
from veil.distances.cpu.prepared import Prepared, Some
from veil.distances.cpu.sweep import Swept, best_two, dense
from veil.distances.pairs import distinct, exact

Set = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _ _"] | None]
Pairs = tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]
# Beyond this the elimination dominates and its code grows; the side of smaller dimension counts.
M_MAX = 32
# Error of one Gram entry of unit vectors in single precision: a few roundoffs (docs/theory/distances.md).
ENTRY_ERROR = 4 * 2.0**-24
# Candidates of a feature, on average, from which a sweep in single precision is faster than float64 of those of fixed point.
MANY = 8
# Gram entries from which rounding to 16 bits is little beside what it saves.
FIXED_MIN = 1 << 20
# |alpha|^2 over the largest |d0|^2 + |e0|^2 beyond which a pair is listed; if that lists too many, the second is tried.
REACHES = (4.0, 256.0)
# The same in fixed point, whose error is larger: fewer pairs stay below, but so do the candidates among them.
FIXED_REACHES = (1.0, 4.0)
# The same for the dense output, whose entries are to be known to about 1e-6.
DENSE_REACH = 1.0
# Candidates of one feature that are evaluated at most: more tie within rounding only where features are repeated.
CANDIDATES_MAX = 64
# Features whose full row or column is looked at together, when it is uncertain what the running bests hide.
RECHECKED = 256


def refusal(left_m: int, right_m: int, dim: int) -> str | None:
    """Why the compiled kernel does not serve these dimensions, or None."""
    if min(left_m, right_m) > M_MAX:
        return f"it serves subspaces up to m = {M_MAX}, got {left_m} and {right_m}; use backend 'numpy'"
    if min(left_m, right_m) == 0 and 2 * max(left_m, right_m) >= dim:
        return f"points against subspaces of m = {max(left_m, right_m)} in {dim}-D need the complement; use backend 'numpy'"
    return None


@runtime_checkable
class Engine(Protocol):
    """What sweeps all pairs in single precision, and the error of its Gram entries (of unit vectors)."""

    # What `best_two` is to be tried with, of the largest |d0|^2 + |e0|^2.
    reaches: tuple[float, ...]

    @property
    def entry_error(self) -> float:
        """Of one Gram entry of rows of length 1."""

    def best_two(self, reach: float) -> Swept:
        """The best of every row and column; pairs that reach farther than `reach` (squared) are listed instead."""

    def dense(self, reach: float, *, rows: Some = None, columns: Some = None) -> Float32[np.ndarray, "_ _"]:
        """Squared distances of all, or of some rows or columns; -1 where near, or beyond `reach`, which it does not know."""

    def finer(self) -> Engine | None:
        """One of a smaller error for the same sets."""


class Compiled:
    """The sweep of two sets compiled for this processor, in single precision or, with `shape.fixed`, in fixed point."""

    def __init__(self, a: Prepared, b: Prepared, shape: Shape, threads: int) -> None:
        self.a, self.b, self.shape, self.threads = a, b, shape, threads
        # Fixed point takes rows of length 1 at most.
        self.unit = max(a.longest, b.longest) or 1.0 if shape.fixed else 1.0
        self.reaches: tuple[float, ...] = FIXED_REACHES if shape.fixed else REACHES

    @cached_property
    def left(self) -> tuple[Packed, float]:
        """The first set, packed when it is first needed, and what rounding took of a row at most."""
        return self._packed(self.a, left=True)

    @cached_property
    def right(self) -> tuple[Packed, float]:
        """The second one."""
        return self._packed(self.b, left=False)

    @property
    def entry_error(self) -> float:
        """See `Engine`."""
        return ENTRY_ERROR + (self.left[1] + self.right[1] if self.shape.fixed else 0.0)

    def best_two(self, reach: float) -> Swept:
        """See `Engine`."""
        square = self.unit**2
        return best_two(self.left[0], self.right[0], self.shape, reach / square, self.threads).times(square)

    def dense(self, reach: float, *, rows: Some = None, columns: Some = None) -> Float32[np.ndarray, "_ _"]:
        """See `Engine`."""
        left, _ = self.left if rows is None else self._packed(self.a.take(rows), left=True)
        right, _ = self.right if columns is None else self._packed(self.b.take(columns), left=False)
        found = dense(left, right, self.shape, reach / self.unit**2, self.threads)
        if self.shape.fixed:
            found[found != UNTRUSTED] *= np.float32(self.unit**2)
        return found

    def finer(self) -> Compiled | None:
        """See `Engine`: single precision for what fixed point cannot tell apart."""
        return Compiled(self.a, self.b, replace(self.shape, fixed=False), self.threads) if self.shape.fixed else None

    def _packed(self, side: Prepared, *, left: bool) -> tuple[Packed, float]:
        return sides.pack(side, self.shape, left=left, unit=self.unit, threads=self.threads)


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """Two sets ready for the kernels, the side of smaller dimension first."""

    first: Prepared
    second: Prepared
    shape: Shape
    swapped: bool
    sets: tuple[Set, Set]


def compared(
    left: Set, right: Set, center: Float[np.ndarray, "dim"], lanes: int | None = None, *, threads: int = 1
) -> Compared:
    """Center and prepare both sides."""
    m, n = (0 if basis is None else basis.shape[1] for _, basis in (left, right))
    shape = Shape(left=min(m, n) + 1, right=max(m, n) + 1, lanes=lanes or host_lanes())
    kind = prepared.stored(left, right)
    a, b = prepared.prepared((right, left) if m > n else (left, right), center, shape, kind, threads)
    return Compared(first=a, second=b, shape=shape, swapped=m > n, sets=(left, right))


def matrix(both: Compared, threads: int = 1, engine: Engine | None = None) -> Float64[np.ndarray, "left right"]:
    """All distances, in double precision where single is not trusted."""
    a, b = both.first, both.second
    single = (engine or Compiled(a, b, both.shape, threads)).dense(DENSE_REACH * size(a, b))
    found = (single.T if both.swapped else single).astype(np.float64)
    rows, columns = np.nonzero(found == UNTRUSTED)
    found[rows, columns] = 0
    np.sqrt(found, out=found)
    found[rows, columns] = distances(both, (rows, columns), threads)
    return found


def distances(both: Compared, pairs: Pairs, threads: int = 1) -> Float64[np.ndarray, "pairs"]:
    """Listed pairs in double precision: Eq. 4 where it is sound, the residual form elsewhere."""
    rows, columns = pairs[::-1] if both.swapped else pairs
    found, unsound = prepared.distances(both.first, both.second, rows, columns, both.shape, threads)
    found[unsound] = exact(*both.sets, pairs[0][unsound], pairs[1][unsound])
    return found


def candidates(both: Compared, threads: int = 1, engine: Engine | None = None) -> Pairs | None:
    """Distinct pairs among which are the two nearest of every row and column; None if too many are near parallel.

    Without an `engine` the processor serves, and prunes where that pays.
    """
    a, b = both.first, both.second
    found = None
    if engine is None:
        shape = sweeping(both)
        axes = axes_worth_it(a, b, shape)
        found = None if axes is None else prune.candidates(a, b, axes, shape, 2 * ENTRY_ERROR, threads)
        if found is None and shape.fixed:
            found = swept(a, b, Compiled(a, b, shape, threads))
            found = None if found is None or len(found[0]) > MANY * (len(a) + len(b)) else found
    found = found or swept(a, b, engine or Compiled(a, b, both.shape, threads))
    return found[::-1] if found and both.swapped else found


def sweeping(both: Compared) -> Shape:
    """How all pairs are swept: in fixed point where bases are of unit length and it gains."""
    a, b = both.first, both.second
    return in_fixed_point(both.shape, len(a) * len(b)) if a.orthonormal and b.orthonormal else both.shape


def in_fixed_point(shape: Shape, pairs: int) -> Shape:
    """The same in fixed point, where the processor has it and there are enough pairs."""
    enough = pairs * shape.left * shape.right >= FIXED_MIN
    return replace(shape, fixed=enough and adds_pairs(shape.lanes))


def swept(a: Prepared, b: Prepared, engine: Engine) -> Pairs | None:
    """The same by a sweep of all pairs."""
    for times in engine.reaches if a.m else (0.0,):
        reach = times * size(a, b)
        running = engine.best_two(reach)
        if not running.overflowed:
            break
    else:
        return None
    looks = [Look(each, 2 * error(a, b, reach, each), DENSE_REACH * size(a, b)) for each in (engine, engine.finer()) if each]
    rows = _complete(running.rows, looks, "rows")
    columns = _complete(running.columns, looks, "columns")
    doubtful = running.doubtful.astype(np.int64)
    row, column = (np.concatenate([x, y, z]) for x, y, z in zip(rows, columns[::-1], doubtful.T, strict=True))
    return distinct(row, column)


def size(a: Prepared, b: Prepared) -> float:
    """The largest |d0|^2 + |e0|^2."""
    return float(a.squares.max() + b.squares.max())


def error(a: Prepared, b: Prepared, reach: float, engine: Engine) -> float:
    """Bound of the error of d^2 for pairs with |alpha|^2 <= reach: Eq. 13 of docs/theory/distances.md."""
    return 2 * engine.entry_error * (size(a, b) + reach)


@dataclass(frozen=True)
class Look:
    """What looks at whole rows and columns, twice the error of what it sees, and up to where it does."""

    engine: Engine
    slack: float
    reach: float

    def __call__(self, some: Int64[np.ndarray, "some"], by: str) -> Float32[np.ndarray, "some others"]:
        dense = self.engine.dense
        return dense(self.reach, rows=some) if by == "rows" else dense(self.reach, columns=some).T


def _complete(running: Running | States, looks: list[Look], by: str) -> Pairs:
    """(owner, other) candidates, with the owners looked at in full whose running bests may hide one.

    Where more others are near than can be told apart, the next, finer look takes over; the last one takes the nearest.
    """
    owner, other, uncertain = running.within(looks[0].slack)
    known = ~uncertain[owner]
    parts, doubtful = [(owner[known], other[known])], np.flatnonzero(uncertain)
    for look in looks:
        crowded = [doubtful[:0]]
        for start in range(0, len(doubtful), RECHECKED):
            some = doubtful[start : start + RECHECKED]
            rows, found, near = _near(look(some, by), look.slack)
            left = near > CANDIDATES_MAX if look is not looks[-1] else np.zeros(len(some), dtype=bool)
            parts.append((some[rows[~left[rows]]], found[~left[rows]]))
            crowded.append(some[left])
        doubtful = np.concatenate(crowded)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _near(
    matrix: Float32[np.ndarray, "rows others"], slack: float
) -> tuple[Int64[np.ndarray, "near"], Int64[np.ndarray, "near"], Int64[np.ndarray, "rows"]]:
    """Every entry within `slack` of its row's second smallest, and what is not known, up to `CANDIDATES_MAX`; how many."""
    unknown = matrix == UNTRUSTED
    trusted = np.where(unknown, np.float32(np.inf), matrix)
    limit = np.partition(trusted, 1, axis=1)[:, 1] if matrix.shape[1] > 1 else np.full(len(matrix), np.inf)
    near = unknown | (matrix <= (limit + np.float32(slack))[:, None])
    order = np.argsort(matrix, axis=1, kind="stable")[:, :CANDIDATES_MAX]  # the unknown first: they hold -1
    rows, place = np.nonzero(np.take_along_axis(near, order, axis=1))
    return rows, order[rows, place], near.sum(axis=1)
