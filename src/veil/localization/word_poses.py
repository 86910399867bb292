"""Poses of queries in words, from keypoints or from lines that hide them."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.errors import InputError, Remedy
from veil.forms import Lines
from veil.geometry.anchors import are_of_halves
from veil.geometry.camera import Camera, as_colmap
from veil.geometry.rigid import Rigid, covariance_from_colmap, rigid_from_colmap
from veil.geometry.robust.grouped import GroupedConsensus, GroupedOptions
from veil.geometry.robust.resection_lines import LOSS_PX, LineResection
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
    line_agreement,
    point_agreement,
)
from veil.localization.line_words import line_search
from veil.localization.word_options import WordOptions
from veil.localization.word_problem import WordProblem
from veil.matching.inverted_index import Candidates
from veil.progress import Progress
from veil.scene import Scene


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

    def covariance(self, pose: Rigid, rows: Int64[np.ndarray, "inliers"]) -> Float64[np.ndarray, "6 6"] | None:
        """Covariance of (rotation, translation) in the camera frame, or None for fewer than four inliers."""
        refined = self._refined(pose, rows)
        return None if refined is None else covariance_from_colmap(refined)

    def with_focal(self, pose: Rigid, rows: Int64[np.ndarray, "inliers"]) -> Rigid:
        """The pose after its focal length was refined with it; the pose itself where that fails."""
        from veil.colmap import pycolmap

        start = pycolmap.Rigid3d(np.hstack([pose.rotation, pose.translation[:, None]]))
        refinement = pycolmap.AbsolutePoseRefinementOptions()
        refinement.refine_focal_length = True
        pixels, points = self.pixels[self.keypoints[rows]], self.groups.points[rows]
        inlier = np.ones(len(rows), dtype=bool)
        refined = pycolmap.refine_absolute_pose(start, pixels, points, inlier, as_colmap(self.camera), refinement)
        return pose if refined is None else rigid_from_colmap(refined["cam_from_world"])

    def _refined(self, pose: Rigid, rows: np.ndarray) -> dict | None:
        """COLMAP's record of the refined pose, or None for fewer than four inliers."""
        from veil.colmap import pycolmap

        if len(rows) < 4:
            return None
        start = pycolmap.Rigid3d(np.hstack([pose.rotation, pose.translation[:, None]]))
        pixels, points = self.pixels[self.keypoints[rows]], self.groups.points[rows]
        inlier = np.ones(len(rows), dtype=bool)
        return pycolmap.refine_absolute_pose(start, pixels, points, inlier, self.colmap, return_covariance=True)

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


class LineWords(WordProblem):
    """Words with lines in place of keypoints: samples of four lines, upright by the gravity of query and map."""

    sampling, floor = UPRIGHT_LINES, LINE_FLOOR

    def __init__(
        self, camera: Camera, lines: Lines, candidates: Candidates, scene: Scene, names: list[str], options: WordOptions
    ) -> None:
        if lines.gravity is None or scene.down is None:
            side = "the query" if lines.gravity is None else "the map"
            raise InputError(
                f"words with lines are localized upright, and {side} has no gravity",
                remedy=Remedy("give", "HideInLines.gravity") if lines.gravity is None else Remedy("give", "map_images.gravity"),
            )
        if are_of_halves(lines.coefficients.astype(np.float64), lines.aligned, camera):
            # Samples of four such lines mostly leave a way open (docs/theory/lines.md#lines-of-two-halves).
            raise InputError("words with convergent or parallel lines are not localized; release them with random lines")
        self.aligned, self.candidates, self.names = lines.aligned, candidates, names
        super().__init__(
            camera,
            lines,
            lines.coefficients.astype(np.float64),
            candidates,
            scene,
            names,
            options,
            limit_px=options.line_error_px,
            # Gravity off by one sigma moves a projection by f tan(sigma) near the image's center.
            search_px=options.line_error_px + camera.focal_px * math.tan(math.radians(options.gravity_sigma_deg)),
            down_cam=lines.gravity,
            down_world=scene.down,
        )

    def found(self, search: GroupedOptions, progress: Progress | None = None) -> GroupedConsensus | None:
        """The best pose of samples of one mapped image each; where words tell no candidate from another, of uniform ones."""
        assert isinstance(self.observations, Lines) and self.observations.gravity is not None and self.scene.down is not None
        lines = line_search(self, self.candidates, self.names, self.observations.gravity, self.scene.down, self.weighted)
        return super().found(search, progress) if lines is None else lines.best(search, progress)

    def agreement(self, limit_px: float) -> float:
        """Probability that a point at random in the picture lies within `limit_px` of a line."""
        return line_agreement(self.camera, limit_px)

    def refine(self, pose: Rigid, rows: Int64[np.ndarray, "inliers"]) -> Rigid | None:
        """The pose of robust least squares over inlier candidates, or None if their lines do not determine one."""
        return self.weighted(pose, rows, np.ones(len(rows)), LOSS_PX)

    def weighted(
        self, pose: Rigid, rows: Int64[np.ndarray, "used"], weights: Float64[np.ndarray, "used"], loss_px: float
    ) -> Rigid | None:
        """The pose of weighted least squares over candidates, with a Cauchy loss; None if their lines do not determine one."""
        keypoints = self.keypoints[rows]
        resection = LineResection(
            lines=self.shown[keypoints] * np.sqrt(weights)[:, None],
            points=self.groups.points[rows],
            aligned=self.aligned[keypoints],
            focal_px=self.camera.focal_px,
            half_extent=self.groups.half_extent,
        )
        return resection.refine(pose, np.ones(len(rows), dtype=bool), loss_px)

    def covariance(self, pose: Rigid, rows: Int64[np.ndarray, "inliers"]) -> None:
        """None: the covariance of a pose from lines is not computed."""

    def distances(
        self, xy: Float64[np.ndarray, "candidates 2"], seen: Float64[np.ndarray, "candidates 3"]
    ) -> Float64[np.ndarray, "candidates"]:
        """Distances of projections to lines in the normalized plane; NaN where there is no projection."""
        return np.abs((seen[:, :2] * xy).sum(axis=1) + seen[:, 2])

    def distinct(self, seen: Float64[np.ndarray, "features 3"]) -> Bool[np.ndarray, "features"]:
        """Whether each line counts, if those that coincide in the picture count once."""
        return apart_lines(seen, float(np.linalg.norm(self.groups.half_extent)), SAME_PX / self.camera.focal_px)

    @cached_property
    def background(self) -> Background:
        """The query's lines, as the background of wrong matches."""
        return LineBackground(lines=self.groups.seen, limit=1.0)


def word_problem(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    candidates: Candidates,
    scene: Scene,
    names: list[str],
    options: WordOptions,
) -> PointWords | LineWords:
    """The pose problem of a query in words, by what it shows of its features. Raises InputError for lines without gravity."""
    if isinstance(observations, Lines):
        return LineWords(camera, observations, candidates, scene, names, options)
    return PointWords(camera, observations, candidates, scene, names, options)
