"""Planar cameras, the horizontal part of gravity-aligned views, which gravity-aligned lines alone determine.

A vertical line through (x, y) in a view whose y-axis is gravity constrains (X, Z) alone: lambda (x, 1) = R (X, Z) + t with
R = [[cos, sin], [-sin, cos]] (Geppert et al. 2020, Eq. 2-3; lines.md#planar-views). All modules use this sign. Vectors of the
plane are also written as complex numbers a + ib, and theta is the angle of R, so that R acts on I = (1, i) as exp(i theta).

All functions take leading batch axes, because the robust search tries hundreds of poses at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanarViews:
    """Planar poses (cam_from_world) of some views: `angle` in radians about gravity, and `translation` = (t_x, t_z).

    The last axis of `angle` runs over views, axes before it are batches.
    """

    angle: Float64[np.ndarray, "..."]
    translation: Float64[np.ndarray, "... 2"]

    @property
    def rotation(self) -> Float64[np.ndarray, "... 2 2"]:
        """The rotations [[cos, sin], [-sin, cos]] of all views."""
        c, s = np.cos(self.angle), np.sin(self.angle)
        return np.stack([np.stack([c, s], axis=-1), np.stack([-s, c], axis=-1)], axis=-2)

    def apply(self, points: Float64[np.ndarray, "*batch points 2"]) -> Float64[np.ndarray, "*batch views points 2"]:
        """Camera coordinates (x, depth) of world points (X, Z) in every view."""
        turned = points[..., None, :, :] @ np.swapaxes(self.rotation, -1, -2)
        return turned + self.translation[..., None, :]

    def take(self, rows: int | slice | np.ndarray) -> PlanarViews:
        """The views at `rows` of the first batch axis."""
        return PlanarViews(angle=self.angle[rows], translation=self.translation[rows])


def triangulate_planar(
    views: PlanarViews,
    x: Float64[np.ndarray, "*batch views points"],
    given: Bool[np.ndarray, "... views points"] | None = None,
) -> Float64[np.ndarray, "... points 2"]:
    """Least-squares (X, Z) of each point from its image coordinates x (normalized plane) in two or more views.

    `given` says which views see a point (default: all). Each view gives (1, -x) (R (X, Z) + t) = 0, weighted to unit norm so
    that residuals are distances to rays. Rays that are parallel in all views leave a singular system: such points go to the
    origin, where depth and residuals refuse them.
    """
    weight = 1 / np.hypot(1.0, x)
    if given is not None:
        weight = weight * given
    c, s = np.cos(views.angle)[..., None], np.sin(views.angle)[..., None]
    a0, a1 = weight * (c + x * s), weight * (s - x * c)  # (1, -x) R
    b = weight * (views.translation[..., 0, None] - x * views.translation[..., 1, None])
    n00, n01, n11 = (a0 * a0).sum(axis=-2), (a0 * a1).sum(axis=-2), (a1 * a1).sum(axis=-2)
    r0, r1 = -(a0 * b).sum(axis=-2), -(a1 * b).sum(axis=-2)
    determinant = n00 * n11 - n01 * n01
    regular = determinant > 1e-14 * (n00 + n11) ** 2
    inverse = np.where(regular, 1 / np.where(regular, determinant, 1.0), 0.0)
    return np.stack([(n11 * r0 - n01 * r1) * inverse, (n00 * r1 - n01 * r0) * inverse], axis=-1)


def in_front(views: PlanarViews, points: Float64[np.ndarray, "*batch points 2"]) -> Bool[np.ndarray, "*batch points"]:
    """Whether each point has positive depth in every view (cheirality)."""
    return np.asarray((views.apply(points)[..., 1] > 0).all(axis=-2))


def planar_residuals(
    views: PlanarViews, points: Float64[np.ndarray, "*batch points 2"], x: Float64[np.ndarray, "... views points"]
) -> Float64[np.ndarray, "*batch views points"]:
    """Residual x_projected - x (normalized plane) of each point in each view; infinite behind a camera."""
    in_camera = views.apply(points)
    depth = in_camera[..., 1]
    ahead = depth > 1e-9
    return np.where(ahead, in_camera[..., 0] / np.where(ahead, depth, 1.0) - x, np.inf)
