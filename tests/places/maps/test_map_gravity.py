"""Readings of a map's images: a planted fault is named with its size, and images without a pose or a reading play no part."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from veil.geometry.rigid import Rigid
from veil.places.maps.check import checked_readings
from worlds import generator


def test_a_wrong_reading_is_named() -> None:
    """Planted: eight images, one reading 34.8 degrees off, one image without a pose, one without a reading."""
    random = generator("map gravity")
    poses = {
        f"{k}.jpg": Rigid(rotation=Rotation.random(random_state=random).as_matrix(), translation=np.zeros(3)) for k in range(8)
    }
    down = np.array([0.0, 0.0, -1.0])
    readings = {name: pose.rotation @ down for name, pose in poses.items()}
    turn = np.cross(readings["3.jpg"], random.normal(size=3))
    turn *= np.deg2rad(34.8) / np.linalg.norm(turn)
    readings["3.jpg"] = Rotation.from_rotvec(turn).apply(readings["3.jpg"])
    readings["elsewhere.jpg"] = np.array([0.0, 1.0, 0.0])
    del readings["5.jpg"]
    checked = checked_readings(poses, readings)
    assert checked.wrong_deg == {"3.jpg": pytest.approx(34.8, abs=0.01)}
    assert (checked.readings, checked.agreeing, checked.reason) == (7, 6, "")
    assert checked.down is not None and np.allclose(checked.down, down)


def test_a_map_that_contradicts_its_readings_is_told() -> None:
    """Planted: rotations unrelated to the readings, and a map without readings, both have no direction down."""
    random = generator("another map")
    poses = {
        f"{k}.jpg": Rigid(rotation=Rotation.random(random_state=random).as_matrix(), translation=np.zeros(3)) for k in range(9)
    }
    readings = {name: random.normal(size=3) for name in poses}
    checked = checked_readings(poses, readings)
    assert checked.down is None and "agree on one down" in checked.reason and not checked.wrong_deg
    assert checked_readings(poses, {}).reason == "no image has a reading of gravity"
