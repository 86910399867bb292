"""Upright poses from two points: against planted truth, a scan over headings, PoseLib's P3P and the defining equations."""

from __future__ import annotations

import numpy as np
import poselib
import pytest
from scipy.spatial.transform import Rotation

from veil.geometry.solvers.up2p import MAX_POSES, upright_point_poses
from worlds import generator, unit

Poses = list[tuple[np.ndarray, np.ndarray]]


def solved(rays: np.ndarray, points: np.ndarray, down_cam: np.ndarray, down_world: np.ndarray) -> Poses:
    rotations, translations = np.full((MAX_POSES, 3, 3), np.nan), np.full((MAX_POSES, 3), np.nan)
    count = upright_point_poses(rays, points, down_cam, down_world, rotations, translations)
    return list(zip(rotations[:count].copy(), translations[:count].copy(), strict=True))


def holds(poses: Poses, rotation: np.ndarray, translation: np.ndarray, tol: float = 1e-6) -> bool:
    scale = max(1.0, float(np.abs(translation).max()))
    return any(np.abs(r - rotation).max() < tol and np.abs(t - translation).max() < tol * scale for r, t in poses)


def planted(random: np.random.Generator, count: int = 2) -> tuple[np.ndarray, ...]:
    """(rays, points, rotation, translation, down_cam, down_world) of a camera at any tilt, points before it at any scale."""
    rotation = Rotation.from_rotvec(random.normal(size=3)).as_matrix()
    down_world = unit(random.normal(size=3))
    in_cam = (random.uniform(-1, 1, (count, 3)) * [3, 2, 2] + [0, 0, 5]) * 10.0 ** random.uniform(-2, 2)
    translation = random.normal(size=3) * np.abs(in_cam).max()
    return unit(in_cam), (in_cam - translation) @ rotation, rotation, translation, rotation @ down_world, down_world


def misfit(heading: float, rays: np.ndarray, points: np.ndarray) -> tuple[float, np.ndarray]:
    """Misfit of two upright points to the rays at a heading, with the best center and depths by least squares.

    In frames where gravity is y: depths and t of s_i u_i = Y x_i + t are linear once the heading is chosen.
    """
    cos, sin = np.cos(heading), np.sin(heading)
    turned = points @ np.array([[cos, 0, sin], [0, 1, 0], [-sin, 0, cos]]).T
    # u_2 s_2 - u_1 s_1 = Y (x_2 - x_1)
    design = np.stack([-rays[0], rays[1]], axis=1)
    depths, *_ = np.linalg.lstsq(design, turned[1] - turned[0], rcond=None)
    return float(np.linalg.norm(design @ depths - (turned[1] - turned[0]))), depths


def scanned(rays: np.ndarray, points: np.ndarray) -> list[float]:
    """Headings of all exact poses with positive depths by a dense scan, each minimum then narrowed by golden sections."""
    from scipy.optimize import minimize_scalar

    grid = np.linspace(-np.pi, np.pi, 1201)
    values = np.array([misfit(angle, rays, points)[0] for angle in grid])
    size = float(np.linalg.norm(points[1] - points[0]))
    headings: list[float] = []
    for k in np.flatnonzero((values <= np.roll(values, 1)) & (values <= np.roll(values, -1))):
        best = minimize_scalar(
            lambda angle: misfit(angle, rays, points)[0],
            bounds=(grid[k] - 0.012, grid[k] + 0.012),
            method="bounded",
            options={"xatol": 1e-10},
        )
        value, depths = misfit(float(best.x), rays, points)
        new = all(abs(np.angle(np.exp(1j * (best.x - other)))) > 1e-6 for other in headings)
        if value < 1e-6 * size and (depths > 0).all() and new:
            headings.append(float(best.x))
    return headings


@pytest.mark.usefixtures("unchecked")
def test_two_upright_points_give_the_planted_pose() -> None:
    random = generator("up2p")
    several = 0
    for _ in range(300):
        rays, points, rotation, translation, down_cam, down_world = planted(random)
        poses = solved(rays, points, down_cam, down_world)
        assert holds(poses, rotation, translation, tol=1e-5)
        several += len(poses) == 2
    assert 30 < several < 270
    # The broken twin: a down that is off by two degrees leads elsewhere.
    tilted = Rotation.from_rotvec(np.radians([2.0, 0, 0])).as_matrix() @ down_cam
    assert not holds(solved(rays, points, tilted, down_world), rotation, translation, tol=1e-3)


