"""The running bests of a sweep, and the candidates among them: what could be one of the two nearest of its row or column."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float32, Int32, Int64

from veil.distances.cpu.codegen.outputs import STATE
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import kernels

# Features from which compiled code gains what compiling it takes, within some hundred searches.
COMPILED_MIN = 1 << 9
# (owner, other) of every candidate, and the owners that may have more than are known.
Within = tuple[Int64[np.ndarray, "_"], Int64[np.ndarray, "_"], Bool[np.ndarray, "_"]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Running:
    """For each feature some of its best: candidate values and indices (-1: none), and values that hide others behind them.

    Every feature of the other side whose value lies below all `hidden` of a row is among its candidates.
    """

    value: Float32[np.ndarray, "_ _"]
    index: Int32[np.ndarray, "_ _"]
    hidden: Float32[np.ndarray, "_"]

    def times(self, factor: float) -> Running:
        """The same in other units."""
        return replace(self, value=self.value * np.float32(factor), hidden=self.hidden * np.float32(factor))

    def within(self, slack: float) -> Within:
        """Every candidate within `slack` of the second best."""
        present = self.index >= 0
        second = np.partition(self.value, 1, axis=1)[:, 1]
        limit = second + np.float32(slack)
        found = np.flatnonzero(present & (self.value <= limit[:, None]))
        incomplete = np.isfinite(self.hidden) & (self.hidden <= limit)
        return found // present.shape[1], self.index.reshape(-1)[found].astype(np.int64), incomplete


@dataclass(frozen=True, kw_only=True, eq=False)
class States:
    """The same as the compiled sweep leaves it, vectors of three values and two indices: one of these for each row, or several
    for each panel of columns, a column in each lane. Values are in units of `unit`."""

    state: Float32[np.ndarray, "sets some state lanes"]
    count: int
    shape: Shape
    by_lanes: bool
    unit: float = 1.0

    def times(self, factor: float) -> States:
        """The same in other units."""
        return replace(self, unit=self.unit * factor)

    @property
    def running(self) -> Running:
        """By NumPy, which does not need to know how."""
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
        """Every candidate within `slack` of the second best."""
        if self.count < COMPILED_MIN:
            return self.running.within(slack)
        sets, some, _, lanes = self.state.shape
        places = some if self.by_lanes else self.count
        pairs = np.empty((2, 2 * sets * places * lanes), dtype=np.int64)
        hidden, found = np.empty(places * (lanes if self.by_lanes else 1), dtype=np.uint8), np.zeros(1, dtype=np.int64)
        name = "columns" if self.by_lanes else "rows"
        function = kernels(Shape(left=1, right=1, lanes=lanes), f"within {name}")["within"]
        pointers = (memory.ctypes.data for memory in (self.state, pairs[0], pairs[1], hidden, found))
        function(
            *pointers, places, sets, self.state.strides[0], np.nextafter(np.float32(slack / self.unit), np.float32(np.inf))
        )
        owner, other = pairs[:, : found[0]]
        return owner, other, hidden[: self.count].view(bool)
