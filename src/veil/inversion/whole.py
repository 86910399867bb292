"""Pictures of whole photographs: the network draws squares of 256x256 pixels, which overlap and are blended.

A module of its own because audits, the demo and figures draw whole photographs, and studies draw central squares.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float64, UInt8

from veil.inversion.maps import SIDE, Frame, Inverts, SparseMap


def covering(width: int, height: int) -> list[Frame]:
    """Squares that cover a photograph of `width` x `height` px: the central one first, neighbors overlap by half at least."""
    longest = abs(width - height) / 2
    steps = math.ceil(2 * longest / min(width, height))
    shifts = [sign * longest * step / steps for step in range(1, steps + 1) for sign in (-1, 1)]
    return [Frame(width=width, height=height, shift_px=shift) for shift in (0.0, *shifts)]


def whole(
    network: Inverts, width: int, height: int, sparse: Callable[[Frame], SparseMap]
) -> tuple[UInt8[np.ndarray, "rows columns 3"], UInt8[np.ndarray, "256 256 3"]]:
    """The picture that `network` draws of a whole photograph, its shorter side 256 px, and that of the central square alone.

    `sparse` gives the map of what is known inside a square of the photograph of `width` x `height` px. Where squares overlap,
    their mean is weighted by the distance to the ends of each. Raises InputError for an empty photograph.
    """
    frames = covering(width, height)
    drawn = network.invert([sparse(frame) for frame in frames])
    long_side = max(SIDE, round(SIDE * max(width, height) / min(width, height)))
    along, weight = np.zeros((long_side, SIDE, 3)), np.zeros((long_side, 1, 1))
    for frame, rgb in zip(frames, drawn, strict=True):
        first = round(float(frame.corner.max()) * SIDE / frame.side_px)
        rows = slice(min(first, long_side - SIDE), min(first, long_side - SIDE) + SIDE)
        own = _towards_the_middle()[:, None, None]
        along[rows] += own * (rgb if height >= width else rgb.transpose(1, 0, 2))
        weight[rows] += own
    picture = np.rint(along / weight).astype(np.uint8)
    return picture if height >= width else np.ascontiguousarray(picture.transpose(1, 0, 2)), drawn[0]


def _towards_the_middle() -> Float64[np.ndarray, "256"]:
    """Weights of the rows of a square: their distance to its nearer end, in pixels."""
    at = np.arange(SIDE) + 0.5
    return np.minimum(at, SIDE - at)
