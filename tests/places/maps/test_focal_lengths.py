"""Focal lengths of maps: planted ones are recovered, wrong claims are named, and undetermined ones are not touched."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from veil.cli.common import say_focals, say_vague
from veil.forms import Points
from veil.geometry.camera import FROM_EXIF, GIVEN, GUESS, UNDISCLOSED, Camera, FocalPrior
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import align_poses, pose_error
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.places.maps import MapImage, NoMap, build_map
from veil.places.maps.agreement import seen_by_map
from veil.places.maps.check import rotation_disagreement
from veil.places.maps.focal import Doubted, FocalTest, contradicted_focals, focal_test, with_freed
from veil.places.maps.growth import grow_map
from veil.places.maps.points import _is_clearer
from veil.places.maps.scenes import restricted
from veil.places.maps.uncertainty import known_lenses
from veil.places.maps.verification import VerifiedPair
from veil.scene import ContradictedFocal, MapCheck, Scene
from worlds import World, generator, project, world
from worlds.map_scenes import CHECK
from worlds.word_worlds import scene_of

FOCAL_PX = 500.0  # of the planted cameras


def scaled(camera: Camera, factor: float, focal: FocalPrior) -> Camera:
    fx, fy, cx, cy = camera.params
    return replace(camera, params=(factor * fx, factor * fy, cx, cy), focal=focal)


def claiming(place: World, factor: float, focal: FocalPrior) -> dict[str, MapImage]:
    """Images of a world that claim `factor` times the planted focal length."""
    camera = scaled(place.camera, factor, focal)
    return {name: MapImage(camera=camera, keypoints=place.keypoints[name], form=place.form(name)) for name in place.poses}


def mapped(images: dict[str, MapImage], workdir: Path) -> Scene | NoMap:
    forms = {name: image.form for name, image in images.items()}
    return build_map(images, match_pairs(forms, all_pairs(sorted(forms))), workdir=workdir)


def require_planted(scene: Scene | NoMap, place: World, *, least: float = 0.02) -> Scene:
    """The map, whose cameras are the planted ones: within 2 % of focal length and extent, and 1 degree."""
    assert isinstance(scene, Scene)
    names = sorted(scene.images)
    assert set(names) == set(place.poses)
    for name in names:
        assert scene.images[name].camera.focal_px == pytest.approx(FOCAL_PX, rel=least)
    alignment = align_poses([scene.images[n].cam_from_world for n in names], [place.poses[n] for n in names])
    extent = np.linalg.norm(np.ptp([place.poses[n].center for n in names], axis=0))
    for name in names:
        position, rotation = pose_error(scene.images[name].cam_from_world, place.poses[name], alignment)
        assert position < 0.02 * extent and rotation < 1
    return scene


@pytest.mark.slow
def test_a_map_of_guessed_focal_lengths_is_no_farther_from_its_pairs_than_its_own_cameras_say(tmp_path: Path) -> None:
    """Oracle: planted cameras; the guess is 1.8 times too long, and with it pairs turn by a third of the truth."""
    place = world("guess", points=400)
    scene = require_planted(mapped(claiming(place, 1.8, GUESS), tmp_path), place)
    assert scene.check is not None and scene.check.rotation_deg is not None and scene.check.rotation_deg < 1
    assert not scene.check.contradicted_focals


def test_pairs_turn_as_the_cameras_of_the_map_say() -> None:
    """Oracle: planted rotations. The pairs' own are 12 degrees off, as under a wrong guess: broken without the map."""
    place = world("turns")
    scene = scene_of(place)
    images = claiming(place, 1.8, GUESS)
    pairs = {}
    for a, b in combinations(sorted(place.poses), 2):
        _, rows, columns = np.intersect1d(place.visible[a], place.visible[b], return_indices=True)
        wrong = turned(scene, a, b, np.radians(12))
        pairs[a, b] = VerifiedPair(inliers=np.stack([rows, columns], axis=1), log10_chance=-100.0, rotation=wrong)
    before = rotation_disagreement(scene, pairs)
    assert before is not None and before > 10
    after = rotation_disagreement(scene, seen_by_map(scene, images, pairs, seed=0))
    assert after is not None and after < 0.5
    same = {name: replace(image, camera=scene.images[name].camera) for name, image in images.items()}
    assert seen_by_map(scene, same, pairs, seed=0) == pairs


def turned(scene: Scene, a: str, b: str, angle: float) -> np.ndarray:
    """The rotation b_from_a of a map, turned by an angle about the vertical axis."""
    turn = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
    return turn @ scene.images[b].cam_from_world.rotation @ scene.images[a].cam_from_world.rotation.T


