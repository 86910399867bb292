"""Cameras of free calibration: planted ones come back from points and from lines, bounds hold, and SciPy's optimum is met."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import least_squares

from veil.geometry.free_calibration import FreeCamera, Sights
from veil.geometry.rigid import Rigid
from worlds import generator, world

WORLD = world("free", points=200)
POSE = WORLD.poses["02"]
# A picture at 0.7 of its size, in a corner of another one and seen at an angle.
PLANTED = np.array([np.log(0.7), 0.12, -0.08, 0.03, 0.04])
FREE = np.full(5, 3.0)


def seen_by(camera: FreeCamera, noise: float = 0.0) -> Sights:
    """Image points by the defining equations: pose, division by the depth, the upper triangular calibration."""
    x = WORLD.points @ camera.pose.rotation.T + camera.pose.translation
    focal, right, down, aspect, skew = camera.offsets
    matrix = np.array([[np.exp(focal + aspect), skew, right], [0, np.exp(focal - aspect), down], [0, 0, 1]])
    xy = x @ matrix.T
    xy = xy / xy[:, 2:]
    xy[:, :2] += noise * generator("free noise").normal(size=(len(xy), 2))
    return Sights(points=WORLD.points, seen=xy, as_lines=False)


def as_lines(sights: Sights) -> Sights:
    theta = generator("free lines").uniform(0, np.pi, len(sights.points))
    normals = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    offsets = -(normals * sights.seen[:, :2]).sum(axis=1, keepdims=True)
    return Sights(points=sights.points, seen=np.hstack([normals, offsets]), as_lines=True)


@pytest.mark.parametrize("lines", [False, True], ids=["points", "lines"])
def test_a_planted_calibration_comes_back(lines: bool) -> None:
    truth = FreeCamera(pose=POSE, offsets=PLANTED)
    sights = as_lines(seen_by(truth)) if lines else seen_by(truth)
    near = Rigid(rotation=POSE.rotation, translation=POSE.translation + np.array([0.1, -0.05, 0.8]))
    fitted = sights.fitted(FreeCamera(pose=near), FREE)
    np.testing.assert_allclose(fitted.offsets, PLANTED, atol=1e-3)
    assert np.linalg.norm(fitted.pose.center - POSE.center) < 5e-3


def test_the_optimum_is_that_of_scipy() -> None:
    """The same loss at the same scale, minimized by another method with numerical derivatives."""
    truth = FreeCamera(pose=POSE, offsets=PLANTED)
    sights = seen_by(truth, noise=2e-3)
    fitted = sights.fitted(truth, FREE)
    scale = float(np.median(sights.residuals(truth)))

    def loss(camera: FreeCamera) -> float:
        return float((np.sqrt(1 + (sights.residuals(camera) / scale) ** 2) - 1).sum())

    def moved(step: np.ndarray) -> FreeCamera:
        x, y, z = step[:3]
        turn, _ = np.linalg.qr(np.eye(3) + np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]))
        turn = turn * np.sign(np.diag(turn))
        pose = Rigid(rotation=turn @ POSE.rotation, translation=POSE.translation + step[3:6])
        return FreeCamera(pose=pose, offsets=PLANTED + step[6:])

    def roots(step: np.ndarray) -> np.ndarray:
        """Numbers whose squares add up to twice the loss."""
        return np.sqrt(2 * (np.sqrt(1 + (sights.residuals(moved(step)) / scale) ** 2) - 1))

    best = least_squares(roots, np.zeros(11), x_scale="jac")
    assert loss(fitted) <= best.cost * (1 + 1e-3)
    assert loss(fitted) < 0.999 * loss(truth)


@pytest.mark.parametrize("lines", [False, True], ids=["points", "lines"])
def test_bounds_hold_and_what_is_within_them_is_met(lines: bool) -> None:
    truth = FreeCamera(pose=POSE, offsets=PLANTED)
    sights = as_lines(seen_by(truth)) if lines else seen_by(truth)
    reach = np.array([0.2, 0.05, 0.05, 0.02, 0.02])
    fitted = sights.fitted(FreeCamera(pose=POSE), reach)
    assert (np.abs(fitted.offsets) <= reach).all()
    assert np.median(sights.residuals(fitted)) > 100 * np.median(sights.residuals(sights.fitted(fitted, FREE)))
    inside = replace(truth, offsets=0.5 * reach)
    sights = as_lines(seen_by(inside)) if lines else seen_by(inside)
    np.testing.assert_allclose(sights.fitted(FreeCamera(pose=POSE), reach).offsets, inside.offsets, atol=1e-3)


def test_points_behind_the_camera_are_infinitely_far() -> None:
    sights = seen_by(FreeCamera(pose=POSE))
    turned = np.diag([-1.0, 1.0, -1.0])
    behind = Rigid(rotation=turned @ POSE.rotation, translation=turned @ POSE.translation)
    assert np.isinf(sights.residuals(FreeCamera(pose=behind))).all()
    assert sights.fitted(FreeCamera(pose=behind), FREE).pose is behind
