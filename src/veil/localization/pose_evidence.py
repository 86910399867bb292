"""What weighs a pose: chance, what a camera could have seen, and other poses (docs/theory/localization.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.camera import as_colmap
from veil.geometry.free_calibration import FreeCamera, Sights
from veil.geometry.rigid import Rigid
from veil.geometry.robust.significance import pose_log10_nfa
from veil.geometry.views import MapViews
from veil.localization.matched_features import Estimate, Matched, MatchedPoints

# A match is weighed within these parts of the threshold.
THRESHOLDS = (1.0, 0.5, 0.25)
# Pairs are weighed among these shares of them, the most trusted ones.
NESTED = (0.25, 0.5, 1.0)
# Of two poses the better one is taken if a fair coin would favor it so clearly less often than this.
COIN = 1e-3
# The other one is sought among at least so many pairs for each of its inliers.
RIVAL_ROOM = 4
# A noise below this is luck. Of a query that sees the place some right matches also speak for wrong poses near the right one:
# so many orders of the evidence of keypoints are not counted (docs/theory/localization.md).
NOISE_FLOOR_PX, PLACE_MARGIN = 0.5, 6.0
# Sizes of points in the picture, beside the image of the map that shows them most alike.
LEAST_SIZE, SMALLER = 0.5, 0.8
# A photograph shown at this size fills no more of the picture, but for what photographs of one place differ in distance.
ROOM = 1.1
# Of the most trusted features (this share, at least so many) a majority must agree with a pose whose size no image supports.
TRUSTED, LEAST_TRUSTED, MAJORITY = 0.1, 20, 0.5
# Log focal ratio, principal point in focal lengths, half log aspect, skew: what a declared calibration may be wrong by (with a
# focal length that is not known, too), and what a print may have.
FOCAL_RANGE = 1.2
TOLERANCE = np.array([math.log(FOCAL_RANGE), 0.05, 0.05, 0.025, 0.02])
TOLERANCE_UNKNOWN = np.array([math.log(20.0), 0.05, 0.05, 0.025, 0.02])
ANY_REACH = np.array([math.log(20.0), 3.0, 3.0, 0.7, 1.0])
# Past this quantile of chi-square (five degrees of freedom, 1e-6) the picture is of a camera with another calibration.
CALIBRATION_DOUBT, LEAST_FOR_CALIBRATION = 36.0, 12
# A print in the picture: its focal ratio lies below the tolerance, nothing else is known of it; the shares that the fit starts
# from; and the quantile of chi-square (one degree of freedom, 1e-3) by which a camera must be told from it.
PRINT_LEAST = np.array([-math.log(5.0), -3.0, -3.0, -0.1, -0.1])
PRINT_MOST = np.array([-math.log(FOCAL_RANGE), 3.0, 3.0, 0.1, 0.1])
PRINTS, CLEARLY = (0.5, 0.75), 10.8
# The place goes on where so large a share of its points lies beyond what agrees, by more than this part of the picture.
GOES_ON, BORDER = 0.2, 0.05
# A picture ends before its border if all features lie in a window of this part of its width and height.
FRAMED = 0.75
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
    return pose_log10_nfa(inliers, count, agreement, matched.sampling) + size * math.log10(max(len(own) / count, 1.0))


def pictured(matched: Matched, found: Estimate, evidence: Evidence, views: MapViews | None) -> bool:
    """Whether what the camera saw is rather a photograph of the place on a wall or a screen than the place.

    Its points are less than half as large in the picture as in any image of the map; or they are smaller, and the picture
    shows nothing beyond them, as if it ended where that photograph does, or most of what it shows best belongs elsewhere; or a
    camera of another calibration explains them clearly better, or as well where the picture ends before its border.
    """
    rows = evidence.rows
    size = 1.0 if views is None else views.magnification(found.camera, found.pose, matched.points, matched.point_rows[rows])
    if size < LEAST_SIZE or (size < SMALLER and (matched.fits_in(ROOM * size) or _contradicted(matched, found))):
        return True
    return contradicts_calibration(matched, found, rows) or _may_be_framed(matched, found, rows, views)


def _may_be_framed(matched: Matched, found: Estimate, rows: Int64[np.ndarray, "_"], views: MapViews | None) -> bool:
    """Whether all features lie within a frame though the place goes on, and nothing clearly speaks against a print there.

    What ends before the border, where the map says that the camera would see more, may well be a print. So the burden is the
    other way round: the best camera within the tolerance must fit better than the best one whose focal length is a print's.
    """
    if not matched.camera.focal_is_known or len(rows) < LEAST_FOR_CALIBRATION or not matched.fits_in(FRAMED):
        return False
    if views is None or _beyond(matched, found, rows, views) < GOES_ON:
        return False
    declared, sights = FreeCamera(pose=found.pose), matched.sights(found)
    for share in PRINTS:
        shrunk = _shrunk(found.pose, sights.take(rows), share)
        print_of = _gathered(matched, sights, shrunk, rows, PRINT_MOST, PRINT_LEAST)
        if print_of is not None and _doubt(matched, sights, declared, print_of, TOLERANCE, PRINT_MOST, PRINT_LEAST) > -CLEARLY:
            return True
    return False


def _beyond(matched: Matched, found: Estimate, rows: Int64[np.ndarray, "_"], views: MapViews) -> float:
    """Of the map's points that the camera could see, the share that lies beyond the box of nearly all that agree."""
    in_camera = found.pose.apply(matched.points)
    ahead = np.flatnonzero(in_camera[:, 2] > 1e-9)
    ahead = ahead[views.possible(found.camera, found.pose, matched.points, ahead)]
    xy = np.full((len(in_camera), 2), np.nan)
    xy[ahead] = np.asarray(as_colmap(found.camera).img_from_cam(in_camera[ahead])).reshape(-1, 2)
    size = np.array([found.camera.width_px, found.camera.height_px])
    seen = ((xy >= 0) & (xy <= size)).all(axis=1)
    own = xy[matched.point_rows[rows]]
    low, high = np.nanpercentile(own, [5, 95], axis=0)  # a few of them agree by chance
    outside = seen & ((xy < low - BORDER * size) | (xy > high + BORDER * size)).any(axis=1)
    return float(outside.sum() / max(seen.sum(), 1))


