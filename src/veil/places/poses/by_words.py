"""Localization of queries in words: candidates by the mechanism's law, a pose by grouped RANSAC, weighed against chance.

Where gravity and the focal length are known, the search is that of `upright`.

Positions are keypoints, or the lines that hide them. A pose is compared with places of the map that look the same.

Sources: Pittaluga and Zhuang 2023, Sec. 6.2; words.md#vocabulary-matching, words.md#search-among-groups,
words.md#places-that-look-alike, localization.md#a-place-and-its-copies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.errors import InputError
from veil.forms import Lines, Subsets
from veil.geometry.camera import REFINED, Camera, as_colmap, zoomed
from veil.geometry.rigid import Rigid
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.robust.grouped import COMPARISONS, GroupedConsensus, GroupedOptions, candidates_searched, consensus_of
from veil.geometry.robust.pose_and_focal import is_searched
from veil.matching.inverted_index import Candidates, InvertedIndex, unshared_log_odds, vocabulary_candidates
from veil.matching.retrieval import most_similar
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.evidence import Observed, PoseEvidence
from veil.places.poses.judge import ONE_POINT, Claim, PairContest, judge, rivals
from veil.places.poses.matches import HELD_FACTORS, Estimate, Matched, MatchedLines, MatchedPoints, matched_features, rescaled
from veil.places.poses.mirror import mirrored_down, mirrored_positions, unless_mirrored
from veil.places.poses.options import LocalizeOptions, WordOptions
from veil.places.poses.search import ImageMatches, RankedSearch
from veil.places.poses.upright import localize_upright
from veil.places.poses.upright_problem import UprightProblem, with_help
from veil.places.poses.word_lines import LineWords, word_problem
from veil.places.poses.word_points import WordProblem
from veil.progress import Progress
from veil.scene import Scene, views_of

# Factors that are tried on the focal length of keypoints: a guess is right within these for most cameras.
FOCAL_FACTORS = (0.6, 0.7, 0.82, 0.95, 1.1, 1.3, 1.55)
# Samples that look for another pose among the candidates that the best pose leaves.
RIVAL_SAMPLES = 2000

BY_CHANCE = (
    "the best pose has {inliers} of {count} features as inliers, which chance also gives "
    "(log10 of expected chance poses {log10_nfa:.1f}); is the map of this place?"
)


def localize_words(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    form: Subsets,
    scene: Scene,
    vocabulary: InvertedIndex,
    *,
    gravity: Float64[np.ndarray, "3"] | None = None,
    near: Sequence[str] | None = None,
    options: WordOptions | None = None,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a query in words, or say why no pose is better than chance.

    The map images that the query looks like are retrieved (words.md#retrieval). Points that they see and that share a word with
    a feature are the feature's candidates (words.md#vocabulary-matching), a pose is searched among them
    (words.md#search-among-groups), and the number of chance poses as good is bounded (docs/theory/words.md, Eq. 19-20;
    Pittaluga and Zhuang 2023, Sec. 6.2). Where keypoints come with gravity and a known focal length
    and the map has gravity, poses are upright, and all keypoints test them (docs/theory/words_upright.md).

    - `camera`: intrinsics and size of the query's image, in pixels. A guessed focal length is searched for.
    - `observations`: what was sent of the query's N keypoints. Either their positions, float32 (N, 2), in pixels from the
      top-left corner, or the N lines that hide them, in the undistorted normalized image plane.
    - `form`: the words of the N features, in the order of `observations`.
    - `scene`: the map; for lines its gravity must be known.
    - `vocabulary`: the index of `scene` for the query's dictionary (`veil.matching.inverted_index.index_map`). Where it can be
      mirrored, a pose is refused if the mirrored query fits as well.
    - `gravity`: unit vector of down in the query's camera frame, for keypoints; lines have their own.
    - `near`: names of the map images that the query is known to be near, in place of those that are retrieved.
    - `options`: thresholds, retrieval and search; by default those of `WordOptions`.
    - `progress`: called with the number of samples that are drawn and of all that are needed.

    Raises SpaceError if the query's dictionary is not the index's, InputError for lines where the gravity of query or map is
    unknown, and for names of images that the map does not hold.
    """
    options = options or WordOptions()
    query = _WordQuery(camera=camera, observations=observations, form=form, gravity=gravity, scene=scene, near=near)
    answer = query.answer(vocabulary, options, progress)

    def turned_over() -> float | None:
        index = vocabulary.mirrored
        at_once = replace(options, compared=0, upright=options.upright.at_once)
        return None if index is None else query.mirrored.answer(index, at_once).log10_nfa

    return unless_mirrored(answer, turned_over)


