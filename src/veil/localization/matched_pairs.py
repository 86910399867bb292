"""Pairs of a query's features and a map's points, the base of matched keypoints and matched lines."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid

# A search for a rival pose misses one of the least weight that counts with this probability.
RIVAL_MISSED = 1e-3


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """An estimated pose, the camera that it was estimated with (its focal length may be refined), and its covariance, if known.

    `covariance` is of (rotation in radians, translation in units of the map) in the camera frame; None where the solver gives
    none.
    """

    pose: Rigid
    camera: Camera
    covariance: Float64[np.ndarray, "6 6"] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedPairs(ABC):
    """Pairs (`keypoint_rows[i]`, `point_rows[i]`) of a query's features and a map's points, the most trusted ones first.

    `points` are all points of the map in world coordinates, `max_error_px` is the inlier threshold, `seed` that of RANSAC.
    """

    camera: Camera
    keypoint_rows: Int64[np.ndarray, "pairs"]
    point_rows: Int64[np.ndarray, "pairs"]
    points: Float64[np.ndarray, "points 3"]
    max_error_px: float
    seed: int

    @cached_property
    def _features(self) -> tuple[Int64[np.ndarray, "_"], Int64[np.ndarray, "pairs"]]:
        """The matched features (distinct keypoint rows), and the index of each pair's feature among them."""
        return np.unique(self.keypoint_rows, return_inverse=True)

    @property
    def feature_of(self) -> Int64[np.ndarray, "pairs"]:
        """Row of each pair's feature in `background`, which holds every matched feature once."""
        return self._features[1]

    @abstractmethod
    def distinct(self, rows: Int64[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
        """Whether each of the pairs `rows` is kept if those at one place of the picture count once."""

    @cached_property
    def _apart(self) -> Bool[np.ndarray, "features"]:
        """Whether each matched feature counts if those at one place count once."""
        return self.distinct(np.unique(self.feature_of, return_index=True)[1])

    def places_of_first(self, count: int) -> int:
        """Number of features of the first `count` pairs, those at one place counted once."""
        matched = np.zeros(len(self._apart), dtype=bool)
        matched[self.feature_of[:count]] = True
        return int(np.count_nonzero(matched & self._apart))


def samples_for(share: float, size: int, most: int) -> int:
    """Number of samples of `size` pairs, at most `most`, that are enough to draw one of inliers only.

    If `share` of the pairs are inliers, one is drawn with probability 1 - `RIVAL_MISSED`, unless `most` is too few.
    """
    clean = min(share, 1.0) ** size
    if clean >= 1:
        return 1
    return most if clean < 1e-12 else min(most, math.ceil(math.log(RIVAL_MISSED) / math.log1p(-clean)))