def _shrunk(pose: Rigid, sights: Sights, share: float) -> FreeCamera:
    """The camera of `share` of the focal length that sees the middle of the points where the pose does, as large."""
    middle = np.median(sights.points, axis=0)
    seen = pose.rotation @ middle + pose.translation
    right, down = (1 - share) * seen[:2] / max(float(seen[2]), 1e-9)
    nearer = Rigid(rotation=pose.rotation, translation=share * seen - pose.rotation @ middle)
    return FreeCamera(pose=nearer, offsets=np.array([math.log(share), right, down, 0.0, 0.0]))


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
    calibration, with Laplace's law for the distances. A pose that is turned away from the right one shows here, too.
    """
    if len(rows) < LEAST_FOR_CALIBRATION:
        return False
    sights, start = matched.sights(found), FreeCamera(pose=found.pose)
    reach = TOLERANCE if matched.camera.focal_is_known else TOLERANCE_UNKNOWN
    other = _gathered(matched, sights, start, rows, ANY_REACH, -ANY_REACH)
    if other is None or (np.abs(other.offsets) <= reach).all():
        return False
    return _doubt(matched, sights, start, other, reach, ANY_REACH, -ANY_REACH) > CALIBRATION_DOUBT


def _gathered(
    matched: Matched, sights: Sights, camera: FreeCamera, rows: Int64[np.ndarray, "_"], most: np.ndarray, least: np.ndarray
) -> FreeCamera | None:
    """The camera fitted to the rows, then to the pairs that agree with it, until it changes no more; None if too few do."""
    for _ in range(ROUNDS):
        last, camera = camera, sights.take(_few(rows)).fitted(camera, most, least)
        if np.abs(camera.offsets - last.offsets).max() <= SETTLED:
            break
        rows = _agreeing(matched, sights.residuals(camera), WIDE * _limit(matched))
        if len(rows) < LEAST_FOR_CALIBRATION:
            return None
    return camera


def _doubt(
    matched: Matched,
    sights: Sights,
    start: FreeCamera,
    other: FreeCamera,
    reach: np.ndarray,
    most: np.ndarray,
    least: np.ndarray,
) -> float:
    """How much better the other camera, between `least` and `most`, explains what agrees with either than the best one within
    `reach` of the declared calibration: twice the log likelihood ratio."""
    limit = _limit(matched)
    part = sights.take(_few(_agreeing(matched, np.minimum(sights.residuals(start), sights.residuals(other)), limit)))

    def misfit(camera: FreeCamera) -> float:
        return max(float(np.minimum(part.residuals(camera), limit).mean()), 1e-12)

    declared = min(misfit(part.fitted(camera, reach)) for camera in (start, other))
    return 2 * len(part.points) * math.log(declared / misfit(part.fitted(other, most, least)))


def _limit(matched: Matched) -> float:
    """The threshold in the normalized plane."""
    return matched.max_error_px / matched.camera.focal_px


def _few(rows: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
    """At most `MOST_SIGHTS` of them, evenly."""
    return rows[:: -(-len(rows) // MOST_SIGHTS) or 1]


def _agreeing(matched: Matched, gaps: Float64[np.ndarray, "pairs"], limit: float) -> Int64[np.ndarray, "_"]:
    """Pairs within `limit`, one to one, the nearest first."""
    near = np.flatnonzero(gaps <= limit)
    return one_to_one(near[np.argsort(gaps[near], kind="stable")], matched)


def turn_deviation_deg(matched: Matched, found: Estimate, rows: Int64[np.ndarray, "_"]) -> float:
    """Standard deviation of the pose's turn, in degrees, as the residuals of these pairs tell it (theory, Eq. 6)."""
    least = NOISE_FLOOR_PX / matched.camera.focal_px
    fitted = isinstance(matched, MatchedPoints) and not matched.camera.focal_is_known
    sights = matched.sights(found).take(rows)
    return math.degrees(sights.turn_deviation(FreeCamera(pose=found.pose), least_noise=least, free_focal=fitted))


def too_few(matched: Matched, evidence: Evidence, max_log10_nfa: float) -> bool:
    """Whether the inliers are keypoints so few that right matches of a query of the place, and accidents, explain them."""
    margin = PLACE_MARGIN if isinstance(matched, MatchedPoints) else 0.0
    return evidence.log10_nfa > max_log10_nfa - margin


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
