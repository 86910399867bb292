"""Axes of an accelerometer relative to the pictures, from vertical edges (docs/theory/gravity.md, Eq. 14-16).

Tables of phones name a vector x, y, z and neither its frame nor its sign: the frame may be that of the device or of the
picture, and at rest some report gravity, others the reaction to it. All conventions are weighed against the photographs with
vertical edges, and a reading is given only where the conventions that remain probable agree on it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product

import numpy as np
from jaxtyping import Bool, Float64

from veil.errors import InputError, Remedy
from veil.geometry.gravity import MAX_DEPARTURE_G, SENSOR_SIGMA_DEG, Gravity, NoGravity
from veil.geometry.gravity_consensus import apart_deg

G_M_PER_S2 = 9.80665
# Standard deviations that an unknown device may have: a phone's (Eq. 3), that of a poorer one, that of one in motion.
SIGMAS_DEG = (SENSOR_SIGMA_DEG, 3.0, 6.0)
# Share of photographs whose reading or edges are wrong, and the solid angle of the range of tilts, where these point anywhere.
WRONG, RANGE_SR = 0.05, 2.0
# A reading is given if the conventions within `SAME_DEG` of the likeliest one have a share `SURE` of the probability.
SAME_DEG, SURE = 5.0, 0.99
# In-plane part of a reading below which a picture looks too steeply to decide whether it is turned by half a turn.
LEAST_IN_PLANE = 0.2
# Turn of a landscape picture by 90 degrees clockwise: (x, y) -> (-y, x).
_QUARTER = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])


@dataclass(frozen=True, kw_only=True, eq=False)
class Convention:
    """How a table's readings are meant: `picture_from_table` takes a reading to down in a landscape picture.

    With `of_device` readings are in the device's frame: in portrait pictures down is turned by a quarter turn, and in any
    picture by the half turn that it needs to hang upright. Otherwise they are in the picture's frame, and nothing is turned.
    """

    picture_from_table: Float64[np.ndarray, "3 3"]
    of_device: bool

    def downs(
        self, acceleration: Float64[np.ndarray, "images 3"], portrait: Bool[np.ndarray, "images"]
    ) -> Float64[np.ndarray, "images 3"]:
        """Unit vectors of down in the pictures that readings of any length belong to; `portrait` marks pictures in portrait."""
        directions = acceleration @ self.picture_from_table.T
        if self.of_device:
            directions = np.where(portrait[:, None], directions @ _QUARTER.T, directions)
            directions = np.where(directions[:, 1:2] < 0, directions * [-1.0, -1.0, 1.0], directions)
        return directions / np.linalg.norm(directions, axis=1, keepdims=True)

    def told(self, portrait: bool) -> str:
        """The convention in words, such as "down is (+x, -y, -z)" by the table's columns, for pictures of that shape."""
        matrix = _QUARTER @ self.picture_from_table if self.of_device and portrait else self.picture_from_table
        names = np.array(["x", "y", "z"])
        parts = [f"{'-' if row.sum() < 0 else '+'}{names[np.abs(row).argmax()]}" for row in matrix]
        half = ", by half a turn where it would hang upside down" if self.of_device else ""
        return f"down is ({', '.join(parts)}){half}"


@dataclass(frozen=True, kw_only=True, eq=False)
class DeviceAxes:
    """Gravity of each image, or why there is none, and the likeliest convention.

    `probability` is that of this convention together with all that say the same of these images.
    """

    readings: tuple[Gravity | NoGravity, ...]
    convention: Convention
    probability: float


# What iOS and Android report in the device's frame x right, y up, z to the user (docs/theory/gravity.md, Eq. 2).
_IOS = np.array([[0.0, -1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, 0.0, -1.0]])
NAMED = {
    "ios": Convention(picture_from_table=_IOS, of_device=True),
    "android": Convention(picture_from_table=-_IOS, of_device=True),
}


def in_g(acceleration: Float64[np.ndarray, "images 3"]) -> Float64[np.ndarray, "images 3"]:
    """Readings in units of g, from readings that are all in g or all in m/s^2.

    Raises InputError if they are not finite, or by their median length in neither unit: a sensor that has gravity taken out
    reads about 0.
    """
    if not len(acceleration) or not np.isfinite(acceleration).all():
        raise InputError("accelerometer readings must be finite numbers")
    length = float(np.median(np.linalg.norm(acceleration, axis=1)))
    for unit in (1.0, G_M_PER_S2):
        if 0.7 < length / unit < 1.4:
            return acceleration / unit
    raise InputError(
        f"the readings have a median length of {length:.3g}, which is gravity neither in g (1) nor in m/s^2 (9.8); "
        "a linear-acceleration sensor has gravity taken out: give the accelerometer's own column"
    )


