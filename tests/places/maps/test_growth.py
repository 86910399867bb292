"""A map of positions takes in more images: the planted ones, and its own cameras stay where they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.errors import InputError
from veil.forms import Form
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.places.maps import MapImage, NoMap, growth
from veil.places.maps.growth import grow_map
from veil.places.maps.scenes import images_of, restricted
from veil.scene import MapCheck, Scene
from worlds import World, generator, sift_like, subspaces, unit, world
from worlds.map_scenes import CHECK, image_name, planted_map

DOWN = np.array([0.0, 1.0, 0.0])
NEW = ("02", "05")


def message(place: World, key: str, m: int) -> MapImage:
    """All features of a view, also those of points that the map does not have."""
    form: Form = place.form(key)
    if m:
        form = subspaces(generator(f"more {key}"), place.form(key).vectors, m, form.space)
    return MapImage(camera=place.camera, keypoints=place.keypoints[key], form=form)


def base_of(scene: Scene) -> Scene:
    base = restricted(scene, frozenset(set(scene.images) - {image_name(key) for key in NEW}))
    assert base is not None
    return replace(base, measured_down=DOWN, check=replace(CHECK, left_out={image_name("02"): "too dark", "fog": "fog"}))


def grown(base: Scene, new: dict[str, MapImage], workdir: Path) -> Scene | NoMap:
    forms = {name: image.form for name, image in {**images_of(base), **new}.items()}
    pairs = [pair for pair in all_pairs(sorted(forms)) if {*pair} & set(new)]
    return grow_map(base, new, match_pairs(forms, pairs), workdir=workdir)


@pytest.mark.slow
def test_new_images_are_where_they_were_planted_and_the_others_stay(tmp_path: Path) -> None:
    """Oracle: planted truth in the map's own frame, without any alignment; a foreign image is left out and named.

    Every new observation is of the point that its descriptor came from.
    """
    scene, place = planted_map("growth", "subspaces", images=7, points=200)
    base = base_of(scene)
    new = {image_name(key): message(place, key, 2) for key in NEW}
    other = world("elsewhere", points=200)
    new["foreign"] = replace(message(other, "01", 2), camera=place.camera)
    outcome = grown(base, new, tmp_path)
    assert isinstance(outcome, Scene)
    assert set(outcome.images) == set(scene.images)
    for name, image in base.images.items():
        after = outcome.images[name].cam_from_world
        np.testing.assert_allclose(after.rotation, image.cam_from_world.rotation, atol=1e-9)
        np.testing.assert_allclose(after.translation, image.cam_from_world.translation, atol=1e-9)
    for key in NEW:
        image = outcome.images[image_name(key)]
        assert np.linalg.norm(image.cam_from_world.center - place.poses[key].center) < 0.02
        assert len(image.form) > 100
        where = {tuple(xy): row for row, xy in enumerate(place.keypoints[key].tolist())}
        planted = place.points[place.visible[key][[where[tuple(xy)] for xy in image.keypoints.tolist()]]]
        assert np.quantile(np.linalg.norm(outcome.points[image.point_rows] - planted, axis=1), 0.9) < 0.1
    np.testing.assert_array_equal(outcome.measured_down, DOWN)
    check = outcome.check
    assert check is not None and set(check.left_out) == {"fog", "foreign"} and "too few matches" in check.left_out["foreign"]
    assert check.pairs > CHECK.pairs and check.explained_pairs - CHECK.explained_pairs == check.pairs - CHECK.pairs
    assert outcome.is_public == base.is_public


@pytest.mark.slow
def test_an_image_that_contradicts_the_map_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: COLMAP is handed back with one new camera turned away from where its pairs see it."""
    scene, place = planted_map("contradiction", images=7, points=200)
    base = base_of(scene)
    new = {image_name(key): message(place, key, 0) for key in NEW}
    read = growth.FromMap.read

    def bent(beginning: growth.FromMap, output: Path) -> tuple[Path, Scene]:
        answer = read(beginning, output)
        assert not isinstance(answer, NoMap)
        model, grown_scene = answer
        if image_name("05") not in grown_scene.images:
            return answer
        image = grown_scene.images[image_name("05")]
        pose = replace(image.cam_from_world, translation=image.cam_from_world.translation + np.array([1.5, 0, 0]))
        return model, replace(grown_scene, images={**grown_scene.images, image.name: replace(image, cam_from_world=pose)})

    monkeypatch.setattr(growth.FromMap, "read", bent)
    grown_scene = grown(base, new, tmp_path)
    assert isinstance(grown_scene, Scene) and set(grown_scene.images) == set(base.images) | {image_name("02")}
    assert grown_scene.check is not None and "contradicts its pairs" in grown_scene.check.left_out[image_name("05")]


