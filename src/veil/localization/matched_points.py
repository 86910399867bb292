"""Matched keypoints: poses from pairs of a keypoint and a point, and the agreement of these pairs with a pose."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int64

from veil.geometry.camera import as_colmap, from_colmap
from veil.geometry.free_calibration import Sights
from veil.geometry.rigid import covariance_from_colmap, rigid_from_colmap
from veil.geometry.robust.significance import P3P, P4PF, SAME_PX, Background, PointBackground, Sampling, apart, point_agreement
from veil.localization.matched_pairs import Estimate, MatchedPairs, samples_for

# At most so many samples look for a rival pose among the pairs that the best pose leaves.
RIVAL_SAMPLES = 3000
# Refinements over all pairs of a pose that was estimated from the most trusted ones.
TRUSTED_ROUNDS = 2
# A query lies in a window of its picture if at most this share of its keypoints lies outside.
BEYOND = 0.02


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedPoints(MatchedPairs):
    """Matched keypoints (`observations`, in pixels), for poses by P3P and least squares (COLMAP).

    An unknown focal length is estimated as well, by P4Pf.
    """

    observations: Float32[np.ndarray, "features 2"]

    rival_part = 0.25  # share of the pairs that a pose leaves, the most trusted ones, in which a rival is sought

    @property
    def sampling(self) -> Sampling:
        """Size of a sample, and how many poses it may give, of the minimal solver."""
        return P3P if self.camera.focal_is_known else P4PF

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

        With `share` only so many samples are drawn as find a pose that this share of the pairs agrees with (`samples_for`), and
        the covariance is left out.
        """
        from veil.colmap import pycolmap

        rows = np.arange(len(self.keypoint_rows)) if rows is None else rows
        estimation = pycolmap.AbsolutePoseEstimationOptions()
        estimation.ransac.max_error = self.max_error_px
        estimation.ransac.random_seed = self.seed
        estimation.estimate_focal_length = not self.camera.focal_is_known
        if share is not None:
            estimation.ransac.max_num_trials = samples_for(share, self.sampling.size, RIVAL_SAMPLES)
            estimation.ransac.min_num_trials = min(100, estimation.ransac.max_num_trials)
        refinement = pycolmap.AbsolutePoseRefinementOptions()
        refinement.refine_focal_length = not self.camera.focal_is_known
        camera = as_colmap(self.camera)  # its focal length is refined in place
        result = pycolmap.estimate_and_refine_absolute_pose(
            self._xy[rows],
            self.points[self.point_rows[rows]],
            camera,
            estimation,
            refinement,
            return_covariance=share is None,
        )
        if result is None or not (self.camera.focal_is_known or self._plausible(float(camera.params[0]))):
            return None
        return self._estimate(result, camera)

    def among_trusted(self, part: float) -> Estimate | None:
        """Pose estimated from the first `part` of the pairs, refined over all pairs that agree with it; None if there is none.

        Where one pair in twenty is right, ten thousand samples of all of them may well hold no right one; among the most
        trusted pairs right ones are frequent.
        """
        from veil.colmap import pycolmap

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
            free.refine_focal_length = not self.camera.focal_is_known
            camera, inlier = as_colmap(best.camera), np.ones(len(rows), dtype=bool)  # the camera is refined in place
            xyz = self.points[self.point_rows[rows]]
            refined = pycolmap.refine_absolute_pose(start, self._xy[rows], xyz, inlier, camera, free, return_covariance=True)
            if refined is None or not (self.camera.focal_is_known or self._plausible(float(camera.params[0]))):
                return best
            best = self._estimate(refined, camera)
        return best

    def _estimate(self, result: dict[str, Any], camera: Any) -> Estimate:
        """COLMAP's result as an `Estimate`, with COLMAP's camera where the focal length was refined."""
        return Estimate(
            pose=rigid_from_colmap(result["cam_from_world"]),
            camera=self.camera if self.camera.focal_is_known else from_colmap(camera),
            covariance=covariance_from_colmap(result),
        )

    def _plausible(self, focal_px: float) -> bool:
        """Whether a refined focal length lies in COLMAP's range: a tenth of the longer side to ten times it."""
        return 0.1 <= focal_px / max(self.camera.width_px, self.camera.height_px) <= 10

    def projected(self, estimate: Estimate) -> Float64[np.ndarray, "pairs 2"]:
        """Projection of each pair's point in pixels; NaN behind the camera."""
        in_camera = estimate.pose.apply(self.points[self.point_rows])
        ahead = in_camera[:, 2] > 1e-9
        xy = np.full((len(in_camera), 2), np.nan)
        if ahead.any():
            xy[ahead] = np.asarray(as_colmap(estimate.camera).img_from_cam(in_camera[ahead]), dtype=np.float64).reshape(-1, 2)
        return xy

    def agrees(
        self, projected: Float64[np.ndarray, "pairs 2"], factor: float = 1.0, *, rows: Int64[np.ndarray, "some"] | None = None
    ) -> Bool[np.ndarray, "_"]:
        """Whether each projection (of the pairs `rows`, or of all) lies within `factor` times the threshold of its feature."""
        some = slice(None) if rows is None else rows
        gap = np.linalg.norm(projected[some] - self._xy[some], axis=1)
        return np.nan_to_num(gap, nan=np.inf) <= factor * self.max_error_px

    def normalized(self, estimate: Estimate) -> Sights:
        """Points and keypoints of all pairs, the keypoints in the normalized plane of the estimate's camera."""
        xy = np.asarray(as_colmap(estimate.camera).cam_from_img(self._xy), dtype=np.float64).reshape(-1, 2)
        return Sights(points=self.points[self.point_rows], seen=np.hstack([xy, np.ones((len(xy), 1))]), as_lines=False)

    def fits_in(self, part: float) -> bool:
        """Whether nearly all keypoints of the query lie in a window of `part` of the picture's width and height."""
        low, high = np.percentile(self.observations, [50 * BEYOND, 100 - 50 * BEYOND], axis=0)
        return bool((high - low <= part * np.array([self.camera.width_px, self.camera.height_px])).all())

    def distinct(self, rows: Int64[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
        """Whether each of the pairs `rows` is kept if keypoints at one place count once."""
        return apart(self._xy[rows], SAME_PX)
