"""Rival poses: another pose that explains a query nearly as well, and which of two poses is clearly better.

Theory: docs/theory/localization.md#one-camera-one-pose, localization.md#a-place-and-its-copies.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.camera import as_colmap
from veil.geometry.views import MapViews
from veil.localization.matched_features import Matched
from veil.localization.matched_pairs import Estimate
from veil.localization.pose_evidence import Evidence, weigh

# Of two poses the better one is taken if a fair coin would favor it so clearly less often than this.
COIN = 1e-3
# A feature speaks against a pose if the camera there shows so many points around it, times the points for each inlier of the
# pose that explains the feature, and none of them is an inlier (docs/theory/localization.md#a-place-and-its-copies).
AROUND = 6
# A rival pose is sought among at least so many pairs for each inlier that it needs.
RIVAL_ROOM = 4


def rival(
    matched: Matched,
    estimate: Estimate,
    evidence: Evidence,
    views: MapViews | None,
    *,
    min_inliers: int,
    max_log10_nfa: float,
    observed: Int64[np.ndarray, "observed"] | None = None,
    among: Int64[np.ndarray, "_"] | None = None,
) -> Evidence | None:
    """Evidence of another pose that is beyond chance as well and nearly as strong, or None.

    It is sought among the most trusted pairs that the given pose leaves, as one that shares at most half of its inliers.
    `clearly_better` tells which is stronger.

    - `observed`: rows of the points that the matched images observe; None: all points.
    - `among`: rows of the pairs that another pose is sought among; None: all pairs.
    """
    rest = ~matched.agrees(matched.projected(estimate), 2.0)
    rest = np.flatnonzero(rest) if among is None else among[rest[among]]
    most = min(len(np.unique(matched.keypoint_rows[rest])), len(np.unique(matched.point_rows[rest])))
    needed = max(min_inliers, weakest_rival(len(evidence.rows) // 2))
    if most < needed:
        return None
    first = rest[: max(round(matched.rival_part * len(rest)), RIVAL_ROOM * needed)]
    other = matched.estimate(first, share=needed / len(first))
    if other is None:
        return None
    second = weigh(matched, other, views)
    if len(second.rows) < min_inliers or second.log10_nfa > max_log10_nfa:
        return None
    seen = [_Shown.by(matched, one, views, observed) for one in (estimate, other)]
    return None if clearly_better(matched, evidence, second, *seen) else second


@dataclass(frozen=True, kw_only=True, eq=False)
class _Shown:
    """Points of the map that a camera shows: rows of the map's points, and their places in the picture in pixels."""

    point_rows: Int64[np.ndarray, "shown"]
    xy: Float64[np.ndarray, "shown 2"]

    @staticmethod
    def by(
        matched: Matched, estimate: Estimate, views: MapViews | None, observed: Int64[np.ndarray, "observed"] | None
    ) -> _Shown:
        """Points that the camera of an estimated pose could see, of those `observed` (None: all of the map)."""
        rows = np.arange(len(matched.points)) if observed is None else observed
        in_camera = estimate.pose.apply(matched.points[rows])
        ahead = in_camera[:, 2] > 1e-9
        if views is not None:
            ahead[ahead] = views.possible(estimate.camera, estimate.pose, matched.points, rows[ahead])
        rows, camera = rows[ahead], estimate.camera
        xy = np.asarray(as_colmap(camera).img_from_cam(in_camera[ahead]), dtype=np.float64).reshape(-1, 2)
        inside = ((xy >= 0) & (xy <= [camera.width_px, camera.height_px])).all(axis=1)
        return _Shown(point_rows=rows[inside], xy=xy[inside])


def clearly_better(matched: Matched, first: Evidence, second: Evidence, shown_first: _Shown, shown_second: _Shown) -> bool:
    """Whether the first of two poses has clearly more inliers that count against the second (McNemar 1947).

    Pairs that agree with both poses say nothing. A feature that the other pose does not explain counts against it only if the
    map knows what its camera shows around the feature, and the query shows nothing of that: where the map knows little of a
    place, or few of its images were matched, many features are not explained there though the place is the right one.
    """
    counted = (
        _counted(matched, first, second, shown_first, shown_second),
        _counted(matched, second, first, shown_second, shown_first),
    )
    return coin(*counted) <= COIN


def _counted(matched: Matched, own: Evidence, other: Evidence, own_shown: _Shown, other_shown: _Shown) -> int:
    """Number of inliers of one pose, without those of the other, that count for it when both are compared."""
    from scipy.spatial import cKDTree

    alone = np.setdiff1d(own.rows, other.rows)
    explained = np.isin(matched.keypoint_rows[alone], matched.keypoint_rows[other.rows])
    asked = alone[~explained]
    asked = asked[np.isin(matched.point_rows[asked], own_shown.point_rows)]
    if not len(asked) or not len(other_shown.point_rows):
        return int(explained.sum())
    # `point_rows` ascend
    places = own_shown.xy[np.searchsorted(own_shown.point_rows, matched.point_rows[asked])]
    around = math.ceil(AROUND * len(own_shown.point_rows) / max(len(own.rows), 1))
    agreeing = np.isin(other_shown.point_rows, matched.point_rows[other.rows])
    _, near = cKDTree(other_shown.xy).query(places, k=np.arange(1, min(around, len(agreeing)) + 1))
    return int(explained.sum() + (~agreeing[near].any(axis=1)).sum())


def coin(more: int, less: int) -> float:
    """Probability of at least `more` heads in `more` + `less` throws of a fair coin."""
    from scipy.special import bdtrc

    return float(bdtrc(more - 1, more + less, 0.5)) if more > 0 else 1.0


def weakest_rival(inliers: int) -> int:
    """Least number of inliers of another pose that the test of a fair coin does not tell from `inliers`."""
    low, high = 0, inliers
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if coin(inliers, middle) > COIN else (middle + 1, high)
    return low
