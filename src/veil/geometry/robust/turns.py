"""The turn of a camera that explains matches of two images, if one does.

A file of its own: `two_view` weighs geometries against chance, and this one asks whether a geometry has a baseline at all.
Where the camera only turned, x' = K R K^-1 x for all points (Hartley and Zisserman 2004, Sec. 8.4), near or far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import rotation_angle_deg

# A match agrees with a turn within this distance: twice the noise of keypoints, and less than the steps of a walk show.
LIMIT_PX = 3.0
# Factors of a guessed focal length that are tried.
FACTORS = tuple(float(factor) for factor in np.geomspace(0.4, 2.5, 25))
# A picture that was moved explains less than this share of the matches of a plain turn.
PLAINLY = 0.9
_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The best turn between two images.

    - `angle_deg`: its angle. `share`: of matches within `LIMIT_PX` of it.
    - `shift_px`: median distance of the matches from one picture to the other, in pixels.
    - `moved_share`: share of matches within `LIMIT_PX` of the best shift, rotation and scaling of the picture. A step along a
      wall does this, and a turn by a narrow angle nearly does.
    """

    angle_deg: float
    share: float
    shift_px: float
    moved_share: float

    @property
    def is_plain(self) -> bool:
        """Whether a turn explains more than moving the picture does: then no step along a plane looks the same."""
        return self.moved_share < min(self.share, PLAINLY)


def best_turn(
    left: Float64[np.ndarray, "matches 2"],
    right: Float64[np.ndarray, "matches 2"],
    left_calibration: Float64[np.ndarray, "3 3"],
    right_calibration: Float64[np.ndarray, "3 3"],
    *,
    factors: Sequence[float] = (1.0,),
) -> Turn:
    """The turn that explains the largest share of matches.

    `left` and `right` are undistorted positions in pixels of one match or more, and the calibrations their matrices K. All
    `factors` of the focal lengths are tried. The rotation is the least-squares one of the rays (Kabsch 1976), anew among those
    near it.
    """
    best = max(
        (_turn(left, right, left_calibration, right_calibration, factor) for factor in factors), key=lambda turn: turn[0]
    )
    shift = float(np.median(np.linalg.norm(right - left, axis=1)))
    return Turn(angle_deg=best[1], share=best[0], shift_px=shift, moved_share=_moved_share(left, right))


def _moved_share(left: np.ndarray, right: np.ndarray) -> float:
    """Share of matches within `LIMIT_PX` of the best shift, rotation and scaling of the left picture.

    As complex numbers, right = a left + b (least squares), anew among the matches near it.
    """
    one, two = left @ [1, 1j], right @ [1, 1j]
    rows, share, limit = np.arange(len(one)), 0.0, math.inf
    for _ in range(_ROUNDS):
        solution = np.linalg.lstsq(np.column_stack([one[rows], np.ones(len(rows))]), two[rows], rcond=None)[0]
        gaps = np.abs(solution[0] * one + solution[1] - two)
        share = float((gaps <= LIMIT_PX).mean())
        limit = max(LIMIT_PX, min(limit, 2 * float(np.median(gaps))))
        rows = np.flatnonzero(gaps <= limit)
        if len(rows) < 2:
            break
    return share


def _turn(
    left: np.ndarray, right: np.ndarray, left_calibration: np.ndarray, right_calibration: np.ndarray, factor: float
) -> tuple[float, float]:
    """Share of matches that the turn explains under focal lengths times `factor`, and its angle in degrees."""
    scaled = np.diag([factor, factor, 1.0])
    calibrations = [calibration @ scaled for calibration in (left_calibration, right_calibration)]
    rays = [
        np.hstack([points, np.ones((len(points), 1))]) @ np.linalg.inv(calibration).T
        for points, calibration in zip((left, right), calibrations, strict=True)
    ]
    units = [own / np.linalg.norm(own, axis=1, keepdims=True) for own in rays]
    rows = np.arange(len(left))
    share, angle, limit = 0.0, 0.0, math.inf
    for _ in range(_ROUNDS):
        u, _, vt = np.linalg.svd(units[1][rows].T @ units[0][rows])
        rotation = u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt
        seen = units[0] @ (calibrations[1] @ rotation).T
        gaps = np.linalg.norm(seen[:, :2] / np.where(seen[:, 2:] > 1e-9, seen[:, 2:], 1e-9) - right, axis=1)
        share, angle = float((gaps <= LIMIT_PX).mean()), rotation_angle_deg(rotation)
        limit = max(LIMIT_PX, min(limit, 2 * float(np.median(gaps))))
        rows = np.flatnonzero(gaps <= limit)
        if len(rows) < 2:
            break
    return share, angle
