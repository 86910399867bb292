"""Minimal poses inside compiled loops: against PoseLib, their defining equations, and planted truth."""

from __future__ import annotations

import numpy as np
import poselib
import pytest
from scipy.spatial.transform import Rotation

from veil.geometry.solvers.p3p import MAX_POSES, three_point_poses
from veil.geometry.solvers.up4lp import upright_line_poses
from worlds import generator, unit

Poses = list[tuple[np.ndarray, np.ndarray]]


def from_points(rays: np.ndarray, points: np.ndarray) -> Poses:
    rotations, translations = np.full((MAX_POSES, 3, 3), np.nan), np.full((MAX_POSES, 3), np.nan)
    count = three_point_poses(np.ascontiguousarray(rays), np.ascontiguousarray(points), rotations, translations)
    return list(zip(rotations[:count].copy(), translations[:count].copy(), strict=True))


def from_lines(lines: np.ndarray, points: np.ndarray, down_cam: np.ndarray, down_world: np.ndarray) -> Poses:
    rotations, translations = np.full((MAX_POSES, 3, 3), np.nan), np.full((MAX_POSES, 3), np.nan)
    count = upright_line_poses(lines, points, down_cam, down_world, rotations, translations)
    return list(zip(rotations[:count].copy(), translations[:count].copy(), strict=True))


def is_rotation(rotation: np.ndarray) -> bool:
    return bool(np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)) and np.linalg.det(rotation) > 0


def holds(poses: Poses, rotation: np.ndarray, translation: np.ndarray, tol: float = 1e-6) -> bool:
    return any(np.abs(r - rotation).max() < tol and np.abs(t - translation).max() < tol for r, t in poses)


def sees(rays: np.ndarray, points: np.ndarray, rotation: np.ndarray, translation: np.ndarray) -> bool:
    """Whether s_i rays_i = R points_i + t with s_i > 0 for all three points."""
    in_cam = points @ rotation.T + translation
    off = np.abs(np.cross(in_cam, rays)).max() / np.abs(in_cam).max()
    return bool(off < 1e-7 and ((in_cam * rays).sum(axis=1) > 0).all())


