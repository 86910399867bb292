"""Nearest entries of a public database to each subspace: a search that several attacks share, and the nearest-neighbor attack.

The attack takes the entry nearest to D, itself or projected on D, for the descriptor ([D21] 4.2).

Theory: distribution_attacks.md#nearest-neighbor-and-oracle.
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
    """Rows of the database entries nearest to each feature's subspace, nearest first, and their float64 distances."""

    rows: Int64[np.ndarray, "features nearest"]
    distance: Float64[np.ndarray, "features nearest"]


def entries(words: Codebook, space: Space, *, codebook: Codebook | None = None) -> Points:
    """Words of a codebook or decoy pool as a database (points in `space`) for attacks on forms in that space.

    A compressed space needs the `codebook` with its PCA. Real descriptors get the mean of the dither (`into_space`), centroids
    do not: the lift does not dither them either. Raises InputError if a codebook is needed and missing, SpaceError if it does
    not lead into `space`.
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
    """Entries of `database` nearest to each subspace, `count` of them, nearest first.

    Distances are float64 residuals, so that entries on a subspace show as zeros
    (distribution_attacks.md#the-database-attack, distances.md#rounding). Raises RangeError if `count` exceeds the database,
    SpaceError if the spaces differ, InputError for entries that are not finite.
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
    nearest = distances.nearest(*sides, count, threads=threads, progress=passed)
    return Nearby(rows=nearest.index, distance=nearest.distance)


def residuals(form: Subspaces, points: Float[np.ndarray, "features points dim"]) -> Float64[np.ndarray, "features points"]:
    """Distances of each subspace to the points of its feature, as float64 residuals (distances.md#rounding)."""
    basis = np.linalg.qr(np.swapaxes(form.basis.astype(np.float64), 1, 2))[0]
    offset = points.astype(np.float64) - form.origin.astype(np.float64)[:, None]
    for _ in range(2):  # the second pass removes what rounding left of the first
        offset = offset - (offset @ basis) @ np.swapaxes(basis, 1, 2)
    return np.linalg.norm(offset, axis=2)


def coordinates(form: Subspaces, points: Float[np.ndarray, "features points dim"]) -> Float64[np.ndarray, "features points m"]:
    """Coordinates c of the projections o + B^T c of points on the subspace of their feature.

    Theory: docs/theory/distribution_attacks.md, Eq. 1.
    """
    offset = points.astype(np.float64) - form.origin.astype(np.float64)[:, None]
    return offset @ np.swapaxes(form.basis.astype(np.float64), 1, 2)


def points_at(form: Subspaces, inside: Float64[np.ndarray, "features points m"]) -> Float64[np.ndarray, "features points dim"]:
    """Points o + B^T c of each subspace with the coordinates c = `inside`: the inverse of `coordinates`."""
    return form.origin.astype(np.float64)[:, None] + inside @ form.basis.astype(np.float64)


def nearest_neighbor(
    form: Subspaces, database: Points, *, projected: bool = True, threads: int = 1, progress: Progress | None = None
) -> Estimates:
    """Estimates of the descriptors: the database entry nearest to each subspace ([D21] 4.2), or its projection.

    With `projected`, the entry is projected on the subspace and scaled to unit length where descriptors have that length. The
    confidence falls with the distance. Nothing is certified: the entry nearest to D may be near a decoy.
    """
    nearest = nearby(form, database, count=1, threads=threads, progress=progress)
    points = database.vectors[nearest.rows[:, 0]].astype(np.float64)
    return Estimates(
        points=renormalized(form, project(form, points)) if projected else points,
        confidence=1 / (1 + nearest.distance[:, 0]),
        certified=np.zeros(len(form), dtype=bool),
    )


def nearest_lists(
    form: Subspaces, database: Points, *, count: int, projected: bool = True, threads: int = 1, progress: Progress | None = None
) -> Lists:
    """Candidate lists of an oracle that knows the truth: the `count` entries nearest to each subspace ([D21] 4.2).

    The oracle's best choice bounds from above what any attack can do that picks one of these entries, for example by the
    neighbors' descriptors. `projected` is that of `nearest_neighbor`.
    """
    nearest = nearby(form, database, count=count, threads=threads, progress=progress)
    candidates: list[np.ndarray] = []
    for begin in range(0, len(form), FEATURES):
        part = form.take(np.arange(begin, min(begin + FEATURES, len(form))))
        points = database.vectors[nearest.rows[begin : begin + FEATURES]].astype(np.float64)
        if projected:
            projections = points_at(part, coordinates(part, points)).reshape(-1, form.space.dim)
            points = renormalized(part, projections).reshape(points.shape)
        candidates.extend(points)
    return Lists(candidates=tuple(candidates), certified=np.zeros(len(form), dtype=bool))
