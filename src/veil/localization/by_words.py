"""A query in words against a map: candidates by the mechanism's law, a pose by grouped RANSAC, weighed against chance.

Pittaluga and Zhuang 2023, Sec. 6.2; words.md#vocabulary-matching, words.md#search-among-groups. Positions may be keypoints, or
the lines that hide them.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from jaxtyping import Float32, Int64

from veil.forms import Lines, Subsets
from veil.geometry.camera import Camera
from veil.geometry.robust.grouped import COMPARISONS, GroupedConsensus, GroupedOptions, candidates_searched, resect_grouped
from veil.localization.by_distance import AMBIGUOUS, IMPOSSIBLE, VAGUE, Localization, NoPose
from veil.localization.matched_features import Estimate, Matched, matched_features
from veil.localization.pose_evidence import COIN, Evidence, coin, pictured, too_few, turn_deviation_deg, weakest_rival
from veil.localization.word_poses import WordOptions as WordOptions
from veil.localization.word_poses import WordProblem
from veil.matching.inverted_index import Candidates, InvertedIndex, vocabulary_candidates
from veil.matching.retrieval import most_similar
from veil.progress import Progress
from veil.scene import Scene

# Of a guessed focal length: a guess of 1.2 times the longer side is right within these for most cameras.
FOCAL_FACTORS = (0.6, 0.7, 0.82, 0.95, 1.1, 1.3, 1.55)
# Samples that look for another pose among what the best one leaves.
RIVAL_SAMPLES = 2000


def localize_words(
    camera: Camera,
    seen: Float32[np.ndarray, "features 2"] | Lines,
    form: Subsets,
    scene: Scene,
    vocabulary: InvertedIndex,
    *,
    options: WordOptions | None = None,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """InvertedIndex matching among the images that the query looks like, then a pose or a reason why there is none.

    Raises SpaceError if the query's dictionary is not the vocabulary's, InputError for lines where gravity of query or map is
    unknown.

    Theory: words.md#vocabulary-matching.
    """
    options = options or WordOptions()
    candidates = vocabulary_candidates(form, vocabulary)
    images = most_similar(form, vocabulary, options.retrieved)
    kept = np.zeros(len(scene.points), dtype=bool)
    for index in images:
        kept[scene.images[vocabulary.image_names[index]].point_rows] = True
    candidates = candidates.take(kept[candidates.point_rows])
    names = [vocabulary.image_names[index] for index in images]
    found = localize_candidates(camera, seen, candidates, scene, names, options=options, progress=progress)
    limits = _limits_met(candidates)
    return replace(found, reason=f"{found.reason}; {limits}") if isinstance(found, NoPose) and limits else found


def _limits_met(candidates: Candidates) -> str:
    """What bounded the work, for people; empty if nothing did. No message keeps a server busy for minutes."""
    said = []
    if candidates.unread:
        said.append(f"{candidates.unread} features were not looked up, as their words are too common in the map")
    searched = candidates_searched(candidates.keypoint_rows)
    if 2 * searched > COMPARISONS:
        said.append(f"fewer samples were drawn than asked for, as the best features have {searched} candidates")
    return "; ".join([*said, "release fewer words a feature"]) if said else ""


def localize_candidates(
    camera: Camera,
    seen: Float32[np.ndarray, "features 2"] | Lines,
    candidates: Candidates,
    scene: Scene,
    names: list[str],
    *,
    options: WordOptions,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """The second half of `localize_words`: from candidates to a weighed pose; `names` are images whose points samples share."""
    count = len(np.unique(candidates.keypoint_rows))
    if count < options.min_inliers:
        return NoPose(reason=f"only {count} features share words with the map; is it of this place?", correspondences=count)
    cameras = _cameras(camera, seen)
    problem = WordProblem(cameras[0], seen, candidates, scene, names, options)
    if len(cameras) > 1:  # a short search with each focal length, a full one with the best
        part_s = options.search.max_seconds and options.search.max_seconds / len(cameras)  # all of them as long as one
        brief = replace(options.search, max_iterations=options.search.min_iterations, max_seconds=part_s)
        tried = [WordProblem(one, seen, candidates, scene, names, options) for one in cameras]
        problem = min(tried, key=lambda one: _searched(one, brief, None)[2])
    found, rows, log10_nfa = _searched(problem, options.search, progress)
    if found is None:
        return NoPose(reason=f"no pose explains the {count} features with words of the map", correspondences=count)
    cameras_tried = math.log10(len(cameras))
    log10_nfa += cameras_tried
    sure = _beyond_chance(rows, log10_nfa, options)
    # Weighed as found, to tell what chance gives from what no camera could have seen.
    anyhow = rows if sure else problem.apart(found.rows)
    weight = log10_nfa if sure else problem.weighed(anyhow, found.pose, anyhow=True) + cameras_tried

    def refused(reason: str) -> NoPose:
        return NoPose(reason=reason, correspondences=count, inliers=len(anyhow), log10_nfa=weight)

    if not _beyond_chance(anyhow, weight, options):
        return refused(
            f"the best pose has {len(anyhow)} of {count} features as inliers, which chance also gives "
            f"(log10 of expected chance poses {weight:.1f}); is the map of this place, or epsilon too small?"
        )
    chosen = problem.order[rows]
    keypoint_rows, point_rows = candidates.keypoint_rows[chosen], candidates.point_rows[chosen]
    matched = _matched(problem, candidates)
    estimate, evidence = Estimate(pose=found.pose, camera=problem.camera), Evidence(rows=rows, log10_nfa=log10_nfa)
    if not sure or pictured(matched, estimate, evidence, scene.views):
        return refused(IMPOSSIBLE)
    other = _rival(problem, found, rows, candidates, names)
    if other is not None:
        return refused(AMBIGUOUS.format(len(rows), other, count))
    deviation_deg = turn_deviation_deg(matched, estimate, rows)
    if too_few(matched, evidence, options.max_log10_nfa) or deviation_deg > options.max_turn_deg:
        return refused(VAGUE.format(len(rows), count))
    pose = found.pose if len(cameras) == 1 else problem.with_focal(found.pose, rows)
    return Localization(
        cam_from_world=pose,
        covariance=problem.covariance(found.pose, rows),
        turn_deviation_deg=deviation_deg,
        keypoint_rows=keypoint_rows,
        point_rows=point_rows,
        correspondences=count,
        log10_nfa=log10_nfa,
    )


def _beyond_chance(rows: np.ndarray, log10_nfa: float, options: WordOptions) -> bool:
    return len(rows) >= options.min_inliers and log10_nfa <= options.max_log10_nfa


def _matched(problem: WordProblem, candidates: Candidates) -> Matched:
    """The candidates as pairs, in the order of the problem's rows."""
    return matched_features(
        problem.camera,
        problem.seen,
        candidates.keypoint_rows[problem.order],
        candidates.point_rows[problem.order],
        problem.scene.points,
        max_error_px=problem.limit_px,
        seed=problem.options.search.seed,
    )


