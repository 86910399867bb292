"""A camera from many lines, some of them wrong: six-line samples, pixel residuals, refinement by the line adjustment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.geometry.ransac import Consensus, RansacOptions, ransac
from veil.geometry.rigid import Rigid
from veil.geometry.solvers.p6l import MINIMAL_LINES, pose_from_six_lines
from veil.kernels.bundle import AdjustOptions, LineProblem, adjust

MIN_RANDOM_LINES = 2  # fewer leave the height unbounded (notes on p6l; traps S7)


@dataclass(frozen=True, kw_only=True, eq=False)
class LineResection:
    """Correspondences of one view: `lines[i]` (normalized plane, unit normals) passes through the image of `points[i]`.

    `focal_px` turns distances of the normalized plane into pixels; `half_extent` bounds |x|, |y| of projections that count
    as inside the image (traps S6).
    """

    lines: Float64[np.ndarray, "pairs 3"]
    points: Float64[np.ndarray, "pairs 3"]
    aligned: Bool[np.ndarray, "pairs"]
    focal_px: float
    half_extent: Float64[np.ndarray, "2"]

    def sample(self, random: np.random.Generator) -> Int64[np.ndarray, "6"]:
        """Six distinct rows, at least two of them not aligned with gravity."""
        free = np.flatnonzero(~self.aligned)
        first = random.choice(free, MIN_RANDOM_LINES, replace=False)
        rest = np.setdiff1d(np.arange(len(self.lines)), first, assume_unique=True)
        return np.concatenate([first, random.choice(rest, MINIMAL_LINES - MIN_RANDOM_LINES, replace=False)])

    def models(self, rows: Int64[np.ndarray, "6"]) -> list[Rigid]:
        """All poses that six lines allow."""
        return pose_from_six_lines(self.lines[rows], self.points[rows])

    def residuals(self, pose: Rigid) -> Float64[np.ndarray, "pairs"]:
        """Pixels from each projected point to its line; infinite behind the camera or outside the image."""
        in_camera = self.points @ pose.rotation.T + pose.translation
        depth = in_camera[:, 2]
        ahead = depth > 1e-9
        projected = in_camera[:, :2] / np.where(ahead, depth, 1.0)[:, None]
        inside = ahead & (np.abs(projected) <= self.half_extent).all(axis=1)
        distance = np.abs((projected * self.lines[:, :2]).sum(axis=1) + self.lines[:, 2]) * self.focal_px
        return np.where(inside, distance, np.inf)

    def refine(self, pose: Rigid, inliers: Bool[np.ndarray, "pairs"]) -> Rigid | None:
        """Robust least squares over the inliers; None if they are too few to determine a pose."""
        if inliers.sum() <= MINIMAL_LINES or (inliers & ~self.aligned).sum() < MIN_RANDOM_LINES:
            return None
        rows = np.flatnonzero(inliers)
        problem = LineProblem(
            rotations=pose.rotation[None],
            translations=pose.translation[None],
            points=self.points[rows],
            lines=self.lines[rows] * self.focal_px,
            camera_of=np.zeros(len(rows), dtype=np.int64),
            point_of=np.arange(len(rows)),
        )
        found = adjust(
            problem,
            constant=np.zeros(1, dtype=bool),
            options=AdjustOptions(loss_px=2.0, max_iterations=20, tol=1e-6, adjust_points=False),
        ).problem
        return Rigid(rotation=found.rotations[0], translation=found.translations[0])


def resect_from_lines(problem: LineResection, options: RansacOptions) -> Consensus[Rigid] | None:
    """The pose that most lines agree with, or None if there are fewer than six lines or two that are not aligned."""
    if len(problem.lines) < MINIMAL_LINES or (~problem.aligned).sum() < MIN_RANDOM_LINES:
        return None
    return ransac(problem, MINIMAL_LINES, options)
