"""Matched lines: poses from pairs of a line and a point, and the agreement of these pairs with a pose."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.forms import Lines
from veil.geometry.anchors import pencil_of
from veil.geometry.camera import FRAME_SLACK, half_extent
from veil.geometry.free_calibration import Sights
from veil.geometry.robust.ransac import RansacOptions
from veil.geometry.robust.resection_lines import MIN_OTHER_LINES, LineResection, resect_from_lines
from veil.geometry.robust.significance import (
    ALONG_ONE_WAY,
    LINE_FLOOR,
    P6L,
    SAME_PX,
    Background,
    LineBackground,
    apart_lines,
    line_agreement,
    pose_log10_nfa,
)
from veil.localization.matched_pairs import Estimate, MatchedPairs, samples_for

# At most so many samples look for a rival pose among the pairs that the best pose leaves.
RIVAL_SAMPLES = 100
# A query lies in a window of its picture if at most this share of its lines misses the window. It is small because lines mostly
# cross a window wherever they come from.
BEYOND = 0.005
# Windows that are tried along each axis.
WINDOWS = 9


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedLines(MatchedPairs):
    """Matched lines (`observations`): six-line samples and least squares, with all coordinates in the normalized plane."""

    observations: Lines

    sampling = P6L
    rival_part = 1.0  # samples come from the most trusted pairs anyway

    def among_trusted(self, part: float) -> Estimate | None:
        """No pose (None): samples of lines come from the most trusted pairs anyway."""
        return None

    def floor(self, part: float) -> float:
        """Least probability that is believed of an agreement by chance within `part` of the threshold.

        It is what lines through places all over the picture give at least (docs/theory/lines.md, Eq. 10).
        """
        return LINE_FLOOR * line_agreement(self.camera, part * self.max_error_px)

    @property
    def _limit(self) -> float:
        """The inlier threshold in the normalized plane."""
        return self.max_error_px / self.camera.focal_px

    @cached_property
    def background(self) -> Background:
        """Law of wrong matches, made of all matched lines; lengths in the normalized plane."""
        return LineBackground(lines=self.observations.coefficients[self._features[0]].astype(np.float64), limit=self._limit)

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

        None if there is no pose. With `share` only so many samples are drawn as find a pose that this share of the pairs
        agrees with (`samples_for`).
        """
        rows = np.arange(len(self.keypoint_rows)) if rows is None else rows
        options = RansacOptions(max_error=self.max_error_px, seed=self.seed)
        if share is not None:
            most = samples_for(share, self.sampling.size, RIVAL_SAMPLES)
            options = RansacOptions(
                max_error=self.max_error_px, seed=self.seed, min_iterations=min(100, most), max_iterations=most
            )
        consensus = resect_from_lines(self._problem(rows), options)
        return None if consensus is None else Estimate(pose=consensus.model, camera=self.camera)

    def projected(self, estimate: Estimate) -> Float64[np.ndarray, "pairs 2"]:
        """Projection of each pair's point in the normalized plane.

        NaN behind the camera and outside the picture (lines.md#points-and-cameras).
        """
        x, y, depth = estimate.pose.rotation @ self.points[self.point_rows].T + estimate.pose.translation[:, None]
        inverse = 1 / np.where(depth > 1e-9, depth, np.nan)
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
        return np.nan_to_num(gap, nan=np.inf) <= factor * self._limit

    def normalized(self, estimate: Estimate) -> Sights:
        """Points and lines of all pairs, the lines in the normalized plane."""
        return Sights(points=self.points[self.point_rows], seen=self._lines, as_lines=True)

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

    def open_way(self, estimate: Estimate, rows: Int64[np.ndarray, "inliers"]) -> float:
        """log10 of the number of accidents that place the camera as well as the inliers `rows`, along the way left open.

        Lines through one point, as that of gravity or an anchor, let the camera slide towards it. The other lines
        alone say where it is: one of them places it, and those that agree are weighed against chance (docs/theory/lines.md,
        Eq. 29). The worst of all such points counts; it is -infinity where no point has two lines.
        """
        problem = self._problem(np.arange(len(self.keypoint_rows)))
        shares = self.background.shares(self.projected(estimate), self.feature_of)
        worst = -math.inf
        for pencil in problem.pencils:
            others = np.flatnonzero(~pencil)
            inliers = int(np.isin(rows, others).sum())
            if pencil.sum() >= MIN_OTHER_LINES:
                agreement = max(self.floor(1.0), float(shares[others].mean())) if len(others) else 1.0
                worst = max(worst, pose_log10_nfa(inliers, len(others), agreement, ALONG_ONE_WAY))
        return worst

    def fits_in(self, part: float) -> bool:
        """Whether nearly all lines of the query pass through one window of `part` of the picture's width and height.

        Lines through the picture's corners miss every smaller window; lines of keypoints in a window pass through it.
        """
        frame = self._half_extent / FRAME_SLACK
        places = np.linspace(-1, 1, WINDOWS) * (1 - part)
        middle = np.stack(np.meshgrid(places * frame[0], places * frame[1]), axis=-1).reshape(-1, 2)
        lines = self.observations.coefficients.astype(np.float64)
        gap = np.abs(lines[:, :2] @ middle.T + lines[:, 2:]) - (np.abs(lines[:, :2]) @ (part * frame))[:, None]
        return bool((gap > 0).mean(axis=0).min() <= BEYOND)

    def distinct(self, rows: Int64[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
        """Whether each of the pairs `rows` is kept if lines that nearly coincide count once."""
        reach = float(np.linalg.norm(self._half_extent))
        return apart_lines(self._lines[rows], reach, SAME_PX / self.camera.focal_px)
