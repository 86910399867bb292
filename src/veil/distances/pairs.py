"""Float64 distances of listed pairs in residual form, and the nearest few of every row or column among listed pairs.

No distance that is reported carries the cancellation of float32 (docs/theory/distances.md#rounding).
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64, Int64

from veil.distances.sets import FeatureSet, dimension

# Numbers that the bases of the pairs evaluated at a time hold together, to bound memory: a few copies of them are held.
CHUNK_NUMBERS = 1 << 20


def exact(left: FeatureSet, right: FeatureSet, rows: np.ndarray, columns: np.ndarray) -> Float64[np.ndarray, "pairs"]:
    """Float64 distances, in residual form, of the pairs (left feature rows[k], right feature columns[k]).

    Pairs are evaluated in chunks that bound memory. Bases need not be orthonormal. Source: docs/theory/distances.md, Eq. 12.
    """
    larger = max(1, dimension(left), dimension(right))
    size = max(16, CHUNK_NUMBERS // (larger * left[0].shape[1]))
    parts = [
        _chunk(left, right, rows[start : start + size], columns[start : start + size]) for start in range(0, len(rows), size)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _chunk(left: FeatureSet, right: FeatureSet, rows: np.ndarray, columns: np.ndarray) -> Float64[np.ndarray, "pairs"]:
    if left[1] is None and right[1] is None:
        return point_pairs(left[0][rows], right[0][columns])
    if left[1] is None:
        assert right[1] is not None
        return point_subspace_pairs(left[0][rows], right[0][columns], right[1][columns])
    if right[1] is None:
        return point_subspace_pairs(right[0][columns], left[0][rows], left[1][rows])
    return subspace_pairs(left[0][rows], left[1][rows], right[0][columns], right[1][columns])


def distinct(
    rows: Int64[np.ndarray, "given"], columns: Int64[np.ndarray, "given"]
) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Given pairs without repetitions, sorted by row and then by column; indices lie below 2^32."""
    keys = np.sort(rows << 32 | columns)
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return keys >> 32, keys & 0xFFFFFFFF


def best(
    owner: Int64[np.ndarray, "pairs"],
    other: Int64[np.ndarray, "pairs"],
    distance: Float64[np.ndarray, "pairs"],
    owners: int,
    count: int,
) -> tuple[Int64[np.ndarray, "owners count"], Float64[np.ndarray, "owners count"]]:
    """Indices and distances of the `count` nearest others of every owner among distinct pairs (owner, other), nearest first.

    An owner is a row or a column, `owners` their number. Ties keep the smaller index; (-1, inf) pads owners with fewer pairs.
    """
    order = np.lexsort((other, distance, owner))
    owner, other, distance = owner[order], other[order], distance[order]
    index, value = np.full((owners, count), -1, dtype=np.int64), np.full((owners, count), np.inf)
    place = np.arange(len(owner)) - np.searchsorted(owner, owner)
    kept = place < count
    index[owner[kept], place[kept]], value[owner[kept], place[kept]] = other[kept], distance[kept]
    return index, value


# Sine of the angle below which directions of two float32 bases count as one
# (distances.md#what-n-is-and-when-it-is-singular).
SHARED_DIRECTION_TOL = 1e-6


def point_pairs(a: Float[np.ndarray, "pairs dim"], b: Float[np.ndarray, "pairs dim"]) -> Float64[np.ndarray, "pairs"]:
    """Euclidean distances |a_i - b_i| of pairs of points."""
    return np.linalg.norm(a.astype(np.float64) - b.astype(np.float64), axis=1)


def point_subspace_pairs(
    points: Float[np.ndarray, "pairs dim"],
    origin: Float[np.ndarray, "pairs dim"],
    basis: Float[np.ndarray, "pairs m dim"],
) -> Float64[np.ndarray, "pairs"]:
    """Distances dist(D_i, e_i) of pairs of a subspace and a point, in residual form (docs/theory/distances.md, Eq. 1)."""
    residual = points.astype(np.float64) - origin.astype(np.float64)
    return np.linalg.norm(_remove(residual, _orthonormal(basis)), axis=1)


def subspace_pairs(
    left_origin: Float[np.ndarray, "pairs dim"],
    left_basis: Float[np.ndarray, "pairs left_m dim"],
    right_origin: Float[np.ndarray, "pairs dim"],
    right_basis: Float[np.ndarray, "pairs right_m dim"],
) -> Float64[np.ndarray, "pairs"]:
    """Distances dist(D_i, E_i) of pairs of subspaces, in residual form (docs/theory/distances.md, Eq. 12).

    E is orthogonalized against D, directions that both share are dropped, and the components of the offset e0 - d0 along D and
    along what is left of E are removed.
    """
    d = _orthonormal(left_basis)
    e = _orthonormal(right_basis)
    for _ in range(2):  # once is not enough when the subspaces are nearly parallel
        e = e - np.einsum("pij,pjk->pik", np.einsum("pin,pjn->pij", e, d), d)
    _, singular, directions = np.linalg.svd(e, full_matrices=False)
    directions = np.where((singular > SHARED_DIRECTION_TOL)[..., None], directions, 0.0)
    residual = right_origin.astype(np.float64) - left_origin.astype(np.float64)
    return np.linalg.norm(_remove(_remove(residual, d), directions), axis=1)


def _orthonormal(basis: Float[np.ndarray, "pairs m dim"]) -> Float64[np.ndarray, "pairs m dim"]:
    """Orthonormal bases of the spans of the given ones, by QR."""
    q, _ = np.linalg.qr(np.swapaxes(basis.astype(np.float64), 1, 2))
    return np.swapaxes(q, 1, 2)


def _remove(
    residual: Float64[np.ndarray, "pairs dim"], directions: Float64[np.ndarray, "pairs m dim"]
) -> Float64[np.ndarray, "pairs dim"]:
    """Residuals without their components along orthonormal directions; the second pass removes what rounding left."""
    for _ in range(2):
        residual = residual - np.einsum("pm,pmn->pn", np.einsum("pmn,pn->pm", directions, residual), directions)
    return residual
