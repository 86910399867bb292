"""Distances of all pairs of two feature sets, and nearest neighbors, by whichever backend serves.

A set is (origin (N, dim), basis (N, m, dim) or None); without a basis its members are points (`veil.distances.sets`). Bases
must be orthonormal, as `veil.forms.Subspaces` are; the numpy backend does not check that, as it would cost as much as the
distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.distances import few_queries, reference
from veil.distances.backend import Backend, served
from veil.distances.cpu import candidates, stream, sweep
from veil.distances.cpu.codegen.outputs import SQUARE_TRUSTED
from veil.distances.numpy import tiles
from veil.distances.pairs import exact
from veil.distances.sets import FeatureSet, check_finite, check_sets, check_shapes, take
from veil.errors import RangeError
from veil.progress import Progress


@dataclass(frozen=True, kw_only=True, eq=False)
class NearestTwo:
    """Nearest and second nearest right feature of every left one, and the reverse, with float64 distances.

    `right_of_left` holds indices of right features, the nearest first, and `left_distance` their distances in the unit of the
    descriptors; `left_of_right` and `right_distance` hold the reverse. Where the other side has a single feature, the second
    distance is infinite and its index -1; where it has none, both are.
    """

    right_of_left: Int64[np.ndarray, "left 2"]
    left_distance: Float64[np.ndarray, "left 2"]
    left_of_right: Int64[np.ndarray, "right 2"]
    right_distance: Float64[np.ndarray, "right 2"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Nearest:
    """Nearest features of a database to every query: their rows in the database, nearest first, and float64 distances.

    Where the database is empty, the row is -1 and the distance infinite. Distances are in the unit of the descriptors.
    """

    index: Int64[np.ndarray, "queries count"]
    distance: Float64[np.ndarray, "queries count"]


def _engine(backend: Backend, both: candidates.Compared) -> candidates.CandidateSearch | None:
    """Engine of the graphics processor for "gpu"; None for the compiled kernel, which `candidates` takes without one."""
    if backend != "gpu":
        return None
    from veil.distances.gpu.device import Processor

    return Processor(both.first, both.second)


def pairwise(left: FeatureSet, right: FeatureSet, *, backend: Backend = "auto", threads: int = 1) -> Float64[np.ndarray, "_ _"]:
    """Matrix (left, right) of the distances of all pairs of features of two sets, in the unit of the descriptors.

    A distance is min over x in D and y in E of |y - x|, with a single point for D or E where its set has no basis. `left` is
    (origin (L, dim), basis (L, m, dim) or None), `right` is (origin (R, dim), basis (R, n, dim) or None) with orthonormal
    bases; m and n may differ, and a set may be empty.

    "reference" computes in float64, the others in single precision first: what that does not know to about 1e-6, for
    descriptors of unit length, is evaluated again in float64 (distances.md#rounding): pairs nearer than 0.1, and pairs that
    nearly share a direction. `backend` is chosen as `resolve` says; `threads` is the number of threads of "cpu", and of what
    "gpu" leaves to this processor.

    Raises InputError if shapes or descriptor lengths do not fit each other or a number is not finite, RangeError or VeilError
    as `resolve` does. Sources: Dusmanu et al. 2021, Eq. 1-2; docs/theory/distances.md, Eq. 4.
    """
    check_sets(left, right)
    return served(backend, (left, right), lambda chosen: _pairwise(left, right, chosen, threads))


def _pairwise(left: FeatureSet, right: FeatureSet, backend: Backend, threads: int) -> Float64[np.ndarray, "_ _"]:
    if 0 in (len(left[0]), len(right[0])):
        return np.empty((len(left[0]), len(right[0])))
    if backend == "reference":
        return _reference(left, right)
    if backend in ("cpu", "gpu"):
        both = candidates.compared(left, right, tiles.center(left, right), threads=threads)
        return candidates.matrix(both, threads, _engine(backend, both))
    squared = _squares(left, right, backend, candidates.DENSE_REACH).astype(np.float64)
    result = np.sqrt(squared)
    rows, columns = np.nonzero(squared < SQUARE_TRUSTED)
    result[rows, columns] = exact(left, right, rows, columns)
    return result


def nearest_two(left: FeatureSet, right: FeatureSet, *, backend: Backend = "auto", threads: int = 1) -> NearestTwo:
    """Nearest and second nearest feature in both directions, without the full matrix; reported distances are float64.

    `left` is (origin (L, dim), basis (L, m, dim) or None), `right` is (origin (R, dim), basis (R, n, dim) or None) with
    orthonormal bases; a set may be empty. Distances are those of `pairwise`.

    With "cpu" and "gpu" the neighbors are those of an exhaustive float64 search as long as the error estimate of
    docs/theory/distances.md, Eq. 13 holds; ties keep the smaller index (distances.md#the-compiled-kernel). With "numpy" single
    precision chooses, so that two candidates whose squared distances differ by less than its rounding may be exchanged
    (distances.md#rounding). `backend` is chosen as `resolve` says; `threads` is the number of threads of "cpu" and "numpy", and
    of what "gpu" leaves to this processor.

    Raises InputError if shapes or descriptor lengths do not fit each other or a number is not finite, RangeError or VeilError
    as `resolve` does. Sources: Dusmanu et al. 2021, Eq. 1-2; docs/theory/distances.md, Eq. 4.
    """
    check_sets(left, right)
    return served(backend, (left, right), lambda chosen: _nearest_two(left, right, chosen, threads))


def _nearest_two(left: FeatureSet, right: FeatureSet, backend: Backend, threads: int) -> NearestTwo:
    if 0 in (len(left[0]), len(right[0])):
        rows, columns = (tiles.Best.empty(len(side[0])) for side in (left, right))
        return _both_ways((rows.index, rows.value), (columns.index, columns.value))
    if backend == "reference":
        matrix = _reference(left, right)
        return _both_ways(tiles.two_smallest(matrix), tiles.two_smallest(matrix.T))
    if backend in ("cpu", "gpu"):
        both = candidates.compared(left, right, tiles.center(left, right), threads=threads)
        pairs = candidates.candidates(both, threads, _engine(backend, both))
        if pairs is not None:
            value = candidates.distances(both, pairs, threads)
            return _both_ways(*sweep.two_best(*pairs, value, (len(left[0]), len(right[0])), both.shape))
    row_best, column_best = tiles.sweep(left, right, threads, by_pairs=backend in ("cpu", "gpu"))
    return _both_ways(
        tiles.refined(left, right, row_best, transpose=False), tiles.refined(left, right, column_best, transpose=True)
    )


def nearest(
    queries: FeatureSet,
    database: FeatureSet,
    count: int,
    *,
    backend: Backend = "auto",
    threads: int = 1,
    progress: Progress | None = None,
) -> Nearest:
    """The `count` nearest features of a database to every query, in memory that does not grow with the database.

    `queries` is (origin (Q, dim), basis (Q, m, dim) or None), `database` is (origin (N, dim), basis (N, n, dim) or None) with
    orthonormal bases; either may be empty. Distances are those of `pairwise`, in float64.

    Neighbors are those of an exhaustive float64 search with "cpu", and with "numpy" where the queries are a few points and the
    database holds subspaces. Else "numpy" and "gpu" rank by single precision and may swap the last among equals. A few points
    among subspaces take "cpu" about the time of reading the subspaces (distances.md#the-compiled-kernel).

    `count` is at least 1 and at most N (1 for an empty database). `backend` is chosen as `resolve` says; `threads` is the
    number of threads of "cpu", and of "numpy" for a few points. `progress(done, all)` is called with numbers of database
    features.

    Raises RangeError if `count` is out of this range, InputError if shapes or descriptor lengths do not fit each other or a
    number is not finite, RangeError or VeilError as `resolve` does. Sources: Dusmanu et al. 2021, Eq. 1-2;
    docs/theory/distances.md, Eq. 4 and 15.
    """
    check_shapes(queries, database)
    if not 1 <= count <= max(1, len(database[0])):
        raise RangeError(f"count must be between 1 and the {len(database[0])} features of the database, got {count!r}")
    both = queries, database
    return served(backend, both, lambda chosen: _nearest_of(*both, count, chosen, threads, progress))


def _nearest_of(
    queries: FeatureSet,
    database: FeatureSet,
    count: int,
    backend: Backend,
    threads: int,
    progress: Progress | None,
) -> Nearest:
    if 0 in (len(queries[0]), len(database[0])):
        check_finite(queries, database)
        shape = len(queries[0]), count
        return Nearest(index=np.full(shape, -1, dtype=np.int64), distance=np.full(shape, np.inf))
    if backend in ("cpu", "numpy") and few_queries.serves(queries, database, count, compiled=backend == "cpu"):
        passed = few_queries.nearest(queries, database, count, compiled=backend == "cpu", threads=threads, progress=progress)
        if passed is not None:
            return Nearest(index=passed[0], distance=passed[1])
    check_finite(queries, database)
    if backend == "cpu":
        index, distance = stream.nearest(queries, database, count, tiles.center(queries, database), threads, progress)
    else:
        index, distance = tiles.nearest_by_strips(
            len(queries[0]),
            len(database[0]),
            count,
            lambda rows, entries: _squares(take(queries, rows), take(database, entries), backend),
            lambda rows, entries: exact(queries, database, rows, entries),
            progress,
        )
    return Nearest(index=index, distance=distance)


def _squares(left: FeatureSet, right: FeatureSet, backend: Backend, reach: float = np.inf) -> np.ndarray:
    """Squared distances of all pairs, in the backend's own precision.

    "numpy" gives 0 for pairs beyond `reach` (`veil.distances.numpy.tiles.tiles`).
    """
    if backend == "reference":
        return _reference(left, right) ** 2
    if backend == "gpu":
        both = candidates.compared(left, right, tiles.center(left, right))
        return candidates.matrix(both, 1, _engine(backend, both)) ** 2
    squared = np.empty((len(left[0]), len(right[0])), dtype=np.float32)
    for row, column, tile in tiles.tiles(left, right, tiles.center(left, right), reach=reach):
        squared[row : row + tile.shape[0], column : column + tile.shape[1]] = tile
    return squared


def _both_ways(rows: tuple[np.ndarray, np.ndarray], columns: tuple[np.ndarray, np.ndarray]) -> NearestTwo:
    """Result from (indices, distances) of the two nearest of every row, and of every column."""
    return NearestTwo(right_of_left=rows[0], left_distance=rows[1], left_of_right=columns[0], right_distance=columns[1])


def _reference(left: FeatureSet, right: FeatureSet) -> Float64[np.ndarray, "_ _"]:
    """Matrix of distances by `veil.distances.reference`."""
    if left[1] is None and right[1] is None:
        return reference.point_to_point(left[0], right[0])
    if left[1] is None:
        return reference.point_to_subspace(left[0], (right[0], right[1]))  # type: ignore[arg-type]
    if right[1] is None:
        return reference.point_to_subspace(right[0], (left[0], left[1])).T
    return reference.subspace_to_subspace((left[0], left[1]), (right[0], right[1]))
