"""One map of an evaluation, and how good it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import Rigid
from veil.map_check import MapCheck
from veil.mapping.lines import LineMapCheck
from veil.studies.mapping.position_leakage import Leak

# An image counts as right within one degree (and a map as a success if all of them are).
SUCCESS_DEG = 1.0


@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """Mean, standard deviation, median and maximum of some errors."""

    mean: float
    std: float
    median: float
    max: float

    @staticmethod
    def of(values: np.ndarray) -> Spread:
        """Of one or more values."""
        return Spread(
            mean=float(values.mean()), std=float(values.std()), median=float(np.median(values)), max=float(values.max())
        )

    def as_json(self) -> dict:
        """The record."""
        return {"mean": self.mean, "std": self.std, "median": self.median, "max": self.max}


@dataclass(frozen=True, kw_only=True, eq=False)
class Run:
    """One map and how good it is; `cam_from_world`, `points` are in the reference's frame for the figure."""

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
    rotation_deg: Spread | None = None
    position: Spread | None = None
    pairwise_rotation_deg: float | None = None
    errors: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    line_reprojection_px: float | None = None
    point_reprojection_px: float | None = None
    leak: Leak | None = None
    gravity_is_measured: bool = False
    aligned_share: float | None = None
    check: MapCheck | LineMapCheck | None = None
    extent: float | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def registered(self) -> int:
        """Images with a pose."""
        return len(self.cam_from_world)

    @property
    def succeeded(self) -> bool:
        """Every image registered, every rotation within a degree."""
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
            "leak": self.leak and self.leak.as_json(),
            "aligned_share": self.aligned_share,
            "images": {
                name: {"position": position, "rotation_deg": rotation} for name, (position, rotation) in self.errors.items()
            },
            "refused": dict(self.refused),
            "reason": self.reason,
            "check": self.check and self.check.as_json(),
            "seconds": dict(self.seconds),
        }
