"""Fixed point: coordinates of 16 bits, twice as many of which are multiplied at a time as of floats.

Sums of their products are exact in 32 bits, so what a Gram entry lacks is what rounding took of its two rows, and that is
known: |q_a . y + x . q_b + q_a . q_b| <= |q_a| |y| + |x| |q_b| + |q_a| |q_b|. It enters the slack in the place of the roundoff
of single precision (docs/theory/distances.md, Eq. 17); some more candidates are left to float64, results are the same.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int32

from veil.distances.cpu.codegen.shape import ONE, Shape
from veil.distances.cpu.compile import kernels
from veil.distances.cpu.pack import Components
from veil.distances.cpu.prepared import Prepared

# Products of errors, and the roundoff of the numbers that are rounded, beside the first order.
HIGHER_ORDERS = 1.001


def components(side: Prepared, unit: float, shape: Shape) -> tuple[Components, float]:
    """Origins over `unit`, and directions, as words of two coordinates; the largest error of a row."""
    count, m, dim = side.basis.shape
    origins, error = words(side.origin, dim, 1 / unit, shape)
    if m == 0:
        return [origins], error
    directions, other = words(side.basis.reshape(count * m, dim), dim, 1.0, shape)
    return [origins, *np.swapaxes(directions.reshape(count, m, -1), 0, 1)], max(error, other)


def words(rows: Float[np.ndarray, "rows _"], dim: int, scale: float, shape: Shape) -> tuple[Int32[np.ndarray, "rows _"], float]:
    """`dim` coordinates of each row, of length 1 at most, in pairs of 16 bits, zero behind the last; the largest error."""
    kind = "float" if rows.dtype == np.float32 else "double"
    even = dim + dim % 2
    out, worst = np.empty((len(rows), even), dtype=np.int16), np.zeros(1, dtype=np.float32)
    pointers = (part.ctypes.data for part in (rows, out, worst))
    kernels(shape, f"rounded {kind}")["rounded"](*pointers, len(rows), dim, even, rows.strides[0], ONE * scale)
    return out.view(np.int32), error_of(float(worst[0]))


def error_of(worst: float) -> float:
    """The largest error of a row, from the largest sum of squares that rounding took of one, in units of the last place."""
    return HIGHER_ORDERS * float(np.sqrt(worst)) / ONE
