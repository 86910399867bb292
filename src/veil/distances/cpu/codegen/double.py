"""Function @exact, squared distances of listed pairs in double precision (docs/theory/distances.md, Eq. 4).

A pair's Gram entries come from vectors along the coordinates. W = I - (D D^T - I) / 2 makes a basis D orthonormal up to the
square of its defect, so W of both sides corrects the entries. The elimination then runs across pairs, as in the sweep.
"""

from __future__ import annotations

from veil.distances.cpu.codegen.eliminate import solve_function, solved
from veil.distances.cpu.codegen.emit import Code
from veil.distances.cpu.codegen.products import Rows, along, along_groups, tile
from veil.distances.cpu.codegen.shape import Shape


def module(shape: Shape, stored: str) -> str:
    """LLVM IR with the function @exact, for bases `stored` as one of the variants of `compile.STORED`."""
    rows = Rows.of(shape, stored)
    left, right = shape.left - 1, shape.right - 1
    tiles = {(first, second) for first in rows.groups(left) for second in rows.groups(right)}
    return "\n".join(
        [
            rows.header(),
            *(tile(rows, *size, padded(shape.right, shape)) for size in sorted(tiles)),
            *(along(rows, count) for count in sorted({*along_groups(left), *along_groups(right)[1:]})),
            along(rows, (along_groups(right) or (0,))[0], origins=True),
            _gram(shape, rows),
            _orthonormalize(shape),
            "" if shape.straight else solve_function(shape, "double"),
            _exact(shape, rows),
        ]
    )


