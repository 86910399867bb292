"""Public points that the lines of one half of a picture pass through: two anchors, or two directions (points at infinity).

Convergent lines run through an anchor of their half (Kim et al. 2026), parallel ones along its direction. Lines through one
point are a pencil. They leave the way towards that point open to a camera, so that a server has to know them.

Theory: docs/theory/lines.md, Eq. 28-29.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.camera import Camera, half_extent

# Distance of the anchors from the middle, in half lengths of the picture's shorter side: beyond the picture's border. Farther
# anchors tell a neighborhood attack less, and poses are then less certain (lines.md#lines-of-two-halves).
REACH = 3.0
# Directions of the parallel lines of the two halves: along y and along x of the camera frame.
DIRECTIONS = np.array([[0.0, 1.0], [1.0, 0.0]])
# Largest distance of a point to a line through it, relative to the size of its coordinates: float32 rounds by 6e-8.
THROUGH = 1e-6


def anchors(camera: Camera) -> Float64[np.ndarray, "2 2"]:
    """The two anchors of a picture in the undistorted normalized plane, that of the left or upper half first.

    The line that halves the picture runs through its principal point along its shorter side, and through both anchors. The left
    half has the upper anchor, the right half the lower one; of an upright picture the upper half has the left one.
    """
    along = REACH * half_extent(camera) * across(camera)[::-1]
    return np.stack([-along, along])


def half_of(xy: Float64[np.ndarray, "points 2"], camera: Camera) -> Int64[np.ndarray, "points"]:
    """Half of the picture (0 left or upper, 1 right or lower) that each point of the normalized plane lies in."""
    return ((xy * across(camera)).sum(axis=1) >= 0).astype(np.int64)


def pencil_of(lines: Float64[np.ndarray, "lines 3"], camera: Camera) -> Int64[np.ndarray, "lines"]:
    """Number of the public point that each line (normalized plane, unit normal) passes through; -1 for any other line.

    0 and 1 are the anchors, 2 and 3 the directions y and x. It is -1, too, for lines through more than one of these points,
    such as the one that halves the picture. A line with a uniform angle passes through one of them by accident once in some
    hundred thousand.
    """
    points = np.hstack([np.vstack([anchors(camera), DIRECTIONS]), np.array([[1.0], [1.0], [0.0], [0.0]])])
    through: Bool[np.ndarray, "lines 4"] = np.abs(lines @ points.T) <= THROUGH * (1 + np.linalg.norm(points, axis=1))
    return np.where(through.sum(axis=1) == 1, through.argmax(axis=1), -1)


def told_half(
    lines: Float64[np.ndarray, "lines 3"], aligned: Bool[np.ndarray, "lines"], camera: Camera
) -> Int64[np.ndarray, "lines"]:
    """Half of the picture (0 or 1) that each line tells of its keypoint; -1 for lines that tell none.

    Lines along gravity tell it where all others run along the direction of the second half, as veil then has them.
    """
    pencil = pencil_of(lines, camera)
    half = np.where(pencil >= 0, pencil % 2, -1)
    others = pencil[~aligned]
    if len(others) and (others == 3).all():
        half[aligned] = 0
    return half


def are_of_halves(lines: Float64[np.ndarray, "lines 3"], aligned: Bool[np.ndarray, "lines"], camera: Camera) -> bool:
    """Whether most of the lines beside those along gravity run through the public point of a half."""
    pencil = pencil_of(lines, camera)[~aligned]
    return bool(len(pencil)) and bool((pencil >= 0).mean() > 0.5)


def across(camera: Camera) -> Float64[np.ndarray, "2"]:
    """Unit vector across the line that halves the picture, towards the second half."""
    return np.array([1.0, 0.0]) if camera.width_px >= camera.height_px else np.array([0.0, 1.0])
