"""Function @listed, squared distances of listed pairs in single precision.

Gram entries are summed along the coordinates; then L pairs, the lanes of a vector, are solved side by side. A pair costs one
and a half to two times what it costs in the sweep, which is little where few pairs remain.
"""

from __future__ import annotations

from veil.distances.cpu.codegen.eliminate import solve_function, solved
from veil.distances.cpu.codegen.emit import Code
from veil.distances.cpu.codegen.outputs import header
from veil.distances.cpu.codegen.shape import Shape, even

# The largest tile of Gram entries of one pair, components times components, by the number of vector registers.
TILE = {32: 5, 16: 3}


def module(shape: Shape) -> str:
    """LLVM IR with the function @listed."""
    solve = "" if shape.straight else solve_function(shape)
    return "\n".join([header(shape), _tiles(shape), solve, _listed(shape)])


def scratch_floats(shape: Shape) -> int:
    """Number of floats in the scratch memory of @listed.

    They are the entries of each pair, padded to whole vectors, the entries with pairs side by side, squares, factor and result.
    """
    vectors = sum(
        _vectors(shape, rows, columns) for rows in _groups(shape, shape.left) for columns in _groups(shape, shape.right)
    )
    side = shape.lanes * (shape.left * shape.right + 1 + shape.left * shape.left + shape.left + 2)
    return shape.lanes * shape.lanes * vectors + side


def _groups(shape: Shape, components: int) -> tuple[int, ...]:
    """Numbers of components of each tile along one side."""
    return even(components, TILE[shape.registers])


