"""Matches of two photographs, judged by reference cameras: how far each is from the epipolar line of the other."""

from __future__ import annotations

import numpy as np

from veil.geometry.camera import Camera, as_colmap
from veil.geometry.rigid import Rigid


def epipolar_errors_px(
    cameras: tuple[Camera, Camera], cam_from_world: tuple[Rigid, Rigid], left: np.ndarray, right: np.ndarray
) -> np.ndarray:
    """Sampson distances in pixels of matched keypoints, (n, 2) each, of two cameras without distortion (Hartley, Zisserman)."""
    relative = cam_from_world[1] @ cam_from_world[0].inverse()
    x, y, z = relative.translation
    essential = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]) @ relative.rotation
    one, other = (np.linalg.inv(np.asarray(as_colmap(camera).calibration_matrix())) for camera in cameras)
    fundamental = other.T @ essential @ one
    rows, columns = (np.hstack([points.astype(np.float64), np.ones((len(points), 1))]) for points in (left, right))
    lines, back = rows @ fundamental.T, columns @ fundamental
    return np.abs((columns * lines).sum(axis=1)) / np.sqrt((lines[:, :2] ** 2).sum(axis=1) + (back[:, :2] ** 2).sum(axis=1))
