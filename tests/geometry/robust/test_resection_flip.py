"""Nearly flat points seen from afar: two poses, mirror images of each other about the line of sight, nearly fit."""

from __future__ import annotations

import numpy as np
import pytest

from veil.geometry.rigid import Rigid, rotation_angle_deg
from veil.geometry.robust.ransac import RansacOptions, ransac
from veil.geometry.robust.resection_lines import LineResection, mirrored, relief, resect_from_lines
from worlds import generator

DISTANCE = 80.0
FOCAL_PX = 100.0 * DISTANCE


def tilted(direction: float, degrees: float, target: np.ndarray) -> Rigid:
    """The pose that sees the plane z = 0 head on but for a tilt about an axis of the image, with its origin at `target`."""
    x, y, _ = axis = np.array([np.cos(direction), np.sin(direction), 0.0])
    cross = np.array([[0, 0, y], [0, 0, -x], [-y, x, 0]])
    angle = np.deg2rad(degrees)
    rotation = np.cos(angle) * np.eye(3) + np.sin(angle) * cross + (1 - np.cos(angle)) * np.outer(axis, axis)
    return Rigid(rotation=rotation, translation=target)


def flat_points(random: np.random.Generator, count: int, *, thickness: float) -> np.ndarray:
    return random.uniform(-1, 1, (count, 3)) * [1.5, 1.0, thickness]


def planted(name: str, *, wrong: float = 0.2) -> tuple[LineResection, Rigid]:
    """Lines of 150 points three centimeters about a plane of three meters, 80 away; half a pixel of noise, a fifth wrong."""
    random = generator(name)
    points = flat_points(random, 150, thickness=0.03)
    pose = tilted(random.uniform(0, 2 * np.pi), 15.0, np.array([0, 0, DISTANCE]))
    seen = points @ pose.rotation.T + pose.translation
    xy = seen[:, :2] / seen[:, 2:] + random.normal(size=(150, 2)) * 0.5 / FOCAL_PX
    bad = random.random(150) < wrong
    xy[bad] = xy[bad][random.permutation(int(bad.sum()))]
    theta = random.uniform(0, np.pi, 150)
    aligned = random.random(150) < 0.5
    along = np.cross(np.hstack([xy, np.ones((150, 1))]), pose.rotation @ [0, 1.0, 0])[:, :2]
    normals = np.where(aligned[:, None], along, np.stack([np.cos(theta), np.sin(theta)], axis=1))
    normals /= np.linalg.norm(normals, axis=1, keepdims=True)
    problem = LineResection(
        lines=np.hstack([normals, -(normals * xy).sum(axis=1, keepdims=True)]),
        points=points,
        aligned=aligned,
        focal_px=FOCAL_PX,
        half_extent=np.array([0.1, 0.08]),
    )
    return problem, pose


@pytest.mark.slow
def test_the_right_one_of_two_minima_is_found() -> None:
    """Planted truth; the broken twin, the robust loop alone, ends in the mirror image (30 degrees off) several times."""
    options = RansacOptions(max_error=6.0, min_iterations=20, max_iterations=20)
    ours: list[float] = []
    plain: list[float] = []
    for index in range(30):
        problem, truth = planted(f"flip {index}")
        for errors, fit in ((ours, resect_from_lines(problem, options)), (plain, ransac(problem, 6, options))):
            assert fit is not None
            errors.append(rotation_angle_deg(fit.model.rotation @ truth.rotation.T))
    assert sum(error < 2 for error in ours) >= 29
    assert sum(20 < error < 45 for error in plain) >= 3


@pytest.mark.parametrize("index", range(5))
def test_the_mirror_image_is_a_minimum_of_its_own(index: int) -> None:
    """Without it there would be nothing to flip: refined from the mirror image of the truth, the pose stays there."""
    problem, truth = planted(f"minimum {index}", wrong=0.0)
    start = mirrored(truth, problem.points)
    assert start is not None
    other = problem.refine(start, problem.residuals(start) < 12)
    assert other is not None
    assert 20 < rotation_angle_deg(other.rotation @ truth.rotation.T) < 45
    assert np.median(problem.residuals(other)) < 2


