"""The answer to a query: a pose of its matches with points of a map, weighed by its evidence, or a reason for none.

A rival is another pose that explains a query nearly as well; here is decided which of two poses is clearly better.
Thresholds: what chance explains is in `veil.geometry.robust.acceptance`, how far a pose may be uncertain in `evidence`, those
of words in `options`, and those of rivals below.
Theory: docs/theory/localization.md#one-camera-one-pose, localization.md#a-place-and-its-copies.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64, Int64
from scipy.spatial import cKDTree

from veil.errors import Remedy
from veil.geometry.gravity_consensus import ConsensusOptions, apart_deg, contradiction_limit
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.views import MapViews
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.evidence import (
    COIN,
    NESTED,
    Doubt,
    Observed,
    PoseEvidence,
    ShownPoints,
    beyond_chance,
    coin,
    open_way,
    pictured,
    too_few,
    weigh,
)
from veil.places.poses.joint import contradicted_focal, settled, solved_camera
from veil.places.poses.matches import Estimate, Matched, MatchedLines

BY_CHANCE = (
    "the best pose has {inliers} of {count} matches as inliers, which chance also gives "
    "(log10 of expected chance poses {log10_nfa:.1f}); is the map of this place?"
)

IMPOSSIBLE = (
    "the best pose sees its points from sides, or at sizes, at which no image of the map saw them; is the query a "
    "photograph of a photograph, or its focal length wrong?"
)

AMBIGUOUS = (
    "two poses explain {} and {} of {} matches, and nothing tells which is right; does the query show one thing several "
    "times, or several photographs?"
)

ONE_POINT = (
    "of the {} inliers of {} matches, too few lie beside the lines through one point (along gravity, or through one anchor), "
    "which leave the way towards it open; does the query match with one half of its picture only?"
)

VAGUE = (
    "the best pose is better than chance, but its {} inliers of {} matches leave it uncertain by degrees; show more of the "
    "place, extract more features, or map more images of it"
)
TWO_OPTIMA = (
    "two poses that differ by degrees ({:.2g} about the better one) fit the {} inliers of {} matches about as well; show more "
    "of the place, extract more features, or map more images of it"
)
TILTED = (
    "the best pose tilts the camera by {:.1f} degrees from the query's gravity, and both are wrong by {:.1f} together at most; "
    "is the query a photograph of a screen or a print, its gravity wrong, or its focal length?"
)
# Expected share of right poses that the gravity of their queries is taken to contradict.
TILTED_FALSE_ALARMS = 1e-3
# A feature speaks against a pose if the camera there shows these points around it, times the points for each inlier of the
# pose that explains the feature, and none of them is an inlier (docs/theory/localization.md#a-place-and-its-copies).
AROUND = 6
# Least number of pairs among which a rival pose is sought, for each inlier that it needs.
RIVAL_ROOM = 4
# Number of other poses with which one is compared at most. If a query has as many, the last one counts as nearly as strong.
MOST_RIVALS = 32


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


def clearly_better(
    matched: Matched, first: PoseEvidence, second: PoseEvidence, shown_first: ShownPoints, shown_second: ShownPoints
) -> bool:
    """Whether the first of two poses has clearly more inliers that count against the second (McNemar 1947).

    Features that both poses explain say nothing. One that the other pose does not explain counts against it only if the
    map knows what its camera shows around the feature, and the query shows nothing of that: where the map knows little of a
    place, or few of its images were matched, many features are not explained there though the place is the right one.
    """
    both = (
        counted(matched, first, second, shown_first, shown_second),
        counted(matched, second, first, shown_second, shown_first),
    )
    return coin(*both) <= COIN


def counted(matched: Matched, own: PoseEvidence, other: PoseEvidence, own_shown: ShownPoints, other_shown: ShownPoints) -> int:
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


def weakest_rival(inliers: int) -> int:
    """Least number of inliers of another pose that the test of a fair coin does not tell from `inliers`."""
    low, high = 0, inliers
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if coin(inliers, middle) > COIN else (middle + 1, high)
    return low


@dataclass(frozen=True, kw_only=True, eq=False)
class Claim(WeighedPose):
    """The best pose of a query and its evidence, as the judge needs them.

    - `matched`: pairs of features and points; `evidence` names rows of them.
    - `views`: how the map's images saw the points; None: no pose is refused for how it sees them.
    - `observed`: rows of the points that each of the matched images observes; None: any image may observe all points.
    - `unchecked`: the evidence if pairs count that the camera could not have seen. It is asked for where chance explains
      `evidence`, to tell a pose that chance gives from one that no camera could have.
    - `against`: reason for which the pairs that `unchecked` or `evidence` counts contradict the pose, or None.
    - `by_chance`: sentence of a pose that chance explains, with `inliers`, `count` and `log10_nfa` to be filled in.
    - `correspondences`: number of pairs, or of features in words, that the pose was searched among; `count`: the number that
      sentences name as all of them.
    - `doubt`: how much better one camera explains the query than another, where the pairs are not all that tells.
    - `margin`: orders of magnitude of the evidence that are not counted; None: the usual ones (`too_few`).
    """

    matched: Matched
    views: MapViews | None
    observed: Observed | None
    unchecked: Callable[[], PoseEvidence]
    against: Callable[[PoseEvidence], str | None]
    by_chance: str
    correspondences: int
    count: int
    doubt: Doubt | None = None
    margin: float | None = None

    def is_pictured(self, known: Estimate) -> bool:
        """Whether the camera more likely saw a photograph of the place (`pictured`); `known` is the estimate after all fits."""
        return pictured(self.matched, known, self.evidence, self.views, self.observed, self.doubt)


def judge(claim: Claim, rival: Callable[[], Rival | None], limits: Acceptance) -> Localization | NoPose:
    """The answer to a query: its best pose, or the first reason to doubt it.

    A pose is told if chance does not explain it, its pairs do not contradict it, a camera could have seen it, no other pose is
    as good, and it is well known. The tests follow each other in this order, as each supposes that those before it are passed.

    - `claim`: the best pose.
    - `rival`: finds another pose that nothing tells from it, or None; it is called if all tests before are passed.
    - `limits`: the thresholds.
    """
    matched, estimate, evidence = claim.matched, claim.estimate, claim.evidence
    unchecked = evidence if beyond_chance(evidence, limits) else claim.unchecked()
    inliers, log10_nfa = len(unchecked.rows), unchecked.log10_nfa

    def refused(reason: str, *remedy: Remedy) -> NoPose:
        return NoPose(
            reason=reason, correspondences=claim.correspondences, inliers=inliers, log10_nfa=log10_nfa, remedy=tuple(remedy)
        )

    if not beyond_chance(unchecked, limits):
        return refused(claim.by_chance.format(inliers=inliers, count=claim.count, log10_nfa=log10_nfa))
    against = claim.against(unchecked)
    if against is not None:
        return refused(against)
    known = estimate if estimate.fit is not None else settled(matched, estimate)
    contradiction = contradicted_focal(matched, known)
    if contradiction is not None:
        return refused(contradiction, Remedy("give", "Features.camera"))
    if unchecked is not evidence or claim.is_pictured(known):
        return refused(IMPOSSIBLE)
    other = rival()
    if other is not None:
        return refused(AMBIGUOUS.format(inliers, len(other.evidence.rows), claim.count))
    if known.fit is None or known.alone is None:
        return refused(VAGUE.format(inliers, claim.count))
    alone_deg = math.degrees(known.alone.turn_deviation)
    deviation_deg = math.degrees(known.fit.turn_deviation)
    if alone_deg <= limits.max_turn_deg < deviation_deg:
        return refused(TWO_OPTIMA.format(deviation_deg, inliers, claim.count))
    if too_few(matched, evidence, limits.max_log10_nfa, claim.margin) or deviation_deg > limits.max_turn_deg:
        return refused(VAGUE.format(inliers, claim.count))
    return Localization(
        cam_from_world=known.pose,
        camera=solved_camera(matched, known),
        covariance=known.fit.pose_covariance if np.isfinite(known.fit.covariance).all() else None,
        turn_deviation_deg=deviation_deg,
        keypoint_rows=matched.keypoint_rows[evidence.rows],
        point_rows=matched.point_rows[evidence.rows],
        correspondences=claim.correspondences,
        log10_nfa=evidence.log10_nfa,
    )


def unless_tilted(
    answer: Localization, gravity: Float64[np.ndarray, "3"], down: Float64[np.ndarray, "3"]
) -> Localization | NoPose:
    """A pose, or a refusal where the gravity that the query came with contradicts it (localization.md#gravity).

    Messages give no deviation, so that a reading's is the usual one of sensors, and the map's that of its rotations. The pose's
    own adds to both.

    - `gravity`, float64 (3,): unit vector that points down in the query's camera frame.
    - `down`, float64 (3,): unit vector that points down in the map.
    """
    usual = ConsensusOptions()
    sigma_deg = math.hypot(usual.unknown_sigma_deg, usual.model_sigma_deg, answer.turn_deviation_deg)
    limit_deg = contradiction_limit(1, TILTED_FALSE_ALARMS) * sigma_deg
    off_deg = float(apart_deg(answer.rotation @ down, gravity))
    if off_deg <= limit_deg:
        return answer
    return NoPose(
        reason=TILTED.format(off_deg, limit_deg),
        correspondences=answer.correspondences,
        inliers=answer.inliers,
        log10_nfa=answer.log10_nfa,
    )


def claim_of(
    matched: Matched,
    views: MapViews | None,
    limits: Acceptance,
    *,
    observed: Observed | None = None,
    best: WeighedPose | None = None,
) -> Claim | NoPose:
    """The best pose of pairs that match by distance, or the reason why there is none; `best` is it if it is known."""
    count = len(matched.keypoint_rows)
    if count < limits.min_inliers:
        return NoPose(reason=f"only {count} features match the map; is it of this place?", correspondences=count)
    best = best or _best(matched, views, limits)
    if best is None:
        return NoPose(reason=f"no pose explains the {count} matches; is the map of this place?", correspondences=count)
    estimate = best.estimate

    def against(evidence: PoseEvidence) -> str | None:
        is_open = isinstance(matched, MatchedLines) and open_way(matched, estimate, evidence.rows) > limits.max_log10_nfa
        return ONE_POINT.format(len(evidence.rows), count) if is_open else None

    return Claim(
        estimate=estimate,
        evidence=best.evidence,
        matched=matched,
        views=views,
        observed=observed,
        unchecked=lambda: weigh(matched, estimate, None),
        against=against,
        by_chance=BY_CHANCE,
        correspondences=count,
        count=count,
    )


def judge_pairs(
    matched: Matched, views: MapViews | None, limits: Acceptance, observed: Observed | None = None
) -> Localization | NoPose:
    """The answer that pairs which match by distance give, where all images of the map were matched."""
    claim = claim_of(matched, views, limits, observed=observed)
    if isinstance(claim, NoPose):
        return claim
    contest = PairContest(matched=matched, views=views)
    return judge(claim, lambda: rivals(contest, claim, limits).equal, limits)


def _best(matched: Matched, views: MapViews | None, limits: Acceptance) -> WeighedPose | None:
    """Best pose and its evidence, or None if no pose was found.

    Where chance explains the pose of all pairs, the search is repeated among the most trusted ones, and the first pose beyond
    chance is taken.
    """
    best = _weighed(matched, matched.estimate(), views)
    if best is not None and beyond_chance(best.evidence, limits):
        return best
    for part in NESTED[:-1]:
        other = _weighed(matched, matched.among_trusted(part), views)
        if other is not None and beyond_chance(other.evidence, limits):
            return other
    return best


def _weighed(matched: Matched, estimate: Estimate | None, views: MapViews | None) -> WeighedPose | None:
    """A pose of the search after the fit of pose and focal length together, and its evidence."""
    if estimate is None:
        return None
    estimate = settled(matched, estimate, others=matched.held() if matched.is_searched else ())
    return WeighedPose(estimate=estimate, evidence=weigh(matched, estimate, views))
