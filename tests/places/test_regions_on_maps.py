"""Regions that answers tell on maps that are not exact: no pose is better known than the map's own."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, chi2

from veil.geometry.rigid import Rigid, center_covariance, pose_difference
from veil.geometry.similarity import align_poses
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.places.held_map import Map
from veil.places.localization import localize_loaded
from veil.places.maps import MapImage, build_map
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization
from veil.scene import Scene
from worlds import World, world
from worlds.map_scenes import CHECK
from worlds.word_worlds import scene_of

PLACE = world("bent", points=300)


def asked(scene: Scene, place: World = PLACE, name: str = "02") -> Localization:
    image = LoadedImage(camera=place.camera, positions=place.keypoints[name], form=place.form(name), gravity=None)
    answer = localize_loaded(image, Map(scene=scene))
    assert isinstance(answer, Localization), answer
    return answer


@pytest.mark.parametrize("share", [None, math.inf, 0.002, 0.02])
def test_the_uncertainty_of_the_map_is_told(share: float | None) -> None:
    """Second method: variances of the center add along each axis of the world, whatever its origin; so do those of turns."""
    scene = scene_of(PLACE, without="02")
    centers = np.array([image.cam_from_world.center for image in scene.images.values()])
    moved = share * np.linalg.norm(np.ptp(centers, axis=0)) if share is not None and math.isfinite(share) else 0.0
    own, told = asked(scene), asked(replace(scene, check=replace(CHECK, uncertainty=share)))
    assert own.covariance is not None and told.covariance is not None
    before, after = (center_covariance(one.cam_from_world, one.covariance) for one in (own, told) if one.covariance is not None)
    assert after == pytest.approx(before + moved**2 / 3 * np.eye(3), rel=1e-6, abs=1e-15)
    depth = np.median(own.cam_from_world.apply(scene.points[own.point_rows])[:, 2])
    wider = math.radians(told.turn_deviation_deg) ** 2 - math.radians(own.turn_deviation_deg) ** 2
    assert wider == pytest.approx(moved**2 / 3 / depth**2, rel=1e-6, abs=1e-15)


@pytest.mark.slow
def test_regions_hold_true_poses_on_maps_of_noisy_photographs(tmp_path: Path) -> None:
    """Maps of planted places, made with noise of 1.5 px, and queries among their photographs, aligned as the maps' own poses.

    Broken twin: without the uncertainty of their maps the regions hold few.
    """
    covered = twin = asked_of = 0
    for seed in range(8):
        place = world(f"noisy {seed}", images=9, points=200, noise_px=1.5)
        held_out = sorted(place.poses)[1::3]
        scene = built(place, held_out, tmp_path / str(seed))
        names = list(scene.images)
        poses = [scene.images[name].cam_from_world for name in names]
        map_from_world = align_poses([place.poses[name] for name in names], poses)
        for name in held_out:
            truth = map_from_world.moved(place.poses[name])
            told, alone = (asked(one, place, name) for one in (scene, replace(scene, check=None)))
            asked_of, covered, twin = asked_of + 1, covered + holds(told, truth), twin + holds(alone, truth)
    assert binom.cdf(covered, asked_of, 0.95) > 0.01 > binom.cdf(twin, asked_of, 0.95)


def built(place: World, held_out: list[str], workdir: Path) -> Scene:
    """The map of a world's photographs but those that are held out."""
    names = sorted(set(place.poses) - set(held_out))
    images = {name: MapImage(keypoints=place.keypoints[name], form=place.form(name), camera=place.camera) for name in names}
    forms = {name: image.form for name, image in images.items()}
    scene = build_map(images, match_pairs(forms, all_pairs(names)), workdir=workdir)
    assert isinstance(scene, Scene), scene
    return scene


def holds(answer: Localization, truth: Rigid) -> bool:
    """Whether the region with 95 % of a pose holds the truth."""
    assert answer.covariance is not None
    error = pose_difference(answer.cam_from_world, truth)
    return bool(error @ np.linalg.solve(answer.covariance, error) <= chi2.ppf(0.95, 6))
