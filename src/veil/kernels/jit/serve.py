"""The compiled sweep between the door and the kernels: which pairs must be evaluated in float64 so that no rounding decides.

The sweep knows d^2 up to an error (`slack`); every pair that could be among the two nearest of its row or column is
listed, and float64 decides between them (docs/theory/distances.md, "The compiled kernel").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, Float64, Int64

from veil.kernels.jit import double, prune
from veil.kernels.jit.axes import axes_worth_it
from veil.kernels.jit.compile import host_lanes
from veil.kernels.jit.double import Prepared
from veil.kernels.jit.outputs import UNTRUSTED
from veil.kernels.jit.shape import Shape
from veil.kernels.jit.sweep import Running, Swept, best_two, dense, packed, select
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
    """Why the compiled kernel does not serve these dimensions, or None."""
    if min(left_m, right_m) > M_MAX:
        return f"it serves subspaces up to m = {M_MAX}, got {left_m} and {right_m}; use backend 'numpy'"
    if min(left_m, right_m) == 0 and 2 * max(left_m, right_m) >= dim:
        return f"points against subspaces of m = {max(left_m, right_m)} in {dim}-D need the complement; use backend 'numpy'"
    return None


@runtime_checkable
class Engine(Protocol):
    """What sweeps all pairs in single precision, and the error of its Gram entries (of unit vectors)."""

    entry_error: float

    def best_two(self, a: Prepared, b: Prepared, reach: float) -> Swept:
        """The best of every row and column; pairs that reach farther than `reach` (squared) are listed instead."""

    def dense(self, a: Prepared, b: Prepared, reach: float) -> Float32[np.ndarray, "_ _"]:
        """All squared distances; -1 where near, or beyond `reach`: single precision does not know these."""


class Compiled:
    """The sweep compiled for this processor."""

    entry_error = ENTRY_ERROR

    def __init__(self, shape: Shape, threads: int) -> None:
        self.shape, self.threads = shape, threads

    def best_two(self, a: Prepared, b: Prepared, reach: float) -> Swept:
        """See `Engine`."""
        return best_two(*packed(a, b, self.shape), self.shape, reach, self.threads)

    def dense(self, a: Prepared, b: Prepared, reach: float) -> Float32[np.ndarray, "_ _"]:
        """See `Engine`."""
        return dense(*packed(a, b, self.shape), self.shape, reach, self.threads)


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


def matrix(both: Compared, threads: int = 1, engine: Engine | None = None) -> Float64[np.ndarray, "left right"]:
    """All distances, in double precision where single is not trusted."""
    a, b = both.first, both.second
    single = (engine or Compiled(both.shape, threads)).dense(a, b, DENSE_REACH * size(a, b))
    found = (single.T if both.swapped else single).astype(np.float64)
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


def candidates(both: Compared, threads: int = 1, engine: Engine | None = None) -> Pairs | None:
    """Distinct pairs among which are the two nearest of every row and column; None if too many are near parallel.

    Without an `engine` the processor serves, and prunes where that pays.
    """
    a, b = both.first, both.second
    found = None
    if engine is None:
        axes = axes_worth_it(a, b, both.shape)
        found = None if axes is None else prune.candidates(a, b, axes, both.shape, 2 * ENTRY_ERROR, threads)
    found = found or swept(a, b, engine or Compiled(both.shape, threads))
    return found[::-1] if found and both.swapped else found


def swept(a: Prepared, b: Prepared, engine: Engine) -> Pairs | None:
    """The same by a sweep of all pairs."""
    for times in REACHES if a.m else (0.0,):
        reach = times * size(a, b)
        running = engine.best_two(a, b, reach)
        if not running.overflowed:
            break
    else:
        return None
    slack = 2 * error(a, b, reach, engine)
    rows = _complete(a, b, running.rows, slack, engine, transpose=False)
    columns = _complete(a, b, running.columns, slack, engine, transpose=True)
    doubtful = running.doubtful.astype(np.int64)
    row, column = (np.concatenate([x, y, z]) for x, y, z in zip(rows, columns[::-1], doubtful.T, strict=True))
    keys = np.unique(row * len(b) + column)
    return keys // len(b), keys % len(b)


def size(a: Prepared, b: Prepared) -> float:
    """The largest |d0|^2 + |e0|^2."""
    return float(a.squares.max() + b.squares.max())


def error(a: Prepared, b: Prepared, reach: float, engine: Engine) -> float:
    """Bound of the error of d^2 for pairs with |alpha|^2 <= reach: Eq. 13 of docs/theory/distances.md."""
    return 2 * engine.entry_error * (size(a, b) + reach)


def _complete(a: Prepared, b: Prepared, running: Running, slack: float, engine: Engine, *, transpose: bool) -> Pairs:
    """(owner, other) candidates, with the owners looked at in full whose running bests may hide one."""
    owner, other, uncertain = select(running, slack)
    known = ~uncertain[owner]
    parts, doubtful = [(owner[known], other[known])], np.flatnonzero(uncertain)
    for start in range(0, len(doubtful), RECHECKED):
        some = doubtful[start : start + RECHECKED]
        part = (a, b.take(some)) if transpose else (a.take(some), b)
        matrix = engine.dense(*part, DENSE_REACH * size(a, b))
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
