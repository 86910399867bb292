"""Lines of near repeats: a keypoint that left behind a line before leaves behind the same line, moved with the picture.

Two different lines through one keypoint meet in it, and so do those of two frames, once they are aligned. Lines that move with
the picture lie on each other (release.md#near-repeats). A file of its own: subspaces and words know nothing of positions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.forms import Lines
from veil.mechanisms.lines import along_gravity
from veil.one_line import one_line

# Fewest keypoints of an earlier picture by which its motion is found, and how far they may be off it in the normalized plane.
FEWEST, WITHIN = 8, 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnLines:
    """Lines of one earlier picture, with the keypoints that they hide.

    - `places`, float64 (N, 2): keypoints in the undistorted normalized image plane.
    - `normals`, float32 (N, 2): unit normals of their lines. `aligned`, bool (N,): whether a line follows gravity.
    """

    places: Float64[np.ndarray, "_ 2"]
    normals: Float32[np.ndarray, "_ 2"]
    aligned: Bool[np.ndarray, "_"]

    __repr__ = one_line

    def take(self, rows: np.ndarray) -> DrawnLines:
        """Those of the features `rows` (indices or a mask)."""
        return DrawnLines(places=self.places[rows], normals=self.normals[rows], aligned=self.aligned[rows])


def carried(
    lines: Lines, places: Float64[np.ndarray, "lines 2"], rows: Int64[np.ndarray, "again"], earlier: DrawnLines
) -> tuple[Lines, Bool[np.ndarray, "again"]]:
    """The lines with those of `rows` replaced by earlier ones that move with the picture, and which of `rows` have one.

    `places` are the keypoints of all lines. `earlier` are the lines of the same features in one earlier picture, in the order
    of `rows`. The motion is the homography of their keypoints. A line that follows gravity follows it again. Where a keypoint
    does not move with the others no line is made: another line would meet the earlier one in the keypoint.
    """
    import cv2

    moved = np.zeros(len(rows), dtype=bool)
    if len(rows) < FEWEST:
        return lines, moved
    homography, inliers = cv2.findHomography(earlier.places, places[rows], cv2.RANSAC, WITHIN)
    if homography is None:
        return lines, moved
    moved = inliers.ravel().astype(bool)
    normals = _moved_normals(earlier, homography)
    if lines.gravity is None:
        moved &= ~earlier.aligned
    else:
        along = along_gravity(places[rows], lines.gravity)
        normals[earlier.aligned] = along[earlier.aligned]
    moved &= np.isfinite(normals).all(axis=1)
    coefficients, aligned = lines.coefficients.copy(), lines.aligned.copy()
    through = -(normals * places[rows]).sum(axis=1, keepdims=True)
    coefficients[rows[moved]] = np.hstack([normals, through])[moved].astype(np.float32)
    aligned[rows[moved]] = earlier.aligned[moved]
    return replace(lines, coefficients=coefficients, aligned=aligned), moved


def _moved_normals(earlier: DrawnLines, homography: Float64[np.ndarray, "3 3"]) -> Float64[np.ndarray, "_ 2"]:
    """Unit normals of the earlier lines under the homography, each at its keypoint; NaN where it leaves no line.

    A line l becomes H^-T l, which is that of the cofactors of H up to its length, also where H has no inverse.
    """
    normals = earlier.normals.astype(np.float64)
    whole = np.column_stack([normals, -(normals * earlier.places).sum(axis=1)])
    cofactors = np.cross(np.roll(homography, -1, axis=0), np.roll(homography, -2, axis=0))
    moved = (whole @ cofactors.T)[:, :2]
    length = np.linalg.norm(moved, axis=1, keepdims=True)
    return np.where(length > 1e-12, moved / np.maximum(length, 1e-300), np.nan)
