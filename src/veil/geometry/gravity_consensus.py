"""Consensus of images' gravity readings on a model's down, and which contradict it (docs/theory/gravity.md, Eq. 11-13)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int64

from veil.errors import InputError, RangeError
from veil.geometry.gravity import SENSOR_SIGMA_DEG

Verdict = Literal["agrees", "wrong", "no reading"]
# Median length of a two-dimensional Gaussian of unit standard deviation along each axis: sqrt(2 ln 2).
_MEDIAN_LENGTH = math.sqrt(2 * math.log(2))


@dataclass(frozen=True, kw_only=True)
class ConsensusOptions:
    """Settings of the consensus on a model's down. Raises RangeError for values out of range.

    `unknown_sigma_deg` stands for a reading's standard deviation where none is given, `model_sigma_deg` is that of a model's
    rotations, and `max_scale` is how many times wider than these the readings may scatter. At most `false_alarms` honest
    readings are expected to be called wrong, over all images of a model (Eq. 12).
    """

    unknown_sigma_deg: float = SENSOR_SIGMA_DEG
    model_sigma_deg: float = 1.0
    max_scale: float = 3.0
    false_alarms: float = 0.01

    def __post_init__(self) -> None:
        for name in ("unknown_sigma_deg", "model_sigma_deg"):
            if not 0 < getattr(self, name) < 45:
                raise RangeError(f"{name} must lie between 0 and 45 degrees, got {getattr(self, name)!r}")
        if not 1 <= self.max_scale < math.inf:
            raise RangeError(f"max_scale must be at least 1 and finite, got {self.max_scale!r}")
        if not 0 < self.false_alarms < 1:
            raise RangeError(f"false_alarms must lie between 0 and 1, got {self.false_alarms!r}")


@dataclass(frozen=True, kw_only=True, eq=False)
class GravityConsensus:
    """Down in the model's frame as a unit vector, its standard deviation about either axis, and a verdict on each image.

    `residual_deg` is the angle of an image's reading to the mean of the other agreeing readings (NaN without a reading), and
    `limit_deg` the angle above which it is called wrong. `scale` is how many times wider than their standard deviations the
    readings scatter, at least 1.
    """

    down: Float64[np.ndarray, "3"]
    sigma_deg: float
    scale: float
    residual_deg: Float64[np.ndarray, "images"]
    limit_deg: Float64[np.ndarray, "images"]
    verdicts: tuple[Verdict, ...]

    @property
    def agreeing(self) -> Int64[np.ndarray, "agreeing"]:
        """Rows of the images whose readings agree."""
        return np.flatnonzero([verdict == "agrees" for verdict in self.verdicts])

    @property
    def wrong(self) -> Int64[np.ndarray, "wrong"]:
        """Rows of the images whose readings contradict the others."""
        return np.flatnonzero([verdict == "wrong" for verdict in self.verdicts])


@dataclass(frozen=True, kw_only=True)
class NoConsensus:
    """Answer where no majority of the `readings` agrees on one down in a model.

    `agreeing` is the size of the largest group that agrees, and `reason` says why there is no answer. With many readings this
    speaks against the model as much as against the readings.
    """

    reason: str
    readings: int
    agreeing: int


def agree_on_down(
    down_in_cam: Float64[np.ndarray, "images 3"],
    cam_from_world: Float64[np.ndarray, "images 3 3"],
    sigma_deg: Float64[np.ndarray, "images"] | None = None,
    options: ConsensusOptions | None = None,
) -> GravityConsensus | NoConsensus:
    """The direction of down that more than half of the readings agree on, and which readings do not.

    `down_in_cam` are readings in camera frames (x right, y down, z forward), of any length, a row of NaN where an image has
    none; `cam_from_world` are the rotations of the model's images; `sigma_deg` the readings' standard deviations, NaN if
    unknown. Raises InputError if rotations are not finite, or a reading has no length.
    """
    options = options or ConsensusOptions()
    if not np.isfinite(cam_from_world).all():
        raise InputError("the rotations of a model must be finite; leave images without a pose out")
    known = np.isfinite(down_in_cam).all(axis=1)
    lengths = np.linalg.norm(down_in_cam[known], axis=1)
    if not (lengths > 1e-6).all():
        raise InputError("a reading of gravity must have some length; give NaN for an image without one")
    if len(lengths) < 2:
        what = "only one image has" if len(lengths) else "no image has"
        return NoConsensus(reason=f"{what} a reading of gravity", readings=len(lengths), agreeing=len(lengths))
    world = np.einsum("nji,nj->ni", cam_from_world[known], down_in_cam[known] / lengths[:, None])
    given = np.full(len(world), np.nan) if sigma_deg is None else sigma_deg[known]
    sensor = np.where(np.isfinite(given) & (given > 0), given, options.unknown_sigma_deg)
    readings = _Readings(world=world, sigma_deg=np.hypot(sensor, options.model_sigma_deg), options=options)
    return _judged(readings, known)


def apart_deg(left: Float64[np.ndarray, "*#batch 3"], right: Float64[np.ndarray, "*#batch 3"]) -> Float64[np.ndarray, "..."]:
    """Angles between directions in degrees, accurate near 0 and near 180 (the arc cosine is not)."""
    sine = np.linalg.norm(np.cross(left, right), axis=-1)
    return np.asarray(np.degrees(np.arctan2(sine, (left * right).sum(axis=-1))), dtype=np.float64)


def contradiction_limit(readings: int, false_alarms: float) -> float:
    """Number of standard deviations (of one axis) beyond which one of `readings` readings is called wrong (Eq. 12).

    The tail of a two-dimensional Gaussian beyond it has the probability `false_alarms` / `readings`.
    """
    return math.sqrt(2 * math.log(max(readings, 1) / false_alarms))


@dataclass(frozen=True, kw_only=True, eq=False)
class _Readings:
    """Readings as unit vectors in the world, and the standard deviations of the readings with the model's rotations."""

    world: np.ndarray
    sigma_deg: np.ndarray
    options: ConsensusOptions

    def start(self) -> tuple[np.ndarray, float]:
        """Mask of the readings near the one that a majority is nearest to, and the scale of their errors.

        That reading is chosen by the least median of squares (Rousseeuw 1984).
        """
        count = len(self.world)
        angles = apart_deg(self.world[:, None], self.world[None])
        errors = angles / np.hypot(self.sigma_deg[:, None], self.sigma_deg[None])
        near = np.sort(errors, axis=1)[:, count // 2]  # column 0 is the reading itself: this many more make a majority
        best = int(near.argmin())
        scale = self.scale(near[best])
        return errors[best] <= self.limit * scale, scale

    @property
    def limit(self) -> float:
        """Number of standard deviations beyond which a reading is called wrong, at a scale of 1 (Eq. 12)."""
        return contradiction_limit(len(self.world), self.options.false_alarms)

    def scale(self, median: float) -> float:
        """Scale of the readings' errors from their median in standard deviations, within [1, `max_scale`] (Eq. 12)."""
        return float(np.clip(median / _MEDIAN_LENGTH, 1.0, self.options.max_scale))

    def others(self, agreeing: Bool[np.ndarray, "readings"]) -> tuple[np.ndarray, np.ndarray]:
        """Weighted mean of the agreeing readings without each one in turn, and the standard deviation of each such mean."""
        weight = agreeing / self.sigma_deg**2
        total = (weight[:, None] * self.world).sum(axis=0) - weight[:, None] * self.world
        left = np.maximum(weight.sum() - weight, 1e-12)
        return total / np.maximum(np.linalg.norm(total, axis=1, keepdims=True), 1e-12), 1 / np.sqrt(left)


def _judged(readings: _Readings, known: np.ndarray) -> GravityConsensus | NoConsensus:
    """The consensus of readings, or why there is none; `known` (images,) marks the images that have a reading."""
    agreeing, scale = readings.start()
    for _ in range(20):
        if not agreeing.any():
            break
        means, spread = readings.others(agreeing)
        sigma = np.hypot(readings.sigma_deg, spread)
        angles = apart_deg(readings.world, means)
        scale = readings.scale(float(np.median((angles / sigma)[agreeing])))
        before, agreeing = agreeing, angles <= readings.limit * scale * sigma
        if (agreeing == before).all():
            break
    count = int(agreeing.sum())
    if count < 2 or 2 * count <= len(agreeing):
        return NoConsensus(
            reason=f"only {count} of {len(agreeing)} readings of gravity agree on one down in this model",
            readings=len(agreeing),
            agreeing=count,
        )
    weight = agreeing / readings.sigma_deg**2
    mean = (weight[:, None] * readings.world).sum(axis=0)
    residual, limit = np.full(len(known), np.nan), np.full(len(known), np.nan)
    residual[known], limit[known] = angles, readings.limit * scale * sigma
    verdicts = np.full(len(known), "no reading", dtype=object)
    verdicts[known] = np.where(agreeing, "agrees", "wrong")
    return GravityConsensus(
        down=mean / np.linalg.norm(mean),
        sigma_deg=scale / math.sqrt(weight.sum()),
        scale=scale,
        residual_deg=residual,
        limit_deg=limit,
        verdicts=tuple(verdicts),
    )
