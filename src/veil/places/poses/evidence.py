"""Evidence for and against a pose: chance, and what a camera could have seen (docs/theory/localization.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64
from scipy.special import bdtr, bdtrc

from veil.geometry.camera import Camera, as_colmap
from veil.geometry.free_calibration import FreeCamera, Sights
from veil.geometry.rigid import Rigid
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.robust.pose_and_focal import is_searched
from veil.geometry.robust.resection_lines import MIN_OTHER_LINES
from veil.geometry.robust.significance import ALONG_ONE_WAY, Sampling, pose_log10_nfa
from veil.geometry.views import MapViews
from veil.places.poses.joint import FOCAL_SIGMAS, beyond_accident
from veil.places.poses.matches import Estimate, Matched, MatchedLines, MatchedPoints, Pairs, taken

# The evidence is counted within these parts of the inlier threshold.
THRESHOLDS = (1.0, 0.5, 0.25)
# The evidence is counted among these shares of the pairs, the most trusted ones.
NESTED = (0.25, 0.5, 1.0)
# Some right matches of a query that shows the place also support wrong poses near the right one, so that these orders of
# magnitude of the evidence of keypoints are not counted (docs/theory/localization.md).
PLACE_MARGIN = 6.0
# Limits of the size of points in the picture, relative to the map image in which their size is most alike.
LEAST_SIZE, SMALLER = 0.5, 0.8
# A photograph in the picture fills a part of it given by its size, up to this factor: photographs differ in distance.
ROOM = 1.1
# Of the most trusted features (this share, and at least these) a majority must agree with a pose whose size no image supports.
TRUSTED, LEAST_TRUSTED, MAJORITY = 0.1, 20, 0.5
# Log focal ratio, principal point (x, y) in focal lengths, half log aspect, skew: how wrong a declared calibration may be, and
# how far the free fit may go. The focal length may be off by so many of its deviations, too.
FOCAL_RANGE = 1.2
TOLERANCE = np.array([math.log(FOCAL_RANGE), 0.05, 0.05, 0.025, 0.02])
UNKNOWN_REACH = math.log(20.0)
ANY_REACH = np.array([math.log(20.0), 3.0, 3.0, 0.7, 1.0])
# Beyond this quantile of chi-square (five degrees of freedom, 1e-3) keypoints reject the calibration. Beyond that of 1e-6 lines
# do, of which each tells one number, and what weighs all of a query in steps. Least number of inliers.
CALIBRATION_DOUBT, WEIGHED_DOUBT, LEAST_FOR_CALIBRATION = 20.5, 36.0, 12
# A print in the picture: its focal ratio lies below the tolerance, and nothing else is known. Its fit starts from the shares
# `PRINTS` of the picture; a camera must fit better by `CLEARLY`, a quantile of chi-square (one degree of freedom, 1e-3).
PRINT_LEAST = np.array([-math.log(5.0), -3.0, -3.0, -0.1, -0.1])
PRINT_MOST = np.array([-math.log(FOCAL_RANGE), 3.0, 3.0, 0.1, 0.1])
PRINTS, CLEARLY = (0.5, 0.75), 10.8
# The place extends beyond the inliers if this share of its points lies this part of the picture or more outside their box.
GOES_ON, BORDER = 0.2, 0.05
# A picture ends before its border if all features lie in a window of this part of its width and height. For lines it
# ends, too, where points outside the box are inliers less than `FADED` times as often as those inside. Chance must give so
# few with at most the probability `FADED_CHANCE`.
FRAMED = 0.75
FADED, FADED_CHANCE = 0.5, 1e-3
# Largest numbers of pairs and rounds of the fit of a free calibration. Each round gathers anew the pairs
# within this multiple of the threshold, until the calibration changes by less than this.
MOST_FITTED, ROUNDS, WIDE, SETTLED = 256, 8, 2.0, 0.01
# Of two poses or cameras the better one is taken if a fair coin would favor it so clearly less often than this.
COIN = 1e-3
# A second fit begins with all pairs within such multiples of the threshold, one after the other, as the inliers of a wrong pose
# are those that hide the right camera.
NARROWING = (16.0, 8.0, 4.0)
# Such a fit counts where a fair coin gives as many more pairs with at most this probability.
HIDDEN = 1e-2
# An image shows what the camera of a pose sees if it observes this share of the pose's inliers.
COVISIBLE = 0.1

# Rows of the map's points that each of some images observes.
Observed = Sequence[Int64[np.ndarray, "_"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class PoseEvidence:
    """Inliers of a pose, and log10 of the number of poses with as good inliers that chance gives.

    `rows` are rows of the pairs. No two share a keypoint, a point of the map or a place in the picture. `expected` is the
    number of inliers that chance gives, where pairs are gathered around each pose.
    """

    rows: Int64[np.ndarray, "inliers"]
    log10_nfa: float
    expected: float = 0.0

    @property
    def above_chance(self) -> int:
        """Number of inliers beyond those that chance gives."""
        return max(0, round(len(self.rows) - self.expected))


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownPoints:
    """Points of the map that a camera shows: rows of the map's points, and their places in the picture in pixels."""

    point_rows: Int64[np.ndarray, "shown"]
    xy: Float64[np.ndarray, "shown 2"]

    @staticmethod
    def by(
        matched: Matched, estimate: Estimate, evidence: PoseEvidence, views: MapViews | None, observed: Observed | None
    ) -> ShownPoints:
        """Points that the camera of an estimated pose could see, as far as images tell that observe its inliers, too.

        What stands behind the inliers, or looks away, no image shows together with them. `observed` holds the rows of the
        points of each image; None: all points of the map.
        """
        if observed is None:
            rows = np.arange(len(matched.points))
        else:
            inliers = matched.point_rows[evidence.rows]
            chosen = covisible(inliers, observed, len(matched.points))
            seen = [inliers[:0], *(own for own, kept in zip(observed, chosen, strict=True) if kept)]
            rows = np.unique(np.concatenate(seen))
        in_camera = estimate.pose.apply(matched.points[rows])
        ahead = in_camera[:, 2] > 1e-9
        if views is not None:
            ahead[ahead] = views.possible(estimate.camera, estimate.pose, matched.points, rows[ahead])
        rows, camera = rows[ahead], estimate.camera
        xy = np.asarray(as_colmap(camera).img_from_cam(in_camera[ahead]), dtype=np.float64).reshape(-1, 2)
        inside = ((xy >= 0) & (xy <= [camera.width_px, camera.height_px])).all(axis=1)
        return ShownPoints(point_rows=rows[inside], xy=xy[inside])


