"""Pairs of a query's keypoints or lines and a map's points: poses from them, and their agreement with a pose."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.colmap import pycolmap
from veil.forms import Lines
from veil.geometry.anchors import pencil_of
from veil.geometry.camera import FRAME_SLACK, REFINED, Camera, as_colmap, half_extent, zoomed
from veil.geometry.free_calibration import Sights
from veil.geometry.rigid import Rigid, rigid_from_colmap
from veil.geometry.robust.pose_and_focal import JointFit, is_searched
from veil.geometry.robust.ransac import RansacOptions, samples_for
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
from veil.geometry.solvers.p3p import three_point_poses
from veil.geometry.solvers.p6lp import pose_from_six_lines
from veil.geometry.views import MapViews, projected


@dataclass(frozen=True, kw_only=True, eq=False)
class Estimate:
    """An estimated pose, and the camera that it was estimated with, whose focal length may be refined.

    - `fit`: the fit of pose and focal length together that gave both, and how far they are known; None before it.
    - `alone`: the same without what other optima within the noise add to the covariance; None where none were sought.
    """

    pose: Rigid
    camera: Camera
    fit: JointFit | None = None
    alone: JointFit | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedPairs(ABC):
    """Pairs (`keypoint_rows[i]`, `point_rows[i]`) of a query's features and a map's points, the most trusted ones first.

    `points` are all points of the map in world coordinates, `max_error_px` is the inlier threshold, `seed` that of RANSAC.
    """

    camera: Camera
    keypoint_rows: Int64[np.ndarray, "pairs"]
    point_rows: Int64[np.ndarray, "pairs"]
    points: Float64[np.ndarray, "points 3"]
    max_error_px: float
    seed: int

    @cached_property
    def _features(self) -> tuple[Int64[np.ndarray, "_"], Int64[np.ndarray, "pairs"]]:
        """The matched features (distinct keypoint rows), and the index of each pair's feature among them."""
        return np.unique(self.keypoint_rows, return_inverse=True)

    @property
    def feature_of(self) -> Int64[np.ndarray, "pairs"]:
        """Row of each pair's feature in `background`, which holds every matched feature once."""
        return self._features[1]

    sample_size: ClassVar[int]  # number of pairs that give poses, where the focal length is known

    @staticmethod
    @abstractmethod
    def minimal_poses(sights: Sights) -> list[Rigid]:
        """All poses (cam_from_world) that a minimal sample of what was seen allows."""

    @abstractmethod
    def normalized(self, camera: Camera) -> Sights:
        """Points of all pairs and what was seen of them, in the normalized plane of a camera: the declared one, or zoomed."""

    @property
    def is_searched(self) -> bool:
        """Whether the focal length is searched for, as little is known of it."""
        return is_searched(self.camera.focal)

    @property
    def log10_cameras(self) -> float:
        """log10 of the number of focal lengths that were tried one after the other."""
        return 0.0

    def log_focal(self, estimate: Estimate) -> float:
        """Log of the ratio of an estimate's focal length to the declared one."""
        return math.log(estimate.camera.focal_px / self.camera.focal_px)

    def limit(self, camera: Camera) -> float:
        """The inlier threshold in the normalized plane of a camera."""
        return self.max_error_px / camera.focal_px

    def one_to_one(self, rows: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
        """The first of the pairs `rows` that share a keypoint, a point of the map or a place: repeats are no more evidence."""
        for column in (self.keypoint_rows, self.point_rows):
            _, first = np.unique(column[rows], return_index=True)
            rows = rows[np.sort(first)]
        return rows[self.distinct(rows)]

    def nearest(self, gaps: Float64[np.ndarray, "pairs"], limit: float) -> Int64[np.ndarray, "_"]:
        """Rows of the pairs with `gaps` within `limit`, one to one; of rivals the pair with the smallest gap is kept."""
        near = np.flatnonzero(gaps <= limit)
        return self.one_to_one(near[np.argsort(gaps[near], kind="stable")])

    @abstractmethod
    def distinct(self, rows: Int64[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
        """Whether each of the pairs `rows` is kept if those at one place of the picture count once."""

    def possible(self, views: MapViews, estimate: Estimate, rows: Int64[np.ndarray, "rows"]) -> Bool[np.ndarray, "rows"]:
        """Whether an estimated camera could see the point of each of the pairs `rows` as some image of the map does."""
        return views.possible(estimate.camera, estimate.pose, self.points, self.point_rows[rows])

    @cached_property
    def _apart(self) -> Bool[np.ndarray, "features"]:
        """Whether each matched feature counts if those at one place count once."""
        return self.distinct(np.unique(self.feature_of, return_index=True)[1])

    def places_of_first(self, count: int) -> int:
        """Number of features of the first `count` pairs, those at one place counted once."""
        matched = np.zeros(len(self._apart), dtype=bool)
        matched[self.feature_of[:count]] = True
        return int(np.count_nonzero(matched & self._apart))


# Largest number of samples for a rival pose among the pairs that the best pose leaves.
POINT_RIVAL_SAMPLES = 3000
# Refinements over all pairs of a pose that was estimated from the most trusted ones.
TRUSTED_ROUNDS = 2
# Factors that are tried on a focal length of which little is known: the fit with the pose puts right what lies between.
HELD_FACTORS = (0.65, 0.95, 1.35)
# A query lies in a window of its picture if at most this share of its keypoints lies outside.
POINTS_BEYOND = 0.02


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedPoints(MatchedPairs):
    """Matched keypoints (`observations`, in pixels), for poses by P3P and least squares (COLMAP).

    A focal length of which little is known is estimated as well, by P4Pf.
    """

    observations: Float32[np.ndarray, "features 2"]

    sample_size = P3P.size
    rival_part = 0.25  # share of the pairs that a pose leaves, the most trusted ones, in which a rival is sought

    @property
    def sampling(self) -> Sampling:
        """Size of a sample, and how many poses it may give, of the minimal solver."""
        return P4PF if self.is_searched else P3P

    def floor(self, part: float) -> float:
        """Least probability that is believed of an agreement by chance within `part` of the threshold.

        It is that of keypoints spread evenly over the picture (docs/theory/localization.md, Eq. 2).
        """
        return point_agreement(self.camera, part * self.max_error_px)

    @cached_property
    def background(self) -> Background:
        """Law of wrong matches, made of all matched keypoints; lengths in pixels."""
        xy = self.observations[self._features[0]].astype(np.float64)
        return PointBackground(xy=xy, limit=self.max_error_px, same=SAME_PX)

    @cached_property
    def _xy(self) -> Float64[np.ndarray, "pairs 2"]:
        """Keypoint of each pair, in pixels."""
        return self.observations[self.keypoint_rows].astype(np.float64)

    def estimate(self, rows: Int64[np.ndarray, "_"] | None = None, *, share: float | None = None) -> Estimate | None:
        """Pose by LO-RANSAC among the pairs `rows` (default: all) and refinement over its inliers; None if there is none.

        With `share` only as many samples are drawn as find a pose that this share of the pairs agrees with (`samples_for`).
        """

        rows = np.arange(len(self.keypoint_rows)) if rows is None else rows
        estimation = pycolmap.AbsolutePoseEstimationOptions()
        estimation.ransac.max_error = self.max_error_px
        estimation.ransac.random_seed = self.seed
        estimation.estimate_focal_length = self.is_searched
        if share is not None:
            estimation.ransac.max_num_trials = samples_for(share, self.sampling.size, POINT_RIVAL_SAMPLES)
            estimation.ransac.min_num_trials = min(100, estimation.ransac.max_num_trials)
        refinement = pycolmap.AbsolutePoseRefinementOptions()
        refinement.refine_focal_length = self.is_searched
        camera = as_colmap(self.camera)  # its focal length is refined in place
        result = pycolmap.estimate_and_refine_absolute_pose(
            self._xy[rows],
            self.points[self.point_rows[rows]],
            camera,
            estimation,
            refinement,
        )
        if result is None or (self.is_searched and not self._plausible(float(camera.params[0]))):
            return None
        return self._estimate(result, camera)

    def held(self) -> Iterator[Estimate]:
        """Poses of searches with `HELD_FACTORS` times the declared focal length: samples of four may miss the right one."""
        for factor in HELD_FACTORS:
            camera = replace(zoomed(self.camera, factor), focal=REFINED)
            estimate = replace(self, camera=camera).estimate()
            if estimate is not None:
                yield estimate

    def among_trusted(self, part: float) -> Estimate | None:
        """Pose estimated from the first `part` of the pairs, refined over all pairs that agree with it; None if there is none.

        Where one pair in twenty is right, ten thousand samples of all of them may well hold no right one; among the most
        trusted pairs right ones are frequent.
        """

        first = round(part * len(self.keypoint_rows))
        best = self.estimate(np.arange(first)) if first > self.sampling.size else None
        for _ in range(TRUSTED_ROUNDS):
            if best is None:
                return None
            rows = np.flatnonzero(self.agrees(self.projected(best)))
            if len(rows) <= self.sampling.size:
                return best
            start = pycolmap.Rigid3d(np.hstack([best.pose.rotation, best.pose.translation[:, None]]))
            free = pycolmap.AbsolutePoseRefinementOptions()
            free.refine_focal_length = self.is_searched
            camera, inlier = as_colmap(best.camera), np.ones(len(rows), dtype=bool)  # the camera is refined in place
            xyz = self.points[self.point_rows[rows]]
            refined = pycolmap.refine_absolute_pose(start, self._xy[rows], xyz, inlier, camera, free)
            if refined is None or (self.is_searched and not self._plausible(float(camera.params[0]))):
                return best
            best = self._estimate(refined, camera)
        return best

    def _estimate(self, result: dict[str, Any], camera: Any) -> Estimate:
        """COLMAP's result as an `Estimate`, with its focal length where that was refined."""
        focal_px = float(camera.params[0])
        refined = zoomed(self.camera, focal_px / self.camera.focal_px) if self.is_searched else self.camera
        return Estimate(pose=rigid_from_colmap(result["cam_from_world"]), camera=refined)

    def _plausible(self, focal_px: float) -> bool:
        """Whether a refined focal length lies in COLMAP's range: a tenth of the longer side to ten times it."""
        return 0.1 <= focal_px / max(self.camera.width_px, self.camera.height_px) <= 10

    def projected(self, estimate: Estimate) -> Float64[np.ndarray, "pairs 2"]:
        """Projection of each pair's point in pixels; NaN behind the camera."""
        return projected(estimate.camera, estimate.pose.apply(self.points[self.point_rows]))

    def agrees(
        self, projected: Float64[np.ndarray, "pairs 2"], factor: float = 1.0, *, rows: Int64[np.ndarray, "some"] | None = None
    ) -> Bool[np.ndarray, "_"]:
        """Whether each projection (of the pairs `rows`, or of all) lies within `factor` times the threshold of its feature."""
        some = slice(None) if rows is None else rows
        gap = np.linalg.norm(projected[some] - self._xy[some], axis=1)
        return np.nan_to_num(gap, nan=np.inf) <= factor * self.max_error_px

    @staticmethod
    def minimal_poses(sights: Sights) -> list[Rigid]:
        """Poses (cam_from_world) of three keypoints, up to four."""
        rays = sights.seen / np.linalg.norm(sights.seen, axis=1, keepdims=True)
        rotations, translations = np.empty((4, 3, 3)), np.empty((4, 3))
        count = three_point_poses(rays, np.ascontiguousarray(sights.points), rotations, translations)
        return [Rigid(rotation=rotations[k].copy(), translation=translations[k].copy()) for k in range(count)]

    def normalized(self, camera: Camera) -> Sights:
        """Points and keypoints of all pairs, the keypoints in the normalized plane of a camera."""
        xy = np.asarray(as_colmap(camera).cam_from_img(self._xy), dtype=np.float64).reshape(-1, 2)
        return Sights(points=self.points[self.point_rows], seen=np.hstack([xy, np.ones((len(xy), 1))]), as_lines=False)

    def fits_in(self, part: float) -> bool:
        """Whether nearly all keypoints of the query lie in a window of `part` of the picture's width and height."""
        low, high = np.percentile(self.observations, [50 * POINTS_BEYOND, 100 - 50 * POINTS_BEYOND], axis=0)
        return bool((high - low <= part * np.array([self.camera.width_px, self.camera.height_px])).all())

    def distinct(self, rows: Int64[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
        """Whether each of the pairs `rows` is kept if keypoints at one place count once."""
        return apart(self._xy[rows], SAME_PX)


# Largest number of samples for a rival pose among the pairs that the best pose leaves.
LINE_RIVAL_SAMPLES = 100
# A query lies in a window of its picture if at most this share of its lines misses the window. It is small because lines mostly
# cross a window wherever they come from.
LINES_BEYOND = 0.005
# Samples of each short search with one of several focal lengths.
BRIEF_ITERATIONS = 300
# Windows that are tried along each axis.
WINDOWS = 9


def rescaled(lines: Lines, factor: float) -> Lines:
    """The lines in a normalized plane whose coordinates are `factor` times as large: that of another focal length."""
    coefficients = lines.coefficients * np.array([1.0, 1.0, factor], dtype=lines.coefficients.dtype)
    return replace(lines, coefficients=coefficients)


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedLines(MatchedPairs):
    """Matched lines (`observations`): six-line samples and least squares, with all coordinates in the normalized plane."""

    observations: Lines

    sampling, sample_size = P6L, P6L.size
    rival_part = 1.0  # samples come from the most trusted pairs anyway

    def held(self) -> Iterator[Estimate]:
        """No poses: the search itself tries several focal lengths."""
        return iter(())

    def among_trusted(self, part: float) -> Estimate | None:
        """No pose (None): samples of lines come from the most trusted pairs anyway."""
        return None

    def floor(self, part: float) -> float:
        """Least probability that is believed of an agreement by chance within `part` of the threshold.

        It is what lines through places all over the picture give at least (docs/theory/lines.md, Eq. 10).
        """
        return LINE_FLOOR * line_agreement(self.camera, part * self.max_error_px)

    @cached_property
    def background(self) -> Background:
        """Law of wrong matches, made of all matched lines; lengths in the normalized plane."""
        lines = self.observations.coefficients[self._features[0]].astype(np.float64)
        return LineBackground(lines=lines, limit=self.limit(self.camera))

    @cached_property
    def _lines(self) -> Float64[np.ndarray, "pairs 3"]:
        """Line of each pair: unit normal and offset."""
        return self.observations.coefficients[self.keypoint_rows].astype(np.float64)

    @cached_property
    def _pencil(self) -> Int64[np.ndarray, "pairs"]:
        """Number of the public point that each pair's line passes through, -1 for none."""
        return pencil_of(self._lines, self.camera)

    @cached_property
    def _half_extent(self) -> Float64[np.ndarray, "2"]:
        """Half width and half height of the slightly enlarged picture in the normalized plane."""
        return FRAME_SLACK * half_extent(self.camera)

    def estimate(self, rows: Int64[np.ndarray, "_"] | None = None, *, share: float | None = None) -> Estimate | None:
        """Pose by LO-MSAC with samples of six lines among the pairs `rows` (default: all), the most trusted ones first.

        None if there is no pose. With `share` only as many samples are drawn as find a pose that this share of the pairs
        agrees with (`samples_for`). If little is known of the focal length, the best of several is taken by short searches.
        """
        rows = np.arange(len(self.keypoint_rows)) if rows is None else rows
        if self.is_searched:
            return self._with_best_focal(rows, share)
        options = RansacOptions(max_error=self.max_error_px, seed=self.seed)
        if share is not None:
            most = samples_for(share, self.sampling.size, LINE_RIVAL_SAMPLES)
            options = RansacOptions(
                max_error=self.max_error_px, seed=self.seed, min_iterations=min(100, most), max_iterations=most
            )
        consensus = resect_from_lines(self._problem(rows), options)
        return None if consensus is None else Estimate(pose=consensus.model, camera=self.camera)

    @property
    def log10_cameras(self) -> float:
        """log10 of the number of focal lengths that are tried one after the other."""
        return math.log10(len(HELD_FACTORS)) if self.is_searched else 0.0

    def _with_best_focal(self, rows: Int64[np.ndarray, "_"], share: float | None) -> Estimate | None:
        """The pose of a search with that of `HELD_FACTORS` times the focal length that short searches fit best with."""
        brief = RansacOptions(max_error=self.max_error_px, seed=self.seed, max_iterations=BRIEF_ITERATIONS)
        tried: list[tuple[float, float, MatchedLines]] = []
        for factor in HELD_FACTORS:
            lens = replace(zoomed(self.camera, factor), focal=REFINED)
            one = replace(self, camera=lens, observations=rescaled(self.observations, 1 / factor))
            consensus = resect_from_lines(one._problem(rows), brief)
            if consensus is not None:
                tried.append((consensus.score, factor, one))
        best = min(tried, key=lambda each: each[:2], default=None)
        return None if best is None else best[2].estimate(rows, share=share)

    def projected(self, estimate: Estimate) -> Float64[np.ndarray, "pairs 2"]:
        """Projection of each pair's point in the normalized plane of the declared camera, in which the lines were drawn.

        NaN behind the camera and outside the picture (lines.md#points-and-cameras).
        """
        x, y, depth = estimate.pose.rotation @ self.points[self.point_rows].T + estimate.pose.translation[:, None]
        inverse = math.exp(self.log_focal(estimate)) / np.where(depth > 1e-9, depth, np.nan)
        xy = np.stack([x * inverse, y * inverse], axis=1)
        xy[~(np.abs(xy) <= self._half_extent).all(axis=1)] = np.nan
        return xy

    def agrees(
        self, projected: Float64[np.ndarray, "pairs 2"], factor: float = 1.0, *, rows: Int64[np.ndarray, "some"] | None = None
    ) -> Bool[np.ndarray, "_"]:
        """Whether each projection (of the pairs `rows`, or of all) lies within `factor` times the threshold of its feature."""
        some = slice(None) if rows is None else rows
        lines = self._lines[some]
        gap = np.abs((lines[:, :2] * projected[some]).sum(axis=1) + lines[:, 2])
        return np.nan_to_num(gap, nan=np.inf) <= factor * self.limit(self.camera)

    @staticmethod
    def minimal_poses(sights: Sights) -> list[Rigid]:
        """Poses (cam_from_world) of six lines, up to eight."""
        return pose_from_six_lines(sights.seen, sights.points)

    def normalized(self, camera: Camera) -> Sights:
        """Points and lines of all pairs, the lines in the normalized plane of a camera."""
        scaled = self._lines * [1.0, 1.0, self.camera.focal_px / camera.focal_px]
        return Sights(points=self.points[self.point_rows], seen=scaled, as_lines=True)

    def _problem(self, rows: Int64[np.ndarray, "_"]) -> LineResection:
        """Resection from the pairs `rows`, the most trusted of which are sampled first."""
        return LineResection(
            lines=self._lines[rows],
            points=self.points[self.point_rows[rows]],
            aligned=self.observations.aligned[self.keypoint_rows[rows]],
            focal_px=self.camera.focal_px,
            half_extent=self._half_extent,
            best_first=True,
            pencil=self._pencil[rows],
        )

    @property
    def pencils(self) -> list[Bool[np.ndarray, "pairs"]]:
        """Masks of the pairs whose lines run through one point: that of gravity, and each public one."""
        return self._problem(np.arange(len(self.keypoint_rows))).pencils

    def fits_in(self, part: float) -> bool:
        """Whether nearly all lines of the query pass through one window of `part` of the picture's width and height.

        Lines through the picture's corners miss every smaller window; lines of keypoints in a window pass through it.
        """
        frame = self._half_extent / FRAME_SLACK
        places = np.linspace(-1, 1, WINDOWS) * (1 - part)
        middle = np.stack(np.meshgrid(places * frame[0], places * frame[1]), axis=-1).reshape(-1, 2)
        lines = self.observations.coefficients.astype(np.float64)
        gap = np.abs(lines[:, :2] @ middle.T + lines[:, 2:]) - (np.abs(lines[:, :2]) @ (part * frame))[:, None]
        return bool((gap > 0).mean(axis=0).min() <= LINES_BEYOND)

    def distinct(self, rows: Int64[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
        """Whether each of the pairs `rows` is kept if lines that nearly coincide count once."""
        reach = float(np.linalg.norm(self._half_extent))
        return apart_lines(self._lines[rows], reach, SAME_PX / self.camera.focal_px)


Matched = MatchedPoints | MatchedLines
Pairs = TypeVar("Pairs", bound=Matched)


def taken(matched: Pairs, rows: Int64[np.ndarray, "_"]) -> Pairs:
    """The pairs `rows` alone."""
    return replace(matched, keypoint_rows=matched.keypoint_rows[rows], point_rows=matched.point_rows[rows])


def matched_features(
    camera: Camera,
    observations: Float32[np.ndarray, "features 2"] | Lines,
    keypoint_rows: Int64[np.ndarray, "pairs"],
    point_rows: Int64[np.ndarray, "pairs"],
    points: Float64[np.ndarray, "points 3"],
    *,
    max_error_px: float,
    seed: int,
) -> Matched:
    """Pairs of a query's features and a map's points, as `MatchedPoints` or `MatchedLines` by what `observations` are.

    `observations` are keypoints in pixels, or the lines that hide them. Pair i joins row `keypoint_rows[i]` of them with row
    `point_rows[i]` of `points` (world coordinates); the most trusted pairs come first. `max_error_px` is the inlier threshold,
    `seed` that of RANSAC.
    """
    pairs: dict[str, Any] = {"keypoint_rows": keypoint_rows, "point_rows": point_rows, "points": points}
    common = {"camera": camera, "max_error_px": max_error_px, "seed": seed, **pairs}
    if isinstance(observations, Lines):
        return MatchedLines(observations=observations, **common)
    return MatchedPoints(observations=observations, **common)
