"""The two nearest of every row and column among listed pairs: one pass over these, in compiled code."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import kernels

# Indices and distances of the two nearest of each owner.
Two = tuple[Int64[np.ndarray, "_ 2"], Float64[np.ndarray, "_ 2"]]


def two_best(
    rows: Int64[np.ndarray, "pairs"],
    columns: Int64[np.ndarray, "pairs"],
    distance: Float64[np.ndarray, "pairs"],
    sizes: tuple[int, int],
    shape: Shape,
) -> tuple[Two, Two]:
    """The two nearest of every row, and of every column, among distinct pairs that are sorted by either and then the other.

    Ties keep the smaller index; (-1, inf) pads. `sizes` are the numbers of rows and columns.
    """
    found = [(np.full((size, 2), -1, dtype=np.int64), np.full((size, 2), np.inf)) for size in sizes]
    memory = [np.ascontiguousarray(part) for part in (rows, columns, distance)]
    if len(rows):
        pointers = (part.ctypes.data for part in (*memory, *found[0], *found[1]))
        kernels(Shape(left=1, right=1, lanes=shape.lanes), "ranked")["ranked"](*pointers, len(rows))
    return found[0], found[1]