def covisible(inliers: Int64[np.ndarray, "inliers"], observed: Observed, points: int) -> list[bool]:
    """Which images show what the camera of a pose sees: those that observe some of its inliers, by the number of points."""
    mask = np.zeros(points, dtype=bool)
    mask[inliers] = True
    return [bool(mask[rows].sum() >= max(1.0, COVISIBLE * len(inliers))) for rows in observed]


def beyond_chance(evidence: PoseEvidence, limits: Acceptance) -> bool:
    """Whether a pose has enough inliers, and chance gives few enough poses as good."""
    return len(evidence.rows) >= limits.min_inliers and evidence.log10_nfa <= limits.max_log10_nfa


def weigh(matched: Matched, estimate: Estimate, views: MapViews | None) -> PoseEvidence:
    """Evidence for a pose: the pairs that agree with it and that its camera could have seen, weighed against chance.

    Right matches agree far within the threshold and gather among the most trusted pairs, wrong ones do neither. So the number
    of chance poses is the least one over nested thresholds and nested sets of pairs, times their number
    (docs/theory/localization.md, Eq. 4). The rows are those of the widest threshold. Without `views` every pair counts as one
    that the camera could have seen.
    """
    projected = matched.projected(estimate)
    if views is not None:  # what the camera could not have seen agrees with it neither rightly nor by chance
        ahead = np.flatnonzero(np.isfinite(projected[:, 0]))
        projected[ahead[~matched.possible(views, estimate, ahead)]] = np.nan
    rows = matched.one_to_one(np.flatnonzero(matched.agrees(projected)))
    sets = _nested(len(matched.feature_of))
    places = [matched.places_of_first(first) for first in sets]
    agreeing = [rows[matched.agrees(projected, part, rows=rows)] for part in THRESHOLDS]
    tried = []
    for part, near in zip(THRESHOLDS, agreeing, strict=True):
        shares = matched.background.shares(projected, matched.feature_of, part)
        for first, distinct in zip(sets, places, strict=True):
            inliers = int(np.count_nonzero(near < first))
            tried.append(_chance(matched, shares[:first], distinct, inliers, matched.floor(part), matched.sampling))
        projected[shares == 0] = np.nan  # where no other feature is near, none is within the next threshold, which is less
    return PoseEvidence(rows=rows, log10_nfa=min(tried) + math.log10(len(tried)) + matched.log10_cameras)


