"""Record of one map of an evaluation, with its errors against reference cameras."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypedDict

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import Rigid
from veil.json_records.values import Reasons
from veil.places.maps.lines import LineMapCheck
from veil.scene import LineMapCheckJson, MapCheck, MapCheckJson
from veil.trials.position_leakage import PositionLeakage, PositionLeakageJson

# An image is right if its rotation error is at most one degree, and a map is a success if all its images are.
SUCCESS_DEG = 1.0


class ErrorStatisticsJson(TypedDict):
    """Mean, standard deviation, median and maximum of errors."""

    mean: float
    std: float
    median: float
    max: float


@dataclass(frozen=True, kw_only=True, eq=False)
class ErrorStatistics:
    """Mean, standard deviation, median and maximum of one or more errors."""

    mean: float
    std: float
    median: float
    max: float

    @staticmethod
    def of(values: np.ndarray) -> ErrorStatistics:
        """The statistics of one or more values."""
        return ErrorStatistics(
            mean=float(values.mean()), std=float(values.std()), median=float(np.median(values)), max=float(values.max())
        )

    def as_json(self) -> ErrorStatisticsJson:
        """A part of the record of docs/reference/json.md."""
        return {"mean": self.mean, "std": self.std, "median": self.median, "max": self.max}


# From lines, by plain COLMAP from points, or as veil's map of positions.
Method = Literal["lines", "points", "checked"]


class ImageErrorsJson(TypedDict):
    """Errors of an image."""

    position: float
    rotation_deg: float


class RunSecondsJson(TypedDict, total=False):
    """Seconds of each step."""

    extract: float
    match: float
    map: float


class RunJson(TypedDict):
    """One map of a scene, and its errors."""

    scene: str
    method: Method
    seed: int
    gravity_noise_deg: float
    gravity: Literal["measured", "reference"]
    registered: int
    total: int
    points: int
    observations: int
    track_length: float
    rotation_deg: ErrorStatisticsJson | None
    pairwise_rotation_deg: float | None
    position: ErrorStatisticsJson | None
    extent: float | None
    line_reprojection_px: float | None
    point_reprojection_px: float | None
    leak: PositionLeakageJson | None
    aligned_share: float | None
    images: Mapping[str, ImageErrorsJson]
    refused: Reasons
    reason: str | None
    check: MapCheckJson | LineMapCheckJson | None
    seconds: RunSecondsJson


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One map of a scene, and its errors against the reference cameras.

    `total` images were to be mapped;
    `reason` says why there is no map, `refused` why images are left out, by name. `cam_from_world` and `points` are in the
    reference's frame, if the map could be aligned with it. Errors are in units of the reference and in degrees: `position` and
    `rotation_deg` of registered images after alignment, `errors` both of each image, `pairwise_rotation_deg` without any
    alignment. `extent` is the diagonal of the box around the reference cameras. `seconds` are by step.
    """

    scene: str
    method: Method
    seed: int
    gravity_noise_deg: float
    total: int
    reason: str | None = None
    refused: Mapping[str, str] = field(default_factory=dict)
    cam_from_world: Mapping[str, Rigid] = field(default_factory=dict)
    points: Float64[np.ndarray, "_ 3"] = field(default_factory=lambda: np.zeros((0, 3)))
    observations: int = 0
    rotation_deg: ErrorStatistics | None = None
    position: ErrorStatistics | None = None
    pairwise_rotation_deg: float | None = None
    errors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    line_reprojection_px: float | None = None
    point_reprojection_px: float | None = None
    leakage: PositionLeakage | None = None
    gravity_is_measured: bool = False
    aligned_share: float | None = None
    check: MapCheck | LineMapCheck | None = None
    extent: float | None = None
    seconds: RunSecondsJson = field(default_factory=RunSecondsJson)

    @property
    def registered(self) -> int:
        """Number of images with a pose."""
        return len(self.cam_from_world)

    @property
    def succeeded(self) -> bool:
        """Whether every image is registered, and every rotation right to a degree."""
        return self.registered == self.total and self.rotation_deg is not None and self.rotation_deg.max <= SUCCESS_DEG

    def as_json(self) -> RunJson:
        """The stable record of docs/reference/json.md."""
        return {
            "scene": self.scene,
            "method": self.method,
            "seed": self.seed,
            "gravity_noise_deg": self.gravity_noise_deg,
            "gravity": "measured" if self.gravity_is_measured else "reference",
            "registered": self.registered,
            "total": self.total,
            "points": len(self.points),
            "observations": self.observations,
            "track_length": self.observations / len(self.points) if len(self.points) else 0.0,
            "rotation_deg": None if self.rotation_deg is None else self.rotation_deg.as_json(),
            "pairwise_rotation_deg": self.pairwise_rotation_deg,
            "position": None if self.position is None else self.position.as_json(),
            "extent": self.extent,
            "line_reprojection_px": self.line_reprojection_px,
            "point_reprojection_px": self.point_reprojection_px,
            "leak": None if self.leakage is None else self.leakage.as_json(),
            "aligned_share": self.aligned_share,
            "images": {
                name: {"position": position, "rotation_deg": rotation} for name, (position, rotation) in self.errors.items()
            },
            "refused": dict(self.refused),
            "reason": self.reason,
            "check": None if self.check is None else self.check.as_json(),
            "seconds": {**self.seconds},
        }
