"""The meaning of a tile's whole numbers: places in steps, descriptors in levels along principal axes, directions, sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Float64, Int8, Int64, UInt8

from veil.codebooks.compression import Pca
from veil.errors import RangeError
from veil.forms import Points
from veil.space import Space, require_same

# Number of standard deviations along an axis at which levels end: of four bits a wider range costs more than it saves.
DEVIATIONS = {4: 3.0, 8: 6.0}
# Sizes are kept in such parts of an octave; 256 of them cover a factor of 65,536.
SIZE_STEPS = 16
# Squares and products of numbers below this stay finite in single precision.
MOST = 1e12


@dataclass(frozen=True, kw_only=True, eq=False)
class TileCoding:
    """Coding that all tiles of a map share: how their numbers are made, and their meaning.

    - `raw_space`: of the descriptors before compression.
    - `pca`: principal axes, fitted to the map's descriptors.
    - `scales`, float32 (axes,): of a level along each axis.
    - `bits`: of a level, 4 or 8.
    - `step`: of a place along each axis, in units of the map.
    - `least_pixels`, `least_frames`: sizes that are kept as 0, in pixels and in diagonals of the picture a unit of the map.
    """

    raw_space: Space
    pca: Pca
    scales: Float32[np.ndarray, "axes"]
    bits: int
    step: float
    least_pixels: float
    least_frames: float

    def __post_init__(self) -> None:
        numbers = [self.step, self.least_pixels, self.least_frames, *self.scales.tolist()]
        if not all(1 / MOST < value < MOST for value in numbers):  # also refuses NaN
            raise RangeError(f"scales, steps and least sizes of tiles must be positive and below {MOST:g}")
        if not (np.abs(self.pca.mean).max() < MOST and np.abs(self.pca.axes).max() < MOST):
            raise RangeError(f"the principal axes of tiles must be finite and below {MOST:g}")

    @property
    def axes(self) -> int:
        """Number of principal axes."""
        return len(self.scales)

    @property
    def max_position_error(self) -> float:
        """Largest distance between a point and what a tile keeps of it, in units of the map."""
        return math.sqrt(3) / 2 * self.step

    def levels(self, unit_vectors: Float64[np.ndarray, "rows dim"]) -> Int8[np.ndarray, "rows axes"]:
        """Descriptors of unit length as levels."""
        most = (1 << (self.bits - 1)) - 1
        return np.clip(np.rint(self.pca.apply(unit_vectors) / self.scales), -most, most).astype(np.int8)

    def vectors(self, levels: Int8[np.ndarray, "rows axes"]) -> Float32[np.ndarray, "rows axes"]:
        """Compressed descriptors that levels stand for."""
        return levels.astype(np.float32) * self.scales

    def restored(self, compressed: Float[np.ndarray, "rows axes"]) -> Float64[np.ndarray, "rows dim"]:
        """Descriptors before compression that compressed ones stand for, up to the axes that were dropped."""
        return self.pca.mean + compressed @ self.pca.axes.astype(np.float64)

    def compressed(self, points: Points) -> Float32[np.ndarray, "rows axes"]:
        """Raw descriptors along the principal axes, as tiles are compared with. Raises SpaceError for another space."""
        require_same(points.space, self.raw_space)
        return self.pca.apply(points.vectors).astype(np.float32)

    def steps(self, points: Float64[np.ndarray, "rows 3"]) -> Int64[np.ndarray, "rows 3"]:
        """Places in whole steps from the map's zero."""
        return np.rint(points / self.step).astype(np.int64)

    def sizes(self, pixels: Float64[np.ndarray, "rows"], frames: Float64[np.ndarray, "rows"]) -> UInt8[np.ndarray, "rows 2"]:
        """Sizes in parts of an octave above the least."""
        octaves = np.log2(np.stack([pixels / self.least_pixels, frames / self.least_frames], axis=1))
        return np.clip(np.rint(SIZE_STEPS * octaves), 0, 255).astype(np.uint8)

    def pixels_and_frames(self, sizes: UInt8[np.ndarray, "rows 2"]) -> Float64[np.ndarray, "rows 2"]:
        """Sizes in pixels and in diagonals of the picture, that `sizes` keeps."""
        return np.exp2(sizes / SIZE_STEPS) * [self.least_pixels, self.least_frames]


def fitted_scales(pca: Pca, unit_vectors: Float64[np.ndarray, "rows dim"], bits: int) -> Float32[np.ndarray, "axes"]:
    """Scales of the levels along each axis, from the descriptors that will be kept."""
    values = pca.apply(unit_vectors)
    reach = np.minimum(np.abs(values).max(axis=0), DEVIATIONS[bits] * values.std(axis=0))
    return np.maximum(reach / ((1 << (bits - 1)) - 1), 1e-9).astype(np.float32)


def octahedral(directions: Float64[np.ndarray, "rows 3"]) -> UInt8[np.ndarray, "rows 2"]:
    """Unit vectors as places on an unfolded octahedron (Cigolle et al. 2014, "oct"), 8 bits each."""
    folded = directions / np.abs(directions).sum(axis=1, keepdims=True)
    xy = np.where(folded[:, 2:] >= 0, folded[:, :2], (1 - np.abs(folded[:, 1::-1])) * _signs(folded[:, :2]))
    return np.rint((xy + 1) / 2 * 255).astype(np.uint8)


def unfolded(places: UInt8[np.ndarray, "rows 2"]) -> Float64[np.ndarray, "rows 3"]:
    """The unit vectors of `octahedral` places; within a degree of those that were kept."""
    xy = places / 255 * 2 - 1
    z = 1 - np.abs(xy).sum(axis=1)
    below = np.maximum(-z, 0.0)[:, None]
    vectors = np.column_stack([xy - _signs(xy) * below, z])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _signs(values: Float64[np.ndarray, "rows 2"]) -> Float64[np.ndarray, "rows 2"]:
    return np.where(values >= 0, 1.0, -1.0)
