"""Both sides of a comparison as the compiled code reads them: centered, minimal, padded, single precision.

Padded features have an infinite |d0|^2 and zeros elsewhere, so that every distance to them is infinite: they win no search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32

from veil.kernels.jit.shape import Shape

# Alignment of packed memory: one cache line, one AVX-512 vector.
ALIGNMENT = 64


@dataclass(frozen=True, kw_only=True, eq=False)
class Packed:
    """One side: `values` in the order of use, |d0|^2 of each feature, padded counts."""

    values: Float32[np.ndarray, "_"]
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


def pack_left(
    planes: Float32[np.ndarray, "left features dim"], squared: Float32[np.ndarray, "features"], shape: Shape
) -> Packed:
    """[group][tile rows][coordinate][row]: rows are the components of a group's features, one feature after the other."""
    per_group = shape.features
    groups = -(-len(squared) // per_group)
    grouped = _padded(planes, groups * per_group)
    # [group, coordinate, feature of the group, component]
    grouped = grouped.reshape(shape.left, groups, per_group, -1).transpose(1, 3, 2, 0)
    rows = grouped.reshape(groups, grouped.shape[1], per_group * shape.left)
    return _sliced(rows, shape.row_groups, _infinite(squared, groups * per_group), len(squared))


def pack_right(
    planes: Float32[np.ndarray, "right features dim"], squared: Float32[np.ndarray, "features"], shape: Shape
) -> Packed:
    """[panel][tile columns][coordinate][component][lane]."""
    panels = -(-len(squared) // shape.lanes)
    padded = _padded(planes, panels * shape.lanes)
    # [panel, coordinate, component, lane]
    grouped = padded.reshape(shape.right, panels, shape.lanes, -1).transpose(1, 3, 0, 2)
    columns = tuple(count * shape.lanes for count in shape.column_groups)
    flat = grouped.reshape(panels, grouped.shape[1], shape.right * shape.lanes)
    return _sliced(flat, columns, _infinite(squared, panels * shape.lanes), len(squared))


def _padded(planes: Float[np.ndarray, "planes features dim"], features: int) -> np.ndarray:
    count, present, dim = planes.shape
    if present == features:
        return planes
    padded = np.zeros((count, features, dim), dtype=np.float32)
    padded[:, :present] = planes
    return padded


def _infinite(squared: np.ndarray, features: int) -> np.ndarray:
    padded = aligned(features)
    padded[: len(squared)] = squared
    padded[len(squared) :] = np.inf
    return padded


def _sliced(rows: np.ndarray, widths: tuple[int, ...], squares: np.ndarray, count: int) -> Packed:
    groups, coordinates, width = rows.shape
    values = aligned(rows.size).reshape(groups, coordinates * width)
    at = 0
    for size in widths:
        part = values[:, at * coordinates : (at + size) * coordinates].reshape(groups, coordinates, size)
        part[:] = rows[:, :, at : at + size]
        at += size
    return Packed(
        values=values.reshape(-1), squares=squares, count=count, coordinates=coordinates, group_bytes=4 * coordinates * width
    )
