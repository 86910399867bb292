"""Benchmarks of what poses and maps claim, against planted errors: each must name a claim that is wrong."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from scipy.spatial.transform import Rotation

import veil
from veil.geometry.camera import guessed
from veil.geometry.rigid import Rigid

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Loads a benchmark, as a function of its name."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return lambda name: SimpleNamespace(**runpy.run_path(str(BENCHMARKS / f"{name}.py")))


def answered(pose: Rigid, covariance: np.ndarray | None, turn_deviation_deg: float = 1.0) -> veil.Localization:
    return veil.Localization(
        cam_from_world=pose,
        camera=guessed(640, 480),
        covariance=covariance,
        turn_deviation_deg=turn_deviation_deg,
        keypoint_rows=np.arange(20),
        point_rows=np.arange(20),
        correspondences=20,
        log10_nfa=-50.0,
    )


def planted_errors(count: int) -> list[tuple[Rigid, Rigid, np.ndarray]]:
    """True poses, estimates that differ by draws of random covariances of (rotation, translation), and these covariances."""
    random = np.random.default_rng(5)
    planted = []
    for _ in range(count):
        truth = Rigid(
            rotation=Rotation.random(random_state=random.integers(1 << 30)).as_matrix(), translation=random.normal(size=3)
        )
        root = 0.02 * random.normal(size=(6, 6))
        error = root @ random.normal(size=6)
        turn = Rotation.from_rotvec(error[:3]).as_matrix()
        estimate = Rigid(rotation=turn @ truth.rotation, translation=truth.translation + error[3:])
        planted.append((truth, estimate, root @ root.T))
    return planted


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "holds"), (1 / 4, "below"), (9.0, "above")])
def test_coverage_is_that_of_planted_errors(benchmark: Any, factor: float, verdict: str) -> None:
    """Oracle: errors drawn with the covariance that is claimed are covered in 95 % of cases.

    Twins that claim half or three times the deviation are below and above it.
    """
    coverage = benchmark("pose_coverage")
    outcomes = [
        coverage.outcome("raw", "focal 0 %", row, answered(estimate, factor * covariance), truth)
        for row, (truth, estimate, covariance) in enumerate(planted_errors(400))
    ]
    for which in ("position", "turn"):
        assert coverage.rate(getattr(one, which) for one in outcomes).verdict == verdict
    facts = coverage.table(outcomes)[0]
    assert (facts["poses"], facts["asked"]) == (400, 400)


def test_a_pose_far_off_is_wrong_unless_its_region_says_so(benchmark: Any) -> None:
    """By hand: two meters off, claimed to a centimeter and to three meters; without a covariance meters alone decide."""
    coverage = benchmark("pose_coverage")
    truth = Rigid(rotation=np.eye(3), translation=np.zeros(3))
    off = Rigid(rotation=np.eye(3), translation=np.array([2.0, 0, 0]))
    for covariance, wrong in ((1e-4 * np.eye(6), True), (9.0 * np.eye(6), False), (None, True)):
        assert coverage.is_wrong(coverage.outcome("raw", "guess", 1, answered(off, covariance), truth)) is wrong
    refused = coverage.outcome("raw", "guess", 1, veil.NoPose(reason="no", correspondences=0), truth)
    assert refused.error_m is None and not coverage.is_wrong(refused)
    # A covariance without extent towards the error covers nothing.
    flat = np.diag([1.0, 1, 1, 0, 1, 1])
    assert coverage.outcome("raw", "guess", 1, answered(off, flat), truth).position == np.inf


def test_intervals_are_exact(benchmark: Any) -> None:
    """By hand (Clopper and Pearson): 0 of 11 leaves 1 - 0.025^(1/11), and all of 11 the mirror image of it."""
    coverage = benchmark("pose_coverage")
    border = 1 - 0.025 ** (1 / 11)
    assert coverage.Rate(covered=0, count=11).interval == pytest.approx((0.0, border))
    assert coverage.Rate(covered=11, count=11).interval == pytest.approx((1 - border, 1.0))


def walk(*, depth: float = 1.0) -> dict[str, Rigid]:
    """Cameras on an arc around a point, the arc stretched in depth."""
    poses = {}
    for number, angle in enumerate(np.radians(np.linspace(-20, 20, 7))):
        rotation = Rotation.from_euler("y", -angle).as_matrix()
        center = np.array([6 * np.sin(angle), 0.1 * number, depth * (6 - 6 * np.cos(angle))])
        poses[str(number)] = Rigid(rotation=rotation, translation=-rotation @ center)
    return poses


def test_maps_are_right_up_to_a_similarity_and_stretched_ones_are_wrong(benchmark: Any) -> None:
    """Oracle: planted cameras, moved, turned and scaled. Twins: turns too small by a quarter, and depth turned inside out."""
    cameras = benchmark("wrong_cameras")
    truth, turn = walk(), Rotation.from_euler("xyz", [10, 50, 3], degrees=True).as_matrix()
    moved, shrunk, reversed_ = {}, {}, {}
    for name, pose in truth.items():
        rotation = pose.rotation @ turn.T
        moved[name] = Rigid(rotation=rotation, translation=-rotation @ (3 * turn @ pose.center + [1, 2, 3]))
        smaller = Rotation.from_rotvec(0.75 * Rotation.from_matrix(pose.rotation).as_rotvec()).as_matrix()
        shrunk[name] = Rigid(rotation=smaller, translation=-smaller @ pose.center)
        reversed_[name] = Rigid(rotation=pose.rotation, translation=pose.rotation @ pose.center)
    errors = cameras.map_errors(moved, truth)
    assert errors.verdict(None) == "right" and max(errors.shares) < 1e-9 and max(errors.degrees) < 1e-4
    assert cameras.map_errors(shrunk, truth).verdict(None) == "wrong"
    assert cameras.map_errors(reversed_, truth) is None


def test_queries_are_right_covered_wrong_or_refused(benchmark: Any) -> None:
    """By hand: half a unit off in a map of ten, claimed to a unit and to a hundredth."""
    cameras = benchmark("wrong_cameras")
    truth = Rigid(rotation=np.eye(3), translation=np.zeros(3))
    near, off = (Rigid(rotation=np.eye(3), translation=np.array([shift, 0, 0])) for shift in (0.1, 0.5))
    answers = [answered(near, 1e-6 * np.eye(6)), answered(off, np.eye(6)), answered(off, 1e-4 * np.eye(6)), answered(off, None)]
    answers.append(veil.NoPose(reason="no", correspondences=0))  # type: ignore[arg-type]
    verdicts = [cameras.query_verdict(answer, truth, 10.0) for answer in answers]
    assert verdicts == ["right", "covered", "wrong", "wrong", "refused"]


def test_a_cut_photograph_has_the_focal_length_of_the_whole_one_over_its_own_size(benchmark: Any, tmp_path: Path) -> None:
    """By hand: a crop to one half whose EXIF is kept is read with half of the focal length in pixels."""
    cameras = benchmark("wrong_cameras")
    Image.fromarray(np.zeros((300, 400, 3), dtype=np.uint8)).save(tmp_path / "whole.png")
    for kind, share in (("whole", 1.0), ("crop to 50 %", 0.5)):
        cameras.cut(tmp_path / "whole.png", 480.0, kind, tmp_path / "cut.jpg")
        camera = veil.read_picture(tmp_path / "cut.jpg").camera
        assert (camera.width_px, camera.height_px) == (400 * share, 300 * share)
        assert camera.focal.origin == "EXIF"
        assert camera.focal_px == pytest.approx(480.0 * share, rel=0.02)


def test_a_plane_shows_its_picture_where_its_homography_says(benchmark: Any) -> None:
    """Oracle: a bright spot of the picture lies at its image under the homography; the twin, its own place, is dark."""
    copies = benchmark("planar_copies")
    camera = replace(guessed(320, 240), params=(300.0, 160.0, 120.0, 0.0))
    shown = np.zeros((90, 120, 3), dtype=np.uint8)
    shown[20:25, 80:85] = 255
    random = np.random.default_rng(3)
    plane = copies.drawn_plane(120, 90, camera, random)
    behind = np.zeros((240, 320, 3), dtype=np.uint8)
    copy = copies.laid(shown, behind, plane, camera, "poster", random).astype(float).mean(axis=2)
    place = plane.homography @ [82.5, 22.5, 1.0]
    x, y = place[:2] / place[2]
    rows, columns = np.nonzero(copy > 0.7 * copy.max())
    assert (columns.mean() + 0.5, rows.mean() + 0.5) == pytest.approx((x, y), abs=1.0)
    corners = plane.homography @ np.array([[0, 120, 120, 0], [0, 0, 90, 90], [1, 1, 1, 1]])
    assert (corners[:2] / corners[2] > 0).all() and (corners[:2] / corners[2] < [[320], [240]]).all()
    # The plane is rigid: undoing the camera leaves two orthogonal axes of one length.
    axes = np.linalg.inv([[300, 0, 160], [0, 300, 120], [0, 0, 1]]) @ plane.homography[:, :2]
    assert np.linalg.norm(axes, axis=0).std() < 1e-9 and abs(axes[:, 0] @ axes[:, 1]) < 1e-9
