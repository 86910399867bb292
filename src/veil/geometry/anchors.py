"""Two public anchors of a picture, one for each half of it: the points that convergent lines pass through (Kim et al. 2026).

Theory: docs/theory/lines.md, Eq. 28.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.camera import Camera, half_extent

# Distance of the anchors from the middle, in half lengths of the picture's shorter side: beyond the picture's border.
REACH = 3.0
# Largest distance of an anchor to a line through it, relative to the size of the coordinates: float32 rounds by 6e-8.
THROUGH = 1e-6


def anchors(camera: Camera) -> Float64[np.ndarray, "2 2"]:
    """The two anchors of a picture in the undistorted normalized plane, that of the left or upper half first.

    The line that halves the picture runs through its principal point along its shorter side, and through both anchors. The left
    half has the upper anchor, the right half the lower one; of an upright picture the upper half has the left one.
    """
    reach = REACH * half_extent(camera)
    along = reach * (_across(camera)[::-1])
    return np.stack([-along, along])


def half_of(xy: Float64[np.ndarray, "points 2"], camera: Camera) -> Int64[np.ndarray, "points"]:
    """Row of the anchor (0 or 1) of the half of the picture that each point of the normalized plane lies in."""
    return ((xy * _across(camera)).sum(axis=1) >= 0).astype(np.int64)


def anchor_of(lines: Float64[np.ndarray, "lines 3"], camera: Camera) -> Int64[np.ndarray, "lines"]:
    """Row of the anchor (0 or 1) that each line (normalized plane, unit normal) passes through; -1 for any other line.

    It is -1, too, for the line that halves the picture, which passes through both. A line with a uniform angle passes through
    an anchor by accident once in some hundred thousand.
    """
    places = anchors(camera)
    gap = np.abs(lines[:, :2] @ places.T + lines[:, 2:])
    through: Bool[np.ndarray, "lines 2"] = gap <= THROUGH * (1 + np.linalg.norm(places, axis=1))
    return np.where(through.sum(axis=1) == 1, through.argmax(axis=1), -1)


def _across(camera: Camera) -> Float64[np.ndarray, "2"]:
    """Unit vector across the line that halves the picture."""
    return np.array([1.0, 0.0]) if camera.width_px >= camera.height_px else np.array([0.0, 1.0])
