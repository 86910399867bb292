"""The numeric doors: distances of two sets of features, and the only place that chooses how to compute them.

A set is (origin (N, dim), basis (N, m, dim) or None); without a basis its members are points. Bases must be orthonormal,
as `veil.forms.Subspaces` are; the numpy backend does not check what would cost as much as the distances.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil.errors import InputError, RangeError, VeilError, VeilWarning
from veil.kernels import chunked, few, plain, reference
from veil.kernels.jit import compile as compiler
from veil.kernels.jit import ranked, serve, stream
from veil.kernels.jit.outputs import SQUARE_TRUSTED
from veil.kernels.pairs import exact

Backend = Literal["auto", "reference", "numpy", "cpu", "gpu"]
# What "auto" takes where it serves.
PREFERRED = "VEIL_BACKEND"
BACKENDS: tuple[Backend, ...] = ("auto", "reference", "numpy", "cpu", "gpu")
Set = tuple[Float[np.ndarray, "_ _"], Float[np.ndarray, "_ _ _"] | None]
Result = TypeVar("Result")
# Reasons for which NumPy serves unasked that were told: each is told once.
_told: set[str] = set()


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


def resolve(backend: str, left_m: int = 1, right_m: int = 1, dim: int = 128) -> Backend:
    """The backend that will serve sets of these dimensions (points: 0); never another one than was named.

    "cpu" is the kernel compiled for this processor, "gpu" sweeps on a graphics processor and decides on this one, "numpy"
    needs nothing but NumPy, "reference" is float64 and slow. "auto" is what the environment variable VEIL_BACKEND names, else
    "cpu", where that serves these dimensions, and "numpy" elsewhere; it never takes a graphics processor unasked.
    Where the compiler then fails on a kernel, "auto" computes with "numpy" after all and warns once (`VeilWarning`).
    Raises VeilError if the named one cannot serve.
    """
    name, source = (os.environ.get(PREFERRED, "auto"), PREFERRED) if backend == "auto" else (backend, "backend")
    for known in BACKENDS:
        if name == known:
            break
    else:
        raise RangeError(f"{source} must be one of {', '.join(map(repr, BACKENDS))}, got {name!r}")
    if known in ("reference", "numpy"):
        return known
    wanted: Backend = "cpu" if known == "auto" else known
    here, refusal = _refusals(wanted, left_m, right_m, dim)
    if not (here or refusal):
        return wanted
    if backend == "auto" and (known == "auto" or not here):
        return "numpy"
    raise VeilError(f"backend {wanted!r} cannot serve: {refusal or here}")


def _refusals(backend: Backend, left_m: int, right_m: int, dim: int) -> tuple[str | None, str | None]:
    """Why this machine, and why these dimensions, are not served."""
    here, refusal = compiler.obstacle(), serve.refusal(left_m, right_m, dim)
    if backend == "gpu":
        from veil.kernels.gpu import device

        here, refusal = here or device.obstacle(), refusal or device.refusal(left_m, right_m)
    return here, refusal


def _engine(backend: Backend, both: serve.Compared) -> serve.Engine | None:
    if backend != "gpu":
        return None
    from veil.kernels.gpu.device import Device

    return Device(both.first, both.second)


def distances(left: Set, right: Set, *, backend: Backend = "auto", threads: int = 1) -> Float64[np.ndarray, "_ _"]:
    """All distances. What single precision does not know to about 1e-6 is re-evaluated in float64 (traps D4): pairs nearer
    than 0.1, and pairs that nearly share a direction. `threads` serve "cpu"."""
    _check(left, right)
    return _served(backend, (left, right), lambda chosen: _distances(left, right, chosen, threads))


def _distances(left: Set, right: Set, backend: Backend, threads: int) -> Float64[np.ndarray, "_ _"]:
    if 0 in (len(left[0]), len(right[0])):
        return np.empty((len(left[0]), len(right[0])))
    if backend == "reference":
        return _reference(left, right)
    if backend in ("cpu", "gpu"):
        both = serve.compared(left, right, plain.center(left, right), threads=threads)
        return serve.matrix(both, threads, _engine(backend, both))
    squared = _squares(left, right, backend, serve.DENSE_REACH).astype(np.float64)
    result = np.sqrt(squared)
    rows, columns = np.nonzero(squared < SQUARE_TRUSTED)
    result[rows, columns] = exact(left, right, rows, columns)
    return result


def nearest_two(left: Set, right: Set, *, backend: Backend = "auto", threads: int = 1) -> NearestTwo:
    """Nearest and second nearest in both directions without the full matrix; reported distances are float64.

    With "cpu" and "gpu" the choice is that of float64 as well, whatever single precision swaps.
    """
    _check(left, right)
    return _served(backend, (left, right), lambda chosen: _nearest_two(left, right, chosen, threads))


def _nearest_two(left: Set, right: Set, backend: Backend, threads: int) -> NearestTwo:
    if 0 in (len(left[0]), len(right[0])):
        none = [plain.Best.empty(len(side[0])) for side in (left, right)]
        return _nearest(none[0].index, none[0].value, none[1].index, none[1].value)
    if backend == "reference":
        matrix = _reference(left, right)
        return _nearest(*plain.two_smallest(matrix), *plain.two_smallest(matrix.T))
    if backend in ("cpu", "gpu"):
        both = serve.compared(left, right, plain.center(left, right), threads=threads)
        pairs = serve.candidates(both, threads, _engine(backend, both))
        if pairs is not None:
            value = serve.distances(both, pairs, threads)
            rows, columns = ranked.two_best(*pairs, value, (len(left[0]), len(right[0])), both.shape)
            return _nearest(*rows, *columns)
    row_best, column_best = plain.sweep(left, right, threads, by_pairs=backend in ("cpu", "gpu"))
    return _nearest(
        *plain.refined(left, right, row_best, transpose=False), *plain.refined(left, right, column_best, transpose=True)
    )


def nearest(
    queries: Set,
    database: Set,
    count: int,
    *,
    backend: Backend = "auto",
    threads: int = 1,
    progress: Callable[[int, int], None] | None = None,
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
    return _served(backend, both, lambda chosen: _nearest_of(*both, count, chosen, threads, progress))


def _nearest_of(
    queries: Set, database: Set, count: int, backend: Backend, threads: int, progress: Callable[[int, int], None] | None
) -> Nearest:
    if 0 in (len(queries[0]), len(database[0])):
        _check_finite(queries, database)
        shape = len(queries[0]), count
        return Nearest(index=np.full(shape, -1, dtype=np.int64), distance=np.full(shape, np.inf))
    if backend in ("cpu", "numpy") and few.serves(queries, database, count, compiled=backend == "cpu"):
        passed = few.nearest(queries, database, count, compiled=backend == "cpu", threads=threads, progress=progress)
        if passed is not None:
            return Nearest(index=passed[0], distance=passed[1])
    _check_finite(queries, database)
    if backend == "cpu":
        found = stream.nearest(queries, database, count, plain.center(queries, database), threads, progress)
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
        both = serve.compared(left, right, plain.center(left, right))
        return serve.matrix(both, 1, _engine(backend, both)) ** 2
    squared = np.empty((len(left[0]), len(right[0])), dtype=np.float32)
    for row, column, tile in plain.tiles(left, right, plain.center(left, right), reach=reach):
        squared[row : row + tile.shape[0], column : column + tile.shape[1]] = tile
    return squared


def _nearest(rows: np.ndarray, row_values: np.ndarray, columns: np.ndarray, column_values: np.ndarray) -> NearestTwo:
    return NearestTwo(right_of_left=rows, left_distance=row_values, left_of_right=columns, right_distance=column_values)


def _served(backend: Backend, sets: tuple[Set, Set], work: Callable[[Backend], Result]) -> Result:
    """What the backend returns that serves these sets; with "auto" NumPy's where the compiler fails, which is told once."""
    m, n = (0 if basis is None else basis.shape[1] for _, basis in sets)
    chosen = resolve(backend, m, n, sets[0][0].shape[1])
    free = backend == "auto" and os.environ.get(PREFERRED, "auto") == "auto"
    if free and chosen == "cpu":
        try:
            return work(chosen)
        except compiler.CompileError:
            chosen = resolve(backend, m, n, sets[0][0].shape[1])
    reason = compiler.obstacle() if free else None
    if reason and reason not in _told:
        _told.add(reason)
        text = f"distances are computed by NumPy, several times slower: {reason} (VEIL_BACKEND=numpy: that is meant)"
        warnings.warn(text, VeilWarning, stacklevel=3)
    return work(chosen)


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
