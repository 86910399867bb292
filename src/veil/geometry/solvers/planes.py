"""Triangulation of a point from three or more planes that its lines back-project to (Geppert et al. 2020, Eq. 10).

    l_i^T (R_i X + t_i) = 0

With three planes the fit is exact whatever the matches are; residuals show wrong matches only from the fourth plane on
(lines.md#points-and-cameras).

A file of its own: each solver is one, with its equation.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError

MINIMAL_PLANES = 3


def triangulate_planes(
    normals: Float64[np.ndarray, "*batch planes 3"], offsets: Float64[np.ndarray, "*batch planes"]
) -> Float64[np.ndarray, "*batch 3"]:
    """The point with least squared distance to planes normals . X + offsets = 0, rows scaled to unit normals.

    The point is NaN where the planes leave it undetermined (all normals in one plane: for example only gravity-aligned lines).
    Raises InputError for fewer than three planes.
    """
    if normals.shape[-2] < MINIMAL_PLANES:
        raise InputError(f"a point needs {MINIMAL_PLANES} planes, got {normals.shape[-2]}")
    length = np.linalg.norm(normals, axis=-1)
    unit, right = normals / length[..., None], -offsets / length
    u, singular, vt = np.linalg.svd(unit, full_matrices=False)
    determined = singular[..., 2] > 1e-9 * singular[..., 0]
    inverse = 1 / np.where(determined[..., None], singular, 1.0)
    coordinates = np.einsum("...pk,...p->...k", u, right) * inverse
    points = np.einsum("...kj,...k->...j", vt, coordinates)
    return np.where(determined[..., None], points, np.nan)


def plane_of_line(
    line: Float64[np.ndarray, "*batch 3"], rotation: Float64[np.ndarray, "3 3"], translation: Float64[np.ndarray, "3"]
) -> tuple[Float64[np.ndarray, "*batch 3"], Float64[np.ndarray, "*batch"]]:
    """(normal, offset) of the plane normal . X + offset = 0 in the world that a line of one view back-projects to.

    `line` is in the view's normalized plane, of any scale; `rotation` and `translation` are its cam_from_world.
    """
    return line @ rotation, line @ translation