@pytest.mark.slow
@pytest.mark.parametrize(
    ("factor", "focal"),
    [(0.7, FROM_EXIF), (0.7, UNDISCLOSED), (0.85, GIVEN), (1.2, GIVEN), (1.5, GIVEN)],
    ids=["crop", "crop in a message", "short", "long", "very long"],
)
def test_a_wrong_focal_length_is_named_and_freed(factor: float, focal: FocalPrior, tmp_path: Path) -> None:
    """Oracle: planted cameras; all images claim one focal length that is wrong."""
    place = world("claims", points=400)
    scene = require_planted(mapped(claiming(place, factor, focal), tmp_path), place)
    assert scene.check is not None
    (claim,) = scene.check.contradicted_focals
    assert claim.images == len(place.poses) and claim.given_px == pytest.approx(factor * FOCAL_PX)
    assert claim.refined_px == pytest.approx(FOCAL_PX, rel=0.02)
    assert "6 images" in claim.described() and claim.described() in scene.check.described()
    assert MapCheck.from_json(scene.check.as_json()) == scene.check


@pytest.mark.slow
def test_a_focal_length_within_its_deviation_is_refined_and_a_surer_one_is_held(tmp_path: Path) -> None:
    """Oracle: planted cameras; EXIF is 6 % off, as some percent are usual, and what the user gives is exact."""
    place = world("refined", points=400)
    for name, factor, focal in (("exif", 1.06, FROM_EXIF), ("given", 1.0, GIVEN)):
        (tmp_path / name).mkdir()
        scene = require_planted(mapped(claiming(place, factor, focal), tmp_path / name), place)
        assert scene.check is not None and not scene.check.contradicted_focals
        assert (scene.images["00"].camera.params == place.camera.params) == (focal == GIVEN)


def facade(name: str, *, noise_px: float = 0.3) -> World:
    """A plane in front of cameras that move along it without turning: any focal length explains it, with another depth."""
    place = world(name, points=400)
    random = generator(name)
    cloud = np.concatenate([random.uniform(-2, 2, (400, 2)), np.full((400, 1), 6.0)], axis=1)
    poses, keypoints, visible = {}, {}, {}
    for index in range(6):
        pose = Rigid(rotation=np.eye(3), translation=np.array([0.5 - 0.2 * index, 0.1 * (index % 2), 0.0]))
        xy = project(pose, cloud, place.camera)
        inside = ((xy > 0) & (xy < [640, 480])).all(axis=1)
        key = f"{index:02d}"
        poses[key], visible[key] = pose, np.flatnonzero(inside)
        keypoints[key] = (xy[inside] + noise_px * random.normal(size=(int(inside.sum()), 2))).astype(np.float32)
    return replace(place, points=cloud, poses=poses, keypoints=keypoints, visible=visible)


@pytest.mark.parametrize("factor", [0.8, 1.25])
def test_what_the_photographs_do_not_determine_is_not_contradicted(factor: float) -> None:
    """Oracle: a plane along which cameras move fixes no focal length, so that a map's of another one says nothing."""
    place = facade("facade")
    scene = scene_of(place)
    other = replace(
        scene,
        images={n: replace(i, camera=scaled(i.camera, factor, GIVEN)) for n, i in scene.images.items()},
        points=scene.points * [1, 1, factor],
    )
    assert min(lens.focal for lens in known_lenses(other).values()) > 0.1
    test = focal_test(other, claiming(place, 1.0, FROM_EXIF))
    assert not test.freed and not test.refined
    assert set(test.doubted) == {scaled(place.camera, 1.0, FROM_EXIF)}
    assert not next(iter(test.doubted.values())).focal_is_known
    # The same change in a place with depth is a contradiction.
    deep = world("deep", points=400)
    wrong = scene_of(deep)
    wrong = replace(wrong, images={n: replace(i, camera=scaled(i.camera, factor, GIVEN)) for n, i in wrong.images.items()})
    test = focal_test(wrong, claiming(deep, 1.0, FROM_EXIF))
    assert len(test.freed) == 1 and not next(iter(test.freed.values())).focal_is_known


