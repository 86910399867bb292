"""Calls of the compiled sweep on chunks of left features, its running bests, and the candidates among them.

Chunks are shared out among threads; ctypes releases the GIL meanwhile. The two nearest among listed pairs take one compiled
pass over the pairs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from jaxtyping import Bool, Float32, Float64, Int32, Int64

from veil.distances.cpu.codegen.outputs import STATE
from veil.distances.cpu.codegen.shape import Shape
from veil.distances.cpu.compile import Kernel, kernels
from veil.distances.cpu.pack import PackedSide, pack_left, pack_right
from veil.distances.cpu.prepared import Prepared, aligned, each_of

# Bytes of left features that are swept together: they stay in the second-level cache while all panels pass (with half as many a
# sweep is 3 % slower).
CHUNK_BYTES = 1 << 20
# Least number of chunks for each thread, so that none waits long for the last; and of all chunks, among which the running bests
# of columns are divided.
CHUNKS_PER_THREAD, CHUNKS = 4, 16
# Least multiplications of packed numbers for each thread: fewer take about as long as waking it.
THREAD_WORK = 1 << 25


@dataclass(frozen=True, kw_only=True, eq=False)
class Swept:
    """Running bests of rows and columns, and the doubtful pairs (row, column), whose reach was too large to take part.

    With `overflowed` there were more doubtful pairs than the list holds, and nothing else is complete.
    """

    rows: Running | States
    columns: Running | States
    doubtful: Int32[np.ndarray, "_ 2"]
    overflowed: bool

    def times(self, factor: float) -> Swept:
        """Result with all squared distances multiplied by `factor`."""
        return self if factor == 1 else replace(self, rows=self.rows.times(factor), columns=self.columns.times(factor))


def packed(left: Prepared, right: Prepared, shape: Shape) -> tuple[PackedSide, PackedSide]:
    """Both sides packed in single precision as the kernels read them."""
    return pack_left(left.components, left.squares, shape), pack_right(right.components, right.squares, shape)


def dense(a: PackedSide, b: PackedSide, shape: Shape, reach: float, threads: int = 1) -> Float32[np.ndarray, "left right"]:
    """Squared distances of all pairs; -1 below `outputs.SQUARE_TRUSTED`, or where the reach |alpha|^2 exceeds `reach`."""
    function, out = kernels(shape, "dense")["dense"], np.empty((a.count, b.count), dtype=np.float32)

    def work(chunks: Iterator[range]) -> None:
        scratch = aligned(shape.scratch_floats)
        for groups in chunks:
            first = groups.start * shape.features
            rows = out[first : groups.stop * shape.features]
            function(
                *_sides(a, b, shape, groups.start),
                scratch.ctypes.data,
                rows.ctypes.data,
                *_counts(a, b, shape, groups),
                *rows.shape,
                out.strides[0],
                reach,
            )

    _share(work, a, shape, useful_threads(a, b, shape, threads))
    return out


def best_two(a: PackedSide, b: PackedSide, shape: Shape, reach: float, threads: int = 1) -> Swept:
    """Running bests of all rows and columns, without the matrix; pairs of a reach |alpha|^2 beyond `reach` are listed."""
    function = kernels(shape, "best_two")["best_two"]
    capacity = list_capacity(a.count, b.count)
    return _Fused(shape, function, a, b, capacity, reach).run(useful_threads(a, b, shape, threads))


def useful_threads(a: PackedSide, b: PackedSide, shape: Shape, threads: int) -> int:
    """Number of threads, at most `threads`, that have enough work in a sweep to be worth waking."""
    work = len(a.squares) * shape.left * len(b.squares) * shape.right * a.coordinates
    return max(1, min(threads, work // THREAD_WORK))


def list_capacity(rows: int, columns: int) -> int:
    """Largest number of doubtful pairs for which double precision of each is worth it; with more, another method is needed."""
    return 4096 + rows * columns // 256


class _Fused:
    """State that the threads of one fused sweep share."""

    def __init__(self, shape: Shape, function: Kernel, a: PackedSide, b: PackedSide, capacity: int, reach: float) -> None:
        self.shape, self.function, self.a, self.b = shape, function, a, b
        self.capacity, self.reach = capacity, reach
        self.rows = _fresh_state(len(a.squares), shape.lanes)

    def run(self, threads: int) -> Swept:
        """Result of the sweep of all chunks.

        Running bests of columns are kept apart for each thread and for some of its chunks.
        """
        self.sets = max(1, CHUNKS // threads)
        parts = [part for part in _share(self.work, self.a, self.shape, threads) if part is not None]
        sets = parts[0][0] if len(parts) == 1 else np.concatenate([state for state, _ in parts])
        lists = [pairs for _, pairs in parts]
        counts = [_listed(pairs) for pairs in lists]
        kept = [pairs[4:].reshape(-1, 2)[:count] for pairs, count in zip(lists, counts, strict=True)]
        return Swept(
            rows=States(state=self.rows[None], count=self.a.count, shape=self.shape, by_lanes=False),
            columns=States(state=sets, count=self.b.count, shape=self.shape, by_lanes=True),
            doubtful=np.concatenate(kept),
            overflowed=max(counts) > self.capacity,
        )

    def work(self, chunks: Iterator[range]) -> tuple[np.ndarray, np.ndarray] | None:
        """Bests of columns and list of doubtful pairs of one thread's chunks; None if no chunk was left for it.

        Chunks come in ascending order of rows, so that ties keep the smaller index.
        """
        if (begun := next(chunks, None)) is None:
            return None
        shape, lanes = self.shape, self.shape.lanes
        scratch = aligned(shape.scratch_floats)
        panels = len(self.b.squares) // lanes
        columns = _fresh_state(self.sets * panels, lanes).reshape(self.sets, panels, STATE, lanes)
        pairs = np.empty(2 * self.capacity + 4, dtype=np.int32)
        pairs[:4].view(np.int64)[:] = self.capacity, 0
        for turn, groups in enumerate(chain([begun], chunks)):
            first = groups.start * shape.features
            bests = columns[turn % self.sets]
            self.function(
                *_sides(self.a, self.b, shape, groups.start),
                *(memory.ctypes.data for memory in (scratch, self.rows[first:], bests, pairs)),
                *_counts(self.a, self.b, shape, groups),
                first,
                self.reach,
            )
            if _listed(pairs) > self.capacity:
                break  # the result will not be used: another limit or method is needed
        return columns, pairs


def _listed(pairs: np.ndarray) -> int:
    """Number of doubtful pairs that a sweep met, those beyond the capacity of the list included."""
    return int(pairs[2:4].view(np.int64)[0])


def _fresh_state(count: int, lanes: int) -> np.ndarray:
    """Initial running bests of `count` rows or panels, infinite with index -1: [row or panel][STATE][lane]."""
    state = aligned(count * STATE * lanes).reshape(count, STATE, lanes)
    state[:, :3] = np.inf
    state[:, 3:].view(np.int32)[:] = -1
    return state


def _sides(a: PackedSide, b: PackedSide, shape: Shape, group: int) -> tuple[int, int, int, int]:
    """Addresses of both sides' values and squares, the left ones from a group on."""
    left = a.values.ctypes.data + group * a.group_bytes
    return left, a.squares.ctypes.data + 4 * group * shape.features, b.values.ctypes.data, b.squares.ctypes.data


def _counts(a: PackedSide, b: PackedSide, shape: Shape, groups: range) -> tuple[int, int, int]:
    """Numbers of coordinates, groups and panels, as the kernels take them."""
    return a.coordinates, len(groups), len(b.squares) // shape.lanes


def _share(work, a: PackedSide, shape: Shape, threads: int) -> list:  # type: ignore[no-untyped-def]
    """Results of `work` in each of the threads, which draw chunks of groups from one queue."""
    groups = len(a.squares) // shape.features
    size = max(1, min(CHUNK_BYTES // a.group_bytes, -(-groups // max(CHUNKS, CHUNKS_PER_THREAD * threads))))
    chunks = [range(start, min(start + size, groups)) for start in range(0, groups, size)]
    queue, lock = iter(chunks), threading.Lock()

    def draw() -> Iterator[range]:
        while True:
            with lock:
                chunk = next(queue, None)
            if chunk is None:
                return
            yield chunk

    threads = min(threads, len(chunks))
    return each_of(lambda _: work(draw()), range(threads), threads)


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
