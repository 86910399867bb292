"""Pose and focal length fitted together: planted ones come back, as far off as the covariance says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from scipy.stats import chi2

from veil.geometry.camera import as_colmap
from veil.geometry.free_calibration import Sights, damped_step
from veil.geometry.rigid import Rigid, center_covariance, pose_difference
from veil.geometry.robust.pose_and_focal import FocalLaw, JointFit, fit_jointly
from worlds import camera, generator, project

FOCAL = 500.0
POSE = Rigid(rotation=Rotation.from_rotvec([0.4, -0.2, 0.3]).as_matrix(), translation=np.array([0.3, -0.2, 0.5]))


def scene_points(random: np.random.Generator, count: int, *, half_width: float = 2.0, relief: float = 1.0) -> np.ndarray:
    """Points of the world in a box before the camera."""
    flat = half_width * (2 * random.random((count, 2)) - 1)
    in_camera = np.hstack([flat, 6.0 + relief * (2 * random.random((count, 1)) - 1)])
    return (in_camera - POSE.translation) @ POSE.rotation


def sights_of(
    points: np.ndarray, log_focal: float, noise: float, random: np.random.Generator, *, as_lines: bool
) -> tuple[Sights, np.ndarray]:
    """Sights of points, or of random lines through them, with independent normal noise, and the points themselves."""
    in_camera = POSE.apply(points)
    xy = math.exp(log_focal) * in_camera[:, :2] / in_camera[:, 2:] + noise * random.normal(size=(len(points), 2))
    return seen_at(points, xy, random, as_lines=as_lines), xy


def seen_at(points: np.ndarray, xy: np.ndarray, random: np.random.Generator, *, as_lines: bool) -> Sights:
    if not as_lines:
        return Sights(points=points, seen=np.hstack([xy, np.ones((len(xy), 1))]), as_lines=False)
    angle = random.random(len(xy)) * math.pi
    normal = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return Sights(points=points, seen=np.hstack([normal, -(normal * xy).sum(axis=1, keepdims=True)]), as_lines=True)


def reference_covariance(sights: Sights, fit: JointFit, law: FocalLaw, least_noise: float) -> np.ndarray:
    """Eq. 8 of localization.md sight by sight, from central differences of the defining residuals."""

    def residuals(step: np.ndarray) -> np.ndarray:
        rotation = Rotation.from_rotvec(step[:3]).as_matrix() @ fit.pose.rotation
        x = sights.points @ rotation.T + fit.pose.translation + step[3:6]
        xy = math.exp(fit.log_focal + step[6]) * x[:, :2] / x[:, 2:]
        if sights.as_lines:
            return np.asarray((xy * sights.seen[:, :2]).sum(axis=1) + sights.seen[:, 2])[:, None]
        return np.asarray(xy - sights.seen[:, :2])

    size = 1e-5
    steps = size * np.eye(7)
    jacobian = np.stack([(residuals(step) - residuals(-step)) / (2 * size) for step in steps], axis=2)
    gaps = residuals(np.zeros(7))
    known = np.diag([0.0] * 6 + [1 / law.deviation**2])
    median = math.sqrt(float(np.median((gaps**2).sum(axis=1)))) / (0.67449 if sights.as_lines else 1.17741)
    shares = (gaps**2).sum(axis=1) / (2.385 * max(median, 0.1 * least_noise)) ** 2
    weights = 1 / (1 + shares)
    relative = weights / weights.mean()
    normal = sum(share * one.T @ one for share, one in zip(relative, jacobian, strict=True)) / fit.noise**2 + known
    inverse = np.linalg.inv(normal)
    slopes = (1 - shares) / (1 + shares) ** 2 if sights.as_lines else 1 / (1 + shares) ** 2
    spread, freed = known.copy(), gaps.size / (gaps.size - 7)
    for one, gap, weight, share in zip(jacobian, gaps, weights, relative, strict=True):
        leverage = share * np.trace(one @ inverse @ one.T) / (fit.noise**2 * len(gap))
        pull = weight * one.T @ gap / (slopes.mean() * (1 - leverage))
        spread += freed * np.outer(pull, pull) / fit.noise**4
    return np.asarray(inverse @ spread @ inverse)


@pytest.mark.parametrize("as_lines", [False, True], ids=["points", "lines"])
@pytest.mark.parametrize("deviation", [0.01, 0.3])
def test_the_covariance_is_that_of_its_equation(as_lines: bool, deviation: float) -> None:
    """Oracle: derivatives by differences, of a turn about the camera and a shift, where the fit turns about the points."""
    random = generator(f"joint covariance {as_lines} {deviation}")
    sights, _ = sights_of(scene_points(random, 60), 0.02, 1 / FOCAL, random, as_lines=as_lines)
    law, least = FocalLaw(mean=0.0, deviation=deviation), 0.5 / FOCAL
    fit = fit_jointly(sights, POSE, law, least_noise=least)
    assert fit.noise > least
    np.testing.assert_allclose(fit.covariance, reference_covariance(sights, fit, law, least), rtol=1e-3, atol=1e-12)


@pytest.mark.parametrize("as_lines", [False, True], ids=["points", "lines"])
def test_near_points_that_are_seen_less_exactly_are_told_so(as_lines: bool) -> None:
    """Monte Carlo: noise in pixels is inverse to depth, as of large features, and near points decide the center.

    Broken twin: a covariance of one noise for all.
    """
    random, law, draws = generator(f"near and noisy {as_lines}"), FocalLaw(mean=0.0, deviation=0.01), 300
    inside, of_one_noise = 0, 0
    for _ in range(draws):
        points = scene_points(random, 100, relief=2.5)
        noise = 6.0 / POSE.apply(points)[:, 2] / FOCAL
        exact, xy = sights_of(points, 0.0, 0.0, random, as_lines=False)
        seen = xy + noise[:, None] * random.normal(size=xy.shape)
        sights = seen_at(points, seen, random, as_lines=as_lines)
        fit = fit_jointly(sights, POSE, law, least_noise=0.1 / FOCAL)
        off = fit.pose.center - POSE.center
        inside += is_inside(off, center_covariance(fit.pose, fit.pose_covariance))
        one = exact if not as_lines else seen_at(points, xy, random, as_lines=True)
        same = fit_jointly(one, POSE, law, least_noise=fit.noise)
        of_one_noise += is_inside(off, center_covariance(fit.pose, same.pose_covariance))
    assert 0.86 * draws <= inside <= 0.98 * draws
    assert of_one_noise < inside - 0.04 * draws


@pytest.mark.parametrize("as_lines", [False, True], ids=["points", "lines"])
@pytest.mark.parametrize("deviation", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("accidents", [0, 8])
def test_errors_are_as_large_as_the_covariance_says(as_lines: bool, deviation: float, accidents: int) -> None:
    """Monte Carlo: 200 planted focal lengths of the law, and the share of centers in their region of 95 %.

    Broken twin: the covariance of a focal length that is taken to be right, where its deviation is large.
    """
    random = generator(f"coverage {as_lines} {deviation} {accidents}")
    law, draws = FocalLaw(mean=0.0, deviation=deviation), 200
    standardized, inside, held = [], 0, 0
    for _ in range(draws):
        log_focal = float(deviation * random.normal())
        points = scene_points(random, 80)
        sights, xy = sights_of(points, log_focal, 1 / FOCAL, random, as_lines=as_lines)
        xy[:accidents] += random.uniform(-6, 6, (accidents, 2)) / FOCAL
        sights = seen_at(points, xy, random, as_lines=as_lines)
        fit = fit_jointly(sights, POSE, law, least_noise=0.1 / FOCAL)
        error = np.append(pose_difference(POSE, fit.pose), fit.log_focal - log_focal)
        standardized.append(error @ np.linalg.solve(fit.covariance, error))
        off = fit.pose.center - POSE.center
        inside += is_inside(off, center_covariance(fit.pose, fit.pose_covariance))
        known = np.linalg.inv(np.linalg.inv(fit.covariance)[:6, :6])
        held += is_inside(off, center_covariance(fit.pose, known))
    # The mean of 200 draws of chi-square with seven degrees of freedom has a deviation of 0.26; accidents are not normal.
    assert 6.2 < np.mean(standardized) < (9.0 if accidents else 8.0)
    assert inside >= (0.89 if accidents else 0.91) * draws
    if deviation == 0.3:
        assert held < 0.9 * draws


def is_inside(off: np.ndarray, covariance: np.ndarray) -> bool:
    return bool(off @ np.linalg.solve(covariance, off) <= chi2.ppf(0.95, 3))


def test_colmap_tells_the_same_of_a_known_focal_length() -> None:
    """Oracle: the covariance of pycolmap's refinement, which supposes a noise of one pixel and a right focal length."""
    import pycolmap

    random, lens = generator("as colmap"), camera()
    points = scene_points(random, 80)
    sights, _ = sights_of(points, 0.0, 0.0, random, as_lines=False)
    start = pycolmap.Rigid3d(np.hstack([POSE.rotation, POSE.translation[:, None]]))
    xy, inlier = project(POSE, points, lens).astype(np.float64), np.ones(len(points), dtype=bool)
    refined = pycolmap.refine_absolute_pose(start, xy, points, inlier, as_colmap(lens), return_covariance=True)
    assert refined is not None
    # Ceres turns quaternions by half angles, so that its rotations count half.
    unit = np.array([2.0, 2.0, 2.0, 1.0, 1.0, 1.0])
    expected = np.asarray(refined["covariance"]) * np.outer(unit, unit)
    fit = fit_jointly(sights, POSE, FocalLaw(mean=0.0, deviation=1e-9), least_noise=1 / FOCAL)
    np.testing.assert_allclose(fit.pose_covariance, expected, rtol=1e-3, atol=1e-9)