@pytest.mark.parametrize("origin", [FROM_EXIF, GIVEN, UNDISCLOSED])
@pytest.mark.parametrize("wrong", [1, 5])
def test_claims_that_cannot_be_tested_are_believed_as_far_as_the_others_are(wrong: int, origin: FocalPrior) -> None:
    """By hand: of seven cameras one has too few observations; one of the others claims too much, or five of six do."""
    deep = world("believed", images=7, points=400)
    scene, factors = scene_of(deep), dict.fromkeys(sorted(deep.poses), 1.0)
    names = sorted(factors)
    mapped = {
        name: replace(image, camera=scaled(image.camera, 1 + 1e-6 * row, GIVEN))  # no two are one camera
        for row, (name, image) in enumerate(sorted(scene.images.items()))
    }
    few, last = np.arange(20), names[-1]
    mapped[last] = replace(
        mapped[last],
        keypoints=mapped[last].keypoints[few],
        point_rows=mapped[last].point_rows[few],
        form=mapped[last].form.take(few),
    )
    claims = {name: scaled(mapped[name].camera, 1.4 if name in names[:wrong] else 1.0, origin) for name in names}
    images = {name: image.with_camera(claims[name]) for name, image in claiming(deep, 1.0, origin).items()}
    test = focal_test(replace(scene, images=mapped), images)
    assert {claims[name] for name in names[:wrong]} <= set(test.freed)
    assert (claims[last] in test.freed) == (wrong > 1)
    assert not {claims[name] for name in names[wrong:-1]} & set(test.freed)
    assert test.untested == ({claims[last]} if wrong > 1 else set())


