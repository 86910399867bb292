"""Function @minimal: origins centered and made minimal in double precision, and corrections of bases to orthonormal."""

from __future__ import annotations

from veil.distances.cpu.codegen.emit import Code
from veil.distances.cpu.codegen.products import Rows, along, along_groups, removed, tile
from veil.distances.cpu.codegen.shape import Shape

# Number of times D d0 is removed from an origin: each pass multiplies what remains by the defect of the basis.
PASSES = 3


def module(shape: Shape, stored: str) -> str:
    """LLVM IR with the function @minimal for bases of m = shape.right - 1 directions, `stored` as `compile.STORED` says."""
    rows, m = Rows.of(shape, stored), shape.right - 1
    tiles = {(first, second) for first in rows.groups(m) for second in rows.groups(m)}
    width = -(-shape.right // rows.lanes) * rows.lanes
    return "\n".join(
        [
            rows.header(),
            *(tile(rows, *size, width, mirrored=True) for size in sorted(tiles)),
            *(text for count in sorted(set(along_groups(m))) for text in (along(rows, count), removed(rows, count))),
            along(rows, 0, origins=True),
            _minimal(rows, m, width),
        ]
    )


def _minimal(rows: Rows, m: int, width: int) -> str:
    """Function @minimal, which writes origins, their squares, corrections of bases and their defects.

    Origins are those minus the center, made minimal (D d0 = 0) and padded to %wide. A correction is W = I - (D D^T - I) / 2
    with a one for the origin, rows padded to `width`; a defect is the largest entry of D D^T - I.
    """
    code = rows.code()
    row_bytes, wide_bytes = code.times("%n", rows.size), code.times("%wide", 8)

    def feature(f: str, _: list[str]) -> list[str]:
        origin, out = code.at("%origin", code.times(f, row_bytes)), code.at("%out", code.times(f, wide_bytes))
        basis = code.at("%basis", code.times(f, code.times(row_bytes, m)))
        factor = code.at("%factor", code.times(f, 8 * (m + 1) * width))

        def center(k: str, _: list[str]) -> list[str]:
            moved = rows.read(code, origin, k), rows.read(code, "%center", k, "double")
            code.store(code.arithmetic("fsub", *moved), code.at(out, code.times(k, 8)))
            return []

        code.loop("%n", [], center, code.lanes)
        if m:
            _remove(code, basis, out, factor, row_bytes, m)
        square = code.at("%squares", code.times(f, 8))
        code.do(f"call void @origins_0(ptr {out}, ptr {out}, ptr {out}, ptr {square}, i64 8, i64 %n)")
        largest = _factor(code, rows, basis, factor, row_bytes, m, width)
        code.do(f"store double {largest}, ptr {code.at('%defect', code.times(f, 8))}")
        return []

    code.loop("%features", [], feature)
    code.do("ret void")
    pointers = "ptr noalias %origin, ptr noalias %basis, ptr noalias %center"
    outputs = "ptr noalias %out, ptr noalias %squares, ptr noalias %factor, ptr noalias %defect"
    return code.function(f"void @minimal({pointers}, {outputs}, i64 %features, i64 %n, i64 %wide)")


def _remove(code: Code, basis: str, origin: str, place: str, row_bytes: str, m: int) -> None:
    """Write origin -= D^T D origin, some rows at a time; `place` has room for a number of each of these."""

    def once(_: str, __: list[str]) -> list[str]:
        some = basis
        for count in along_groups(m):
            code.do(f"call void @along_{count}(ptr {some}, ptr {origin}, ptr {place}, i64 8, i64 %n)")
            code.do(f"call void @removed_{count}(ptr {some}, ptr {place}, ptr {origin}, i64 %n)")
            some = code.at(some, code.times(row_bytes, count))
        return []

    code.loop(str(PASSES), [], once)


def _factor(code: Code, rows: Rows, basis: str, factor: str, row_bytes: str, m: int, width: int) -> str:
    """Largest entry of D D^T - I of one basis, whose correction W is written to `factor`."""
    vectors, zero = (m + 1) * width // code.lanes, code.splat(0.0)

    def clear(k: str, _: list[str]) -> list[str]:
        code.store(zero, code.at(factor, code.times(k, code.bytes)))
        return []

    code.loop(str(vectors), [], clear)
    starts = [sum(rows.groups(m)[:k]) for k in range(len(rows.groups(m)))]
    places = list(zip(starts, rows.groups(m), strict=True))
    for at, (row, first) in enumerate(places):
        for column, second in places[at:]:
            left, right = (code.at(basis, code.times(row_bytes, k)) for k in (row, column))
            entries, mirror = (code.at(factor, 8 * ((i + 1) * width + j + 1)) for i, j in ((row, column), (column, row)))
            code.do(f"call void @own_{first}_{second}(ptr {left}, ptr {right}, ptr {entries}, ptr {mirror}, i64 %n)")
    if m:
        _add_to_diagonal(code, factor, m, width, -1.0)

    def halve(k: str, largest: list[str]) -> list[str]:
        place = code.at(factor, code.times(k, code.bytes))
        value = code.load(place)
        code.store(code.arithmetic("fmul", value, code.splat(-0.5)), place)
        size = code.let(f"call {code.vector} @llvm.fabs.v{code.lanes}f64({code.vector} {value})")
        return [code.maximum(size, largest[0])]

    (largest,) = code.loop(str(vectors), [(code.vector, zero)], halve)
    if m:
        _add_to_diagonal(code, factor, m, width, 1.0)
    code.do(f"store double 1.0, ptr {factor}")
    return code.let(f"call double @llvm.vector.reduce.fmax.v{code.lanes}f64({code.vector} {largest})")


def _add_to_diagonal(code: Code, factor: str, m: int, width: int, value: float) -> None:
    """Write W_ii += value for the directions."""

    def add(k: str, _: list[str]) -> list[str]:
        place = code.at(code.at(factor, 8 * (width + 1)), code.times(k, 8 * (width + 1)))
        code.do(f"store double {code.let(f'fadd double {code.scalar(place)}, {value}')}, ptr {place}")
        return []

    code.loop(str(m), [], add)
