"""Poses that contradict the gravity of their message are refused in every form; honest readings are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.forms import Form
from veil.places.held_map import Map
from veil.places.localization import localize_loaded
from veil.places.pairs.images import LoadedImage
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.judge import TILTED_FALSE_ALARMS, unless_tilted
from veil.scene import Scene
from worlds import generator, subspaces, world
from worlds.word_worlds import SIFT, lines_of, scene_of, with_down

PLACE = world("tilted", points=300)
DOWN = np.array([0, 1.0, 0])
SCENE = with_down(scene_of(PLACE, without="02"), DOWN)
GRAVITY = PLACE.poses["02"].rotation @ DOWN


def turned(degrees: float) -> np.ndarray:
    """The query's gravity after the camera was rolled by an angle."""
    return Rotation.from_rotvec([0, 0, np.radians(degrees)]).as_matrix() @ GRAVITY


def asked(gravity: np.ndarray | None, *, private: bool, lines: bool, scene: Scene = SCENE) -> Localization | NoPose:
    points = PLACE.form("02")
    form: Form = subspaces(generator("tilted query"), points.vectors, 4, SIFT) if private else points
    hidden = replace(lines_of(PLACE, "02"), gravity=gravity)
    positions, beside = (hidden, None) if lines else (PLACE.keypoints["02"], gravity)
    return localize_loaded(LoadedImage(camera=PLACE.camera, positions=positions, form=form, gravity=beside), Map(scene=scene))


@pytest.mark.slow
@pytest.mark.parametrize(("private", "lines"), [(False, False), (True, False), (True, True)])
def test_a_pose_that_contradicts_gravity_is_refused(private: bool, lines: bool) -> None:
    """Planted: readings off by 4 and by 9 degrees. Control: no reading, and a map that has none."""
    near = asked(turned(4.0), private=private, lines=lines)
    assert isinstance(near, Localization), near
    far = asked(turned(9.0), private=private, lines=lines)
    assert isinstance(far, NoPose) and "9.0 degrees from the query's gravity" in far.reason and far.inliers > 100
    assert isinstance(asked(None, private=private, lines=lines), Localization)
    assert isinstance(asked(turned(9.0), private=private, lines=lines, scene=replace(SCENE, measured_down=None)), Localization)


def test_honest_readings_are_refused_as_seldom_as_stated() -> None:
    """Monte Carlo of the stated law: readings off by 1.5 degrees and maps off by 1, along both axes across gravity."""
    pose = asked(None, private=False, lines=False)
    assert isinstance(pose, Localization)
    random, draws = generator("honest readings"), 20_000
    down = pose.rotation @ DOWN
    across = np.linalg.svd(down[None])[2][1:]
    errors = np.radians(np.hypot(1.5, 1.0)) * random.normal(size=(draws, 2)) @ across
    readings = down + np.tan(np.linalg.norm(errors, axis=1, keepdims=True)) * errors / np.linalg.norm(errors, axis=1)[:, None]
    readings /= np.linalg.norm(readings, axis=1, keepdims=True)
    refused = sum(isinstance(unless_tilted(pose, reading, DOWN), NoPose) for reading in readings)
    assert abs(refused - TILTED_FALSE_ALARMS * draws) < 4 * np.sqrt(TILTED_FALSE_ALARMS * draws)
