"""Table over a query's picture: how much likelier a point of the map is shown there by a right pose than by a wrong one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float32, Float64

from veil.geometry.camera import FRAME_SLACK, Camera, half_extent

# Width and height of a cell in pixels, and the most cells along the longer side.
CELL_PX, MOST_CELLS = 2.0, 2048
# The density that keypoints have around a place is taken over so many pixels, and is at least this share of its mean.
LOCAL_PX, LEAST_DENSITY = 60.0, 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class KeypointTable:
    """Log likelihood ratios in the cells of the undistorted normalized plane, 0 outside of the picture.

    `values[row, column]` belongs to x = column / scale - origin[0], y = row / scale - origin[1].
    """

    values: Float32[np.ndarray, "rows columns"]
    scale: float
    origin: Float64[np.ndarray, "2"]


def keypoint_table(
    camera: Camera, seen: Float64[np.ndarray, "features 2"], *, spread_px: float, shown_share: float
) -> KeypointTable:
    """Table of log(1 - d + d k / b) at every place of the picture (docs/theory/words_upright.md, Eq. 7).

    k is the density of the keypoints `seen` (normalized plane), each spread by a Gaussian of `spread_px`; b that of the
    keypoints around, spread by `LOCAL_PX`; d = `shown_share` the share of the points in view that keypoints show.
    """
    from scipy.ndimage import gaussian_filter

    half = half_extent(camera)
    cell_px = max(CELL_PX, 2 * FRAME_SLACK * float(half.max()) * camera.focal_px / MOST_CELLS)
    scale = camera.focal_px / cell_px
    origin = FRAME_SLACK * half
    columns, rows = np.ceil(2 * origin * scale).astype(np.int64)
    cells = np.floor((seen + origin) * scale).astype(np.int64)
    cells = cells[((cells >= 0) & (cells < [columns, rows])).all(axis=1)]
    occupied = np.zeros((int(rows), int(columns)), dtype=np.float32)
    occupied[cells[:, 1], cells[:, 0]] = 1  # repeats of a keypoint count once
    near = gaussian_filter(occupied, spread_px / cell_px, mode="constant")
    around = gaussian_filter(occupied, LOCAL_PX / cell_px, mode="constant")
    around += LEAST_DENSITY * FRAME_SLACK**2 * float(occupied.mean()) + 1e-12
    values = np.log(1 - shown_share + shown_share * near / around)
    left, top = np.ceil((FRAME_SLACK - 1) * half * scale).astype(np.int64)
    inside = np.zeros_like(values)
    inside[top : int(rows) - top, left : int(columns) - left] = values[top : int(rows) - top, left : int(columns) - left]
    return KeypointTable(values=inside.astype(np.float32), scale=scale, origin=origin)
