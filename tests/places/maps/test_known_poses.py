"""Maps at known poses: points are triangulated, poses stay, and poses that the images contradict give no map."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from veil.geometry.rigid import Rigid
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.places.building import map_posed
from veil.places.built_maps import BuiltMap
from veil.places.maps import MapImage, NoMap
from veil.places.maps.known_poses import map_at_poses
from veil.places.pairs.images import LoadedImage
from veil.scene import Scene
from worlds import World, world


def images_of(place: World) -> dict[str, MapImage]:
    return {n: MapImage(camera=place.camera, keypoints=place.keypoints[n], form=place.form(n)) for n in place.poses}


def posed(place: World, poses: dict[str, Rigid], workdir: Path) -> Scene | NoMap:
    images = images_of(place)
    forms = {name: image.form for name, image in images.items()}
    return map_at_poses(images, poses, match_pairs(forms, all_pairs(sorted(forms))), workdir=workdir)


@pytest.mark.slow
def test_points_are_triangulated_and_poses_stay(tmp_path: Path) -> None:
    """Planted truth, in its own coordinates: no alignment. Each point is the one that its descriptors came from."""
    place = world("known poses")
    scene = posed(place, place.poses, tmp_path)
    assert isinstance(scene, Scene) and set(scene.images) == set(place.poses) and len(scene.points) > 250
    errors = []
    for name, image in scene.images.items():
        np.testing.assert_allclose(image.cam_from_world.rotation, place.poses[name].rotation, atol=1e-9)
        np.testing.assert_allclose(image.cam_from_world.translation, place.poses[name].translation, atol=1e-9)
        row_of = {tuple(xy): row for xy, row in zip(place.keypoints[name].tolist(), place.visible[name].tolist(), strict=True)}
        truth = place.points[[row_of[tuple(xy)] for xy in image.keypoints.tolist()]]
        errors.append(np.linalg.norm(scene.points[image.point_rows] - truth, axis=1))
    assert np.median(np.concatenate(errors)) < 0.01 and scene.check is not None and not scene.check.doubts


@pytest.mark.slow
def test_how_well_matches_would_fix_given_poses_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The minimum cut and the covariance of all cameras take seconds, and nobody reads them."""

    def asked(*_: object) -> None:
        raise AssertionError("the poses are given")

    monkeypatch.setattr("veil.places.maps.check.position_uncertainty", asked)
    monkeypatch.setattr("veil.places.maps.check.thinnest_cut", asked)
    place = world("known poses", images=5)
    scene = posed(place, place.poses, tmp_path)
    assert isinstance(scene, Scene) and scene.check is not None
    assert scene.check.uncertainty is None and scene.check.neck is None and scene.check.rotation_deg is not None


@pytest.mark.slow
def test_poses_that_the_images_contradict_give_no_map(tmp_path: Path) -> None:
    """Broken twin: each image has the pose of another."""
    place = world("known poses")
    names = sorted(place.poses)
    turned = {name: place.poses[other] for name, other in zip(names, [*names[3:], *names[:3]], strict=True)}
    answer = posed(place, turned, tmp_path)
    assert isinstance(answer, NoMap)
    assert "agree with the poses" in answer.reason or "contradict each other" in answer.reason


@pytest.mark.slow
def test_images_without_a_pose_or_of_another_size_are_named() -> None:
    place = world("known poses", images=5)
    images = {n: LoadedImage(camera=i.camera, positions=i.keypoints, form=i.form) for n, i in images_of(place).items()}
    cameras = {name: place.camera for name in place.poses if name != "01"}
    cameras["03"] = replace(place.camera, width_px=720)
    built = map_posed(images, cameras, place.poses)
    assert isinstance(built, BuiltMap) and set(built.map.scene.images) == {"00", "02", "04"}
    assert built.left_out["01"] == "the model has no image of this name"
    assert (
        built.left_out["03"] == "its features are of 640x480 px, in the model 720x480 px, which has another ratio of the sides"
    )
    assert built.check is not None and set(built.check.left_out) >= {"01", "03"}
