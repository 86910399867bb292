"""Fixed point: coordinates rounded to 16 bits, of which a processor multiplies twice as many at a time as floats.

Sums of their products are exact in 32 bits, so the error of a Gram entry comes from rounding its two rows alone, and it is
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

# Factor on the first-order error that covers products of errors and the roundoff of the numbers that are rounded.
HIGHER_ORDERS = 1.001


def components(side: Prepared, unit: float, shape: Shape) -> tuple[Components, float]:
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
