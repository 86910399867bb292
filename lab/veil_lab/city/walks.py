"""Walks of phones around the blocks of a simulated city: a pose for every image, by seed and number alone.

Four walks of forty images begin at each block, and each overlaps the next by some thirty meters. A walk goes along a rectangle
with rounded corners, on this side of the street or the other, and looks at the block's facades or at those across the street:
four of five do as most of their block do.

A file of its own: a walk says where a phone is; `images` says what it sees.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64

from veil.geometry.rigid import Rigid
from veil_lab.city.draws import below
from veil_lab.city.plan import PITCH_M, SIDE_M, STREET_M, spiral

WALK_IMAGES, BLOCK_WALKS = 40, 4
_SLOWER = 2.5  # around corners, where the view turns


def walk_of(number: int) -> tuple[int, int]:
    """The walk of an image, and its place in it."""
    return divmod(number, WALK_IMAGES)


def walk_block(walk: int) -> tuple[int, int]:
    """The grid cell of the block that a walk goes around."""
    return spiral(walk // BLOCK_WALKS)


def pose(seed: int, number: int) -> Rigid:
    """cam_from_world of image `number`: 1.6 m above the street, with what a hand does to yaw, pitch and roll."""
    walk, step = walk_of(number)
    random = np.random.default_rng([seed, 21, walk])
    looks_across = bool(random.uniform() < 0.2) != bool(below(2, seed, 24, walk // BLOCK_WALKS))
    # Distance from the own block's facade: far from the one that is looked at.
    offset = random.uniform(1.5, 7.0) if looks_across else random.uniform(STREET_M - 7.0, STREET_M - 1.5)
    clockwise = bool(random.integers(2))
    around, phase, height = random.uniform(), random.uniform(0, 2 * math.pi), random.normal(1.6, 0.08)
    stride, turn = random.uniform(2.0, 2.7), math.radians(random.uniform(40.0, 100.0))
    own = np.random.default_rng([seed, 22, number])
    square = RoundedSquare(half_m=SIDE_M / 2 + offset, radius_m=min(7.0, 2.5 * offset))
    begin = (walk % BLOCK_WALKS + 0.3 * around) / BLOCK_WALKS * square.length_m
    paces = WALK_IMAGES - 1 - step if clockwise else step  # clockwise is the same way, walked back
    xy, heading = square.at(begin + stride * (paces + own.uniform(-0.2, 0.2)))
    heading += math.pi if clockwise else 0.0
    # The own block is to the left of a walk that goes around it counterclockwise.
    left = clockwise == looks_across
    yaw = heading + (turn if left else -turn) + math.radians(12.0) * math.sin(phase + step / 5) + math.radians(own.normal(0, 3))
    pitch, roll = math.radians(own.normal(6.0, 4.0)), math.radians(own.normal(0.0, 2.0))
    center = np.array([*(xy + np.array(walk_block(walk)) * PITCH_M), height + own.normal(0, 0.03)])
    rotation = _rotation(yaw, pitch, roll)
    return Rigid(rotation=rotation, translation=-rotation @ center)


@dataclass(frozen=True, kw_only=True)
class RoundedSquare:
    """A way along a square around the origin with rounded corners, which count 2.5 times their length: there one walks slowly.

    A square smaller by 0.3 radii on each side lies inside.
    """

    half_m: float
    radius_m: float

    @property
    def length_m(self) -> float:
        """The way around."""
        return 8 * (self.half_m - self.radius_m) + 2 * math.pi * self.radius_m * _SLOWER

    def at(self, way_m: float) -> tuple[Float64[np.ndarray, "2"], float]:
        """Place and direction of travel (radians from x) after `way_m` counterclockwise, from the start of the x side on."""
        straight, arc = 2 * (self.half_m - self.radius_m), self.radius_m * math.pi / 2 * _SLOWER
        side, rest = divmod(way_m, straight + arc)
        heading = math.pi / 2 * (1 + side % 4)  # the first side is that of positive x, walked towards positive y
        forward, outward = (np.array([math.cos(a), math.sin(a)]) for a in (heading, heading - math.pi / 2))
        if rest < straight:
            return outward * self.half_m + forward * (rest - straight / 2), heading
        angle = (rest - straight) / self.radius_m / _SLOWER
        middle = outward * (self.half_m - self.radius_m) + forward * straight / 2
        return middle + self.radius_m * (outward * math.cos(angle) + forward * math.sin(angle)), heading + angle


def _rotation(yaw: float, pitch: float, roll: float) -> Float64[np.ndarray, "3 3"]:
    """cam_from_world of a camera that looks at `yaw` from the x-axis, `pitch` above the horizon, turned by `roll`."""
    forward = np.array([math.cos(pitch) * math.cos(yaw), math.cos(pitch) * math.sin(yaw), math.sin(pitch)])
    right = np.array([math.sin(yaw), -math.cos(yaw), 0.0])
    down = np.cross(forward, right)
    cosine, sine = math.cos(roll), math.sin(roll)
    return np.stack([cosine * right + sine * down, cosine * down - sine * right, forward])


def gravity_reading(seed: int, number: int, rotation: Float64[np.ndarray, "3 3"], sigma_deg: float) -> np.ndarray:
    """Down in the camera frame as a phone would tell it: turned by N(0, sigma) about each of two horizontal axes."""
    down = rotation @ np.array([0.0, 0.0, -1.0])
    first = np.cross(down, rotation @ np.array([1.0, 0.0, 0.0]))
    first /= np.linalg.norm(first)
    errors = np.radians(sigma_deg) * np.random.default_rng([seed, 23, number]).normal(size=2)
    tilted = down + errors[0] * first + errors[1] * np.cross(down, first)
    return tilted / np.linalg.norm(tilted)
