"""Gravity: unit vectors that point down in the camera frame x right, y down, z forward (gravity.md#frame)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.errors import InputError, RangeError, Remedy
from veil.one_line import one_line

# Spread of iPhone readings, with the phone in a hand, about the gravity of a reconstruction (docs/theory/gravity.md, Eq. 3).
SENSOR_SIGMA_DEG = 1.5
# Departure of a reading's length from 1 g beyond which the phone was being moved, and what it measured is not gravity.
MAX_DEPARTURE_G = 0.25

# Spread of the angles of a DJI drone's gimbal about the gravity of a reconstruction (docs/theory/gravity.md, Eq. 3a).
GIMBAL_SIGMA_DEG = 2.0

# Device axes (x right, y up, z towards the user) -> camera axes of the upright picture, by EXIF orientation.
# Rows are docs/theory/gravity.md, Eq. 2.
_CAM_FROM_DEVICE = {
    1: np.array([[0.0, -1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]),
    3: np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, -1.0]]),
    6: np.array([[1.0, 0.0, 0.0], [0.0, -1.0, 0.0], [0.0, 0.0, -1.0]]),
    8: np.array([[-1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, -1.0]]),
}


@dataclass(frozen=True, eq=False)
class Gravity:
    """Down in the camera frame as a unit vector, and its standard deviation about the worse axis if that is known.

    - `direction`, float64 (3,): of any length when it is given, of length 1 from then on.
    - `sigma_deg`: in degrees; None if it is unknown.

    Raises InputError for an unusable direction, RangeError for a spread that is not positive and finite.
    """

    direction: Float64[np.ndarray, "3"]
    sigma_deg: float | None = None

    __repr__ = one_line

    def __post_init__(self) -> None:
        object.__setattr__(self, "direction", checked_gravity(self.direction))
        if self.sigma_deg is not None and not 0 < self.sigma_deg < math.inf:
            raise RangeError(f"sigma_deg must be positive and finite, got {self.sigma_deg!r}; leave it out if it is unknown")


@dataclass(frozen=True, kw_only=True)
class NoGravity:
    """Answer without gravity: `reason` says why there is none, `remedy` what may help."""

    reason: str
    remedy: tuple[Remedy, ...] = ()

    __repr__ = one_line


def checked_gravity(direction: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3"]:
    """The vector `direction` scaled to unit length, checked to be a possible direction of down.

    Raises InputError if it is not finite, has no length, or points up: cameras are held upright more often than upside down,
    and a flipped sign is the common mistake.
    """
    # Not np.linalg.norm: its last digit depends on the processor, and messages and the ledger hold the result.
    length = math.hypot(*direction.tolist())
    if not np.isfinite(length) or not length > 1e-6:
        raise InputError(f"gravity must be a finite vector of some length, got {direction.tolist()}")
    unit = direction / length
    if unit[1] < -0.5:
        raise InputError(
            f"gravity {unit.round(3).tolist()} points up in a camera frame whose y-axis points down; "
            "negate the readings (accelerometers at rest report the reaction, which points up)"
        )
    return unit


def gravity_from_accelerometer(acceleration_g: Float64[np.ndarray, "3"], orientation: int) -> Gravity | NoGravity:
    """Gravity from the reading of a phone's accelerometer and the EXIF orientation of the picture taken with its rear camera.

    `acceleration_g` is what iOS reports at rest: gravity, in units of g, in the frame of the phone held upright: x to the
    right of the screen, y to its top, z out of the screen. The rear camera looks along -z. Its sensor is mounted so that a
    phone held upright stores the picture with orientation 6, that is, turned by 90 degrees: the stored picture's right is
    the phone's bottom (-y) and its down is the phone's left (-x). So down in the stored picture's camera frame is
    (-a_y, -a_x, -a_z) however the phone is held; the orientation then turns it as it turns the pixels: 1 leaves it, 3 turns
    by 180 degrees (x, y) -> (-x, -y), 6 clockwise (x, y) -> (-y, x), 8 counterclockwise (x, y) -> (y, -x).
    Mirrored pictures (2, 4, 5, 7) show no frame that a rotation reaches and get `NoGravity`, as do readings far from 1 g
    (docs/theory/gravity.md, Eq. 2-3).
    """
    if orientation not in _CAM_FROM_DEVICE:
        kind = "mirrored" if orientation in (2, 4, 5, 7) else "unknown"
        return NoGravity(
            reason=f"its EXIF orientation {orientation} is {kind}; give the picture as the camera wrote it, "
            "or use vanishing-point"
        )
    departure = abs(float(np.linalg.norm(acceleration_g)) - 1.0)
    if not departure <= MAX_DEPARTURE_G:
        return NoGravity(
            reason=f"the accelerometer read {np.linalg.norm(acceleration_g):.2f} g, so the phone was being moved; "
            "use vanishing-point"
        )
    try:
        return Gravity(
            direction=_CAM_FROM_DEVICE[orientation] @ acceleration_g,
            sigma_deg=math.hypot(SENSOR_SIGMA_DEG, math.degrees(departure)),  # docs/theory/gravity.md, Eq. 3
        )
    except InputError as error:
        return NoGravity(reason=f"{error}; or the picture was turned by a program that left its maker note as it was")


def gravity_from_gimbal(pitch_deg: float, roll_deg: float, orientation: int) -> Gravity | NoGravity:
    """Gravity from the pitch and roll of a drone's camera, and the EXIF orientation of its picture (gravity.md, Eq. 3a).

    Both are in degrees, against the horizon: pitch is 0 for a level camera and -90 for one that looks straight down, and roll
    is positive with the camera's right side down. A picture of another orientation than 1 gets `NoGravity`, since it is not
    known whether the roll is that of the stored or of the turned picture; so does one that would hang upside down.
    """
    if orientation not in (0, 1):
        return NoGravity(
            reason=f"its EXIF orientation is {orientation}, and its gimbal's angles may be of the stored or turned picture; "
            "use vanishing-point"
        )
    pitch, roll = math.radians(pitch_deg), math.radians(roll_deg)
    down = np.array([math.cos(pitch) * math.sin(roll), math.cos(pitch) * math.cos(roll), -math.sin(pitch)])
    try:
        return Gravity(direction=down, sigma_deg=GIMBAL_SIGMA_DEG)
    except InputError:
        return NoGravity(
            reason=f"its gimbal's pitch of {pitch_deg:g} and roll of {roll_deg:g} degrees hang the picture upside down; "
            "use vanishing-point"
        )


def aligned_from_cam(gravity: Float64[np.ndarray, "3"]) -> Float64[np.ndarray, "3 3"]:
    """The smallest rotation that takes the unit vector `gravity` to the y-axis (0, 1, 0)."""
    y = np.array([0.0, 1.0, 0.0])
    axis = np.cross(gravity, y)
    cosine = float(gravity @ y)
    if cosine < -1 + 1e-12:  # upside down: any half turn about a horizontal axis
        return np.diag([1.0, -1.0, -1.0])
    cross = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.eye(3) + cross + cross @ cross / (1 + cosine)


def gravity_spread_px(sigma_deg: float, focal_px: float) -> float:
    """Distance in pixels by which a gravity error of `sigma_deg` moves an aligned line: f tan(sigma).

    The thresholds of a line map's seed scale with it.
    """
    return focal_px * float(np.tan(np.deg2rad(sigma_deg)))
