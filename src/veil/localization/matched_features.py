"""Features of a query matched with points of a map: what a pose is estimated from, and how well it fits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.forms import Lines
from veil.geometry.camera import Camera, as_colmap, from_colmap
from veil.geometry.free_calibration import Sights
from veil.geometry.rigid import Rigid, covariance_from_colmap, rigid_from_colmap
from veil.geometry.robust.ransac import RansacOptions
from veil.geometry.robust.resection_lines import LineResection, resect_from_lines
from veil.geometry.robust.significance import (
    LINE_FLOOR,
    P3P,
    P4PF,
    P6L,
    SAME_PX,
    Background,
    LineBackground,
    PointBackground,
    Sampling,
    apart,
    apart_lines,
    line_agreement,
    point_agreement,
)

# Samples that look for another pose among what the best one leaves: as many as find one of the same weight, and no more.
RIVAL_SAMPLES_POINTS, RIVAL_SAMPLES_LINES, RIVAL_MISSED = 3000, 100, 1e-3
# Refinements over all pairs of a pose found among some.
TRUSTED_ROUNDS = 2
# Projections so far beyond the picture's border still count as in it.
FRAME_SLACK = 1.1
# Of a query that ends before its picture does, at most this share of keypoints lies beyond, and of lines, which cross a window
# more often than not wherever they come from, this one; windows tried along each axis.
BEYOND, LINES_BEYOND, WINDOWS = 0.02, 0.005, 9


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """A pose with the camera that it was estimated with, and its covariance where the solver gives one."""

    pose: Rigid
    camera: Camera
    covariance: Float64[np.ndarray, "6 6"] | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class _Pairs:
    """Features of a query and the points that they match: rows of both, the most trusted pairs first."""

    camera: Camera
    keypoint_rows: Int64[np.ndarray, "pairs"]
    point_rows: Int64[np.ndarray, "pairs"]
    points: Float64[np.ndarray, "points 3"]
    max_error_px: float
    seed: int

    @cached_property
    def _unique(self) -> tuple[Int64[np.ndarray, "_"], Int64[np.ndarray, "pairs"]]:
        return np.unique(self.keypoint_rows, return_inverse=True)

    @property
    def own(self) -> Int64[np.ndarray, "pairs"]:
        """Each pair's row in the background."""
        return self._unique[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedPoints(_Pairs):
    """Keypoints against points: P3P and a least-squares refinement by COLMAP; with an unknown focal length, P4Pf."""

    seen: Float32[np.ndarray, "features 2"]

    rival_part = 0.25  # of the pairs that a pose leaves, the most trusted ones

    @property
    def sampling(self) -> Sampling:
        """Of the minimal solver."""
        return P3P if self.camera.focal_is_known else P4PF

    def floor(self, part: float) -> float:
        """The least probability of an agreement by chance: that of keypoints spread over the picture."""
        return point_agreement(self.camera, part * self.max_error_px)

    @cached_property
    def background(self) -> Background:
        """All matched keypoints."""
        xy = self.seen[self._unique[0]].astype(np.float64)
        return PointBackground(xy=xy, limit=self.max_error_px, same=SAME_PX)

    @cached_property
    def _xy(self) -> Float64[np.ndarray, "pairs 2"]:
        return self.seen[self.keypoint_rows].astype(np.float64)

    def estimate(self, rows: Int64[np.ndarray, "_"] | None = None, *, share: float | None = None) -> Estimate | None:
        """LO-RANSAC and refinement over the inliers."""
        import pycolmap

        rows = np.arange(len(self.keypoint_rows)) if rows is None else rows
        estimation = pycolmap.AbsolutePoseEstimationOptions()
        estimation.ransac.max_error = self.max_error_px
        estimation.ransac.random_seed = self.seed
        estimation.estimate_focal_length = not self.camera.focal_is_known
        if share is not None:
            estimation.ransac.max_num_trials = samples_for(share, self.sampling.size, RIVAL_SAMPLES_POINTS)
            estimation.ransac.min_num_trials = min(100, estimation.ransac.max_num_trials)
        refinement = pycolmap.AbsolutePoseRefinementOptions()
        refinement.refine_focal_length = not self.camera.focal_is_known
        camera = as_colmap(self.camera)  # its focal length is refined in place
        found = pycolmap.estimate_and_refine_absolute_pose(
            self._xy[rows],
            self.points[self.point_rows[rows]],
            camera,
            estimation,
            refinement,
            return_covariance=share is None,
        )
        if found is None or not (self.camera.focal_is_known or self._plausible(float(camera.params[0]))):
            return None
        return self._estimate(found, camera)

    def among_trusted(self, part: float) -> Estimate | None:
        """The pose that most of the first `part` of the pairs agree with, refined over all pairs that do.

        Where one pair in twenty is right, ten thousand samples of all of them may well hold no right one; among the most
        trusted pairs right ones are frequent.
        """
        import pycolmap

        first = round(part * len(self.keypoint_rows))
        found = self.estimate(np.arange(first)) if first > self.sampling.size else None
        for _ in range(TRUSTED_ROUNDS):
            if found is None:
                return None
            rows = np.flatnonzero(self.agrees(self.projected(found)))
            if len(rows) <= self.sampling.size:
                return found
            start = pycolmap.Rigid3d(np.hstack([found.pose.rotation, found.pose.translation[:, None]]))
            free = pycolmap.AbsolutePoseRefinementOptions()
            free.refine_focal_length = not self.camera.focal_is_known
            camera, inlier = as_colmap(found.camera), np.ones(len(rows), dtype=bool)  # the camera is refined in place
            xyz = self.points[self.point_rows[rows]]
            refined = pycolmap.refine_absolute_pose(start, self._xy[rows], xyz, inlier, camera, free, return_covariance=True)
            if refined is None or not (self.camera.focal_is_known or self._plausible(float(camera.params[0]))):
                return found
            found = self._estimate(refined, camera)
        return found

    def _estimate(self, found: dict[str, Any], camera: Any) -> Estimate:
        """COLMAP's result, with its camera where the focal length was refined."""
        return Estimate(
            pose=rigid_from_colmap(found["cam_from_world"]),
            camera=self.camera if self.camera.focal_is_known else from_colmap(camera),
            covariance=covariance_from_colmap(found),
        )

    def _plausible(self, focal_px: float) -> bool:
        """COLMAP's range: between a tenth of and ten times the longer side."""
        return 0.1 <= focal_px / max(self.camera.width_px, self.camera.height_px) <= 10

    def projected(self, found: Estimate) -> Float64[np.ndarray, "pairs 2"]:
        """Pixels; NaN behind the camera."""
        in_camera = found.pose.apply(self.points[self.point_rows])
        ahead = in_camera[:, 2] > 1e-9
        xy = np.full((len(in_camera), 2), np.nan)
        if ahead.any():
            xy[ahead] = np.asarray(as_colmap(found.camera).img_from_cam(in_camera[ahead]), dtype=np.float64).reshape(-1, 2)
        return xy

    def agrees(self, projected: Float64[np.ndarray, "pairs 2"], factor: float = 1.0) -> Bool[np.ndarray, "pairs"]:
        """Within `factor` times the threshold."""
        gap = np.linalg.norm(projected - self._xy, axis=1)
        return np.nan_to_num(gap, nan=np.inf) <= factor * self.max_error_px

    def sights(self, found: Estimate) -> Sights:
        """All pairs in the normalized plane of the estimate's camera."""
        xy = np.asarray(as_colmap(found.camera).cam_from_img(self._xy), dtype=np.float64).reshape(-1, 2)
        seen = np.hstack([xy, np.ones((len(xy), 1))])
        return Sights(points=self.points[self.point_rows], seen=seen, as_lines=False)

    def fits_in(self, part: float) -> bool:
        """Whether nearly all keypoints of the query lie in a window of `part` of the picture's width and height."""
        low, high = np.percentile(self.seen, [50 * BEYOND, 100 - 50 * BEYOND], axis=0)
        return bool((high - low <= part * np.array([self.camera.width_px, self.camera.height_px])).all())

    def distinct(self, rows: Int64[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
        """One inlier a position."""
        return apart(self._xy[rows], SAME_PX)


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedLines(_Pairs):
    """Lines against points: six-line samples, refinement by the line adjustment; everything in the normalized plane."""

    seen: Lines

    sampling = P6L
    rival_part = 1.0  # samples come from the most trusted pairs anyway

    def among_trusted(self, part: float) -> Estimate | None:
        """None: samples of lines come from the most trusted pairs anyway."""
        return None

    def floor(self, part: float) -> float:
        """The least probability of an agreement by chance: what lines through places all over the picture give at least."""
        return LINE_FLOOR * line_agreement(self.camera, part * self.max_error_px)

    @property
    def _limit(self) -> float:
        return self.max_error_px / self.camera.focal_px

    @cached_property
    def background(self) -> Background:
        """All matched lines."""
        return LineBackground(lines=self.seen.coefficients[self._unique[0]].astype(np.float64), limit=self._limit)

    @cached_property
    def _lines(self) -> Float64[np.ndarray, "pairs 3"]:
        return self.seen.coefficients[self.keypoint_rows].astype(np.float64)

    @cached_property
    def _half_extent(self) -> Float64[np.ndarray, "2"]:
        corners = np.array([[0.0, 0.0], [self.camera.width_px, self.camera.height_px]])
        return FRAME_SLACK * np.abs(np.asarray(as_colmap(self.camera).cam_from_img(corners))).max(axis=0)

    def estimate(self, rows: Int64[np.ndarray, "_"] | None = None, *, share: float | None = None) -> Estimate | None:
        """LO-MSAC with six-line samples, the most trusted first."""
        rows = np.arange(len(self.keypoint_rows)) if rows is None else rows
        options = RansacOptions(max_error=self.max_error_px, seed=self.seed)
        if share is not None:
            most = samples_for(share, self.sampling.size, RIVAL_SAMPLES_LINES)
            options = RansacOptions(
                max_error=self.max_error_px, seed=self.seed, min_iterations=min(100, most), max_iterations=most
            )
        found = resect_from_lines(self._problem(rows), options)
        return None if found is None else Estimate(pose=found.model, camera=self.camera)

    def projected(self, found: Estimate) -> Float64[np.ndarray, "pairs 2"]:
        """In the normalized plane; NaN behind the camera and outside the picture (lines.md#points-and-cameras)."""
        x, y, depth = found.pose.rotation @ self.points[self.point_rows].T + found.pose.translation[:, None]
        inverse = 1 / np.where(depth > 1e-9, depth, np.nan)
        xy = np.stack([x * inverse, y * inverse], axis=1)
        xy[~(np.abs(xy) <= self._half_extent).all(axis=1)] = np.nan
        return xy

    def agrees(self, projected: Float64[np.ndarray, "pairs 2"], factor: float = 1.0) -> Bool[np.ndarray, "pairs"]:
        """Within `factor` times the threshold."""
        gap = np.abs((self._lines[:, :2] * projected).sum(axis=1) + self._lines[:, 2])
        return np.nan_to_num(gap, nan=np.inf) <= factor * self._limit

    def sights(self, found: Estimate) -> Sights:
        """All pairs in the normalized plane."""
        return Sights(points=self.points[self.point_rows], seen=self._lines, as_lines=True)

    def _problem(self, rows: Int64[np.ndarray, "_"]) -> LineResection:
        return LineResection(
            lines=self._lines[rows],
            points=self.points[self.point_rows[rows]],
            aligned=self.seen.aligned[self.keypoint_rows[rows]],
            focal_px=self.camera.focal_px,
            half_extent=self._half_extent,
            best_first=True,
        )

    def fits_in(self, part: float) -> bool:
        """Whether nearly all lines of the query pass through one window of `part` of the picture's width and height.

        Lines through the picture's corners miss every smaller window; those of keypoints in it do not.
        """
        frame = self._half_extent / FRAME_SLACK
        places = np.linspace(-1, 1, WINDOWS) * (1 - part)
        middle = np.stack(np.meshgrid(places * frame[0], places * frame[1]), axis=-1).reshape(-1, 2)
        lines = self.seen.coefficients.astype(np.float64)
        gap = np.abs(lines[:, :2] @ middle.T + lines[:, 2:]) - (np.abs(lines[:, :2]) @ (part * frame))[:, None]
        return bool((gap > 0).mean(axis=0).min() <= LINES_BEYOND)

    def distinct(self, rows: Int64[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
        """One inlier a line."""
        reach = float(np.linalg.norm(self._half_extent))
        return apart_lines(self._lines[rows], reach, SAME_PX / self.camera.focal_px)


Matched = MatchedPoints | MatchedLines


def matched_features(
    camera: Camera,
    seen: Float32[np.ndarray, "features 2"] | Lines,
    keypoint_rows: Int64[np.ndarray, "pairs"],
    point_rows: Int64[np.ndarray, "pairs"],
    points: Float64[np.ndarray, "points 3"],
    *,
    max_error_px: float,
    seed: int,
) -> Matched:
    """The pairs of a query that sent keypoints, or lines."""
    pairs: dict[str, Any] = {"keypoint_rows": keypoint_rows, "point_rows": point_rows, "points": points}
    common = {"camera": camera, "max_error_px": max_error_px, "seed": seed, **pairs}
    return MatchedLines(seen=seen, **common) if isinstance(seen, Lines) else MatchedPoints(seen=seen, **common)


def samples_for(share: float, size: int, most: int) -> int:
    """Samples after which one holds inliers only, if they are `share` of all; at most `most`."""
    clean = min(share, 1.0) ** size
    if clean >= 1:
        return 1
    return most if clean < 1e-12 else min(most, math.ceil(math.log(RIVAL_MISSED) / math.log1p(-clean)))
