"""Both sides of a comparison as the compiled code reads them: centered, minimal, padded, single precision.

Padded features have an infinite |d0|^2 and zeros elsewhere, so that every distance to them is infinite: they win no search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int32, Shaped

from veil.distances.cpu.codegen.shape import Shape

# Origins, then one array for each direction of the bases, each (features, dim); words of two coordinates in fixed point.
Components = Sequence[Float[np.ndarray, "_ _"] | Int32[np.ndarray, "_ _"]]
# Alignment of packed memory: one cache line, one AVX-512 vector.
ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """One side: `values` in the order of use, |d0|^2 of each feature, padded counts."""

    values: Shaped[np.ndarray, "_"]
    squares: Float32[np.ndarray, "_"]
    count: int
    coordinates: int
    group_bytes: int


def aligned(count: int, kind: type = np.float32) -> np.ndarray:
    """Uninitialized memory from an aligned address."""
    size = np.dtype(kind).itemsize
    raw = np.empty(count * size + ALIGNMENT, dtype=np.uint8)
    first = -raw.ctypes.data % ALIGNMENT
    return raw[first : first + count * size].view(kind)


def pack_left(components: Components, squared: Float[np.ndarray, "features"], shape: Shape) -> Packed:
    """[group][tile][coordinate][row]: rows are the components of a group's features, one feature after the other."""
    per_group = shape.features
    groups, dim = -(-len(squared) // per_group), components[0].shape[1]
    width = per_group * shape.left
    values = aligned(groups * dim * width, _kind(shape)).reshape(groups, dim * width)
    row = 0
    for size in shape.row_groups:
        tile = _slice(values, row, size, dim)
        for k in range(size):
            feature, component = divmod(row + k, shape.left)
            own = components[component][feature::per_group]
            tile[: len(own), :, k] = own
            tile[len(own) :, :, k] = 0
        row += size
    return packed(values, squared, groups * per_group, dim)


def pack_right(components: Components, squared: Float[np.ndarray, "features"], shape: Shape) -> Packed:
    """[panel][tile][coordinate][component][lane]."""
    lanes, dim = shape.lanes, components[0].shape[1]
    panels, whole = -(-len(squared) // lanes), len(squared) // lanes
    values = aligned(panels * dim * shape.right * lanes, _kind(shape)).reshape(panels, -1)
    column = 0
    for size in shape.column_groups:
        tile = _slice(values, column * lanes, size * lanes, dim).reshape(panels, dim, size, lanes)
        for k in range(size):
            own = components[column + k]
            tile[:whole, :, k] = own[: whole * lanes].reshape(whole, lanes, dim).transpose(0, 2, 1)
            rest = own[whole * lanes :]
            tile[whole:, :, k, : len(rest)] = rest.T
            tile[whole:, :, k, len(rest) :] = 0
        column += size
    return packed(values, squared, panels * lanes, dim)


def _kind(shape: Shape) -> type:
    """What a coordinate, or with `fixed` two of them, is packed as."""
    return np.int32 if shape.fixed else np.float32


def _slice(values: np.ndarray, start: int, size: int, dim: int) -> np.ndarray:
    """The memory of one tile in every group or panel: [group][coordinate][entry]."""
    return values[:, start * dim : (start + size) * dim].reshape(len(values), dim, size)


def packed(values: np.ndarray, squared: np.ndarray, features: int, dim: int) -> Packed:
    """Filled memory, [group or panel][...], with |d0|^2 of its features, which are padded to `features`."""
    squares = _infinite(squared, features)
    return Packed(
        values=values.reshape(-1), squares=squares, count=len(squared), coordinates=dim, group_bytes=4 * values.shape[1]
    )


def _infinite(squared: np.ndarray, features: int) -> np.ndarray:
    padded = aligned(features)
    padded[: len(squared)] = squared
    padded[len(squared) :] = np.inf
    return padded
