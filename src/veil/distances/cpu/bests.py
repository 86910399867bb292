"""Running bests of a sweep, and the candidates among them: pairs that may be among the two nearest of their owner.

The two nearest among listed pairs take one compiled pass over the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64

from veil.distances.cpu.codegen.outputs import STATE
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import kernels

# Features from which compiled code saves, within some hundred searches, the time that compiling it takes.
COMPILED_MIN = 1 << 9
# Owner and other feature of every candidate pair, and a mask of the owners that may have further candidates. Owners are the
# rows or the columns.
Within = tuple[Int64[np.ndarray, "_"], Int64[np.ndarray, "_"], Bool[np.ndarray, "_"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Running:
    """Smallest squared distances of each feature with the indices of the other features (-1: none), and a bound of the rest.

    Every feature of the other side that is not in a row of `index` has a squared distance of at least `hidden`, unless the pair
    was listed as doubtful and took no part.
    """

    value: Float32[np.ndarray, "_ _"]
    index: Int32[np.ndarray, "_ _"]
    hidden: Float32[np.ndarray, "_"]

    def times(self, factor: float) -> Running:
        """Bests with all squared distances multiplied by `factor`."""
        return replace(self, value=self.value * np.float32(factor), hidden=self.hidden * np.float32(factor))

    def within(self, slack: float) -> Within:
        """Candidate pairs whose squared distance lies within `slack` of the second best of their owner."""
        present = self.index >= 0
        second = np.partition(self.value, 1, axis=1)[:, 1]
        limit = second + np.float32(slack)
        near = np.flatnonzero(present & (self.value <= limit[:, None]))
        incomplete = np.isfinite(self.hidden) & (self.hidden <= limit)
        return near // present.shape[1], self.index.reshape(-1)[near].astype(np.int64), incomplete


@dataclass(frozen=True, kw_only=True, eq=False)
class States:
    """Running bests in the layout of the compiled sweep: states of three vectors of values and two of indices.

    There is one state for each row, whose lanes hold columns, or with `by_lanes` several sets of a state for each panel of
    columns, a column in each lane. `count` is the number of features. Values are in units of `unit`.
    """

    state: Float32[np.ndarray, "sets some state lanes"]
    count: int
    shape: Shape
    by_lanes: bool
    unit: float = 1.0

    def times(self, factor: float) -> States:
        """Bests with all squared distances multiplied by `factor`."""
        return replace(self, unit=self.unit * factor)

    @property
    def running(self) -> Running:
        """Bests in the layout of `Running`, rearranged by NumPy."""
        sets, some, _, lanes = self.state.shape
        if self.by_lanes:
            state = self.state.transpose(1, 3, 2, 0).reshape(some * lanes, STATE, sets)[: self.count]
        else:
            state = self.state[0, : self.count]
        return Running(
            value=state[:, :2].reshape(self.count, -1),
            index=np.ascontiguousarray(state[:, 3:]).view(np.int32).reshape(self.count, -1),
            hidden=state[:, 2].min(axis=1),
        ).times(self.unit)

    def within(self, slack: float) -> Within:
        """Candidate pairs whose squared distance lies within `slack` of the second best of their owner."""
        if self.count < COMPILED_MIN:
            return self.running.within(slack)
        sets, some, _, lanes = self.state.shape
        places = some if self.by_lanes else self.count
        pairs = np.empty((2, 2 * sets * places * lanes), dtype=np.int64)
        incomplete, listed = np.empty(places * (lanes if self.by_lanes else 1), dtype=np.uint8), np.zeros(1, dtype=np.int64)
        name = "columns" if self.by_lanes else "rows"
        function = kernels(Shape(left=1, right=1, lanes=lanes), f"within {name}")["within"]
        pointers = (memory.ctypes.data for memory in (self.state, pairs[0], pairs[1], incomplete, listed))
        function(
            *pointers, places, sets, self.state.strides[0], np.nextafter(np.float32(slack / self.unit), np.float32(np.inf))
        )
        owner, other = pairs[:, : listed[0]]
        return owner, other, incomplete[: self.count].view(bool)


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
