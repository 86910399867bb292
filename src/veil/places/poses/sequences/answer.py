"""The answer to a sequence: the pose of the rig, and of each frame as an answer of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import Rigid
from veil.one_line import line
from veil.places.poses.answer import Localization
from veil.places.poses.sequences.frames import Frames


@dataclass(frozen=True, kw_only=True, eq=False)
class SequenceLocalization:
    """The pose of several frames, with one evidence for all of them.

    - `rig_from_world`: takes the map to the rig.
    - `covariance`, float64 (6, 6): of (rotation in radians, translation in units of the map) in the rig; None where infinite.
    - `turn_deviation_deg`: standard deviation of the rotation about its least certain axis in degrees.
    - `scale`: number of units of the map in one unit of the motions.
    - `frames`: the pose of each frame, in the order of the sequence. Their `keypoint_rows` are rows of the frame's features;
      `correspondences` and `log10_nfa` are those of all frames together.
    - `correspondences`, `log10_nfa`: as in `Localization`, of all frames.
    """

    rig_from_world: Rigid
    covariance: Float64[np.ndarray, "6 6"] | None
    turn_deviation_deg: float
    scale: float
    frames: tuple[Localization, ...]
    correspondences: int
    log10_nfa: float

    def __repr__(self) -> str:
        return line(self, {"center": self.rig_from_world.center, "frames": len(self.frames), "inliers": self.inliers}.items())

    @property
    def inliers(self) -> int:
        """Number of keypoints of all frames that see different points within the threshold."""
        return sum(len(frame.keypoint_rows) for frame in self.frames)


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
