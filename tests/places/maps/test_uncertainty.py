"""What noise alone moves in a map: camera centers with focal lengths that are exact, known to some percent, or guesses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.geometry.camera import GUESS
from veil.geometry.rigid import Rigid
from veil.places.maps import check
from veil.places.maps.check import MAX_IMAGE_UNCERTAINTY, MIN_IMAGE_MATCHES, doubtful_images
from veil.places.maps.uncertainty import center_deviations
from veil.places.maps.verification import VerifiedPair
from veil.scene import Scene
from worlds import World, project, world
from worlds.word_worlds import scene_of


def by_differences(scene: Scene, place: World, known: float) -> dict[str, float]:
    """Second method: the pseudoinverse of all of bundle adjustment, with one focal length, by finite differences."""
    names = sorted(scene.images)
    poses = [scene.images[name].cam_from_world for name in names]
    middle = np.array([place.camera.params[2], place.camera.params[3]])

    def residuals(x: np.ndarray) -> np.ndarray:
        cameras, points = x[: 6 * len(names)].reshape(-1, 6), x[6 * len(names) : -1].reshape(-1, 3)
        parts = []
        for name, pose, step in zip(names, poses, cameras, strict=True):
            turn = Rotation.from_rotvec(step[:3]).as_matrix() @ pose.rotation
            at = Rigid(rotation=turn, translation=-turn @ (pose.center + step[3:]))
            shown = project(at, (scene.points + points)[scene.images[name].point_rows], place.camera)
            parts.append(((shown - middle) * math.exp(x[-1])).ravel())
        return np.concatenate([*parts, [x[-1] * 0.5 / known]])  # in units of a noise of half a pixel

    size = 6 * len(names) + 3 * len(scene.points) + 1
    steps = 1e-5 * np.eye(size)
    jacobian = np.stack([(residuals(step) - residuals(-step)) / 2e-5 for step in steps], axis=1)
    spread = 0.5 * np.linalg.pinv(jacobian, rcond=1e-7)[: 6 * len(names)].reshape(len(names), 6, -1)[:, 3:]
    centers = np.array([pose.center for pose in poses])
    away = centers - centers.mean(axis=0)
    columns = [np.tile(axis, len(names)) for axis in np.eye(3)]
    columns += [np.cross(np.tile(axis, (len(names), 1)), away).ravel() for axis in np.eye(3)]
    similar = np.stack([*columns, away.ravel()], axis=1)
    moved = spread.reshape(3 * len(names), -1)
    moved = moved - similar @ np.linalg.lstsq(similar, moved, rcond=None)[0]
    deviations = np.sqrt((moved**2).sum(axis=1).reshape(-1, 3).sum(axis=1)) / np.linalg.norm(np.ptp(centers, axis=0))
    return dict(zip(names, deviations.tolist(), strict=True))


@pytest.mark.parametrize("known", [1e-6, 0.05, GUESS.deviation])
def test_deviations_count_what_is_not_known_of_the_focal_length(known: float) -> None:
    """Second method, to a thousandth; the less is known of the focal length, the more noise moves the cameras."""
    place = world("free focal length", images=5, points=40)
    scene = scene_of(place)
    every = dict.fromkeys(scene.images, known)
    found = center_deviations(scene, every)
    assert found == pytest.approx(by_differences(scene, place, known), rel=1e-3)
    exact = center_deviations(scene)
    if known < 1e-3:
        assert found == pytest.approx(exact, rel=1e-3)
    else:
        assert all(found[name] > 1.01 * exact[name] for name in found)


def test_images_that_the_map_does_not_explain_or_determine_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: one image of six with half of its matches explained, one just above each limit, one that noise moves too far."""
    scene = scene_of(world("doubtful", images=6, points=100))
    names = sorted(scene.images)
    known = dict.fromkeys(names, 0.01)
    entry = VerifiedPair(inliers=np.zeros((40, 2), dtype=np.int64), log10_chance=-100.0)
    pairs = dict.fromkeys(combinations(names, 2), entry)

    def shares(of_first: float) -> Mapping[tuple[str, str], float]:
        return {pair: of_first if names[0] in pair else 1.0 for pair in pairs}

    assert doubtful_images(scene, shares(0.5), pairs, known) == {names[0]: "the map explains 50% of its matches"}
    assert doubtful_images(scene, shares(MIN_IMAGE_MATCHES + 0.01), pairs, known) == {}
    moved = dict.fromkeys(names, 0.9 * MAX_IMAGE_UNCERTAINTY) | {names[2]: 0.12, names[3]: math.inf}
    monkeypatch.setattr(check, "center_deviations", lambda *_: moved)
    assert doubtful_images(scene, shares(1.0), pairs, known) == {
        names[2]: "noise alone moves it by 12% of the map's extent",
        names[3]: "noise alone moves it anywhere",
    }
