"""The study of maps from lines: errors against planted truth, leakage of positions, noise of gravity, and the record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from veil.errors import InputError
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import align_centers, pairwise_rotation_deg, pose_error
from veil.places.maps.lines import LineMapOptions
from veil.places.maps.lines.quad import SeedOptions
from veil.trials.line_maps import MappableScene, disturbed, line_views, map_lines
from veil.trials.reconstruction_run import ErrorStatistics
from veil_lab.report.localization import draw_curve, draw_maps
from veil_lab.studies.mapping.reconstruction import map_points
from worlds import generator, world
from worlds.line_worlds import features_of, matches_of
from worlds.power import require_law
from worlds.schemas import validate

OPTIONS = LineMapOptions(seed=SeedOptions(samples=100), quads=2)


def subject(name: str, *, images: int = 6, points: int = 600) -> MappableScene:
    place = world(name, images=images, points=points)
    down = np.array([0.0, 1.0, 0.0])
    return MappableScene(
        name=name,
        features=features_of(place, name),
        matches=matches_of(place),
        reference=place.poses,
        gravity={key: pose.rotation @ down for key, pose in place.poses.items()},
        gravity_is_measured=False,
        seconds={"extract": 0.0, "match": 0.0},
    )


@pytest.mark.slow
def test_lines_and_points_are_judged_alike() -> None:
    """Planted truth: both register all; the record's fields agree with one another."""
    place = subject("evaluate")
    lines, points = map_lines(place, seed=0, options=OPTIONS), map_points(place)
    for run in (lines, points):
        record = run.as_json()
        validate("evaluate-reconstruction", {"runs": [record]})
        assert record["registered"] == record["total"] == 6
        assert record["position"] is not None and record["position"]["max"] < 0.05
        assert record["rotation_deg"] is not None and record["rotation_deg"]["max"] < 0.5
        assert record["pairwise_rotation_deg"] is not None and record["pairwise_rotation_deg"] < 0.2
        assert record["track_length"] == pytest.approx(record["observations"] / record["points"])
        assert set(record["seconds"]) == {"extract", "match", "map"}
        assert run.succeeded
    assert lines.leakage is not None and lines.leakage.median_px is not None
    # Of 600 points, those seen in four views or more are named; noise is 0.3 px a coordinate.
    assert lines.leakage.share > 0.6 and lines.leakage.median_px < 0.6
    assert lines.leakage.share_unchecked >= lines.leakage.share
    assert points.leakage is not None and points.leakage.share == 1.0
    assert lines.line_reprojection_px is not None and lines.point_reprojection_px is not None
    assert lines.line_reprojection_px < lines.point_reprojection_px


@pytest.mark.slow
def test_leakage_counts_named_positions() -> None:
    """Defining equation: named positions minus hidden keypoints, by hand for one image."""
    place = subject("leak")
    run = map_lines(place, seed=1, options=OPTIONS)
    assert run.leakage is not None
    named, hidden = run.leakage.positions["02"], place.features["02"].keypoints
    share, median = run.leakage.images["02"]
    assert share == pytest.approx(len(named) / len(hidden))
    nearest = np.linalg.norm(named[:, None] - hidden[None], axis=2).min(axis=1)
    assert median is not None and np.median(nearest) <= median + 1e-6


@pytest.mark.slow
def test_noise_tilts_gravity_as_it_says() -> None:
    """Two independent normal tilts give a Rayleigh angle; a distribution function that is off by 0.08 would be seen."""
    exact = {f"{i}": np.array([0.0, 1.0, 0.0]) for i in range(4000)}
    noisy = disturbed(exact, 1.0, name="case")
    angles = np.degrees([np.arccos(np.clip(noisy[k] @ exact[k], -1, 1)) for k in exact])
    require_law(angles, stats.rayleigh.cdf, sees=0.08)
    assert disturbed(exact, 1.0, name="case")["7"].tolist() == noisy["7"].tolist()
    assert disturbed(exact, 1.0, name="other")["7"].tolist() != noisy["7"].tolist()
    np.testing.assert_allclose(disturbed(exact, 0.0, name="case")["7"], exact["7"], atol=1e-12)
    with pytest.raises(InputError, match="degrees"):
        disturbed(exact, float("nan"), name="case")


def test_seeds_draw_other_lines_and_repeat() -> None:
    place = subject("draws", images=4, points=40)
    first, second, again = (line_views(place, seed=seed)["00"].lines.coefficients for seed in (0, 1, 0))
    assert (first != second).any()
    np.testing.assert_array_equal(first, again)


def test_no_map_is_recorded_with_its_reason() -> None:
    place = subject("few", images=5, points=60)
    run = map_lines(place, seed=0, options=OPTIONS)
    record = run.as_json()
    validate("evaluate-reconstruction", {"runs": [record]})
    assert record["registered"] == 0 and record["position"] is None and not run.succeeded
    assert record["reason"] is not None and "a seed needs 20" in record["reason"]


@pytest.mark.slow
def test_figures_are_drawn(tmp_path: Path) -> None:
    place = subject("figure")
    runs = [map_lines(place, seed=0, options=OPTIONS), map_points(place)]
    draw_maps(tmp_path / "maps.png", runs, {place.name: place.reference})
    draw_curve(tmp_path / "curve.svg", [runs[0], replace(runs[0], gravity_noise_deg=1.0)])
    assert (tmp_path / "maps.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert b"<svg" in (tmp_path / "curve.svg").read_bytes()


def test_alignment_of_centers_is_least_squares() -> None:
    """Inverse pair: poses moved by a known similarity come back; broken by noise, no other similarity does better."""
    random = generator("centers")
    poses = []
    for _ in range(6):
        q, _ = np.linalg.qr(random.normal(size=(3, 3)))
        q *= np.sign(np.linalg.det(q))
        poses.append(Rigid(rotation=q, translation=random.normal(size=3)))
    turn, _ = np.linalg.qr(random.normal(size=(3, 3)))
    turn *= np.sign(np.linalg.det(turn))
    moved = [
        Rigid(rotation=p.rotation @ turn.T, translation=-p.rotation @ turn.T @ (2.5 * turn @ p.center + [1, 2, 3.0]))
        for p in poses
    ]
    alignment = align_centers(poses, moved)
    assert alignment.scale == pytest.approx(2.5)
    for pose, other in zip(poses, moved, strict=True):
        position, rotation = pose_error(pose, other, alignment)
        assert position < 1e-9 and rotation < 1e-6
    assert pairwise_rotation_deg(poses, moved) < 1e-6
    noisy = [Rigid(rotation=p.rotation, translation=p.translation + 0.1 * random.normal(size=3)) for p in moved]
    best = align_centers(poses, noisy)

    def cost(similarity) -> float:
        return sum(float(((similarity.apply(a.center) - b.center) ** 2).sum()) for a, b in zip(poses, noisy, strict=True))

    for _ in range(50):
        near = best.translation + 0.01 * random.normal(size=3)
        trial = replace(best, scale=best.scale * (1 + 0.01 * random.normal()), translation=near)
        assert cost(best) <= cost(trial) + 1e-12
    with pytest.raises(InputError, match="three or more"):
        align_centers(poses[:2], moved[:2])
    errors = ErrorStatistics.of(np.array([1.0, 2.0, 6.0]))
    assert (errors.mean, errors.median, errors.max) == (3.0, 2.0, 6.0)
    assert errors.std == pytest.approx(np.sqrt(14 / 3))
