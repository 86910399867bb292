"""Images that no pair brought into a map: those with a pose in it are added, and what looks alike in two maps is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.errors import SpaceError
from veil.forms import Subsets
from veil.matching import Matches
from veil.places import located_images
from veil.places.held_map import Map
from veil.places.located_images import _maps_to_try, matches_of_poses, with_located
from veil.places.maps import MapImage, MapOptions
from veil.places.maps.check import TOO_FEW
from veil.places.maps.scenes import restricted
from veil.places.pairs.images import LoadedImage
from veil.scene import Scene
from worlds import World, generator, subspaces, world
from worlds.map_scenes import CHECK, image_name, planted_map

NEW = ("02", "05")


def image(place: World, key: str) -> LoadedImage:
    """All features of a view in subspaces, also those of points that the map does not have."""
    form = subspaces(generator(f"more {key}"), place.form(key).vectors, 2, place.form(key).space)
    return LoadedImage(camera=place.camera, positions=place.keypoints[key], form=form)


def placed(images: dict[str, LoadedImage]) -> dict[str, MapImage]:
    located = {}
    for name, item in images.items():
        assert isinstance(item.positions, np.ndarray)
        located[name] = MapImage(camera=item.camera, keypoints=item.positions, form=item.form)
    return located


def without(scene: Scene, keys: tuple[str, ...]) -> Scene:
    left = restricted(scene, frozenset(set(scene.images) - {image_name(key) for key in keys}))
    assert left is not None
    return left


def looked_for(
    maps: list[Scene], images: dict[str, LoadedImage], workdir: Path, reasons: dict[str, str] | None = None
) -> tuple[Scene, ...]:
    located = [Map(scene=scene) for scene in maps]
    return with_located(located, images, placed(images), {}, reasons=reasons or {}, workdir=workdir, options=MapOptions())


def matches(count: int) -> Matches:
    return Matches(indices=np.zeros((count, 2), dtype=np.int64), distances=np.zeros(count), ratios=np.zeros(count))


@pytest.mark.slow
def test_images_with_a_pose_are_added_where_they_were_planted(tmp_path: Path) -> None:
    """Oracle: planted truth in the map's own frame. Nothing was matched, and a foreign image stays out."""
    scene, place = planted_map("located", "subspaces", images=7, points=200)
    new = {image_name(key): image(place, key) for key in NEW}
    new["foreign"] = replace(image(world("elsewhere", points=200), "01"), camera=place.camera)
    base = replace(without(scene, NEW), check=replace(CHECK, left_out=dict.fromkeys(new, TOO_FEW)))
    (located,) = looked_for([base], new, tmp_path)
    assert set(located.images) == set(scene.images)
    for key in NEW:
        added = located.images[image_name(key)]
        assert np.linalg.norm(added.cam_from_world.center - place.poses[key].center) < 0.02
        where = {tuple(xy): row for row, xy in enumerate(place.keypoints[key].tolist())}
        planted = place.points[place.visible[key][[where[tuple(xy)] for xy in added.keypoints.tolist()]]]
        assert len(planted) > 60 and np.quantile(np.linalg.norm(located.points[added.point_rows] - planted, axis=1), 0.9) < 0.1
    assert located.check is not None and set(located.check.left_out) == {"foreign"}


@pytest.mark.slow
def test_an_image_with_a_pose_in_two_maps_is_in_neither(tmp_path: Path) -> None:
    """Broken twin: in one of the maps alone it would be added; both show the same, as equal facades do."""
    scene, place = planted_map("located twice", "subspaces", images=6, points=150)
    base = without(scene, ("02",))
    twin = replace(base, images={f"twin {name}": replace(item, name=f"twin {name}") for name, item in base.images.items()})
    new = {image_name("02"): image(place, "02")}
    for number, maps in enumerate(([base, twin], [base])):
        (tmp_path / str(number)).mkdir()
        located = looked_for(maps, new, tmp_path / str(number))
        added = [len(after.images) - len(before.images) for after, before in zip(located, maps, strict=True)]
        assert added == ([0, 0] if len(maps) == 2 else [1])


def test_what_pairs_contradict_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(located_images, "localize_loaded", lambda *given, **_: asked.append(given))
    scene, place = planted_map("contradicted", "subspaces", points=60)
    base, name = without(scene, ("02",)), image_name("02")
    for reason, tries in (("the map contradicts its pairs with the other images", 0), (TOO_FEW, 1)):
        asked.clear()
        assert looked_for([base], {name: image(place, "02")}, tmp_path, {name: reason}) == (base,)
        assert len(asked) == tries


def test_a_large_map_without_an_index_is_not_searched_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a codebook of one's own, to which the words of the bundled one do not fit."""

    def refused(*_: object, **__: object) -> None:
        raise SpaceError("of another codebook")

    monkeypatch.setattr("veil.places.located_images.make_point_index", refused)
    monkeypatch.setattr(located_images, "SEARCHED_WHOLE", 3)
    monkeypatch.setattr(located_images, "localize_loaded", lambda *_, **__: pytest.fail("the map was searched"))
    scene, place = planted_map("large", "subspaces", points=60)
    base = without(scene, ("02",))
    assert looked_for([base], {image_name("02"): image(place, "02")}, tmp_path) == (base,)


def test_of_many_maps_those_with_most_matches_are_tried() -> None:
    """Enumeration: the best pair with each map, whichever name comes first; few maps are all tried."""
    scene, _ = planted_map("many maps", points=60)
    names = sorted(scene.images)
    maps = [replace(scene, images={name: scene.images[name]}) for name in names[:3]]
    pairs = {(names[0], "new"): matches(9), ("new", names[1]): matches(4), (names[2], "new"): matches(7)}
    assert _maps_to_try(["new", "alone"], maps, pairs) == {"new": {0, 2}, "alone": set()}
    assert _maps_to_try(["new"], maps[:2], {}) == {"new": {0, 1}}


def test_matches_of_poses_are_what_both_images_show() -> None:
    """Second method: one point at a time, from the records of who sees what."""
    scene, _ = planted_map("pose matches")
    features, points = np.arange(40)[::-1].copy(), generator("shown").permutation(len(scene.points))[:40].astype(np.int64)
    matches = matches_of_poses(scene, {"new": (features, points)})
    assert matches
    for name, item in scene.images.items():
        expected = {
            (row, int(feature))
            for row, point in enumerate(item.point_rows.tolist())
            for feature in features[points == point].tolist()
        }
        got = matches.get((name, "new"))
        assert len(expected) < 8 if got is None else {(int(a), int(b)) for a, b in got.indices} == expected


def test_words_that_say_nothing_are_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions alone need images that they are near, which nothing names here."""
    asked: list[object] = []
    monkeypatch.setattr(located_images, "localize_loaded", lambda *given, **_: asked.append(given))
    scene, place = planted_map("in words", "words", points=60)
    base, name = without(scene, ("02",)), image_name("02")
    form = scene.images[name].form
    assert isinstance(form, Subsets)
    for epsilon, tries in ((0.0, 0), (form.mechanism.epsilon, 1)):
        asked.clear()
        words = replace(form, mechanism=replace(form.mechanism, epsilon=epsilon))
        new = {name: LoadedImage(camera=place.camera, positions=scene.images[name].keypoints, form=words)}
        assert looked_for([base], new, tmp_path) == (base,) and len(asked) == tries
