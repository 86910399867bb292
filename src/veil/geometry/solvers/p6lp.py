"""Poses of a camera from six lines through the projections of known points (Geppert et al. 2020, Sec. 3.3).

    l_i^T (R X_i + t) = 0,   i = 1..6

The problem is that of Speciale et al. 2019. PoseLib solves it (Kukelova et al., E3Q3). If all six lines follow gravity nothing
bounds the height, and there is no solution.

A file of its own: each solver is one, with its equation.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError
from veil.geometry.rigid import Rigid

MINIMAL_LINES = 6


def pose_from_six_lines(lines: Float64[np.ndarray, "_ 3"], points: Float64[np.ndarray, "_ 3"]) -> list[Rigid]:
    """All real poses (cam_from_world, up to eight) with the six points in front of the camera.

    `lines[i]`, in the normalized plane and of any scale, passes through the projection of `points[i]` of the world. Raises
    InputError for another number of lines or points.
    """
    import poselib

    if len(lines) != MINIMAL_LINES or len(points) != MINIMAL_LINES:
        raise InputError(f"this solver takes {MINIMAL_LINES} lines and points, got {len(lines)} and {len(points)}")
    unit = lines / np.linalg.norm(lines, axis=1, keepdims=True)
    poses = []
    for solution in poselib.p6lp(list(unit), list(points)):
        matrix = np.asarray(solution.Rt, dtype=np.float64)
        pose = Rigid(rotation=matrix[:, :3].copy(), translation=matrix[:, 3].copy())
        if (pose.apply(points)[:, 2] > 0).all():
            poses.append(pose)
    return poses
