"""The seed: four planted views from lines alone, and reasons where there is none."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from veil.errors import InputError, RangeError
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import align_poses, pose_error
from veil.places.maps.lines.quad import NoSeed, QuadTracks, Seed, SeedOptions, median_angle_deg, seed_from_quad
from worlds import World, generator, project, world


def rebuilt(name: str, points: np.ndarray, poses: dict[str, Rigid], *, noise_px: float) -> World:
    """Other points or poses in the same camera, all points in all views."""
    place, random = world(name, images=4), generator(f"rebuilt {name}")
    noise = {key: noise_px * random.normal(size=(len(points), 2)) for key in poses}
    keypoints = {key: project(pose, points, place.camera) + noise[key] for key, pose in poses.items()}
    return replace(
        place,
        points=points,
        poses=poses,
        keypoints={key: xy.astype(np.float32) for key, xy in keypoints.items()},
        visible={key: np.arange(len(points)) for key in poses},
    )


def quad(
    name: str, *, wrong: float = 0.0, tilt_deg: float = 0.0, place: World | None = None
) -> tuple[QuadTracks, list[Rigid], World]:
    """Tracks of four views of a world, half of the lines along gravity, a share of tracks with one wrong line.

    Gravity as the views know it is off by `tilt_deg` (standard deviation of each of two axes).
    """
    random = generator(f"quad {name}")
    place = place or world(f"quad {name}", images=4, points=900, noise_px=0.3)
    names = sorted(place.poses)
    shared = sorted(set.intersection(*(set(place.visible[n].tolist()) for n in names)))
    fx, fy, cx, cy = place.camera.params
    lines, aligned, gravity = [], [], []
    for key in names:
        where = {int(p): row for row, p in enumerate(place.visible[key])}
        xy = (place.keypoints[key][[where[p] for p in shared]].astype(np.float64) - [cx, cy]) / [fx, fy]
        bad = random.random(len(xy)) < wrong / 4
        xy[bad] = random.uniform([-0.6, -0.4], [0.6, 0.4], (int(bad.sum()), 2))
        down = place.poses[key].rotation @ [0, 1.0, 0]
        down += np.deg2rad(tilt_deg) * np.cross(down, random.normal(size=3))
        down /= np.linalg.norm(down)
        vertical = random.random(len(xy)) < 0.5
        theta = random.uniform(0, np.pi, len(xy))
        along = np.cross(np.hstack([xy, np.ones((len(xy), 1))]), down)[:, :2]
        normal = np.where(vertical[:, None], along, np.stack([np.cos(theta), np.sin(theta)], axis=1))
        normal /= np.linalg.norm(normal, axis=1, keepdims=True)
        lines.append(np.hstack([normal, -(normal * xy).sum(axis=1, keepdims=True)]))
        aligned.append(vertical)
        gravity.append(down)
    tracks = QuadTracks(
        lines=np.stack(lines, axis=1),
        aligned=np.stack(aligned, axis=1),
        seen=np.ones((len(shared), 4), dtype=bool),
        gravity=np.array(gravity),
        focal_px=np.full(4, fx),
    )
    return tracks, [place.poses[n] for n in names], place


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("index", range(3))
def test_planted_views_are_recovered(index: int) -> None:
    """Oracle: planted truth after similarity alignment, under half a pixel of noise and a fifth of tracks wrong."""
    tracks, truth, _ = quad(f"planted {index}", wrong=0.2)
    seed = seed_from_quad(tracks, SeedOptions(samples=60))
    assert isinstance(seed, Seed)
    alignment = align_poses(list(seed.cam_from_world), truth)
    errors = [pose_error(pose, expected, alignment) for pose, expected in zip(seed.cam_from_world, truth, strict=True)]
    assert max(position for position, _ in errors) < 0.05
    assert max(rotation for _, rotation in errors) < 0.3
    assert seed.inlier_share > 0.7
    assert seed.median_angle_deg > 5


@pytest.mark.slow
def test_the_same_seed_repeats() -> None:
    tracks, _, _ = quad("repeat")
    first, second = (seed_from_quad(tracks, SeedOptions(samples=30)) for _ in range(2))
    assert isinstance(first, Seed) and isinstance(second, Seed)
    for a, b in zip(first.cam_from_world, second.cam_from_world, strict=True):
        np.testing.assert_array_equal(a.rotation, b.rotation)
        np.testing.assert_array_equal(a.translation, b.translation)
    assert first.evidence == second.evidence


def test_wrong_matches_give_no_seed() -> None:
    """Broken twin of a seed that always answers: lines of the views shuffled against each other."""
    tracks, _, _ = quad("shuffled")
    random = generator("shuffle seed")
    order = [random.permutation(len(tracks.lines)) for _ in range(4)]
    mixed = replace(
        tracks,
        lines=np.stack([tracks.lines[o, v] for v, o in enumerate(order)], axis=1),
        aligned=np.stack([tracks.aligned[o, v] for v, o in enumerate(order)], axis=1),
    )
    result = seed_from_quad(mixed, SeedOptions(samples=40))
    assert isinstance(result, NoSeed) or result.inlier_share < 0.3


def test_reasons_say_what_is_missing() -> None:
    tracks, _, _ = quad("reasons")
    result = seed_from_quad(tracks.take(np.arange(30)))
    assert isinstance(result, NoSeed) and "checks of gravity-aligned lines" in result.reason
    all_vertical = replace(tracks, aligned=np.ones_like(tracks.aligned))
    result = seed_from_quad(all_vertical)
    assert isinstance(result, NoSeed) and "partly random" in result.reason
    with pytest.raises(InputError, match="over 4 views"):
        replace(tracks, lines=tracks.lines[:, :3])
    for bad in ({"planar_error_px": 0.0}, {"gravity_sigma_deg": float("nan")}, {"min_tracks": 3}):
        with pytest.raises(RangeError):
            SeedOptions(**bad)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("index", range(2))
def test_noisy_gravity_is_refined(index: int) -> None:
    """Planted truth: readings a degree off on each axis, and rotations that end several times closer than the readings are."""
    tracks, truth, _ = quad(f"tilted {index}", tilt_deg=1.0, wrong=0.2)
    down = np.array([pose.rotation @ [0, 1.0, 0] for pose in truth])
    off = np.degrees(np.arccos(np.clip((down * tracks.gravity).sum(axis=1), -1, 1)))
    assert 0.9 < off.max() < 4
    seed = seed_from_quad(tracks, SeedOptions(samples=150))
    assert isinstance(seed, Seed)
    alignment = align_poses(list(seed.cam_from_world), truth)
    errors = [pose_error(pose, expected, alignment) for pose, expected in zip(seed.cam_from_world, truth, strict=True)]
    assert max(rotation for _, rotation in errors) < 0.25 * off.max()
    assert max(position for position, _ in errors) < 0.04


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("index", range(2))
def test_a_hundred_tracks_are_enough(index: int) -> None:
    """Planted truth: 100 four-view tracks, a third with a wrong line; on average 6 are purely aligned, far fewer than the
    20 that a tensor of all four views would be sampled from, and 31 have three aligned lines."""
    tracks, truth, _ = quad(f"hundred {index}", wrong=0.33)
    rows = generator(f"hundred rows {index}").permutation(len(tracks.lines))[:100]
    few = tracks.take(rows)
    assert few.aligned.all(axis=1).sum() < 20
    seed = seed_from_quad(few)
    assert isinstance(seed, Seed)
    alignment = align_poses(list(seed.cam_from_world), truth)
    errors = [pose_error(pose, expected, alignment) for pose, expected in zip(seed.cam_from_world, truth, strict=True)]
    assert max(position for position, _ in errors) < 0.15
    assert max(rotation for _, rotation in errors) < 1.5


def place_of(kind: str, name: str, noise_px: float) -> World:
    """A deep scene, a flat facade, or a camera that only turns before a deep scene."""
    random = generator(f"{kind} {name}")
    points = random.uniform(-1, 1, (900, 3)) * [2.0, 1.5, 1.0] + [0, 0, 6.0]
    poses = world(name, images=4).poses
    if kind == "facade":
        points[:, 2] = 6 + 0.2 * points[:, 0]
    elif kind == "turn":
        poses = {key: Rigid(rotation=pose.rotation, translation=np.zeros(3)) for key, pose in poses.items()}
    return rebuilt(name, points, poses, noise_px=noise_px)


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("index", range(2))
def test_a_flat_facade_is_called_by_its_name(index: int) -> None:
    """The same noise leaves too little close agreement for the options: only the facade is told that it is flat."""
    reasons = {}
    for kind in ("deep", "facade"):
        tracks, _, _ = quad(f"noisy {index}", place=place_of(kind, f"noisy {index}", 1.0))
        result = seed_from_quad(tracks, SeedOptions(samples=60, min_precise_share=0.99, min_flat_share=0.99))
        assert isinstance(result, NoSeed)
        reasons[kind] = result.reason
    assert "flat facade" in reasons["facade"]
    assert "agree closely" in reasons["deep"]


@pytest.mark.slow
@pytest.mark.usefixtures("unchecked")
def test_a_camera_that_only_turned_gives_no_seed_that_looks_good() -> None:
    """Planted truth: no translation, so nothing to find; where a reason is given it asks whether the camera moved.

    Broken twin: three views at one place agree with any fourth, so a seed that counts the angle to the fourth looks perfect.
    """
    reasons = []
    for index in range(8):
        tracks, _, _ = quad(f"turned {index}", place=place_of("turn", f"turned {index}", 0.3), wrong=0.1 * (index % 2))
        result = seed_from_quad(tracks, SeedOptions(samples=60))
        assert isinstance(result, NoSeed)
        reasons.append("a camera that only turned" in result.reason or "did the camera move" in result.reason)
    assert sum(reasons) >= 7


def test_the_angle_is_that_without_the_view_that_stands_apart() -> None:
    """By hand: cameras at x = 0, 1, 3, 10 and a point at depth 10; without the last one the widest are 0 and 3."""
    poses = [Rigid(rotation=np.eye(3), translation=np.array([-x, 0.0, 0.0])) for x in (0.0, 1.0, 3.0, 10.0)]
    assert median_angle_deg(poses, np.array([[0.0, 0.0, 10.0]])) == pytest.approx(np.degrees(np.arctan2(3, 10)))
    together = [poses[0], poses[0], poses[0], poses[3]]
    assert median_angle_deg(together, np.array([[0.0, 0.0, 10.0]])) == pytest.approx(0, abs=1e-6)