def open_way(matched: MatchedLines, estimate: Estimate, rows: Int64[np.ndarray, "inliers"]) -> float:
    """log10 of the number of accidents that place the camera as well as the inliers `rows`, along the way left open.

    Lines through one point, as that of gravity or an anchor, let the camera slide towards it. The other lines alone say where
    it is: one of them places it, and those that agree are weighed against chance, the most trusted ones by themselves as well
    (docs/theory/lines.md, Eq. 29). The worst of all such points counts; it is -infinity where no point has two lines.
    """
    matched, rows = _beyond_accident(matched, estimate, rows)
    shares, worst = matched.background.shares(matched.projected(estimate), matched.feature_of), -math.inf
    for pencil in matched.pencils:
        if pencil.sum() < MIN_OTHER_LINES:
            continue
        others = np.flatnonzero(~pencil)
        beside, agreeing = taken(matched, others), np.isin(others, rows)
        tried = [
            _chance(
                beside,
                shares[others[:first]],
                beside.places_of_first(first),
                int(agreeing[:first].sum()),
                matched.floor(1.0),
                ALONG_ONE_WAY,
            )
            for first in _nested(len(others))
        ]
        worst = max(worst, min(tried, default=math.inf) + math.log10(max(len(tried), 1)))
    return worst


def _beyond_accident(matched: Pairs, estimate: Estimate, rows: Int64[np.ndarray, "_"]) -> tuple[Pairs, Int64[np.ndarray, "_"]]:
    """The pairs that say more than chance, and which of them are `rows`."""
    kept = beyond_accident(matched, estimate)
    return taken(matched, kept), np.flatnonzero(np.isin(kept, rows))


def _nested(count: int) -> list[int]:
    """Sizes of the sets of most trusted pairs that evidence is counted among (`NESTED`), of `count` pairs."""
    return sorted({max(1, round(share * count)) for share in NESTED}) if count else []


def _chance(matched: Matched, shares: np.ndarray, places: int, inliers: int, floor: float, sampling: Sampling) -> float:
    """log10 of the number of false alarms (docs/theory/localization.md, Eq. 3) among the first `len(shares)` pairs.

    `shares[i]` is the probability that pair i agrees by chance (Eq. 1). Their features count as `places`: those at one place
    count once. `inliers` of the pairs agree, and `floor` is the least probability that is believed.
    """
    feature_of, size = matched.feature_of[: len(shares)], matched.sampling.size
    count = max(places, inliers)
    if count <= size:
        return math.inf
    summed = np.minimum(np.bincount(feature_of, shares), 1.0).sum()
    # The sample's own keypoints are left out of the mean, at worst those that agree least.
    agreement = min(max(floor, float(summed) / (count - size)), 1.0)
    return pose_log10_nfa(inliers, count, agreement, sampling) + size * math.log10(max(len(feature_of) / count, 1.0))


# Of two cameras of a query, how much better the first explains it: twice the log likelihood ratio.
Doubt = Callable[[FreeCamera, FreeCamera], float]


