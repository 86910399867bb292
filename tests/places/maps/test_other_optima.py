"""Focal lengths that a map measures badly are begun with others: adjustment may end in another optimum than the best one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from veil.geometry.camera import GIVEN, GUESS
from veil.geometry.rigid import Rigid
from veil.places.maps import MapImage
from veil.places.maps.colmap import worker
from veil.places.maps.focal import vague_focals
from veil.places.maps.scenes import model_of
from veil.scene import Scene
from worlds import World, project, world
from worlds.word_worlds import scene_of

PLACE = world("other optima", images=6, points=300)


def far_away(scene: Scene, place: World, times: float) -> Scene:
    """The scene as lenses so many times as long, of cameras so many times as far away, would show nearly the same."""
    images = {}
    for name, image in scene.images.items():
        pose = image.cam_from_world
        depth = float(np.median(pose.apply(scene.points[image.point_rows])[:, 2]))
        center = pose.center - (times - 1) * depth * pose.rotation[2]
        camera = replace(place.camera, params=(*(times * np.array(place.camera.params[:2])), *place.camera.params[2:]))
        moved = Rigid(rotation=pose.rotation, translation=-pose.rotation @ center)
        images[name] = replace(image, camera=camera, cam_from_world=moved)
    return replace(scene, images=images)


def best_start(model: Any, zooms: tuple[float, ...]) -> Any:
    """The model that the worker goes on with, where an adjustment has two iterations."""
    from veil.colmap import pycolmap

    options = pycolmap.BundleAdjustmentOptions()
    options.print_summary = False
    options.ceres.solver_options.max_num_iterations = 2
    config = pycolmap.BundleAdjustmentConfig()
    for image_id in model.reg_image_ids():
        config.add_image(image_id)
    config.fix_gauge(pycolmap.BundleAdjustmentGauge.TWO_CAMS_FROM_WORLD)
    request = {"zoomed": sorted(model.cameras), "zooms": zooms, "stall_s": 60}
    return worker._best_start(model, request, options, config)


def test_the_start_that_fits_best_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: all cameras twice as far away, with lenses of twice the focal length. Half of it is begun with, among others.

    Broken twin: where no other focal length is begun with, an adjustment that does not get there stays far off.
    """
    monkeypatch.setattr(worker, "_say", lambda answer: None)
    monkeypatch.setattr(worker, "_arm", lambda seconds: None)
    wrong = far_away(scene_of(PLACE), PLACE, 2.0)
    found = best_start(model_of(wrong), (0.5, 0.7, 1.4, 2.0))
    twin = best_start(model_of(wrong), ())
    truth = PLACE.camera.params[0]
    assert all(camera.params[0] == pytest.approx(truth, rel=0.1) for camera in found.cameras.values())
    assert all(camera.params[0] > 1.3 * truth for camera in twin.cameras.values())


def test_a_start_that_fits_no_better_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the truth, from which no other focal length leads to a better fit."""
    monkeypatch.setattr(worker, "_say", lambda answer: None)
    monkeypatch.setattr(worker, "_arm", lambda seconds: None)
    right = model_of(scene_of(PLACE))
    found, alone = best_start(right, (0.5, 0.7, 1.4, 2.0)), best_start(right, ())
    for camera_id, camera in alone.cameras.items():
        assert list(found.cameras[camera_id].params) == list(camera.params)


@pytest.mark.parametrize(("focal", "times", "vague"), [(GUESS, 1.0, False), (GUESS, 200.0, True), (GIVEN, 200.0, False)])
def test_guesses_that_the_map_measures_badly_are_vague(focal: Any, times: float, vague: bool) -> None:
    """Hartley and Zisserman (2004), Sec. 6.3: rays that are parallel tell no focal length; near cameras tell it well."""
    scene = far_away(scene_of(PLACE), PLACE, times)
    shown = {
        name: replace(
            image, keypoints=project(image.cam_from_world, scene.points[image.point_rows], image.camera).astype(np.float32)
        )
        for name, image in scene.images.items()
    }
    images = {
        name: MapImage(camera=replace(image.camera, focal=focal), keypoints=image.keypoints, form=image.form)
        for name, image in shown.items()
    }
    assert vague_focals(replace(scene, images=shown), images) == (frozenset(images) if vague else frozenset())
