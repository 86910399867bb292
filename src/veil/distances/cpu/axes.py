"""Projection axes of exact pruning: their choice, sets projected on them, and whether a search gains by it.

Distances in a few orthonormal axes are lower bounds of those in full (docs/theory/distances.md, Eq. 14).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Float64

from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.prepared import Prepared
from veil.distances.cpu.sweep import dense, packed

# Numbers of axes that are tried; Gram entries of a search below which trying is not worth its time, in single precision and in
# fixed point, whose sweep takes less time.
AXES = (24, 32, 48, 64)
ENTRIES_MIN, FIXED_ENTRIES_MIN = 1 << 27, 1 << 30
# The sample that decides: features whose nearest are looked for, features among which, how many of the latter get bounds; and
# descriptors of a side, about, from which principal axes are computed.
OWNERS, OTHERS, BOUNDED, FITTED = 16, 2048, 512, 1024
# Costs of one pair relative to the full sweep of it: its solve, and writing and reading its bound.
SOLVE, SCAN = 0.06, 0.05
# Cost of projecting a feature, for each pair of its components and each axis, in multiplications of the sweep.
PROJECTION = 150
# Largest share of the plain sweep's time that a pruned search may be predicted to take, or it is not tried.
WORTH = 0.85
# Features that are projected at a time, so that intermediate results stay in the cache.
PROJECTED = 512
# |alpha|^2 over the largest |d0|^2 + |e0|^2 beyond which a bound or a distance in single precision is not used.
REACH = 4.0
# Largest such reach for bounds in fixed point, and the time of multiplications in fixed point relative to those of floats.
FIXED_REACH, FIXED_TIME = 1.0, 0.5


def principal_axes(*sides: Prepared, most: int) -> Float64[np.ndarray, "most dim"]:
    """Orthonormal rows near the `most` leading eigenvectors of the origins' second moments, by two block power iterations."""
    some = [side.origin[:: max(1, len(side) // FITTED), : side.basis.shape[2]].astype(np.float32) for side in sides]
    moments = sum(part.T @ part for part in some).astype(np.float64)  # type: ignore[union-attr]
    order = np.argsort(-np.diagonal(moments), kind="stable")[:most]
    axes = np.linalg.qr(moments[:, order])[0]
    axes = np.linalg.qr(moments @ axes)[0]
    _, vectors = np.linalg.eigh(axes.T @ moments @ axes)
    return np.ascontiguousarray((axes @ vectors[:, ::-1]).T)


def projected(side: Prepared, axes: Float64[np.ndarray, "k dim"]) -> Prepared:
    """Set projected on orthonormal axes, with bases made orthonormal and origins minimal again.

    A direction that vanishes in the projection may become any other: the span is only larger, and the bound smaller.
    """
    count, m, dim = side.basis.shape
    turn, few = np.ascontiguousarray(axes.T), len(axes)
    origin, basis, squares = np.empty((count, few)), np.empty((count, m, few), dtype=np.float32), np.empty(count)
    for start in range(0, count, PROJECTED):
        part = slice(start, start + PROJECTED)
        moved = side.origin[part, :dim] @ turn
        directions = [side.basis[part, j].astype(np.float64) @ turn for j in range(m)]
        for j, direction in enumerate(directions):
            direction /= np.maximum(np.sqrt(np.einsum("fk,fk->f", direction, direction)), 1e-30)[:, None]
            for other in (*directions[j + 1 :], moved):
                other -= np.einsum("fk,fk->f", other, direction)[:, None] * direction
            basis[part, j] = direction
        origin[part], squares[part] = moved, np.einsum("fk,fk->f", moved, moved)
    return Prepared(origin=origin, basis=basis, squares=squares, factor=np.empty((count, 0, 0)), orthonormal=True)


def axes_worth_it(
    a: Prepared,
    b: Prepared,
    shape: Shape,
    *,
    owners: str = "rows",
    ways: int = 2,
    sizes: tuple[int, int] | None = None,
) -> Float64[np.ndarray, "k dim"] | None:
    """Axes for which a sample predicts the shortest search, or None where the plain sweep is about as fast.

    In the sample a few features of one side, the `owners` ("rows": of `a`, "columns": of `b`), look for their two nearest among
    many of the other. `ways` is 2 if the search finds the neighbors of both sides, 1 if those of one. `sizes` are the numbers
    of features of the whole search where the given sets are parts of it.
    """
    dim, sizes = a.basis.shape[2], sizes or (len(a), len(b))
    entries = sizes[0] * sizes[1] * shape.left * shape.right
    counts = [k for k in AXES if max(2 * (max(a.m, b.m) + 1), 8) <= k <= dim // 2]
    large = min(len(a), len(b)) > 1 and entries >= (FIXED_ENTRIES_MIN if shape.fixed else ENTRIES_MIN)
    if not (large and counts and a.orthonormal and b.orthonormal):
        return None
    samples, axis = ((OWNERS, OTHERS), 1) if owners == "rows" else ((OTHERS, OWNERS), 0)
    x, y = (_spread(side, count) for side, count in zip((a, b), samples, strict=True))
    second = np.take(np.partition(_dense(x, y, shape), 1, axis=axis), [1], axis=axis)
    x, y = (_spread(side, min(count, BOUNDED)) for side, count in zip((x, y), samples, strict=True))
    axes = principal_axes(a, b, most=counts[-1])
    costs, time = [], FIXED_TIME if shape.fixed else 1.0
    prepared = PROJECTION * (sizes[0] * shape.left**2 + sizes[1] * shape.right**2) / (entries * dim)
    for k in counts:
        left = float((_dense(projected(x, axes[:k]), projected(y, axes[:k]), shape) <= second).mean())
        costs.append(time * k / dim * (1 - SOLVE) + SOLVE + SCAN + ways * listed_cost(shape) * left + prepared * k)
    best = int(np.argmin(costs))
    return axes[: counts[best]] if costs[best] < WORTH * (time * (1 - SOLVE) + SOLVE) else None


def _spread(side: Prepared, count: int) -> Prepared:
    """At most `count` features of a set, evenly spaced in its order."""
    return side.take(np.unique(np.linspace(0, len(side) - 1, count).astype(np.int64)))


def listed_cost(shape: Shape) -> float:
    """Cost of evaluating a pair by itself, relative to that in the full sweep: its components are fetched for it alone."""
    return 1 + 6 * (shape.left + shape.right) / (shape.left * shape.right)


def _dense(x: Prepared, y: Prepared, shape: Shape) -> Float32[np.ndarray, "_ _"]:
    """Squared distances of all pairs in single precision; -1 where that is not trusted, which counts as near."""
    shape = replace(shape, fixed=False)
    return dense(*packed(x, y, shape), shape, REACH * float(x.squares.max() + y.squares.max()))