def pictured(
    matched: Matched,
    estimate: Estimate,
    evidence: PoseEvidence,
    views: MapViews | None,
    observed: Observed | None = None,
    doubt: Doubt | None = None,
) -> bool:
    """Whether the camera more likely saw a photograph of the place, on a wall or a screen, than the place itself.

    That is so in each of four cases (docs/theory/localization.md#what-a-camera-could-have-seen):

    - The inliers' points are less than half as large in the picture as in the map image in which their size is most alike.
    - They are smaller by a fifth or more, and either all features lie in that part of the picture, as if it ended where a
      photograph does, or most of the most trusted features disagree with the pose.
    - A camera of another calibration explains the pairs clearly better.
    - All features, or all that the map knows, lie in a window of the picture though the place extends beyond it, and such a
      camera explains the pairs about as well.

    `observed` holds the rows of the points of each image that was matched; None: all points of the map. `doubt` compares two
    cameras, by default by how well the pairs fit.
    """
    rows = evidence.rows
    size = (
        1.0 if views is None else views.magnification(estimate.camera, estimate.pose, matched.points, matched.point_rows[rows])
    )
    if size < LEAST_SIZE or (size < SMALLER and (matched.fits_in(ROOM * size) or _contradicted(matched, estimate))):
        return True
    if contradicts_calibration(matched, estimate, rows, doubt):
        return True
    return views is not None and _may_be_framed(matched, estimate, evidence, views, observed)


def _may_be_framed(
    matched: Matched, estimate: Estimate, evidence: PoseEvidence, views: MapViews, observed: Observed | None
) -> bool:
    """Whether the place extends beyond what the query shows of it, and a print in that window fits as well.

    A picture that ends before its border, where the map says that the camera would see more, may well show a print. So the
    burden of proof is reversed: the best camera within the tolerance must fit better than the best one with a print's focal
    length. The picture ends where its features do. Lines of other things cross any window, and each tells one number only; for
    them it also ends where the map's points cease to be inliers.
    """
    rows = evidence.rows
    if matched.is_searched or len(rows) < LEAST_FOR_CALIBRATION:  # a print of a guessed focal length is any picture
        return False
    is_framed = matched.fits_in(FRAMED)
    if isinstance(matched, MatchedPoints) and not is_framed:
        return False
    extent = _extent(matched, evidence, ShownPoints.by(matched, estimate, evidence, views, observed))
    if not (is_framed and extent.goes_on) and (isinstance(matched, MatchedPoints) or not extent.is_faded):
        return False
    declared, sights, reach = _free(matched, estimate), matched.normalized(matched.camera), tolerance(matched.camera)
    for share in PRINTS:
        shrunk = _shrunk(declared, sights.take(rows), share)
        printed = _gathered(matched, sights, shrunk, rows, PRINT_MOST, PRINT_LEAST)
        if printed is not None and _doubt(matched, sights, declared, printed, reach, PRINT_MOST, PRINT_LEAST) > -CLEARLY:
            return True
    return False


@dataclass(frozen=True, kw_only=True)
class Extent:
    """Numbers of the map's points that a camera shows inside and outside of the box around nearly all inliers' points.

    `seen_inside` and `seen_outside` are those that are inliers.
    """

    inside: int
    outside: int
    seen_inside: int
    seen_outside: int

    @property
    def goes_on(self) -> bool:
        """Whether much of the place lies outside (`GOES_ON`)."""
        return self.outside >= GOES_ON * max(self.inside + self.outside, 1)

    @property
    def is_faded(self) -> bool:
        """Whether the points outside are inliers far less often than those inside (`FADED`)."""
        rate = FADED * self.seen_inside / max(self.inside, 1)
        return bool(bdtr(self.seen_outside, self.outside, rate) <= FADED_CHANCE)


def _extent(matched: Matched, evidence: PoseEvidence, shown: ShownPoints) -> Extent:
    """How many of the map's points that a camera shows lie around its inliers, and how many beyond."""
    size = np.array([matched.camera.width_px, matched.camera.height_px])
    seen = np.isin(shown.point_rows, matched.point_rows[evidence.rows])
    if not seen.any():
        return Extent(inside=0, outside=len(seen), seen_inside=0, seen_outside=0)
    low, high = np.percentile(shown.xy[seen], [5, 95], axis=0)  # a few of them agree by chance
    outside = ((shown.xy < low - BORDER * size) | (shown.xy > high + BORDER * size)).any(axis=1)
    return Extent(
        inside=int((~outside).sum()),
        outside=int(outside.sum()),
        seen_inside=int((seen & ~outside).sum()),
        seen_outside=int((seen & outside).sum()),
    )


