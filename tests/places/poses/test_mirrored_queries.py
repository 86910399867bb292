"""Mirrored photographs are refused in every form, with that reason; photographs as they were taken keep their poses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import veil
from veil.codebooks.mirror import mirrored_points, mirrored_words
from veil.extraction.picture import Picture
from veil.forms import Form, Lines, Points
from veil.geometry.camera import Camera, as_colmap
from veil.matching.inverted_index import MIRRORED_SHARES, index_map, mirrored_index
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import localize
from veil.places.poses.by_words import localize_words
from veil.places.poses.mirror import mirrored_keypoints, mirrored_positions
from veil.places.poses.options import PositionOptions, UprightOptions, WordOptions
from veil.places.poses.upright import localize_positions
from worlds import generator, subspaces, world
from worlds.word_worlds import SIFT, dictionary_of, lines_of, scene_of, with_down, words_of

PLACE = world("mirror", points=500)
DOWN = np.array([0, 1.0, 0])
SCENE = with_down(scene_of(PLACE, without="02"), DOWN)
DICTIONARY = dictionary_of(PLACE, others=3000)
VOCABULARY = index_map(SCENE, DICTIONARY)
# Of the features that a camera elsewhere would see, as the mirror image of a symmetric place has them; few beside all.
ACROSS = 70
REASON = "turned over as in a mirror"


def mirrored_photograph() -> tuple[np.ndarray, Points]:
    """Keypoints and descriptors: all of view 02 in a mirror, and some of the map's points as the camera of view 04 saw them."""
    rows = generator("across").permutation(len(PLACE.visible["04"]))[:ACROSS]
    keypoints = [mirrored_keypoints(PLACE.camera, PLACE.keypoints["02"]), PLACE.keypoints["04"][rows]]
    vectors = [mirrored_points(PLACE.form("02")).vectors, PLACE.form("04").vectors[rows]]
    return np.concatenate(keypoints), Points(vectors=np.concatenate(vectors), space=SIFT)


def lines_through(keypoints: np.ndarray, gravity: np.ndarray) -> Lines:
    """Random lines through keypoints of the world's camera."""
    shown = replace(PLACE, keypoints={"02": keypoints})
    return replace(lines_of(shown, "02"), gravity=gravity)


def asked(name: str, keypoints: np.ndarray, points: Points, gravity: np.ndarray) -> Localization | NoPose:
    """The answer to the features in the form of this name."""
    if "words" in name:
        form = words_of(points, DICTIONARY, epsilon=12.0)
        positions = lines_through(keypoints, gravity) if "lines" in name else keypoints
        return localize_words(
            PLACE.camera,
            positions,
            form,
            SCENE,
            VOCABULARY,
            gravity=gravity if "gravity" in name else None,
            options=WordOptions(max_iterations=4000, upright=UprightOptions(samples=60_000, kept=40, refined=8, compared=3)),
        )
    sent: Form = points if name == "raw" else subspaces(generator("sent"), points.vectors, 4, SIFT)
    positions = lines_through(keypoints, gravity) if "lines" in name else keypoints
    return localize(PLACE.camera, positions, sent, SCENE)


@pytest.mark.slow
@pytest.mark.parametrize(
    "form", ["raw", "subspaces", "subspaces with lines", "words", "words with gravity", "words with lines"]
)
def test_what_fits_better_in_a_mirror_is_refused(form: str) -> None:
    """Planted: most features are mirrored, some agree with a camera elsewhere. Control: those alone, which get that pose."""
    keypoints, points = mirrored_photograph()
    gravity = PLACE.poses["04"].rotation @ DOWN
    answer = asked(form, keypoints, points, gravity)
    assert isinstance(answer, NoPose) and REASON in answer.reason, answer
    true = asked(form, PLACE.keypoints["02"], PLACE.form("02"), PLACE.poses["02"].rotation @ DOWN)
    assert isinstance(true, Localization), true
    if "words" not in form:
        rows = np.arange(len(points) - ACROSS, len(points))
        alone = asked(form, keypoints[rows], points.take(rows), gravity)
        assert isinstance(alone, Localization), alone
        assert np.linalg.norm(alone.cam_from_world.center - PLACE.poses["04"].center) < 0.1


