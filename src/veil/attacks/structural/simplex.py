"""Solver of small linear programs over the non-negative points of affine subspaces, compiled by numba.

The method is that of docs/theory/hardened.md, Eq. V2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float64, Int8, Int64

from veil.compiled import compiled
from veil.errors import InputError, RangeError

OPTIMAL, INFEASIBLE, STOPPED = 0, 1, 2
# A constraint may be violated by `FEASIBLE`; an entry of a pivot row below `PIVOT` is rounding, not a direction.
FEASIBLE, PIVOT = 1e-11, 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class Minima:
    """Solutions of linear programs: minimizers c, slacks x = origin + c basis, and how each program ended.

    A status is OPTIMAL, INFEASIBLE or STOPPED (too many pivots). `pivots` counts the steps. Without an optimum c is the last
    vertex visited, which violates constraints. `boxed` marks minima that lie on the box: without it they would move on, perhaps
    forever.
    """

    coefficients: Float64[np.ndarray, "_ _"]
    slacks: Float64[np.ndarray, "_ _"]
    status: Int8[np.ndarray, "_"]
    boxed: np.ndarray
    pivots: Int64[np.ndarray, "_"]


def minimize(
    origin: Float64[np.ndarray, "_ _"],
    basis: Float64[np.ndarray, "_ _ _"],
    objective: Float64[np.ndarray, "_ _"],
    *,
    box: float,
    max_pivots: int | None = None,
) -> Minima:
    """Minimize objective . c, for each of `count` programs, such that origin + c basis >= 0 and c stays in a box.

    The box bounds c_i on the side that the objective pulls to alone: c_i >= -box or c_i <= box. The shapes are `origin`
    (count, n), `basis` (count, m, n) and `objective` (count, m).

    A dual simplex method from the corner of the box: every pivot mends the constraint that is farthest from being satisfied,
    measured in c, at O(m n). Degenerate minima, on more than m constraints, cost nothing extra. `max_pivots` defaults to
    10 (m + n). Raises InputError for shapes that do not fit and for NaN, RangeError for an empty box.
    """
    count, m, n = basis.shape
    if origin.shape != (count, n) or objective.shape != (count, m):
        raise InputError(f"programs need origins ({count}, {n}) and objectives ({count}, {m})")
    if not (np.isfinite(origin).all() and np.isfinite(basis).all() and np.isfinite(objective).all()):
        raise InputError("a linear program contains NaN or infinity")
    if not 0 < box < np.inf:
        raise RangeError(f"box must be positive and finite, got {box!r}")
    limit = 10 * (m + n) if max_pivots is None else max_pivots
    if limit < 1:
        raise RangeError(f"max_pivots must be at least 1, got {max_pivots!r}")
    plain = [np.ascontiguousarray(values, dtype=np.float64) for values in (origin, basis, objective)]
    solutions = _Solutions(
        np.empty((count, m)), np.empty(count, dtype=np.int8), np.empty(count, dtype=np.bool_), np.empty(count, dtype=np.int64)
    )
    _minimize_all(_Programs(*plain), float(box), limit, solutions)
    slacks = origin + np.matmul(solutions.coefficients[:, None], basis)[:, 0]
    return Minima(slacks=slacks, **solutions._asdict())


class _Programs(NamedTuple):
    """Linear programs: minimize objective . c such that origin + c basis >= 0."""

    origin: Float64[np.ndarray, "programs n"]
    basis: Float64[np.ndarray, "programs m n"]
    objective: Float64[np.ndarray, "programs m"]


class _Solutions(NamedTuple):
    """The arrays of `Minima` that compiled functions fill."""

    coefficients: Float64[np.ndarray, "programs m"]
    status: Int8[np.ndarray, "programs"]
    boxed: Bool[np.ndarray, "programs"]
    pivots: Int64[np.ndarray, "programs"]


class _Dictionary(NamedTuple):
    """A dictionary of the simplex method: n basic variables, values + s columns, by m non-basic variables s >= 0.

    `prices` are the objective's derivatives by s. Variable j < n is slack j, variable n + i the distance from side i of the
    box; `names` are the non-basic ones, `row_names` the basic ones. `sizes` are squared lengths of the basic variables' rows,
    and `factors` is working memory.
    """

    columns: Float64[np.ndarray, "m n"]
    values: Float64[np.ndarray, "n"]
    prices: Float64[np.ndarray, "m"]
    names: Int64[np.ndarray, "m"]
    row_names: Int64[np.ndarray, "n"]
    sizes: Float64[np.ndarray, "n"]
    factors: Float64[np.ndarray, "n"]


@compiled
def _minimize_all(programs, box, limit, solutions):
    """Solve all programs into `solutions`, each with at most `limit` pivots."""
    count, m, n = programs.basis.shape
    origin, basis, objective = programs.origin, programs.basis, programs.objective
    names, row_names = np.empty(m, dtype=np.int64), np.empty(n, dtype=np.int64)
    dictionary = _Dictionary(np.empty((m, n)), np.empty(n), np.empty(m), names, row_names, np.empty(n), np.empty(n))
    for k in range(count):
        _start(origin[k], basis[k], objective[k], box, dictionary)
        solutions.status[k], solutions.pivots[k] = _improve(dictionary, limit)
        solutions.boxed[k] = names.max() >= n
        _coefficients(objective[k], box, dictionary, solutions.coefficients[k])


@compiled
def _start(origin, basis, objective, box, dictionary):
    """Fill the dictionary at the box's corner, where all s_i = 0 (Eq. V2).

    The program's arrays are `origin` (n,), `basis` (m, n) and `objective` (m,).
    """
    m, n = basis.shape
    columns, values, prices = dictionary.columns, dictionary.values, dictionary.prices
    names, row_names = dictionary.names, dictionary.row_names
    values[:] = origin
    for i in range(m):
        names[i] = n + i
        sign = 1.0 if objective[i] >= 0 else -1.0
        prices[i] = sign * objective[i]
        for j in range(n):
            columns[i, j] = sign * basis[i, j]
            values[j] -= sign * box * basis[i, j]
    for j in range(n):
        row_names[j] = j


@compiled
def _improve(dictionary, limit):
    """Status and number of pivots after pivoting, at most `limit` times, until all values are non-negative.

    The prices stay non-negative throughout: every dictionary is dual feasible.
    """
    columns, values, prices, names, row_names, sizes, _ = dictionary
    m, n = columns.shape
    sizes[:] = 0.0
    for i in range(m):
        for j in range(n):
            sizes[j] += columns[i, j] * columns[i, j]
    for pivot in range(limit):
        leaving, worst = -1, 0.0
        for j in range(n):
            if values[j] < -FEASIBLE and values[j] * values[j] > worst * sizes[j]:
                leaving, worst = j, values[j] * values[j] / sizes[j]
        if leaving < 0:
            return OPTIMAL, pivot
        entering = _entering(columns, leaving, prices)
        if entering < 0:
            return INFEASIBLE, pivot
        _pivot(dictionary, leaving, entering)
        name = names[entering]
        names[entering] = row_names[leaving]
        row_names[leaving] = name
    return STOPPED, limit


@compiled
def _entering(columns, leaving, prices):
    """Index of the entering variable: the smallest ratio of price to entry of the leaving row, -1 if no point is feasible.

    Of equal ratios the one with the largest entry is taken, the safer pivot. `columns` is (m, n), `prices` (m,).
    """
    best, ratio = -1, 0.0
    for i in range(len(prices)):
        entry = columns[i, leaving]
        if entry <= PIVOT:
            continue
        here = prices[i] / entry
        if best < 0 or here < ratio - 1e-14 or (here <= ratio + 1e-14 and entry > columns[best, leaving]):
            best, ratio = i, here
    return best


@compiled
def _pivot(dictionary, leaving, entering):
    """Exchange the basic variable x_l, l = `leaving`, for s_e, e = `entering`, in the dictionary.

    The row of x_l, solved for s_e, is put into all other rows.
    x_l = v + sum t_i s_i gives s_e = -v / t_e + x_l / t_e - sum (t_i / t_e) s_i over i != e. The inner loops run along columns,
    which a compiler turns into vector instructions.
    """
    columns, values, prices, _, _, sizes, factors = dictionary
    m, n = columns.shape
    inverse, price = 1.0 / columns[entering, leaving], prices[entering]
    step = -values[leaving] * inverse
    factors[:] = columns[entering]
    factors[leaving] = 0.0
    for j in range(n):
        values[j] += factors[j] * step
        columns[entering, j] = factors[j] * inverse
        sizes[j] = columns[entering, j] * columns[entering, j]
    values[leaving] = step
    columns[entering, leaving] = inverse
    sizes[leaving] = inverse * inverse
    for i in range(m):
        if i == entering:
            continue
        column = columns[i]
        multiple = -column[leaving] * inverse
        column[leaving] = 0.0
        prices[i] = max(prices[i] + price * multiple, 0.0)
        for j in range(n):
            column[j] += factors[j] * multiple
            sizes[j] += column[j] * column[j]
        sizes[leaving] += multiple * multiple
        column[leaving] = multiple
    prices[entering] = price * inverse


@compiled
def _coefficients(objective, box, dictionary, out):
    """Write the coefficients c_i = -+(box - s_i) to `out` (m,), with s_i = 0 where side i of the box is still active."""
    values, row_names = dictionary.values, dictionary.row_names
    n = len(values)
    out[:] = 0.0
    for j in range(n):
        if row_names[j] >= n:
            out[row_names[j] - n] = values[j]
    for i in range(len(out)):
        sign = 1.0 if objective[i] >= 0 else -1.0
        out[i] = sign * (out[i] - box)
