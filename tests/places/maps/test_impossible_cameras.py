"""A mapper may drive weakly determined cameras out of what a camera is; such images are none of the map's."""

from __future__ import annotations

from pathlib import Path

import pytest

from veil.geometry.camera import Camera
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.places.maps import MapImage, build_map
from veil.places.maps.scenes import model_of, read_model, scene_of
from veil.scene import Scene
from worlds import world


@pytest.mark.parametrize("wrong", [-41179.7, 0.0, float("nan"), float("inf")])
def test_images_of_impossible_cameras_are_left_out(tmp_path: Path, wrong: float) -> None:
    """Oracle: the model that was written, whose first image alone gets the wrong focal length."""
    place = world("impossible cameras")
    images = {
        name: MapImage(camera=place.camera, keypoints=place.keypoints[name], form=place.form(name)) for name in place.poses
    }
    matches = match_pairs({name: image.form for name, image in images.items()}, all_pairs(sorted(images)))
    (tmp_path / "map").mkdir()
    scene = build_map(images, matches, workdir=tmp_path / "map")
    assert isinstance(scene, Scene)
    model = model_of(scene)  # each image has a camera of its own
    first = next(iter(scene.images))
    image = next(one for one in model.images.values() if one.name == first)
    params = model.cameras[image.camera_id].params
    params[0] = wrong
    model.cameras[image.camera_id].params = params
    model.write(tmp_path)
    left = scene_of(read_model(tmp_path), images)
    assert set(left.images) == set(scene.images) - {first}
    assert all(isinstance(one.camera, Camera) for one in left.images.values())
    observed = {int(row) for one in left.images.values() for row in one.point_rows}
    assert observed == set(range(len(left.points)))  # no point is left that nobody sees
