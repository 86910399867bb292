"""A query's words as a pose problem: what the search needs, what refines a pose, and what weighs it (docs/theory/words.md)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import InputError, RangeError
from veil.forms import Lines
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.rigid import Rigid, covariance_from_colmap, rigid_from_colmap
from veil.geometry.robust.acceptance import Acceptance
from veil.geometry.robust.grouped import GroupedConsensus, GroupedOptions, consensus_of, grouped
from veil.geometry.robust.resection_lines import LineResection
from veil.geometry.robust.significance import (
    LINE_FLOOR,
    P3P,
    SAME_PX,
    UPRIGHT_LINES,
    Background,
    LineBackground,
    PointBackground,
    apart,
    apart_lines,
    chance_poses,
    line_agreement,
    point_agreement,
)
from veil.localization.pose_evidence import THRESHOLDS
from veil.matching.inverted_index import Candidates
from veil.scene import Scene

# Inliers are weighed among these shares of the groups and so many candidates of each, the most trusted ones.
NESTED_GROUPS, NESTED_CANDIDATES = (0.125, 0.25, 0.5, 1.0), (1, 2, 1 << 40)


@dataclass(frozen=True, kw_only=True)
class WordOptions(Acceptance):
    """Options of queries in words: what a pose must show, and how it is searched for (docs/theory/words.md).

    - `max_error_px`, `line_error_px`, `min_inliers`, `max_log10_nfa`, `max_turn_deg`: as in `LocalizeOptions`.
    - `retrieved`: number of map images, those most similar to the query's words, whose points are candidates.
    - `gravity_sigma_deg`: standard deviation of gravity in query and map together, in degrees, for words with lines.
    - `search`: number of samples, confidence, time limit (seconds of the processor) and seed of the search.
    - `threads`: threads of the search; the answer does not depend on their number.

    Raises RangeError for values outside their range.
    """

    retrieved: int = 20
    gravity_sigma_deg: float = 0.5
    search: GroupedOptions = field(default_factory=GroupedOptions)
    threads: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gravity_sigma_deg < 45:
            raise RangeError(f"gravity_sigma_deg must lie in [0, 45), got {self.gravity_sigma_deg!r}")
        if self.retrieved < 1 or self.threads < 1:
            raise RangeError(f"retrieved and threads must be at least 1, got {self.retrieved!r} and {self.threads!r}")


class WordProblem:
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
        self.camera, self.options, self.seen, self.scene = camera, options, seen, scene
        self._possible: tuple[Rigid, np.ndarray] | None = None
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
            agreement=LINE_FLOOR * line_agreement(camera, self.search_px)
            if self.as_lines
            else point_agreement(camera, self.search_px),
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
        return None if found is None else covariance_from_colmap(found)

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

    def projected(self, pose: Rigid) -> Float64[np.ndarray, "candidates 2"]:
        """Where each candidate falls in the normalized plane, NaN where the camera does not see it."""
        x, y, depth = pose.rotation @ self.groups.points.T + pose.translation[:, None]
        inverse = 1 / np.where(depth > 1e-9, depth, np.nan)
        xy = np.stack([x * inverse, y * inverse], axis=1)
        xy[~(np.abs(xy) <= self.groups.half_extent).all(axis=1)] = np.nan
        return xy

    def residuals(self, pose: Rigid) -> Float64[np.ndarray, "candidates"]:
        """Distance of each candidate's projection to its feature (normalized plane), infinite where there is none."""
        xy, seen = self.projected(pose), self.groups.seen[self.groups.group]
        to_line = np.abs((seen[:, :2] * xy).sum(axis=1) + seen[:, 2])
        return np.nan_to_num(to_line if self.as_lines else np.linalg.norm(xy - seen[:, :2], axis=1), nan=np.inf)

    def apart(self, rows: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
        """Rows of which no two share a point or a place: repeats are no further evidence."""
        _, first = np.unique(self.groups.point_rows[rows], return_index=True)
        rows = rows[np.sort(first)]
        return rows[self._distinct(self.groups.seen[self.groups.group[rows]])]

    def _distinct(self, seen: Float64[np.ndarray, "_ 3"]) -> Bool[np.ndarray, "_"]:
        """Which keypoints, or lines, stay if those at one place count once."""
        same = SAME_PX / self.camera.focal_px
        if self.as_lines:
            return apart_lines(seen, float(np.linalg.norm(self.groups.half_extent)), same)
        return apart(seen[:, :2], same)

    @cached_property
    def _apart(self) -> Bool[np.ndarray, "groups"]:
        return self._distinct(self.groups.seen)

    def counted(self, found: GroupedConsensus) -> Int64[np.ndarray, "inliers"]:
        """Inliers that the camera could have seen, each with a point and a place of its own."""
        return self.apart(found.rows[self.possible(found.pose)[found.rows]])

    def possible(self, pose: Rigid) -> Bool[np.ndarray, "candidates"]:
        """Whether the camera could have seen each candidate's point (`veil.geometry.views`)."""
        if self._possible is None or self._possible[0] is not pose:
            scene = self.scene
            mask = scene.views.possible(self.camera, pose, scene.points, self.groups.point_rows)
            self._possible = pose, mask
        return self._possible[1]

    def convinced(self, found: GroupedConsensus) -> bool:
        """Whether chance does not give this pose within the search's threshold; most are told without their background."""
        rows = self.counted(found)
        most = self.options.max_log10_nfa
        # Words with lines reach less than the bound of evenly spread lines, so that it tells nothing before.
        sure = self.as_lines or self.chance(rows, self.search_px) <= most
        return len(rows) >= self.options.min_inliers and sure and self.chance(rows, self.search_px, found.pose) <= most

    def chance(
        self, rows: Int64[np.ndarray, "inliers"], limit_px: float, pose: Rigid | None = None, *, anyhow: bool = False
    ) -> float:
        """log10 of the expected number of chance poses with such inliers within `limit_px` (docs/theory/words.md, Eq. 19-20).

        Each of a feature's candidates is one more chance to agree, and right ones gather among the most trusted: the least over
        nested sets of groups and of candidates in them, times the number of sets. With the `pose`, a candidate agrees as often
        as the other features would in its feature's place, else as if they were spread over the picture.
        """
        starts = self.groups.starts
        group = self.groups.group[rows]
        rank = rows - starts[group]
        single = (line_agreement if self.as_lines else point_agreement)(self.camera, limit_px)
        total = None if pose is None else np.concatenate([[0.0], np.cumsum(self._shares(pose, limit_px, anyhow))])
        sampling = UPRIGHT_LINES if self.as_lines else P3P
        tried = []
        for groups in {max(1, int(share * (len(starts) - 1))) for share in NESTED_GROUPS}:
            for most in NESTED_CANDIDATES:
                sizes = np.minimum(np.diff(starts[: groups + 1]), most)
                agreement = float(np.minimum(1.0, sizes * single).mean())
                inliers, places = int(((group < groups) & (rank < most)).sum()), groups
                if total is not None:
                    places = max(int(self._apart[:groups].sum()), inliers)
                    crowded = total[starts[:groups] + sizes] - total[starts[:groups]]
                    # The sample's own groups are left out of the mean.
                    mean = float(np.minimum(1.0, crowded).sum()) / max(places - sampling.size, 1)
                    agreement = min(1.0, max(agreement * (LINE_FLOOR if self.as_lines else 1.0), mean))
                samples = sampling.size * math.log10(float(sizes.mean()))
                tried.append(chance_poses(inliers, places, agreement, sampling) + samples)
        return min(tried) + math.log10(len(tried))

    def weighed(self, rows: Int64[np.ndarray, "inliers"], pose: Rigid, *, anyhow: bool = False) -> float:
        """The least chance over nested thresholds, times their number (`veil.localization.pose_evidence.weigh`).

        With `anyhow`, inliers that the camera could not have seen count as well.
        """
        residuals = self.residuals(pose)[rows] * self.camera.focal_px
        tried = []
        for part in THRESHOLDS:
            limit = part * self.limit_px
            tried.append(self.chance(rows[residuals <= limit], limit, pose, anyhow=anyhow))
        return min(tried) + math.log10(len(THRESHOLDS))

    def _shares(self, pose: Rigid, limit_px: float, anyhow: bool) -> Float64[np.ndarray, "candidates"]:
        """For each candidate the share of other features that would agree with it, 0 where the camera sees nothing."""
        projected = self.projected(pose)
        if not anyhow:
            projected[~self.possible(pose)] = np.nan
        return self._background.shares(projected, self.groups.group, limit_px / self.camera.focal_px)

    @cached_property
    def _background(self) -> Background:
        seen = self.groups.seen
        if self.as_lines:
            return LineBackground(lines=seen, limit=1.0)
        return PointBackground(xy=seen[:, :2], limit=1.0, same=SAME_PX / self.camera.focal_px)


def _lists(candidates: Candidates, scene: Scene, names: list[str]) -> list[np.ndarray]:
    """What samples are drawn from: all candidates, and those whose points one image of the map sees."""
    lists = [np.arange(len(candidates))]
    for name in names:
        visible = np.zeros(len(scene.points), dtype=bool)
        visible[scene.images[name].point_rows] = True
        lists.append(np.flatnonzero(visible[candidates.point_rows]))
    return lists
