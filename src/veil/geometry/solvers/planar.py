"""Cameras of the plane: what remains of a gravity-aligned view once only gravity-aligned lines are looked at.

A vertical line through (x, y) in a view whose y-axis is gravity constrains (X, Z) alone: lambda (x, 1) = R (X, Z) + t with
R = [[cos, sin], [-sin, cos]] (Geppert et al. 2020, Eq. 2-3; traps S1: this sign everywhere). Vectors of the plane are also
written as complex numbers a + ib, and theta is the angle of R, so that R acts on I = (1, i) as exp(i theta).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanarPose:
    """cam_from_world of the plane: `angle` in radians about gravity, `translation` = (t_x, t_z)."""

    angle: float
    translation: Float64[np.ndarray, "2"]

    @property
    def rotation(self) -> Float64[np.ndarray, "2 2"]:
        """[[cos, sin], [-sin, cos]]."""
        c, s = np.cos(self.angle), np.sin(self.angle)
        return np.array([[c, s], [-s, c]])

    def apply(self, points: Float64[np.ndarray, "points 2"]) -> Float64[np.ndarray, "points 2"]:
        """Camera coordinates (x, depth) of world points (X, Z)."""
        return points @ self.rotation.T + self.translation


IDENTITY = PlanarPose(angle=0.0, translation=np.zeros(2))


def triangulate_planar(poses: list[PlanarPose], x: Float64[np.ndarray, "views points"]) -> Float64[np.ndarray, "points 2"]:
    """Least-squares (X, Z) of each point from its image coordinates x in two or more views.

    Each view gives (1, -x) (R (X, Z) + t) = 0, weighted to unit norm so that residuals are distances to rays.
    """
    normal = np.zeros((x.shape[1], 2, 2))
    right = np.zeros((x.shape[1], 2))
    for pose, xi in zip(poses, x, strict=True):
        rows = np.stack([np.ones_like(xi), -xi], axis=1) / np.hypot(1.0, xi)[:, None]
        a = rows @ pose.rotation
        b = rows @ pose.translation
        normal += a[:, :, None] * a[:, None, :]
        right -= a * b[:, None]
    # Rays that are parallel in all views leave a singular system: the pseudo-inverse puts the point at finite distance
    # and the depth and angle checks of the caller refuse it.
    return np.einsum("pij,pj->pi", np.linalg.pinv(normal, rcond=1e-14, hermitian=True), right)


def in_front(poses: list[PlanarPose], points: Float64[np.ndarray, "points 2"]) -> Bool[np.ndarray, "points"]:
    """Whether each point has positive depth in every view (cheirality)."""
    return np.all([pose.apply(points)[:, 1] > 0 for pose in poses], axis=0)


def planar_residuals(
    poses: list[PlanarPose], points: Float64[np.ndarray, "points 2"], x: Float64[np.ndarray, "views points"]
) -> Float64[np.ndarray, "views points"]:
    """Image residual x_projected - x of each point in each view; infinite behind a camera."""
    residuals = np.empty(x.shape)
    for view, pose in enumerate(poses):
        in_camera = pose.apply(points)
        ahead = in_camera[:, 1] > 1e-9
        residuals[view] = np.where(ahead, in_camera[:, 0] / np.where(ahead, in_camera[:, 1], 1.0) - x[view], np.inf)
    return residuals
