"""What the images' readings of gravity say of a map of lines, for its adjustment and for samples of few lines."""

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
    """What readings (NaN where there is none) say of these cameras: down in the world is where most of them see it.

    None without a reading.
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
