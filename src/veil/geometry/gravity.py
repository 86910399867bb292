"""Gravity: unit vectors that point down in the camera frame x right, y down, z forward (traps S5)."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError


def checked_gravity(direction: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3"]:
    """`direction` as a unit vector.

    Raises InputError if it is not finite, has no length, or points up: cameras are held upright more often than upside down,
    and a flipped sign is the common mistake.
    """
    length = float(np.linalg.norm(direction))
    if not np.isfinite(length) or not length > 1e-6:
        raise InputError(f"gravity must be a finite vector of some length, got {direction.tolist()}")
    unit = direction / length
    if unit[1] < -0.5:
        raise InputError(
            f"gravity {unit.round(3).tolist()} points up in a camera frame whose y-axis points down; "
            "negate the readings (accelerometers at rest report the reaction, which points up)"
        )
    return unit


def aligned_from_cam(gravity: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3 3"]:
    """The smallest rotation that takes `gravity` to the y-axis (0, 1, 0)."""
    y = np.array([0.0, 1.0, 0.0])
    axis = np.cross(gravity, y)
    cosine = float(gravity @ y)
    if cosine < -1 + 1e-12:  # upside down: any half turn about a horizontal axis
        return np.diag([1.0, -1.0, -1.0])
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + cross + cross @ cross / (1 + cosine)


def gravity_spread_px(sigma_deg: float, focal_px: float) -> float:
    """How far a gravity error of `sigma_deg` moves an aligned line: f tan(sigma), the scale of the seed's thresholds."""
    return focal_px * float(np.tan(np.deg2rad(sigma_deg)))
