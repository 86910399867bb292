"""Record of one map of an evaluation, with its errors against reference cameras."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import Rigid
from veil.places.maps.lines import LineMapCheck
from veil.scene import MapCheck
from veil.trials.position_leakage import PositionLeakage

# An image is right if its rotation error is at most one degree, and a map is a success if all its images are.
SUCCESS_DEG = 1.0


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

    def as_json(self) -> dict:
        """A part of the record of docs/reference/json.md."""
        return {"mean": self.mean, "std": self.std, "median": self.median, "max": self.max}


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One map of a scene, and its errors against the reference cameras.

    `method` is "lines", "points" (plain COLMAP) or "checked" (veil's map of positions). `total` images were to be mapped;
    `reason` says why there is no map, `refused` why images are left out, by name. `cam_from_world` and `points` are in the
    reference's frame, if the map could be aligned with it. Errors are in units of the reference and in degrees: `position` and
    `rotation_deg` of registered images after alignment, `errors` both of each image, `pairwise_rotation_deg` without any
    alignment. `extent` is the diagonal of the box around the reference cameras. `seconds` are by step.
    """

    scene: str
    method: str
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
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def registered(self) -> int:
        """Number of images with a pose."""
        return len(self.cam_from_world)

    @property
    def succeeded(self) -> bool:
        """Whether every image is registered, and every rotation right to a degree."""
        return self.registered == self.total and self.rotation_deg is not None and self.rotation_deg.max <= SUCCESS_DEG

    def as_json(self) -> dict:
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
            "rotation_deg": self.rotation_deg and self.rotation_deg.as_json(),
            "pairwise_rotation_deg": self.pairwise_rotation_deg,
            "position": self.position and self.position.as_json(),
            "extent": self.extent,
            "line_reprojection_px": self.line_reprojection_px,
            "point_reprojection_px": self.point_reprojection_px,
            "leak": self.leakage and self.leakage.as_json(),
            "aligned_share": self.aligned_share,
            "images": {
                name: {"position": position, "rotation_deg": rotation} for name, (position, rotation) in self.errors.items()
            },
            "refused": dict(self.refused),
            "reason": self.reason,
            "check": self.check and self.check.as_json(),
            "seconds": dict(self.seconds),
        }
