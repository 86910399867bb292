"""Second matching along a verified two-view geometry: only features near each other's epipolar line compete.

The nearest and second nearest are sought in that band, so that a repeated texture elsewhere in the image no longer spoils the
ratio of a right match. Mutual nearest neighbors of the band are matches if they pass the same ratio and are no farther apart
than most of the verified matches: in a band with a single feature the ratio alone would pass anything.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.distances.pairs import exact
from veil.forms import Flat
from veil.geometry.robust.two_view import TwoView
from veil.matching.neighbors import as_set

BAND_PX = 2.0
# A distance of a listed pair of features costs more than one of all pairs; a pair of images with more listed pairs than this
# is strong without them.
MAX_PAIRS = 200_000
# Quantile of the distances of verified matches that the distance of a further match must not exceed.
NEAR_ENOUGH = 0.9
# Left features whose bands are computed together.
BLOCK = 512


@dataclass(frozen=True, kw_only=True, eq=False)
class UndistortedFeatures:
    """Features of one image: undistorted positions in pixels, and descriptors."""

    positions: Float64[np.ndarray, "features 2"]
    form: Flat


def along_geometry(
    left: UndistortedFeatures,
    right: UndistortedFeatures,
    geometry: TwoView,
    inliers: Int64[np.ndarray, "inliers 2"],
    *,
    max_ratio: float,
) -> Int64[np.ndarray, "matches 2"]:
    """Matches of two images: the inliers, and further ones of the features without an inlier, all one to one.

    `inliers` and the result are rows (left feature, right feature); `max_ratio` is the ratio of the nearest to the second
    nearest distance within the band. The inliers alone are returned where the bands hold too many pairs to compare.
    """
    free_left = np.setdiff1d(np.arange(len(left.positions)), inliers[:, 0])
    free_right = np.setdiff1d(np.arange(len(right.positions)), inliers[:, 1])
    if len(free_left) == 0 or len(free_right) == 0:
        return inliers
    pairs = _band(left.positions[free_left], right.positions[free_right], geometry)
    if pairs is None or len(pairs) == 0:
        return inliers
    rows, columns = free_left[pairs[:, 0]], free_right[pairs[:, 1]]
    distance = exact(as_set(left.form), as_set(right.form), rows, columns)
    chosen, ratio = _mutual(rows, columns, distance, len(left.positions), len(right.positions))
    limit = np.quantile(exact(as_set(left.form), as_set(right.form), inliers[:, 0], inliers[:, 1]), NEAR_ENOUGH)
    near = exact(as_set(left.form), as_set(right.form), chosen[:, 0], chosen[:, 1]) <= limit
    further = chosen[(ratio <= max_ratio) & near]
    return np.concatenate([inliers, further]).astype(np.int64)


def _band(left: np.ndarray, right: np.ndarray, geometry: TwoView) -> np.ndarray | None:
    """Pairs (left row, right row) that the geometry allows to within `BAND_PX`; None if they are more than `MAX_PAIRS`."""
    parts, total = [], 0
    for start in range(0, len(left), BLOCK):
        rows, columns = np.nonzero(_near(left[start : start + BLOCK], right, geometry))
        total += len(rows)
        if total > MAX_PAIRS:
            return None
        parts.append(np.stack([rows + start, columns], axis=1))
    return np.concatenate(parts)


def _near(left: np.ndarray, right: np.ndarray, geometry: TwoView) -> Bool[np.ndarray, "left right"]:
    """Mask of the right positions that lie within the band of each left position's epipolar line.

    Without a fundamental matrix, the band is a disk around the image of the left position by the homography.
    """
    if geometry.fundamental is not None:
        lines = left @ geometry.fundamental[:, :2].T + geometry.fundamental[:, 2]
        lines /= np.maximum(np.hypot(lines[:, 0], lines[:, 1]), 1e-300)[:, None]
        distance = lines[:, :2] @ right.T
        distance += lines[:, 2:]
        return np.abs(distance, out=distance) <= BAND_PX
    if geometry.homography is None:
        return np.zeros((len(left), len(right)), dtype=bool)
    mapped = left @ geometry.homography[:, :2].T + geometry.homography[:, 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        mapped = mapped[:, :2] / mapped[:, 2:]
        return ((mapped[:, None] - right[None]) ** 2).sum(axis=2) <= BAND_PX**2


def _mutual(
    rows: np.ndarray, columns: np.ndarray, distance: np.ndarray, left: int, right: int
) -> tuple[np.ndarray, np.ndarray]:
    """Mutual nearest neighbors (row, column) among the listed pairs, and the worse of their two ratios: 0 without a rival."""
    nearest_right, right_distance = _two_nearest(rows, columns, distance, left)
    nearest_left, left_distance = _two_nearest(columns, rows, distance, right)
    owners = np.flatnonzero(nearest_right >= 0)
    others = nearest_right[owners]
    kept = nearest_left[others] == owners
    owners, others = owners[kept], others[kept]
    ratio = np.maximum(_ratio(right_distance[owners]), _ratio(left_distance[others]))
    return np.stack([owners, others], axis=1), ratio


def _two_nearest(owner: np.ndarray, other: np.ndarray, distance: np.ndarray, owners: int) -> tuple[np.ndarray, np.ndarray]:
    """Nearest neighbor of each row among the listed pairs, -1 for none, and the two least distances, infinite for none."""
    order = np.lexsort((other, distance, owner))
    owner, other, distance = owner[order], other[order], distance[order]
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    nearest, two = np.full(owners, -1), np.full((owners, 2), np.inf)
    nearest[owner[starts]] = other[starts]
    two[owner[starts], 0] = distance[starts]
    rivals = starts[np.diff(starts, append=len(owner)) > 1]
    two[owner[rivals], 1] = distance[rivals + 1]
    return nearest, two


def _ratio(two: np.ndarray) -> np.ndarray:
    tie = two[:, 1] == 0
    with np.errstate(invalid="ignore"):
        return np.where(tie, 1.0, two[:, 0] / np.where(tie, 1.0, two[:, 1]))
