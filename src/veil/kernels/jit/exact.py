"""Listed pairs in double precision: Gram entries, orthonormalization to first order, Eq. 4 of docs/theory/distances.md.

A pair's Gram entries come from vectors along the coordinates. W = I - (D D^T - I) / 2 makes a basis D orthonormal to the
square of its defect, so W of both sides corrects the entries. The elimination then runs across pairs, as in the sweep.
"""

from __future__ import annotations

from veil.kernels.jit.eliminate import solve_function, solved
from veil.kernels.jit.emit import Code
from veil.kernels.jit.origins import SIZES, dot, inside, minimal, read, summed
from veil.kernels.jit.shape import Shape, even


def module(shape: Shape, stored: str) -> str:
    """LLVM IR with @minimal and @exact; bases are stored as `stored`, float or double."""
    lanes = shape.lanes // 2
    double, bits, width = f"<{lanes} x double>", f"<{lanes} x i1>", 64 * lanes
    loads = [
        f"declare <{lanes} x {kind}> @llvm.masked.load.v{lanes}{suffix}.p0(ptr, i32, {bits}, <{lanes} x {kind}>)"
        for kind, (_, suffix) in SIZES.items()
    ]
    kinds = sorted({(stored, stored), (stored, "double"), ("double", "double")})
    return "\n".join(
        [
            f"declare {double} @llvm.fma.v{lanes}f64({double}, {double}, {double})",
            f"declare double @llvm.vector.reduce.fadd.v{lanes}f64(double, {double})",
            *loads,
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}',
            *(dot(lanes, *pair) for pair in kinds),
            minimal(lanes, stored),
            _tiles(shape, stored),
            _gram(shape, stored),
            _orthonormalize(shape),
            "" if shape.straight else solve_function(shape, "double"),
            _exact(shape, stored),
        ]
    )


