"""What noise alone moves in a map: camera centers with focal lengths that are exact, known to some percent, or guesses."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.geometry.camera import GUESS
from veil.geometry.rigid import Rigid
from veil.places.maps import check, uncertainty
from veil.places.maps.check import MAX_IMAGE_UNCERTAINTY, MIN_IMAGE_MATCHES, OPEN_FOCAL, doubtful_images
from veil.places.maps.uncertainty import center_deviations, open_focals
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


def doubts_of(scene: Scene, wrong: set[str], share: float = 0.0, others: float = 1.0) -> dict[str, str]:
    """Doubts about images of whose pairs the map explains a share; pairs with a `wrong` image are explained to `share`."""
    entry = VerifiedPair(inliers=np.zeros((40, 2), dtype=np.int64), log10_chance=-100.0)
    pairs = dict.fromkeys(combinations(sorted(scene.images), 2), entry)
    shares = {pair: share if wrong & {*pair} else others for pair in pairs}
    return doubtful_images(scene, shares, pairs, dict.fromkeys(scene.images, 0.01))


@pytest.mark.parametrize(("images", "wrong"), [(4, 1), (6, 1), (8, 2), (12, 3)])
def test_the_images_that_the_map_does_not_explain_are_named_and_not_their_partners(images: int, wrong: int) -> None:
    """By hand: each image has a pair with every other one, and nothing of the pairs of some is explained."""
    scene = scene_of(world(f"doubtful {images}", images=images, points=100))
    names = set(sorted(scene.images)[:wrong])
    doubts = doubts_of(scene, names)
    assert set(doubts) == names and min(doubts.values()) == "the map explains 0% of its matches"
    assert doubts_of(scene, names, share=MIN_IMAGE_MATCHES + 0.01) == {}
    # Where no image is worse than the others none is doubtful, however little is explained.
    assert doubts_of(scene, names, share=0.71, others=0.72) == {}


def test_images_that_noise_moves_far_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: just below and above the limit, and everything free."""
    scene = scene_of(world("doubtful 6", images=6, points=100))
    names = sorted(scene.images)
    below = dict.fromkeys(names, 0.9 * MAX_IMAGE_UNCERTAINTY)
    monkeypatch.setattr(check, "center_deviations", lambda *_: below | {names[2]: 0.12})
    assert doubts_of(scene, set()) == {names[2]: "noise alone moves it by 12% of the map's extent"}
    monkeypatch.setattr(check, "center_deviations", lambda *_: dict.fromkeys(names, math.inf))
    assert doubts_of(scene, set()) == {}


def test_a_sample_of_many_points_keeps_the_images_that_have_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Second method: all points. A sample of a tenth gives deviations within a third; one image has 12 points alone."""
    scene = scene_of(world("sampled", images=6, points=3000))
    names = sorted(scene.images)
    few = np.linspace(0, len(scene.images[names[0]].point_rows) - 1, 12).astype(int)
    image = scene.images[names[0]]
    less = replace(image, keypoints=image.keypoints[few], point_rows=image.point_rows[few], form=image.form.take(few))
    scene = replace(scene, images={**scene.images, names[0]: less})
    known = dict.fromkeys(names, 0.05)
    exact = center_deviations(scene, known)
    monkeypatch.setattr(uncertainty, "MAX_POINTS", 300)
    found = center_deviations(scene, known)
    assert math.isfinite(exact[names[0]])
    assert found == pytest.approx(exact, rel=1 / 3)


def test_an_image_without_points_is_free_and_no_error() -> None:
    """By hand: its center may be anywhere, and so may the others relative to it."""
    scene = scene_of(world("no points", images=4, points=60))
    last = max(scene.images)
    none = np.zeros(0, dtype=int)
    image = scene.images[last]
    less = replace(image, keypoints=image.keypoints[none], point_rows=image.point_rows[none], form=image.form.take(none))
    scene = replace(scene, images={**scene.images, last: less})
    for known in (None, dict.fromkeys(scene.images, 0.05)):
        assert set(center_deviations(scene, known).values()) == {math.inf}


def affine(scene: Scene, place: World, name: str) -> Scene:
    """The scene with one image taken from two hundred times as far, with as much longer a lens, of what it showed before."""
    image = scene.images[name]
    rotation, center = image.cam_from_world.rotation, image.cam_from_world.center
    depth = float(np.median(image.cam_from_world.apply(scene.points[image.point_rows])[:, 2]))
    far = Rigid(rotation=rotation, translation=-rotation @ (center - 199 * depth * rotation[2]))
    camera = replace(place.camera, params=(200 * place.camera.params[0], *place.camera.params[1:]))
    shown = project(far, scene.points[image.point_rows], camera).astype(np.float32)
    changed = replace(image, camera=camera, cam_from_world=far, keypoints=shown)
    return replace(scene, images={**scene.images, name: changed})


def test_an_affine_camera_has_no_focal_length() -> None:
    """Hartley and Zisserman (2004), Sec. 6.3: rays that are parallel tell no focal length. It is named where it was a guess."""
    place = world("open focal", images=6, points=200)
    scene = scene_of(place)
    names = sorted(scene.images)
    guessed = dict.fromkeys(names, GUESS.deviation)
    assert open_focals(scene, guessed) == frozenset()
    far = affine(scene, place, names[2])
    assert open_focals(far, guessed) == {names[2]}
    assert open_focals(far, guessed | {names[2]: 0.05}) == frozenset()
    for name in names:
        scene = affine(scene, place, name)
    assert len({image.camera for image in scene.images.values()}) == 1
    assert open_focals(scene, guessed) == frozenset()  # of one camera, all stand off together


def test_an_image_of_an_open_focal_length_is_doubtful_however_little_noise_moves_it() -> None:
    """By hand: it stands so far off that the others, and itself, move by nothing of the extent of the centers."""
    place = world("open focal", images=6, points=200)
    name = min(place.poses)
    scene = affine(scene_of(place), place, name)
    known = dict.fromkeys(scene.images, GUESS.deviation)
    assert max(center_deviations(scene, known).values()) < MAX_IMAGE_UNCERTAINTY
    assert doubtful_images(scene, {}, {}, known) == {name: OPEN_FOCAL}
