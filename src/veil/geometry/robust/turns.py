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
_ROUNDS = 5


@dataclass(frozen=True, kw_only=True)
class Turn:
    """The best turn between two images: its angle in degrees, the share of matches within `LIMIT_PX` of it, and their median
    shift in pixels from one picture to the other."""

    angle_deg: float
    share: float
    shift_px: float


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
    return Turn(angle_deg=best[1], share=best[0], shift_px=shift)


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
