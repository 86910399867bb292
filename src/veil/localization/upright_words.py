"""Localization of queries in words at keypoints where gravity is known in query and map (docs/theory/words_upright.md).

Pairs of candidates give upright poses, all keypoints test them, and the best is refined in all six degrees of freedom. It is
weighed by the number of keypoints that lie beside points, and by their words, against chance.
"""

from __future__ import annotations

import time

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import covariance_from_colmap
from veil.geometry.robust.upright_search import Kept, nothing_kept, search_pairs
from veil.localization.by_distance import AMBIGUOUS, IMPOSSIBLE, VAGUE, Localization, NoPose
from veil.localization.matched_pairs import Estimate
from veil.localization.matched_points import MatchedPoints
from veil.localization.pose_evidence import PLACE_MARGIN, Evidence, pictured, turn_deviation_deg
from veil.localization.rival_poses import COIN, coin
from veil.localization.upright_evidence import UprightEvidence, UprightWeighing
from veil.localization.upright_problem import UprightProblem
from veil.localization.word_options import WordOptions
from veil.progress import Progress

# Samples between two looks at the clock.
PORTION = 250_000
# A pose is refused whose pairs have words that are e^2 = 7 times likelier if none of them is right.
AGAINST = -2.0

CONTRADICTED = (
    "the best pose shows points of the map at {} of {} keypoints, but their words speak against it; is the picture mirrored, "
    "or the place symmetric?"
)


def localize_upright(
    problem: UprightProblem,
    unshared: Float64[np.ndarray, "features"],
    *,
    options: WordOptions,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a query in words from keypoints and gravity, or say why no pose is better than chance.

    - `problem`: the query's keypoints, gravity and candidates, and the map.
    - `unshared`: log likelihood ratio of each feature's words and any point with which they share none.
    - `options`: thresholds, and limits of the search.
    - `progress`: called with the number of pairs that are drawn and of all.
    """
    count = problem.queried
    weighing = UprightWeighing(problem=problem, unshared=unshared)
    weighed = [weighing.weighed(weighing.fitted(pose)) for pose in _poses(problem, options, progress)]
    weighed.sort(key=lambda evidence: evidence.log10_nfa)
    if not weighed:
        return NoPose(reason=f"no pose of the search explains the {count} features; {problem.doubt}", correspondences=count)
    best = weighing.improved(weighed[0]) if _beyond_chance(weighed[0], options) else weighed[0]

    def refused(reason: str) -> NoPose:
        return NoPose(reason=reason, correspondences=count, inliers=len(best), log10_nfa=best.log10_nfa)

    keypoints = len(problem.keypoints)
    if not _beyond_chance(best, options):
        return refused(
            f"the best pose shows points of the map at {len(best)} of {keypoints} keypoints, which chance also gives (log10 of "
            f"expected chance poses {best.log10_nfa:.1f}); {problem.doubt}"
        )
    if weighing.log_odds_of_words(best) < AGAINST:
        return refused(CONTRADICTED.format(len(best), keypoints))
    matched, rows = _matched(problem, best, options)
    estimate, evidence = Estimate(pose=best.pose, camera=problem.camera), Evidence(rows=rows, log10_nfa=best.log10_nfa)
    if pictured(matched, estimate, evidence, problem.scene.views):
        return refused(IMPOSSIBLE)
    rival = _rival(weighing, best, weighed[1:], options)
    if rival is not None:
        return refused(AMBIGUOUS.format(len(best), len(rival), keypoints))
    deviation_deg = turn_deviation_deg(matched, estimate, rows)
    if best.log10_nfa > options.max_log10_nfa - PLACE_MARGIN or deviation_deg > options.max_turn_deg:
        return refused(VAGUE.format(len(best), keypoints))
    refined = weighing.least_squares(best.pose, best.keypoint_rows, best.point_rows)
    return Localization(
        cam_from_world=best.pose,
        covariance=None if refined is None else covariance_from_colmap(refined),
        turn_deviation_deg=deviation_deg,
        keypoint_rows=best.keypoint_rows,
        point_rows=best.point_rows,
        correspondences=count,
        log10_nfa=best.log10_nfa,
    )


def _poses(problem: UprightProblem, options: WordOptions, progress: Progress | None) -> list:
    """The few best poses of the search, refined, the best first."""
    upright = problem.options
    if not len(problem.sampled.keypoint_rows) or not problem.sampled.shares[-1] > 0:
        return []
    kept: Kept = nothing_kept(upright.kept)
    tested, done, used = problem.tested(upright.search_px, upright.words_px), 0, 0.0
    while done < upright.samples:
        portion, started = min(PORTION, upright.samples - done), time.thread_time()
        # Seed and number of samples share the 64 bits that start a search.
        search_pairs(kept, problem.sampled, tested, problem.limits, samples=portion, seed=(problem.seed << 40) + done + 1)
        used = 0.0 if not done else used + time.thread_time() - started  # the first may compile code
        done += portion
        if progress is not None:
            progress(done, upright.samples)
        if options.search.max_seconds is not None and used > options.search.max_seconds:
            break
    return problem.refined(kept)[: upright.compared]


def _beyond_chance(evidence: UprightEvidence, options: WordOptions) -> bool:
    """Whether a pose has enough pairs, and chance gives few enough poses as good."""
    return len(evidence) >= options.min_inliers and evidence.log10_nfa <= options.max_log10_nfa


def _matched(problem: UprightProblem, best: UprightEvidence, options: WordOptions) -> tuple[MatchedPoints, np.ndarray]:
    """Pairs near a pose, within the inlier threshold, and the rows of those that are its evidence; these come first."""
    weighing_limit = max(options.max_error_px, problem.options.match_px)
    keypoints, points = UprightWeighing(problem=problem, unshared=np.zeros(len(problem.keypoints))).pairs(
        best.pose, weighing_limit
    )
    more = ~np.isin(keypoints, best.keypoint_rows) & ~np.isin(points, best.point_rows)
    matched = MatchedPoints(
        camera=problem.camera,
        observations=problem.keypoints,
        keypoint_rows=np.concatenate([best.keypoint_rows, keypoints[more]]),
        point_rows=np.concatenate([best.point_rows, points[more]]),
        points=problem.scene.points,
        max_error_px=weighing_limit,
        seed=problem.seed,
    )
    return matched, np.arange(len(best))


def _rival(
    weighing: UprightWeighing, best: UprightEvidence, others: list[UprightEvidence], options: WordOptions
) -> UprightEvidence | None:
    """Another pose that is beyond chance and nearly as strong among the keypoints and points that the best one leaves."""
    problem = weighing.problem
    keypoints, points = np.ones(len(problem.keypoints), dtype=bool), np.ones(len(problem.scene.points), dtype=bool)
    keypoints[best.keypoint_rows] = False
    points[best.point_rows] = False
    for other in others:
        alone = weighing.weighed(other.pose, keypoints=keypoints, points=points)
        # Thousands of points give pairs by chance, which one pose takes from the other: what is above chance is compared.
        if _beyond_chance(alone, options) and coin(best.above_chance, alone.above_chance) > COIN:
            return alone
    return None
