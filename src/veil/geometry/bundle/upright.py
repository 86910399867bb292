"""Readings of gravity as a part of the cost of bundle adjustment (docs/theory/lines.md, Eq. 26-27)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

SIGMA_DEG = 1.0
ROUNDS = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Upright:
    """Readings of gravity: unit vectors down in some cameras and in the world, and their spread (lines.md, Eq. 26).

    `down_cam[i]` is NaN where camera i has no reading. A camera whose down is off by `sigma_rad` costs as much as one line that
    is off by half of the loss scale; readings several times as far off lose their weight.
    """

    down_cam: Float64[np.ndarray, "cameras 3"]
    down_world: Float64[np.ndarray, "3"]
    sigma_rad: float

    def cost(self, rotations: Float64[np.ndarray, "cameras 3 3"], weight_px: float) -> float:
        """Cost of the readings: half the sum of w^2 s^2 log(1 + |e|^2 / s^2) with e = R d - g and s three sigma (Eq. 26).

        `weight_px` is w, pixels per radian.
        """
        return 0.5 * float(np.nansum(weight_px**2 * self._scale2 * np.log1p(self._error(rotations)[1] / self._scale2)))

    def linear(
        self, rotations: Float64[np.ndarray, "cameras 3 3"], weight_px: float
    ) -> tuple[Float64[np.ndarray, "cameras 3 3"], Float64[np.ndarray, "cameras 3"]]:
        """(normal matrix, negative gradient) of each camera's turn, for R <- exp(omega) R (Eq. 27); zero without a reading.

        `weight_px` is w of Eq. 26, pixels per radian.
        """
        squared = self._error(rotations)[1]
        known = np.isfinite(squared)
        weight = np.where(known, weight_px**2 / (1 + np.where(known, squared, 0.0) / self._scale2), 0.0)
        down = rotations @ self.down_world
        normal = weight[:, None, None] * (np.eye(3) - down[:, :, None] * down[:, None, :])
        gradient = weight[:, None] * np.cross(np.where(known[:, None], self.down_cam, 0.0), down)
        return normal, -gradient

    def _error(self, rotations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(e, |e|^2) of all cameras, e = R d - g; NaN without a reading."""
        error = rotations @ self.down_world - self.down_cam
        return error, (error**2).sum(axis=1)

    @property
    def _scale2(self) -> float:
        """The square of three standard deviations, in radians^2."""
        return (3 * self.sigma_rad) ** 2


def upright_of(
    rotations: Float64[np.ndarray, "cameras 3 3"], gravity: Float64[np.ndarray, "cameras 3"], sigma_deg: float = SIGMA_DEG
) -> Upright | None:
    """Gravity term of bundle adjustment: down in the world where most readings see it; None without a reading.

    `rotations` are those of cam_from_world, `gravity` unit vectors down in the camera frames (NaN without a reading),
    `sigma_deg` the standard deviation of a reading in degrees. Readings far from the others lose their weight.
    """
    down = np.einsum("cji,cj->ci", rotations, gravity)
    down = down[np.isfinite(down).all(axis=1)]
    if len(down) == 0:
        return None
    weight = np.ones(len(down))
    for _ in range(ROUNDS):
        mean = (weight[:, None] * down).sum(axis=0)
        mean /= max(float(np.linalg.norm(mean)), 1e-12)
        weight = 1 / (1 + ((down - mean) ** 2).sum(axis=1) / math.radians(3 * sigma_deg) ** 2)
    return Upright(down_cam=gravity, down_world=mean, sigma_rad=math.radians(sigma_deg))
