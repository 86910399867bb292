"""Counts of answers, against planted errors of poses in a map that is turned, moved and scaled."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.spatial.transform import Rotation

from veil.geometry.camera import guessed
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity
from veil.places.poses.answer import Localization, NoPose
from veil_lab.studies.localization.answer_counts import counted, extent_of, squared_distance
from worlds import generator
from worlds.power import require_share

REFERENCE_FROM_MAP = Similarity(
    scale=3.0,
    rotation=Rotation.from_rotvec([0.3, -1.0, 0.5]).as_matrix(),
    translation=np.array([5.0, -2.0, 1.0]),
)
NONE = NoPose(reason="planted", correspondences=0)


def answered(pose: Rigid, covariance: np.ndarray | None) -> Localization:
    return Localization(
        cam_from_world=pose,
        camera=guessed(640, 480),
        covariance=covariance,
        turn_deviation_deg=1.0,
        keypoint_rows=np.arange(20),
        point_rows=np.arange(20),
        correspondences=20,
        log10_nfa=-50.0,
    )


def cameras(count: int) -> dict[str, Rigid]:
    """Poses in the map, random ones within a few units."""
    random = generator("answer counts")
    rotations = Rotation.random(count, random_state=3).as_matrix()
    return {f"{row}": Rigid(rotation=rotations[row], translation=random.normal(size=3)) for row in range(count)}


def in_reference(poses: dict[str, Rigid]) -> dict[str, Rigid]:
    return {name: REFERENCE_FROM_MAP.moved(pose) for name, pose in poses.items()}


def shifted(pose: Rigid, turn: np.ndarray, shift: np.ndarray) -> Rigid:
    """A pose that is turned by `turn` (radians) in the camera frame, and its translation moved by `shift`."""
    rotation = Rotation.from_rotvec(turn).as_matrix() @ pose.rotation
    return Rigid(rotation=rotation, translation=pose.translation + shift)


@pytest.mark.parametrize("factor", [1.0, 1 / 2, 1 / 4])
def test_coverage_is_that_of_planted_errors(factor: float) -> None:
    """Oracle: chi-square of six degrees; errors of the reference that are drawn with the claimed covariance are inside in 95 %.

    Twins claim less than the covariance. The map is another frame than the reference, of another unit.
    """
    random, poses = generator("planted errors"), cameras(2000)
    true, answers = {}, {}
    for name, pose in poses.items():
        root = 1e-4 * random.normal(size=(6, 6))  # small, as a covariance is a linear statement
        error = root @ random.normal(size=6)
        true[name] = shifted(pose, error[:3], error[3:])
        answers[name] = answered(pose, factor * root @ root.T)
    counts = counted(answers, in_reference(true), REFERENCE_FROM_MAP)
    assert counts.regions == 2000
    expected = float(stats.chi2.cdf(factor * stats.chi2.isf(0.05, 6), 6))
    require_share(counts.covered, counts.regions, expected, sees=0.1)


def test_wrong_poses_are_counted_by_hand() -> None:
    """Oracle: the limits of 5 % of the extent and 5 degrees, planted on both sides; refused queries are neither."""
    poses = cameras(6)
    reference = in_reference(poses)
    extent = extent_of(reference.values()) / REFERENCE_FROM_MAP.scale
    center = np.array([1.0, 0.0, 0.0])
    moves = {
        "0": (0.0, 0.0),
        "1": (0.049 * extent, 0.0),
        "2": (0.051 * extent, 0.0),
        "3": (0.0, 4.9),
        "4": (0.0, 5.1),
    }
    answers: dict[str, Localization | NoPose] = {"5": NONE}
    for name, (distance, turn_deg) in moves.items():
        turn = Rotation.from_rotvec([0.0, math.radians(turn_deg), 0.0]).as_matrix()
        rotation = turn @ poses[name].rotation
        moved = poses[name].center + distance * center
        answers[name] = answered(Rigid(rotation=rotation, translation=-rotation @ moved), None)
    counts = counted(answers, reference, REFERENCE_FROM_MAP)
    assert (counts.queries, counts.localized, counts.wrong) == (6, 3, 2)
    assert (counts.regions, counts.covered) == (0, 0)
    assert counts.median_error == pytest.approx(0.0, abs=1e-9)
    shares = sorted(distance / extent for distance, _ in moves.values())
    assert shares[2] == 0 and counted({"1": answers["1"]}, reference, REFERENCE_FROM_MAP).median_error == pytest.approx(0.049)
    with pytest.raises(KeyError):
        counted({"elsewhere": NONE}, reference, REFERENCE_FROM_MAP)


def test_a_region_without_extent_holds_its_center_alone() -> None:
    """Special case: a covariance of rank five, and an error across it."""
    flat = np.diag([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    assert squared_distance(np.array([1.0, 2.0, 0, 0, 0, 0]), flat) == pytest.approx(5.0)
    assert squared_distance(np.array([0.0, 0, 0, 0, 0, 0.1]), flat) == math.inf
    (name, pose), *_ = cameras(2).items()
    reference = in_reference(cameras(2))
    moved = replace(pose, translation=pose.translation + np.array([0, 0, 0.01]))
    assert counted({name: answered(pose, flat + 1e-12 * np.eye(6))}, reference, REFERENCE_FROM_MAP).covered == 1
    assert counted({name: answered(moved, flat)}, reference, REFERENCE_FROM_MAP).covered == 0
