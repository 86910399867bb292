"""Significance of a two-view geometry: log10 of the expected number of geometries as good among wrong matches.

A geometry that RANSAC found in n matches, k of which it explains within t pixels, is evidence only as far as wrong matches
would not have given one as good. Moisan and Stival 2004, Eq. 6: of the C(n, s) minimal samples each gives up to M geometries,
and of the n - s other matches at least k - s agree with one of them by chance with a probability of at most
C(n - s, k - s) p^(k - s), so that

    NFA = T M (n - s) C(n, s) C(n - s, k - s) p^(k - s)

bounds how many such geometries are expected among wrong matches alone; T counts the thresholds and models that were tried.
p is the probability that a wrong match agrees. It is counted, not assumed: every left feature is paired with the right
feature of another match, and p is the share of those pairs that the geometry explains. Features that crowd in one spot or
lie along one line agree with many geometries and raise p by themselves; a uniform background would not see it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.robust.significance import Sampling, pose_log10_nfa

THRESHOLDS_PX = (1.0, 2.0, 4.0)
# Wrong pairs of features that are tested to count how often a wrong match agrees.
BACKGROUND_PAIRS = 8_000
# A sample of `size` matches fixes a model up to a number of solutions (`poses`): five-point, seven-point, four-point.
ESSENTIAL, FUNDAMENTAL, HOMOGRAPHY = Sampling(size=5, poses=10), Sampling(size=7, poses=3), Sampling(size=4, poses=1)


@dataclass(frozen=True, kw_only=True, eq=False)
class TwoView:
    """Geometry of two images, in pixels of the undistorted images.

    `fundamental` is F with x'^T F x = 0 for x in the left and x' in the right image, `homography` takes left positions to right
    ones; None where there is none. `calibrated` says that F came from an essential matrix.
    """

    fundamental: Float64[np.ndarray, "3 3"] | None
    homography: Float64[np.ndarray, "3 3"] | None
    calibrated: bool


def log10_chance(left: Float64[np.ndarray, "matches 2"], right: Float64[np.ndarray, "matches 2"], geometry: TwoView) -> float:
    """Expected number (log10) of geometries as good as `geometry` among wrong matches (Moisan and Stival 2004, Eq. 6).

    `left` and `right` are undistorted positions in pixels of all matches that the geometry was sought in. Matches that share
    a position with another one count once. Infinite where nothing beyond the sample agrees.
    """
    keep = _distinct(left) & _distinct(right)
    left, right = left[keep], right[keep]
    rows, columns = _wrong_pairs(len(left))
    best = math.inf
    models = [
        (_sampson, geometry.fundamental, ESSENTIAL if geometry.calibrated else FUNDAMENTAL),
        (_transfer, geometry.homography, HOMOGRAPHY),
    ]
    for residual, matrix, sampling in models:
        if matrix is None or len(left) <= sampling.size:
            continue
        errors, wrong = residual(matrix, left, right), residual(matrix, left[rows], right[columns])
        for limit in THRESHOLDS_PX:
            agreement = (int((wrong <= limit).sum()) + 1) / (len(wrong) + 1)
            best = min(best, pose_log10_nfa(int((errors <= limit).sum()), len(left), agreement, sampling))
    return best + math.log10(len(models) * len(THRESHOLDS_PX))


def agreeing(
    left: Float64[np.ndarray, "matches 2"], right: Float64[np.ndarray, "matches 2"], geometry: TwoView, limit_px: float
) -> tuple[Bool[np.ndarray, "matches"], float]:
    """Mask of the matches that `geometry` explains within `limit_px`, and how many it would explain if all matches were wrong.

    Positions are undistorted, in pixels; the fundamental matrix decides where there is one.
    """
    model = (_sampson, geometry.fundamental) if geometry.fundamental is not None else (_transfer, geometry.homography)
    residual, matrix = model
    if matrix is None or len(left) == 0:
        return np.zeros(len(left), dtype=bool), 0.0
    rows, columns = _wrong_pairs(len(left))
    share = (int((residual(matrix, left[rows], right[columns]) <= limit_px).sum()) + 1) / (len(rows) + 1)
    return residual(matrix, left, right) <= limit_px, share * len(left)


def _sampson(fundamental: np.ndarray, left: np.ndarray, right: np.ndarray) -> Float64[np.ndarray, "n"]:
    """Sampson distance in pixels: first-order distance to the nearest match that the epipolar constraint allows."""
    lines = left @ fundamental[:, :2].T + fundamental[:, 2]
    back = right @ fundamental[:2] + fundamental[2]
    product = lines[:, 0] * right[:, 0] + lines[:, 1] * right[:, 1] + lines[:, 2]
    length = np.sqrt(lines[:, 0] ** 2 + lines[:, 1] ** 2 + back[:, 0] ** 2 + back[:, 1] ** 2)
    return np.abs(product) / np.maximum(length, 1e-300)


def _transfer(homography: np.ndarray, left: np.ndarray, right: np.ndarray) -> Float64[np.ndarray, "n"]:
    """Transfer error in pixels, the larger one of both directions; infinite beyond the horizon."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        forward = _mapped(homography, left) - right
        backward = _mapped(np.linalg.inv(homography), right) - left if abs(np.linalg.det(homography)) > 1e-300 else forward
        errors = np.maximum(np.hypot(*forward.T), np.hypot(*backward.T))
    return np.where(np.isfinite(errors), errors, np.inf)


def _mapped(homography: np.ndarray, points: np.ndarray) -> np.ndarray:
    homogeneous = points @ homography[:, :2].T + homography[:, 2]
    return homogeneous[:, :2] / homogeneous[:, 2:]


def _distinct(points: np.ndarray) -> Bool[np.ndarray, "n"]:
    """Mask of the first match at each position (to 0.01 px): features of several orientations share a position."""
    first = np.zeros(len(points), dtype=bool)
    first[np.unique(np.round(points, 2), axis=0, return_index=True)[1]] = True
    return first


def _wrong_pairs(count: int) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
    """Rows of left and right features of different matches: all such pairs, or evenly spread cyclic shifts of the matches."""
    shifts = np.unique(
        np.linspace(1, max(count - 1, 1), min(max(count - 1, 0), max(1, BACKGROUND_PAIRS // max(count, 1)))).astype(np.int64)
    )
    rows = np.tile(np.arange(count), len(shifts))
    return rows, (rows + np.repeat(shifts, count)) % max(count, 1)
