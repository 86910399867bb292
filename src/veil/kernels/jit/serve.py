"""The compiled sweep between the door and the kernels: which pairs must be evaluated in float64 so that no rounding decides.

The sweep knows d^2 up to an error (`slack`); every pair that could be among the two nearest of its row or column is
listed, and float64 decides between them (docs/theory/distances.md, "The compiled kernel").
"""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float, Float32, Int64

from veil.kernels import cpu
from veil.kernels.jit.compile import obstacle
from veil.kernels.jit.outputs import UNTRUSTED
from veil.kernels.jit.sweep import Running, best_two, dense, select

Set = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _ _"] | None]
Pairs = tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]
# Beyond this the elimination dominates and its code grows; the side of smaller dimension counts.
M_MAX = 32
# Error of one Gram entry of unit vectors in single precision: a few roundoffs, measured below 3 (docs/theory/distances.md).
ENTRY_ERROR = 4 * 2.0**-24
# Pairs whose smallest pivot lies below the first are listed; if those are too many, the second is tried.
PIVOTS = (1 / 16, 1e-3)
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


def squares(left: Set, right: Set, center: Float[np.ndarray, "dim"], threads: int) -> Float32[np.ndarray, "left right"]:
    """All squared distances in single precision; -1 marks those that need double."""
    a, b = cpu.pack(*left, center), cpu.pack(*right, center)
    return dense(a, b, threads=threads) if a.m <= b.m else dense(b, a, threads=threads).T


def candidates(left: Set, right: Set, center: Float[np.ndarray, "dim"], threads: int, lanes: int | None = None) -> Pairs | None:
    """Distinct pairs among which are the two nearest of every row and column; None if nearly all pairs are near parallel."""
    a, b = cpu.pack(*left, center), cpu.pack(*right, center)
    if a.m <= b.m:
        return _candidates(a, b, threads, lanes)
    found = _candidates(b, a, threads, lanes)
    return found and found[::-1]


def _candidates(a: cpu.Side, b: cpu.Side, threads: int, lanes: int | None) -> Pairs | None:
    for pivot in PIVOTS if a.m else (1.0,):
        swept = best_two(a, b, pivot, threads=threads, lanes=lanes)
        if not swept.overflowed:
            break
    else:
        return None
    slack = 2 * error(a, b, pivot)
    rows = _complete(a, b, swept.rows, slack, threads, lanes, transpose=False)
    columns = _complete(a, b, swept.columns, slack, threads, lanes, transpose=True)
    doubtful = swept.doubtful.astype(np.int64)
    row, column = (np.concatenate([x, y, z]) for x, y, z in zip(rows, columns[::-1], doubtful.T, strict=True))
    keys = np.unique(row * len(b) + column)
    return keys // len(b), keys % len(b)


def error(a: cpu.Side, b: cpu.Side, pivot: float) -> float:
    """Bound of the error of d^2 for pairs with pivots of at least `pivot`: Eq. 14 of docs/theory/distances.md."""
    size = float(a.squared.max() + b.squared.max())
    return ENTRY_ERROR * size * (1 + 2 / math.sqrt(pivot) + 1 / pivot)


def _complete(
    a: cpu.Side, b: cpu.Side, running: Running, slack: float, threads: int, lanes: int | None, *, transpose: bool
) -> Pairs:
    """(owner, other) candidates, with the owners looked at in full whose running bests may hide one."""
    owner, other, uncertain = select(running, slack)
    known = ~uncertain[owner]
    parts, doubtful = [(owner[known], other[known])], np.flatnonzero(uncertain)
    for start in range(0, len(doubtful), RECHECKED):
        some = doubtful[start : start + RECHECKED]
        if transpose:
            matrix = dense(a, _part(b, some), threads=threads, lanes=lanes).T
        else:
            matrix = dense(_part(a, some), b, threads=threads, lanes=lanes)
        rows, found = _near(matrix, slack)
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


def _part(side: cpu.Side, which: np.ndarray) -> cpu.Side:
    return cpu.Side(planes=side.planes[:, which], squared=side.squared[which])
