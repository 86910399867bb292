"""Float64 distances of given pairs in residual form, so that no reported distance carries float32 cancellation.

Theory: distances.md#rounding.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Float64

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
