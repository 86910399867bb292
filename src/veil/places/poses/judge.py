"""The answer to a query: a pose of its matches with points of a map, weighed by its evidence, or a reason for none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.views import MapViews
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.evidence import NESTED, PoseEvidence, beyond_chance, pictured, too_few, turn_deviation_deg, weigh
from veil.places.poses.matches import Matched
from veil.places.poses.rivals import PairContest, Rival, WeighedPose, rivals

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


@dataclass(frozen=True, kw_only=True, eq=False)
class Claim(WeighedPose):
    """The best pose of a query and its evidence, as the judge needs them.

    - `matched`: pairs of features and points; `evidence` names rows of them.
    - `views`: how the map's images saw the points; None: no pose is refused for how it sees them.
    - `unchecked`: the evidence if pairs count that the camera could not have seen. It is asked for where chance explains
      `evidence`, to tell a pose that chance gives from one that no camera could have.
    - `against`: reason for which the pairs that `unchecked` or `evidence` counts contradict the pose, or None.
    - `by_chance`: sentence of a pose that chance explains, with `inliers`, `count` and `log10_nfa` to be filled in.
    - `correspondences`: number of pairs, or of features in words, that the pose was searched among; `count`: the number that
      sentences name as all of them.
    """

    matched: Matched
    views: MapViews | None
    unchecked: Callable[[], PoseEvidence]
    against: Callable[[PoseEvidence], str | None]
    by_chance: str
    correspondences: int
    count: int


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

    def refused(reason: str) -> NoPose:
        return NoPose(reason=reason, correspondences=claim.correspondences, inliers=inliers, log10_nfa=log10_nfa)

    if not beyond_chance(unchecked, limits):
        return refused(claim.by_chance.format(inliers=inliers, count=claim.count, log10_nfa=log10_nfa))
    against = claim.against(unchecked)
    if against is not None:
        return refused(against)
    if unchecked is not evidence or pictured(matched, estimate, evidence, claim.views):
        return refused(IMPOSSIBLE)
    other = rival()
    if other is not None:
        return refused(AMBIGUOUS.format(inliers, len(other.evidence.rows), claim.count))
    deviation_deg = turn_deviation_deg(matched, estimate, evidence.rows)
    if too_few(matched, evidence, limits.max_log10_nfa) or deviation_deg > limits.max_turn_deg:
        return refused(VAGUE.format(inliers, claim.count))
    return Localization(
        cam_from_world=estimate.pose,
        covariance=estimate.covariance,
        turn_deviation_deg=deviation_deg,
        keypoint_rows=matched.keypoint_rows[evidence.rows],
        point_rows=matched.point_rows[evidence.rows],
        correspondences=claim.correspondences,
        log10_nfa=evidence.log10_nfa,
    )


def claim_of(
    matched: Matched, views: MapViews | None, limits: Acceptance, *, best: WeighedPose | None = None
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
        is_open = matched.open_way(estimate, evidence.rows) > limits.max_log10_nfa
        return ONE_POINT.format(len(evidence.rows), count) if is_open else None

    return Claim(
        estimate=estimate,
        evidence=best.evidence,
        matched=matched,
        views=views,
        unchecked=lambda: weigh(matched, estimate, None),
        against=against,
        by_chance=BY_CHANCE,
        correspondences=count,
        count=count,
    )


def judge_pairs(matched: Matched, views: MapViews | None, limits: Acceptance) -> Localization | NoPose:
    """The answer that pairs which match by distance give, where all images of the map were matched."""
    claim = claim_of(matched, views, limits)
    if isinstance(claim, NoPose):
        return claim
    contest = PairContest(matched=matched, views=views)
    return judge(claim, lambda: rivals(contest, claim, limits).equal, limits)


def _best(matched: Matched, views: MapViews | None, limits: Acceptance) -> WeighedPose | None:
    """Best pose and its evidence, or None if no pose was found.

    Where chance explains the pose of all pairs, the search is repeated among the most trusted ones, and the first pose beyond
    chance is taken.
    """
    estimate = matched.estimate()
    best = None if estimate is None else WeighedPose(estimate=estimate, evidence=weigh(matched, estimate, views))
    if best is not None and beyond_chance(best.evidence, limits):
        return best
    for part in NESTED[:-1]:
        estimate = matched.among_trusted(part)
        if estimate is not None and beyond_chance(evidence := weigh(matched, estimate, views), limits):
            return WeighedPose(estimate=estimate, evidence=evidence)
    return best
