"""Features of a query, sent as keypoints or as lines, matched with points of a map."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.forms import Lines
from veil.geometry.camera import Camera
from veil.localization.matched_lines import MatchedLines
from veil.localization.matched_points import MatchedPoints

Matched = MatchedPoints | MatchedLines


def matched_features(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    keypoint_rows: Int64[np.ndarray, "pairs"],
    point_rows: Int64[np.ndarray, "pairs"],
    points: Float64[np.ndarray, "points 3"],
    *,
    max_error_px: float,
    seed: int,
) -> Matched:
    """Pairs of a query's features and a map's points, as `MatchedPoints` or `MatchedLines` by what `observations` are.

    `observations` are keypoints in pixels, or the lines that hide them. Pair i joins row `keypoint_rows[i]` of them with row
    `point_rows[i]` of `points` (world coordinates); the most trusted pairs come first. `max_error_px` is the inlier threshold,
    `seed` that of RANSAC.
    """
    pairs: dict[str, Any] = {"keypoint_rows": keypoint_rows, "point_rows": point_rows, "points": points}
    common = {"camera": camera, "max_error_px": max_error_px, "seed": seed, **pairs}
    if isinstance(observations, Lines):
        return MatchedLines(observations=observations, **common)
    return MatchedPoints(observations=observations, **common)
