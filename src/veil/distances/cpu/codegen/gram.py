"""Matrix product of a sweep: register tiles of Gram entries, summed over the coordinates of the descriptors."""

from __future__ import annotations

from veil.distances.cpu.codegen.emit import Code
from veil.distances.cpu.codegen.shape import ONE, Shape


def entries(code: Code, left: str, right: str, count: str, rows: int, columns: int, *, fixed: bool) -> list[list[str]]:
    """Gram entries [row][column] of `rows` packed rows and `columns` packed vectors of lanes.

    Every accumulator is a value carried round the loop, so it lives in a register; entry [a][b] holds as many pairs as there
    are lanes, and no transposition follows. The loop is not unrolled: LLVM would hoist the next loads and spill accumulators.
    With `fixed` a number is two coordinates of 16 bits, sums are exact, and entries are scaled back at the end.
    """
    number, kind = ("i32", code.integers) if fixed else (code.real, code.vector)
    multiply_add = code.pairs_added if fixed else code.fma

    def turn(_: str, carried: list[str]) -> list[str]:
        totals, (a, b) = carried[:-2], carried[-2:]
        vectors = [code.load(b, j * code.bytes, of=kind) for j in range(columns)]
        for i in range(rows):
            every = code.every(code.scalar(a, i * 4, of=number), of=number)
            for j in range(columns):
                totals[i * columns + j] = multiply_add(every, vectors[j], totals[i * columns + j])
        return [*totals, code.at(a, rows * 4), code.at(b, columns * code.bytes)]

    start = [(kind, "zeroinitializer")] * (rows * columns) + [("ptr", left), ("ptr", right)]
    totals = code.loop(count, start, turn)[:-2]
    if fixed:
        floats = [code.let(f"sitofp {kind} {total} to {code.vector}") for total in totals]
        totals = [code.arithmetic("fmul", value, code.splat(ONE**-2)) for value in floats]
    return [totals[i * columns : (i + 1) * columns] for i in range(rows)]


def tile_name(rows: int, columns: int) -> str:
    """Name of the function that fills one tile of the scratch memory."""
    return f"@tile_{rows}_{columns}"


def tile_functions(shape: Shape) -> str:
    """LLVM IR of one function for each size of register tile, from left rows and right vectors to the scratch memory."""
    texts = []
    for rows in sorted(set(shape.row_groups)):
        for columns in sorted(set(shape.column_groups)):
            code = Code(shape.lanes)
            for i, line in enumerate(entries(code, "%left", "%right", "%count", rows, columns, fixed=shape.fixed)):
                for j, value in enumerate(line):
                    code.store(value, "%scratch", (i * shape.right + j) * code.bytes)
            code.do("ret void")
            arguments = "ptr noalias %left, ptr noalias %right, ptr noalias %scratch, i64 %count"
            texts.append(code.function(f"internal void {tile_name(rows, columns)}({arguments}) noinline"))
    return "\n".join(texts)


def fill_scratch(code: Code, shape: Shape, left: str, right: str, scratch: str, count: str) -> None:
    """Write all Gram entries of a group to the scratch memory.

    Each part of the panel serves all rows while it lies in the first-level cache.
    """
    column, at_right = 0, right
    for columns in shape.column_groups:
        row, at_left = 0, left
        for rows in shape.row_groups:
            place = code.at(scratch, (row * shape.right + column) * code.bytes)
            code.do(f"call void {tile_name(rows, columns)}(ptr {at_left}, ptr {at_right}, ptr {place}, i64 {count})")
            row += rows
            at_left = code.at(at_left, code.let(f"mul i64 {count}, {rows * 4}"))
        column += columns
        at_right = code.at(at_right, code.let(f"mul i64 {count}, {columns * code.bytes}"))