@dataclass(frozen=True, kw_only=True, eq=False)
class _WordQuery:
    """A query in words and the map that it is asked on, as `localize_words` names them."""

    camera: Camera
    observations: Float32[np.ndarray, "features 2"] | Lines
    form: Subsets
    gravity: Float64[np.ndarray, "3"] | None
    scene: Scene
    near: Sequence[str] | None

    @property
    def mirrored(self) -> _WordQuery:
        """The query turned over left to right; its words are to be met by the mirrored index."""
        positions = mirrored_positions(self.camera, self.observations)
        gravity = None if self.gravity is None else mirrored_down(self.gravity)
        return replace(self, observations=positions, gravity=gravity)

    def answer(
        self, vocabulary: InvertedIndex, options: WordOptions, progress: Progress | None = None
    ) -> Localization | NoPose:
        """The pose of the query by the index of its words, or why there is none."""
        scene, form = self.scene, self.form
        candidates = vocabulary_candidates(form, vocabulary)

        def seen_by(names: Sequence[str]) -> Candidates:
            kept = np.zeros(len(scene.points), dtype=bool)
            for name in names:
                kept[scene.images[name].point_rows] = True
            return candidates.take(kept[candidates.point_rows])

        ranked = [vocabulary.image_names[index] for index in most_similar(form, vocabulary, len(vocabulary.image_names))]
        names = _images(scene, ranked, self.near, options)
        here = seen_by(names)
        problem = self._upright(here, names, options)
        if problem is not None:
            answer = localize_upright(problem, unshared_log_odds(form, vocabulary), options=options, progress=progress)
        else:
            answer = localize_candidates(self.camera, self.observations, here, scene, names, options=options, progress=progress)
        if isinstance(answer, Localization) and self.near is None and options.compared:
            matched = CandidatesOfImages(scene=scene, candidates_in=seen_by, examined=list(names))
            answer = compared_in_words(self.camera, self.observations, answer, matched, ranked, options, progress)
        if isinstance(answer, NoPose):
            asked = None if isinstance(self.observations, Lines) else self.camera
            known: dict[str, Any] = {"gravity": self.gravity, "down": scene.down, "epsilon": form.mechanism.epsilon}
            return with_help(answer, asked, options.max_log10_nfa, _limits_met(here), **known)
        return answer

    def _upright(self, candidates: Candidates, names: list[str], options: WordOptions) -> UprightProblem | None:
        """The problem of keypoints where gravity of query and map, and the focal length, are known; else None."""
        if isinstance(self.observations, Lines) or self.gravity is None or self.scene.down is None:
            return None
        if is_searched(self.camera.focal):
            return None
        query: dict[str, Any] = {"camera": self.camera, "keypoints": self.observations, "gravity": self.gravity}
        limits: dict[str, Any] = {"options": options.upright, "seed": options.seed}
        return UprightProblem(candidates=candidates, scene=self.scene, names=names, **query, **limits)


def _images(scene: Scene, ranked: list[str], near: Sequence[str] | None, options: WordOptions) -> list[str]:
    """Names of the map images that candidates are taken from."""
    if near is None:
        return ranked[: options.retrieved]
    unknown = sorted(set(near) - set(scene.images))
    if unknown or not near:
        raise InputError(f"the map holds no image {', '.join(unknown)}" if unknown else "no image of the map is near")
    return list(dict.fromkeys(near))


def _limits_met(candidates: Candidates) -> str:
    """Sentence that says which limits cut the work short; empty if none did.

    The limits keep any message from occupying a server for minutes.
    """
    limits = []
    if candidates.unread:
        limits.append(f"{candidates.unread} features were not looked up, as their words are too common in the map")
    searched = candidates_searched(candidates.keypoint_rows)
    if 2 * searched > COMPARISONS:
        limits.append(f"fewer samples were drawn than asked for, as the best features have {searched} candidates")
    return "; ".join([*limits, "release fewer words a feature"]) if limits else ""


