"""The answer to a query as a record: a pose with its evidence, or the reason for none.

A file of its own: commands and clients read answers without loading what finds poses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64, Int64

from veil.errors import Remedy
from veil.geometry.camera import Camera, FocalPrior
from veil.geometry.rigid import Rigid, center_covariance
from veil.json_records.values import SolvedCameraJson
from veil.one_line import line, one_line


class InMap:
    """The camera of a pose in a map, as users write it down; answers here and answers of a server share it."""

    cam_from_world: Rigid
    covariance: Float64[np.ndarray, "6 6"] | None

    @property
    def center(self) -> Float64[np.ndarray, "3"]:
        """Center of the camera in the map, float64 (3,), in units of the map."""
        return self.cam_from_world.center

    @property
    def rotation(self) -> Float64[np.ndarray, "3 3"]:
        """Rotation from the map's axes to the camera's, float64 (3, 3)."""
        return self.cam_from_world.rotation

    @property
    def heading(self) -> Float64[np.ndarray, "3"]:
        """Direction in which the camera looks in the map, float64 (3,) of length 1."""
        return self.cam_from_world.heading

    @property
    def center_deviation(self) -> float | None:
        """Standard deviation of the center in units of the map; None without a covariance."""
        if self.covariance is None:
            return None
        return float(np.sqrt(np.trace(center_covariance(self.cam_from_world, self.covariance))))


@dataclass(frozen=True, kw_only=True, eq=False)
class Localization(InMap):
    """A pose of a query with its evidence; `center`, `rotation`, `heading` and `center_deviation` say where the camera is.

    - `cam_from_world`: takes world coordinates of the map to the camera frame (x right, y down, z forward).
    - `camera`: the query's intrinsics with the focal length that was solved for together with the pose, in pixels, and in
      `camera.focal` its relative standard deviation (Eq. 6-8). Points of the map project to the picture by these.
    - `covariance`, float64 (6, 6): of (rotation in radians, translation in units of the map) in the camera frame, with the
      noise that the inliers show, what is known of the focal length, and how well the map knows its own poses
      (docs/theory/localization.md, Eq. 8 and 11). None where it is infinite.
    - `turn_deviation_deg`: standard deviation of the rotation about its least certain axis in degrees, by that covariance.
    - `keypoint_rows`, `point_rows`, int64 (inliers,): rows of the query's features and of the map's points that correspond.
      Whoever runs this sees them, and can estimate the descriptors of exactly these features
      (release.md#matched-features-are-known-to-whoever-matches-them).
    - `correspondences`: number of pairs of a feature and a point that the pose was searched among.
    - `log10_nfa`: log10 of the number of chance poses with inliers as good (docs/theory/localization.md).
    """

    cam_from_world: Rigid
    camera: Camera
    covariance: Float64[np.ndarray, "6 6"] | None
    turn_deviation_deg: float
    keypoint_rows: Int64[np.ndarray, "inliers"]
    point_rows: Int64[np.ndarray, "inliers"]
    correspondences: int
    log10_nfa: float

    def __repr__(self) -> str:
        deviation = self.center_deviation
        known = {} if deviation is None else {"deviation": float(f"{deviation:.2g}")}
        known |= {"deviation_deg": float(f"{self.turn_deviation_deg:.2g}"), "inliers": self.inliers}
        return line(self, {"center": self.center, "heading": self.heading.round(2), **known}.items())

    @property
    def inliers(self) -> int:
        """Number of keypoints that see different points within the threshold."""
        return len(self.keypoint_rows)


@dataclass(frozen=True, kw_only=True)
class NoPose:
    """The answer to a query for which no pose is better than chance, or none is unique or exact enough.

    - `reason`: a sentence that says why there is no pose.
    - `remedy`: what may help, any one of them; empty where nothing is known to.
    - `correspondences`: number of pairs of a feature and a point that a pose was searched among.
    - `inliers`: inliers of the best pose, 0 if there was none.
    - `log10_nfa`: log10 of the number of chance poses as good as the best one; infinite if there was none.
    """

    reason: str
    correspondences: int
    inliers: int = 0
    log10_nfa: float = math.inf
    remedy: tuple[Remedy, ...] = ()

    __repr__ = one_line


def camera_json(camera: Camera) -> SolvedCameraJson:
    """The camera of an answer as JSON values; `camera_of_json` reads them."""
    return {
        "model": camera.model,
        "width_px": camera.width_px,
        "height_px": camera.height_px,
        "params": list(camera.params),
        "focal_deviation": camera.focal.deviation,
    }


def camera_of_json(value: Mapping[str, Any]) -> Camera:
    """The camera of an answer from JSON values. Raises KeyError, TypeError or ValueError for what is none."""
    return Camera(
        model=str(value["model"]),
        width_px=int(value["width_px"]),
        height_px=int(value["height_px"]),
        params=tuple(float(number) for number in value["params"]),
        focal=FocalPrior(origin="refined", deviation=float(value["focal_deviation"])),
    )


def focal_told(camera: Camera) -> str:
    """The focal length of an answer as a clause for people."""
    return f"focal length {camera.focal_px:.1f} px known to {100 * camera.focal.deviation:.2g} %"