@pytest.mark.slow
def test_all_poses_of_a_scan_over_headings_are_found_and_no_others() -> None:
    """Slow reference: frames are upright already, so that the heading is all that a pose has besides the linear unknowns."""
    random, y = generator("up2p scan"), np.array([0.0, 1.0, 0.0])
    counts = np.zeros(MAX_POSES + 1, dtype=int)
    for _ in range(40):
        rays, points = unit(random.normal(size=(2, 3)) * [0.6, 0.5, 0.2] + [0, 0, 1]), random.normal(size=(2, 3))
        poses = solved(rays, points, y, y)
        headings = sorted(float(np.arctan2(r[0, 2], r[0, 0])) for r, _ in poses)
        expected = sorted(scanned(rays, points))
        assert len(headings) == len(expected)
        np.testing.assert_allclose(headings, expected, atol=1e-5)
        counts[len(poses)] += 1
    assert counts.min() > 3


def test_p3p_with_a_third_point_gives_one_of_the_upright_poses() -> None:
    """Second method: PoseLib's P3P knows no gravity, and of its poses of three points one is that of the first two."""
    random = generator("up2p p3p")
    for _ in range(200):
        rays, points, _, _, down_cam, down_world = planted(random, count=3)
        upright = [
            pose for pose in poselib.p3p(list(rays), list(points)) if np.abs(pose.R @ down_world - down_cam).max() < 1e-6
        ]
        assert upright
        poses = solved(rays[:2], points[:2], down_cam, down_world)
        assert all(holds(poses, pose.R, pose.t, tol=1e-4) for pose in upright)


def test_upright_poses_satisfy_their_equations() -> None:
    """Defining equations s u = R x + t with s > 0 and R down_world = down_cam, for unrelated rays and points."""
    random = generator("up2p free")
    counts = np.zeros(MAX_POSES + 1, dtype=int)
    for _ in range(2000):
        rays, points = unit(random.normal(size=(2, 3)) * [0.6, 0.5, 0.2] + [0, 0, 1]), random.normal(size=(2, 3))
        down_cam, down_world = unit(random.normal(size=(2, 3)))
        poses = solved(rays, points, down_cam, down_world)
        counts[len(poses)] += 1
        for rotation, translation in poses:
            in_cam = points @ rotation.T + translation
            size = float(np.abs(in_cam).max())
            assert np.allclose(rotation @ rotation.T, np.eye(3), atol=1e-9) and np.linalg.det(rotation) > 0
            assert np.abs(np.cross(in_cam, rays)).max() < 1e-7 * size and ((in_cam * rays).sum(axis=1) > 0).all()
            np.testing.assert_allclose(rotation @ down_world, down_cam, atol=1e-12)
    assert counts.min() > 100


def test_degenerate_pairs_give_no_pose() -> None:
    """Points above each other leave the heading open, rays at the horizon the distance, equal points both."""
    random, y = generator("up2p degenerate"), np.array([0.0, 1.0, 0.0])
    for _ in range(200):
        rays, point = unit(random.normal([0, 0, 3], size=(2, 3))), random.normal(size=3)
        assert solved(rays, np.array([point, point + random.normal() * y]), y, y) == []
        assert solved(rays, np.array([point, point]), y, y) == []
        level = unit(rays * [1, 0, 1])
        assert solved(level, random.normal(size=(2, 3)), y, y) == []


def test_one_ray_sees_points_behind_each_other_only() -> None:
    """Equal rays: the height sets the distance between the points along the ray, which must be their own."""
    random, y = generator("up2p ray"), np.array([0.0, 1.0, 0.0])
    for _ in range(200):
        ray = unit(random.normal([0, 0, 3], size=3))
        assert solved(np.array([ray, ray]), random.normal(size=(2, 3)), y, y) == []


def test_an_infinite_or_absent_coordinate_gives_no_pose() -> None:
    rays, points, _, _, down_cam, down_world = planted(generator("up2p nan"))
    for bad in (np.nan, np.inf):
        broken = points.copy()
        broken[1, 2] = bad
        assert solved(rays, broken, down_cam, down_world) == []
