"""What weighs a pose: chance, what a camera could have seen, and other poses (docs/theory/localization.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int64

from veil.geometry.significance import chance_poses
from veil.geometry.views import MapViews
from veil.matched_features import Estimate, Matched, MatchedLines

# A match is weighed within these parts of the threshold.
THRESHOLDS = (1.0, 0.5, 0.25)
# Pairs are weighed among these shares of them, the most trusted ones.
NESTED = (0.25, 0.5, 1.0)
# Of two poses the better one is taken if a fair coin would favor it so clearly less often than this.
COIN = 1e-3
# Sizes of points in the picture, beside the image of the map that shows them most alike.
LEAST_SIZE, SMALLER = 0.5, 0.8
# A photograph shown at this size fills no more of the picture, but for what photographs of one place differ in distance.
ROOM = 1.1
# Past this quantile of chi-square (one degree of freedom, 1e-6) the pose is of a camera with another focal length.
FOCAL_DOUBT, LEAST_FOR_FOCAL = 24.0, 8


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
    shows nothing beyond them, as if it ended where that photograph does; or another focal length explains them clearly better.
    """
    rows = evidence.rows
    size = 1.0 if views is None else views.magnification(found.camera, found.pose, matched.points, matched.point_rows[rows])
    if size < LEAST_SIZE or (size < SMALLER and matched.fits_in(ROOM * size)):
        return True
    if not matched.camera.focal_is_known or len(rows) < LEAST_FOR_FOCAL:
        return False
    # Lines have no solver for it; trying several focal lengths is worth its time only where the size is odd.
    if isinstance(matched, MatchedLines) and size >= SMALLER:
        return False
    return contradicts_focal(matched, found, rows)


def contradicts_focal(matched: Matched, found: Estimate, rows: Int64[np.ndarray, "_"]) -> bool:
    """Whether the declared focal length is wrong beyond doubt: the inliers fit far better with another one.

    The likelihood ratio of one more parameter (Wilks 1938), with Laplace's law for the distances.
    """
    before, after = matched.misfit(found, rows), matched.with_other_focal(found, rows)
    return (
        after is not None and after < before and 2 * len(rows) * math.log(max(before, 1e-12) / max(after, 1e-12)) > FOCAL_DOUBT
    )


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

    It is sought among the pairs that the pose leaves, and shares at most half of its inliers. Pairs that agree with both say
    nothing; of those that agree with one only, a fair coin decides whether one pose has clearly more (McNemar 1947).
    """
    rest = np.flatnonzero(~matched.agrees(matched.projected(found), 2.0))
    most = min(len(np.unique(matched.keypoint_rows[rest])), len(np.unique(matched.point_rows[rest])))
    needed = max(min_inliers, weakest_rival(len(evidence.rows) // 2))
    if most < needed:
        return None
    other = matched.estimate(rest, share=needed / len(rest))
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
