"""Sweep on a graphics processor: upload of sets as planes, launches of kernels, and reduction of running bests there.

Triton's interpreter runs the same code on the CPU, slowly, where TRITON_INTERPRET=1 is set. Tests use it without a device.
"""

from __future__ import annotations

import linecache
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from jaxtyping import Float32

from veil.distances.cpu.candidates import REACHES
from veil.distances.cpu.codegen.outputs import SQUARE_TRUSTED, UNTRUSTED
from veil.distances.cpu.prepared import Indices, Prepared
from veil.distances.cpu.sweep import Running, Swept, list_capacity
from veil.distances.gpu.source import COLUMNS, ROWS, WARPS, fused, source
from veil.errors import VeilWarning

# Largest m of either side: beyond, the entries of the smallest tile exceed all registers.
M_MAX = 16
# Gram entries of a pair from which on it is said that a kernel takes long to compile: 40 s at m = 12, four minutes at m = 16.
LONG_ENTRIES = 150
# Error of one Gram entry of unit vectors: three products of 11-bit halves lose 2^-22 each; eight times that.
ENTRY_ERROR = 2.0**-19
# Gram entries of a chunk, 64 MB: a quarter of that stays in the second-level cache between the product and the solve, but then
# the many launches take longer than the memory would (lab/results/speed.md#distances-on-a-graphics-processor).
CHUNK_FLOATS = 1 << 24
# Programs of a chunk, which occupy the device: its rows are cut into as many parts as that takes. And candidates of a feature
# that it returns.
PROGRAMS, KEPT = 256, 8


@cache
def obstacle() -> str | None:
    """Reason why this machine cannot run the backend, or None if it can."""
    try:
        import torch
        import triton  # noqa: F401
    except ImportError as error:
        return f"{error.name} cannot be imported; pip install 'veil[gpu]'"
    if interpreted():
        return None
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    return None


def refusal(left_m: int, right_m: int) -> str | None:
    """Reason why the backend does not serve subspaces of these dimensions, or None if it does."""
    if max(left_m, right_m) > M_MAX:
        return f"it serves subspaces up to m = {M_MAX}, got {left_m} and {right_m}; use backend 'cpu'"
    return None


