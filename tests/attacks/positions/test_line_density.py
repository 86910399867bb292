"""Density of line clouds: crowded keypoints are recovered, evenly spread ones are not, and nothing is ever certified."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate

from veil.attacks.positions.line_density import DensityOptions, density_positions, ramp
from veil.attacks.positions.segments import pixels, segments
from veil.errors import RangeError
from worlds import generator
from worlds.line_clouds import CAMERA, errors, line_cloud, uniform_keypoints

PAPER = DensityOptions(estimator="crossings", decide="peak", bandwidth_share=0.01)
SHARP = DensityOptions(estimator="backprojection", decide="peak", bandwidth_share=0.01)


def crowds(random: np.random.Generator, crowd: int = 60) -> np.ndarray:
    """Keypoints in six crowds, each within a few pixels."""
    centers = random.uniform(60, 420, (6, 2))
    return np.repeat(centers, crowd, axis=0) + random.normal(0, 2, (6 * crowd, 2))


@pytest.mark.parametrize("options", [PAPER, SHARP], ids=["crossings", "backprojection"])
@pytest.mark.parametrize("aligned", [0.0, 0.5])
def test_it_wins_where_keypoints_crowd(options: DensityOptions, aligned: float) -> None:
    """Broken defense: what hides one keypoint does not hide sixty at one place."""
    random = generator("crowds")
    keypoints = crowds(random)
    estimates = density_positions(line_cloud(keypoints, random, aligned=aligned), camera=CAMERA, options=options)
    assert np.median(errors(estimates.points, keypoints)) < 8
    assert (errors(estimates.points, keypoints) < 20).mean() > 0.7
    assert not estimates.certified.any()


@pytest.mark.slow
@pytest.mark.parametrize("options", [PAPER, SHARP, DensityOptions()], ids=["crossings", "backprojection", "default"])
def test_evenly_spread_keypoints_stay_hidden(options: DensityOptions) -> None:
    """Null: the share within 20 px is that of the lines' uniform points, between bounds on both sides."""
    random = generator("even")
    keypoints = uniform_keypoints(random, 1200)
    lines = line_cloud(keypoints, random)
    estimates = density_positions(lines, camera=CAMERA, options=options)
    where = segments(lines, CAMERA)
    truth = ((_normalized(keypoints) - where.foot) * where.direction).sum(axis=1)
    reach = 20 / 500
    # Of a uniform point of the segment: the part of it within 20 px of the truth.
    chance = (np.minimum(truth + reach, where.high) - np.maximum(truth - reach, where.low)) / (where.high - where.low)
    got = (errors(estimates.points, keypoints) < 20).mean()
    # A decision in the middle of the line gains a little, since no end cuts its neighborhood off.
    assert 0.6 * chance.mean() < got < 1.5 * chance.mean()


def test_the_default_has_less_error_than_a_random_point_and_no_more_than_it_says() -> None:
    """Defining property of the median; the estimate lies on its line and in the image."""
    random = generator("median")
    keypoints = crowds(random, 20)
    lines = line_cloud(keypoints, random)
    estimates = density_positions(lines, camera=CAMERA)
    where = segments(lines, CAMERA)
    blind = pixels(where.at(where.between(random.random(len(lines)))), CAMERA)
    assert errors(estimates.points, keypoints).mean() < errors(blind, keypoints).mean()
    rays = np.hstack([_normalized(estimates.points), np.ones((len(lines), 1))])
    assert np.abs((rays * lines.coefficients).sum(axis=1)).max() < 1e-5
    assert (estimates.points >= -1e-6).all() and (estimates.points <= (640 + 1e-6, 480 + 1e-6)).all()


def test_lines_along_gravity_alone_tell_no_height() -> None:
    random = generator("upright")
    lines = line_cloud(uniform_keypoints(random, 50), random, aligned=1.0)
    assert not density_positions(lines, camera=CAMERA).decided.any()
    lines = line_cloud(uniform_keypoints(random, 50), random)
    far = lines.coefficients.copy()
    far[7] = (1, 0, -9)
    estimates = density_positions(replace(lines, coefficients=far), camera=CAMERA)
    np.testing.assert_array_equal(estimates.decided, np.arange(50) != 7)
    assert estimates.confidence[7] == 0


def test_the_ramp_filter_is_its_integral() -> None:
    """Second method: Eq. 4 by quadrature of |k| exp(-k^2 / 2) cos(k t) over k."""
    for t in (0.0, 0.3, 1.0, 2.5, 6.0):
        value = integrate.quad(lambda k, t=t: k * np.exp(-(k**2) / 2) * np.cos(k * t), 0, 12)[0]
        assert ramp(np.array([t]))[0] == pytest.approx(value, abs=1e-9)


def test_progress_and_options() -> None:
    random = generator("progress")
    calls: list[tuple[int, int]] = []
    density_positions(
        line_cloud(uniform_keypoints(random, 300), random), camera=CAMERA, progress=lambda done, of: calls.append((done, of))
    )
    assert calls == [(128, 300), (256, 300), (300, 300)]
    for wrong in ({"bandwidth_share": float("nan")}, {"steps": 2}, {"grid_cells": 4}, {"min_lines": 1}):
        with pytest.raises(RangeError):
            DensityOptions(**wrong)


def _normalized(keypoints: np.ndarray) -> np.ndarray:
    return (keypoints - (320, 240)) / 500
