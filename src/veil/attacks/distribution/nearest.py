"""Nearest entries of a public database to each subspace: the search that other attacks share, and the oldest attack itself.

The entry nearest to D, itself or projected on D, is taken for the descriptor ([D21] 4.2; docs/theory/distribution_attacks.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil import distances
from veil.attacks.claims import Estimates, Lists, project, renormalized
from veil.codebooks.codebook import Codebook
from veil.errors import InputError, RangeError
from veil.forms import Points, Subspaces
from veil.progress import Progress
from veil.space import Space, require_same

# Features whose candidates are projected at a time.
FEATURES = 256


@dataclass(frozen=True, kw_only=True, eq=False)
class Nearby:
    """For each feature the rows of the database entries nearest to its subspace, nearest first, and their float64 distances."""

    rows: Int64[np.ndarray, "features nearest"]
    distance: Float64[np.ndarray, "features nearest"]


def entries(words: Codebook, space: Space, *, codebook: Codebook | None = None) -> Points:
    """The words of a codebook or decoy pool as a database for attacks on forms in `space`.

    A compressed space needs the `codebook` with its PCA. Real descriptors get the mean of the dither (`into_space`), centroids
    do not: the lift does not dither them either. Raises SpaceError if the codebook does not lead into `space`.
    """
    points = Points(vectors=words.vectors, space=words.raw_space)
    if space == points.space:
        return points
    if codebook is None:
        raise InputError("these subspaces are compressed; give the codebook whose PCA they went through")
    if words.kind == "centroids":
        codebook.compression.into_space(points, space)  # raises where it does not lead there
        return Points(vectors=codebook.compression.require_pca().apply(words.vectors).astype(np.float32), space=space)
    return codebook.compression.into_space(points, space)


def nearby(form: Subspaces, database: Points, *, count: int, threads: int = 1, progress: Progress | None = None) -> Nearby:
    """The `count` entries of `database` nearest to each subspace.

    Distances of the entries found are float64 residuals, so that those on a subspace show as zeros
    (distribution_attacks.md#the-database-attack, distances.md#rounding). Raises RangeError if `count` exceeds the database.
    """
    require_same(form.space, database.space)
    if not 1 <= count <= len(database):
        raise RangeError(f"count must be between 1 and the {len(database)} entries of the database, got {count!r}")
    if not np.isfinite(database.vectors).all():
        raise InputError("the database contains NaN or infinity; drop those rows")

    def passed(done: int, total: int) -> None:
        if progress is not None:
            progress(done * len(form) // total, len(form))

    sides = (form.origin, form.basis), (database.vectors, None)
    found = distances.nearest(*sides, count, threads=threads, progress=passed)
    return Nearby(rows=found.index, distance=found.distance)


def residuals(form: Subspaces, points: Float[np.ndarray, "features points dim"]) -> Float64[np.ndarray, "features points"]:
    """dist(D_i, p) of each feature to points of its own, as float64 residuals (distances.md#rounding)."""
    basis = np.linalg.qr(np.swapaxes(form.basis.astype(np.float64), 1, 2))[0]
    offset = points.astype(np.float64) - form.origin.astype(np.float64)[:, None]
    for _ in range(2):  # the second pass removes what rounding left of the first
        offset = offset - (offset @ basis) @ np.swapaxes(basis, 1, 2)
    return np.linalg.norm(offset, axis=2)


def coordinates(form: Subspaces, points: Float[np.ndarray, "features points dim"]) -> Float64[np.ndarray, "features points m"]:
    """Coordinates c of the projections o + B^T c of points on their feature's subspace."""
    offset = points.astype(np.float64) - form.origin.astype(np.float64)[:, None]
    return offset @ np.swapaxes(form.basis.astype(np.float64), 1, 2)


def at(form: Subspaces, inside: Float64[np.ndarray, "features points m"]) -> Float64[np.ndarray, "features points dim"]:
    """The points with these coordinates."""
    return form.origin.astype(np.float64)[:, None] + inside @ form.basis.astype(np.float64)


def nearest_neighbor(
    form: Subspaces, database: Points, *, projected: bool = True, threads: int = 1, progress: Progress | None = None
) -> Estimates:
    """The database entry nearest to each subspace ([D21] 4.2), or its projection on it at unit length where that is known.

    Confidence falls with the distance. Nothing is certified: the entry nearest to D may be near a decoy.
    """
    found = nearby(form, database, count=1, threads=threads, progress=progress)
    points = database.vectors[found.rows[:, 0]].astype(np.float64)
    return Estimates(
        points=renormalized(form, project(form, points)) if projected else points,
        confidence=1 / (1 + found.distance[:, 0]),
        certified=np.zeros(len(form), dtype=bool),
    )


def nearest_lists(
    form: Subspaces, database: Points, *, count: int, projected: bool = True, threads: int = 1, progress: Progress | None = None
) -> Lists:
    """The `count` entries nearest to each subspace, nearest first: what an oracle that knows the truth picks from ([D21] 4.2).

    It bounds from above what any attack can do that picks one of these entries, for example by the neighbors' descriptors.
    """
    found = nearby(form, database, count=count, threads=threads, progress=progress)
    candidates: list[np.ndarray] = []
    for begin in range(0, len(form), FEATURES):
        part = form.take(np.arange(begin, min(begin + FEATURES, len(form))))
        points = database.vectors[found.rows[begin : begin + FEATURES]].astype(np.float64)
        if projected:
            inside = at(part, coordinates(part, points)).reshape(-1, form.space.dim)
            points = renormalized(part, inside).reshape(points.shape)
        candidates.extend(points)
    return Lists(candidates=tuple(candidates), certified=np.zeros(len(form), dtype=bool))
