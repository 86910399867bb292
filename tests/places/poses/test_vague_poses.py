"""Poses that are beyond chance but uncertain by degrees are refused, and the reason says what helps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from veil.errors import RangeError
from veil.geometry.camera import UNDISCLOSED, Camera, as_colmap
from veil.geometry.free_calibration import FreeCamera, Sights
from veil.geometry.rigid import Rigid, covariance_from_colmap
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import localize_matches
from veil.places.poses.options import LocalizeOptions, WordOptions
from worlds import generator, project

FOCAL = 600.0
CAMERA = Camera(model="PINHOLE", width_px=640, height_px=480, params=(FOCAL, FOCAL, 320.0, 240.0), focal=UNDISCLOSED)
POSE = Rigid(rotation=np.eye(3), translation=np.zeros(3))
ROTATION_TOL = 0.08  # of an estimated standard deviation: 400 draws know it to 3.5 %


def scene_points(count: int, *, half_width: float = 2.0, relief: float = 1.0) -> np.ndarray:
    random = generator(f"vague {count} {half_width}")
    flat = half_width * (2 * random.random((count, 2)) - 1)
    return np.hstack([flat, 6.0 + relief * (2 * random.random((count, 1)) - 1)])


def observed_from(pose: Rigid, points: np.ndarray, noise: float, random: np.random.Generator, *, as_lines: bool) -> Sights:
    """Observations in the normalized plane with independent normal noise, of points or of random lines through them."""
    in_camera = points @ pose.rotation.T + pose.translation
    xy = in_camera[:, :2] / in_camera[:, 2:] + noise * random.normal(size=(len(points), 2))
    if not as_lines:
        return Sights(points=points, seen=np.hstack([xy, np.ones((len(xy), 1))]), as_lines=False)
    angle = random.random(len(xy)) * math.pi
    normal = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return Sights(points=points, seen=np.hstack([normal, -(normal * xy).sum(axis=1, keepdims=True)]), as_lines=True)


def turn_of(rotation: np.ndarray) -> np.ndarray:
    """The rotation vector of a small turn."""
    return np.array([rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]]) / 2


@pytest.mark.slow
@pytest.mark.parametrize("as_lines", [False, True])
@pytest.mark.parametrize("free_focal", [False, True])
def test_the_deviation_is_that_of_refitted_poses(as_lines: bool, free_focal: bool) -> None:
    """Oracle: the spread of 400 poses fitted to new noise (Monte Carlo), along the axis that spreads most."""
    points, noise = scene_points(60), 1.5 / FOCAL
    random = generator(f"refits {as_lines} {free_focal}")
    reach = np.array([1.0 if free_focal else 0.0, 0.0, 0.0, 0.0, 0.0])
    turns, deviations = [], []
    for _ in range(400):
        observed = observed_from(POSE, points, noise, random, as_lines=as_lines)
        fitted = observed.fitted(FreeCamera(pose=POSE), reach)
        turns.append(turn_of(fitted.pose.rotation))
        deviations.append(observed.turn_deviation(fitted, least_noise=0.0, free_focal=free_focal))
    spread = math.sqrt(np.linalg.eigvalsh(np.cov(np.array(turns).T))[-1])
    # The fit is robust: its poses spread slightly more than those of least squares.
    assert np.mean(deviations) == pytest.approx(spread, rel=2 * ROTATION_TOL)


def test_colmap_tells_the_same_deviation() -> None:
    """Oracle: the covariance of pycolmap's refinement, which supposes a noise of one pixel."""
    import pycolmap

    points = scene_points(80)
    observed = observed_from(POSE, points, 0.0, generator("no noise"), as_lines=False)
    start = pycolmap.Rigid3d(np.hstack([POSE.rotation, POSE.translation[:, None]]))
    xy = project(POSE, points, CAMERA).astype(np.float64)
    inlier = np.ones(len(points), dtype=bool)
    refined = pycolmap.refine_absolute_pose(start, xy, points, inlier, as_colmap(CAMERA), return_covariance=True)
    covariance = covariance_from_colmap(refined)
    assert covariance is not None
    turn = covariance[:3, :3]
    ours = observed.turn_deviation(FreeCamera(pose=POSE), least_noise=1 / FOCAL)
    assert ours == pytest.approx(math.sqrt(np.linalg.eigvalsh(turn)[-1]), rel=1e-3)


def test_what_leaves_a_turn_free_is_infinitely_uncertain() -> None:
    along = np.array([[x, 0.0, 6.0] for x in np.linspace(-1, 1, 20)])  # a turn about these points' line changes nothing
    observed = observed_from(POSE, along, 0.0, generator("line"), as_lines=False)
    assert observed.turn_deviation(FreeCamera(pose=POSE), least_noise=1e-3) == math.inf
    assert observed.take(np.arange(2)).turn_deviation(FreeCamera(pose=POSE), least_noise=1e-3) == math.inf


def asked(points: np.ndarray, noise_px: float, accidents: int, *, max_turn_deg: float = 0.6) -> Localization | NoPose:
    """Result for right matches of `points`, which are trusted most, and accidents all over the picture and the scene."""
    random = generator(f"asked {len(points)} {noise_px} {accidents}")
    right = project(POSE, points, CAMERA) + noise_px * random.normal(size=(len(points), 2))
    wrong = random.random((accidents, 2)) * [640, 480]
    keypoints = np.concatenate([right, wrong]).astype(np.float32)
    rows = np.arange(len(keypoints))
    scene = np.concatenate([points, scene_points(accidents)])
    return localize_matches(CAMERA, keypoints, rows, rows, scene, options=LocalizeOptions(max_turn_deg=max_turn_deg))


def test_an_uncertain_pose_is_refused_with_what_helps() -> None:
    """Forty right matches in a small flat spot are far beyond chance, but a pixel of noise turns their pose by degrees."""
    spot = scene_points(40, half_width=0.35, relief=0.02)
    answer = asked(spot, 2.0, 20)
    assert isinstance(answer, NoPose)
    assert answer.log10_nfa < -12
    assert "uncertain by degrees" in answer.reason and "show more of the place" in answer.reason
    anyway = asked(spot, 2.0, 20, max_turn_deg=math.inf)
    assert isinstance(anyway, Localization) and anyway.turn_deviation_deg > 0.6
    turn_deg = math.degrees(np.linalg.norm(turn_of(anyway.cam_from_world.rotation)))
    assert turn_deg > 1  # the refusal was right


def test_a_well_spread_query_is_answered() -> None:
    answer = asked(scene_points(40), 2.0, 20)
    assert isinstance(answer, Localization)
    assert 0.05 < answer.turn_deviation_deg < 0.6
    assert math.degrees(np.linalg.norm(turn_of(answer.cam_from_world.rotation))) < 1


def test_few_keypoints_among_many_accidents_are_refused_though_beyond_chance() -> None:
    """The evidence of a weak pose of a true query lies in the six orders of magnitude that are not counted."""
    answer = asked(scene_points(15), 3.0, 600, max_turn_deg=math.inf)
    assert isinstance(answer, NoPose)
    assert -12 < answer.log10_nfa <= -6, answer
    assert "uncertain by degrees" in answer.reason


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("options", [LocalizeOptions, WordOptions])
def test_impossible_limits_are_refused(options: type, value: float) -> None:
    with pytest.raises(RangeError, match="max_turn_deg must be positive"):
        replace(options(), max_turn_deg=value)