def _rival(
    problem: WordProblem, found: GroupedConsensus, rows: np.ndarray, candidates: Candidates, names: list[str]
) -> int | None:
    """Inliers of another pose that is beyond chance and nearly as strong, or None (`veil.localization.pose_evidence.rival`)."""
    options = problem.options
    left = problem.residuals(found.pose) > 2 * problem.limit_px / problem.camera.focal_px
    rest = candidates.take(np.sort(problem.order[left]))
    needed = max(options.min_inliers, weakest_rival(len(rows) // 2))
    if min(len(np.unique(rest.keypoint_rows)), len(np.unique(rest.point_rows))) < needed:
        return None
    brief = replace(options.search, min_iterations=1, max_iterations=min(RIVAL_SAMPLES, options.search.max_iterations))
    second = WordProblem(problem.camera, problem.seen, rest, problem.scene, names, options)
    other, others, log10_nfa = _searched(second, brief, None)
    if other is None or not _beyond_chance(others, log10_nfa, options):
        return None
    return None if coin(len(rows), len(others)) <= COIN else len(others)


def _cameras(camera: Camera, seen: np.ndarray | Lines) -> list[Camera]:
    """The camera, or cameras of several focal lengths around one that is only a guess; lines were drawn with the guess."""
    if camera.focal_is_known or isinstance(seen, Lines):
        return [camera]
    count = camera.focal_count
    return [
        replace(camera, params=(*(factor * value for value in camera.params[:count]), *camera.params[count:]))
        for factor in FOCAL_FACTORS
    ]


def _searched(
    problem: WordProblem, search: GroupedOptions, progress: Progress | None
) -> tuple[GroupedConsensus | None, Int64[np.ndarray, "inliers"], float]:
    """The best pose with one camera, its inliers on different points, and how many such poses chance gives (log10)."""
    options = problem.options
    found = resect_grouped(
        problem.groups,
        limit=problem.search_px / problem.camera.focal_px,
        convinced=problem.convinced,
        refine=problem.refine,
        options=search,
        threads=options.threads,
        progress=progress,
    )
    if found is None:
        return None, np.empty(0, dtype=np.int64), math.inf
    found = problem.polished(found)
    rows = problem.counted(found)
    return found, rows, problem.weighed(rows, found.pose)