@pytest.mark.parametrize("model", ["PINHOLE", "SIMPLE_PINHOLE"])
def test_mirrored_lines_pass_through_mirrored_keypoints(model: str) -> None:
    """Defining property, for a principal point beside the middle: the mirrored keypoint lies on the mirrored line."""
    params = (500.0, 500.0, 300.0, 250.0) if model == "PINHOLE" else (500.0, 300.0, 250.0)
    camera = Camera(model=model, width_px=640, height_px=480, params=params)
    keypoints = (generator("mirrored lines").random((30, 2)) * [640, 480]).astype(np.float32)
    place = replace(PLACE, camera=replace(PLACE.camera, params=(500.0, 500.0, 300.0, 250.0)), keypoints={"02": keypoints})
    lines = lines_of(place, "02")
    turned = mirrored_positions(camera, lines)
    assert isinstance(turned, Lines) and turned.gravity is not None and lines.gravity is not None
    xy = np.asarray(as_colmap(camera).cam_from_img(mirrored_keypoints(camera, keypoints).astype(np.float64)))
    off = (turned.coefficients[:, :2] * xy).sum(axis=1) + turned.coefficients[:, 2]
    assert np.abs(off).max() < 1e-5
    assert np.allclose(turned.gravity, lines.gravity * [-1, 1, 1])


@pytest.mark.slow
def test_positions_that_fit_better_in_a_mirror_are_refused() -> None:
    """Planted: positions of one view in a mirror, and of another view as they are, which a brief search alone would take."""
    keypoints = np.concatenate([mirrored_keypoints(PLACE.camera, PLACE.keypoints["02"]), PLACE.keypoints["01"][:170]])
    brief = PositionOptions(upright=UprightOptions(samples=1_500_000, longer=1, reach=0.25, kept=40, refined=10, compared=3))
    gravity = (PLACE.poses["02"].rotation @ DOWN) * [-1, 1, 1]
    answer = localize_positions(PLACE.camera, keypoints, SCENE, gravity=gravity, near=("01", "03"), options=brief)
    assert isinstance(answer, NoPose), answer
    assert REASON in answer.reason, answer.reason


def test_words_without_a_way_to_mirror_them_are_not_asked() -> None:
    """Null: a dictionary that is not the index's, and one of other descriptors."""
    assert mirrored_index(SCENE, VOCABULARY, dictionary_of(PLACE, others=10, name="another")) is None
    learned = replace(DICTIONARY, descriptor="hardnet")
    assert mirrored_index(SCENE, replace(VOCABULARY, dictionary=learned.digest), learned) is None


def test_a_map_of_words_is_mirrored_by_its_words() -> None:
    """Slow reference: each word's entries are those of the words nearest to its mirror image, by their shares."""
    forms = {name: words_of(PLACE.form(name), DICTIONARY, epsilon=12.0, name=name) for name in PLACE.poses if name != "02"}
    scene = scene_of(PLACE, without="02", forms=forms)
    index = index_map(scene, None)
    turned = mirrored_index(scene, index, DICTIONARY)
    assert turned is not None
    becomes = mirrored_words(DICTIONARY, len(MIRRORED_SHARES))
    for word in (0, 7, 100, 999):
        expected: dict[int, float] = {}
        for other, share in zip(becomes[word].tolist(), MIRRORED_SHARES, strict=True):
            entries = range(index.offsets[other], index.offsets[other + 1])
            for entry in entries:
                point = int(index.point_rows[entry])
                expected[point] = expected.get(point, 0.0) + share * float(index.probability[entry])
        mine = range(turned.offsets[word], turned.offsets[word + 1])
        actual = {int(turned.point_rows[entry]): float(turned.probability[entry]) for entry in mine}
        assert actual == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_a_mirrored_photograph_of_the_door_gets_no_pose(tmp_path: Path) -> None:
    """Null: no camera saw the mirror image. The door is nearly symmetric, and has got poses across its axis in both forms."""
    options = veil.SiftOptions(max_features=1500)
    with veil.lund_door() as place:
        paths = sorted(place.folder.glob("*.jpg"))
        pictures = {path.name: veil.read_picture(path, camera=place.camera) for path in paths}
    mapped = {name: veil.extract(picture, options=options) for name, picture in list(pictures.items())[::2]}
    built = veil.map_images(mapped)
    assert isinstance(built, veil.BuiltMap)
    device = veil.Device(tmp_path)
    for name, picture in list(pictures.items())[1:6:2]:
        assert picture.rgb is not None
        turned = Picture.of(np.ascontiguousarray(picture.rgb[:, ::-1]), camera=picture.camera)
        for one, is_mirrored in ((picture, False), (turned, True)):
            features = veil.extract(one, options=options)
            message = veil.decode(device.release(features, name=f"{name} {is_mirrored}", purpose="map").message)
            for query in (features, message):
                answer = veil.localize(query, built.map)
                assert isinstance(answer, veil.NoPose) == is_mirrored, (name, is_mirrored, answer)
