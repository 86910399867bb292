"""Positions from neighbors' lines: planted neighborhoods, strangers, and when a position is proved."""

from __future__ import annotations

import numpy as np
import pytest

from veil.attacks.positions.line_neighbors import LineNeighborOptions, Neighborhoods, neighbor_positions
from veil.attacks.positions.segments import segments
from veil.errors import InputError, RangeError
from veil.geometry.camera import Camera
from worlds import generator
from worlds.line_clouds import CAMERA, RADIAL, errors, line_cloud, uniform_keypoints


def groups(random: np.random.Generator, places: int, size: int) -> tuple[np.ndarray, Neighborhoods]:
    """Keypoints, `size` at each of some places, and their true neighborhoods with strangers among them."""
    keypoints = np.repeat(uniform_keypoints(random, places), size, axis=0)
    first = np.arange(len(keypoints)) // size * size
    rows = first[:, None] + np.arange(size)
    rows = np.where(rows == np.arange(len(rows))[:, None], -1, rows)
    strangers = random.integers(0, len(keypoints), (len(keypoints), 3))
    rows = np.hstack([rows, strangers])
    return keypoints, Neighborhoods(rows=rows, weights=np.where(rows >= 0, 0.5, 0.0))


@pytest.mark.parametrize("camera", [CAMERA, RADIAL], ids=["pinhole", "radial"])
def test_independent_lines_through_one_place_give_it_away(camera: Camera) -> None:
    """Broken defense: keypoints at one position with a line each. Four lines prove the position, exact to float32 rounding."""
    random = generator("one place")
    keypoints, known = groups(random, 80, 4)
    estimates = neighbor_positions(line_cloud(keypoints, random, camera=camera), known, camera=camera)
    off = errors(estimates.points, keypoints)
    assert (off < 0.05).mean() > 0.99
    assert estimates.certified.mean() > 0.8
    assert off[estimates.certified].max() < 0.05


def test_two_lines_always_meet_so_a_pair_proves_nothing() -> None:
    random = generator("pairs")
    keypoints, known = groups(random, 100, 2)
    pairs = Neighborhoods(rows=known.rows[:, :2], weights=known.weights[:, :2])
    estimates = neighbor_positions(line_cloud(keypoints, random), pairs, camera=CAMERA)
    assert (errors(estimates.points, keypoints) < 0.1).mean() > 0.95
    assert not estimates.certified.any()


def test_strangers_tell_nothing() -> None:
    """Null: 10,000 features with random neighborhoods are at chance, and none is certified."""
    random = generator("strangers")
    keypoints = uniform_keypoints(random, 10_000)
    lines = line_cloud(keypoints, random)
    rows = random.integers(0, len(keypoints), (len(keypoints), 8))
    estimates = neighbor_positions(lines, Neighborhoods(rows=rows, weights=np.full(rows.shape, 0.5)), camera=CAMERA)
    where = segments(lines, CAMERA)
    truth = (((keypoints - (320, 240)) / 500 - where.foot) * where.direction).sum(axis=1)
    chance = np.minimum(truth + 0.04, where.high) - np.maximum(truth - 0.04, where.low)
    expected = (chance / (where.high - where.low)).mean()
    assert 0.7 * expected < (errors(estimates.points, keypoints) < 20).mean() < 1.5 * expected
    assert not estimates.certified.any()


def test_true_neighbors_bring_a_line_near_and_more_so_than_strangers() -> None:
    """Bound with true neighborhoods, the ten nearest keypoints: errors are of the order of their distance, some 20 px here."""
    random = generator("bound")
    keypoints = uniform_keypoints(random, 600)
    gap = np.linalg.norm(keypoints[:, None] - keypoints[None], axis=2)
    near = np.argsort(gap, axis=1)[:, 1:11]
    typical = np.median(np.take_along_axis(gap, near, axis=1))
    estimates = neighbor_positions(
        line_cloud(keypoints, random, aligned=0.5),
        Neighborhoods(rows=near, weights=np.full(near.shape, 1.0)),
        camera=CAMERA,
        options=LineNeighborOptions(radius_px=40.0),
    )
    assert np.nanmedian(errors(estimates.points, keypoints)) < typical
    assert estimates.decided.mean() > 0.95


def test_a_vertical_line_takes_its_height_from_the_other_kind_only() -> None:
    """Planted: an upright line tells all but its keypoint's height; upright neighbors never cross it, random ones do.

    Theory: position_attacks.md#one-line-and-the-blind-guesses.
    """
    random = generator("upright neighbors")
    keypoints = np.repeat(uniform_keypoints(random, 60), 2, axis=0)
    lines = line_cloud(keypoints, random, aligned=0.5)
    other = np.arange(len(keypoints)) ^ 1
    estimates = neighbor_positions(lines, Neighborhoods(rows=other[:, None], weights=np.full((120, 1), 0.6)), camera=CAMERA)
    both = lines.aligned & lines.aligned[other]
    assert both.any() and not estimates.decided[both].any()
    assert (errors(estimates.points, keypoints)[~both] < 0.1).mean() > 0.95


def test_one_line_for_one_place_says_nothing() -> None:
    """veil's defense: keypoints at one position share their line, and a line does not cross itself."""
    random = generator("shared")
    once = uniform_keypoints(random, 40)
    single = line_cloud(once, random)
    twice = single.take(np.repeat(np.arange(40), 4))
    keypoints = np.repeat(once, 4, axis=0)
    _, known = groups(random, 40, 4)
    own = Neighborhoods(rows=known.rows[:, :4], weights=known.weights[:, :4])
    assert not neighbor_positions(twice, own, camera=CAMERA).decided.any()
    estimates = neighbor_positions(twice, known, camera=CAMERA)
    assert not estimates.certified.any()
    assert (errors(estimates.points, keypoints) < 5).mean() < 0.1


def test_bad_input_is_refused() -> None:
    random = generator("bad")
    lines = line_cloud(uniform_keypoints(random, 3), random)
    none = Neighborhoods(rows=np.full((3, 2), -1), weights=np.zeros((3, 2)))
    assert not neighbor_positions(lines, none, camera=CAMERA).decided.any()
    with pytest.raises(InputError, match="neighborhoods"):
        neighbor_positions(lines.take(np.arange(2)), none, camera=CAMERA)
    with pytest.raises(InputError, match="probability"):
        Neighborhoods(rows=np.zeros((2, 1), dtype=np.int64), weights=np.full((2, 1), np.nan))
    with pytest.raises(InputError, match="rows"):
        Neighborhoods(rows=np.full((2, 1), 2), weights=np.zeros((2, 1)))
    for wrong in ({"radius_px": float("nan")}, {"meet_px": 0.0}, {"accident": 1.0}, {"refinements": -1}):
        with pytest.raises(RangeError):
            LineNeighborOptions(**wrong)