def test_a_claim_that_is_not_believed_is_told_apart_from_a_contradicted_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Planted answers: one map frees both cameras, of which it tested one. Told are the images, the reason and the remedy."""
    place = world("told apart", points=40, images=4)
    images, names = claiming(place, 1.4, FROM_EXIF), sorted(place.poses)
    few = scaled(images[names[0]].camera, 1 + 1e-6, FROM_EXIF)
    images[names[-1]] = images[names[-1]].with_camera(few)
    freed = {image.camera: replace(image.camera, focal=GUESS) for image in images.values()}

    def once(images: Mapping[str, MapImage], folder: Path) -> FocalTest | Doubted[str]:
        is_known = images[names[0]].camera.focal_is_known
        return FocalTest(freed=freed, untested=frozenset({few})) if is_known else Doubted(answer="map")

    last = with_freed(images, tmp_path, once, lambda new, old: True)
    assert last.untested == {names[-1]}
    mapped = scene_of(place).images
    contradicted, unbelieved = contradicted_focals(last.claimed, last.images, mapped, last.untested)
    assert contradicted.names == tuple(names[:-1]) and not contradicted.untested
    assert unbelieved.names == (names[-1],) and unbelieved.untested and "which nothing there tests" in unbelieved.described()
    for focal in (contradicted, unbelieved):
        assert ContradictedFocal.from_json(json.loads(json.dumps(focal.as_json()))) == focal
    assert ContradictedFocal.from_json({"images": 3, "given_px": 700.0, "refined_px": 500.0}).names == ()
    say_focals(argparse.Namespace(json=None), (contradicted, unbelieved))
    one, other = capsys.readouterr().out.splitlines()
    assert one == (
        f"note: {', '.join(names[:-1])}: the map contradicts the focal length of 700 px, as after a crop or a zoom; it is "
        "500 px in the map; extract the photograph with its camera (`veil extract --camera`)"
    )
    assert other == (
        f"note: {names[-1]}: the map cannot test the focal length of 700 px. More images contradict theirs than confirm it, "
        "so it was not believed and is 500 px in the map; extract the others with their cameras (`veil extract --camera`)"
    )


@pytest.mark.parametrize("second_is_clearer", [True, False])
def test_a_doubted_map_is_made_again_and_the_clearer_one_is_taken(second_is_clearer: bool, tmp_path: Path) -> None:
    """Oracle: planted answers. The first map doubts its cameras, and the second one is made without them.

    It is taken with the cameras that it contradicted; if it is not clearer, the first map is, and contradicts nothing.
    """
    place = world("doubted", points=40, images=4)
    images = claiming(place, 2.0, FROM_EXIF)
    claimed = images["00"].camera
    freed = scaled(claimed, 0.5, GUESS)
    asked: list[Camera] = []

    def once(images: Mapping[str, MapImage], folder: Path) -> FocalTest | Doubted[str]:
        asked.append(images["00"].camera)
        return Doubted(answer="second") if len(asked) > 1 else Doubted(answer="first", cameras={claimed: freed})

    last = with_freed(images, tmp_path, once, lambda new, old: (new, old) == ("second", "first") and second_is_clearer)
    assert asked == [claimed, freed]
    assert last.answer == ("second" if second_is_clearer else "first")
    assert last.images["00"].camera == (freed if second_is_clearer else claimed)
    assert last.claimed == (dict.fromkeys(images, claimed) if second_is_clearer else {})


def test_of_two_maps_the_clearer_one_has_more_observations_and_a_smaller_error() -> None:
    """By hand: a map of half of the error is clearer, one with fewer points or nearly the same error is not."""
    scene = scene_of(world("clearer", points=40, images=4))
    precise = replace(scene, mean_reprojection_error_px=0.5 * scene.mean_reprojection_error_px)
    fewer = restricted(scene, frozenset(sorted(scene.images)[:3]))
    assert fewer is not None
    assert _is_clearer(precise, fewer) and not _is_clearer(fewer, precise)
    assert not _is_clearer(scene, fewer)
    assert _is_clearer(scene, NoMap("none")) and not _is_clearer(NoMap("none"), scene)


def test_the_deviation_of_a_focal_length_is_that_of_all_unknowns() -> None:
    """Oracle: the Jacobian of all poses, points and the focal length by finite differences; the gauge is left free."""
    place = world("deviation", points=40, images=4)
    scene = scene_of(place)
    names = sorted(scene.images)
    zeros = np.zeros(1 + 6 * len(names) + 3 * len(scene.points))

    def pixels(unknowns: np.ndarray) -> np.ndarray:
        points = scene.points + unknowns[1 + 6 * len(names) :].reshape(-1, 3)
        parts = []
        for index, name in enumerate(names):
            image = scene.images[name]
            turn, shift = np.split(unknowns[1 + 6 * index : 7 + 6 * index], 2)
            cross = np.array([[0, -turn[2], turn[1]], [turn[2], 0, -turn[0]], [-turn[1], turn[0], 0]])
            at = image.cam_from_world.apply(points[image.point_rows]) @ (np.eye(3) + cross).T + shift
            parts.append((FOCAL_PX * np.exp(unknowns[0]) * at[:, :2] / at[:, 2:]).ravel())
        return np.concatenate(parts)

    step = 1e-6
    jacobian = np.stack(
        [(pixels(zeros + step * e) - pixels(zeros - step * e)) / (2 * step) for e in np.eye(len(zeros))], axis=1
    )
    rest = jacobian[:, 1:]
    alone = jacobian[:, 0] - rest @ np.linalg.lstsq(rest, jacobian[:, 0], rcond=1e-9)[0]
    noise = max(0.5, scene.mean_reprojection_error_px)
    (lens,) = known_lenses(scene).values()
    assert lens.formal_focal == pytest.approx(noise / np.linalg.norm(alone), rel=0.02)


@pytest.mark.slow
def test_the_check_says_how_well_focal_lengths_are_known(tmp_path: Path) -> None:
    """Oracle: depth fixes guessed focal lengths to some percent; a plane along which cameras move leaves them as guesses."""
    known = {}
    for name, place in (("deep", world("guess", points=400)), ("facade", facade("facade", noise_px=0.1))):
        (tmp_path / name).mkdir()
        scene = mapped(claiming(place, 1.3, GUESS), tmp_path / name)
        assert isinstance(scene, Scene) and scene.check is not None and scene.check.focal_deviation is not None
        known[name] = scene.check.focal_deviation
    assert 0.01 <= known["deep"] < 0.05 and 0.3 < known["facade"] <= GUESS.deviation


@pytest.mark.slow
def test_a_map_that_grows_frees_the_focal_length_of_a_new_image(tmp_path: Path) -> None:
    """Oracle: planted cameras; the new images claim a focal length 1.5 times too long, the map's are right."""
    place = world("growing", points=400)
    names = sorted(place.poses)
    old = {name: image for name, image in claiming(place, 1.0, GIVEN).items() if name not in names[-2:]}
    new = {name: image for name, image in claiming(place, 1.5, FROM_EXIF).items() if name in names[-2:]}
    (tmp_path / "old").mkdir()
    base = mapped(old, tmp_path / "old")
    assert isinstance(base, Scene)
    forms = {n: i.form for n, i in base.images.items()} | {n: i.form for n, i in new.items()}
    pairs = [pair for pair in all_pairs(sorted(forms)) if {*pair} & new.keys()]
    grown = grow_map(base, new, match_pairs(forms, pairs), workdir=tmp_path)
    scene = require_planted(grown, place)
    assert scene.check is not None
    (claim,) = scene.check.contradicted_focals
    assert claim.images == 2 and claim.given_px == pytest.approx(1.5 * FOCAL_PX)
    assert isinstance(scene.images[names[0]].form, Points)


def test_a_map_that_knows_its_positions_badly_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    """The note names how badly, and what to do; a map that knows them well has none."""
    say_vague(argparse.Namespace(json=None), replace(CHECK, uncertainty=0.02))
    assert capsys.readouterr().out == ""
    say_vague(argparse.Namespace(json=None), replace(CHECK, uncertainty=0.027))
    said = capsys.readouterr().out
    assert "note: camera positions of this map are known to 2.7% of their extent" in said and "--camera" in said
