"""Frames of a sequence as one camera with many centers, and pairs of their features with a map's points."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.colmap import pycolmap
from veil.geometry.camera import Camera, as_colmap, zoomed
from veil.geometry.free_calibration import RigFrames, Sights
from veil.geometry.rigid import Rigid, rigid_from_colmap
from veil.geometry.robust.ransac import samples_for
from veil.geometry.robust.significance import (
    GP3P,
    SAME_PX,
    Background,
    FramesBackground,
    PointBackground,
    Sampling,
    apart,
    point_agreement,
)
from veil.geometry.solvers.gp3p import rig_poses_from_three_rays
from veil.geometry.views import MapViews, projected
from veil.places.poses.answer import Localization
from veil.places.poses.evidence import PoseEvidence
from veil.places.poses.matches import POINT_RIVAL_SAMPLES, Estimate, MatchedPoints
from veil.places.poses.sequences.answer import SequenceLocalization


@dataclass(frozen=True, kw_only=True, eq=False)
class Frames:
    """Cameras and motions of the frames of a sequence, in units of the map, and the frame of each of its features.

    `cams_from_rig[f]` takes the rig to the camera of frame f (sequences.md, Eq. 1, its translation times k).
    """

    cameras: tuple[Camera, ...]
    cams_from_rig: tuple[Rigid, ...]
    frame_of: Int64[np.ndarray, "features"]

    def __len__(self) -> int:
        return len(self.cameras)

    def estimate_in(self, frame: int, estimate: Estimate) -> Estimate:
        """An estimate of the rig's pose as one of the camera of a frame; all focal lengths are off by one factor."""
        factor = estimate.camera.focal_px / self.cameras[0].focal_px
        return Estimate(pose=self.cams_from_rig[frame] @ estimate.pose, camera=zoomed(self.cameras[frame], factor))

    @cached_property
    def rows(self) -> tuple[Int64[np.ndarray, "_"], ...]:
        """Rows of the features of each frame."""
        return tuple(np.flatnonzero(self.frame_of == frame) for frame in range(len(self)))

    def of_sights(self, frame_of: Int64[np.ndarray, "sights"]) -> RigFrames:
        """The motions for sights in these frames."""
        rotations = np.stack([motion.rotation for motion in self.cams_from_rig])
        translations = np.stack([motion.translation for motion in self.cams_from_rig])
        return RigFrames(frame_of=frame_of, rotations=rotations, translations=translations)