def _free(matched: Matched, estimate: Estimate) -> FreeCamera:
    """The camera of an estimate, its focal length as an offset from the declared one."""
    return FreeCamera(pose=estimate.pose, offsets=np.array([matched.log_focal(estimate), 0.0, 0.0, 0.0, 0.0]))


def _shrunk(camera: FreeCamera, observed: Sights, share: float) -> FreeCamera:
    """Camera with `share` of the focal length that shows the middle of the points at the same place and of the same size."""
    pose = camera.pose
    middle = np.median(observed.points, axis=0)
    in_camera = pose.rotation @ middle + pose.translation
    right, down = (1 - share) * in_camera[:2] / max(float(in_camera[2]), 1e-9)
    nearer = Rigid(rotation=pose.rotation, translation=share * in_camera - pose.rotation @ middle)
    offsets = np.array([math.log(share), right, down, 0.0, 0.0])
    return FreeCamera(pose=nearer, offsets=camera.offsets + offsets)


def _contradicted(matched: Matched, estimate: Estimate) -> bool:
    """Whether a majority of the most trusted features disagrees with the pose."""
    _, first = np.unique(matched.keypoint_rows, return_index=True)
    trusted = matched.keypoint_rows[np.sort(first)][: max(LEAST_TRUSTED, round(TRUSTED * len(first)))]
    agreeing = matched.keypoint_rows[matched.agrees(matched.projected(estimate))]
    return float(np.isin(trusted, agreeing).mean()) < MAJORITY


def tolerance(camera: Camera, least_focal: float = TOLERANCE[0]) -> Float64[np.ndarray, "5"]:
    """Largest offsets of a calibration from a declared one, as `FreeCamera` has them; the focal ratio's at least as given."""
    focal = UNKNOWN_REACH if is_searched(camera.focal) else FOCAL_SIGMAS * camera.focal.deviation
    return np.array([max(least_focal, focal), *TOLERANCE[1:]])


def contradicts_calibration(
    matched: Matched, estimate: Estimate, rows: Int64[np.ndarray, "_"], doubt: Doubt | None = None
) -> bool:
    """Whether the pairs fit far better with another calibration than with the declared one.

    A photograph of a photograph is seen by its own camera followed by a homography: five more parameters, all far off unless it
    fills the picture (docs/theory/localization.md, Eq. 5). The test is the likelihood ratio (Wilks 1938) of the best camera to
    the best one within the tolerance of a declared calibration, with Laplace's law for the distances. The fit begins at the
    pose's own calibration, at those of the `PRINTS`, and with all pairs near the pose, whose inliers may hide a print. It also
    finds poses that are turned away from the right one. `doubt` takes the place of the ratio where the pairs are not all that
    tells; the focal length is then known to its deviation.
    """
    if len(rows) < LEAST_FOR_CALIBRATION:
        return False
    if doubt is None:
        matched, rows = _beyond_accident(matched, estimate, rows)
    observed, declared = matched.normalized(matched.camera), _free(matched, estimate)
    by_points = doubt is None and isinstance(matched, MatchedPoints)
    limit = CALIBRATION_DOUBT if by_points else WEIGHED_DOUBT
    reach = tolerance(matched.camera) if doubt is None else tolerance(matched.camera, 0.0)

    def is_doubted(other: FreeCamera | None) -> bool:
        if other is None or (np.abs(other.offsets) <= reach).all():
            return False
        if doubt is None:
            return _doubt(matched, observed, declared, other, reach, ANY_REACH, -ANY_REACH) > limit
        near = observed.take(matched.nearest(observed.residuals(other), matched.limit(matched.camera)))
        return min(doubt(other, declared), doubt(other, near.fitted(other, reach))) > limit

    for start in (declared, *(_shrunk(declared, observed.take(rows), share) for share in PRINTS)):
        if is_doubted(_gathered(matched, observed, start, rows, ANY_REACH, -ANY_REACH)):
            return True
    hidden = _gathered(matched, observed, *_narrowed(matched, observed, declared), ANY_REACH, -ANY_REACH)
    return hidden is not None and _explains_more(matched, observed, hidden, declared) and is_doubted(hidden)


