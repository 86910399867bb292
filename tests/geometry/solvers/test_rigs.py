"""Poses of rigs: against planted truth, slow scans, PoseLib's solvers and the solvers of one camera."""

from __future__ import annotations

import numpy as np
import poselib
import pytest
from scipy.optimize import least_squares
from scipy.spatial.transform import Rotation

from veil.geometry.rigid import Rigid
from veil.geometry.solvers.gp3p import rig_poses_from_three_rays
from veil.geometry.solvers.gp4ps import scaled_rig_poses_from_four_rays, tells_no_scale
from veil.geometry.solvers.gp6lp import rig_poses_from_six_planes
from veil.geometry.solvers.p6lp import pose_from_six_lines
from veil.geometry.solvers.up2p import MAX_POSES, upright_rig_poses
from worlds import generator, unit


def planted(random: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, Rigid]:
    """(centers, rays, points, rig_from_world): rays of a rig that see points at any scale."""
    size = 10.0 ** random.uniform(-2, 2)
    pose = Rigid(rotation=Rotation.from_rotvec(random.normal(size=3)).as_matrix(), translation=size * random.normal(size=3))
    points = 3 * size * random.normal(size=(count, 3))
    centers = 0.5 * size * random.normal(size=(count, 3))
    return centers, unit(pose.apply(points) - centers), points, pose


def holds(poses: list[Rigid], pose: Rigid, tol: float = 1e-5) -> bool:
    scale = max(float(np.abs(pose.translation).max()), 1e-3)
    return any(
        np.abs(one.rotation - pose.rotation).max() < tol and np.abs(one.translation - pose.translation).max() < tol * scale
        for one in poses
    )


def distances_by_scan(centers: np.ndarray, rays: np.ndarray, points: np.ndarray) -> list[np.ndarray]:
    """Slow reference of gP3P: for a scan of s_1, both s_2 and s_3 by their quadratics, and where the third equation holds."""
    wanted = [float(np.linalg.norm(points[i] - points[j])) for i, j in ((0, 1), (0, 2), (1, 2))]

    def along(start: np.ndarray, other: int, length: float) -> list[float]:
        """Distances of the ray `other` at which it is `length` from a place."""
        apart = centers[other] - start
        half, rest = float(apart @ rays[other]), float(apart @ apart) - length**2
        inside = half**2 - rest
        return [] if inside < 0 else [-half - np.sqrt(inside), -half + np.sqrt(inside)]

    def misfit(s: float, second: int, third: int) -> tuple[float, np.ndarray] | None:
        start = centers[0] + s * rays[0]
        twos, threes = along(start, 1, wanted[0]), along(start, 2, wanted[1])
        if not twos or not threes:
            return None
        two, three = twos[second], threes[third]
        gap = np.linalg.norm(centers[1] + two * rays[1] - centers[2] - three * rays[2]) - wanted[2]
        return float(gap), np.array([s, two, three])

    most = 4 * float(np.abs(points).max() + np.abs(centers).max())
    solutions: list[np.ndarray] = []
    grid = np.linspace(1e-6, most, 4001)
    for second in (0, 1):
        for third in (0, 1):
            values = [misfit(s, second, third) for s in grid]
            for k in range(len(grid) - 1):
                left, right = values[k], values[k + 1]
                if left is None or right is None or left[0] * right[0] > 0:
                    continue
                low, high = grid[k], grid[k + 1]
                for _ in range(60):
                    middle = (low + high) / 2
                    value = misfit(middle, second, third)
                    assert value is not None
                    low, high = (middle, high) if value[0] * left[0] > 0 else (low, middle)
                end = misfit(low, second, third)
                if end is not None and (end[1] > 0).all():
                    solutions.append(end[1])
    return solutions


def test_three_rays_give_the_planted_pose() -> None:
    random = generator("gp3p")
    counts = np.zeros(9, dtype=int)
    for _ in range(300):
        centers, rays, points, pose = planted(random, 3)
        poses = rig_poses_from_three_rays(centers, rays, points)
        assert holds(poses, pose)
        counts[len(poses)] += 1
    assert counts[1:5].min() > 0
    # The broken twin: a ray that begins elsewhere.
    moved = centers + np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.1, 0.0, 0.0]]) * np.abs(points).max()
    assert not holds(rig_poses_from_three_rays(moved, rays, points), pose, tol=1e-3)


