"""Distances of all pairs and the nearest of each feature, by the backend that serves.

A set is (origin (N, dim), basis (N, m, dim) or None); without a basis its members are points. Bases must be orthonormal,
as `veil.forms.Subspaces` are; the numpy backend does not check what would cost as much as the distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.distances import few_queries, reference
from veil.distances.backend import Backend, Set, served
from veil.distances.cpu import candidates, ranked, stream
from veil.distances.cpu.codegen.outputs import SQUARE_TRUSTED
from veil.distances.numpy import chunked, tiles
from veil.distances.pairs import exact
from veil.errors import InputError, RangeError
from veil.progress import Progress


@dataclass(frozen=True, kw_only=True, eq=False)
class NearestTwo:
    """For every left feature its nearest and second nearest right feature, and the reverse; distances in float64.

    Where the other side has a single feature, the second distance is infinite and its index -1.
    """

    right_of_left: Int64[np.ndarray, "left 2"]
    left_distance: Float64[np.ndarray, "left 2"]
    left_of_right: Int64[np.ndarray, "right 2"]
    right_distance: Float64[np.ndarray, "right 2"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Nearest:
    """For every query the rows of its nearest in a database, nearest first, and their float64 distances."""

    index: Int64[np.ndarray, "queries count"]
    distance: Float64[np.ndarray, "queries count"]


def _engine(backend: Backend, both: candidates.Compared) -> candidates.Engine | None:
    if backend != "gpu":
        return None
    from veil.distances.gpu.device import Device

    return Device(both.first, both.second)


def pairwise(left: Set, right: Set, *, backend: Backend = "auto", threads: int = 1) -> Float64[np.ndarray, "_ _"]:
    """All distances. What single precision does not know to about 1e-6 is re-evaluated in float64 (distances.md#rounding):
    pairs nearer than 0.1, and pairs that nearly share a direction. `threads` serve "cpu".
    """
    _check(left, right)
    return served(backend, (left, right), lambda chosen: _pairwise(left, right, chosen, threads))


def _pairwise(left: Set, right: Set, backend: Backend, threads: int) -> Float64[np.ndarray, "_ _"]:
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


def nearest_two(left: Set, right: Set, *, backend: Backend = "auto", threads: int = 1) -> NearestTwo:
    """Nearest and second nearest in both directions without the full matrix; reported distances are float64.

    With "cpu" and "gpu" the choice is that of float64 as well, whatever single precision swaps.
    """
    _check(left, right)
    return served(backend, (left, right), lambda chosen: _nearest_two(left, right, chosen, threads))


def _nearest_two(left: Set, right: Set, backend: Backend, threads: int) -> NearestTwo:
    if 0 in (len(left[0]), len(right[0])):
        none = [tiles.Best.empty(len(side[0])) for side in (left, right)]
        return _nearest(none[0].index, none[0].value, none[1].index, none[1].value)
    if backend == "reference":
        matrix = _reference(left, right)
        return _nearest(*tiles.two_smallest(matrix), *tiles.two_smallest(matrix.T))
    if backend in ("cpu", "gpu"):
        both = candidates.compared(left, right, tiles.center(left, right), threads=threads)
        pairs = candidates.candidates(both, threads, _engine(backend, both))
        if pairs is not None:
            value = candidates.distances(both, pairs, threads)
            rows, columns = ranked.two_best(*pairs, value, (len(left[0]), len(right[0])), both.shape)
            return _nearest(*rows, *columns)
    row_best, column_best = tiles.sweep(left, right, threads, by_pairs=backend in ("cpu", "gpu"))
    return _nearest(
        *tiles.refined(left, right, row_best, transpose=False), *tiles.refined(left, right, column_best, transpose=True)
    )


def nearest(
    queries: Set,
    database: Set,
    count: int,
    *,
    backend: Backend = "auto",
    threads: int = 1,
    progress: Progress | None = None,
) -> Nearest:
    """The `count` nearest of a database to every query, in memory that does not grow with the database.

    Neighbors are those of float64 with "cpu", and with "numpy" those of a few points among subspaces; else "numpy" and "gpu"
    rank by single precision and may swap the last among equals. A few points among subspaces take "cpu" about the time of
    reading these. `progress` is called with the database features done and all. Raises RangeError if the database has not so
    many.
    """
    _check_shapes(queries, database)
    if not 1 <= count <= max(1, len(database[0])):
        raise RangeError(f"count must be between 1 and the {len(database[0])} features of the database, got {count!r}")
    both = queries, database
    return served(backend, both, lambda chosen: _nearest_of(*both, count, chosen, threads, progress))


def _nearest_of(queries: Set, database: Set, count: int, backend: Backend, threads: int, progress: Progress | None) -> Nearest:
    if 0 in (len(queries[0]), len(database[0])):
        _check_finite(queries, database)
        shape = len(queries[0]), count
        return Nearest(index=np.full(shape, -1, dtype=np.int64), distance=np.full(shape, np.inf))
    if backend in ("cpu", "numpy") and few_queries.serves(queries, database, count, compiled=backend == "cpu"):
        passed = few_queries.nearest(queries, database, count, compiled=backend == "cpu", threads=threads, progress=progress)
        if passed is not None:
            return Nearest(index=passed[0], distance=passed[1])
    _check_finite(queries, database)
    if backend == "cpu":
        found = stream.nearest(queries, database, count, tiles.center(queries, database), threads, progress)
    else:
        found = chunked.nearest(
            len(queries[0]),
            len(database[0]),
            count,
            lambda rows, entries: _squares(_some(queries, rows), _some(database, entries), backend),
            lambda rows, entries: exact(queries, database, rows, entries),
            progress,
        )
    return Nearest(index=found[0], distance=found[1])


def _some(side: Set, part: slice) -> Set:
    return side[0][part], None if side[1] is None else side[1][part]


def _squares(left: Set, right: Set, backend: Backend, reach: float = np.inf) -> np.ndarray:
    """All squared distances of a strip, in the backend's own precision; "numpy" has 0 beyond `reach` (`plain.tiles`)."""
    if backend == "reference":
        return _reference(left, right) ** 2
    if backend == "gpu":
        both = candidates.compared(left, right, tiles.center(left, right))
        return candidates.matrix(both, 1, _engine(backend, both)) ** 2
    squared = np.empty((len(left[0]), len(right[0])), dtype=np.float32)
    for row, column, tile in tiles.tiles(left, right, tiles.center(left, right), reach=reach):
        squared[row : row + tile.shape[0], column : column + tile.shape[1]] = tile
    return squared


def _nearest(rows: np.ndarray, row_values: np.ndarray, columns: np.ndarray, column_values: np.ndarray) -> NearestTwo:
    return NearestTwo(right_of_left=rows, left_distance=row_values, left_of_right=columns, right_distance=column_values)


def _check(left: Set, right: Set) -> None:
    _check_shapes(left, right)
    _check_finite(left, right)


def _check_shapes(left: Set, right: Set) -> None:
    for name, (origin, basis) in (("left", left), ("right", right)):
        if origin.ndim != 2 or (basis is not None and (basis.ndim != 3 or basis.shape[::2] != origin.shape)):
            shapes = origin.shape, None if basis is None else basis.shape
            raise InputError(f"the {name} set needs an origin (N, dim) and a basis (N, m, dim), got {shapes}")
    if left[0].shape[1] != right[0].shape[1]:
        raise InputError(f"descriptor lengths differ: {left[0].shape[1]} and {right[0].shape[1]}")


def _check_finite(left: Set, right: Set) -> None:
    for name, side in (("left", left), ("right", right)):
        for part in side:
            if part is not None and not np.isfinite(part).all():
                raise InputError(f"the {name} set holds NaN or infinity; drop those features first")


def _reference(left: Set, right: Set) -> Float64[np.ndarray, "_ _"]:
    if left[1] is None and right[1] is None:
        return reference.point_to_point(left[0], right[0])
    if left[1] is None:
        return reference.point_to_subspace(left[0], (right[0], right[1]))  # type: ignore[arg-type]
    if right[1] is None:
        return reference.point_to_subspace(right[0], (left[0], left[1])).T
    return reference.subspace_to_subspace((left[0], left[1]), (right[0], right[1]))
