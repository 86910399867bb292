"""Linear resection of a planar view from three or more known points of the plane (Geppert et al. 2020, Eq. 8-9).

(1, -x) (R (X, Z) + t) = 0,   R = [[cos, sin], [-sin, cos]]

A file of its own: each solver is one, with its equation.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.geometry.solvers.planar import PlanarViews

MINIMAL_POINTS = 3


def resect_planar(points: Float64[np.ndarray, "*batch points 2"], x: Float64[np.ndarray, "*batch points"]) -> PlanarViews:
    """Pose of one view for each problem: of the solution's two signs, that with more points in front of the camera.

    `points` are (X, Z) in the world, `x` their image coordinates (normalized plane); the view axis of the result has length 1.

    min |M (cos, sin, t_x, t_z)|^2 subject to cos^2 + sin^2 = 1: the translation is eliminated by projection on the complement
    of its columns, the rotation is the last singular vector of what remains, and its sign is decided by depth.
    Raises InputError for fewer than three points.
    """
    if points.shape[-2] < MINIMAL_POINTS:
        raise InputError(f"resecting a planar view needs {MINIMAL_POINTS} points, got {points.shape[-2]}")
    weight = 1 / np.hypot(1.0, x)
    a, b = points[..., 0], points[..., 1]
    rotation_part = np.stack([a - x * b, b + x * a], axis=-1) * weight[..., None]
    translation_part = np.stack([np.ones_like(x), -x], axis=-1) * weight[..., None]
    basis, triangle = np.linalg.qr(translation_part)
    across = np.swapaxes(basis, -1, -2) @ rotation_part
    turn = np.linalg.svd(rotation_part - basis @ across, full_matrices=False)[2][..., -1, :]
    # Back substitution; equal x everywhere leaves t undetermined, a huge one that no residual will accept.
    corner = np.where(abs(triangle[..., 1, 1]) > 1e-300, triangle[..., 1, 1], 1e-300)
    right = -(across @ turn[..., None])[..., 0]
    second = right[..., 1] / corner
    first = (right[..., 0] - triangle[..., 0, 1] * second) / triangle[..., 0, 0]
    angle, translation = np.arctan2(turn[..., 1], turn[..., 0])[..., None], np.stack([first, second], axis=-1)[..., None, :]
    depth = PlanarViews(angle=angle, translation=translation).apply(points)[..., 0, :, 1]
    ahead = (depth > 0).mean(axis=-1)[..., None] >= 0.5
    return PlanarViews(
        angle=np.where(ahead, angle, angle + np.pi), translation=np.where(ahead[..., None], translation, -translation)
    )
