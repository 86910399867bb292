"""Nearest subspaces of a large database to a few points: one pass over the database as it is stored, then float64.

The pass knows squared distances up to a bound that holds for any order of summation and any basis, orthonormal or not
(docs/theory/distances.md, Eq. 15). Float64 decides between all subspaces that the bounds do not tell apart, so that the answer
is that of an exhaustive float64 search.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil.distances.cpu import candidates
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import host_lanes, kernels
from veil.distances.cpu.prepared import DEFECT_MAX, stored
from veil.distances.pairs import best, exact
from veil.distances.sets import FeatureSet, dimension
from veil.progress import Progress
from veil.threads import shared

# Numbers of points, and of neighbors of all points together, up to which this is faster than the search of `cpu.stream`
# (measured in lab/benchmarks/identify.py).
POINTS_MAX, NEIGHBORS_MAX = 16, 256
# Subspaces that one task bounds, and numbers of the bases that NumPy multiplies at a time: they stay in the second-level cache.
CHUNK, CACHED_NUMBERS = 1 << 13, 1 << 17
# Largest |D D^T - I| for which the bounds of the pass are used; subspaces beyond it are left to float64.
STRAIN_MAX = 0.25
# Result of the pass: |d|^2 and |D d|^2 of every subspace and point, d being the offset of the point from the origin, and the
# Frobenius norm |D D^T - I| of every subspace.
Passed = tuple[Float[np.ndarray, "some points"], Float[np.ndarray, "some points"], Float[np.ndarray, "some"]]


def serves(queries: FeatureSet, database: FeatureSet, count: int, *, compiled: bool) -> bool:
    """Whether `nearest` of this file serves: few points, few neighbors and a database of subspaces.

    The compiled pass serves subspaces up to `candidates.M_MAX` dimensions, NumPy's those of any.
    """
    if queries[1] is not None or database[1] is None or not 0 < len(queries[0]) <= POINTS_MAX:
        return False
    m = dimension(database)
    return len(queries[0]) * count <= NEIGHBORS_MAX and m >= 1 and (m <= candidates.M_MAX or not compiled)


def nearest(
    queries: FeatureSet,
    database: FeatureSet,
    count: int,
    *,
    compiled: bool,
    threads: int = 1,
    progress: Progress | None = None,
) -> tuple[Int64[np.ndarray, "queries count"], Float64[np.ndarray, "queries count"]] | None:
    """Indices and float64 distances of the `count` nearest subspaces of every point, nearest first.

    Ties keep the smaller index. None where a number is not finite or its square is out of range. `compiled` chooses the
    compiled pass, which takes any basis; NumPy's takes bases to be orthonormal. `progress(done, all)` counts subspaces.
    """
    kind = np.float32 if stored(queries, database) == "float" else np.float64
    points = np.ascontiguousarray(queries[0], dtype=kind)
    bounding_pass, total = pass_compiled if compiled else pass_plain, len(database[0])

    def chunk(start: int) -> tuple[np.ndarray, ...] | None:
        origin, basis = (np.ascontiguousarray(part[start : start + CHUNK], dtype=kind) for part in database)  # type: ignore[index]
        lower, upper = _bounds(bounding_pass(points, origin, basis), basis.shape[1:], kind)
        if not np.isfinite(upper).all():
            return None
        rows, entries = np.nonzero(lower <= _limits(upper, count))
        return rows, entries + start, lower[rows, entries], upper[rows, entries]

    chunks = []
    for k, part in enumerate(shared(chunk, range(0, total, CHUNK), threads)):
        if part is None:
            return None
        chunks.append(part)
        if progress is not None:
            progress(min((k + 1) * CHUNK, total), total)
    rows, entries, lower, upper = (np.concatenate(each) for each in zip(*chunks, strict=True))
    limits = np.array([_limits(upper[rows == row][None], count)[0, 0] for row in range(len(points))])
    near = lower <= limits[rows]
    rows, entries = rows[near], entries[near]
    return best(rows, entries, exact(queries, database, rows, entries), len(points), count)


def _limits(upper: Float64[np.ndarray, "points some"], count: int) -> Float64[np.ndarray, "points 1"]:
    """Upper bound of the squared distances of each point's `count` nearest: the count-th smallest of `upper`."""
    if upper.shape[1] < count:
        return np.full((len(upper), 1), np.inf)
    return np.partition(upper, count - 1, axis=1)[:, count - 1 : count]


def _bounds(
    passed: Passed, size: tuple[int, ...], kind: type
) -> tuple[Float64[np.ndarray, "points some"], Float64[np.ndarray, "points some"]]:
    """Lower and upper bounds of the squared distances, from the result of a pass (docs/theory/distances.md, Eq. 15).

    `size` is (m, dim) of the bases, `kind` the type of number in which the pass summed.
    """
    m, dim = size
    rounding, double = ((dim + m + 8) * np.finfo(each).eps for each in (kind, np.float64))
    squares, along, strain = (part.T.astype(np.float64) for part in passed)
    strain = 1.2 * strain + m * rounding
    loose = ~(strain < STRAIN_MAX)
    strain[loose] = STRAIN_MAX
    with np.errstate(invalid="ignore"):  # the caller tests whether the bounds are finite
        square = squares - along
        error = (rounding * (1 + 2 * np.sqrt(m) + m * rounding) + 8 * double) * squares + strain / (1 - strain) * along
        error += dim * np.finfo(kind).tiny
        return np.where(loose, -np.inf, square - error), np.where(loose, squares, square) + error


def pass_compiled(
    points: Float[np.ndarray, "points dim"], origin: Float[np.ndarray, "some dim"], basis: Float[np.ndarray, "some m dim"]
) -> Passed:
    """Compiled pass of some points over some subspaces, in the precision of the points."""
    count, m, dim = basis.shape
    name = "float" if points.dtype == np.float32 else "double"
    function = kernels(Shape(left=1, right=m + 1, lanes=host_lanes()), f"points of {name}")["points"]
    squares, along = (np.empty((count, len(points)), dtype=points.dtype) for _ in range(2))
    defect = np.empty(count, dtype=points.dtype)
    pointers = (part.ctypes.data for part in (points, origin, basis, squares, along, defect))
    function(*pointers, count, len(points), dim)
    return squares, along, np.sqrt(defect)


def pass_plain(
    points: Float[np.ndarray, "points dim"], origin: Float[np.ndarray, "some dim"], basis: Float[np.ndarray, "some m dim"]
) -> Passed:
    """Pass of some points over some subspaces with NumPy, in the precision of the points.

    It takes the defect of every basis to be the largest allowed: D D^T would take longer than the distances.
    """
    count, m, dim = basis.shape
    squares, along = (np.empty((count, len(points)), dtype=points.dtype) for _ in range(2))
    size = max(1, CACHED_NUMBERS // (m * dim))
    with np.errstate(invalid="ignore", over="ignore"):
        for first in range(0, count, size):
            part = slice(first, first + size)
            for k, point in enumerate(points):
                offset = point - origin[part]
                inside = np.matmul(basis[part], offset[:, :, None])[:, :, 0]
                squares[part, k], along[part, k] = (np.einsum("fn,fn->f", each, each) for each in (offset, inside))
    return squares, along, np.full(count, m * DEFECT_MAX)