def padded(count: int, shape: Shape) -> int:
    """The next multiple of the doubles in a vector."""
    lanes = shape.lanes // 2
    return -(-count // lanes) * lanes


def scratch_doubles(shape: Shape) -> int:
    """Entries of a block of pairs, factor and result, squares, entries of one pair before and after a correction."""
    lanes, a, b = shape.lanes // 2, shape.left, shape.right
    return lanes * (a * b + a * a + a + 2 + 1) + 2 * a * padded(b, shape)


def _tiles(shape: Shape, stored: str) -> str:
    """One function for each size of register tile: entries of some directions with some others of one pair."""
    sizes = [(rows, columns) for rows in _groups(shape, shape.left) for columns in _groups(shape, shape.right)]
    return "\n".join(_tile(shape, stored, *size) for size in sorted(set(sizes)))


def _tile(shape: Shape, stored: str, rows: int, columns: int) -> str:
    code, wide = Code(shape.lanes // 2, "double"), padded(shape.right, shape)
    row_bytes = code.times("%n", SIZES[stored][0])
    left, right = (
        [code.at(f"%{side}", code.times(row_bytes, k)) for k in range(count)]
        for side, count in (("left", rows), ("right", columns))
    )

    def turn(k: str, totals: list[str]) -> list[str]:
        within = inside(code, k)
        a, b = ([read(code, place, k, within, stored) for place in side] for side in (left, right))
        return [code.fma(x, y, totals[i * columns + j]) for i, x in enumerate(a) for j, y in enumerate(b)]

    totals = code.loop("%n", [(code.vector, code.splat(0.0))] * (rows * columns), turn, code.lanes)
    for at, lanes in enumerate(totals):
        place = code.at("%entries", 8 * (at // columns * wide + at % columns))
        code.do(f"store double {summed(code, lanes)}, ptr {place}")
    code.do("ret void")
    head = f"internal void @directions_{rows}_{columns}(ptr %left, ptr %right, ptr noalias %entries, i64 %n) noinline"
    return code.function(head)


def _groups(shape: Shape, components: int) -> tuple[int, ...]:
    return even(components - 1, 4 if shape.registers == 32 else 3) if components > 1 else ()


def _gram(shape: Shape, stored: str) -> str:
    """Entries [a][b] of one pair, rows padded to whole vectors."""
    code, wide = Code(shape.lanes // 2, "double"), padded(shape.right, shape)
    row_bytes = code.times("%n", SIZES[stored][0])

    def along(components: int, basis: str, origin: str, stride: int) -> None:
        def turn(k: str, _: list[str]) -> list[str]:
            row = code.at(basis, code.times(k, row_bytes))
            value = code.let(f"call double @dot_{stored}_double(ptr {row}, ptr {origin}, i64 %n)")
            at = code.at("%entries", code.times(code.let(f"add i64 {k}, 1"), 8 * stride))
            code.do(f"store double {value}, ptr {at}")
            return []

        if components > 1:
            code.loop(str(components - 1), [], turn)

    value = code.let("call double @dot_double_double(ptr %left_origin, ptr %right_origin, i64 %n)")
    code.do(f"store double {value}, ptr %entries")
    along(shape.left, "%left_basis", "%right_origin", wide)
    along(shape.right, "%right_basis", "%left_origin", 1)
    row, left = 1, "%left_basis"
    for rows in _groups(shape, shape.left):
        column, right = 1, "%right_basis"
        for columns in _groups(shape, shape.right):
            place = code.at("%entries", 8 * (row * wide + column))
            code.do(f"call void @directions_{rows}_{columns}(ptr {left}, ptr {right}, ptr {place}, i64 %n)")
            column, right = column + columns, code.at(right, code.times(row_bytes, columns))
        row, left = row + rows, code.at(left, code.times(row_bytes, rows))
    code.do("ret void")
    sides = "ptr %left_origin, ptr %left_basis, ptr %right_origin, ptr %right_basis"
    return code.function(f"internal void @gram({sides}, ptr noalias %entries, i64 %n) noinline")


def _orthonormalize(shape: Shape) -> str:
    """W G W' of one pair, written to its lane of a block: [a][b][lane]."""
    code, wide = Code(shape.lanes // 2, "double"), padded(shape.right, shape)
    chunks = range(0, 8 * wide, code.bytes)

    def combined(factors: str, stride: int, rows: str, count: int) -> list[str]:
        """sum over k of factors[k] rows[k], a row of vectors."""

        def turn(k: str, totals: list[str]) -> list[str]:
            factor = code.broadcast(code.at(factors, code.times(k, stride)))
            line = code.at(rows, code.times(k, 8 * wide))
            return [code.fma(factor, code.load(line, at), total) for at, total in zip(chunks, totals, strict=True)]

        return code.loop(str(count), [(code.vector, code.splat(0.0))] * len(chunks), turn)

    def line(a: str, _: list[str]) -> list[str]:
        for at, value in zip(
            chunks, combined(code.at("%left", code.times(a, 8 * shape.left)), 8, "%entries", shape.left), strict=True
        ):
            code.store(value, "%between", at)
        for at, value in zip(chunks, combined("%between", 8, "%right", shape.right), strict=True):
            code.store(value, "%between", at)
        home = code.at("%out", code.times(a, shape.right * code.bytes))
        for b in range(shape.right):
            code.do(f"store double {code.scalar('%between', 8 * b)}, ptr {code.at(home, b * code.bytes)}")
        return []

    code.loop(str(shape.left), [], line)
    code.do("ret void")
    pointers = "ptr noalias %entries, ptr %left, ptr %right, ptr noalias %between, ptr noalias %out"
    return code.function(f"internal void @orthonormalize({pointers}) noinline")


def _exact(shape: Shape, stored: str) -> str:
    """Blocks of pairs (row, column) -> [block](d^2 across lanes, reach across lanes)."""
    code, lanes = Code(shape.lanes // 2, "double"), shape.lanes // 2
    places = _places(code, shape)
    wide_bytes, row_bytes = code.times("%wide", 8), code.times("%n", SIZES[stored][0])

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
    """Where things lie in the scratch; `scratch_doubles` is their total."""
    lanes, a, b = code.lanes, shape.left, shape.right
    between = a * padded(b, shape)
    sizes = {"block": lanes * a * b, "work": lanes * (a * a + a + 2), "squares": lanes, "entries": between, "between": between}
    place, places = 0, {}
    for name, doubles in sizes.items():
        places[name], place = code.at("%scratch", 8 * place), place + doubles
    return places


def _pair(code: Code, shape: Shape, places: dict[str, str], strides: tuple[str, str], pair: str, lane: str) -> None:
    """Gram entries and |d0|^2 + |e0|^2 of one pair into its lane of the block; strides are those of origins and directions."""
    (wide_bytes, row_bytes), squares, factors = strides, [], []
    components = {"left": (shape.left, shape.left), "right": (shape.right, padded(shape.right, shape))}
    rows = []
    for (side, (count, width)), name in zip(components.items(), ("rows", "columns"), strict=True):
        index = code.scalar(code.at(f"%{name}", code.times(pair, 8)), of="i64")
        rows.append(code.at(f"%{side}_origin", code.times(index, wide_bytes)))
        rows.append(code.at(f"%{side}_basis", code.times(index, code.times(row_bytes, count - 1))))
        factors.append(code.at(f"%{side}_factor", code.times(index, 8 * count * width)))
        squares.append(code.scalar(code.at(f"%{side}_squares", code.times(index, 8))))
    arguments = ", ".join(f"ptr {row}" for row in (*rows, places["entries"]))
    code.do(f"call void @gram({arguments}, i64 %n)")
    out = code.at(places["block"], code.times(lane, 8))
    arguments = ", ".join(f"ptr {place}" for place in (places["entries"], *factors, places["between"], out))
    code.do(f"call void @orthonormalize({arguments})")
    both = code.let(f"fadd double {squares[0]}, {squares[1]}")
    code.do(f"store double {both}, ptr {code.at(places['squares'], code.times(lane, 8))}")
