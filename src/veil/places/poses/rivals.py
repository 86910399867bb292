"""Rival poses: another pose that explains a query nearly as well, and which of two poses is clearly better.

Theory: docs/theory/localization.md#one-camera-one-pose, localization.md#a-place-and-its-copies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64, Int64
from scipy.spatial import cKDTree
from scipy.special import bdtrc

from veil.geometry.camera import as_colmap
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.views import MapViews
from veil.places.poses.evidence import PoseEvidence, beyond_chance, weigh
from veil.places.poses.matches import Estimate, Matched

# Of two poses the better one is taken if a fair coin would favor it so clearly less often than this.
COIN = 1e-3
# A feature speaks against a pose if the camera there shows these points around it, times the points for each inlier of the
# pose that explains the feature, and none of them is an inlier (docs/theory/localization.md#a-place-and-its-copies).
AROUND = 6
# Least number of pairs among which a rival pose is sought, for each inlier that it needs.
RIVAL_ROOM = 4
# Number of other poses with which one is compared at most. If a query has as many, the last one counts as nearly as strong.
MOST_RIVALS = 32
# An image shows what the camera of a pose sees if it observes this share of the pose's inliers.
COVISIBLE = 0.1

# Rows of the map's points that each of some images observes.
Observed = Sequence[Int64[np.ndarray, "_"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class WeighedPose:
    """An estimated pose of a query and its evidence."""

    estimate: Estimate
    evidence: PoseEvidence


@dataclass(frozen=True, kw_only=True, eq=False)
class Rival(WeighedPose):
    """Another pose of a query than the one that is judged, and whether it is clearly better or worse."""

    is_better: bool = False
    is_worse: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class Rivals:
    """Other poses than the one that is judged: one that nothing tells from it, or None, and those that are clearly worse."""

    equal: Rival | None
    worse: list[Rival]

    @property
    def all(self) -> list[Rival]:
        """All of them, the one that nothing tells from the pose last."""
        return self.worse if self.equal is None else [*self.worse, self.equal]


class Contest(ABC):
    """Search, weights and comparison of other poses of one query."""

    @abstractmethod
    def others(
        self, pose: WeighedPose, needed: int, *, among: Int64[np.ndarray, "_"] | None, known: Sequence[Estimate]
    ) -> Iterator[Estimate]:
        """Poses beside `pose` and the `known` ones, the strongest first, that may have `needed` inliers (see `rivals`)."""

    @abstractmethod
    def weighed(self, other: Estimate) -> PoseEvidence:
        """Evidence for another pose."""

    @abstractmethod
    def clearly_better(self, first: WeighedPose, second: WeighedPose) -> bool:
        """Whether the first of two poses explains clearly more (`coin`)."""

    def is_same(self, pose: WeighedPose, other: WeighedPose) -> bool:
        """Whether another pose shares more than half of its inliers with `pose`."""
        shared = np.isin(other.evidence.rows, pose.evidence.rows).sum()
        return bool(2 * shared > len(other.evidence.rows))


def rivals(
    contest: Contest,
    pose: WeighedPose,
    limits: Acceptance,
    *,
    among: Int64[np.ndarray, "_"] | None = None,
    known: Sequence[Estimate] = (),
) -> Rivals:
    """Other poses that are beyond chance as well, the strongest first, up to the first one that is nearly as strong.

    If there are `MOST_RIVALS` of them, the last one counts as nearly as strong: what comes after it is not looked for.

    Each is sought among what the given pose and the others before it leave. A place may have several copies: that one of them
    is clearly worse says nothing about the others.

    - `contest`: seeks, weighs and compares poses.
    - `limits`: the thresholds that other poses must pass to count.
    - `among`: rows of the pairs that other poses are sought among, of whatever strength: the map may know more of them. None:
      all pairs, and poses that may be as strong.
    - `known`: poses that are compared before others are sought.
    """
    count = len(pose.evidence.rows)
    needed = limits.min_inliers if among is not None else max(limits.min_inliers, weakest_rival(count // 2))
    worse: list[Rival] = []

    def compared(other: Estimate) -> Rival | None:
        """The other pose, if it is beyond chance."""
        second = WeighedPose(estimate=other, evidence=contest.weighed(other))
        if not beyond_chance(second.evidence, limits):
            return None
        is_worse = contest.clearly_better(pose, second)
        is_better = not is_worse and contest.clearly_better(second, pose)
        return Rival(estimate=other, evidence=second.evidence, is_better=is_better, is_worse=is_worse)

    for other in known:
        one = compared(other)
        if one is None or contest.is_same(pose, one):
            continue
        if not one.is_worse or len(worse) + 1 == MOST_RIVALS:
            return Rivals(equal=one, worse=worse)
        worse.append(one)
    for other in contest.others(pose, needed, among=among, known=known):
        one = compared(other)
        if one is None:
            break
        if not one.is_worse or len(worse) + 1 == MOST_RIVALS:
            return Rivals(equal=one, worse=worse)
        worse.append(one)
    return Rivals(equal=None, worse=worse)


@dataclass(frozen=True, kw_only=True, eq=False)
class PairContest(Contest):
    """The contest of poses from the same pairs of features and points.

    - `views`: how the map's images saw the points; None: a camera may have seen every point from everywhere.
    - `observed`: rows of the points that each of the matched images observes; None: any image may observe all points.
    """

    matched: Matched
    views: MapViews | None
    observed: Observed | None = None
    _shown: dict[int, tuple[WeighedPose, ShownPoints]] = field(default_factory=dict, init=False)

    def others(
        self,
        pose: WeighedPose,
        needed: int,
        *,
        among: Int64[np.ndarray, "_"] | None,
        known: Sequence[Estimate],
    ) -> Iterator[Estimate]:
        """Poses among the most trusted pairs that `pose`, the `known` ones and the others before it leave."""
        matched = self.matched
        rest = np.arange(len(matched.keypoint_rows)) if among is None else among
        for explained in (pose.estimate, *known):
            rest = _unexplained(matched, rest, explained)
        while _may_hold(matched, rest, needed):
            other = _sought(matched, rest, needed)
            if other is None:
                return
            yield other
            before, rest = len(rest), _unexplained(matched, rest, other)
            if len(rest) == before:
                return

    def weighed(self, other: Estimate) -> PoseEvidence:
        """Evidence among all pairs."""
        return weigh(self.matched, other, self.views)

    def clearly_better(self, first: WeighedPose, second: WeighedPose) -> bool:
        """Whether the first pose has clearly more inliers that count against the second."""
        return clearly_better(self.matched, first.evidence, second.evidence, self.shown(first), self.shown(second))

    def shown(self, pose: WeighedPose) -> ShownPoints:
        """Points that the camera of a pose shows."""
        if id(pose) not in self._shown:
            self._shown[id(pose)] = pose, ShownPoints.by(self.matched, pose.estimate, pose.evidence, self.views, self.observed)
        return self._shown[id(pose)][1]


def _unexplained(matched: Matched, rest: Int64[np.ndarray, "_"], estimate: Estimate) -> Int64[np.ndarray, "_"]:
    """The pairs of `rest` that are not within twice the threshold of agreement with a pose."""
    return rest[~matched.agrees(matched.projected(estimate), 2.0, rows=rest)]


def _may_hold(matched: Matched, rest: Int64[np.ndarray, "_"], inliers: int) -> bool:
    """Whether the pairs `rest` may hold a number of one-to-one inliers."""
    return min(len(np.unique(matched.keypoint_rows[rest])), len(np.unique(matched.point_rows[rest]))) >= inliers


def _sought(matched: Matched, rest: Int64[np.ndarray, "_"], needed: int) -> Estimate | None:
    """A pose among the most trusted of the pairs `rest`, as would have `needed` inliers."""
    first = rest[: max(round(matched.rival_part * len(rest)), RIVAL_ROOM * needed)]
    return matched.estimate(first, share=needed / len(first))


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


def clearly_better(
    matched: Matched, first: PoseEvidence, second: PoseEvidence, shown_first: ShownPoints, shown_second: ShownPoints
) -> bool:
    """Whether the first of two poses has clearly more inliers that count against the second (McNemar 1947).

    Features that both poses explain say nothing. One that the other pose does not explain counts against it only if the
    map knows what its camera shows around the feature, and the query shows nothing of that: where the map knows little of a
    place, or few of its images were matched, many features are not explained there though the place is the right one.
    """
    counted = (
        _counted(matched, first, second, shown_first, shown_second),
        _counted(matched, second, first, shown_second, shown_first),
    )
    return coin(*counted) <= COIN


def _counted(matched: Matched, own: PoseEvidence, other: PoseEvidence, own_shown: ShownPoints, other_shown: ShownPoints) -> int:
    """Number of inliers of one pose, of features that the other does not explain, that count for it when both are compared."""

    asked = own.rows[~np.isin(matched.keypoint_rows[own.rows], matched.keypoint_rows[other.rows])]
    asked = asked[np.isin(matched.point_rows[asked], own_shown.point_rows)]
    if not len(asked) or not len(other_shown.point_rows):
        return 0
    # `point_rows` ascend
    places = own_shown.xy[np.searchsorted(own_shown.point_rows, matched.point_rows[asked])]
    around = math.ceil(AROUND * len(own_shown.point_rows) / max(len(own.rows), 1))
    agreeing = np.isin(other_shown.point_rows, matched.point_rows[other.rows])
    _, near = cKDTree(other_shown.xy).query(places, k=np.arange(1, min(around, len(agreeing)) + 1))
    return int((~agreeing[near].any(axis=1)).sum())


def coin(more: int, less: int) -> float:
    """Probability of at least `more` heads in `more` + `less` throws of a fair coin."""

    return float(bdtrc(more - 1, more + less, 0.5)) if more > 0 else 1.0


def weakest_rival(inliers: int) -> int:
    """Least number of inliers of another pose that the test of a fair coin does not tell from `inliers`."""
    low, high = 0, inliers
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if coin(inliers, middle) > COIN else (middle + 1, high)
    return low