def localize_candidates(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    candidates: Candidates,
    scene: Scene,
    names: list[str],
    *,
    options: WordOptions,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """Estimate the pose of a query from candidate points of its features, or say why no pose is better than chance.

    This is the second half of `localize_words`, which names the other arguments. `candidates` come most trusted first; `names`
    are the map images of which a sample may take all its points from one. Raises InputError for lines without gravity.
    """
    count = len(np.unique(candidates.keypoint_rows))
    if count < options.min_inliers:
        return NoPose(reason=f"only {count} features share words with the map; is it of this place?", correspondences=count)
    cameras = _cameras(camera, observations)
    problem = word_problem(cameras[0], observations, candidates, scene, names, options)
    if len(cameras) > 1:  # a short search with each focal length, a full one with the best
        part_s = options.max_seconds and options.max_seconds / len(cameras)  # together as long as one full search
        brief = replace(options, max_iterations=options.min_iterations, max_seconds=part_s)
        tried = [word_problem(one, seen_with(one, camera, observations), candidates, scene, names, options) for one in cameras]
        problem = min(tried, key=lambda one: _searched(one, brief, None)[2])
    best, rows, log10_nfa = _searched(problem, options, progress)
    if best is None:
        return NoPose(
            reason=f"no pose explains the {count} features with words of the map; is it of this place?", correspondences=count
        )
    word_pose = _WordPose(problem=problem, best=best, candidates=candidates, rows=rows, log10_cameras=math.log10(len(cameras)))
    observed = [scene.images[name].point_rows for name in names] or None
    claim = word_pose.claim(log10_nfa, count, observed)
    contest = _CandidateContest(
        word_pose=word_pose,
        matched=candidate_pairs(word_pose.known_camera, problem.observations, candidates, scene, names, options),
        views=views_of(scene),
        observed=observed,
    )
    return judge(claim, lambda: rivals(contest, claim, options).equal, options)


@dataclass(frozen=True, kw_only=True, eq=False)
class _WordPose:
    """The best pose of the search among candidates, and the rows of its inliers in the problem's order.

    `log10_cameras` is log10 of the number of focal lengths that were tried.
    """

    problem: WordProblem
    best: GroupedConsensus
    candidates: Candidates
    rows: Int64[np.ndarray, "inliers"]
    log10_cameras: float

    @property
    def known_camera(self) -> Camera:
        """The camera of the search, whose focal length counts as known."""
        return replace(self.problem.camera, focal=REFINED)

    def claim(self, log10_nfa: float, count: int, observed: Observed | None) -> Claim:
        """The pose and its evidence for the judge; `log10_nfa` is that of one camera, `count` the number of features."""
        problem = self.problem
        matched = matched_features(
            problem.camera,
            problem.observations,
            self.candidates.keypoint_rows,
            self.candidates.point_rows,
            problem.scene.points,
            max_error_px=problem.limit_px,
            seed=problem.options.seed,
        )
        return Claim(
            estimate=Estimate(pose=self.best.pose, camera=problem.camera),
            evidence=PoseEvidence(rows=problem.order[self.rows], log10_nfa=log10_nfa + self.log10_cameras),
            matched=matched,
            views=views_of(problem.scene),
            observed=observed,
            unchecked=self.unchecked,
            against=self.against,
            by_chance=BY_CHANCE,
            correspondences=count,
            count=count,
        )

    def weighed(self, pose: Rigid) -> PoseEvidence:
        """Evidence for another pose, by the law that the best one is weighed by."""
        problem = self.problem
        consensus = consensus_of(problem.groups, pose, problem.limit_px / problem.camera.focal_px, 0)
        rows = problem.counted(consensus)
        return PoseEvidence(rows=problem.order[rows], log10_nfa=problem.weighed(rows, pose))

    def unchecked(self) -> PoseEvidence:
        """The evidence with inliers that no camera could have seen."""
        problem, pose = self.problem, self.best.pose
        rows = problem.apart(self.best.rows)
        return PoseEvidence(rows=problem.order[rows], log10_nfa=problem.weighed(rows, pose, anyhow=True) + self.log10_cameras)

    def against(self, evidence: PoseEvidence) -> str | None:
        """Why lines along gravity alone place the camera, or None."""
        problem = self.problem
        if not isinstance(problem, LineWords):
            return None
        is_open = problem.open_way(self.best.pose, evidence.rows) > problem.options.max_log10_nfa
        return ONE_POINT.format(len(evidence.rows), len(np.unique(self.candidates.keypoint_rows))) if is_open else None


@dataclass(frozen=True, kw_only=True, eq=False)
class _CandidateContest(PairContest):
    """The contest of poses among candidates, all of which are weighed as the best one (`word_pose`) is."""

    word_pose: _WordPose

    def weighed(self, other: Estimate) -> PoseEvidence:
        """Evidence among all candidates."""
        return self.word_pose.weighed(other.pose)


def _cameras(camera: Camera, observations: np.ndarray | Lines) -> list[Camera]:
    """The camera alone, or cameras of several focal lengths around one of which little is known."""
    if not is_searched(camera.focal):
        return [camera]
    return [zoomed(camera, factor) for factor in (HELD_FACTORS if isinstance(observations, Lines) else FOCAL_FACTORS)]


def seen_with(
    camera: Camera, declared: Camera, observations: Float32[np.ndarray, "features 2"] | Lines
) -> Float32[np.ndarray, "features 2"] | Lines:
    """Observations of a query under another focal length than the declared one, with which its lines were drawn."""
    return rescaled(observations, declared.focal_px / camera.focal_px) if isinstance(observations, Lines) else observations


def _searched(
    problem: WordProblem, search: GroupedOptions, progress: Progress | None
) -> tuple[GroupedConsensus | None, Int64[np.ndarray, "inliers"], float]:
    """Best pose with one camera, its inliers on different points, and log10 of the number of such poses that chance gives.

    Without a pose these are None, no rows, and infinity.
    """
    consensus = problem.searched(search, progress)
    if consensus is None:
        return None, np.empty(0, dtype=np.int64), math.inf
    rows = problem.counted(consensus)
    return consensus, rows, problem.weighed(rows, consensus.pose)


# So many times in a row further images must show no other place: words rank the images of a place that the map hardly knows far
# behind, and to ask for more costs little.
EMPTY = 6

# A pose among some rows of candidates, or None.
Search = Callable[[Int64[np.ndarray, "rows"]], Estimate | None]

LATE = "the comparison of its pose with places that look the same takes too long; release fewer words a feature"


class _LateError(Exception):
    """The comparison has taken all of its time."""


@dataclass(kw_only=True, eq=False)
class CandidatesOfImages(ImageMatches):
    """Candidates of a query in words among the points of more and more images of a map, as `MatchedImages` holds matches.

    - `candidates_in`: the candidates whose points some images observe, the most trusted first.
    - `examined`: names of the images that were asked for.
    """

    scene: Scene
    candidates_in: Callable[[Sequence[str]], Candidates]
    examined: list[str] = field(default_factory=list)
    _known: dict[int, Candidates] = field(default_factory=dict, init=False)  # by the number of images, the last alone

    def match(self, names: Sequence[str], progress: Progress | None = None) -> None:
        """Ask for more images; nothing is left to do for `progress`."""
        self.examined += [name for name in names if name not in self.examined]

    @property
    def candidates(self) -> Candidates:
        """The candidates in all images that were asked for."""
        count = len(self.examined)
        if count not in self._known:
            self._known = {count: self.candidates_in(self.examined)}
        return self._known[count]

    def pairs(self, names: Sequence[str] | None = None) -> tuple[Int64[np.ndarray, "pairs"], Int64[np.ndarray, "pairs"]]:
        """Rows (query features, map points) of the candidates in `names`, or in all images that were asked for."""
        candidates = self.candidates if names is None else self.candidates_in(names)
        return candidates.keypoint_rows, candidates.point_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class CandidatePoints(MatchedPoints):
    """Candidates of keypoints, among which a pose is searched for by groups: at most one candidate of a feature is right."""

    searched: Search

    rival_part = 1.0  # samples come from the most trusted groups anyway

    def estimate(self, rows: Int64[np.ndarray, "_"] | None = None, *, share: float | None = None) -> Estimate | None:
        """Pose by the search among groups in the candidates `rows` (default: all); None if there is none."""
        return self.searched(np.arange(len(self.keypoint_rows)) if rows is None else rows)


@dataclass(frozen=True, kw_only=True, eq=False)
class CandidateLines(MatchedLines):
    """Candidates of lines, among which a pose is searched for by groups: at most one candidate of a feature is right."""

    searched: Search

    def estimate(self, rows: Int64[np.ndarray, "_"] | None = None, *, share: float | None = None) -> Estimate | None:
        """Pose by the search among groups in the candidates `rows` (default: all); None if there is none."""
        return self.searched(np.arange(len(self.keypoint_rows)) if rows is None else rows)


def candidate_pairs(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    candidates: Candidates,
    scene: Scene,
    names: list[str],
    options: WordOptions,
    *,
    before: Callable[[], None] = lambda: None,
) -> CandidatePoints | CandidateLines:
    """The pairs of all candidates in their order, among which other poses are sought by a short search by groups.

    `camera` counts as known. `names` are the map images of which a sample may take all its points from one. `before` is called
    before each search.
    """
    most = min(RIVAL_SAMPLES, options.max_iterations)
    brief = replace(options, min_iterations=1, max_iterations=most)

    def searched(rows: Int64[np.ndarray, "rows"]) -> Estimate | None:
        before()
        problem = word_problem(camera, observations, candidates.take(rows), scene, names, brief)
        pose = problem.searched(brief)
        return None if pose is None else Estimate(pose=pose.pose, camera=camera)

    pairs: dict[str, Any] = {"keypoint_rows": candidates.keypoint_rows, "point_rows": candidates.point_rows}
    common = {"camera": camera, "points": scene.points, "seed": options.seed, "searched": searched, **pairs}
    if isinstance(observations, Lines):
        return CandidateLines(observations=observations, max_error_px=options.line_error_px, **common)
    return CandidatePoints(observations=observations, max_error_px=options.max_error_px, **common)


def compared_in_words(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    localization: Localization,
    matched: CandidatesOfImages,
    ranked: Sequence[str],
    options: WordOptions,
    progress: Progress | None = None,
) -> Localization | NoPose:
    """A pose of a query in words, after its comparison with places that look like the query.

    If another one explains clearly more, it is the answer. If nothing tells which is right, there is none, nor if the search's
    `max_seconds` of the processor do not suffice.

    - `matched`: holds the images in which the pose was found.
    - `ranked`: names of all images of the map, those that the query looks most like first.
    """
    thresholds: dict[str, Any] = {own.name: getattr(options, own.name) for own in fields(Acceptance)}
    limits = LocalizeOptions(retrieved=(options.retrieved,), compared=options.compared, seed=options.seed, **thresholds)
    begun, allowed = time.process_time(), options.max_seconds
    estimate = _estimate(localization, camera, observations, matched.scene)
    observations = seen_with(estimate.camera, camera, observations)
    camera = replace(estimate.camera, focal=REFINED)

    def in_time() -> None:
        if allowed is not None and time.process_time() - begun > allowed:
            raise _LateError

    def features() -> Matched:
        return candidate_pairs(
            camera, observations, matched.candidates, matched.scene, matched.examined, options, before=in_time
        )

    search = RankedSearch(
        camera=camera,
        observations=observations,
        matched=matched,
        ranked=ranked,
        options=limits,
        features=features,
        empty=EMPTY,
    )
    try:
        answer = search.compared(localization, estimate, progress)
    except _LateError:
        count = localization.correspondences
        return NoPose(reason=LATE, correspondences=count, inliers=localization.inliers, log10_nfa=localization.log10_nfa)
    if isinstance(answer, Localization) and 2 * np.isin(answer.point_rows, localization.point_rows).sum() > answer.inliers:
        return localization  # the same pose, from its own search
    return answer


def _estimate(
    localization: Localization, camera: Camera, observations: Float32[np.ndarray, "features 2"] | Lines, scene: Scene
) -> Estimate:
    """A pose with its camera, whose focal length is the one that fits the inliers best."""
    pose, rows = localization.cam_from_world, localization.keypoint_rows
    in_camera = pose.apply(scene.points[localization.point_rows])
    shown = in_camera[:, :2] / in_camera[:, 2:]
    if isinstance(observations, Lines):
        lines = observations.coefficients[rows].astype(np.float64)
        along = (lines[:, :2] * shown).sum(axis=1)
        factor = -float((along * lines[:, 2]).sum() / (along**2).sum())
    else:
        seen = np.asarray(as_colmap(camera).cam_from_img(observations[rows].astype(np.float64)))
        factor = float((seen * shown).sum() / (shown**2).sum())
    return Estimate(pose=pose, camera=zoomed(camera, factor))