def planted_triangle(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(rays, points, rotation, translation) of a camera anywhere, points before it at any scale."""
    rotation = Rotation.from_rotvec(random.normal(size=3)).as_matrix()
    in_cam = random.normal([0, 0, 5], size=(3, 3)) * 10.0 ** random.uniform(-2, 2)
    in_cam[:, 2] = np.abs(in_cam[:, 2]) + 0.1 * np.abs(in_cam).max()
    translation = random.normal(size=3) * np.abs(in_cam).max()
    return unit(in_cam), (in_cam - translation) @ rotation, rotation, translation


def test_three_points_give_what_poselib_gives_and_the_planted_pose() -> None:
    random = generator("p3p")
    several = 0
    for _ in range(500):
        rays, points, rotation, translation = planted_triangle(random)
        poses = from_points(rays, points)
        assert holds(poses, rotation, translation, tol=1e-5 * max(1.0, np.abs(translation).max()))
        theirs = poselib.p3p(list(rays), list(points))
        assert len(theirs) == len(poses)
        for pose in theirs:
            assert holds(poses, pose.R, pose.t, tol=1e-4 * max(1.0, np.abs(pose.t).max()))
        assert all(is_rotation(r) and sees(rays, points, r, t) for r, t in poses)
        several += len(poses) > 1
    assert several > 100


def test_any_three_rays_and_points_give_poses_or_nothing() -> None:
    """Defining equation, where no pose is planted; a mirrored rotation or a point behind the camera would violate it."""
    random = generator("p3p free")
    counts = np.zeros(MAX_POSES + 1, dtype=int)
    for _ in range(1000):
        rays, points = unit(random.normal(size=(3, 3)) * [1, 1, 0.3] + [0, 0, 1]), random.normal(size=(3, 3))
        poses = from_points(rays, points)
        counts[len(poses)] += 1
        assert all(is_rotation(r) and sees(rays, points, r, t) for r, t in poses)
    assert counts[0] > 100 and counts[1:].sum() > 100


def test_collinear_points_give_no_pose() -> None:
    """Collinear points leave a turn about their line open; exactly collinear ones once gave matrices that are no rotations."""
    random = generator("p3p collinear")
    for index in range(600):
        start, step = random.normal([0, 0, 6]), 0.3 * random.normal(size=3)
        if index % 2:  # sums of these are exact
            start, step = np.round(start * 8) / 8, np.round(step * 8) / 8 + [0.125, 0, 0]
        points = np.array([start, start + step, start + random.choice([-1.0, 0.5, 2.0, 3.0]) * step])
        assert from_points(unit(points), points) == []


def test_coincident_points_give_no_pose() -> None:
    points = generator("p3p coincident").normal([0, 0, 5], size=(3, 3))
    for rows in ([0, 0, 1], [0, 1, 0], [1, 0, 0], [0, 0, 0]):
        assert from_points(unit(points), points[rows]) == []


def test_equal_rays_give_right_poses_only() -> None:
    """Two equal rays see two points behind each other; three see no triangle, but every depth is a root of the quartic."""
    random = generator("p3p rays")
    met = 0
    for _ in range(300):
        in_cam = random.normal(size=(3, 3)) * 0.5 + [0, 0, 5]
        rays = unit(in_cam)
        assert from_points(rays[[0, 0, 0]], in_cam) == []
        poses = from_points(rays[[0, 0, 1]], in_cam)
        assert all(is_rotation(r) and sees(rays[[0, 0, 1]], in_cam, r, t) for r, t in poses)
        behind = np.array([in_cam[0], 1.5 * in_cam[0], in_cam[2]])
        met += holds(from_points(unit(behind), behind), np.eye(3), np.zeros(3))
    assert met > 290


def test_an_infinite_or_absent_coordinate_gives_no_pose() -> None:
    rays, points, _, _ = planted_triangle(generator("p3p nan"))
    for bad in (np.nan, np.inf):
        broken = points.copy()
        broken[1, 2] = bad
        assert from_points(rays, broken) == []


def upright(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(rotation, translation, down_cam, down_world) of a camera at any tilt in a world with any down."""
    rotation = Rotation.from_rotvec(random.normal(size=3)).as_matrix()
    down_world = unit(random.normal(size=3))
    return rotation, random.normal(size=3), rotation @ down_world, down_world


def lines_through(random: np.random.Generator, xy: np.ndarray) -> np.ndarray:
    theta = random.uniform(0, np.pi, len(xy))
    normals = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    return np.hstack([normals, -(normals * xy).sum(axis=1, keepdims=True)])


def test_four_upright_lines_give_the_planted_pose() -> None:
    random = generator("upright")
    for _ in range(500):
        rotation, translation, down_cam, down_world = upright(random)
        in_cam = random.uniform(-1, 1, (4, 3)) * [3, 2, 2] + [0, 0, 5]
        lines = lines_through(random, in_cam[:, :2] / in_cam[:, 2:])
        poses = from_lines(lines, (in_cam - translation) @ rotation, down_cam, down_world)
        assert holds(poses, rotation, translation, tol=1e-5)
    # The broken twin: a down that is off by two degrees leads elsewhere.
    tilted = Rotation.from_rotvec(np.radians([2.0, 0, 0])).as_matrix() @ down_cam
    assert not holds(from_lines(lines, (in_cam - translation) @ rotation, tilted, down_world), rotation, translation, tol=1e-3)


def test_upright_poses_satisfy_their_equations() -> None:
    """Defining equations l^T (R X + t) = 0 and R down_world = down_cam, and depth, for unrelated lines and points."""
    random = generator("upright free")
    counts = np.zeros(3, dtype=int)
    for _ in range(1000):
        lines = lines_through(random, random.uniform(-0.6, 0.6, (4, 2)))
        points = random.normal(size=(4, 3)) * [2, 2, 2]
        down_cam, down_world = unit(random.normal(size=(2, 3)))
        poses = from_lines(lines, points, down_cam, down_world)
        counts[len(poses)] += 1
        for rotation, translation in poses:
            in_cam = points @ rotation.T + translation
            assert is_rotation(rotation) and (in_cam[:, 2] > 0).all()
            np.testing.assert_allclose((lines * in_cam).sum(axis=1), 0, atol=1e-7 * max(1.0, np.abs(in_cam).max()))
            np.testing.assert_allclose(rotation @ down_world, down_cam, atol=1e-12)
    assert counts.min() > 20


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_lines_along_gravity_alone_leave_the_height_open(dtype: type) -> None:
    """All four aligned: no solution, also where rounding to float32 makes the equations seem independent."""
    random = generator(f"aligned {dtype.__name__}")
    for _ in range(300):
        rotation, translation, down_cam, down_world = upright(random)
        in_cam = random.uniform(-1, 1, (4, 3)) * [3, 2, 2] + [0, 0, 5]
        lines = np.cross(in_cam / in_cam[:, 2:], down_cam)  # (x, y, 1) x g, docs/theory/lines.md
        lines = (lines / np.linalg.norm(lines[:, :2], axis=1, keepdims=True)).astype(dtype).astype(np.float64)
        points = (in_cam - translation) @ rotation
        assert from_lines(lines, points, down_cam, down_world) == []
        # One line of another direction is enough.
        lines[2] = lines_through(random, in_cam[2:3, :2] / in_cam[2:3, 2:])[0]
        if dtype is np.float64:
            assert holds(from_lines(lines, points, down_cam, down_world), rotation, translation, tol=1e-4)
