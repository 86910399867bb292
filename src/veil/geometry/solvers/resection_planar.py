"""A planar view from known points of the plane: three or more, linear (Geppert et al. 2020, Eq. 8-9).

(1, -x) (R (X, Z) + t) = 0,   R = [[cos, sin], [-sin, cos]]
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.geometry.solvers.planar import PlanarPose

MINIMAL_POINTS = 3


def resect_planar(points: Float64[np.ndarray, "points 2"], x: Float64[np.ndarray, "points"]) -> PlanarPose | None:
    """The pose with most points in front of the camera, or None where no point is.

    min |M (cos, sin, t_x, t_z)|^2 subject to cos^2 + sin^2 = 1: the translation is eliminated by projection on the complement
    of its columns, the rotation is the last singular vector of what remains, and its sign is decided by depth.
    Raises InputError for fewer than three points.
    """
    if len(points) < MINIMAL_POINTS:
        raise InputError(f"resecting a planar view needs {MINIMAL_POINTS} points, got {len(points)}")
    weight = 1 / np.hypot(1.0, x)
    a, b = points[:, 0], points[:, 1]
    rotation_part = np.stack([a - x * b, b + x * a], axis=1) * weight[:, None]
    translation_part = np.stack([np.ones_like(x), -x], axis=1) * weight[:, None]
    basis, _ = np.linalg.qr(translation_part)
    reduced = rotation_part - basis @ (basis.T @ rotation_part)
    cosine, sine = np.linalg.svd(reduced)[2][-1]
    translation = -np.linalg.lstsq(translation_part, rotation_part @ [cosine, sine], rcond=None)[0]
    candidates = [
        PlanarPose(angle=float(np.arctan2(sign * sine, sign * cosine)), translation=sign * translation) for sign in (1.0, -1.0)
    ]
    shares = [float((pose.apply(points)[:, 1] > 0).mean()) for pose in candidates]
    best = int(np.argmax(shares))
    return candidates[best] if shares[best] > 0 else None