@dataclass(frozen=True, kw_only=True, eq=False)
class MatchedFrames(MatchedPoints):
    """Matched keypoints of several frames (`observations`, in pixels of their frames), for poses of the rig by gP3P.

    Keypoints whose most trusted pair names one point of the map are one *feature*: a device's tracking keeps what it sees
    together from frame to frame, so that a point beside which they lie by accident says no more for being seen again
    (sequences.md#one-evidence). `camera` is that of the first frame.
    """

    frames: Frames

    @property
    def sampling(self) -> Sampling:
        """Size of a sample, and how many poses it may give, of the minimal solver."""
        return GP3P

    @cached_property
    def frame_of_pair(self) -> Int64[np.ndarray, "pairs"]:
        """The frame of each pair's keypoint."""
        return self.frames.frame_of[self.keypoint_rows]

    @cached_property
    def _units(self) -> Int64[np.ndarray, "pairs"]:
        """Number of the feature of each pair: that of the point which its keypoint's most trusted pair names."""
        keypoints, first, of_pair = np.unique(self.keypoint_rows, return_index=True, return_inverse=True)
        _, point_of = np.unique(self.point_rows[first], return_inverse=True)
        return np.asarray(point_of[of_pair], dtype=np.int64) if len(keypoints) else np.empty(0, dtype=np.int64)

    @property
    def feature_of(self) -> Int64[np.ndarray, "pairs"]:
        """Number of each pair's feature."""
        return self._units

    def one_to_one(self, rows: Int64[np.ndarray, "_"]) -> Int64[np.ndarray, "_"]:
        """The first of the pairs `rows` that share a feature, a keypoint, a point of the map, or a place in one frame."""
        _, first = np.unique(self.feature_of[rows], return_index=True)
        return super().one_to_one(rows[np.sort(first)])

    def distinct(self, rows: Int64[np.ndarray, "_"]) -> Bool[np.ndarray, "_"]:
        """Whether each of the pairs `rows` is kept if keypoints at one place of one frame count once."""
        kept = np.ones(len(rows), dtype=bool)
        for frame in range(len(self.frames)):
            own = np.flatnonzero(self.frame_of_pair[rows] == frame)
            kept[own] = apart(self._xy[rows[own]], SAME_PX)
        return kept

    def floor(self, part: float) -> float:
        """Least probability that is believed of an agreement by chance: that of the smallest picture."""
        return max(point_agreement(camera, part * self.max_error_px) for camera in self.frames.cameras)

    @cached_property
    def background(self) -> Background:
        """Law of wrong matches: draws from the matched keypoints of each frame."""
        parts = []
        for frame in range(len(self.frames)):
            rows = np.flatnonzero(self.frame_of_pair == frame)
            keypoints, feature_of = np.unique(self.keypoint_rows[rows], return_inverse=True)
            xy = self.observations[keypoints].astype(np.float64)
            background = PointBackground(xy=xy, limit=self.max_error_px, same=SAME_PX)
            parts.append((rows, background, np.asarray(feature_of, dtype=np.int64)))
        return FramesBackground(parts=parts)

    def projected(self, estimate: Estimate) -> Float64[np.ndarray, "pairs 2"]:
        """Projection of each pair's point in pixels of its frame; NaN behind the camera."""
        xy = np.empty((len(self.keypoint_rows), 2))
        for frame in range(len(self.frames)):
            rows, own = np.flatnonzero(self.frame_of_pair == frame), self.frames.estimate_in(frame, estimate)
            xy[rows] = projected(own.camera, own.pose.apply(self.points[self.point_rows[rows]]))
        return xy

    def possible(self, views: MapViews, estimate: Estimate, rows: Int64[np.ndarray, "rows"]) -> Bool[np.ndarray, "rows"]:
        """Whether the camera of its frame could see the point of each of the pairs `rows` as some image of the map does."""
        mask = np.zeros(len(rows), dtype=bool)
        for frame in range(len(self.frames)):
            own, one = np.flatnonzero(self.frame_of_pair[rows] == frame), self.frames.estimate_in(frame, estimate)
            mask[own] = views.possible(one.camera, one.pose, self.points, self.point_rows[rows[own]])
        return mask

    def normalized(self, camera: Camera) -> Sights:
        """Points and keypoints of all pairs, in the normalized planes of their frames.

        `camera` is that of the first frame, or zoomed; then all are zoomed by its factor.
        """
        factor = camera.focal_px / self.frames.cameras[0].focal_px
        seen = np.ones((len(self.keypoint_rows), 3))
        for frame, own in enumerate(self.frames.cameras):
            rows = np.flatnonzero(self.frame_of_pair == frame)
            if len(rows):
                xy = as_colmap(zoomed(own, factor)).cam_from_img(self._xy[rows])
                seen[rows, :2] = np.asarray(xy, dtype=np.float64).reshape(-1, 2)
        rig = self.frames.of_sights(self.frame_of_pair)
        return Sights(points=self.points[self.point_rows], seen=seen, as_lines=False, rig=rig)

    @staticmethod
    def minimal_poses(sights: Sights) -> list[Rigid]:
        """Poses (rig_from_world) of three keypoints, up to eight."""
        assert sights.rig is not None
        turns = sights.rig.rotations[sights.rig.frame_of]
        rays = np.einsum("sij,si->sj", turns, sights.seen)
        centers = -np.einsum("sij,si->sj", turns, sights.rig.translations[sights.rig.frame_of])
        return rig_poses_from_three_rays(centers, rays / np.linalg.norm(rays, axis=1, keepdims=True), sights.points)

    def estimate(self, rows: Int64[np.ndarray, "_"] | None = None, *, share: float | None = None) -> Estimate | None:
        """Pose of the rig by LO-RANSAC among the pairs `rows` (default: all); None if there is none.

        With `share` only as many samples are drawn as find a pose that this share of the pairs agrees with (`samples_for`).
        """
        rows = np.arange(len(self.keypoint_rows)) if rows is None else rows
        if len(rows) <= self.sampling.size:
            return None
        options = pycolmap.RANSACOptions()
        options.max_error = self.max_error_px
        options.random_seed = self.seed
        if share is not None:
            options.max_num_trials = samples_for(share, self.sampling.size, POINT_RIVAL_SAMPLES)
            options.min_num_trials = min(100, options.max_num_trials)
        result = pycolmap.estimate_generalized_absolute_pose(
            self._xy[rows],
            self.points[self.point_rows[rows]],
            self.frame_of_pair[rows].tolist(),
            [_as_rigid3d(motion) for motion in self.frames.cams_from_rig],
            [as_colmap(camera) for camera in self.frames.cameras],
            options,
        )
        return None if result is None else Estimate(pose=rigid_from_colmap(result["rig_from_world"]), camera=self.camera)

    def held(self) -> Iterator[Estimate]:
        """No poses: focal lengths of frames are known."""
        return iter(())

    def among_trusted(self, part: float) -> Estimate | None:
        """Pose estimated from the first `part` of the pairs; None if there is none."""
        first = round(part * len(self.keypoint_rows))
        return self.estimate(np.arange(first)) if first > self.sampling.size else None

    def fits_in(self, part: float) -> bool:
        """Whether nearly all keypoints of each frame lie in a window of `part` of its width and height."""
        frames = (self.in_frame(frame)[0] for frame in range(len(self.frames)))
        return all(matched.fits_in(part) for matched in frames if len(matched.keypoint_rows))

    def in_frame(self, frame: int) -> tuple[MatchedPoints, Int64[np.ndarray, "_"]]:
        """The pairs of one frame as those of one camera, and their rows among all pairs."""
        rows, used = np.flatnonzero(self.frame_of_pair == frame), self.frames.rows[frame]
        matched = MatchedPoints(
            camera=self.frames.cameras[frame],
            observations=self.observations[used],
            keypoint_rows=np.searchsorted(used, self.keypoint_rows[rows]),
            point_rows=self.point_rows[rows],
            points=self.points,
            max_error_px=self.max_error_px,
            seed=self.seed,
        )
        return matched, rows

    def evidence_in(self, frame: int, evidence: PoseEvidence) -> PoseEvidence:
        """The part of an evidence that lies in one frame, with rows of that frame's pairs."""
        rows = np.flatnonzero(self.frame_of_pair == frame)
        own = evidence.rows[self.frame_of_pair[evidence.rows] == frame]
        return replace(evidence, rows=np.searchsorted(rows, own))


