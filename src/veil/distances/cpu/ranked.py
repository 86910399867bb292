"""Two nearest neighbors of every row and column among listed pairs, in one compiled pass over the pairs."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64

from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import kernels

# Indices and distances of the two nearest neighbors of each row, or of each column.
Two = tuple[Int64[np.ndarray, "_ 2"], Float64[np.ndarray, "_ 2"]]


def two_best(
    rows: Int64[np.ndarray, "pairs"],
    columns: Int64[np.ndarray, "pairs"],
    distance: Float64[np.ndarray, "pairs"],
    sizes: tuple[int, int],
    shape: Shape,
) -> tuple[Two, Two]:
    """Two nearest neighbors of every row, and of every column, among distinct pairs (row, column) of given distance.

    Pairs are sorted by row and then column, or by column and then row. Ties keep the smaller index; (-1, inf) pads. `sizes` are
    the numbers of rows and columns.
    """
    bests = [(np.full((size, 2), -1, dtype=np.int64), np.full((size, 2), np.inf)) for size in sizes]
    memory = [np.ascontiguousarray(part) for part in (rows, columns, distance)]
    if len(rows):
        pointers = (part.ctypes.data for part in (*memory, *bests[0], *bests[1]))
        kernels(Shape(left=1, right=1, lanes=shape.lanes), "ranked")["ranked"](*pointers, len(rows))
    return bests[0], bests[1]
