"""Twins of SIFT: turned histograms by exact permutations, real keypoints with two orientations, and unrelated descriptors."""

from __future__ import annotations

import numpy as np
import pytest

from veil.attacks.positions.colocated_keypoints import TwinOptions, _turn, twins
from veil.attacks.positions.line_neighbors import neighbor_positions
from veil.errors import InputError, RangeError
from veil.extraction.sift import SiftOptions, extract_sift
from veil.features import Features
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from worlds import generator, sift_like
from worlds.line_clouds import errors, line_cloud


def door() -> Features:
    with lund_door() as example:
        picture = read_picture(sorted(example.folder.glob("*.jpg"))[0])
    return extract_sift(picture, SiftOptions(max_features=700))


def quarter(descriptors: np.ndarray) -> np.ndarray:
    """Histograms turned by 90 degrees, as a permutation: cells go round, and orientation bins go by two the other way."""
    histogram = descriptors.reshape(-1, 4, 4, 8)
    return np.roll(np.rot90(histogram, 1, axes=(1, 2)), 2, axis=3).reshape(len(descriptors), 128)


def test_a_quarter_turn_is_a_permutation() -> None:
    """Second method: four quarter turns are the identity, and one is the matrix of Eq. 8 in one of its two directions."""
    descriptors = sift_like(generator("quarter"), 20).astype(np.float64)
    fourfold = descriptors
    for _ in range(4):
        fourfold = quarter(fourfold)
    np.testing.assert_array_equal(fourfold, descriptors)
    made = [descriptors @ _turn(sign * np.pi / 2, mirrored=True).T for sign in (1, -1)]
    assert min(np.abs(one - quarter(descriptors)).max() for one in made) < 1e-9
    np.testing.assert_allclose(_turn(0.0, mirrored=True), np.eye(128), atol=1e-12)


def test_planted_twins_are_found_and_no_others() -> None:
    """Planted truth: exact quarter turns among unrelated descriptors, which are the null test."""
    random = generator("planted")
    first = sift_like(random, 150).astype(np.float64)
    partners = twins(np.concatenate([first, quarter(first[:60])]))
    expected = np.concatenate([np.arange(150, 210), np.full(90, -1), np.arange(60)])
    np.testing.assert_array_equal(partners.rows[:, 0], expected)
    assert (partners.rows[:, 1:] == -1).all()
    assert (partners.weights[:, 0] > 0.5).sum() == 120 and not partners.weights[expected < 0].any()


@pytest.mark.slow
def test_two_orientations_at_one_place_give_it_away() -> None:
    """Broken defense, on a photograph: a line for each feature, and its descriptor in clear. Null: shuffled descriptors."""
    features = door()
    keypoints = features.keypoints.astype(np.float64)
    gap = np.linalg.norm(keypoints[:, None] - keypoints[None], axis=2)
    np.fill_diagonal(gap, np.inf)
    has_twin = gap.min(axis=1) == 0
    assert has_twin.sum() > 60
    random = generator("door")
    lines = line_cloud(keypoints, random, camera=features.camera)
    descriptors = features.descriptors.astype(np.float32)
    estimates = neighbor_positions(lines, twins(descriptors), camera=features.camera)
    assert (errors(estimates.points, keypoints)[has_twin] < 1).mean() > 0.8
    shuffled = twins(descriptors[random.permutation(len(descriptors))])
    blind = neighbor_positions(lines, shuffled, camera=features.camera)
    off = errors(blind.points, keypoints)[blind.decided]
    assert len(off) > 60
    assert (off < 1).mean() < 0.05
    assert 0.02 < (off < 0.1 * np.hypot(features.camera.width_px, features.camera.height_px)).mean() < 0.6


def test_rows_without_a_descriptor_have_no_twins() -> None:
    first = sift_like(generator("gaps"), 10).astype(np.float64)
    both = np.concatenate([first, quarter(first)])
    both[3] = np.nan
    partners = twins(both, options=TwinOptions(rotations=4, count=2))
    assert partners.rows.shape == (20, 2)
    assert (partners.rows[[3, 13]] == -1).all() and partners.rows[4, 0] == 14
    assert (twins(both[:1]).rows == -1).all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="128 numbers"):
        twins(np.ones((4, 64)))
    for wrong in ({"rotations": 0}, {"count": 0}, {"likeness": float("nan")}):
        with pytest.raises(RangeError):
            TwinOptions(**wrong)
