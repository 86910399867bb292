"""Triton source of the solve: straight-line code with one thread for each pair of a tile.

The Gram entries of a chunk of pairs come from one matrix product (`veil.distances.gpu.device`) and are read from the
second-level cache, which they never leave. The elimination is that of `veil.distances.cpu.codegen.eliminate`, on blocks of
pairs here as on vectors there.
"""

from __future__ import annotations

import math

from veil.distances.cpu.codegen.eliminate import direct
from veil.distances.cpu.codegen.shape import Shape

# Left and right features of a tile, and its warps: one pair for each thread, a line of the cache for each load.
ROWS, COLUMNS, WARPS = 4, 32, 4
# Gram entries of a pair up to which one kernel both solves and keeps the running bests.
FUSED_ENTRIES = 81


class Text:
    """Writer of the lines of a Triton function, with the methods of `veil.distances.cpu.codegen.eliminate.Algebra`."""

    def __init__(self, indent: int) -> None:
        self.lines: list[str] = []
        self.indent = " " * indent
        self._count = 0

    def do(self, text: str) -> None:
        """Write a statement."""
        self.lines.append(self.indent + text)

    def let(self, text: str) -> str:
        """Name of the value of an expression, which is written as a statement."""
        self._count += 1
        self.do(f"v{self._count} = {text}")
        return f"v{self._count}"

    def splat(self, value: float) -> str:
        """Constant as Triton spells it."""
        return 'float("inf")' if math.isinf(value) else repr(value)

    def negative(self, a: str) -> str:
        """Negative -a."""
        return self.let(f"-{a}")

    def fma(self, a: str, b: str, c: str) -> str:
        """Value a b + c."""
        return self.let(f"{a} * {b} + {c}")

    def fnma(self, a: str, b: str, c: str) -> str:
        """Value c - a b."""
        return self.let(f"{c} - {a} * {b}")

    def arithmetic(self, name: str, a: str, b: str) -> str:
        """Result of `name`, one of fadd, fsub, fmul and fdiv."""
        return self.let(f"{a} {({'fadd': '+', 'fsub': '-', 'fmul': '*', 'fdiv': '/'})[name]} {b}")

    def less(self, a: str, b: str) -> str:
        """Mask of the pairs where a < b."""
        return self.let(f"{a} < {b}")

    def pick(self, where: str, a: str, b: str) -> str:
        """Value a where the mask `where` is set, b elsewhere."""
        return self.let(f"tl.where({where}, {a}, {b})")

    def minimum(self, a: str, b: str) -> str:
        """Smaller of two values."""
        return self.let(f"tl.minimum({a}, {b})")

    def maximum(self, a: str, b: str) -> str:
        """Larger of two values."""
        return self.let(f"tl.maximum({a}, {b})")