def axes_from_edges(
    acceleration_g: Float64[np.ndarray, "images 3"],
    portrait: Bool[np.ndarray, "images"],
    edges: Float64[np.ndarray, "images 3"],
    edge_sigma_deg: Float64[np.ndarray, "images"],
) -> DeviceAxes:
    """Gravity of all images under the conventions that vertical edges leave probable.

    `acceleration_g` are readings in units of g, `portrait` marks images in portrait. `edges` are unit vectors of down by
    vertical edges (NaN where there are none) with standard deviations `edge_sigma_deg`. An image gets no gravity if the
    probable conventions disagree on it.
    """
    seen = np.isfinite(edges).all(axis=1)
    conventions = _conventions()
    downs = np.array([convention.downs(acceleration_g, portrait) for convention in conventions])
    errors = np.radians(apart_deg(downs[:, seen], edges[None, seen]))
    weights = np.array([_likelihood(errors, np.radians(np.hypot(sigma, edge_sigma_deg[seen]))) for sigma in SIGMAS_DEG])
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    each = weights.sum(axis=0)
    sigma_deg = math.sqrt(float(weights.sum(axis=1) @ np.square(SIGMAS_DEG)))
    readings = tuple(_reading(downs[:, row], each, acceleration_g[row], sigma_deg) for row in range(len(acceleration_g)))
    best = int(each.argmax())
    same = [row for row in range(len(conventions)) if (apart_deg(downs[row], downs[best]) < SAME_DEG).all()]
    return DeviceAxes(readings=readings, convention=conventions[best], probability=float(each[same].sum()))


def axes_as_told(
    acceleration_g: Float64[np.ndarray, "images 3"], portrait: Bool[np.ndarray, "images"], convention: Convention
) -> DeviceAxes:
    """Gravity of all images, from readings in units of g, under a convention that is known."""
    downs = convention.downs(acceleration_g, portrait)[None]
    readings = tuple(
        _reading(downs[:, row], np.ones(1), acceleration_g[row], SENSOR_SIGMA_DEG) for row in range(len(acceleration_g))
    )
    return DeviceAxes(readings=readings, convention=convention, probability=1.0)


def parse_axes(text: str) -> Convention:
    """The convention that a text names: `ios`, `android`, or three signed letters such as +x-y-z.

    The letters are down in the picture (x right, y down, z forward) by the table's columns. Raises InputError for other texts.
    """
    if text in NAMED:
        return NAMED[text]
    letters = text.replace(",", "").replace(" ", "")
    signs, names = letters[0::2], letters[1::2]
    if len(letters) != 6 or set(signs) - {"+", "-"} or sorted(names) != ["x", "y", "z"]:
        raise InputError(
            f"{text!r} names no axes: give ios, android, or down in the picture (x right, y down, z forward) as +x-y-z"
        )
    matrix = np.zeros((3, 3))
    for row, (sign, name) in enumerate(zip(signs, names, strict=True)):
        matrix[row, "xyz".index(name)] = 1.0 if sign == "+" else -1.0
    return Convention(picture_from_table=matrix, of_device=False)


@cache
def _conventions() -> tuple[Convention, ...]:
    """All 48 signed permutations of axes in both frames: 24 rotations, for tables of gravity, and 24 negatives (reaction)."""
    matrices = [
        np.diag(signs) @ np.eye(3)[list(order)] for order in permutations(range(3)) for signs in product((1.0, -1.0), repeat=3)
    ]
    return tuple(Convention(picture_from_table=matrix, of_device=kind) for kind in (True, False) for matrix in matrices)


def _likelihood(
    errors: Float64[np.ndarray, "conventions seen"], sigma: Float64[np.ndarray, "seen"]
) -> Float64[np.ndarray, "conventions"]:
    """Log of the probability density of the edges under each convention (Eq. 15); errors and `sigma` are in radians."""
    near = (1 - WRONG) / (2 * math.pi * sigma**2) * np.exp(-0.5 * (errors / sigma) ** 2)
    return np.log(near + WRONG / RANGE_SR).sum(axis=1)


def _reading(
    downs: Float64[np.ndarray, "conventions 3"],
    weights: Float64[np.ndarray, "conventions"],
    acceleration: np.ndarray,
    sigma: float,
) -> Gravity | NoGravity:
    """Gravity of one image: the mean of the conventions near the likeliest one, if all others are improbable (Eq. 16).

    `downs` are unit vectors of down by each convention, of probability `weights`; `acceleration` is the reading in units of g
    and `sigma` its standard deviation in degrees.
    """
    departure = abs(float(np.linalg.norm(acceleration)) - 1)
    if not departure <= MAX_DEPARTURE_G:
        return NoGravity(
            reason=f"the accelerometer read {departure + 1:.2f} g, so the phone was being moved; use vanishing-point"
        )
    apart = apart_deg(downs, downs[int(weights.argmax())])
    near = apart < SAME_DEG
    if not weights[near].sum() >= SURE * weights.sum():
        return NoGravity(
            reason="the photographs do not tell which way the accelerometer's axes point",
            remedy=(
                Remedy("give", "axes_as_told.convention"),
                Remedy("give", "Picture.camera"),
                Remedy("give", "photographs with vertical edges"),
            ),
        )
    mean = weights[near] @ downs[near]
    mean /= np.linalg.norm(mean)
    if mean[1] < abs(mean[0]) or math.hypot(mean[0], mean[1]) < LEAST_IN_PLANE:
        return NoGravity(
            reason="by its reading the picture hangs sideways or looks straight down, so how it was turned cannot be told"
        )
    spread = math.sqrt(float(weights[near] @ np.square(apart_deg(downs[near], mean))) / float(weights[near].sum()))
    return Gravity(direction=mean, sigma_deg=math.hypot(math.hypot(sigma, math.degrees(departure)), spread))
