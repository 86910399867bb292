"""Poses that are beyond chance but uncertain by degrees are refused, and the reason says what helps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from veil.errors import RangeError
from veil.geometry.camera import UNDISCLOSED, Camera
from veil.geometry.rigid import Rigid
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.by_distance import localize_matches
from veil.places.poses.options import LocalizeOptions, WordOptions
from worlds import generator, project

FOCAL = 600.0
CAMERA = Camera(model="PINHOLE", width_px=640, height_px=480, params=(FOCAL, FOCAL, 320.0, 240.0), focal=UNDISCLOSED)
POSE = Rigid(rotation=np.eye(3), translation=np.zeros(3))


def scene_points(count: int, *, half_width: float = 2.0, relief: float = 1.0) -> np.ndarray:
    random = generator(f"vague {count} {half_width}")
    flat = half_width * (2 * random.random((count, 2)) - 1)
    return np.hstack([flat, 6.0 + relief * (2 * random.random((count, 1)) - 1)])


def turn_of(rotation: np.ndarray) -> np.ndarray:
    """The rotation vector of a small turn."""
    return np.array([rotation[2, 1] - rotation[1, 2], rotation[0, 2] - rotation[2, 0], rotation[1, 0] - rotation[0, 1]]) / 2


def asked(points: np.ndarray, noise_px: float, accidents: int, *, max_turn_deg: float = 0.6) -> Localization | NoPose:
    """Result for right matches of `points`, which are trusted most, and accidents all over the picture and the scene."""
    random = generator(f"asked {len(points)} {noise_px} {accidents}")
    right = project(POSE, points, CAMERA) + noise_px * random.normal(size=(len(points), 2))
    wrong = random.random((accidents, 2)) * [640, 480]
    keypoints = np.concatenate([right, wrong]).astype(np.float32)
    rows = np.arange(len(keypoints))
    scene = np.concatenate([points, scene_points(accidents)])
    return localize_matches(CAMERA, keypoints, rows, rows, scene, options=LocalizeOptions(max_turn_deg=max_turn_deg))


def test_an_uncertain_pose_is_refused_with_what_helps() -> None:
    """Forty right matches in a small flat spot are far beyond chance, but a pixel of noise turns their pose by degrees."""
    spot = scene_points(40, half_width=0.35, relief=0.02)
    answer = asked(spot, 2.0, 20)
    assert isinstance(answer, NoPose)
    assert answer.log10_nfa < -12
    assert "uncertain by degrees" in answer.reason and "show more of the place" in answer.reason
    anyway = asked(spot, 2.0, 20, max_turn_deg=math.inf)
    assert isinstance(anyway, Localization) and anyway.turn_deviation_deg > 0.6
    turn_deg = math.degrees(np.linalg.norm(turn_of(anyway.cam_from_world.rotation)))
    assert turn_deg > 1  # the refusal was right


def test_a_well_spread_query_is_answered() -> None:
    answer = asked(scene_points(40), 2.0, 20)
    assert isinstance(answer, Localization)
    assert 0.05 < answer.turn_deviation_deg < 0.6
    assert math.degrees(np.linalg.norm(turn_of(answer.cam_from_world.rotation))) < 1


def test_few_keypoints_among_many_accidents_are_refused_though_beyond_chance() -> None:
    """The evidence of a weak pose of a true query lies in the six orders of magnitude that are not counted."""
    answer = asked(scene_points(15), 3.5, 600, max_turn_deg=math.inf)
    assert isinstance(answer, NoPose)
    assert -12 < answer.log10_nfa <= -6, answer
    assert "uncertain by degrees" in answer.reason


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan])
@pytest.mark.parametrize("options", [LocalizeOptions, WordOptions])
def test_impossible_limits_are_refused(options: type, value: float) -> None:
    with pytest.raises(RangeError, match="max_turn_deg must be positive"):
        replace(options(), max_turn_deg=value)