HEAD = """\
import triton
import triton.language as tl


@triton.jit
def {name}(gram, left_squares, right_squares, {outputs}, rows, columns, {numbers}, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    panel = tl.program_id(0)
    own = tl.arange(0, ROWS)
    lane = tl.arange(0, COLUMNS)
    j = panel * COLUMNS + lane
"""
DENSE = """\
    i = tl.program_id(1) * ROWS + own
"""
STORED = """\
    place = i[:, None] * columns + j[None, :]
    tl.store(squares + place, square)
    tl.store(reaches + place, reached)
"""
# Running bests of each column, over the tiles of one part of the rows, and those of each row over the columns of a tile.
RUNNING = """\
    first = tl.full((ROWS, COLUMNS), float("inf"), tl.float32)
    second = tl.full((ROWS, COLUMNS), float("inf"), tl.float32)
    third = tl.full((ROWS, COLUMNS), float("inf"), tl.float32)
    at_first = tl.full((ROWS, COLUMNS), -1, tl.int32)
    at_second = tl.full((ROWS, COLUMNS), -1, tl.int32)
    count = tl.zeros((ROWS, COLUMNS), tl.int32)
    part = tl.program_id(1)
    for tile in range(part * tiles, tl.minimum((part + 1) * tiles, rows // ROWS)):
        i = tile * ROWS + own
"""
SOLVED = """\
        place = i[:, None] * columns + j[None, :]
        square = tl.load(gram + place)
        reached = tl.load(gram + rows * columns + place)
"""
ABSORB = """\
        doubtful = reached > reach
        count += doubtful.to(tl.int32)
        value = tl.where(doubtful, float("inf"), square)
        wins = value < first
        third = tl.minimum(third, tl.maximum(second, value))
        at_second = tl.where(wins, at_first, tl.where(value < second, first_row + i[:, None], at_second))
        second = tl.minimum(second, tl.maximum(first, value))
        at_first = tl.where(wins, first_row + i[:, None], at_first)
        first = tl.minimum(first, value)
        best = tl.min(value, axis=1)
        at_best = tl.argmin(value, axis=1)
        rest = tl.where(lane[None, :] == at_best[:, None], float("inf"), value)
        next_best = tl.min(rest, axis=1)
        at_next = tl.argmin(rest, axis=1)
        beyond = tl.min(tl.where(lane[None, :] == at_next[:, None], float("inf"), rest), axis=1)
        place = (first_panel + panel).to(tl.int64) * all_rows + first_row + i
        tl.store(row_values + place * 3, best)
        tl.store(row_values + place * 3 + 1, next_best)
        tl.store(row_values + place * 3 + 2, beyond)
        tl.store(row_indices + place * 2, first_panel * COLUMNS + panel * COLUMNS + at_best)
        tl.store(row_indices + place * 2 + 1, first_panel * COLUMNS + panel * COLUMNS + at_next)
    best = tl.min(first, axis=0)
    won = own[:, None] == tl.argmin(first, axis=0)[None, :]
    at_best = tl.sum(tl.where(won, at_first, 0), axis=0)
    first = tl.where(won, second, first)
    at_first = tl.where(won, at_second, at_first)
    second = tl.where(won, third, second)
    next_best = tl.min(first, axis=0)
    won = own[:, None] == tl.argmin(first, axis=0)[None, :]
    at_next = tl.sum(tl.where(won, at_first, 0), axis=0)
    place = (first_part + part).to(tl.int64) * all_columns + first_panel * COLUMNS + j
    tl.store(column_values + place * 3, best)
    tl.store(column_values + place * 3 + 1, next_best)
    tl.store(column_values + place * 3 + 2, tl.min(tl.where(won, second, first), axis=0))
    tl.store(column_indices + place * 2, at_best)
    tl.store(column_indices + place * 2 + 1, at_next)
    tl.atomic_add(doubtfuls, tl.sum(count))
"""


def fused(left: int, right: int) -> bool:
    """Whether one kernel solves and keeps the running bests of features of a given dimension.

    Compilers take minutes for larger ones, so that squared distances go through the cache to a second kernel instead.
    """
    return left * right <= FUSED_ENTRIES


def source(left: int, right: int, output: str) -> str:
    """Source of a module with the function `dense` or `best_two`, for left and right features of a given dimension.

    `dense` writes the squared distances and reaches of all pairs of a chunk. `best_two` reads Gram entries where `fused`, else
    the squared distances of `dense` and, behind them, as many reaches.
    """
    if output == "dense":
        head = HEAD.format(name="dense", outputs="squares, reaches", numbers="_")
        return head + DENSE + _pairs(left, right, indent=4) + STORED
    outputs = "row_values, row_indices, column_values, column_indices, doubtfuls"
    numbers = "reach, tiles, first_row, first_panel, first_part, all_rows, all_columns"
    head = HEAD.format(name="best_two", outputs=outputs, numbers=numbers)
    return head + RUNNING + (_pairs(left, right, indent=8) if fused(left, right) else SOLVED) + ABSORB


def _pairs(left: int, right: int, *, indent: int) -> str:
    """Statements that assign `square` and `reached`, squared distances and reaches of the tile (i, j).

    They read Gram entries [component, feature][component, feature] from `gram`.
    """
    code = Text(indent)
    width = f"({right} * columns)"
    gram = [[f"g_{a}_{b}" for b in range(right)] for a in range(left)]
    code.do(f"base = gram + i[:, None] * {width} + j[None, :]")
    for a, row in enumerate(gram):
        for b, entry in enumerate(row):
            code.do(f"{entry} = tl.load(base + ({a} * rows * {width} + {b} * columns))")
    code.do("both = tl.load(left_squares + i)[:, None] + tl.load(right_squares + j)[None, :]")
    square, reach = direct(code, Shape(left=left, right=right, lanes=16), gram, "both")
    code.do(f"square = {square}")
    code.do(f"reached = {reach or 'tl.zeros((ROWS, COLUMNS), tl.float32)'}")
    return "\n".join(code.lines) + "\n"
