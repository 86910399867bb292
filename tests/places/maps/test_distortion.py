"""A map of guessed cameras takes distortion only where its points determine it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from veil.geometry.camera import guessed
from veil.matching import match_pairs
from veil.matching.pairs import all_pairs
from veil.places.maps import MapImage, build_map
from veil.scene import Scene
from worlds import camera, world

FOCAL_PX, CENTER_PX = 500.0, np.array([320.0, 240.0])  # of `worlds.camera`


def mapped(distortion: float, folder: Path) -> Scene:
    """The map of a world that a lens of this distortion saw, from guessed cameras."""
    place = world("distortion", points=400)
    assert camera().params[0] == FOCAL_PX
    images = {}
    for name in place.poses:
        plane = (place.keypoints[name] - CENTER_PX) / FOCAL_PX
        bent = plane * (1 + distortion * (plane**2).sum(axis=1, keepdims=True)) * FOCAL_PX + CENTER_PX
        inside = np.flatnonzero(((bent > 0) & (bent < [640, 480])).all(axis=1))
        images[name] = MapImage(
            camera=guessed(640, 480), keypoints=bent[inside].astype(np.float32), form=place.form(name).take(inside)
        )
    matches = match_pairs({name: image.form for name, image in images.items()}, all_pairs(sorted(images)))
    folder.mkdir()
    scene = build_map(images, matches, workdir=folder)
    assert isinstance(scene, Scene)
    return scene


def test_distortion_that_is_there_is_found_and_other_is_not_made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: planted lenses with and without distortion. Broken twin: every distortion counts as determined."""
    straight = {image.camera.params for image in mapped(0.0, tmp_path / "straight").images.values()}
    assert {params[-1] for params in straight} == {0.0}
    assert all(params[0] == pytest.approx(FOCAL_PX, rel=0.01) for params in straight)
    bent = {image.camera.params for image in mapped(-0.2, tmp_path / "bent").images.values()}
    assert all(params[-1] == pytest.approx(-0.2, abs=0.02) for params in bent)
    monkeypatch.setattr("veil.places.maps.colmap.adjuster.undetermined_distortions", lambda *_: frozenset())
    twin = {image.camera.params for image in mapped(0.0, tmp_path / "twin").images.values()}
    assert all(params[-1] != 0.0 for params in twin)