def padded(count: int, shape: Shape) -> int:
    """Count rounded up to a multiple of the doubles in a vector."""
    lanes = shape.lanes // 2
    return -(-count // lanes) * lanes


def scratch_doubles(shape: Shape) -> int:
    """Number of doubles in the scratch memory of @exact.

    They are the entries of a block of pairs, factor and result, squares, and entries of one pair before and after a correction.
    """
    lanes, a, b = shape.lanes // 2, shape.left, shape.right
    return lanes * (a * b + a * a + a + 2 + 1) + 2 * a * padded(b, shape)


def _gram(shape: Shape, rows: Rows) -> str:
    """Function @gram: Gram entries [a][b] of one pair, rows padded to whole vectors."""
    code, wide = rows.code(), padded(shape.right, shape)
    row_bytes = code.times("%n", rows.size)
    some, done = "%right_basis", 0
    for count in along_groups(shape.right - 1) or (0,):
        place = code.at("%entries", 8 * (done + 1) if done else 0)
        name, other = (f"@along_{count}", "") if done else (f"@origins_{count}", "ptr %right_origin, ")
        code.do(f"call void {name}(ptr {some}, ptr %left_origin, {other}ptr {place}, i64 8, i64 %n)")
        some, done = code.at(some, code.times(row_bytes, count)), done + count
    some, done = "%left_basis", 0
    for count in along_groups(shape.left - 1):
        place = code.at("%entries", 8 * wide * (done + 1))
        code.do(f"call void @along_{count}(ptr {some}, ptr %right_origin, ptr {place}, i64 {8 * wide}, i64 %n)")
        some, done = code.at(some, code.times(row_bytes, count)), done + count
    row, left = 1, "%left_basis"
    for first in rows.groups(shape.left - 1):
        column, right = 1, "%right_basis"
        for second in rows.groups(shape.right - 1):
            place = code.at("%entries", 8 * (row * wide + column))
            code.do(f"call void @directions_{first}_{second}(ptr {left}, ptr {right}, ptr {place}, i64 %n)")
            column, right = column + second, code.at(right, code.times(row_bytes, second))
        row, left = row + first, code.at(left, code.times(row_bytes, first))
    code.do("ret void")
    sides = "ptr %left_origin, ptr %left_basis, ptr %right_origin, ptr %right_basis"
    return code.function(f"internal void @gram({sides}, ptr noalias %entries, i64 %n) noinline")


def _orthonormalize(shape: Shape) -> str:
    """Function @orthonormalize: entries W G W' of one pair, written to its lane of a block [a][b][lane]."""
    code, wide = Code(shape.lanes // 2, "double"), padded(shape.right, shape)
    chunks = range(0, 8 * wide, code.bytes)

    def combined(factors: str, stride: int, rows: str, count: int) -> list[str]:
        """Sum over k of factors[k] rows[k], a row of vectors."""

        def turn(k: str, totals: list[str]) -> list[str]:
            factor = code.broadcast(code.at(factors, code.times(k, stride)))
            line = code.at(rows, code.times(k, 8 * wide))
            # From any address: the factors of some features of a set lie where NumPy puts them.
            values = [code.let(f"load {code.vector}, ptr {code.at(line, at)}, align 8") for at in chunks]
            return [code.fma(factor, value, total) for value, total in zip(values, totals, strict=True)]

        return code.loop(str(count), [(code.vector, code.splat(0.0))] * len(chunks), turn)

    def line(a: str, _: list[str]) -> list[str]:
        row = "%entries"
        if shape.left > 1:
            factors = code.at("%left", code.times(a, 8 * padded(shape.left, shape)))
            for at, value in zip(chunks, combined(factors, 8, "%entries", shape.left), strict=True):
                code.store(value, "%between", at)
            row = "%between"
        for at, value in zip(chunks, combined(row, 8, "%right", shape.right), strict=True):
            code.store(value, "%between", at)
        home = code.at("%out", code.times(a, shape.right * code.bytes))
        for b in range(shape.right):
            code.do(f"store double {code.scalar('%between', 8 * b)}, ptr {code.at(home, b * code.bytes)}")
        return []

    code.loop(str(shape.left), [], line)
    code.do("ret void")
    pointers = "ptr noalias %entries, ptr %left, ptr %right, ptr noalias %between, ptr noalias %out"
    return code.function(f"internal void @orthonormalize({pointers}) noinline")


def _exact(shape: Shape, rows: Rows) -> str:
    """Function @exact: from blocks of pairs (row, column) to [block](d^2 across lanes, reach across lanes)."""
    code, lanes = Code(shape.lanes // 2, "double"), shape.lanes // 2
    places = _places(code, shape)
    wide_bytes, row_bytes = code.times("%wide", 8), code.times("%n", rows.size)

    def block(index: str, _: list[str]) -> list[str]:
        first = code.times(index, lanes)

        def turn(lane: str, _: list[str]) -> list[str]:
            _pair(code, shape, places, (wide_bytes, row_bytes), code.let(f"add i64 {first}, {lane}"), lane)
            return []

        code.loop(str(lanes), [], turn)
        square, reach = solved(code, shape, places["block"], places["squares"], places["work"])
        out = code.at("%out", code.times(index, 2 * code.bytes))
        code.store(square, out)
        code.store(reach, out, code.bytes)
        return []

    code.loop("%blocks", [], block)
    code.do("ret void")
    sides = ", ".join(f"ptr %{side}_{part}" for part in ("origin", "basis", "squares", "factor") for side in ("left", "right"))
    return code.function(
        f"void @exact({sides}, ptr %rows, ptr %columns, ptr noalias %scratch, ptr noalias %out, i64 %n, i64 %wide, i64 %blocks)"
    )


def _places(code: Code, shape: Shape) -> dict[str, str]:
    """Addresses of the parts of the scratch memory, by name; `scratch_doubles` is their total size."""
    lanes, a, b = code.lanes, shape.left, shape.right
    between = a * padded(b, shape)
    sizes = {"block": lanes * a * b, "work": lanes * (a * a + a + 2), "squares": lanes, "entries": between, "between": between}
    place, places = 0, {}
    for name, doubles in sizes.items():
        places[name], place = code.at("%scratch", 8 * place), place + doubles
    return places


def _pair(code: Code, shape: Shape, places: dict[str, str], strides: tuple[str, str], pair: str, lane: str) -> None:
    """Write the Gram entries and |d0|^2 + |e0|^2 of one pair to its lane of the block.

    `strides` are the bytes from one origin, and from one direction, to the next.
    """
    (wide_bytes, row_bytes), squares, factors = strides, [], []
    rows = []
    for side, count, name in (("left", shape.left, "rows"), ("right", shape.right, "columns")):
        index = code.scalar(code.at(f"%{name}", code.times(pair, 8)), of="i64")
        rows.append(code.at(f"%{side}_origin", code.times(index, wide_bytes)))
        rows.append(code.at(f"%{side}_basis", code.times(index, code.times(row_bytes, count - 1))))
        factors.append(code.at(f"%{side}_factor", code.times(index, 8 * count * padded(count, shape))))
        squares.append(code.scalar(code.at(f"%{side}_squares", code.times(index, 8))))
    arguments = ", ".join(f"ptr {row}" for row in (*rows, places["entries"]))
    code.do(f"call void @gram({arguments}, i64 %n)")
    out = code.at(places["block"], code.times(lane, 8))
    arguments = ", ".join(f"ptr {place}" for place in (places["entries"], *factors, places["between"], out))
    code.do(f"call void @orthonormalize({arguments})")
    both = code.let(f"fadd double {squares[0]}, {squares[1]}")
    code.do(f"store double {both}, ptr {code.at(places['squares'], code.times(lane, 8))}")