@pytest.mark.slow
def test_a_scan_over_one_distance_finds_the_same_poses() -> None:
    """Slow reference: crossings of a dense scan. It may miss two solutions between neighboring places, and never adds one."""
    random, same = generator("gp3p scan"), 0
    for _ in range(30):
        centers, rays, points, _ = planted(random, 3)
        size = float(np.abs(points).max())
        centers, points = centers / size, points / size
        poses = rig_poses_from_three_rays(centers, rays, points)
        own = sorted(float(np.linalg.norm(pose.apply(points[:1])[0] - centers[0])) for pose in poses)
        scanned = sorted(float(s[0]) for s in distances_by_scan(centers, rays, points))
        assert all(min(abs(s - one) for one in own) < 1e-5 for s in scanned)
        same += len(own) == len(scanned)
    assert same >= 27


def test_poselib_finds_the_same_poses_of_three_rays() -> None:
    random = generator("gp3p poselib")
    for _ in range(100):
        centers, rays, points, _ = planted(random, 3)
        poses = rig_poses_from_three_rays(centers, rays, points)
        for other in poselib.gp3p(list(centers), list(rays), list(points)):
            rig = Rigid(rotation=np.asarray(other.R), translation=np.asarray(other.t).ravel())
            if (((rig.apply(points) - centers) * rays).sum(axis=1) > 0).all():
                assert holds(poses, rig, tol=1e-3)


def test_rays_of_one_center_are_those_of_a_camera() -> None:
    """A rig that only turns is one camera: P3P's poses."""
    random = generator("gp3p one center")
    for _ in range(100):
        centers, _, points, pose = planted(random, 3)
        centers[:] = centers[0]
        rays = unit(pose.apply(points) - centers)
        if abs(np.linalg.det(rays)) < 0.05:
            continue
        poses = rig_poses_from_three_rays(centers, rays, points)
        assert holds(poses, pose, tol=1e-4)
        cameras = [
            Rigid(rotation=np.asarray(one.R), translation=np.asarray(one.t).ravel() + centers[0])
            for one in poselib.p3p(list(rays), list(points))
        ]
        assert all(holds(cameras, one, tol=1e-3) for one in poses)


def test_degenerate_rays_give_no_pose() -> None:
    random = generator("gp3p degenerate")
    centers, rays, points, _ = planted(random, 3)
    on_a_line = points[0] + np.array([[0.0], [1.0], [2.5]]) * (points[1] - points[0])
    assert rig_poses_from_three_rays(centers, rays, on_a_line) == []
    assert rig_poses_from_three_rays(centers, rays, np.repeat(points[:1], 3, axis=0)) == []
    for bad in (np.nan, np.inf):
        broken = points.copy()
        broken[1, 2] = bad
        assert rig_poses_from_three_rays(centers, rays, broken) == []


def upright(random: np.random.Generator) -> tuple[tuple[np.ndarray, ...], Rigid]:
    centers, rays, points, pose = planted(random, 2)
    down_world = unit(random.normal(size=3))
    return (centers, rays, points, pose.rotation @ down_world, down_world), pose


def solved_upright(*rig: np.ndarray) -> list[Rigid]:
    rotations, translations = np.full((MAX_POSES, 3, 3), np.nan), np.full((MAX_POSES, 3), np.nan)
    count = upright_rig_poses(*rig, rotations, translations)
    return [Rigid(rotation=rotations[k].copy(), translation=translations[k].copy()) for k in range(count)]


def test_two_upright_rays_of_a_rig_give_the_planted_pose() -> None:
    random = generator("gp2p")
    for _ in range(300):
        rig, pose = upright(random)
        poses = solved_upright(*rig)
        assert holds(poses, pose)
        centers, rays, points, down_rig, down_world = rig
        for one in poses:
            along = one.apply(points) - centers
            assert np.abs(np.cross(along, rays)).max() < 1e-6 * np.abs(along).max() and ((along * rays).sum(axis=1) > 0).all()
            np.testing.assert_allclose(one.rotation @ down_world, down_rig, atol=1e-10)
    assert not holds(solved_upright(centers * 1.2, rays, points, down_rig, down_world), pose, tol=1e-3)


def test_poselib_finds_the_same_upright_poses_of_a_rig() -> None:
    """Second method: PoseLib's solver takes y as gravity in rig and world."""
    random, y = generator("gp2p poselib"), np.array([0.0, 1.0, 0.0])
    several = 0
    for _ in range(200):
        centers, _, points, _ = planted(random, 2)
        turned = Rotation.from_rotvec(random.uniform(-3, 3) * y).as_matrix()
        pose = Rigid(rotation=turned, translation=random.normal(size=3) * np.abs(points).max())
        rays = unit(pose.apply(points) - centers)
        poses = solved_upright(centers, rays, points, y, y)
        others = [
            Rigid(rotation=np.asarray(one.R), translation=np.asarray(one.t).ravel())
            for one in poselib.ugp2p(list(centers), list(rays), list(points))
        ]
        others = [one for one in others if (((one.apply(points) - centers) * rays).sum(axis=1) > 0).all()]
        assert all(holds(others, one, tol=1e-3) for one in poses) and all(holds(poses, one, tol=1e-3) for one in others)
        several += len(poses) == 2
    assert several > 20


