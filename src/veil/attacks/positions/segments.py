"""Segments of released lines inside the image: the points where their keypoints can be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.forms import Lines
from veil.geometry.camera import Camera, as_colmap

BORDER_STEPS = 16  # points on each side of the image, whose outline is curved in the normalized plane under distortion


@dataclass(frozen=True, kw_only=True, eq=False)
class Segments:
    """Segments of lines, foot + s * direction for low <= s <= high, in the undistorted normalized plane.

    `foot` is the point nearest to the principal point; `low` and `high` are NaN for a line that misses the image.
    `outline` is the image's border, a closed polygon without its last point.
    """

    foot: Float64[np.ndarray, "_ 2"]
    direction: Float64[np.ndarray, "_ 2"]
    low: Float64[np.ndarray, "_"]
    high: Float64[np.ndarray, "_"]
    outline: Float64[np.ndarray, "_ 2"]

    def __len__(self) -> int:
        return len(self.foot)

    def at(self, s: Float64[np.ndarray, "lines"]) -> Float64[np.ndarray, "lines 2"]:
        """Point of each line at its parameter s."""
        return self.foot + s[:, None] * self.direction

    def between(self, share: Float64[np.ndarray, "lines"]) -> Float64[np.ndarray, "lines"]:
        """Parameters at a share of each segment: 0 at its lower end, 1 at its upper one."""
        return self.low + share * (self.high - self.low)


def segments(lines: Lines, camera: Camera) -> Segments:
    """Segments of all lines inside the image (docs/theory/position_attacks.md, Eq. 1).

    Raises InputError where the camera's border cannot be undistorted.
    """
    outline = _outline(camera)
    normal, offset = lines.coefficients[:, :2].astype(np.float64), lines.coefficients[:, 2].astype(np.float64)
    length = np.linalg.norm(normal, axis=1, keepdims=True)
    normal, offset = normal / length, offset / length[:, 0]  # float32 normals are of unit length to 1e-7 only
    foot = -offset[:, None] * normal
    direction = np.stack([-normal[:, 1], normal[:, 0]], axis=1)
    side = normal @ outline.T + offset[:, None]
    along = direction @ outline.T
    after, along_after = np.roll(side, -1, axis=1), np.roll(along, -1, axis=1)
    crosses = (side < 0) != (after < 0)
    share = np.where(crosses, side / np.where(crosses, side - after, 1.0), 0.0)
    crossing = along + share * (along_after - along)
    missed = ~crosses.any(axis=1)
    low = np.where(missed, np.nan, np.where(crosses, crossing, np.inf).min(axis=1))
    high = np.where(missed, np.nan, np.where(crosses, crossing, -np.inf).max(axis=1))
    return Segments(foot=foot, direction=direction, low=low, high=high, outline=outline)


def pixels(points: Float64[np.ndarray, "points 2"], camera: Camera) -> Float64[np.ndarray, "points 2"]:
    """Pixel positions of points of the normalized plane, with the camera's distortion; NaN stays NaN."""
    positions = np.full(points.shape, np.nan)
    known = np.isfinite(points).all(axis=1)
    if known.any():
        rays = np.hstack([points[known], np.ones((int(known.sum()), 1))])
        positions[known] = np.asarray(as_colmap(camera).img_from_cam(rays), dtype=np.float64).reshape(-1, 2)
    return positions


def focal_px(camera: Camera) -> float:
    """Focal length in pixels, the mean of both axes: the pixels in one unit of the normalized plane."""
    return float(np.mean(camera.params[: camera.focal_count]))


def _outline(camera: Camera) -> Float64[np.ndarray, "border 2"]:
    """Points of the image's border in the undistorted normalized plane."""
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=np.float64) * (camera.width_px, camera.height_px)
    steps = np.arange(BORDER_STEPS)[:, None] / BORDER_STEPS
    border = np.concatenate([a + steps * (b - a) for a, b in zip(corners, np.roll(corners, -1, axis=0), strict=True)])
    outline = np.asarray(as_colmap(camera).cam_from_img(border), dtype=np.float64)
    if not np.isfinite(outline).all():
        raise InputError("the border of this image cannot be undistorted; check the camera's distortion parameters")
    return outline
