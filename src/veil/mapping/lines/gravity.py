"""Readings of gravity in a map from lines, for its adjustment and for poses from four lines."""

from __future__ import annotations

import math

import numpy as np
from jaxtyping import Float64

from veil.geometry.bundle.upright import Upright

SIGMA_DEG = 1.0
ROUNDS = 5


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
