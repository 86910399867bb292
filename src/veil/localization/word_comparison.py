"""The comparison of a pose of a query in words with places of the map that look the same.

Theory: docs/theory/words.md#places-that-look-alike, localization.md#a-place-and-its-copies.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from jaxtyping import Float32, Int64

from veil.forms import Lines
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.robust.acceptance import Acceptance
from veil.localization.judged_pose import Localization, LocalizeOptions, NoPose
from veil.localization.matched_features import Matched
from veil.localization.matched_images import ImageMatches
from veil.localization.matched_lines import MatchedLines
from veil.localization.matched_pairs import Estimate
from veil.localization.matched_points import MatchedPoints
from veil.localization.ranked_search import RankedSearch
from veil.localization.word_options import WordOptions
from veil.localization.word_poses import word_problem
from veil.matching.inverted_index import Candidates
from veil.progress import Progress
from veil.scene import Scene

# Samples that look for another pose among the candidates that a pose leaves.
SAMPLES = 2000
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
    - `found`: names of the images that were asked for.
    """

    scene: Scene
    candidates_in: Callable[[Sequence[str]], Candidates]
    found: list[str] = field(default_factory=list)
    _known: dict[int, Candidates] = field(default_factory=dict, init=False)  # by the number of images, the last alone

    def match(self, names: Sequence[str], progress: Progress | None = None) -> None:
        """Ask for more images; nothing is left to do for `progress`."""
        self.found += [name for name in names if name not in self.found]

    @property
    def candidates(self) -> Candidates:
        """The candidates in all images that were asked for."""
        count = len(self.found)
        if count not in self._known:
            self._known = {count: self.candidates_in(self.found)}
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


def compared_in_words(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    found: Localization,
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
    limits = LocalizeOptions(retrieved=(options.retrieved,), compared=options.compared, seed=options.search.seed, **thresholds)
    brief = replace(options, search=replace(options.search, min_iterations=1, max_iterations=SAMPLES))
    begun, allowed = time.process_time(), options.search.max_seconds
    estimate = _estimate(found, camera, observations, matched.scene)
    camera = replace(estimate.camera, focal_is_known=True)

    def features(keypoint_rows: Int64[np.ndarray, "pairs"], point_rows: Int64[np.ndarray, "pairs"]) -> Matched:
        candidates = matched.candidates

        def searched(rows: Int64[np.ndarray, "rows"]) -> Estimate | None:
            if allowed is not None and time.process_time() - begun > allowed:
                raise _LateError
            some, names = candidates.take(rows), matched.found
            pose = word_problem(camera, observations, some, matched.scene, names, brief).found(brief.search)
            return None if pose is None else Estimate(pose=pose.pose, camera=camera)

        pairs: dict[str, Any] = {"keypoint_rows": keypoint_rows, "point_rows": point_rows, "points": matched.scene.points}
        common = {"camera": camera, "seed": options.search.seed, "searched": searched, **pairs}
        if isinstance(observations, Lines):
            return CandidateLines(observations=observations, max_error_px=options.line_error_px, **common)
        return CandidatePoints(observations=observations, max_error_px=options.max_error_px, **common)

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
        answer = search.compared(found, estimate, progress)
    except _LateError:
        count = found.correspondences
        return NoPose(reason=LATE, correspondences=count, inliers=found.inliers, log10_nfa=found.log10_nfa)
    if isinstance(answer, Localization) and 2 * np.isin(answer.point_rows, found.point_rows).sum() > answer.inliers:
        return found  # the same pose, from its own search
    return answer


def _estimate(
    found: Localization, camera: Camera, observations: Float32[np.ndarray, "features 2"] | Lines, scene: Scene
) -> Estimate:
    """A pose with its camera: a guessed focal length is the one that fits the inliers best."""
    pose = found.cam_from_world
    if isinstance(observations, Lines) or camera.focal_is_known:
        return Estimate(pose=pose, camera=camera)
    seen = np.asarray(as_colmap(camera).cam_from_img(observations[found.keypoint_rows].astype(np.float64)))
    in_camera = pose.apply(scene.points[found.point_rows])
    shown = in_camera[:, :2] / in_camera[:, 2:]
    factor = float((seen * shown).sum() / (seen**2).sum())
    count = camera.focal_count
    params = *(value / factor for value in camera.params[:count]), *camera.params[count:]
    return Estimate(pose=pose, camera=replace(camera, params=params))
