"""Listed pairs in double precision: Gram entries, orthonormalization to first order, Eq. 4 of docs/theory/distances.md.

A pair's Gram entries come from vectors along the coordinates. W = I - (D D^T - I) / 2 makes a basis D orthonormal to the
square of its defect, so W of both sides corrects the entries. The elimination then runs across pairs, as in the sweep.
"""

from __future__ import annotations

from veil.kernels.jit.eliminate import direct, solve_function
from veil.kernels.jit.emit import Code
from veil.kernels.jit.shape import Shape, even

# How often D d0 is removed from an origin: each pass multiplies what is left by the defect of the basis.
PASSES = 3
SIZES = {"float": (4, "f32"), "double": (8, "f64")}


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
            *(_dot(lanes, *pair) for pair in kinds),
            _minimal(lanes, stored),
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


def _inside(code: Code, index: str) -> str:
    """Lanes that still are coordinates."""
    kind = f"<{code.lanes} x i64>"
    lane = "<" + ", ".join(f"i64 {k}" for k in range(code.lanes)) + ">"
    at = code.let(f"add {kind} {code.every(index, of='i64')}, {lane}")
    return code.let(f"icmp ult {kind} {at}, {code.every('%n', of='i64')}")


def _read(code: Code, row: str, index: str, inside: str, stored: str) -> str:
    """Coordinates of a row as doubles; zeros beyond its end."""
    size, suffix = SIZES[stored]
    kind = f"<{code.lanes} x {stored}>"
    arguments = f"ptr {code.at(row, code.times(index, size))}, i32 {size}, {code.bits} {inside}, {kind} zeroinitializer"
    value = code.let(f"call {kind} @llvm.masked.load.v{code.lanes}{suffix}.p0({arguments})")
    return value if stored == "double" else code.let(f"fpext {kind} {value} to {code.vector}")


def _sum(code: Code, value: str) -> str:
    return code.let(f"call reassoc double @llvm.vector.reduce.fadd.v{code.lanes}f64(double -0.0, {code.vector} {value})")


def _dot(lanes: int, first: str, second: str) -> str:
    code = Code(lanes, "double")

    def turn(k: str, carried: list[str]) -> list[str]:
        inside = _inside(code, k)
        return [code.fma(_read(code, "%a", k, inside, first), _read(code, "%b", k, inside, second), carried[0])]

    (total,) = code.loop("%n", [(code.vector, code.splat(0.0))], turn, lanes)
    code.do(f"ret double {_sum(code, total)}")
    return code.function(f"internal double @dot_{first}_{second}(ptr %a, ptr %b, i64 %n) noinline")


def _minimal(lanes: int, stored: str) -> str:
    """Origins minus the center, made minimal (D d0 = 0), their squares, and D D^T; rows of %out are padded to %wide."""
    code, size = Code(lanes, "double"), SIZES[stored][0]
    row_bytes, wide_bytes = code.times("%n", size), code.times("%wide", 8)

    def feature(f: str, _: list[str]) -> list[str]:
        origin, own = code.at("%origin", code.times(f, row_bytes)), code.at("%out", code.times(f, wide_bytes))
        basis = code.at("%basis", code.times(f, code.times("%m", row_bytes)))
        gram = code.at("%gram", code.times(f, code.times("%m", code.times("%m", 8))))

        def center(k: str, _: list[str]) -> list[str]:
            inside = _inside(code, k)
            moved = _read(code, origin, k, inside, stored), _read(code, "%center", k, inside, "double")
            code.store(code.arithmetic("fsub", *moved), code.at(own, code.times(k, 8)))
            return []

        def removed(a: str, _: list[str]) -> list[str]:
            row = code.at(basis, code.times(a, row_bytes))
            dot = code.let(f"call double @dot_{stored}_double(ptr {row}, ptr {own}, i64 %n)")
            factor = code.every(dot)

            def subtract(k: str, _: list[str]) -> list[str]:
                place = code.at(own, code.times(k, 8))
                code.store(code.fnma(factor, _read(code, row, k, _inside(code, k), stored), code.load(place)), place)
                return []

            code.loop("%n", [], subtract, lanes)
            return []

        def product(a: str, _: list[str]) -> list[str]:
            row = code.at(basis, code.times(a, row_bytes))

            def entry(b: str, _: list[str]) -> list[str]:
                other = code.at(basis, code.times(b, row_bytes))
                value = code.let(f"call double @dot_{stored}_{stored}(ptr {row}, ptr {other}, i64 %n)")
                for i, j in ((a, b), (b, a)):
                    at = code.let(f"add i64 {code.times(i, '%m')}, {j}")
                    code.do(f"store double {value}, ptr {code.at(gram, code.times(at, 8))}")
                return []

            code.loop(code.let(f"add i64 {a}, 1"), [], entry)
            return []

        code.loop("%n", [], center, lanes)
        code.loop(str(PASSES), [], lambda _, __: code.loop("%m", [], removed))
        code.loop("%m", [], product)
        square = code.let(f"call double @dot_double_double(ptr {own}, ptr {own}, i64 %n)")
        code.do(f"store double {square}, ptr {code.at('%squares', code.times(f, 8))}")
        return []

    code.loop("%features", [], feature)
    code.do("ret void")
    pointers = "ptr noalias %origin, ptr noalias %basis, ptr noalias %center, ptr noalias %out, ptr %squares, ptr noalias %gram"
    return code.function(f"void @minimal({pointers}, i64 %features, i64 %m, i64 %n, i64 %wide)")


