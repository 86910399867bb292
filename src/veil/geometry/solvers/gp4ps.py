"""The pose of a rig and its scale from four points and four rays (gP4Ps; Ventura et al. 2014, Kukelova et al. 2016).

    k c_i + s_i u_i = R X_i + t,   i = 1..4

PoseLib solves it. Where all rays begin at one place no equation holds k: `tells_no_scale` says so before anybody asks.

A file of its own: each solver is one, with its equation.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import Rigid
from veil.geometry.solvers.gp3p import on_one_line

MINIMAL_RAYS, MAX_POSES = 4, 8
# Rays whose centers are nearer to each other than this share of the distances of what they see tell no scale.
LEAST_BASELINE = 1e-4


def tells_no_scale(centers: Float64[np.ndarray, "rays 3"], typical_distance: float) -> bool:
    """Whether rays begin so near to each other that their motion tells no scale: a turn about one place.

    `typical_distance` is that of the points, in units of the centers.
    """
    return not float(np.linalg.norm(np.ptp(centers, axis=0))) > LEAST_BASELINE * typical_distance


def scaled_rig_poses_from_four_rays(
    centers: Float64[np.ndarray, "4 3"], rays: Float64[np.ndarray, "4 3"], points: Float64[np.ndarray, "4 3"]
) -> list[tuple[Rigid, float]]:
    """Poses (rig_from_world, in units of the world) and scales k > 0 that bring the points to positive distances.

    - `centers`: where each ray begins, in the rig and its own unit; k units of the world are one of them.
    - `rays`: unit vectors in the rig. Rays of one center, points on one line, and numbers that are not finite give no pose.
    """
    import poselib

    finite = np.isfinite(centers).all() and np.isfinite(rays).all() and np.isfinite(points).all()
    if not finite or on_one_line(points) or not np.ptp(centers, axis=0).any():
        return []
    poses = []
    for pose, scale in zip(*poselib.gp4ps(list(centers), list(rays), list(points), False), strict=True):
        rig = Rigid(rotation=np.asarray(pose.R, dtype=np.float64), translation=np.asarray(pose.t, dtype=np.float64).ravel())
        seen = rig.apply(points) - scale * centers
        along = (seen * rays).sum(axis=1)
        if scale > 0 and (along > 0).all():
            poses.append((rig, float(scale)))
    return poses