def _gathered(
    matched: Matched, observed: Sights, camera: FreeCamera, rows: Int64[np.ndarray, "_"], most: np.ndarray, least: np.ndarray
) -> FreeCamera | None:
    """Camera with offsets between `least` and `most`, fitted to the pairs `rows` and then to the pairs that agree with it.

    The fit is repeated until the camera settles. None if too few pairs agree.
    """
    for _ in range(ROUNDS):
        if len(rows) < LEAST_FOR_CALIBRATION:
            return None
        last, camera = camera, observed.take(_few(rows)).fitted(camera, most, least)
        if np.abs(camera.offsets - last.offsets).max() <= SETTLED:
            break
        rows = matched.nearest(observed.residuals(camera), WIDE * matched.limit(matched.camera))
    return camera


def _narrowed(matched: Matched, observed: Sights, camera: FreeCamera) -> tuple[FreeCamera, Int64[np.ndarray, "_"]]:
    """The free camera that all pairs near those of a camera lead to as they are narrowed down, and the rows of these pairs."""
    limit = matched.limit(matched.camera)
    rows = matched.nearest(observed.residuals(camera), NARROWING[0] * limit)
    for window in (*NARROWING[1:], WIDE):
        if len(rows) < LEAST_FOR_CALIBRATION:
            break
        camera = observed.take(_few(rows)).fitted(camera, ANY_REACH, -ANY_REACH)
        rows = matched.nearest(observed.residuals(camera), window * limit)
    return camera, rows


def _explains_more(matched: Matched, observed: Sights, camera: FreeCamera, other: FreeCamera) -> bool:
    """Whether more pairs agree with a camera than with another one, of those that agree with one of both (`HIDDEN`)."""
    limit = matched.limit(matched.camera)
    own, others = (matched.nearest(observed.residuals(one), limit) for one in (camera, other))
    return coin(len(np.setdiff1d(own, others)), len(np.setdiff1d(others, own))) <= HIDDEN


def coin(more: int, less: int) -> float:
    """Probability of at least `more` heads in `more` + `less` throws of a fair coin."""
    return float(bdtrc(more - 1, more + less, 0.5)) if more > 0 else 1.0


def _doubt(
    matched: Matched,
    observed: Sights,
    start: FreeCamera,
    other: FreeCamera,
    reach: np.ndarray,
    most: np.ndarray,
    least: np.ndarray,
) -> float:
    """Twice the log likelihood ratio of the camera fitted from `other` to the best one within `reach` of the declared one.

    The former has offsets between `least` and `most`. Pairs count that agree with `start` or with `other`.
    """
    limit = matched.limit(matched.camera)
    gaps = np.minimum(observed.residuals(start), observed.residuals(other))
    part = observed.take(_few(matched.nearest(gaps, limit)))

    def misfit(camera: FreeCamera) -> float:
        return max(float(np.minimum(part.residuals(camera), limit).mean()), 1e-12)

    declared = min(misfit(part.fitted(camera, reach)) for camera in (start, other))
    return 2 * len(part.points) * math.log(declared / misfit(part.fitted(other, most, least)))


def _few(rows: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
    """At most `MOST_FITTED` of the rows, taken at even steps."""
    return rows[:: -(-len(rows) // MOST_FITTED) or 1]


def too_few(matched: Matched, evidence: PoseEvidence, max_log10_nfa: float, margin: float | None = None) -> bool:
    """Whether the evidence is within the margin that a few right matches and accidents can give a wrong pose.

    By default it is `PLACE_MARGIN` for keypoints, and none for lines, which show no such poses.
    """
    if margin is None:
        margin = PLACE_MARGIN if isinstance(matched, MatchedPoints) else 0.0
    return evidence.log10_nfa > max_log10_nfa - margin
