"""What weighs a pose: chance, what a camera could have seen, and other poses (docs/theory/localization.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.free_calibration import FreeCamera
from veil.geometry.significance import chance_poses
from veil.geometry.views import MapViews
from veil.matched_features import Estimate, Matched

# A match is weighed within these parts of the threshold.
THRESHOLDS = (1.0, 0.5, 0.25)
# Pairs are weighed among these shares of them, the most trusted ones.
NESTED = (0.25, 0.5, 1.0)
# Of two poses the better one is taken if a fair coin would favor it so clearly less often than this.
COIN = 1e-3
# The other one is sought among at least so many pairs for each of its inliers.
RIVAL_ROOM = 4
# Sizes of points in the picture, beside the image of the map that shows them most alike.
LEAST_SIZE, SMALLER = 0.5, 0.8
# A photograph shown at this size fills no more of the picture, but for what photographs of one place differ in distance.
ROOM = 1.1
# Of the most trusted features (this share, at least so many) a majority must agree with a pose whose size no image supports.
TRUSTED, LEAST_TRUSTED, MAJORITY = 0.1, 20, 0.5
# What a declared calibration may be wrong by: focal ratio, principal point in focal lengths, aspect ratio, skew; and what a
# photograph of a photograph may have.
FOCAL_RANGE, SHIFT, ASPECT, SKEW = 1.2, 0.05, 1.05, 0.02
ANY_FOCAL = 20.0
ANY_REACH = np.array([math.log(ANY_FOCAL), 3.0, 3.0, 0.7, 1.0])
# Past this quantile of chi-square (five degrees of freedom, 1e-6) the picture is of a camera with another calibration.
CALIBRATION_DOUBT, LEAST_FOR_CALIBRATION = 36.0, 12
# That camera is fitted to at most so many pairs; in so many rounds the pairs within so many thresholds are gathered anew, until
# its calibration changes by less than this.
MOST_SIGHTS, ROUNDS, WIDE, SETTLED = 256, 8, 2.0, 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class Evidence:
    """Rows of the matches that speak for a pose, each a keypoint, a point and a place of its own, and how many such poses
    chance gives (log10)."""

    rows: Int64[np.ndarray, "inliers"]
    log10_nfa: float


def weigh(matched: Matched, found: Estimate, views: MapViews | None) -> Evidence:
    """What speaks for a pose: pairs that agree with it and that its camera could have seen, against what chance gives.

    Right matches agree far within the threshold and gather among the most trusted pairs, and chance does neither: the least
    over nested thresholds and nested sets of pairs, times their number (docs/theory/localization.md, Eq. 4). The rows are
    those of the widest threshold.
    """
    projected = matched.projected(found)
    if views is not None:  # what the camera could not have seen agrees with it neither rightly nor by chance
        projected[~views.possible(found.camera, found.pose, matched.points, matched.point_rows)] = np.nan
    rows = one_to_one(np.flatnonzero(matched.agrees(projected)), matched)
    kept = matched.distinct(np.unique(matched.own, return_index=True)[1])
    sets = sorted({max(1, round(share * len(matched.own))) for share in NESTED})
    tried = []
    for part in THRESHOLDS:
        shares = matched.background.shares(projected, matched.own, part)
        agreeing = rows[matched.agrees(projected, part)[rows]]
        for first in sets:
            inliers = int(np.count_nonzero(agreeing < first))
            tried.append(_chance(matched, shares[:first], kept, inliers, matched.floor(part)))
    return Evidence(rows=rows, log10_nfa=min(tried) + math.log10(len(tried)))


def _chance(matched: Matched, shares: np.ndarray, kept: np.ndarray, inliers: int, floor: float) -> float:
    """log10 NFA among the first pairs, those of `shares`; `kept` tells which features stand at places of their own."""
    own, size = matched.own[: len(shares)], matched.sampling.size
    count = max(int(kept[np.unique(own)].sum()), inliers)
    if count <= size:
        return math.inf
    summed = np.minimum(np.bincount(own, shares), 1.0).sum()
    # The sample's own keypoints are left out of the mean, at worst those that agree least.
    agreement = min(max(floor, float(summed) / (count - size)), 1.0)
    return chance_poses(inliers, count, agreement, matched.sampling) + size * math.log10(max(len(own) / count, 1.0))


def pictured(matched: Matched, found: Estimate, evidence: Evidence, views: MapViews | None) -> bool:
    """Whether what the camera saw is rather a photograph of the place on a wall or a screen than the place.

    Its points are less than half as large in the picture as in any image of the map; or they are smaller, and the picture
    shows nothing beyond them, as if it ended where that photograph does, or most of what it shows best belongs elsewhere; or a
    camera of another calibration explains them clearly better.
    """
    rows = evidence.rows
    size = 1.0 if views is None else views.magnification(found.camera, found.pose, matched.points, matched.point_rows[rows])
    if size < LEAST_SIZE or (size < SMALLER and (matched.fits_in(ROOM * size) or _contradicted(matched, found))):
        return True
    return contradicts_calibration(matched, found, rows)


def _contradicted(matched: Matched, found: Estimate) -> bool:
    """Whether most of the most trusted features disagree with the pose."""
    _, first = np.unique(matched.keypoint_rows, return_index=True)
    trusted = matched.keypoint_rows[np.sort(first)][: max(LEAST_TRUSTED, round(TRUSTED * len(first)))]
    agreeing = matched.keypoint_rows[matched.agrees(matched.projected(found))]
    return float(np.isin(trusted, agreeing).mean()) < MAJORITY


def contradicts_calibration(matched: Matched, found: Estimate, rows: Int64[np.ndarray, "_"]) -> bool:
    """Whether the declared calibration is wrong beyond doubt: the pairs fit far better with another one.

    A photograph of a photograph is seen by its own camera followed by a homography: five more parameters, all far off unless it
    fills the picture. The likelihood ratio (Wilks 1938) of the best camera to the best one within the tolerance of a declared
    calibration, with Laplace's law for the distances.
    """
    if len(rows) < LEAST_FOR_CALIBRATION:
        return False
    sights, limit = matched.sights(found), matched.max_error_px / matched.camera.focal_px
    focal = FOCAL_RANGE if matched.camera.focal_is_known else ANY_FOCAL
    reach = np.array([math.log(focal), SHIFT, SHIFT, 0.5 * math.log(ASPECT), SKEW])
    start = other = FreeCamera(pose=found.pose)
    for _ in range(ROUNDS):
        last, other = other, sights.take(_few(rows)).fitted(other, ANY_REACH)
        if np.abs(other.offsets - last.offsets).max() <= SETTLED:
            break
        rows = _agreeing(matched, sights.residuals(other), WIDE * limit)
        if len(rows) < LEAST_FOR_CALIBRATION:
            return False
    if (np.abs(other.offsets) <= reach).all():
        return False
    part = sights.take(_few(_agreeing(matched, np.minimum(sights.residuals(start), sights.residuals(other)), limit)))

    def misfit(camera: FreeCamera) -> float:
        return max(float(np.minimum(part.residuals(camera), limit).mean()), 1e-12)

    declared = min(misfit(part.fitted(camera, reach)) for camera in (start, other))
    best = misfit(part.fitted(other, ANY_REACH))
    return 2 * len(part.points) * math.log(declared / best) > CALIBRATION_DOUBT


def _few(rows: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
    """At most `MOST_SIGHTS` of them, evenly."""
    return rows[:: -(-len(rows) // MOST_SIGHTS) or 1]


def _agreeing(matched: Matched, gaps: Float64[np.ndarray, "pairs"], limit: float) -> Int64[np.ndarray, "_"]:
    """Pairs within `limit`, one to one, the nearest first."""
    near = np.flatnonzero(gaps <= limit)
    return one_to_one(near[np.argsort(gaps[near], kind="stable")], matched)


def one_to_one(rows: Int64[np.ndarray, "_"], matched: Matched) -> Int64[np.ndarray, "_"]:
    """Rows of which no two share a keypoint, a point, or a place: repeats are no further evidence."""
    for column in (matched.keypoint_rows, matched.point_rows):
        _, first = np.unique(column[rows], return_index=True)
        rows = rows[np.sort(first)]
    return rows[matched.distinct(rows)]


def rival(
    matched: Matched, found: Estimate, evidence: Evidence, views: MapViews | None, *, min_inliers: int, max_log10_nfa: float
) -> Evidence | None:
    """The evidence of another pose that is beyond chance as well and nearly as strong, or None.

    It is sought among the most trusted of the pairs that the pose leaves, and shares at most half of its inliers.
    Pairs that agree with both say nothing; of those that agree with one only, a fair coin decides whether one pose has clearly
    more (McNemar 1947).
    """
    rest = np.flatnonzero(~matched.agrees(matched.projected(found), 2.0))
    most = min(len(np.unique(matched.keypoint_rows[rest])), len(np.unique(matched.point_rows[rest])))
    needed = max(min_inliers, weakest_rival(len(evidence.rows) // 2))
    if most < needed:
        return None
    first = rest[: max(round(matched.rival_part * len(rest)), RIVAL_ROOM * needed)]
    other = matched.estimate(first, share=needed / len(first))
    if other is None:
        return None
    second = weigh(matched, other, views)
    alone = np.setdiff1d(evidence.rows, second.rows).size, np.setdiff1d(second.rows, evidence.rows).size
    weak = len(second.rows) < min_inliers or second.log10_nfa > max_log10_nfa
    return None if weak or coin(*alone) <= COIN else second


def coin(more: int, less: int) -> float:
    """Probability that of `more` + `less` throws of a fair coin at least `more` are heads."""
    from scipy.special import bdtrc

    return float(bdtrc(more - 1, more + less, 0.5)) if more > 0 else 1.0


def weakest_rival(inliers: int) -> int:
    """The fewest inliers of another pose that a coin does not tell from `inliers`."""
    low, high = 0, inliers
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if coin(inliers, middle) > COIN else (middle + 1, high)
    return low
