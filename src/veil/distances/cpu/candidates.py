"""Candidate pairs of a search for the two nearest: those that float64 must evaluate so that no rounding decides.

A sweep in single precision or fixed point knows squared distances up to an error (`slack`). Every pair that could be among the
two nearest of its row or column is listed, and float64 decides between them (distances.md#the-compiled-kernel).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from veil.distances.cpu import prepared, prune
from veil.distances.cpu.codegen.outputs import UNTRUSTED
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import has_vnni, host_lanes
from veil.distances.cpu.pack import PackedSide, pack
from veil.distances.cpu.prepared import Indices, Prepared
from veil.distances.cpu.prune import axes_worth_it
from veil.distances.cpu.sweep import Running, States, Swept, best_two, dense
from veil.distances.pairs import distinct, exact
from veil.distances.sets import FeatureSet, dimension

# Rows and columns of pairs of features.
Pairs = tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]
# Largest m of the side of smaller dimension: beyond, the elimination dominates and its code grows.
M_MAX = 32
# Error of one Gram entry of unit vectors in single precision: a few roundoffs (docs/theory/distances.md).
ENTRY_ERROR = 4 * 2.0**-24
# Candidates of a feature, on average, that a sweep in fixed point may leave: with more, another sweep in single precision is
# faster than evaluating them in float64.
MANY = 8
# Gram entries of a search from which rounding both sides to 16 bits takes little of the time that it saves.
FIXED_MIN = 1 << 20
# Reach |alpha|^2, in units of the largest |d0|^2 + |e0|^2, beyond which a pair is listed; if the first lists too many pairs,
# the second is tried.
REACHES = (4.0, 256.0)
# Such reaches in fixed point, whose error is larger: fewer pairs stay below these, but fewer of them are candidates as well.
FIXED_REACHES = (1.0, 4.0)
# Such a reach for the dense output, whose entries are to be known to about 1e-6.
DENSE_REACH = 1.0
# Most candidates of one feature that are evaluated: more tie within rounding only where features are repeated.
CANDIDATES_MAX = 64
# Features whose full rows or columns are evaluated at a time, where running bests may have dropped a candidate.
RECHECKED = 256


def refusal(left_m: int, right_m: int, dim: int) -> str | None:
    """Reason why the compiled kernel does not serve these dimensions, or None if it does."""
    if min(left_m, right_m) > M_MAX:
        return f"it serves subspaces up to m = {M_MAX}, got {left_m} and {right_m}; use backend 'numpy'"
    if min(left_m, right_m) == 0 and 2 * max(left_m, right_m) >= dim:
        return f"points against subspaces of m = {max(left_m, right_m)} in {dim}-D need the complement; use backend 'numpy'"
    return None


@runtime_checkable
class CandidateSearch(Protocol):
    """Sweeper of all pairs of two sets in limited precision, with the error of its Gram entries."""

    # Reaches to try `best_two` with, one after the other, in units of the largest |d0|^2 + |e0|^2.
    reaches: tuple[float, ...]

    @property
    def entry_error(self) -> float:
        """Largest error of a Gram entry of two rows of length 1."""

    def best_two(self, reach: float) -> Swept:
        """Smallest squared distances of every row and column; pairs of a reach |alpha|^2 beyond `reach` are listed instead."""

    def dense(self, reach: float, *, rows: Indices = None, columns: Indices = None) -> Float32[np.ndarray, "_ _"]:
        """Matrix of squared distances, all or those of some rows or columns; -1 where a pair is too near or beyond `reach`."""

    def finer(self) -> CandidateSearch | None:
        """Engine of a smaller error for the same sets, or None if there is none."""


class Compiled:
    """Sweep of two sets compiled for this processor, in single precision or, with `shape.fixed`, in fixed point."""

    def __init__(self, a: Prepared, b: Prepared, shape: Shape, threads: int) -> None:
        self.a, self.b, self.shape, self.threads = a, b, shape, threads
        # Fixed point takes rows of length 1 at most.
        self.unit = max(a.longest, b.longest) or 1.0 if shape.fixed else 1.0
        self.reaches: tuple[float, ...] = FIXED_REACHES if shape.fixed else REACHES

    @cached_property
    def left(self) -> tuple[PackedSide, float]:
        """Left set, packed when it is first needed, and the largest error |q| of a row from rounding to 16 bits."""
        return self._packed(self.a, left=True)

    @cached_property
    def right(self) -> tuple[PackedSide, float]:
        """Right set, packed when it is first needed, and the largest error |q| of a row from rounding to 16 bits."""
        return self._packed(self.b, left=False)

    @property
    def entry_error(self) -> float:
        """Largest error of a Gram entry of two rows of length 1 (docs/theory/distances.md, Eq. 17 in fixed point)."""
        return ENTRY_ERROR + (self.left[1] + self.right[1] if self.shape.fixed else 0.0)

    def best_two(self, reach: float) -> Swept:
        """Smallest squared distances of every row and column; pairs of a reach |alpha|^2 beyond `reach` are listed instead."""
        square = self.unit**2
        return best_two(self.left[0], self.right[0], self.shape, reach / square, self.threads).times(square)

    def dense(self, reach: float, *, rows: Indices = None, columns: Indices = None) -> Float32[np.ndarray, "_ _"]:
        """Matrix of squared distances, all or those of some rows or columns; -1 where a pair is too near or beyond `reach`."""
        left, _ = self.left if rows is None else self._packed(self.a.take(rows), left=True)
        right, _ = self.right if columns is None else self._packed(self.b.take(columns), left=False)
        squares = dense(left, right, self.shape, reach / self.unit**2, self.threads)
        if self.shape.fixed:
            squares[squares != UNTRUSTED] *= np.float32(self.unit**2)
        return squares

    def finer(self) -> Compiled | None:
        """Engine in single precision, for what fixed point cannot tell apart; None where this one is that already."""
        return Compiled(self.a, self.b, replace(self.shape, fixed=False), self.threads) if self.shape.fixed else None

    def _packed(self, side: Prepared, *, left: bool) -> tuple[PackedSide, float]:
        return pack(side, self.shape, left=left, unit=self.unit, threads=self.threads)


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """Two sets prepared for the kernels, `first` the side of smaller dimension.

    `sets` are (left, right) as they were given; `swapped` says that `first` is the right one.
    """

    first: Prepared
    second: Prepared
    shape: Shape
    swapped: bool
    sets: tuple[FeatureSet, FeatureSet]


def compared(
    left: FeatureSet, right: FeatureSet, center: Float[np.ndarray, "dim"], lanes: int | None = None, *, threads: int = 1
) -> Compared:
    """Both sets centered and prepared for the kernels, by default for the widest vectors of this processor (`lanes` floats)."""
    m, n = dimension(left), dimension(right)
    shape = Shape(left=min(m, n) + 1, right=max(m, n) + 1, lanes=lanes or host_lanes())
    kind = prepared.stored(left, right)
    a, b = prepared.prepared((right, left) if m > n else (left, right), center, shape, kind, threads)
    return Compared(first=a, second=b, shape=shape, swapped=m > n, sets=(left, right))


def matrix(both: Compared, threads: int = 1, engine: CandidateSearch | None = None) -> Float64[np.ndarray, "left right"]:
    """Distances of all pairs, in double precision where single precision is not trusted.

    Without an `engine` the compiled sweep of this processor computes them.
    """
    a, b = both.first, both.second
    single = (engine or Compiled(a, b, both.shape, threads)).dense(DENSE_REACH * squared_scale(a, b))
    result = (single.T if both.swapped else single).astype(np.float64)
    rows, columns = np.nonzero(result == UNTRUSTED)
    result[rows, columns] = 0
    np.sqrt(result, out=result)
    result[rows, columns] = distances(both, (rows, columns), threads)
    return result


def distances(both: Compared, pairs: Pairs, threads: int = 1) -> Float64[np.ndarray, "pairs"]:
    """Float64 distances of listed pairs (left, right).

    They are those of docs/theory/distances.md, Eq. 4 where that is sound, and in residual form elsewhere.
    """
    rows, columns = pairs[::-1] if both.swapped else pairs
    value, unsound = prepared.distances(both.first, both.second, rows, columns, both.shape, threads)
    value[unsound] = exact(*both.sets, pairs[0][unsound], pairs[1][unsound])
    return value


def candidates(both: Compared, threads: int = 1, engine: CandidateSearch | None = None) -> Pairs | None:
    """Distinct pairs (left, right) among which are the two nearest of every feature of either side.

    Without an `engine` this processor serves: it prunes where that saves time, else it sweeps all pairs, first in fixed point
    where it has that. None if too many pairs are nearly parallel, so that all would have to be evaluated in float64.
    """
    a, b = both.first, both.second
    pairs = None
    if engine is None:
        shape = sweep_shape(both)
        axes = axes_worth_it(a, b, shape)
        pairs = None if axes is None else prune.candidates(a, b, axes, shape, 2 * ENTRY_ERROR, threads)
        if pairs is None and shape.fixed:
            pairs = swept_candidates(a, b, Compiled(a, b, shape, threads))
            pairs = None if pairs is None or len(pairs[0]) > MANY * (len(a) + len(b)) else pairs
    pairs = pairs or swept_candidates(a, b, engine or Compiled(a, b, both.shape, threads))
    return pairs[::-1] if pairs and both.swapped else pairs


def sweep_shape(both: Compared) -> Shape:
    """Shape in which all pairs are swept: in fixed point where bases are orthonormal and it saves time."""
    a, b = both.first, both.second
    return fixed_point_shape(both.shape, len(a) * len(b)) if a.orthonormal and b.orthonormal else both.shape


def fixed_point_shape(shape: Shape, pairs: int) -> Shape:
    """Copy of a shape in fixed point, or in single precision where the processor lacks VNNI or there are too few pairs."""
    enough = pairs * shape.left * shape.right >= FIXED_MIN
    return replace(shape, fixed=enough and has_vnni(shape.lanes))


def swept_candidates(a: Prepared, b: Prepared, engine: CandidateSearch) -> Pairs | None:
    """Distinct pairs (a, b) among which are the two nearest of every feature, found by a sweep of all pairs.

    None if too many pairs reach too far, whichever of the engine's reaches is allowed.
    """
    scale = squared_scale(a, b)
    for times in engine.reaches if a.m else (0.0,):
        reach = times * scale
        swept = engine.best_two(reach)
        if not swept.overflowed:
            break
    else:
        return None
    scans = [Scan(each, 2 * error_bound(a, b, reach, each), DENSE_REACH * scale) for each in (engine, engine.finer()) if each]
    rows = _candidates_of(swept.rows, scans, "rows")
    columns = _candidates_of(swept.columns, scans, "columns")
    doubtful = swept.doubtful.astype(np.int64)
    row, column = (np.concatenate([x, y, z]) for x, y, z in zip(rows, columns[::-1], doubtful.T, strict=True))
    return distinct(row, column)


def squared_scale(a: Prepared, b: Prepared) -> float:
    """Largest |d0|^2 + |e0|^2 of a pair, the scale of squared distances and of their rounding."""
    return float(a.squares.max() + b.squares.max())


def error_bound(a: Prepared, b: Prepared, reach: float, engine: CandidateSearch) -> float:
    """Bound of the error of squared distances of pairs with |alpha|^2 <= reach (docs/theory/distances.md, Eq. 13)."""
    return 2 * engine.entry_error * (squared_scale(a, b) + reach)


@dataclass(frozen=True)
class Scan:
    """Evaluation of whole rows or columns by an engine.

    `slack` is twice the error of its squared distances; pairs beyond `reach` are left unknown.
    """

    engine: CandidateSearch
    slack: float
    reach: float

    def __call__(self, owners: Int64[np.ndarray, "owners"], by: str) -> Float32[np.ndarray, "owners others"]:
        """Squared distances of some rows, or with `by` = "columns" of some columns, to all of the other side; -1: unknown."""
        dense = self.engine.dense
        return dense(self.reach, rows=owners) if by == "rows" else dense(self.reach, columns=owners).T


def _candidates_of(running: Running | States, scans: list[Scan], by: str) -> Pairs:
    """Candidate pairs (owner, other) of all rows, or with `by` = "columns" of all columns, the owners.

    Owners whose running bests may have dropped a candidate are evaluated in full, by one scan after the other: where more
    others are near than the first can tell apart, the next, of a smaller error, takes over; the last one keeps the nearest.
    """
    owner, other, uncertain = running.within(scans[0].slack)
    known = ~uncertain[owner]
    parts, incomplete = [(owner[known], other[known])], np.flatnonzero(uncertain)
    for scan in scans:
        crowded = [incomplete[:0]]
        for start in range(0, len(incomplete), RECHECKED):
            owners = incomplete[start : start + RECHECKED]
            rows, others, near = _near(scan(owners, by), scan.slack)
            left = near > CANDIDATES_MAX if scan is not scans[-1] else np.zeros(len(owners), dtype=bool)
            parts.append((owners[rows[~left[rows]]], others[~left[rows]]))
            crowded.append(owners[left])
        incomplete = np.concatenate(crowded)
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _near(
    matrix: Float32[np.ndarray, "rows others"], slack: float
) -> tuple[Int64[np.ndarray, "near"], Int64[np.ndarray, "near"], Int64[np.ndarray, "rows"]]:
    """Rows and columns of entries within `slack` of the second smallest of their row, or unknown; and their number in each row.

    At most `CANDIDATES_MAX` entries of a row are returned; the number counts all.
    """
    unknown = matrix == UNTRUSTED
    trusted = np.where(unknown, np.float32(np.inf), matrix)
    limit = np.partition(trusted, 1, axis=1)[:, 1] if matrix.shape[1] > 1 else np.full(len(matrix), np.inf)
    near = unknown | (matrix <= (limit + np.float32(slack))[:, None])
    order = np.argsort(matrix, axis=1, kind="stable")[:, :CANDIDATES_MAX]  # unknown entries come first: they hold -1
    rows, place = np.nonzero(np.take_along_axis(near, order, axis=1))
    return rows, order[rows, place], near.sum(axis=1)