def test_what_leaves_a_turn_free_is_infinitely_uncertain() -> None:
    """A turn about the line of the points changes nothing; seven numbers are not known from four."""
    along = (np.array([[x, 0.0, 6.0] for x in np.linspace(-1, 1, 20)]) - POSE.translation) @ POSE.rotation
    law, random = FocalLaw(mean=0.0, deviation=0.01), generator("free turn")
    sights, _ = sights_of(along, 0.0, 0.0, random, as_lines=False)
    assert fit_jointly(sights, POSE, law, least_noise=1e-3).turn_deviation == math.inf
    few, _ = sights_of(scene_points(random, 2), 0.0, 0.0, random, as_lines=False)
    assert fit_jointly(few, POSE, law, least_noise=1e-3).turn_deviation == math.inf


@pytest.mark.parametrize("as_lines", [False, True], ids=["points", "lines"])
@pytest.mark.parametrize("planted", [-0.2, 0.0, 0.2])
def test_a_planted_focal_length_comes_back_where_the_sights_tell_it(as_lines: bool, planted: float) -> None:
    """Planted truth, four deviations off: exact sights of a place with depth outweigh the law, a flat facade leaves it."""
    random, law = generator(f"planted focal {as_lines} {planted}"), FocalLaw(mean=0.0, deviation=0.05)
    sights, _ = sights_of(scene_points(random, 80), planted, 1e-5 / FOCAL, random, as_lines=as_lines)
    fit = fit_jointly(sights, POSE, law, least_noise=1e-3 / FOCAL)
    assert fit.log_focal == pytest.approx(planted, abs=1e-4)
    assert np.linalg.norm(fit.pose.center - POSE.center) < 1e-3
    facing = np.hstack([generator("facade").uniform(-2, 2, (80, 2)), np.full((80, 1), 6.0)])
    flat, _ = sights_of((facing - POSE.translation) @ POSE.rotation, planted, 1 / FOCAL, random, as_lines=as_lines)
    assert fit_jointly(flat, POSE, law, least_noise=0.5 / FOCAL).focal_deviation == pytest.approx(0.05, rel=0.02)


