"""The compiled sweep between the door and the kernels: which pairs must be evaluated in float64 so that no rounding decides.

The sweep knows d^2 up to an error (`slack`); every pair that could be among the two nearest of its row or column is
listed, and float64 decides between them (docs/theory/distances.md, "The compiled kernel").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from veil.kernels.jit import double, prune
from veil.kernels.jit.axes import axes_worth_it
from veil.kernels.jit.compile import host_lanes, obstacle
from veil.kernels.jit.double import Prepared
from veil.kernels.jit.outputs import UNTRUSTED
from veil.kernels.jit.shape import Shape
from veil.kernels.jit.sweep import Running, best_two, dense, packed, select
from veil.kernels.pairs import exact

Set = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _ _"] | None]
Pairs = tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]
# Beyond this the elimination dominates and its code grows; the side of smaller dimension counts.
M_MAX = 32
# Error of one Gram entry of unit vectors in single precision: a few roundoffs (docs/theory/distances.md).
ENTRY_ERROR = 4 * 2.0**-24
# |alpha|^2 over the largest |d0|^2 + |e0|^2 beyond which a pair is listed; if that lists too many, the second is tried.
REACHES = (4.0, 256.0)
# The same for the dense output, whose entries are to be known to about 1e-6.
DENSE_REACH = 1.0
# Candidates of one feature that are evaluated at most: more tie within rounding only where features are repeated.
CANDIDATES_MAX = 64
# Features whose full row or column is looked at together, when it is uncertain what the running bests hide.
RECHECKED = 256


def refusal(left_m: int, right_m: int, dim: int) -> str | None:
    """Why the compiled kernel does not serve these dimensions on this host, or None."""
    if min(left_m, right_m) > M_MAX:
        return f"it serves subspaces up to m = {M_MAX}, got {left_m} and {right_m}; use backend 'numpy'"
    if min(left_m, right_m) == 0 and 2 * max(left_m, right_m) >= dim:
        return f"points against subspaces of m = {max(left_m, right_m)} in {dim}-D need the complement; use backend 'numpy'"
    return obstacle()


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """Two sets ready for the kernels, the side of smaller dimension first."""

    first: Prepared
    second: Prepared
    shape: Shape
    swapped: bool
    sets: tuple[Set, Set]


def compared(left: Set, right: Set, center: Float[np.ndarray, "dim"], lanes: int | None = None) -> Compared:
    """Center and prepare both sides."""
    m, n = (0 if basis is None else basis.shape[1] for _, basis in (left, right))
    shape = Shape(left=min(m, n) + 1, right=max(m, n) + 1, lanes=lanes or host_lanes())
    kind = double.stored(left, right)
    a, b = (double.prepare(side, center, shape, kind) for side in ((right, left) if m > n else (left, right)))
    return Compared(first=a, second=b, shape=shape, swapped=m > n, sets=(left, right))


def squares(both: Compared, threads: int = 1) -> Float32[np.ndarray, "left right"]:
    """All squared distances in single precision; -1 marks those that need double."""
    a, b = both.first, both.second
    found = dense(*packed(a, b, both.shape), both.shape, DENSE_REACH * size(a, b), threads)
    return found.T if both.swapped else found


def matrix(both: Compared, threads: int = 1) -> Float64[np.ndarray, "left right"]:
    """All distances, in double precision where single is not trusted."""
    found = squares(both, threads).astype(np.float64)
    rows, columns = np.nonzero(found == UNTRUSTED)
    found[rows, columns] = 0
    np.sqrt(found, out=found)
    found[rows, columns] = distances(both, (rows, columns), threads)
    return found


def distances(both: Compared, pairs: Pairs, threads: int = 1) -> Float64[np.ndarray, "pairs"]:
    """Listed pairs in double precision: Eq. 4 where it is sound, the residual form elsewhere."""
    rows, columns = pairs[::-1] if both.swapped else pairs
    found, unsound = double.distances(both.first, both.second, rows, columns, both.shape, threads)
    found[unsound] = exact(*both.sets, pairs[0][unsound], pairs[1][unsound])
    return found


def candidates(both: Compared, threads: int = 1) -> Pairs | None:
    """Distinct pairs among which are the two nearest of every row and column; None if too many are near parallel."""
    found = _candidates(both.first, both.second, both.shape, threads)
    return found[::-1] if found and both.swapped else found


def _candidates(a: Prepared, b: Prepared, shape: Shape, threads: int) -> Pairs | None:
    axes = axes_worth_it(a, b, shape)
    few = None if axes is None else prune.candidates(a, b, axes, shape, 2 * ENTRY_ERROR, threads)
    return few or _swept(a, b, shape, threads)


def _swept(a: Prepared, b: Prepared, shape: Shape, threads: int) -> Pairs | None:
    panels = packed(a, b, shape)
    for times in REACHES if a.m else (0.0,):
        reach = times * size(a, b)
        swept = best_two(*panels, shape, reach, threads)
        if not swept.overflowed:
            break
    else:
        return None
    slack = 2 * error(a, b, reach)
    rows = _complete(a, b, swept.rows, slack, shape, threads, transpose=False)
    columns = _complete(a, b, swept.columns, slack, shape, threads, transpose=True)
    doubtful = swept.doubtful.astype(np.int64)
    row, column = (np.concatenate([x, y, z]) for x, y, z in zip(rows, columns[::-1], doubtful.T, strict=True))
    keys = np.unique(row * len(b) + column)
    return keys // len(b), keys % len(b)


def size(a: Prepared, b: Prepared) -> float:
    """The largest |d0|^2 + |e0|^2."""
    return float(a.squares.max() + b.squares.max())


def error(a: Prepared, b: Prepared, reach: float) -> float:
    """Bound of the error of d^2 for pairs with |alpha|^2 <= reach: Eq. 13 of docs/theory/distances.md."""
    return 2 * ENTRY_ERROR * (size(a, b) + reach)


def _complete(
    a: Prepared, b: Prepared, running: Running, slack: float, shape: Shape, threads: int, *, transpose: bool
) -> Pairs:
    """(owner, other) candidates, with the owners looked at in full whose running bests may hide one."""
    owner, other, uncertain = select(running, slack)
    known = ~uncertain[owner]
    parts, doubtful = [(owner[known], other[known])], np.flatnonzero(uncertain)
    for start in range(0, len(doubtful), RECHECKED):
        some = doubtful[start : start + RECHECKED]
        part = (a, b.take(some)) if transpose else (a.take(some), b)
        matrix = dense(*packed(*part, shape), shape, DENSE_REACH * size(a, b), threads)
        rows, found = _near(matrix.T if transpose else matrix, slack)
        parts.append((some[rows], found))
    return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])


def _near(matrix: Float32[np.ndarray, "rows others"], slack: float) -> Pairs:
    """Every entry within `slack` of its row's second smallest, and what single precision does not know."""
    unknown = matrix == UNTRUSTED
    trusted = np.where(unknown, np.float32(np.inf), matrix)
    limit = np.partition(trusted, 1, axis=1)[:, 1] if matrix.shape[1] > 1 else np.full(len(matrix), np.inf)
    order = np.argsort(matrix, axis=1, kind="stable")[:, :CANDIDATES_MAX]  # the unknown first: they hold -1
    near = np.take_along_axis(unknown | (matrix <= (limit + np.float32(slack))[:, None]), order, axis=1)
    rows, place = np.nonzero(near)
    return rows, order[rows, place]