def _as_rigid3d(motion: Rigid) -> Any:
    return pycolmap.Rigid3d(np.hstack([motion.rotation, motion.translation[:, None]]))


def answer_of_frames(rig: Localization, frames: Frames, scale: float) -> SequenceLocalization:
    """The answer to a sequence, of the answer of the judge, whose pose is that of the rig."""
    factor = rig.camera.focal_px / frames.cameras[0].focal_px
    own = []
    for frame, (camera, motion, rows) in enumerate(zip(frames.cameras, frames.cams_from_rig, frames.rows, strict=True)):
        inlier = frames.frame_of[rig.keypoint_rows] == frame
        turn = np.kron(np.eye(2), motion.rotation)
        params = list(camera.params)
        params[: camera.focal_count] = [value * factor for value in params[: camera.focal_count]]
        own.append(
            replace(
                rig,
                cam_from_world=motion @ rig.cam_from_world,
                camera=replace(camera, params=tuple(params), focal=rig.camera.focal),
                covariance=None if rig.covariance is None else turn @ rig.covariance @ turn.T,
                keypoint_rows=np.searchsorted(rows, rig.keypoint_rows[inlier]),
                point_rows=rig.point_rows[inlier],
            )
        )
    return SequenceLocalization(
        rig_from_world=rig.cam_from_world,
        covariance=rig.covariance,
        turn_deviation_deg=rig.turn_deviation_deg,
        scale=scale,
        frames=tuple(own),
        correspondences=rig.correspondences,
        log10_nfa=rig.log10_nfa,
    )