def _vectors(shape: Shape, rows: int, columns: int) -> int:
    """Number of vectors that hold the entries of a tile."""
    return -(-rows * columns // shape.lanes)


def _tiles(shape: Shape) -> str:
    """One function @entries for each size of tile."""
    sizes = {(rows, columns) for rows in _groups(shape, shape.left) for columns in _groups(shape, shape.right)}
    return "\n".join(_tile(shape, *size) for size in sorted(sizes))


def _tile(shape: Shape, rows: int, columns: int) -> str:
    """Function @entries: Gram entries of some components of the left and of the right feature of a pair, in whole vectors."""
    code = Code(shape.lanes)
    row_bytes = code.times("%n", 4)
    left = [code.at("%left", code.times(row_bytes, k)) for k in range(rows)]
    right = [code.at("%right", code.times(row_bytes, k)) for k in range(columns)]

    def turn(k: str, totals: list[str]) -> list[str]:
        at = code.times(k, 4)
        a, b = ([code.load(code.at(place, at)) for place in side] for side in (left, right))
        return [code.fma(x, y, totals[i * columns + j]) for i, x in enumerate(a) for j, y in enumerate(b)]

    totals = code.loop("%n", [(code.vector, code.splat(0.0))] * (rows * columns), turn, code.lanes)
    for at in range(_vectors(shape, rows, columns)):
        part = totals[at * code.lanes : (at + 1) * code.lanes]
        code.store(summed(code, part), "%entries", at * code.bytes)
    code.do("ret void")
    head = f"internal void @entries_{rows}_{columns}(ptr %left, ptr %right, ptr noalias %entries, i64 %n) noinline"
    return code.function(head)


def summed(code: Code, vectors: list[str]) -> str:
    """Vector whose lane k is the sum over the lanes of the k-th of at most L given vectors."""
    level = [*vectors, *[code.splat(0.0)] * (code.lanes - len(vectors))]
    while len(level) > 1:
        level = [
            code.arithmetic(
                "fadd", _of_both(code, x, y, range(0, 2 * code.lanes, 2)), _of_both(code, x, y, range(1, 2 * code.lanes, 2))
            )
            for x, y in zip(level[::2], level[1::2], strict=True)
        ]
    return level[0]


def transposed(code: Code, vectors: list[str]) -> list[str]:
    """Transpose of L vectors of L lanes, by log2 L rounds that interleave vectors half their number apart."""
    half, lanes = len(vectors) // 2, code.lanes
    low = [k // 2 + (k % 2) * lanes for k in range(lanes)]
    high = [lanes // 2 + k for k in low]
    for _ in range(lanes.bit_length() - 1):
        pairs = list(zip(vectors[:half], vectors[half:], strict=True))
        vectors = [_of_both(code, x, y, order) for x, y in pairs for order in (low, high)]
    return vectors


def _of_both(code: Code, x: str, y: str, order: range | list[int]) -> str:
    """Vector of the lanes `order` among the 2 L lanes of x and y."""
    mask = "<" + ", ".join(f"i32 {k}" for k in order) + ">"
    return code.let(f"shufflevector {code.vector} {x}, {code.vector} {y}, <{code.lanes} x i32> {mask}")


def _listed(shape: Shape) -> str:
    """Function @listed: from blocks of L pairs (row, column) to [block](d^2 across lanes, reach across lanes)."""
    code = Code(shape.lanes)
    tiles, left_offset = [], 0
    for rows in _groups(shape, shape.left):
        right_offset = 0
        for columns in _groups(shape, shape.right):
            tiles.append((left_offset, rows, right_offset, columns))
            right_offset += columns
        left_offset += rows
    vectors = sum(_vectors(shape, rows, columns) for _, rows, _, columns in tiles)
    block = code.at("%scratch", code.lanes * vectors * code.bytes)
    squares = code.at(block, shape.left * shape.right * code.bytes)
    work = code.at(squares, code.bytes)
    row_bytes = code.times("%n", 4)
    feature_bytes = code.times(row_bytes, shape.left), code.times(row_bytes, shape.right)

    def body(index: str, _: list[str]) -> list[str]:
        pairs = code.at("%pairs", code.times(index, 8 * code.lanes))

        def pair(lane: str, _: list[str]) -> list[str]:
            at, places, total = code.at(pairs, code.times(lane, 8)), [], []
            for k, side in enumerate(("left", "right")):
                feature = code.let(f"sext i32 {code.scalar(at, 4 * k, of='i32')} to i64")
                places.append(code.at(f"%{side}", code.times(feature, feature_bytes[k])))
                total.append(code.scalar(code.at(f"%{side}_squares", code.times(feature, 4))))
            both = code.let(f"fadd float {total[0]}, {total[1]}")
            code.do(f"store float {both}, ptr {code.at(squares, code.times(lane, 4))}")
            home = code.at("%scratch", code.times(lane, vectors * code.bytes))
            for row, rows, column, columns in tiles:
                a, b = code.at(places[0], code.times(row_bytes, row)), code.at(places[1], code.times(row_bytes, column))
                code.do(f"call void @entries_{rows}_{columns}(ptr {a}, ptr {b}, ptr {home}, i64 %n)")
                home = code.at(home, _vectors(shape, rows, columns) * code.bytes)
            return []

        code.loop(str(code.lanes), [], pair)
        _side_by_side(code, shape, tiles, vectors, block)
        square, reach = solved(code, shape, block, squares, work)
        out = code.at("%out", code.times(index, 2 * code.bytes))
        code.store(square, out)
        code.store(reach, out, code.bytes)
        return []

    code.loop("%blocks", [], body)
    code.do("ret void")
    sides = ", ".join(f"ptr %{side}{part}" for part in ("", "_squares") for side in ("left", "right"))
    return code.function(f"void @listed({sides}, ptr %pairs, ptr noalias %scratch, ptr noalias %out, i64 %n, i64 %blocks)")


def _side_by_side(code: Code, shape: Shape, tiles: list[tuple[int, int, int, int]], vectors: int, block: str) -> None:
    """Rearrange entries from [pair][entry] to [entry][pair], by one transposition for each vector of entries."""
    first = 0
    for row, rows, column, columns in tiles:
        for part in range(_vectors(shape, rows, columns)):
            lines = [code.load("%scratch", (pair * vectors + first + part) * code.bytes) for pair in range(code.lanes)]
            entries = range(part * code.lanes, min((part + 1) * code.lanes, rows * columns))
            for entry, line in zip(entries, transposed(code, lines), strict=False):
                i, j = divmod(entry, columns)
                code.store(line, block, ((row + i) * shape.right + column + j) * code.bytes)
        first += _vectors(shape, rows, columns)