@pytest.mark.parametrize("index", range(10))
def test_the_mirror_image_of_the_mirror_image_is_the_pose(index: int) -> None:
    """Inverse pair, also off the optical axis; and the center of the points stays where it is."""
    random = generator(f"involution {index}")
    points = flat_points(random, 40, thickness=0.02) + random.normal(size=3)
    pose = tilted(random.uniform(0, 2 * np.pi), random.uniform(5, 40), np.array([*random.uniform(-2, 2, 2), 8.0]))
    other = mirrored(pose, points)
    assert other is not None
    again = mirrored(other, points)
    assert again is not None
    np.testing.assert_allclose(again.rotation, pose.rotation, atol=1e-9)
    np.testing.assert_allclose(again.translation, pose.translation, atol=1e-9)
    center = points.mean(axis=0)
    np.testing.assert_allclose(
        other.rotation @ center + other.translation, pose.rotation @ center + pose.translation, atol=1e-12
    )
    np.testing.assert_allclose(other.rotation @ other.rotation.T, np.eye(3), atol=1e-12)
    assert rotation_angle_deg(other.rotation @ pose.rotation.T) > 5


@pytest.mark.parametrize("index", range(5))
def test_projections_stay_to_first_order(index: int) -> None:
    """Defining property: on ever smaller planes the projections differ by a share that vanishes with the size.

    Broken twin: the plane tilted back by another angle differs by a share that stays.
    """
    random = generator(f"order {index}")
    flat = flat_points(random, 40, thickness=0.0)
    pose = tilted(random.uniform(0, 2 * np.pi), 25.0, np.array([1.5, -1.0, 8.0]))
    shares: dict[str, list[float]] = {"mirrored": [], "turned": []}
    for size in (0.1, 0.01, 0.001):
        points = flat * size
        other = mirrored(pose, points)
        assert other is not None
        turned = Rigid(rotation=tilted(0.3, 10.0, pose.translation).rotation @ pose.rotation, translation=pose.translation)
        here = projected(pose, points)
        spread = np.abs(here - here.mean(axis=0)).max()
        for name, trial in (("mirrored", other), ("turned", turned)):
            shares[name].append(float(np.abs(projected(trial, points) - here).max() / spread))
    assert shares["mirrored"][0] < 0.05
    for coarse, fine in zip(shares["mirrored"][:-1], shares["mirrored"][1:], strict=True):
        assert fine == pytest.approx(coarse / 10, rel=0.2)
    assert min(shares["turned"]) > 0.02


def projected(pose: Rigid, points: np.ndarray) -> np.ndarray:
    seen = points @ pose.rotation.T + pose.translation
    return seen[:, :2] / seen[:, 2:]


def test_relief_is_the_spread_about_the_plane_in_depths() -> None:
    """Golden: points alternately 0.3 before and behind a tilted plane at a median depth of 6 have a relief of 0.05."""
    grid = np.stack(np.meshgrid(np.arange(-3.0, 4), np.arange(-3.0, 4)), axis=-1).reshape(-1, 2)
    height = 0.3 * np.where(np.arange(len(grid)) % 2, 1, -1)[:, None]
    pose = tilted(0.0, 0.0, np.array([0, 0, 6.3]))
    assert relief(pose, np.hstack([grid, height])) == pytest.approx(0.05, rel=0.01)
    assert relief(pose, np.hstack([grid, 0 * height])) == pytest.approx(0, abs=1e-12)


def test_too_few_points_have_no_mirror_image() -> None:
    pose = tilted(0.0, 10.0, np.array([0, 0, 5.0]))
    assert mirrored(pose, flat_points(generator("few"), 6, thickness=0.0)) is None
