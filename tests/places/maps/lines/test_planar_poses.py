"""Planar poses of four views: planted ones are among the candidates, and flat scenes are told from deep ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.geometry.solvers.planar import PlanarViews
from veil.places.maps.lines.planar_poses import (
    SCALES,
    PlanarPoses,
    PlanarTracks,
    adjusted_poses,
    first_fixed,
    flat_share,
    lifted,
    planar_poses,
    score_views,
)
from worlds import generator

FOCAL_PX = 600.0
ERROR_PX = 3.0


def views_on_an_arc(random: np.random.Generator, *, moved: bool = True) -> PlanarViews:
    """Four cameras that look at a place six ahead of the first, or one that turns on the spot."""
    angles, translations = [0.0], [np.zeros(2)]
    for turn in random.permutation([-0.35, 0.2, 0.4]) + random.uniform(-0.05, 0.05, 3):
        center = np.array([6 * np.sin(turn), 6 - 6 * np.cos(turn)]) + random.normal(size=2) * 0.8 if moved else np.zeros(2)
        angles.append(turn)
        translations.append(-np.array([[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]) @ center)
    return PlanarViews(angle=np.array(angles), translation=np.array(translations))


def planted(
    name: str, *, depth: float = 1.5, wrong: float = 0.0, noise_px: float = 0.5, moved: bool = True, count: int = 200
) -> tuple[PlanarTracks, PlanarViews]:
    """Tracks of points within `depth` of a slanted wall, each seen by three or four of the views as `given` says."""
    random = generator(f"modes {name}")
    views = views_on_an_arc(random, moved=moved)
    along = random.uniform(-1.5, 1.5, count)
    points = np.stack([along, 6 + 0.4 * along + random.uniform(-depth, depth, count)], axis=1)
    in_camera = views.apply(points)
    x = in_camera[..., 0] / in_camera[..., 1] + random.normal(size=(4, count)) * noise_px / FOCAL_PX
    bad = random.random(count) < wrong
    x[random.integers(0, 4, count)[bad], np.flatnonzero(bad)] = random.uniform(-0.4, 0.4, bad.sum())
    given = np.ones((4, count), dtype=bool)
    three = random.random(count) < 0.4
    given[random.integers(0, 4, count)[three], np.flatnonzero(three)] = False
    return PlanarTracks(x=np.where(given, x, 0.0), given=given, focal_px=np.full(4, FOCAL_PX)), views


def gap(views: PlanarViews, truth: PlanarViews) -> tuple[float, float]:
    """Largest angle in degrees and largest distance of translations, at the scale of `truth`, between two candidates."""
    turn = np.abs(np.angle(np.exp(1j * (views.angle - truth.angle)))).max()
    scale = np.linalg.norm(truth.translation) / np.linalg.norm(views.translation)
    return float(np.degrees(turn)), float(np.linalg.norm(views.translation * scale - truth.translation, axis=1).max())


@pytest.mark.parametrize("index", range(6))
def test_planted_views_are_among_the_candidates(index: int) -> None:
    """Planted truth, up to scale, with a quarter of the tracks wrong; no two candidates are alike, the best is first."""
    tracks, truth = planted(f"planted {index}", wrong=0.25, noise_px=0.1)
    candidates = planar_poses(tracks, error_px=ERROR_PX, samples=80, keep=4, seed=0)
    gaps = [gap(poses.views, truth) for poses in candidates]
    turn, shift = min(gaps)
    assert turn < 0.5 and shift < 0.04
    scores = [poses.score for poses in candidates]
    assert scores == sorted(scores, reverse=True) and len(candidates) <= 4
    best = candidates[gaps.index(min(gaps))]
    assert best.inliers.mean() > 0.7
    for other in candidates:
        assert other is best or gap(other.views, best.views)[0] >= 2


def test_candidates_repeat() -> None:
    tracks, _ = planted("repeat", wrong=0.2)
    first, second = (planar_poses(tracks, error_px=ERROR_PX, samples=30, keep=3, seed=5) for _ in range(2))
    assert [poses.score for poses in first] == [poses.score for poses in second]


def three_at_most(tracks: PlanarTracks, name: str) -> PlanarTracks:
    """Tracks with one of their four lines no longer aligned, in turns: none is purely aligned over all four views."""
    given = tracks.given.copy()
    complete = np.flatnonzero(given.all(axis=0))
    given[generator(name).integers(0, 4, len(complete)), complete] = False
    return replace(tracks, x=np.where(given, tracks.x, 0.0), given=given)


@pytest.mark.slow
@pytest.mark.parametrize("index", range(4))
def test_views_are_found_without_a_track_that_is_aligned_in_all_four(index: int) -> None:
    """Planted truth: 80 tracks of three aligned lines each, a fifth of them wrong; samples of four views would have nothing."""
    tracks, truth = planted(f"threes {index}", wrong=0.2, noise_px=0.1, count=80)
    tracks = three_at_most(tracks, f"threes {index}")
    assert not tracks.given.all(axis=0).any()
    candidates = planar_poses(tracks, error_px=ERROR_PX, samples=100, keep=6, seed=0)
    turn, shift = min(gap(poses.views, truth) for poses in candidates)
    assert turn < 1 and shift < 0.06


def test_too_few_tracks_of_any_three_views_give_no_candidate() -> None:
    """By hand: four tracks of each three views, one fewer than a tensor needs."""
    tracks, _ = planted("few", count=16)
    given = np.ones((4, 16), dtype=bool)
    given[np.arange(16) % 4, np.arange(16)] = False
    assert planar_poses(replace(tracks, given=given), error_px=ERROR_PX, samples=10, keep=2, seed=0) == []


def test_views_in_the_frame_of_the_first_are_the_same_views() -> None:
    """Defining equation: points moved with the frame are seen at the same places."""
    views = views_on_an_arc(generator("frame"))
    turned = PlanarViews(angle=views.angle + 0.3, translation=views.translation + np.array([0.2, -0.1]))
    fixed = first_fixed(turned)
    points = generator("frame points").uniform(-1, 1, (5, 2)) + np.array([0.0, 5.0])
    there = points @ turned.rotation[0].T + turned.translation[0]
    np.testing.assert_allclose(fixed.apply(there), turned.apply(points), atol=1e-12)
    assert fixed.angle[0] == 0 and not fixed.translation[0].any()


def test_scores_weigh_redundant_lines() -> None:
    """By hand: exact tracks of four lines count two, of three one, at each scale; a line that is off costs its track all."""
    tracks, truth = planted("score", noise_px=0.0)
    score, inliers = score_views(truth, tracks, ERROR_PX)
    assert float(score) == pytest.approx(len(SCALES) * (tracks.given.sum(axis=0) - 2).sum(), abs=1e-6) and inliers.all()
    x = tracks.x.copy()
    x[1] += 20 * ERROR_PX / FOCAL_PX
    score, inliers = score_views(truth, replace(tracks, x=x), ERROR_PX)
    np.testing.assert_array_equal(inliers, ~tracks.given[1])
    assert float(score) == pytest.approx(len(SCALES) * inliers.sum(), abs=1e-6)


def test_adjustment_comes_closer_to_the_truth() -> None:
    """Planted truth: a start half a degree off ends where the noise leaves it; points behind the cameras give no candidate."""
    tracks, truth = planted("adjust", noise_px=0.1)
    off = PlanarViews(
        angle=truth.angle + np.deg2rad([0, 0.7, -0.5, 0.6]),
        translation=truth.translation + np.array([[0, 0], [0.05, 0], [0, 0.05], [-0.05, 0]]),
    )
    poses = adjusted_poses(off, tracks, 20.0)
    assert poses is not None
    before, after = gap(off, truth), gap(poses.views, truth)
    assert after[0] < 0.4 * before[0] and after[1] < 0.4 * before[1]
    behind = PlanarViews(angle=truth.angle, translation=-truth.translation)
    assert adjusted_poses(behind, tracks, ERROR_PX) is None


def test_lifted_rotations_turn_about_gravity() -> None:
    """Defining equation: (X, Z) turn as in the plane, and Y stays."""
    views = views_on_an_arc(generator("lifted"))
    point = np.array([0.3, -0.7, 2.0])
    for rotation, planar in zip(lifted(views), views.rotation, strict=True):
        turned = rotation @ point
        np.testing.assert_allclose(turned[[0, 2]], planar @ point[[0, 2]], atol=1e-15)
        assert turned[1] == point[1] and np.linalg.det(rotation) == pytest.approx(1)


def true_poses(tracks: PlanarTracks, views: PlanarViews) -> PlanarPoses:
    score, inliers = score_views(views, tracks, ERROR_PX)
    return PlanarPoses(views=views, inliers=inliers, score=float(score))


@pytest.mark.parametrize(
    ("depth", "moved", "least", "most"),
    [(0.0, True, 1, 1), (0.02, True, 0.98, 1), (0.3, True, 0.01, 0.5), (1.5, True, 0, 0.1), (1.5, False, 1, 1)],
)
@pytest.mark.parametrize("index", range(4))
def test_flat_scenes_and_turns_on_the_spot_are_told_from_deep_scenes(
    depth: float, moved: bool, least: float, most: float, index: int
) -> None:
    """Planted truth: 1D homographies explain points on one wall and pure rotations, not what stands out by a quarter."""
    tracks, views = planted(f"flat {index}", depth=depth, moved=moved)
    everything = replace(true_poses(tracks, views), inliers=np.ones(tracks.x.shape[1], dtype=bool))
    assert least <= flat_share(everything, tracks, ERROR_PX) <= most


@pytest.mark.parametrize("deep_tracks", [0, 15, 30, 60, 100])
def test_the_flat_share_is_that_of_the_wall(deep_tracks: int) -> None:
    """Planted truth: up to a third of the tracks stand out, which pulls a least-squares homography off the wall."""
    tracks, views = planted("wall", depth=0.0, count=300)
    deep, _ = planted("wall", depth=2.0, count=300)
    standing = np.arange(300) < deep_tracks
    mixed = replace(tracks, x=np.where(standing, deep.x, tracks.x), given=tracks.given & deep.given)
    poses = PlanarPoses(views=views, inliers=np.ones(300, dtype=bool), score=0.0)
    expected = 1 - standing[mixed.given.all(axis=0)].mean()
    assert flat_share(poses, mixed, ERROR_PX) == pytest.approx(expected, abs=0.03)


def test_few_tracks_are_not_called_flat() -> None:
    tracks, views = planted("few flat", depth=0.0)
    few = replace(true_poses(tracks, views), inliers=np.arange(200) < 5)
    assert flat_share(few, tracks, ERROR_PX) == 0.0
