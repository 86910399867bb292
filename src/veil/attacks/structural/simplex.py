"""Small linear programs over the non-negative points of affine subspaces, compiled by numba (docs/theory/hardened.md)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int8, Int64

from veil.compiled import compiled
from veil.errors import InputError, RangeError

OPTIMAL, INFEASIBLE, STOPPED = 0, 1, 2
# Constraints may be violated by this much; entries of a pivot row below the second are rounding, not a direction.
FEASIBLE, PIVOT = 1e-11, 1e-9


@dataclass(frozen=True, kw_only=True, eq=False)
class Minima:
    """For each program the minimizer c, its slacks x = origin + c basis, and OPTIMAL, INFEASIBLE or STOPPED (too many pivots).

    `pivots` counts the steps. Without an optimum c is the last vertex visited, which violates constraints. `boxed` marks minima
    that lie on the box: without it they would move on, perhaps forever.
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
    """min objective . c such that origin + c basis >= 0, and c_i >= -box or c_i <= box on the side the objective pulls to.

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
    coefficients, status = np.empty((count, m)), np.empty(count, dtype=np.int8)
    boxed, pivots = np.empty(count, dtype=np.bool_), np.empty(count, dtype=np.int64)
    _minimize_all(*plain, float(box), limit, coefficients, status, boxed, pivots)
    slacks = origin + np.matmul(coefficients[:, None], basis)[:, 0]
    return Minima(coefficients=coefficients, slacks=slacks, status=status, boxed=boxed, pivots=pivots)


@compiled
def _minimize_all(origin, basis, objective, box, limit, coefficients, status, boxed, pivots):  # type: ignore[no-untyped-def]
    count, m, n = basis.shape
    columns, values, prices, names = np.empty((m, n)), np.empty(n), np.empty(m), np.empty(m, dtype=np.int64)
    row_names, sizes, factors = np.empty(n, dtype=np.int64), np.empty(n), np.empty(n)
    for k in range(count):
        _start(origin[k], basis[k], objective[k], box, columns, values, prices, names, row_names)
        status[k], pivots[k] = _improve(columns, values, prices, names, row_names, sizes, factors, limit)
        boxed[k] = names.max() >= n
        _coefficients(objective[k], box, n, values, names, row_names, coefficients[k])


@compiled
def _start(origin, basis, objective, box, columns, values, prices, names, row_names):  # type: ignore[no-untyped-def]
    """The dictionary of the corner: slacks = values + s columns; s_i >= 0 is the distance from side i of the box (Eq. V2)."""
    m, n = basis.shape
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
def _improve(columns, values, prices, names, row_names, sizes, factors, limit):  # type: ignore[no-untyped-def]
    """Pivots until all values are non-negative. The prices stay non-negative throughout: every dictionary is dual feasible."""
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
        _pivot(columns, values, prices, sizes, factors, leaving, entering)
        name = names[entering]
        names[entering] = row_names[leaving]
        row_names[leaving] = name
    return STOPPED, limit


@compiled
def _entering(columns, leaving, prices):  # type: ignore[no-untyped-def]
    """The smallest ratio of price to entry; of equal ones the largest entry, the safer pivot. -1: no point is feasible."""
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
def _pivot(columns, values, prices, sizes, factors, leaving, entering):  # type: ignore[no-untyped-def]
    """The row of x_l, solved for the variable s_e of column e, is put into all other rows; sizes are their squared lengths.

    x_l = v + sum t_i s_i gives s_e = -v / t_e + x_l / t_e - sum (t_i / t_e) s_i over i != e. The inner loops run along columns,
    which a compiler turns into vector instructions.
    """
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
def _coefficients(objective, box, n, values, names, row_names, out):  # type: ignore[no-untyped-def]
    """c_i = -+(box - s_i), with s_i = 0 where side i of the box is still active."""
    out[:] = 0.0
    for j in range(n):
        if row_names[j] >= n:
            out[row_names[j] - n] = values[j]
    for i in range(len(out)):
        sign = 1.0 if objective[i] >= 0 else -1.0
        out[i] = sign * (out[i] - box)