@pytest.mark.parametrize("away", [1.0, 1e3, 1e6, 1e9])
def test_lines_that_meet_in_one_point_leave_a_fit_without_bounds_and_no_error(away: float) -> None:
    """A camera so far away that it sees all points there fits such lines, and its equations have no single solution."""
    for seed in range(10):
        random = generator(f"pencil {seed}")
        points, meeting = scene_points(random, 12), np.array([0.1, 2.0])
        angle = random.random(12) * math.pi
        normal = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        seen = np.hstack([normal, -(normal @ meeting)[:, None]])
        far = Rigid(rotation=POSE.rotation, translation=POSE.translation + np.array([0.0, 0.0, away]))
        fit = fit_jointly(
            Sights(points=points, seen=seen, as_lines=True), far, FocalLaw(mean=0.0, deviation=0.05), least_noise=1e-3
        )
        assert np.isfinite(fit.pose.translation).all() and np.isfinite(fit.pose.rotation).all() and not fit.is_bound


def test_a_step_without_a_solution_is_none() -> None:
    """By hand: no equations, and two of one unknown each."""
    assert np.array_equal(damped_step(np.zeros((2, 2)), np.ones(2), 0.0), np.zeros(2))
    assert damped_step(np.diag([2.0, 4.0]), np.array([1.0, 1.0]), 0.0) == pytest.approx([-0.5, -0.25])
