"""Evidence for pairs: wrong matches never pass, right ones do, and a fixed count of inliers tells neither."""

from __future__ import annotations

from itertools import combinations
from math import comb, log10

import numpy as np
import pytest

from veil.geometry.camera import as_colmap
from veil.geometry.robust.significance import Sampling, pose_log10_nfa
from veil.geometry.robust.two_view import TwoView, log10_chance
from worlds import camera, generator, project, world

COLMAP_INLIERS = 15


def found_by_colmap(left: np.ndarray, right: np.ndarray) -> tuple[TwoView, int]:
    """COLMAP's geometry of matched positions, and its count of inliers."""
    import pycolmap

    options = pycolmap.TwoViewGeometryOptions()
    options.ransac.random_seed = 1
    options.ransac.max_num_trials = 2000
    options.min_num_inliers = 5
    rows = np.repeat(np.arange(len(left), dtype=np.uint32)[:, None], 2, axis=1)
    model = as_colmap(camera())
    geometry = pycolmap.estimate_two_view_geometry(model, left, model, right, rows, options)
    inverse = np.linalg.inv(model.calibration_matrix())
    essential = geometry.E is not None
    fundamental = inverse.T @ np.asarray(geometry.E) @ inverse if essential else geometry.F
    return (
        TwoView(fundamental=fundamental, homography=geometry.H, calibrated=essential),
        len(geometry.inlier_matches),
    )


def test_wrong_matches_are_no_evidence_although_colmap_counts_enough() -> None:
    """Oracle: matches drawn at random, in the whole image and in crowded features; broken twin: the count of 15 inliers."""
    counts, chances = [], []
    for trial in range(8):
        random = generator(f"wrong matches {trial}")
        left, right = random.random((2, 200, 2)) * [640, 480]
        if trial % 2:  # features along a band, as those of a frieze
            left[:, 1], right[:, 1] = random.normal(240, 12, (2, 200))
        geometry, inliers = found_by_colmap(left, right)
        counts.append(inliers)
        chances.append(log10_chance(left, right, geometry))
    assert sum(count >= COLMAP_INLIERS for count in counts) >= 4  # the twin takes half of them or more for pairs
    assert min(chances) > -2


def test_few_right_matches_among_wrong_ones_are_evidence() -> None:
    """Oracle: planted cameras; 25 right of 75 matches."""
    place = world("evidence", images=3, points=25)
    first, second = place.poses["00"], place.poses["02"]
    random = generator("evidence")
    left, right = (project(pose, place.points, place.camera) for pose in (first, second))
    wrong = random.random((2, 50, 2)) * [640, 480]
    left, right = np.concatenate([left, wrong[0]]), np.concatenate([right, wrong[1]])
    geometry, _ = found_by_colmap(left, right)
    assert log10_chance(left, right, geometry) < -10


def test_the_bound_counts_every_sample_and_every_agreement() -> None:
    """Oracle: enumeration of samples and of the sets that agree, for a small case (Moisan and Stival 2004, Eq. 6)."""
    matches, inliers, size, solutions, agreement = 9, 6, 3, 2, 0.1
    samples = len(list(combinations(range(matches), size)))
    sets = len(list(combinations(range(matches - size), inliers - size)))
    expected = solutions * (matches - size) * samples * sets * agreement ** (inliers - size)
    assert pose_log10_nfa(inliers, matches, agreement, Sampling(size=size, poses=solutions)) == pytest.approx(log10(expected))
    assert sets == comb(6, 3)
    assert pose_log10_nfa(size, matches, agreement, Sampling(size=size, poses=solutions)) == float("inf")


def test_matches_at_one_position_count_once() -> None:
    """A match copied twenty times is no further evidence: features of several orientations, or a hostile upload."""
    place = world("copies", images=3, points=12)
    left, right = (project(place.poses[name], place.points, place.camera) for name in ("00", "02"))
    geometry, _ = found_by_colmap(left, right)
    once = log10_chance(left, right, geometry)
    again = log10_chance(np.repeat(left, 20, axis=0), np.repeat(right, 20, axis=0), geometry)
    assert again == pytest.approx(once)
