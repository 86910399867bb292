"""A map's gravity: measured, or the mean of its images' readings without those that are off."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.errors import InputError
from veil.scene import Scene, mean_down
from worlds import generator, unit, world
from worlds.word_worlds import lines_of, scene_of, with_down

PLACE = world("gravity of scenes", images=9, points=60)
DOWN = np.array([0.0, 1.0, 0.0])


def tilted(degrees: float, name: str) -> np.ndarray:
    """A direction `degrees` degrees off down, to a random side."""
    random = generator(f"tilt {name}")
    axis = unit(np.cross(DOWN, random.normal(size=3)))
    return Rotation.from_rotvec(np.radians(degrees) * axis).as_matrix() @ DOWN


def scene_with(tilts: dict[str, float]) -> Scene:
    """The map whose images named in `tilts` sent lines with a gravity that is off by that number of degrees."""
    scene = scene_of(PLACE)
    images = dict(scene.images)
    for name, degrees in tilts.items():
        gravity = PLACE.poses[name].rotation @ tilted(degrees, name)
        images[name] = replace(images[name], lines=replace(lines_of(PLACE, name), gravity=gravity))
    return replace(scene, images=images)


def angle_deg(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.degrees(np.arctan2(np.linalg.norm(np.cross(a, b)), a @ b)))


def test_down_is_the_mean_of_the_images_readings_in_the_world() -> None:
    names = sorted(PLACE.poses)
    down = scene_with({name: 3.0 for name in names}).down
    assert down is not None
    expected = unit(np.mean([tilted(3.0, name) for name in names], axis=0))
    np.testing.assert_allclose(down, expected, atol=1e-9)
    assert angle_deg(down, DOWN) < 2
    np.testing.assert_allclose(np.linalg.norm(down), 1, atol=1e-12)
    # The broken twin averages readings in the cameras' frames.
    raw = np.mean([PLACE.poses[name].rotation @ tilted(3.0, name) for name in names], axis=0)
    assert angle_deg(down, raw) > 0.1


def test_readings_that_are_off_are_left_out() -> None:
    names = sorted(PLACE.poses)
    wrong = {names[0]: 40.0, names[4]: 90.0, names[7]: 180.0}
    down = scene_with({name: wrong.get(name, 0.0) for name in names}).down
    assert down is not None and angle_deg(down, DOWN) < 1e-4
    # The broken twin, the mean of all, is far off.
    everything = [tilted(wrong.get(name, 0.0), name) for name in names]
    assert angle_deg(np.mean(everything, axis=0), DOWN) > 2


def test_images_without_lines_or_without_gravity_say_nothing() -> None:
    assert scene_of(PLACE).down is None
    scene = scene_with({"03": 0.0})
    assert scene.down is not None and angle_deg(scene.down, DOWN) < 1e-6
    lines = scene.images["03"].lines
    assert lines is not None
    blind = replace(scene, images={**scene.images, "03": replace(scene.images["03"], lines=replace(lines, gravity=None))})
    assert blind.down is None


def test_opposite_readings_give_none_whatever_rounding_leaves_of_them() -> None:
    """Two readings that cancel have a sum some 1e-17 long, whose direction depends on the BLAS kernel."""
    images = scene_of(PLACE).images
    for first, second in combinations(PLACE.poses, 2):
        for rounding in (0.0, 1e-16, -1e-16):
            readings = {
                first: PLACE.poses[first].rotation @ DOWN,
                second: PLACE.poses[second].rotation @ -DOWN * (1 + rounding),
            }
            assert mean_down(readings, images) is None


@pytest.mark.parametrize("degrees", [(0.0, 25.0), (0.0, 90.0), (0.0, 60.0, 120.0), (0.0, 0.0, 40.0, 40.0)])
def test_without_a_majority_within_ten_degrees_there_is_no_down(degrees: tuple[float, ...]) -> None:
    """Nothing tells which half to believe, and the middle of both is a direction that neither measured."""
    readings = {
        name: PLACE.poses[name].rotation @ Rotation.from_euler("x", tilt, degrees=True).apply(DOWN)
        for name, tilt in zip(PLACE.poses, degrees, strict=False)
    }
    assert mean_down(readings, scene_of(PLACE).images) is None


def test_readings_of_images_that_are_not_in_the_map_do_not_count() -> None:
    images = scene_of(PLACE, without="02").images
    assert mean_down({"02": DOWN, "elsewhere": DOWN}, images) is None
    assert mean_down({}, images) is None
    down = mean_down({"02": -DOWN, "03": PLACE.poses["03"].rotation @ DOWN, "04": None}, images)
    assert down is not None
    np.testing.assert_allclose(down, DOWN, atol=1e-12)


def test_a_measured_down_comes_first() -> None:
    measured = unit(np.array([0.1, 1.0, 0.2]))
    scene = with_down(scene_with({name: 0.0 for name in PLACE.poses}), measured)
    np.testing.assert_array_equal(scene.down, measured)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_points_must_be_finite(bad: float) -> None:
    points = PLACE.points.copy()
    points[3, 1] = bad
    with pytest.raises(InputError, match="finite"):
        replace(scene_of(PLACE), points=points)
