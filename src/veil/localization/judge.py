"""The answer to a query: a pose of its matches with points of a map, weighed by its evidence, or a reason for none."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, Int64

from veil.geometry.rigid import Rigid
from veil.geometry.views import MapViews
from veil.localization.evidence import NESTED, Evidence, pictured, too_few, turn_deviation_deg, weigh
from veil.localization.matches import Estimate, Matched, MatchedLines
from veil.localization.options import LocalizeOptions
from veil.localization.rivals import rivals


@dataclass(frozen=True, kw_only=True, eq=False)
class Localization:
    """A pose of a query with its evidence.

    - `cam_from_world`: takes world coordinates of the map to the camera frame (x right, y down, z forward).
    - `covariance`, float64 (6, 6): of (rotation in radians, translation in units of the map) in the camera frame, for a noise
      of one pixel along each axis of the inliers; None where the pose came from lines.
    - `turn_deviation_deg`: standard deviation of the rotation about its least certain axis in degrees, with the noise that the
      inliers show.
    - `keypoint_rows`, `point_rows`, int64 (inliers,): rows of the query's features and of the map's points that correspond.
      Whoever runs this sees them, and can estimate the descriptors of exactly these features
      (release.md#matched-features-are-known-to-whoever-matches-them).
    - `correspondences`: number of pairs of a feature and a point that the pose was searched among.
    - `log10_nfa`: log10 of the number of chance poses with inliers as good (docs/theory/localization.md).
    """

    cam_from_world: Rigid
    covariance: Float64[np.ndarray, "6 6"] | None
    turn_deviation_deg: float
    keypoint_rows: Int64[np.ndarray, "inliers"]
    point_rows: Int64[np.ndarray, "inliers"]
    correspondences: int
    log10_nfa: float

    @property
    def inliers(self) -> int:
        """Number of keypoints that see different points within the threshold."""
        return len(self.keypoint_rows)


@dataclass(frozen=True, kw_only=True)
class NoPose:
    """The answer to a query for which no pose is better than chance, or none is unique or exact enough.

    - `reason`: a sentence that says what was found and what may help.
    - `correspondences`: number of pairs of a feature and a point that a pose was searched among.
    - `inliers`: inliers of the best pose, 0 if there was none.
    - `log10_nfa`: log10 of the number of chance poses as good as the best one; infinite if there was none.
    """

    reason: str
    correspondences: int
    inliers: int = 0
    log10_nfa: float = math.inf


def judged(
    matched: Matched,
    views: MapViews | None,
    options: LocalizeOptions,
    *,
    best: tuple[Estimate, Evidence] | None = None,
    rival: Callable[[Estimate, Evidence], Evidence | None] | None = None,
) -> tuple[Localization | NoPose, Estimate | None]:
    """The answer of `localize_matches`, and the estimate of its pose.

    `best` is the pose that is judged; by default the best one is sought. `rival` gives evidence of
    another pose that nothing tells from it, or None; by default that is sought among the pairs.
    """
    count = len(matched.keypoint_rows)
    if count < options.min_inliers:
        return NoPose(reason=f"only {count} features match the map; is it of this place?", correspondences=count), None
    best = best or _weighed_pose(matched, views, options)
    if best is None:
        return NoPose(reason=f"no pose explains the {count} matches; is the map of this place?", correspondences=count), None
    estimate, evidence = best
    # Without the views, to tell a pose that chance gives from one that no camera could have.
    unchecked = evidence if _beyond_chance(evidence, options) else weigh(matched, estimate, None)

    def refused(reason: str) -> tuple[NoPose, None]:
        inliers, log10_nfa = len(unchecked.rows), unchecked.log10_nfa
        return NoPose(reason=reason, correspondences=count, inliers=inliers, log10_nfa=log10_nfa), None

    if not _beyond_chance(unchecked, options):
        return refused(
            f"the best pose has {len(unchecked.rows)} of {count} matches as inliers, which chance also gives "
            f"(log10 of expected chance poses {unchecked.log10_nfa:.1f}); is the map of this place?"
        )
    if isinstance(matched, MatchedLines) and matched.open_way(estimate, unchecked.rows) > options.max_log10_nfa:
        return refused(ONE_POINT.format(len(unchecked.rows), count))
    if unchecked is not evidence or pictured(matched, estimate, evidence, views):
        return refused(IMPOSSIBLE)
    other = rival(estimate, evidence) if rival else _rival(matched, estimate, evidence, views, options)
    if other is not None:
        return refused(AMBIGUOUS.format(len(evidence.rows), len(other.rows), count))
    deviation_deg = turn_deviation_deg(matched, estimate, evidence.rows)
    if too_few(matched, evidence, options.max_log10_nfa) or deviation_deg > options.max_turn_deg:
        return refused(VAGUE.format(len(evidence.rows), count))
    found = Localization(
        cam_from_world=estimate.pose,
        covariance=estimate.covariance,
        turn_deviation_deg=deviation_deg,
        keypoint_rows=matched.keypoint_rows[evidence.rows],
        point_rows=matched.point_rows[evidence.rows],
        correspondences=count,
        log10_nfa=evidence.log10_nfa,
    )
    return found, estimate


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


def _weighed_pose(matched: Matched, views: MapViews | None, options: LocalizeOptions) -> tuple[Estimate, Evidence] | None:
    """Best pose and its evidence, or None if no pose was found.

    Where chance explains the pose of all pairs, the search is repeated among the most trusted ones, and the first pose beyond
    chance is taken.
    """
    estimate = matched.estimate()
    best = None if estimate is None else (estimate, weigh(matched, estimate, views))
    if best is not None and _beyond_chance(best[1], options):
        return best
    for part in NESTED[:-1]:
        estimate = matched.among_trusted(part)
        if estimate is not None and _beyond_chance(evidence := weigh(matched, estimate, views), options):
            return estimate, evidence
    return best


def _rival(
    matched: Matched, estimate: Estimate, evidence: Evidence, views: MapViews | None, options: LocalizeOptions
) -> Evidence | None:
    """Evidence of another pose among the pairs that nothing tells from the best one, or None."""
    least, most = options.min_inliers, options.max_log10_nfa
    equal = rivals(matched, estimate, evidence, views, min_inliers=least, max_log10_nfa=most).equal
    return None if equal is None else equal.evidence


def _beyond_chance(evidence: Evidence, options: LocalizeOptions) -> bool:
    """Whether a pose has enough inliers, and chance gives few enough poses as good."""
    return len(evidence.rows) >= options.min_inliers and evidence.log10_nfa <= options.max_log10_nfa
