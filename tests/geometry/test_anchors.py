"""Anchors of a picture and the lines through them; and that lines of one anchor determine no pose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.geometry.anchors import anchors, half_of, pencil_of
from veil.geometry.camera import Camera
from veil.geometry.rigid import Rigid
from veil.geometry.robust.ransac import RansacOptions
from veil.geometry.robust.resection_lines import MINIMAL_LINES, LineResection, resect_from_lines
from veil.mechanisms.lines import ConvergentOptions, LineOptions, lift_to_lines, normalized_keypoints, through_anchors
from veil.randomness import seeded
from worlds import features, generator

LANDSCAPE = Camera(model="SIMPLE_RADIAL", width_px=640, height_px=480, params=(500.0, 320.0, 240.0, -0.1))
UPRIGHT = replace(LANDSCAPE, width_px=480, height_px=640, params=(500.0, 240.0, 320.0, -0.1))


@pytest.mark.parametrize("camera", [LANDSCAPE, UPRIGHT])
def test_lines_run_through_the_pencil_of_their_half(camera: Camera) -> None:
    """Defining equations: each line holds its keypoint and its anchor; the halves are those of the longer side.

    The control is of random lines: none is taken for one through an anchor.
    """
    image = replace(features(generator("anchors"), 2000), camera=camera)
    xy, places = normalized_keypoints(image), anchors(camera)
    lines = lift_to_lines(image, gravity=None, randomness=seeded("anchors"), options=ConvergentOptions())
    long_axis = int(camera.height_px > camera.width_px)
    half = (xy[:, long_axis] >= 0).astype(int)
    coefficients = lines.coefficients.astype(np.float64)
    for points in (xy, places[half]):
        assert np.abs((coefficients[:, :2] * points).sum(axis=1) + coefficients[:, 2]).max() < 1e-6
    np.testing.assert_array_equal(half_of(xy, camera), half)
    np.testing.assert_array_equal(pencil_of(coefficients, camera), half)
    assert not lines.aligned.any() and (np.abs(places[:, long_axis]) == 0).all()
    assert np.abs(places[:, 1 - long_axis]).min() > np.abs(xy[:, 1 - long_axis]).max()  # beyond the picture
    random = lift_to_lines(image, gravity=None, randomness=seeded("anchors"), options=LineOptions())
    assert (pencil_of(random.coefficients.astype(np.float64), camera) < 0).mean() > 0.99


def problem(through: np.ndarray, *, wrong: np.ndarray | None = None) -> tuple[LineResection, Rigid]:
    """Lines of 120 points through the anchors of the rows `through`, seen by the camera at the origin; some lie wrong."""
    random = generator("one anchor")
    half = np.abs(np.array([320.0, 240.0])) / 500
    camera = replace(LANDSCAPE, model="PINHOLE", params=(500.0, 500.0, 320.0, 240.0))
    xy = random.uniform(-half, half, (len(through), 2))
    depth = random.uniform(4, 8, len(xy))
    points = np.column_stack([xy, np.ones(len(xy))]) * depth[:, None]
    seen = xy if wrong is None else np.where(wrong[:, None], random.uniform(-half, half, xy.shape), xy)
    normals = through_anchors(seen, through, camera)
    lines = np.hstack([normals, -(normals * seen).sum(axis=1, keepdims=True)])
    none = np.zeros(len(xy), dtype=bool)
    made = LineResection(
        lines=lines, points=points, aligned=none, focal_px=500.0, half_extent=half, pencil=pencil_of(lines, camera)
    )
    return made, Rigid(rotation=np.eye(3), translation=np.zeros(3))


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_lines_of_one_anchor_leave_the_way_to_it_open() -> None:
    """Defining equation: a camera moved along the ray of the anchor meets all of its lines, and no pose is given.

    The control is of both anchors: the pose is recovered, and the moved camera misses the lines of the other one.
    """
    one, true = problem(np.zeros(120, dtype=np.int64))
    both, _ = problem(np.arange(120) % 2)
    camera = replace(LANDSCAPE, model="PINHOLE", params=(500.0, 500.0, 320.0, 240.0))
    ray = np.append(anchors(camera)[0], 1.0)
    moved = Rigid(rotation=np.eye(3), translation=0.2 * ray)
    ahead = np.isfinite(one.residuals(moved))
    assert ahead.sum() > 100 and one.residuals(moved)[ahead].max() < 1e-6 and one.residuals(true).max() < 1e-6
    assert np.median(both.residuals(moved)[1::2]) > 5
    options = RansacOptions(max_error=2.0, seed=0)
    assert resect_from_lines(one, options) is None
    assert resect_from_lines(replace(one, pencil=None), options) is not None  # broken twin: the rule is not told
    fit = resect_from_lines(both, options)
    assert fit is not None and np.linalg.norm(fit.model.center) < 1e-3 and fit.inliers.all()


def uncertainty(normals: np.ndarray, xy: np.ndarray, depth: np.ndarray) -> float:
    """Standard deviation of the camera's position by the lines' normal equations (lines.md, Eq. 15-16), up to the noise."""
    seen = np.column_stack([xy, np.ones(len(xy))]) * depth[:, None]
    lines = np.hstack([normals, -(normals * xy).sum(axis=1, keepdims=True)]) / depth[:, None]
    slopes = np.hstack([np.cross(seen, lines), lines])
    return float(np.sqrt(np.trace(np.linalg.inv(slopes.T @ slopes)[3:, 3:])))


def test_what_each_rule_costs_a_pose() -> None:
    """Golden ratios of position errors to those of uniform lines, of which the theory page speaks: 1.35 and 1.05."""
    camera = Camera(model="PINHOLE", width_px=1536, height_px=1024, params=(1380.0, 1380.0, 768.0, 512.0))
    half = np.array([768.0, 512.0]) / 1380
    ratios = []
    for turn in range(40):
        random = generator(f"cost {turn}")
        xy, depth = random.uniform(-half, half, (300, 2)), 10 + random.standard_normal(300)
        angle = random.uniform(0, np.pi, 300)
        uniform = uncertainty(np.stack([np.cos(angle), np.sin(angle)], axis=1), xy, depth)
        convergent = uncertainty(through_anchors(xy, half_of(xy, camera), camera), xy, depth)
        parallel = uncertainty(np.where(xy[:, :1] < 0, [1.0, 0.0], [0.0, 1.0]), xy, depth)
        ratios.append((convergent / uniform, parallel / uniform))
    assert np.median(ratios, axis=0) == pytest.approx([1.35, 1.05], abs=0.03)


@pytest.mark.parametrize("shares", [(0.5, 0.5), (0.97, 0.03), (0.1, 0.9)])
def test_samples_hold_two_lines_beside_those_of_any_anchor(shares: tuple[float, float]) -> None:
    """Enumeration of 200 samples: six different rows, of no anchor more than four."""
    through = (np.arange(120) >= shares[0] * 120).astype(np.int64)
    made, _ = problem(through)
    random = np.random.default_rng(0)
    for ranked in (False, True):
        either = replace(made, best_first=ranked)
        for _ in range(200):
            rows = either.sample(random)
            assert len(np.unique(rows)) == MINIMAL_LINES
            assert np.bincount(through[rows], minlength=2).max() <= 4
