"""The turn that explains matches, against planted turns, and against cameras that moved."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.geometry.robust.turns import FACTORS, best_turn
from worlds import generator

CALIBRATION = np.array([[800.0, 0, 320], [0, 800.0, 240], [0, 0, 1.0]])


def planted(name: str, *, step: float) -> tuple[np.ndarray, np.ndarray]:
    """Noisy positions of a cloud 4 to 9 units away, before and after a turn by 8 degrees and a step sideways."""
    random = generator(name)
    cloud = random.uniform([-2, -1.5, 4], [2, 1.5, 9], (300, 3))
    turn = Rotation.from_rotvec(np.radians([2.0, 7.5, 1.97])).as_matrix()
    views = []
    for rotation, shift in ((np.eye(3), 0.0), (turn, step)):
        seen = (cloud @ rotation.T + [shift, 0, 0]) @ CALIBRATION.T
        views.append(seen[:, :2] / seen[:, 2:] + 0.5 * random.normal(size=(300, 2)))
    return views[0], views[1]


def test_a_planted_turn_is_measured_and_a_step_is_none() -> None:
    """Oracle: x' = K R K^-1 x with the planted R of 8 degrees; a step of 5 % of the depth moves near points otherwise."""
    turn = best_turn(*planted("turn", step=0.0), CALIBRATION, CALIBRATION)
    assert turn.share > 0.99
    assert turn.angle_deg == pytest.approx(8.0, abs=0.1)
    assert best_turn(*planted("step", step=0.3), CALIBRATION, CALIBRATION).share < 0.5


def test_a_turn_shows_under_a_wrong_focal_length_if_others_are_tried() -> None:
    """Oracle: the planted turn, under a focal length that is 1.5 times the true one."""
    left, right = planted("guess", step=0.0)
    wrong = CALIBRATION @ np.diag([1.5, 1.5, 1.0])
    assert best_turn(left, right, wrong, wrong).share < 0.9
    turn = best_turn(left, right, wrong, wrong, factors=FACTORS)
    assert turn.share > 0.95
    assert turn.angle_deg == pytest.approx(8.0, rel=0.1)


def test_wrong_matches_take_from_the_share_alone() -> None:
    """Oracle: a fifth of the right positions are random, so that four fifths agree with the planted turn."""
    left, right = planted("wrong", step=0.0)
    right[::5] = generator("random").uniform(0, 480, (60, 2))
    turn = best_turn(left, right, CALIBRATION, CALIBRATION)
    assert turn.share == pytest.approx(0.8, abs=0.02)
    assert turn.angle_deg == pytest.approx(8.0, abs=0.2)


def test_a_step_along_a_wall_is_no_plain_turn() -> None:
    """Oracle: a plane that faces the camera, which steps along it, only moves in the picture.

    Under longer focal lengths a turn explains that, too; it is a plain one where the planted camera turned.
    """
    random = generator("wall")
    wall = np.column_stack([random.uniform([-2, -1.5], [2, 1.5], (300, 2)), np.full(300, 6.0)])
    views = []
    for step in (0.0, 0.25):
        seen = (wall + np.array([step, 0, 0])) @ CALIBRATION.T
        views.append(seen[:, :2] / seen[:, 2:] + 0.3 * random.normal(size=(300, 2)))
    turn = best_turn(views[0], views[1], CALIBRATION, CALIBRATION, factors=FACTORS)
    assert turn.share > 0.9 and turn.moved_share > 0.99 and not turn.is_plain
    assert best_turn(*planted("turn", step=0.0), CALIBRATION, CALIBRATION).is_plain
