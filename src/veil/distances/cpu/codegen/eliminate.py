"""Solves of many pairs side by side, in straight-line code: docs/theory/distances.md, Eq. 4 as one Schur complement.

With S = G G^T over the right directions of a pair's Gram block, row 0 being v and row i the i-th row of C, Eq. 4 is what is
left of X_00 when the rows of N are eliminated from

    X = [[ |d0|^2 + |e0|^2 - 2 d0.e0, -u^T ], [ -u, I ]] - S = [[ |r|^2 - |v|^2, -w^T ], [ -w, N ]].

Rows are taken in the order 1, ..., m, 0, so that the distance is the last pivot. Back substitution then gives alpha of Eq. 3,
and |alpha|^2, the `reach`, says how far rounding was amplified (Eq. 13); it is infinite where a pivot is too small to tell.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from veil.distances.cpu.codegen.emit import Code
from veil.distances.cpu.codegen.shape import Shape

# Pivots are raised to this at least, as in `veil.distances.numpy.planes`: one below belongs to directions that the two
# subspaces share (distances.md#what-n-is-and-when-it-is-singular).
PIVOT_FLOOR = 1e-6
# Smallest pivot, in single precision and in fixed point, that is known well enough for first-order reasoning about its error.
PIVOT_TRUSTED, PIVOT_TRUSTED_FIXED = 1e-3, 3e-2
# Name of the number in a row and column.
Entry = Callable[[int, int], str]


@runtime_checkable
class Algebra(Protocol):
    """Writer of the arithmetic of a solve, whose numbers, one for each of many pairs, are named by strings."""

    def splat(self, value: float) -> str: ...
    def negative(self, a: str) -> str: ...
    def fma(self, a: str, b: str, c: str) -> str: ...
    def fnma(self, a: str, b: str, c: str) -> str: ...
    def arithmetic(self, name: str, a: str, b: str) -> str: ...
    def less(self, a: str, b: str) -> str: ...
    def pick(self, where: str, a: str, b: str) -> str: ...
    def minimum(self, a: str, b: str) -> str: ...
    def maximum(self, a: str, b: str) -> str: ...


def start(code: Algebra, gram: Entry, squares: str, i: int, j: int) -> str:
    """Entry X_ij before S is subtracted; i comes after j in the order of elimination."""
    if i and j:
        return code.splat(float(i == j))
    if i or j:
        return code.negative(gram(i + j, 0))
    return code.fma(gram(0, 0), code.splat(-2.0), squares)


def direct(code: Algebra, shape: Shape, gram: list[list[str]], squares: str) -> tuple[str, str]:
    """Squared distance and reach from Gram entries in registers; `squares` is |d0|^2 + |e0|^2."""
    order = [*range(1, shape.left), 0]
    block = {}
    for at, i in enumerate(order):
        for j in order[: at + 1]:
            x = start(code, lambda a, b: gram[a][b], squares, i, j)
            for b in range(1, shape.right):
                x = code.fnma(gram[i][b], gram[j][b], x)
            block[i, j] = x
    smallest, inverses = "", {}
    for at, k in enumerate(order[:-1]):
        smallest = code.minimum(block[k, k], smallest) if smallest else block[k, k]
        inverses[k] = inverse(code, block[k, k])
        _subtract(code, block, order[at + 1 :], k, inverses[k])
    square = code.maximum(block[0, 0], code.splat(0.0))
    if not smallest:
        return square, ""
    return square, _reach(code, shape, lambda i, k: block[i, k], lambda k: inverses[k], smallest)


def _reach(code: Algebra, shape: Shape, factor: Entry, inverted: Callable[[int], str], smallest: str) -> str:
    """Reach |alpha|^2 by back substitution of N alpha = w, a column of the factor at a time; infinite for untrusted pivots."""
    rest, total = {k: factor(0, k) for k in range(1, shape.left)}, code.splat(0.0)
    for k in range(shape.left - 1, 0, -1):
        alpha = code.arithmetic("fmul", rest.pop(k), inverted(k))
        total = code.fma(alpha, alpha, total)
        rest = {j: code.fnma(factor(k, j), alpha, value) for j, value in rest.items()}
    trusted = PIVOT_TRUSTED_FIXED if shape.fixed else PIVOT_TRUSTED
    return code.pick(code.less(smallest, code.splat(trusted)), code.splat(math.inf), total)


def inverse(code: Algebra, pivot: str) -> str:
    """Inverse of a pivot that is raised to `PIVOT_FLOOR` at least."""
    return code.arithmetic("fdiv", code.splat(1.0), code.maximum(pivot, code.splat(PIVOT_FLOOR)))


def _subtract(code: Algebra, block: dict[tuple[int, int], str], rest: list[int], k: int, inverted: str) -> None:
    """Eliminate row k from the remaining rows of a block, in place."""
    for at, i in enumerate(rest):
        factor = code.arithmetic("fmul", block[i, k], inverted)
        for j in rest[: at + 1]:
            block[i, j] = code.fnma(factor, block[j, k], block[i, j])


def solved(code: Code, shape: Shape, block: str, squares: str, work: str) -> tuple[str, str]:
    """Squared distance and reach from Gram entries in memory, [a][b] across lanes.

    The solve is written as straight-line code, or as a call of @solve where `shape.straight` is False.
    """
    if shape.straight:
        gram = [[code.load(block, (i * shape.right + j) * code.bytes) for j in range(shape.right)] for i in range(shape.left)]
        square, reach = direct(code, shape, gram, code.load(squares))
        return square, reach or code.splat(0.0)
    code.do(f"call void @solve(ptr {block}, {code.real} 0.0, ptr {squares}, ptr {work})")
    result = (shape.left * shape.left + shape.left) * code.bytes
    return code.load(work, result), code.load(work, result + code.bytes)


def solve_function(shape: Shape, real: str = "float") -> str:
    """Function @solve: squared distance and reach from Gram entries in memory, for m >= 1.

    It is left-looking and takes a block of X at a time, so that any m compiles to little code.

    Memory: %gram [a][b], %work [i][k] unscaled columns of the factor, then 1 / pivot, then (distance, reach).
    """
    code = Code(shape.lanes if real == "float" else shape.lanes // 2, real)
    squares = code.arithmetic("fadd", code.every("%square"), code.load("%squares"))
    order, blocks, done = [*range(1, shape.left), 0], [], 0
    for size in shape.blocks:
        blocks.append(order[done : done + size])
        done += size
    smallest = code.splat(1.0)
    for at, columns in enumerate(blocks):
        inverses: dict[int, str] = {}
        for rows in blocks[at:]:
            block = _block(code, shape, squares, rows, columns, sum(map(len, blocks[:at])))
            if rows is columns:
                smallest = _diagonal(code, shape, block, columns, inverses, smallest)
            else:
                _below(code, shape, block, rows, columns, inverses)

    def factor(i: int, k: int) -> str:
        return code.load("%work", (i * shape.left + k - 1) * code.bytes)

    def inverted(k: int) -> str:
        return code.load(_inverses(code, shape, k - 1))

    reach = _reach(code, shape, factor, inverted, smallest)
    code.store(reach, _inverses(code, shape, shape.left), code.bytes)
    code.do("ret void")
    arguments = f"ptr noalias %gram, {real} %square, ptr noalias %squares, ptr noalias %work"
    return code.function(f"internal void @solve({arguments}) noinline")


def _block(
    code: Code, shape: Shape, squares: str, rows: list[int], columns: list[int], done: int
) -> dict[tuple[int, int], str]:
    """Entries X_ij - S_ij of one block, less the contributions of earlier columns of the factor."""
    order = [*range(1, shape.left), 0]
    keys = [(i, j) for i in rows for j in columns if order.index(j) <= order.index(i)]

    def gram(a: int, b: int) -> str:
        return code.load("%gram", (a * shape.right + b) * code.bytes)

    values = [start(code, gram, squares, i, j) for i, j in keys]

    def product(base: str, stride: int, scale: str, values: list[str], at: str) -> list[str]:
        left = {i: code.load(at, i * stride * code.bytes) for i in rows}
        right = left if rows is columns else {j: code.load(at, j * stride * code.bytes) for j in columns}
        if scale:
            factor = code.load(scale)
            right = {j: code.arithmetic("fmul", factor, value) for j, value in right.items()}
        return [code.fnma(left[i], right[j], value) for (i, j), value in zip(keys, values, strict=True)]

    def over_directions(_: str, carried: list[str]) -> list[str]:
        return [*product("%gram", shape.right, "", carried[:-1], carried[-1]), code.at(carried[-1], code.bytes)]

    def over_factor(_: str, carried: list[str]) -> list[str]:
        less = product("%work", shape.left, carried[-1], carried[:-2], carried[-2])
        return [*less, code.at(carried[-2], code.bytes), code.at(carried[-1], code.bytes)]

    if shape.right > 1:
        first = [*((code.vector, v) for v in values), ("ptr", code.at("%gram", code.bytes))]
        values = code.loop(str(shape.right - 1), first, over_directions)[:-1]
    if done:
        first = [*((code.vector, v) for v in values), ("ptr", "%work"), ("ptr", _inverses(code, shape))]
        values = code.loop(str(done), first, over_factor)[:-2]
    return dict(zip(keys, values, strict=True))


def _diagonal(
    code: Code,
    shape: Shape,
    block: dict[tuple[int, int], str],
    order: list[int],
    inverses: dict[int, str],
    smallest: str,
) -> str:
    """Smallest pivot so far, after a diagonal block has been factored and its columns and inverse pivots stored."""
    for at, k in enumerate(order):
        if k == 0:
            code.store(code.maximum(block[0, 0], code.splat(0.0)), _inverses(code, shape, shape.left))
            return smallest
        smallest = code.minimum(block[k, k], smallest)
        inverses[k] = inverse(code, block[k, k])
        code.store(inverses[k], _inverses(code, shape, k - 1))
        for i in order[at:]:
            code.store(block[i, k], "%work", (i * shape.left + k - 1) * code.bytes)
        _subtract(code, block, order[at + 1 :], k, inverses[k])
    return smallest


def _below(
    code: Code,
    shape: Shape,
    block: dict[tuple[int, int], str],
    rows: list[int],
    columns: list[int],
    inverses: dict[int, str],
) -> None:
    """Finish the columns of the factor below a diagonal block, and store them."""
    for at, j in enumerate(columns):
        for k in columns[:at]:
            known = code.load("%work", (j * shape.left + k - 1) * code.bytes)
            factor = code.arithmetic("fmul", known, inverses[k])
            for i in rows:
                block[i, j] = code.fnma(factor, block[i, k], block[i, j])
        for i in rows:
            code.store(block[i, j], "%work", (i * shape.left + j - 1) * code.bytes)


def _inverses(code: Code, shape: Shape, index: int = 0) -> str:
    """Address of an inverse pivot; behind the last one lie the distance and the reach."""
    return code.at("%work", (shape.left * shape.left + index) * code.bytes)