def interpreted() -> bool:
    """Whether Triton's interpreter stands in for the device."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def function(left: int, right: int, output: str) -> Any:
    """Triton function of an output, for features of a given dimension; `linecache` keeps its source, which Triton reads."""
    if left * right >= LONG_ENTRIES and output == "dense":
        message = "the first run with subspaces of m = {} and {} compiles for minutes on this machine; Triton keeps the result"
        warnings.warn(message.format(left - 1, right - 1), VeilWarning, stacklevel=2)
    text, name = source(left, right, output), f"<veil triton {left} {right} {output}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    space: dict[str, Any] = {"__name__": f"veil_triton_{left}_{right}_{output}"}
    exec(compile(text, name, "exec"), space)
    return space[output]


@dataclass(frozen=True, kw_only=True, eq=False)
class Planes:
    """Set on the device: `values` [component][feature][halves of coordinates] and `squares` |d0|^2.

    It is padded with features infinitely far away.
    """

    values: Any
    squares: Any

    def chunk(self, start: int, size: int) -> Planes:
        """Planes of at most `size` features from `start` on."""
        return Planes(values=self.values[:, start : start + size], squares=self.squares[start : start + size])

    def __len__(self) -> int:
        return len(self.squares)


def planes(side: Prepared, multiple: int, order: str) -> Planes:
    """Set uploaded to the device, features padded to a multiple, each coordinate as a high and a low half of 11 bits.

    `order` is the order of the halves; "hhl" against "hlh" leaves out only the product of both low halves
    (docs/theory/distances.md, Eq. 16).
    """
    import torch

    dim, count = side.basis.shape[2], len(side)
    padded = -(-count // multiple) * multiple
    values = np.zeros((side.m + 1, padded, dim), dtype=np.float32)
    values[0, :count] = side.origin[:, :dim]
    values[1:, :count] = np.swapaxes(side.basis, 0, 1)
    squares = np.full(padded, np.inf, dtype=np.float32)
    squares[:count] = side.squares
    where = "cpu" if interpreted() else "cuda"
    whole = torch.from_numpy(values).to(where)
    high = ((whole.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
    halves = {"h": high, "l": whole - high}
    return Planes(values=torch.cat([halves[k] for k in order], dim=2), squares=torch.from_numpy(squares).to(where))


def chunk_sizes(left: int, right: int) -> tuple[int, int]:
    """Numbers of left and right features of a chunk, whose Gram block has about twice as many columns as rows.

    `left` and `right` are numbers of components of a feature.
    """
    side = math.sqrt(CHUNK_FLOATS)
    rows, columns = int(side / left / math.sqrt(2)) // ROWS, int(side / right * math.sqrt(2)) // COLUMNS
    return max(1, rows) * ROWS, max(1, columns) * COLUMNS


class Processor:
    """Engine (`cpu.candidates.Engine`) that sweeps two sets on the device, the side of smaller dimension first."""

    entry_error = ENTRY_ERROR
    reaches: tuple[float, ...] = REACHES

    def __init__(self, a: Prepared, b: Prepared) -> None:
        self.a, self.b = a, b
        self.components = a.m + 1, b.m + 1
        self.rows, self.columns = chunk_sizes(*self.components)

    def dense(self, reach: float, *, rows: Indices = None, columns: Indices = None) -> Float32[np.ndarray, "_ _"]:
        """Squared distances, all or those of some rows or columns; -1 below `outputs.SQUARE_TRUSTED` or beyond `reach`."""
        a, b = self.a if rows is None else self.a.take(rows), self.b if columns is None else self.b.take(columns)
        result = np.empty((len(a), len(b)), dtype=np.float32)
        for row, column, squares, reaches in self._dense(a, b):
            squares[(squares < SQUARE_TRUSTED) | (reaches > reach)] = UNTRUSTED
            part = result[row : row + len(squares), column : column + squares.shape[1]]
            part[:] = squares[: part.shape[0], : part.shape[1]].cpu().numpy()
        return result

    def best_two(self, reach: float) -> Swept:
        """Running bests of all rows and columns, without the matrix; pairs of a reach |alpha|^2 beyond `reach` are listed."""
        a, b = self.a, self.b
        rows, columns, doubtful = self.swept(planes(a, ROWS, "hhl"), planes(b, COLUMNS, "hlh"), reach)
        count = int(doubtful.item())
        overflowed = count > list_capacity(len(a), len(b))
        listed = self._beyond(a, b, reach) if count and not overflowed else np.empty((0, 2), dtype=np.int32)
        return Swept(
            rows=_running(*(state.transpose(0, 1)[: len(a)] for state in rows)),
            columns=_running(*(state.transpose(0, 1)[: len(b)] for state in columns)),
            doubtful=listed,
            overflowed=overflowed,
        )

    def finer(self) -> None:
        """None: there is no engine of a smaller error on the device."""

    def swept(self, left: Planes, right: Planes, reach: float) -> tuple[tuple[Any, Any], tuple[Any, Any], Any]:
        """Running bests in the device's memory: (values, indices) of rows [panel][row] and of columns [part][column].

        The third result is the number of pairs whose reach exceeds `reach`, which took no part.
        """
        import torch

        where, panels = left.squares.device, len(right) // COLUMNS
        per_chunk = max(1, min(PROGRAMS * COLUMNS // min(self.columns, len(right)), self.rows // ROWS))
        parts = -(-len(left) // self.rows) * per_chunk

        def fresh(*sizes: int) -> tuple[Any, Any]:
            values = torch.full((*sizes, 3), math.inf, device=where)
            return values, torch.full((*sizes, 2), -1, dtype=torch.int32, device=where)

        rows, columns = fresh(panels, len(left)), fresh(parts, len(right))
        doubtful = torch.zeros(1, dtype=torch.int32, device=where)
        for row, column, gram, left_part, right_part in self._chunks(left, right):
            sizes = len(left_part), len(right_part)
            tiles = -(-sizes[0] // ROWS // per_chunk)
            numbers = (float(reach), tiles, row, column // COLUMNS, row // self.rows * per_chunk, len(left), len(right))
            grid = sizes[1] // COLUMNS, -(-sizes[0] // ROWS // tiles)
            outputs = (*rows, *columns, doubtful)
            if not fused(*self.components):
                gram = self._solved(gram, left_part, right_part)
            self._launch("best_two", grid, gram, left_part.squares, right_part.squares, *outputs, *sizes, *numbers)
        return rows, columns, doubtful

    def _chunks(self, left: Planes, right: Planes) -> Iterator[tuple[int, int, Any, Planes, Planes]]:
        """Yield (first row, first column, Gram entries, left part, right part) of each chunk.

        Gram entries are [component, feature][component, feature] and fit into the second-level cache.
        """
        with tensor_products():
            for row in range(0, len(left), self.rows):
                left_part = left.chunk(row, self.rows)
                flat = left_part.values.reshape(-1, left_part.values.shape[2])
                for column in range(0, len(right), self.columns):
                    right_part = right.chunk(column, self.columns)
                    columns = right_part.values.reshape(-1, right_part.values.shape[2])
                    yield row, column, flat @ columns.T, left_part, right_part

    def _dense(self, a: Prepared, b: Prepared) -> Iterator[tuple[int, int, Any, Any]]:
        """Yield (first row, first column, squared distances, reaches) of each chunk."""
        for row, column, gram, left_part, right_part in self._chunks(planes(a, ROWS, "hhl"), planes(b, COLUMNS, "hlh")):
            yield row, column, *self._solved(gram, left_part, right_part)

    def _solved(self, gram: Any, left_part: Planes, right_part: Planes) -> Any:
        """Squared distances and reaches of a chunk, one behind the other."""
        import torch

        sizes = len(left_part), len(right_part)
        solved = torch.empty((2, *sizes), device=gram.device)
        grid = sizes[1] // COLUMNS, sizes[0] // ROWS
        self._launch("dense", grid, gram, left_part.squares, right_part.squares, *solved, *sizes, 0)
        return solved

    def _launch(self, name: str, grid: tuple[int, int], *arguments: Any) -> None:
        """Run the Triton function `dense` or `best_two` on a grid of tiles."""
        function(*self.components, name)[grid](*arguments, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS)

    def _beyond(self, a: Prepared, b: Prepared, reach: float) -> np.ndarray:
        """Pairs (row, column) whose reach |alpha|^2 exceeds `reach`."""
        import torch

        parts = []
        for row, column, _, reaches in self._dense(a, b):
            pairs = torch.nonzero(reaches[: len(a) - row, : len(b) - column] > reach).cpu().numpy()
            parts.append(pairs.astype(np.int32) + np.array([row, column], dtype=np.int32))
        return np.concatenate(parts)


@contextmanager
def tensor_products() -> Iterator[None]:
    """Context in which matrix products take numbers of 11 bits (TF32), which the halves are, at the rate of tensor cores."""
    import torch

    settings = torch.backends.cuda.matmul
    name, value = ("fp32_precision", "tf32") if hasattr(settings, "fp32_precision") else ("allow_tf32", True)
    before = getattr(settings, name)
    setattr(settings, name, value)
    try:
        yield
    finally:
        setattr(settings, name, before)


def _running(values: Any, indices: Any) -> Running:
    """Running bests from states (features, parts, 3) of values and (features, parts, 2) of indices.

    At most `KEPT` candidates of a feature are kept; `hidden` bounds all others.
    """
    import torch

    count = len(values)
    value, index = values[:, :, :2].reshape(count, -1), indices.reshape(count, -1)
    hidden = values[:, :, 2].amin(dim=1)
    value, place = torch.topk(value, min(KEPT + 1, value.shape[1]), dim=1, largest=False)
    index = torch.where(torch.isinf(value), -1, torch.gather(index, 1, place))
    if value.shape[1] > KEPT:
        hidden = torch.minimum(hidden, value[:, KEPT])
    return Running(
        value=np.ascontiguousarray(value[:, :KEPT].cpu().numpy()),
        index=np.ascontiguousarray(index[:, :KEPT].to(torch.int32).cpu().numpy()),
        hidden=hidden.cpu().numpy(),
    )
