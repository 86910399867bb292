"""Down in the upright picture from a phone's accelerometer, for every way to hold the phone."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageOps

from veil.errors import InputError, RangeError
from veil.geometry.gravity import SENSOR_SIGMA_DEG, Gravity, NoGravity, gravity_from_accelerometer
from worlds import generator

# The four ways to hold a phone: what iOS reads at rest (x right, y up, z to the user), and the orientation it writes.
HELD = {
    "upright": ((0, -1, 0), 6),
    "left side down": ((-1, 0, 0), 1),
    "right side down": ((1, 0, 0), 3),
    "upside down": ((0, 1, 0), 8),
}


def gravity_of(acceleration: tuple[float, float, float], orientation: int) -> Gravity:
    answer = gravity_from_accelerometer(np.array(acceleration, dtype=np.float64), orientation)
    assert isinstance(answer, Gravity), answer
    return answer


@pytest.mark.parametrize("held", HELD)
def test_a_level_phone_has_down_in_the_picture(held: str) -> None:
    """Golden: whatever edge of the phone is down, the upright picture shows down along its y-axis."""
    np.testing.assert_allclose(gravity_of(*HELD[held]).direction, [0, 1, 0], atol=1e-15)


@pytest.mark.parametrize("held", HELD)
def test_a_phone_that_looks_down_sees_gravity_ahead(held: str) -> None:
    """Golden: tilted forward by 30 degrees the screen faces up, so gravity leaves through the back: z is -sin 30 degrees."""
    (x, y, _), orientation = HELD[held]
    tilted = (x * np.cos(np.pi / 6), y * np.cos(np.pi / 6), -np.sin(np.pi / 6))
    np.testing.assert_allclose(gravity_of(tilted, orientation).direction, [0, np.cos(np.pi / 6), 0.5], atol=1e-15)


@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_orientations_turn_gravity_as_they_turn_pixels(orientation: int) -> None:
    """Second method: Pillow turns a picture whose one white pixel lies where gravity points in the stored frame.

    Broken twin: clockwise and counterclockwise exchanged.
    """
    stored = np.array([1.0, 2.0])  # to the right, and more to the bottom
    size = 9
    pixels = np.zeros((size, size), dtype=np.uint8)
    pixels[size // 2 + 2, size // 2 + 1] = 255
    picture = Image.fromarray(pixels)
    picture.getexif()[ExifTags.Base.Orientation] = orientation
    turned = np.asarray(ImageOps.exif_transpose(picture))
    row, column = np.unravel_index(turned.argmax(), turned.shape)
    expected = np.array([column - size // 2, row - size // 2, 0.0])
    # The stored frame is that of orientation 1, whose sensor's right is -y and whose down is -x of the phone.
    device = np.array([-stored[1], -stored[0], 0.0]) / np.linalg.norm(stored)
    answer = gravity_from_accelerometer(device, orientation)
    if expected[1] < -0.5 * np.linalg.norm(expected):  # the picture would hang upside down
        assert isinstance(answer, NoGravity) and "points up" in answer.reason
        return
    assert isinstance(answer, Gravity)
    np.testing.assert_allclose(answer.direction, expected / np.linalg.norm(expected), atol=1e-12)
    twin = answer.direction * [-1, 1, 1] if orientation in (6, 8) else -answer.direction
    assert np.abs(twin - expected / np.linalg.norm(expected)).max() > 0.1


def test_frames_are_turned_and_never_mirrored() -> None:
    """Defining equation: the map is a rotation for each orientation, seen by its action on a basis near gravity."""
    random = generator("orientations")
    for (x, y, z), orientation in HELD.values():
        base = np.array([x, y, z], dtype=np.float64)
        device = base + random.normal(0, 0.1, (3, 3))
        device /= np.linalg.norm(device, axis=1, keepdims=True)
        camera = np.array([gravity_of(tuple(row), orientation).direction for row in device])
        rotation = np.linalg.solve(device, camera).T
        np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)
        assert np.linalg.det(rotation) == pytest.approx(1.0)


@pytest.mark.parametrize("orientation", [2, 4, 5, 7, 0, 9])
def test_mirrored_and_unknown_orientations_are_refused(orientation: int) -> None:
    answer = gravity_from_accelerometer(np.array([0.0, -1.0, 0.0]), orientation)
    assert isinstance(answer, NoGravity)
    assert ("mirrored" if orientation in (2, 4, 5, 7) else "unknown") in answer.reason


@pytest.mark.parametrize("length", [0.0, 0.7, 1.3, np.nan, np.inf])
def test_a_moving_phone_measures_no_gravity(length: float) -> None:
    with np.errstate(invalid="ignore"):
        answer = gravity_from_accelerometer(np.array([0.0, -1.0, 0.0]) * length, 6)
    assert isinstance(answer, NoGravity) and "moved" in answer.reason


def test_the_spread_grows_with_the_departure_from_one_g() -> None:
    """Golden: hypot of the sensor's own spread and 0.1 rad."""
    assert gravity_of((0, -1, 0), 6).sigma_deg == pytest.approx(SENSOR_SIGMA_DEG)
    assert gravity_of((0, -1.1, 0), 6).sigma_deg == pytest.approx(np.hypot(SENSOR_SIGMA_DEG, np.rad2deg(0.1)))


def test_gravity_is_checked_where_it_is_made() -> None:
    assert np.linalg.norm(Gravity(direction=np.array([3.0, 4.0, 0.0])).direction) == pytest.approx(1)
    with pytest.raises(InputError, match="points up"):
        Gravity(direction=np.array([0.0, -1.0, 0.0]))
    for bad in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(RangeError, match="leave it out"):
            Gravity(direction=np.array([0.0, 1.0, 0.0]), sigma_deg=bad)
