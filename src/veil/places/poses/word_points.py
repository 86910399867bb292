"""A query's words as a pose problem, and its search where they come with keypoints (docs/theory/words.md)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import ClassVar

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.colmap import pycolmap
from veil.forms import Lines
from veil.geometry.camera import FRAME_SLACK, Camera, as_colmap, half_extent
from veil.geometry.rigid import Rigid, rigid_from_colmap
from veil.geometry.robust.grouped import GroupedConsensus, GroupedOptions, consensus_of, grouped, resect_grouped
from veil.geometry.robust.significance import (
    P3P,
    SAME_PX,
    Background,
    PointBackground,
    Sampling,
    apart,
    point_agreement,
    pose_log10_nfa,
)
from veil.matching.inverted_index import Candidates
from veil.places.poses.evidence import THRESHOLDS
from veil.places.poses.options import WordOptions
from veil.progress import Progress
from veil.scene import Scene, views_of

# Inliers are weighed among these shares of the groups and numbers of candidates of each, the most trusted ones.
NESTED_GROUPS, NESTED_CANDIDATES = (0.125, 0.25, 0.5, 1.0), (1, 2, 1 << 40)


class WordProblem(ABC):
    """The candidates of one query in words as the search needs them, with what refines and weighs its poses.

    `observations` are what the query shows of its features, `shown` the same in the normalized plane: (x, y, 1) of keypoints,
    or lines with unit normals. A candidate agrees with a pose within `limit_px`, during the search within `search_px`.
    `down_cam` and `down_world` are gravity where samples are upright. `names` are images of the map of which a sample may take
    all its points from one.
    """

    # The minimal samples of the search.
    sampling: ClassVar[Sampling]
    # Share of the agreement of evenly spread features that is believed to be the least.
    floor: ClassVar[float]

    def __init__(
        self,
        camera: Camera,
        observations: np.ndarray | Lines,
        shown: Float64[np.ndarray, "features 3"],
        candidates: Candidates,
        scene: Scene,
        names: list[str],
        options: WordOptions,
        *,
        limit_px: float,
        search_px: float,
        down_cam: Float64[np.ndarray, "3"] | None = None,
        down_world: Float64[np.ndarray, "3"] | None = None,
    ) -> None:
        self.camera, self.options, self.observations, self.scene = camera, options, observations, scene
        self.limit_px, self.search_px = limit_px, search_px
        self._possible: tuple[Rigid, np.ndarray] | None = None
        self.colmap = as_colmap(camera)
        self.groups, self.order = grouped(
            group=candidates.keypoint_rows,
            points=scene.points[candidates.point_rows],
            point_rows=candidates.point_rows,
            seen=shown,
            as_lines=isinstance(observations, Lines),
            half_extent=FRAME_SLACK * half_extent(camera),
            lists=_lists(candidates, scene, names),
            down_cam=down_cam,
            down_world=down_world,
            agreement=self.floor * self.agreement(search_px),
        )
        self.keypoints = candidates.keypoint_rows[self.order]
        self.shown = shown

    @abstractmethod
    def agreement(self, limit_px: float) -> float:
        """Probability that a wrong candidate agrees within `limit_px`, if features were spread evenly over the picture."""

    @abstractmethod
    def refine(self, pose: Rigid, rows: Int64[np.ndarray, "inliers"]) -> Rigid | None:
        """The pose of least squares over inlier candidates, or None if they are too few."""

    @abstractmethod
    def distances(
        self, xy: Float64[np.ndarray, "candidates 2"], seen: Float64[np.ndarray, "candidates 3"]
    ) -> Float64[np.ndarray, "candidates"]:
        """Distances of projections to features in the normalized plane; NaN where there is no projection."""

    @abstractmethod
    def distinct(self, seen: Float64[np.ndarray, "features 3"]) -> Bool[np.ndarray, "features"]:
        """Whether each feature counts, if those at one place count once."""

    @property
    @abstractmethod
    def background(self) -> Background:
        """The query's own features, as the background of wrong matches."""

    def searched(self, search: GroupedOptions, progress: Progress | None = None) -> GroupedConsensus | None:
        """The best pose of the search, with inliers within the threshold of the result; None if no sample gives a pose."""
        consensus = resect_grouped(
            self.groups,
            limit=self.search_px / self.camera.focal_px,
            convinced=self.convinced,
            refine=self.refine,
            options=search,
            threads=self.options.threads,
            progress=progress,
        )
        return None if consensus is None else self.polished(consensus)

    def polished(self, consensus: GroupedConsensus) -> GroupedConsensus:
        """With the threshold of the result in place of that of the search, where that was wider."""
        if self.search_px <= self.limit_px:
            return consensus
        limit = self.limit_px / self.camera.focal_px
        best = consensus
        for _ in range(3):
            refined = self.refine(best.pose, best.rows)
            best = consensus_of(self.groups, refined or best.pose, limit, consensus.iterations)
        return best

    def projected(
        self, pose: Rigid, rows: Int64[np.ndarray, "candidates"] | None = None
    ) -> Float64[np.ndarray, "candidates 2"]:
        """Where each candidate (of `rows`, or of all) falls in the normalized plane, NaN where the camera does not see it."""
        points = self.groups.points if rows is None else self.groups.points[rows]
        x, y, depth = pose.rotation @ points.T + pose.translation[:, None]
        inverse = 1 / np.where(depth > 1e-9, depth, np.nan)
        xy = np.stack([x * inverse, y * inverse], axis=1)
        xy[~(np.abs(xy) <= self.groups.half_extent).all(axis=1)] = np.nan
        return xy

    def residuals(self, pose: Rigid, rows: Int64[np.ndarray, "candidates"] | None = None) -> Float64[np.ndarray, "candidates"]:
        """Distance of the projection of each candidate (of `rows`, or of all) to its feature, infinite where there is none.

        Distances are in the normalized plane.
        """
        seen = self.groups.seen[self.groups.group if rows is None else self.groups.group[rows]]
        return np.nan_to_num(self.distances(self.projected(pose, rows), seen), nan=np.inf)

    def apart(self, rows: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
        """Rows of which no two share a point or a place: repeats are no further evidence."""
        _, first = np.unique(self.groups.point_rows[rows], return_index=True)
        rows = rows[np.sort(first)]
        return rows[self.distinct(self.groups.seen[self.groups.group[rows]])]

    @cached_property
    def _apart(self) -> Bool[np.ndarray, "groups"]:
        return self.distinct(self.groups.seen)

    def counted(self, consensus: GroupedConsensus) -> Int64[np.ndarray, "inliers"]:
        """Inliers that the camera could have seen, each with a point and a place of its own."""
        return self.apart(consensus.rows[self.possible(consensus.pose)[consensus.rows]])

    def possible(self, pose: Rigid) -> Bool[np.ndarray, "candidates"]:
        """Whether the camera could have seen each candidate's point (`veil.geometry.views`)."""
        if self._possible is None or self._possible[0] is not pose:
            scene = self.scene
            mask = views_of(scene).possible(self.camera, pose, scene.points, self.groups.point_rows)
            self._possible = pose, mask
        return self._possible[1]

    def convinced(self, consensus: GroupedConsensus) -> bool:
        """Whether chance does not give this pose within the search's threshold; most are told without their background."""
        rows = self.counted(consensus)
        most = self.options.max_log10_nfa
        # Where features may agree less than evenly spread ones, their bound tells nothing before.
        sure = self.floor < 1 or self.log10_nfa(rows, self.search_px) <= most
        return len(rows) >= self.options.min_inliers and sure and self.log10_nfa(rows, self.search_px, consensus.pose) <= most

    def log10_nfa(
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
        single = self.agreement(limit_px)
        total = None if pose is None else np.concatenate([[0.0], np.cumsum(self._shares(pose, limit_px, anyhow))])
        sampling = self.sampling
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
                    agreement = min(1.0, max(agreement * self.floor, mean))
                samples = sampling.size * math.log10(float(sizes.mean()))
                tried.append(pose_log10_nfa(inliers, places, agreement, sampling) + samples)
        return min(tried) + math.log10(len(tried))

    def weighed(self, rows: Int64[np.ndarray, "inliers"], pose: Rigid, *, anyhow: bool = False) -> float:
        """The least chance over nested thresholds, times their number (`veil.places.poses.evidence.weigh`).

        With `anyhow`, inliers that the camera could not have seen count as well.
        """
        residuals = self.residuals(pose)[rows] * self.camera.focal_px
        tried = []
        for part in THRESHOLDS:
            limit = part * self.limit_px
            tried.append(self.log10_nfa(rows[residuals <= limit], limit, pose, anyhow=anyhow))
        return min(tried) + math.log10(len(THRESHOLDS))

    def _shares(self, pose: Rigid, limit_px: float, anyhow: bool) -> Float64[np.ndarray, "candidates"]:
        """For each candidate the share of other features that would agree with it, 0 where the camera sees nothing."""
        projected = self.projected(pose)
        if not anyhow:
            projected[~self.possible(pose)] = np.nan
        return self.background.shares(projected, self.groups.group, limit_px / self.camera.focal_px)


def _lists(candidates: Candidates, scene: Scene, names: list[str]) -> list[np.ndarray]:
    """Candidates from which samples are drawn: all, and those whose points one image of the map sees."""
    lists = [np.arange(len(candidates))]
    visible = np.zeros(len(scene.points), dtype=bool)
    for name in names:
        seen = scene.images[name].point_rows
        visible[seen] = True
        lists.append(np.flatnonzero(visible[candidates.point_rows]))
        visible[seen] = False
    return lists


class PointWords(WordProblem):
    """Words at keypoints: samples of three points, poses refined by COLMAP."""

    sampling, floor = P3P, 1.0

    def __init__(
        self,
        camera: Camera,
        keypoints: Float32[np.ndarray, "features 2"],
        candidates: Candidates,
        scene: Scene,
        names: list[str],
        options: WordOptions,
    ) -> None:
        self.pixels = keypoints.astype(np.float64)
        xy = np.asarray(as_colmap(camera).cam_from_img(self.pixels))
        shown = np.hstack([xy, np.ones((len(xy), 1))])
        limit = options.max_error_px
        super().__init__(camera, keypoints, shown, candidates, scene, names, options, limit_px=limit, search_px=limit)

    def agreement(self, limit_px: float) -> float:
        """Probability that a point at random in the picture lies within `limit_px` of a keypoint."""
        return point_agreement(self.camera, limit_px)

    def refine(self, pose: Rigid, rows: Int64[np.ndarray, "inliers"]) -> Rigid | None:
        """The pose of least squares over inlier candidates, or None for fewer than four."""
        refined = self._refined(pose, rows)
        return None if refined is None else rigid_from_colmap(refined["cam_from_world"])

    def _refined(self, pose: Rigid, rows: np.ndarray) -> dict | None:
        """COLMAP's record of the refined pose, or None for fewer than four inliers."""

        if len(rows) < 4:
            return None
        start = pycolmap.Rigid3d(np.hstack([pose.rotation, pose.translation[:, None]]))
        pixels, points = self.pixels[self.keypoints[rows]], self.groups.points[rows]
        inlier = np.ones(len(rows), dtype=bool)
        return pycolmap.refine_absolute_pose(start, pixels, points, inlier, self.colmap)

    def distances(
        self, xy: Float64[np.ndarray, "candidates 2"], seen: Float64[np.ndarray, "candidates 3"]
    ) -> Float64[np.ndarray, "candidates"]:
        """Distances of projections to keypoints in the normalized plane; NaN where there is no projection."""
        return np.linalg.norm(xy - seen[:, :2], axis=1)

    def distinct(self, seen: Float64[np.ndarray, "features 3"]) -> Bool[np.ndarray, "features"]:
        """Whether each keypoint counts, if those at one place count once."""
        return apart(seen[:, :2], SAME_PX / self.camera.focal_px)

    @cached_property
    def background(self) -> Background:
        """The query's keypoints, as the background of wrong matches."""
        return PointBackground(xy=self.groups.seen[:, :2], limit=1.0, same=SAME_PX / self.camera.focal_px)
