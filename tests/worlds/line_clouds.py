"""Lines through chosen keypoints, each drawn on its own: also through keypoints at one position, which veil never does."""

from __future__ import annotations

import numpy as np

from veil.forms import Lines
from veil.geometry.camera import Camera, as_colmap

DOWN = np.array([0.0, 1.0, 0.0])
CAMERA = Camera(model="PINHOLE", width_px=640, height_px=480, params=(500.0, 500.0, 320.0, 240.0))
RADIAL = Camera(model="SIMPLE_RADIAL", width_px=640, height_px=480, params=(500.0, 320.0, 240.0, -0.1))


def line_cloud(keypoints: np.ndarray, random: np.random.Generator, *, camera: Camera = CAMERA, aligned: float = 0.0) -> Lines:
    """One line for each keypoint (pixels); a share of them is vertical in the normalized plane."""
    xy = np.asarray(as_colmap(camera).cam_from_img(np.asarray(keypoints, dtype=np.float64)))
    upright = random.random(len(xy)) < aligned
    theta = np.where(upright, 0.0, random.uniform(0, np.pi, len(xy)))
    normal = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    offset = -(normal * xy).sum(axis=1, keepdims=True)
    return Lines(coefficients=np.hstack([normal, offset]).astype(np.float32), aligned=upright, gravity=DOWN, releasable=False)


def uniform_keypoints(random: np.random.Generator, count: int, camera: Camera = CAMERA) -> np.ndarray:
    """Anywhere in the image."""
    return random.random((count, 2)) * (camera.width_px, camera.height_px)


def errors(points: np.ndarray, keypoints: np.ndarray) -> np.ndarray:
    """Pixels to the truth; NaN where there is no decision."""
    return np.linalg.norm(points - keypoints, axis=1)
