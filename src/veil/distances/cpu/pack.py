"""Memory layouts that the sweep reads: panels of right features and groups of left ones, in single precision or 16 bits.

Sides are centered and minimal before they are packed. Padding features have an infinite |d0|^2 and zeros elsewhere, so that
every distance to them is infinite: they win no search.

Of coordinates rounded to 16 bits a processor multiplies twice as many at a time as of floats. Sums of their products are exact
in 32 bits, so the error of a Gram entry comes from rounding its two rows alone, and it is known:
|q_a . y + x . q_b + q_a . q_b| <= |q_a| |y| + |x| |q_b| + |q_a| |q_b|. It enters the slack in the place of the roundoff of
single precision (docs/theory/distances.md, Eq. 17); some more candidates are left to float64, results are the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Float32, Int32, Shaped

from veil.distances.cpu.codegen.shape import ONE, Shape
from veil.distances.cpu.compile import kernels
from veil.distances.cpu.prepared import PART_NUMBERS, Components, Prepared, aligned, each_of


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


# Factor on the first-order error that covers products of errors and the roundoff of the numbers that are rounded.
HIGHER_ORDERS = 1.001


def fixed_components(side: Prepared, unit: float, shape: Shape) -> tuple[Components, float]:
    """Origins divided by `unit`, and directions, in pairs of 16-bit coordinates; and the largest error |q| of a row."""
    count, m, dim = side.basis.shape
    origins, error = quantized_pairs(side.origin, dim, 1 / unit, shape)
    if m == 0:
        return [origins], error
    directions, other = quantized_pairs(side.basis.reshape(count * m, dim), dim, 1.0, shape)
    return [origins, *np.swapaxes(directions.reshape(count, m, -1), 0, 1)], max(error, other)


def quantized_pairs(
    rows: Float[np.ndarray, "rows _"], dim: int, scale: float, shape: Shape
) -> tuple[Int32[np.ndarray, "rows _"], float]:
    """First `dim` coordinates of each row times `scale`, rounded to 16 bits, two to an integer; and the largest error of a row.

    Scaled rows have length 1 at most. An odd number of coordinates is padded with a zero.
    """
    kind = "float" if rows.dtype == np.float32 else "double"
    even = dim + dim % 2
    out, worst = np.empty((len(rows), even), dtype=np.int16), np.zeros(1, dtype=np.float32)
    pointers = (part.ctypes.data for part in (rows, out, worst))
    kernels(shape, f"rounded {kind}")["rounded"](*pointers, len(rows), dim, even, rows.strides[0], ONE * scale)
    return out.view(np.int32), error_of(float(worst[0]))


def error_of(worst: float) -> float:
    """Largest error |q| of a row, from the largest sum of squared rounding errors of a row in units of the last place."""
    return HIGHER_ORDERS * float(np.sqrt(worst)) / ONE


# Numbers of a side from which packing by compiled code saves, within some hundred searches, the time that compiling it takes.
COMPILED_MIN = 1 << 18


def pack(side: Prepared, shape: Shape, *, left: bool, unit: float = 1.0, threads: int = 1) -> tuple[PackedSide, float]:
    """One side in the layout that the kernel reads, and the largest error |q| of a row from rounding to 16 bits (else 0).

    Origins are divided by `unit`, than which none may be longer in fixed point (docs/theory/distances.md, Eq. 17).
    """
    count, m, dim = side.basis.shape
    if not left and dim % shape.lanes == 0 and count * (m + 1) * dim >= COMPILED_MIN:
        return _panels(side, shape, unit, threads)
    components, error = fixed_components(side, unit, shape) if shape.fixed else (side.components, 0.0)
    return (pack_left if left else pack_right)(components, side.squares / unit**2, shape), error


def _panels(side: Prepared, shape: Shape, unit: float, threads: int) -> tuple[PackedSide, float]:
    """Right features packed by compiled code, which takes whole panels: the last features are copied and padded with zeros."""
    count, dim, lanes = len(side), side.basis.shape[2], shape.lanes
    lines, whole, panels = dim // 2 if shape.fixed else dim, count // lanes, -(-count // lanes)
    values = aligned(panels * lines * shape.right * lanes).reshape(panels, -1)
    kind = "float" if side.basis.dtype == np.float32 else "double"
    function = kernels(shape, f"panels {kind}")["panels"]

    def work(ends: tuple[int, int]) -> float:
        part = [each[ends[0] * lanes : ends[1] * lanes] for each in (side.origin, side.basis)]
        if len(part[0]) < (ends[1] - ends[0]) * lanes:
            part = [_padded(each, lanes) for each in part]
        worst = np.zeros(1, dtype=np.float32)
        pointers = (memory.ctypes.data for memory in (*part, values[ends[0] :], worst))
        function(*pointers, ends[1] - ends[0], dim, part[0].strides[0], ONE / unit)
        return float(worst[0])

    size = max(1, PART_NUMBERS // (lanes * shape.right * dim))
    parts = [(start, min(start + size, whole)) for start in range(0, whole, size)] + [(whole, panels)] * (panels > whole)
    worst = max(each_of(work, parts, threads), default=0.0)
    error = error_of(worst) if shape.fixed else 0.0
    return packed(values, side.squares / unit**2, panels * lanes, lines), error


def _padded(rows: np.ndarray, count: int) -> np.ndarray:
    """Copy of an array with rows of zeros appended, `count` rows in all."""
    padded = np.zeros((count, *rows.shape[1:]), dtype=rows.dtype)
    padded[: len(rows)] = rows
    return padded
