"""A query in words against a map: candidates by the mechanism's law, a pose by grouped RANSAC, weighed against chance.

Pittaluga and Zhuang 2023, Sec. 6.2 with traps L10-L12; docs/theory/words.md. Positions may be keypoints, or the lines that
hide them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from jaxtyping import Float32, Float64, Int64

from veil.errors import InputError, RangeError
from veil.forms import Lines, Subsets
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.grouped import (
    COMPARISONS,
    GroupedConsensus,
    GroupedOptions,
    candidates_searched,
    consensus_of,
    grouped,
    resect_grouped,
)
from veil.geometry.resection_lines import LineResection
from veil.geometry.rigid import Rigid, rigid_from_colmap
from veil.kernels.grouped import Groups
from veil.localize import P3P, Localization, NoPose, Sampling, chance_poses, line_agreement, point_agreement
from veil.match.retrieval import most_similar
from veil.match.vocabulary import Candidates, Vocabulary, vocabulary_candidates
from veil.scene import Scene

UPRIGHT_LINES = Sampling(size=4, poses=2)
# Of a guessed focal length: a guess of 1.2 times the longer side is right within these for most cameras.
FOCAL_FACTORS = (0.6, 0.7, 0.82, 0.95, 1.1, 1.3, 1.55)
# Inliers are weighed among these shares of the groups and so many candidates of each, the most trusted ones.
NESTED_GROUPS, NESTED_CANDIDATES = (0.125, 0.25, 0.5, 1.0), (1, 2, 1 << 40)


@dataclass(frozen=True, kw_only=True)
class WordOptions:
    """Thresholds in pixels as in `veil.localize.LocalizeOptions`; candidates are points that the `retrieved` images of the map
    that the words look like most see. `gravity_sigma_deg` is the error of gravity in query and map together, for lines."""

    max_error_px: float = 8.0
    line_error_px: float = 4.0
    min_inliers: int = 15
    max_log10_nfa: float = -6.0
    retrieved: int = 20
    gravity_sigma_deg: float = 0.5
    search: GroupedOptions = field(default_factory=GroupedOptions)
    threads: int = 2

    def __post_init__(self) -> None:
        for name in ("max_error_px", "line_error_px"):
            if not 0 < getattr(self, name) < math.inf:
                raise RangeError(f"{name} must be positive and finite, got {getattr(self, name)!r}")
        if not 0 <= self.gravity_sigma_deg < 45:
            raise RangeError(f"gravity_sigma_deg must lie in [0, 45), got {self.gravity_sigma_deg!r}")
        if self.min_inliers < 6:
            raise RangeError(f"min_inliers below 6 accepts chance, got {self.min_inliers!r}")
        if not self.max_log10_nfa <= 0:
            raise RangeError(f"max_log10_nfa must be at most 0, got {self.max_log10_nfa!r}")
        if self.retrieved < 1 or self.threads < 1:
            raise RangeError(f"retrieved and threads must be at least 1, got {self.retrieved!r} and {self.threads!r}")


def localize_words(
    camera: Camera,
    seen: Float32[np.ndarray, "features 2"] | Lines,
    form: Subsets,
    scene: Scene,
    vocabulary: Vocabulary,
    *,
    options: WordOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Localization | NoPose:
    """Vocabulary matching (traps L10) among the images that the query looks like, then a pose or a reason why there is none.

    Raises SpaceError if the query's dictionary is not the vocabulary's, InputError for lines where gravity of query or map is
    unknown.
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
    progress: Callable[[int, int], None] | None = None,
) -> Localization | NoPose:
    """The second half of `localize_words`: from candidates to a weighed pose; `names` are images whose points samples share."""
    count = len(np.unique(candidates.keypoint_rows))
    if count < options.min_inliers:
        return NoPose(reason=f"only {count} features share words with the map; is it of this place?", correspondences=count)
    cameras = _cameras(camera, seen)
    problem = _Problem(cameras[0], seen, candidates, scene, names, options)
    if len(cameras) > 1:  # a short search with each focal length, a full one with the best
        brief = replace(options.search, max_iterations=options.search.min_iterations)
        tried = [_Problem(one, seen, candidates, scene, names, options) for one in cameras]
        problem = min(tried, key=lambda one: _searched(one, brief, None)[2])
    found, rows, log10_nfa = _searched(problem, options.search, progress)
    log10_nfa += math.log10(len(cameras))
    if found is None:
        return NoPose(reason=f"no pose explains the {count} features with words of the map", correspondences=count)
    if len(rows) < options.min_inliers or log10_nfa > options.max_log10_nfa:
        return NoPose(
            reason=f"the best pose has {len(rows)} of {count} features as inliers, which chance also gives "
            f"(log10 of expected chance poses {log10_nfa:.1f}); is the map of this place, or epsilon too small?",
            correspondences=count,
            inliers=len(rows),
            log10_nfa=log10_nfa,
        )
    chosen = problem.order[rows]
    pose = found.pose if len(cameras) == 1 else problem.with_focal(found.pose, rows)
    return Localization(
        cam_from_world=pose,
        covariance=problem.covariance(found.pose, rows),
        keypoint_rows=candidates.keypoint_rows[chosen],
        point_rows=candidates.point_rows[chosen],
        correspondences=count,
        log10_nfa=log10_nfa,
    )


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
    problem: _Problem, search: GroupedOptions, progress: Callable[[int, int], None] | None
) -> tuple[GroupedConsensus | None, Int64[np.ndarray, "inliers"], float]:
    """The best pose with one camera, its inliers on different points, and how many such poses chance gives (log10)."""
    options = problem.options
    found = resect_grouped(
        problem.groups,
        limit=problem.search_px / problem.camera.focal_px,
        convinced=lambda rows: problem.chance(rows, problem.search_px) <= options.max_log10_nfa,
        refine=problem.refine,
        options=search,
        threads=options.threads,
        progress=progress,
    )
    if found is None:
        return None, np.empty(0, dtype=np.int64), math.inf
    found = problem.polished(found)
    rows = _one_a_point(problem.groups, found)
    return found, rows, problem.chance(rows, problem.limit_px)