@pytest.mark.slow
def test_where_nothing_fits_no_map_is_made(tmp_path: Path) -> None:
    scene, place = planted_map("nothing fits", images=5, points=100)
    form = replace(place.form("01"), vectors=unit(sift_like(generator("noise"), len(place.form("01")))).astype(np.float32))
    outcome = grown(scene, {"noise": replace(message(place, "01", 0), form=form)}, tmp_path)
    assert isinstance(outcome, NoMap) and set(outcome.left_out) == {"noise"}
    assert "none of 1 images can be added to the map; noise: too few matches" in outcome.reason


def test_what_cannot_be_added_is_refused(tmp_path: Path) -> None:
    scene, place = planted_map("refused", images=5, points=60)
    lines, _ = planted_map("refused", "lines", points=60)
    new = message(place, "01", 0)
    cases: list[tuple[Scene, dict[str, MapImage], str]] = [
        (scene, {}, "no image to add"),
        (scene, {image_name("01"): new}, "already has contribution 01.jpg"),
        (scene, {"new": message(place, "01", 2)}, "new holds subspaces in the space .*, the map points"),
        (lines, {"new": new}, "made from lines"),
    ]
    for base, images, words in cases:
        with pytest.raises(InputError, match=words):
            grow_map(base, images, {}, workdir=tmp_path)


def test_records_of_both_are_put_together() -> None:
    """Oracle: by hand. Two checks of 15 and 5 pairs; an image that was left out before and is in now is not named any more."""
    new = MapCheck(
        pairs=5,
        explained_pairs=4,
        contradicting_pairs=1,
        explained_matches=0.79,
        neck=33,
        uncertainty=0.002,
        step_ratio=2.0,
        rotation_deg=0.5,
        left_out={"b": "weak"},
    )
    both = growth._together(replace(CHECK, left_out={"a": "dark", "c": "fog"}, gravity_deg=1.0, removed=2), new, {"c", "d"})
    assert (both.pairs, both.explained_pairs, both.contradicting_pairs, both.neck) == (20, 19, 1, 33)
    assert both.explained_matches == pytest.approx((15 * 0.99 + 5 * 0.79) / 20)
    assert (both.rotation_deg, both.gravity_deg, both.gravity_agreeing, both.removed) == (0.5, 1.0, None, 2)
    assert both.left_out == {"a": "dark", "b": "weak"} and growth._together(None, new, {"c"}) is new


def test_a_large_map_is_known_by_pairs_that_hold_it_together() -> None:
    """Planted: two halves whose images share most points with each other, and few with the other half, and an image alone.

    Broken twin: the pairs of each image with the one that shares most with it, which fall apart into the halves.
    """
    scene, _ = planted_map("halves", "subspaces", images=6, points=60)
    kept = {
        "00": range(0, 25),
        "01": range(0, 28),
        "02": range(3, 25),
        "03": range(22, 50),
        "04": range(30, 55),
        "05": range(59, 60),
    }
    images = {}
    for key, points in kept.items():
        image = scene.images[image_name(key)]
        rows = np.flatnonzero(np.isin(image.point_rows, list(points)))
        images[image.name] = replace(
            image, keypoints=image.keypoints[rows], point_rows=image.point_rows[rows], form=image.form.take(rows)
        )
    common = growth._common_features(replace(scene, images=images))
    group = {name: {name} for name in images}
    for pair, matches in common.items():
        left, right = (images[name].point_rows for name in pair)
        np.testing.assert_array_equal(left[matches[:, 0]], right[matches[:, 1]])
        assert len(matches) == len(np.intersect1d(left, right))
        if len(matches):
            joined = group[pair[0]] | group[pair[1]]
            group |= dict.fromkeys(joined, joined)
    together = {image_name(key) for key in kept if key != "05"}
    assert group[image_name("00")] == together
    assert any(image_name("05") in pair and not len(matches) for pair, matches in common.items())
    best = {max(set(kept) - {key}, key=lambda other: len({*kept[key]} & {*kept[other]})) for key in ("00", "01", "02")}
    assert best <= {"00", "01", "02"}, "the broken twin would not join the halves"
