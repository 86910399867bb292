"""Poses as OGC GeoPose: directions that a camera looks in, by hand, and the two encodings against each other."""

from __future__ import annotations

import numpy as np
import pytest

from veil.geometry.earth import EarthFrame
from veil.geometry.georeference import Georeference, basic_quaternion, basic_ypr, enu_from_body, quaternion_of
from veil.geometry.rigid import Rigid
from veil.geometry.similarity import Similarity
from worlds import generator

HERE = EarthFrame(latitude_deg=47.7, longitude_deg=-122.3, height_m=11.5)


def place(rotation: np.ndarray | None = None) -> Georeference:
    turned = np.eye(3) if rotation is None else rotation
    return Georeference(
        frame=HERE,
        enu_from_map=Similarity(scale=2.0, rotation=turned, translation=np.zeros(3)),
        median_error_m=0.0,
        largest_error_m=0.0,
        agreeing=np.ones(3, dtype=bool),
        uses_gravity=False,
    )


def looking(forward: list[float], up: list[float]) -> Rigid:
    """A camera at the map's origin, whose axes are those of the map, that looks along a direction with another one up."""
    z, y = np.array(forward, dtype=float), -np.array(up, dtype=float)
    return Rigid(rotation=np.stack([np.cross(y, z), y, z]), translation=np.zeros(3))


@pytest.mark.parametrize(
    ("forward", "up", "angles", "quaternion"),
    [
        ([1, 0, 0], [0, 0, 1], (0, 0, 0), (0, 0, 0, 1)),
        ([0, 1, 0], [0, 0, 1], (90, 0, 0), (0, 0, 0.5**0.5, 0.5**0.5)),
        ([-1, 0, 0], [0, 0, 1], (180, 0, 0), (0, 0, 1, 0)),
        ([0, 0, 1], [-1, 0, 0], (0, -90, 0), (0, -(0.5**0.5), 0, 0.5**0.5)),
        ([0, 0, -1], [1, 0, 0], (0, 90, 0), (0, 0.5**0.5, 0, 0.5**0.5)),
        ([1, 0, 0], [0, -1, 0], (0, 0, 90), (0.5**0.5, 0, 0, 0.5**0.5)),
    ],
)
def test_directions_are_those_of_the_standard(
    forward: list[float], up: list[float], angles: tuple[float, ...], quaternion: tuple[float, ...]
) -> None:
    """Golden values by hand: identity is forward east, left north, up up; turns about z, then y, then x."""
    pose = looking(forward, up)
    ypr = basic_ypr(place(), pose)
    np.testing.assert_allclose([abs(v) if abs(v) == 180 else v for v in ypr["angles"].values()], angles, atol=1e-9)
    np.testing.assert_allclose(list(basic_quaternion(place(), pose)["quaternion"].values()), quaternion, atol=1e-9)
    assert ypr["position"] == pytest.approx({"lat": 47.7, "lon": -122.3, "h": 11.5}, abs=1e-9)


def test_both_encodings_are_one_rotation() -> None:
    """Second method: the rotation from the quaternion's formula, and from the three turns, for random poses."""
    for turn in range(50):
        draw = generator(f"geopose {turn}")
        rotation = np.linalg.qr(draw.normal(size=(3, 3)))[0]
        rotation *= np.sign(np.linalg.det(rotation))
        where = place(np.linalg.qr(draw.normal(size=(3, 3)))[0])
        if np.linalg.det(where.enu_from_map.rotation) < 0:
            where = place(-where.enu_from_map.rotation)
        pose = Rigid(rotation=rotation, translation=draw.normal(size=3) * 10)
        expected = enu_from_body(where, pose)
        x, y, z, w = basic_quaternion(where, pose)["quaternion"].values()
        assert x * x + y * y + z * z + w * w == pytest.approx(1) and w >= 0
        np.testing.assert_allclose(
            [
                [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
                [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
                [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
            ],
            expected,
            atol=1e-9,
        )
        yaw, pitch, roll = np.radians(list(basic_ypr(where, pose)["angles"].values()))

        def about(axis: int, angle: float) -> np.ndarray:
            i, j = [(1, 2), (2, 0), (0, 1)][axis]
            matrix = np.eye(3)
            matrix[i, i] = matrix[j, j] = np.cos(angle)
            matrix[j, i], matrix[i, j] = np.sin(angle), -np.sin(angle)
            return matrix

        np.testing.assert_allclose(about(2, yaw) @ about(1, pitch) @ about(0, roll), expected, atol=1e-9)
        np.testing.assert_allclose(quaternion_of(expected), (x, y, z, w), atol=1e-12)


@pytest.mark.parametrize(
    "axis", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (0.6, -0.8, 0), (0.5**0.5, 0.5**0.5, 0), (0, 0.5**0.5, -(0.5**0.5))]
)
def test_a_half_turn_has_one_quaternion_whatever_the_rounding(axis: tuple[float, float, float]) -> None:
    """A half turn is 2 a a' - 1 for either sign of its axis, so rounding alone would choose between two quaternions."""
    turn = 2 * np.outer(axis, axis) - np.eye(3)
    for tilt in (0.0, 1e-15, -1e-15):
        rounded = turn + tilt * np.array([[0.0, 1, -1], [-1, 0, 1], [1, -1, 0]])
        np.testing.assert_allclose(quaternion_of(rounded), (*axis, 0.0), atol=1e-12)