def planes_through(random: np.random.Generator, points: np.ndarray, pose: Rigid) -> tuple[np.ndarray, np.ndarray]:
    normals = unit(random.normal(size=(len(points), 3)))
    return normals, -(normals * pose.apply(points)).sum(axis=1)


def test_six_planes_give_the_planted_pose() -> None:
    random = generator("gp6lp")
    counts = np.zeros(9, dtype=int)
    for _ in range(200):
        _, _, points, pose = planted(random, 6)
        normals, offsets = planes_through(random, points, pose)
        poses = rig_poses_from_six_planes(normals, offsets, points)
        assert holds(poses, pose, tol=1e-4)
        for one in poses:
            assert np.abs((normals * one.apply(points)).sum(axis=1) + offsets).max() < 1e-6 * np.abs(points).max()
        counts[len(poses)] += 1
    assert counts[2] > 20 and counts[4] > 20
    assert not holds(rig_poses_from_six_planes(normals, 1.1 * offsets, points), pose, tol=1e-3)


@pytest.mark.slow
def test_many_starts_of_least_squares_find_the_same_poses_of_six_planes() -> None:
    """Slow reference: the six equations minimized from 200 rotations; what fits exactly is a solution of ours."""
    random = generator("gp6lp starts")
    for _ in range(3):
        _, _, points, pose = planted(random, 6)
        size = float(np.abs(points).max())
        points, pose = points / size, Rigid(rotation=pose.rotation, translation=pose.translation / size)
        normals, offsets = planes_through(random, points, pose)
        poses, exact = rig_poses_from_six_planes(normals, offsets, points), 0

        def gaps(state: np.ndarray, normals=normals, offsets=offsets, points=points) -> np.ndarray:
            turned = points @ Rotation.from_rotvec(state[:3]).as_matrix().T + state[3:]
            return np.asarray((normals * turned).sum(axis=1) + offsets)

        for _ in range(200):
            start = np.concatenate([Rotation.random(random_state=random).as_rotvec(), random.normal(size=3)])
            best = least_squares(gaps, start, xtol=1e-14, ftol=1e-14, gtol=1e-14)
            if np.abs(best.fun).max() < 1e-10:
                exact += 1
                one = Rigid(rotation=Rotation.from_rotvec(best.x[:3]).as_matrix(), translation=best.x[3:])
                assert holds(poses, one, tol=1e-3)
        assert exact > 20


def test_six_planes_through_one_center_are_the_lines_of_a_camera() -> None:
    random = generator("gp6lp p6lp")
    for _ in range(50):
        _, _, points, pose = planted(random, 6)
        lift = np.array([0.0, 0.0, 4 * np.abs(points).max()])
        pose = Rigid(rotation=pose.rotation, translation=pose.translation + lift)
        seen = pose.apply(points)
        lines = unit(np.cross(seen, random.normal(size=(6, 3))))
        poses = rig_poses_from_six_planes(lines, np.zeros(6), points)
        assert holds(poses, pose, tol=1e-3)
        assert all(holds(poses, other, tol=1e-2) for other in pose_from_six_lines(lines, points))


def test_planes_that_hold_one_direction_give_no_pose() -> None:
    """Lines along gravity in all pictures leave the height open."""
    random = generator("gp6lp open")
    _, _, points, pose = planted(random, 6)
    normals, _ = planes_through(random, points, pose)
    normals = unit(normals * [1.0, 0.0, 1.0])
    offsets = -(normals * pose.apply(points)).sum(axis=1)
    assert rig_poses_from_six_planes(normals, offsets, points) == []
    assert rig_poses_from_six_planes(normals, offsets, np.repeat(points[:1], 6, axis=0)) == []


def test_four_rays_give_pose_and_scale() -> None:
    random = generator("gp4ps")
    for _ in range(100):
        centers, rays, points, pose = planted(random, 4)
        scale = 10.0 ** random.uniform(-1, 1)
        solved = scaled_rig_poses_from_four_rays(centers / scale, rays, points)
        assert any(holds([rig], pose, tol=1e-3) and abs(k / scale - 1) < 1e-3 for rig, k in solved)


def test_a_turn_about_one_place_tells_no_scale() -> None:
    random = generator("gp4ps turn")
    centers, _, points, pose = planted(random, 4)
    assert not tells_no_scale(centers, float(np.abs(points).max()))
    centers[:] = centers[0]
    assert tells_no_scale(centers, float(np.abs(points).max()))
    assert scaled_rig_poses_from_four_rays(centers, unit(pose.apply(points) - centers), points) == []
