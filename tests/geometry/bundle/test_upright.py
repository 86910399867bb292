"""Gravity in the adjustment: derivatives against finite differences, and what the readings hold in place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.spatial.transform import Rotation

from veil.geometry.bundle.adjustment import AdjustOptions, LineProblem, adjust, camera_information, residuals
from veil.geometry.bundle.upright import Upright
from worlds import generator


def readings(name: str) -> tuple[Upright, np.ndarray]:
    """Five cameras whose readings are degrees off, one of them without a reading, and their rotations."""
    random = generator(name)
    rotations = Rotation.random(5, random_state=3).as_matrix()
    down = np.array([0.1, 0.9, 0.2]) / np.linalg.norm([0.1, 0.9, 0.2])
    seen = rotations @ down + 0.05 * random.normal(size=(5, 3))
    seen /= np.linalg.norm(seen, axis=1, keepdims=True)
    seen[4] = np.nan
    return Upright(down_cam=seen, down_world=down, sigma_rad=0.02), rotations


def test_gradient_and_curvature_agree_with_finite_differences() -> None:
    """Central differences of the cost; near zero error the normal matrix is the cost's Hessian."""
    known, rotations = readings("gradient")
    normal, descent = known.linear(rotations, 30.0)
    step = 1e-5
    for camera in range(5):
        for axis in range(3):
            moved = []
            for sign in (1, -1):
                turned = rotations.copy()
                turned[camera] = Rotation.from_rotvec(sign * step * np.eye(3)[axis]).as_matrix() @ rotations[camera]
                moved.append(known.cost(turned, 30.0))
            np.testing.assert_allclose((moved[0] - moved[1]) / (2 * step), -descent[camera, axis], rtol=1e-5, atol=1e-6)
    assert not normal[4].any() and not descent[4].any()
    exact = Upright(down_cam=rotations @ known.down_world, down_world=known.down_world, sigma_rad=0.02)
    matrix, _ = exact.linear(rotations, 30.0)
    small = 1e-3 * np.array([0.3, -0.5, 0.2])
    turned = Rotation.from_rotvec(small).as_matrix() @ rotations
    np.testing.assert_allclose(exact.cost(turned, 30.0), 0.5 * np.einsum("i,cij,j->", small, matrix, small), rtol=1e-2)


def line_problem(name: str, *, points: int) -> LineProblem:
    """Four cameras with a random line through the projection of each point, and small noise."""
    random = generator(name)
    cloud = random.uniform(-1, 1, (points, 3)) + np.array([0.0, 0.0, 5.0])
    rotations = Rotation.from_rotvec(0.1 * random.normal(size=(4, 3))).as_matrix()
    translations = 0.6 * random.normal(size=(4, 3))
    point_of, camera_of = np.repeat(np.arange(points), 4), np.tile(np.arange(4), points)
    seen = np.einsum("kij,kj->ki", rotations[camera_of], cloud[point_of]) + translations[camera_of]
    xy = seen[:, :2] / seen[:, 2:] + 0.3 / 800 * random.normal(size=(len(seen), 2))
    theta = random.uniform(0, np.pi, len(xy))
    normals = np.stack([np.cos(theta), np.sin(theta)], axis=1)
    lines = 800 * np.concatenate([normals, -(normals * xy).sum(axis=1, keepdims=True)], axis=1)
    return LineProblem(
        rotations=rotations, translations=translations, points=cloud, lines=lines, camera_of=camera_of, point_of=point_of
    )


def test_readings_hold_what_few_lines_leave_open() -> None:
    """Planted truth: twenty tracks are three equations more than four cameras need; exact readings keep the tilts."""
    problem = line_problem("few", points=20)
    down = np.array([0.0, 1.0, 0.0])
    known = Upright(down_cam=problem.rotations @ down, down_world=down, sigma_rad=0.01)
    constant = np.array([True, False, False, False])
    tilt = {}
    for name, upright in (("with", known), ("without", None)):
        adjusted = adjust(problem, constant=constant, upright=upright, options=AdjustOptions(max_iterations=100)).problem
        cosine = np.einsum("ci,ci->c", adjusted.rotations @ down, known.down_cam)
        tilt[name] = float(np.degrees(np.arccos(np.clip(cosine, -1, 1))).max())
    assert tilt["with"] < 0.5 and tilt["with"] < 0.5 * tilt["without"]


def test_the_information_of_cameras_is_that_of_dense_normal_equations() -> None:
    """Second method: the whole normal matrix by finite differences, points eliminated by numpy; seven directions are free."""
    problem = line_problem("dense", points=30)
    count, step = len(problem.points), 1e-6
    columns = []
    for camera in range(4):
        for axis in range(6):
            ends = []
            for sign in (1, -1):
                rotations, translations = problem.rotations.copy(), problem.translations.copy()
                if axis < 3:
                    rotations[camera] = Rotation.from_rotvec(sign * step * np.eye(3)[axis]).as_matrix() @ rotations[camera]
                else:
                    translations[camera, axis - 3] += sign * step
                ends.append(residuals(replace(problem, rotations=rotations, translations=translations)))
            columns.append((ends[0] - ends[1]) / (2 * step))
    for index in range(3 * count):
        ends = []
        for sign in (1, -1):
            points = problem.points.copy()
            points[index // 3, index % 3] += sign * step
            ends.append(residuals(replace(problem, points=points)))
        columns.append((ends[0] - ends[1]) / (2 * step))
    jacobian = np.stack(columns, axis=1)
    full = jacobian.T @ jacobian
    cameras, coupling, points = full[:24, :24], full[:24, 24:], full[24:, 24:]
    expected = cameras - coupling @ np.linalg.solve(points, coupling.T)
    information = camera_information(problem, loss_px=float("inf")).reshape(24, 24)
    np.testing.assert_allclose(information, expected, atol=1e-4 * np.abs(cameras).max())
    values = np.linalg.eigvalsh(expected)
    assert (np.abs(values[:7]) < 1e-6 * values[-1]).all() and values[7] > 10 * np.abs(values[:7]).max()