class _Problem:
    """One query's candidates as the search needs them, and what weighs and refines its poses."""

    def __init__(
        self,
        camera: Camera,
        seen: np.ndarray | Lines,
        candidates: Candidates,
        scene: Scene,
        names: list[str],
        options: WordOptions,
    ) -> None:
        self.camera, self.options = camera, options
        self.colmap = as_colmap(camera)
        self.as_lines = isinstance(seen, Lines)
        self.limit_px = options.line_error_px if self.as_lines else options.max_error_px
        self.search_px = self.limit_px
        corners = np.array([[0.0, 0.0], [camera.width_px, camera.height_px]])
        down_cam = down_world = None
        if isinstance(seen, Lines):
            down_cam, down_world = seen.gravity, scene.down
            if down_cam is None or down_world is None:
                side = "the query" if down_cam is None else "the map"
                raise InputError(
                    f"words with lines are localized upright, and {side} has no gravity; release with --gravity, and give the "
                    "map's with `veil map --gravity`"
                )
            # Gravity off by one sigma moves a projection by f tan(sigma) near the image's center.
            self.search_px += camera.focal_px * math.tan(math.radians(options.gravity_sigma_deg))
            shown, self.pixels, aligned = seen.coefficients.astype(np.float64), None, seen.aligned
        else:
            self.pixels, aligned = seen.astype(np.float64), None
            xy = np.asarray(self.colmap.cam_from_img(self.pixels))
            shown = np.hstack([xy, np.ones((len(xy), 1))])
        self.groups, self.order = grouped(
            group=candidates.keypoint_rows,
            points=scene.points[candidates.point_rows],
            point_rows=candidates.point_rows,
            seen=shown,
            as_lines=self.as_lines,
            half_extent=1.1 * np.abs(np.asarray(self.colmap.cam_from_img(corners))).max(axis=0),
            lists=_lists(candidates, scene, names),
            down_cam=down_cam,
            down_world=down_world,
            agreement=(line_agreement if self.as_lines else point_agreement)(camera, self.search_px),
        )
        self.keypoints = candidates.keypoint_rows[self.order]
        self.shown, self.aligned = shown, aligned

    def refine(self, pose: Rigid, rows: Int64[np.ndarray, "inliers"]) -> Rigid | None:
        """Least squares over inlier candidates, robust for lines; None if they are too few."""
        if self.pixels is None:
            problem = self._lines(rows)
            return problem.refine(pose, np.ones(len(rows), dtype=bool))
        found = self._refined(pose, rows)
        return None if found is None else rigid_from_colmap(found["cam_from_world"])

    def polished(self, found: GroupedConsensus) -> GroupedConsensus:
        """With the threshold of the result in place of that of the search, where that was wider."""
        if self.search_px <= self.limit_px:
            return found
        limit = self.limit_px / self.camera.focal_px
        best = found
        for _ in range(3):
            refined = self.refine(best.pose, best.rows)
            best = consensus_of(self.groups, refined or best.pose, limit, found.iterations)
        return best

    def covariance(self, pose: Rigid, rows: Int64[np.ndarray, "inliers"]) -> Float64[np.ndarray, "6 6"] | None:
        """Of (rotation, translation) in the camera frame, from points."""
        if self.pixels is None:
            return None
        found = self._refined(pose, rows)
        return None if found is None or found.get("covariance") is None else np.asarray(found["covariance"], dtype=np.float64)

    def with_focal(self, pose: Rigid, rows: Int64[np.ndarray, "inliers"]) -> Rigid:
        """The pose after its focal length was refined with it; the pose itself where that fails."""
        import pycolmap

        assert self.pixels is not None
        start = pycolmap.Rigid3d(np.hstack([pose.rotation, pose.translation[:, None]]))
        refinement = pycolmap.AbsolutePoseRefinementOptions()
        refinement.refine_focal_length = True
        pixels, points = self.pixels[self.keypoints[rows]], self.groups.points[rows]
        inlier = np.ones(len(rows), dtype=bool)
        found = pycolmap.refine_absolute_pose(start, pixels, points, inlier, as_colmap(self.camera), refinement)
        return pose if found is None else rigid_from_colmap(found["cam_from_world"])

    def _refined(self, pose: Rigid, rows: np.ndarray) -> dict | None:
        import pycolmap

        if len(rows) < 4:
            return None
        assert self.pixels is not None
        start = pycolmap.Rigid3d(np.hstack([pose.rotation, pose.translation[:, None]]))
        pixels, points = self.pixels[self.keypoints[rows]], self.groups.points[rows]
        inlier = np.ones(len(rows), dtype=bool)
        return pycolmap.refine_absolute_pose(start, pixels, points, inlier, self.colmap, return_covariance=True)

    def _lines(self, rows: np.ndarray) -> LineResection:
        assert self.aligned is not None
        keypoints = self.keypoints[rows]
        return LineResection(
            lines=self.shown[keypoints],
            points=self.groups.points[rows],
            aligned=self.aligned[keypoints],
            focal_px=self.camera.focal_px,
            half_extent=self.groups.half_extent,
        )

    def chance(self, rows: Int64[np.ndarray, "inliers"], limit_px: float) -> float:
        """log10 of the expected number of chance poses with such inliers within `limit_px` (docs/theory/words.md, Eq. 19-20).

        Each of a feature's candidates is one more chance to agree, and right ones gather among the most trusted: the least over
        nested sets of groups and of candidates in them, times the number of sets.
        """
        starts = self.groups.starts
        group = self.groups.group[rows]
        rank = rows - starts[group]
        single = (line_agreement if self.as_lines else point_agreement)(self.camera, limit_px)
        sampling = UPRIGHT_LINES if self.as_lines else P3P
        tried = []
        for groups in {max(1, int(share * (len(starts) - 1))) for share in NESTED_GROUPS}:
            for most in NESTED_CANDIDATES:
                sizes = np.minimum(np.diff(starts[: groups + 1]), most)
                agreement = float(np.minimum(1.0, sizes * single).mean())
                inliers = int(((group < groups) & (rank < most)).sum())
                samples = sampling.size * math.log10(float(sizes.mean()))
                tried.append(chance_poses(inliers, groups, agreement, sampling) + samples)
        return min(tried) + math.log10(len(tried))


def _lists(candidates: Candidates, scene: Scene, names: list[str]) -> list[np.ndarray]:
    """What samples are drawn from: all candidates, and those whose points one image of the map sees."""
    lists = [np.arange(len(candidates))]
    for name in names:
        visible = np.zeros(len(scene.points), dtype=bool)
        visible[scene.images[name].point_rows] = True
        lists.append(np.flatnonzero(visible[candidates.point_rows]))
    return lists


def _one_a_point(groups: Groups, found: GroupedConsensus) -> Int64[np.ndarray, "inliers"]:
    """Inliers of which no two share a point: repeats are no further evidence."""
    _, first = np.unique(groups.point_rows[found.rows], return_index=True)
    return found.rows[np.sort(first)]
