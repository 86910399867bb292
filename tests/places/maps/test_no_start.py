"""Reasons for no map where the camera did not move, two images are all, or words are of another place: planted cameras."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.geometry.camera import GUESS, guessed
from veil.geometry.rigid import Rigid
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.places.maps import MapImage, NoMap, build_map
from veil.scene import Scene
from worlds import generator, project, world
from worlds.word_worlds import dictionary_of, words_of


def images_from(name: str, poses: dict[str, Rigid]) -> dict[str, MapImage]:
    """Images of a planted cloud by cameras at `poses`, with noise of 0.3 px and SIFT-like descriptors that change a little."""
    place, random = world(name), generator(f"{name} seen")
    images = {}
    for key, pose in poses.items():
        xy = project(pose, place.points, place.camera)
        inside = np.flatnonzero(((xy > 2) & (xy < [638, 478])).all(axis=1))
        form = replace(place.form("00"), vectors=place.descriptors[inside].astype(np.float32))
        keypoints = (xy[inside] + 0.3 * random.normal(size=(len(inside), 2))).astype(np.float32)
        images[key] = MapImage(camera=place.camera, keypoints=keypoints, form=form)
    return images


def turned(*angles_deg: float) -> dict[str, Rigid]:
    """Cameras at one center that turn about their vertical axes."""
    poses = {}
    for number, angle in enumerate(np.radians(angles_deg)):
        rotation = np.array([[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]])
        poses[f"{number}"] = Rigid(rotation=rotation, translation=np.zeros(3))
    return poses


def answer(images: dict[str, MapImage], workdir: Path) -> NoMap:
    matches = match_pairs({name: image.form for name, image in images.items()}, all_pairs(sorted(images)))
    built = build_map(images, matches, workdir=workdir)
    assert isinstance(built, NoMap)
    return built


@pytest.mark.parametrize("focal_is_known", [True, False])
def test_a_camera_that_only_turned_is_named(focal_is_known: bool, tmp_path: Path) -> None:
    """Oracle: planted turns of 3 degrees about one center, so that two images differ by 6 degrees at most."""
    images = images_from("turned", turned(-3, 0, 3))
    if not focal_is_known:
        camera = replace(guessed(640, 480), focal=GUESS)
        images = {name: image.with_camera(camera) for name, image in images.items()}
    refusal = answer(images, tmp_path)
    assert "the camera only turned" in refusal.reason
    assert "in 3 of 3 verified pairs" in refusal.reason
    if focal_is_known:
        assert "by up to 6 degrees" in refusal.reason
    assert [remedy.object for remedy in refusal.remedy] == ["photographs from several standpoints"]


def test_a_camera_that_stood_still_is_named(tmp_path: Path) -> None:
    """Oracle: one planted pose, seen three times with noise of 0.3 px on each side: the median shift is 0.5 px."""
    refusal = answer(images_from("still", turned(0, 0, 0)), tmp_path)
    assert "the camera stood still" in refusal.reason
    assert "0.5 px apart" in refusal.reason


def test_two_images_are_too_few_and_are_told_apart_from_strangers(tmp_path: Path) -> None:
    """Oracle: planted cameras 8 degrees apart on an arc share all points; cameras of another cloud share none."""
    poses = world("two").poses
    two = {key: poses[key] for key in ("02", "03")}
    (tmp_path / "two").mkdir()
    refusal = answer(images_from("two", two), tmp_path / "two")
    assert "needs three images or more" in refusal.reason
    assert "turned" not in refusal.reason
    strangers = {"02": images_from("two", two)["02"], "other": images_from("elsewhere", two)["03"]}
    (tmp_path / "strangers").mkdir()
    assert "share no more matches than chance" in answer(strangers, tmp_path / "strangers").reason


@pytest.mark.slow
@pytest.mark.parametrize("is_own", [True, False])
def test_words_of_the_place_map_where_words_of_another_do_not(is_own: bool, tmp_path: Path) -> None:
    """Oracle: both laws send the true word equally often, but only words of the place are the same in two views of a point."""
    place = world("words of a place", images=4)
    dictionary = dictionary_of(place if is_own else world("another place", images=4), others=700)
    images = {
        name: MapImage(
            camera=place.camera,
            keypoints=place.keypoints[name],
            form=words_of(place.form(name), dictionary, epsilon=10.0, name=name),
        )
        for name in place.poses
    }
    matches = match_pairs({name: image.form for name, image in images.items()}, all_pairs(sorted(images)))
    built = build_map(images, matches, workdir=tmp_path)
    if is_own:
        assert isinstance(built, Scene) and set(built.images) == set(images)
    else:
        assert isinstance(built, NoMap)
        assert "dictionary of the place" in [remedy.object for remedy in built.remedy]
