"""Memory layouts that the sweep reads: panels of right features and groups of left ones, in single precision or 16 bits.

Sides are centered and minimal before they are packed. Padding features have an infinite |d0|^2 and zeros elsewhere, so that
every distance to them is infinite: they win no search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int32, Shaped

from veil.distances.cpu.codegen.shape import Shape

# Origins, then one array for each direction of the bases, each (features, dim), or in fixed point (features, dim / 2) integers
# of two coordinates each.
Components = Sequence[Float[np.ndarray, "_ _"] | Int32[np.ndarray, "_ _"]]
# Alignment of packed memory: one cache line, one AVX-512 vector.
ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class PackedSide:
    """One packed side: `values` in the order in which the kernel reads them, and `squares`, |d0|^2 of each feature.

    Both are padded to whole groups or panels; `count` is the number of features without padding. `coordinates` is the number of
    packed entries of a component, `group_bytes` the size of a group or panel.
    """

    values: Shaped[np.ndarray, "_"]
    squares: Float32[np.ndarray, "_"]
    count: int
    coordinates: int
    group_bytes: int


def aligned(count: int, kind: type = np.float32) -> np.ndarray:
    """Uninitialized array of `count` numbers from an aligned address."""
    size = np.dtype(kind).itemsize
    raw = np.empty(count * size + ALIGNMENT, dtype=np.uint8)
    first = -raw.ctypes.data % ALIGNMENT
    return raw[first : first + count * size].view(kind)


def pack_left(components: Components, squared: Float[np.ndarray, "features"], shape: Shape) -> PackedSide:
    """Left side packed as [group][tile][coordinate][row]; rows are the components of a group's features in turn."""
    per_group = shape.features
    groups, dim = -(-len(squared) // per_group), components[0].shape[1]
    width = per_group * shape.left
    values = aligned(groups * dim * width, _kind(shape)).reshape(groups, dim * width)
    row = 0
    for size in shape.row_groups:
        tile = _slice(values, row, size, dim)
        for k in range(size):
            feature, component = divmod(row + k, shape.left)
            rows = components[component][feature::per_group]
            tile[: len(rows), :, k] = rows
            tile[len(rows) :, :, k] = 0
        row += size
    return packed(values, squared, groups * per_group, dim)


def pack_right(components: Components, squared: Float[np.ndarray, "features"], shape: Shape) -> PackedSide:
    """Right side packed as [panel][tile][coordinate][component][lane]."""
    lanes, dim = shape.lanes, components[0].shape[1]
    panels, whole = -(-len(squared) // lanes), len(squared) // lanes
    values = aligned(panels * dim * shape.right * lanes, _kind(shape)).reshape(panels, -1)
    column = 0
    for size in shape.column_groups:
        tile = _slice(values, column * lanes, size * lanes, dim).reshape(panels, dim, size, lanes)
        for k in range(size):
            rows = components[column + k]
            tile[:whole, :, k] = rows[: whole * lanes].reshape(whole, lanes, dim).transpose(0, 2, 1)
            rest = rows[whole * lanes :]
            tile[whole:, :, k, : len(rest)] = rest.T
            tile[whole:, :, k, len(rest) :] = 0
        column += size
    return packed(values, squared, panels * lanes, dim)


def _kind(shape: Shape) -> type:
    """Type of a packed entry: one coordinate, or two of them in fixed point."""
    return np.int32 if shape.fixed else np.float32


def _slice(values: np.ndarray, start: int, size: int, dim: int) -> np.ndarray:
    """View of one tile in every group or panel: [group][coordinate][entry]."""
    return values[:, start * dim : (start + size) * dim].reshape(len(values), dim, size)


def packed(values: np.ndarray, squared: np.ndarray, features: int, dim: int) -> PackedSide:
    """Packed side from filled memory, [group or panel][...], with |d0|^2 of its features padded to `features` entries."""
    squares = _infinite(squared, features)
    return PackedSide(
        values=values.reshape(-1), squares=squares, count=len(squared), coordinates=dim, group_bytes=4 * values.shape[1]
    )


def _infinite(squared: np.ndarray, features: int) -> np.ndarray:
    """Array of `features` entries that begins with `squared` and ends in infinities."""
    padded = aligned(features)
    padded[: len(squared)] = squared
    padded[len(squared) :] = np.inf
    return padded
