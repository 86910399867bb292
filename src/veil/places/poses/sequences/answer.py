"""The answer to a sequence: the pose of the rig, and of each frame as an answer of its own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import Rigid
from veil.one_line import line
from veil.places.poses.answer import Localization


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