def _tiles(shape: Shape, stored: str) -> str:
    """One function for each size of register tile: entries of some directions with some others of one pair."""
    wide, texts = padded(shape.right, shape), []
    for rows in sorted(set(_groups(shape, shape.left))):
        for columns in sorted(set(_groups(shape, shape.right))):
            code = Code(shape.lanes // 2, "double")
            row_bytes = code.times("%n", SIZES[stored][0])
            left, right = ([f"%{side}"] for side in ("left", "right"))
            for places, count in ((left, rows), (right, columns)):
                places += [code.at(places[0], code.times(row_bytes, k)) for k in range(1, count)]

            def turn(k: str, totals: list[str], left: list[str] = left, right: list[str] = right) -> list[str]:
                inside = _inside(code, k)  # noqa: B023
                a, b = ([_read(code, place, k, inside, stored) for place in side] for side in (left, right))  # noqa: B023
                return [code.fma(x, y, totals[i * len(b) + j]) for i, x in enumerate(a) for j, y in enumerate(b)]  # noqa: B023

            totals = code.loop("%n", [(code.vector, code.splat(0.0))] * (rows * columns), turn, code.lanes)
            for at, total in enumerate(totals):
                place = code.at("%entries", 8 * (at // columns * wide + at % columns))
                code.do(f"store double {_sum(code, total)}, ptr {place}")
            code.do("ret void")
            head = f"internal void @directions_{rows}_{columns}(ptr %left, ptr %right, ptr noalias %entries, i64 %n) noinline"
            texts.append(code.function(head))
    return "\n".join(texts)


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
    code, size = Code(shape.lanes // 2, "double"), SIZES[stored][0]
    a, b, lanes = shape.left, shape.right, shape.lanes // 2
    place, places = 0, {}
    for name, doubles in (
        ("block", lanes * a * b),
        ("work", lanes * (a * a + a + 2)),
        ("squares", lanes),
        ("entries", a * padded(b, shape)),
        ("between", a * padded(b, shape)),
    ):
        places[name], place = code.at("%scratch", 8 * place), place + doubles
    wide_bytes, row_bytes = code.times("%wide", 8), code.times("%n", size)

    def one(pair: str, lane: str) -> None:
        row, column = (code.scalar(code.at(f"%{name}", code.times(pair, 8)), of="i64") for name in ("rows", "columns"))
        sides = [
            code.at("%left_origin", code.times(row, wide_bytes)),
            code.at("%left_basis", code.times(row, code.times(row_bytes, a - 1))),
            code.at("%right_origin", code.times(column, wide_bytes)),
            code.at("%right_basis", code.times(column, code.times(row_bytes, b - 1))),
        ]
        arguments = ", ".join(f"ptr {side}" for side in sides)
        code.do(f"call void @gram({arguments}, ptr {places['entries']}, i64 %n)")
        left = code.at("%left_factor", code.times(row, 8 * a * a))
        right = code.at("%right_factor", code.times(column, 8 * b * padded(b, shape)))
        out = code.at(places["block"], code.times(lane, 8))
        arguments = ", ".join(f"ptr {p}" for p in (places["entries"], left, right, places["between"], out))
        code.do(f"call void @orthonormalize({arguments})")
        squares = [
            code.scalar(code.at(f"%{side}_squares", code.times(index, 8))) for side, index in (("left", row), ("right", column))
        ]
        total = code.let(f"fadd double {squares[0]}, {squares[1]}")
        code.do(f"store double {total}, ptr {code.at(places['squares'], code.times(lane, 8))}")

    def block(index: str, _: list[str]) -> list[str]:
        first = code.times(index, lanes)

        def turn(lane: str, _: list[str]) -> list[str]:
            one(code.let(f"add i64 {first}, {lane}"), lane)
            return []

        code.loop(str(lanes), [], turn)
        square, reach = _solved(code, shape, places)
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


def _solved(code: Code, shape: Shape, places: dict[str, str]) -> tuple[str, str]:
    if shape.straight:
        block = [
            [code.load(places["block"], (i * shape.right + j) * code.bytes) for j in range(shape.right)]
            for i in range(shape.left)
        ]
        square, reach = direct(code, shape, block, code.load(places["squares"]))
        return square, reach or code.splat(0.0)
    code.do(f"call void @solve(ptr {places['block']}, double 0.0, ptr {places['squares']}, ptr {places['work']})")
    result = (shape.left * shape.left + shape.left) * code.bytes
    return code.load(places["work"], result), code.load(places["work"], result + code.bytes)
