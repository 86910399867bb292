"""Function @points: a few points against many subspaces, in one pass that takes about as long as reading the subspaces.

Its outputs are, for every subspace of basis D and every point of offset d from the subspace's origin, |d|^2 and |D d|^2, whose
difference is the squared distance if D D^T = I; and for every subspace |D D^T - I|^2 (Frobenius), which bounds the error where
that is not so. NaN and infinity in a subspace reach its outputs. Numbers are as the subspaces are stored, float or double.
"""

from __future__ import annotations

from veil.distances.cpu.codegen.emit import Code, number
from veil.distances.cpu.codegen.products import SIZES
from veil.distances.cpu.codegen.shape import Shape, even

# Rows of a basis whose products with each other, and with offsets, are summed side by side, by the number of registers.
ROWS = {32: (4, 8), 16: (3, 6)}
# Number of subspaces by which prefetches run ahead: hardware prefetches rows within a page, and a subspace is a page or two.
AHEAD = 2


def module(shape: Shape, stored: str) -> str:
    """LLVM IR with @points; origins, bases and points are `stored` as float or double."""
    code = _code(shape, stored)
    kind, width = code.vector, 8 * code.bytes
    return "\n".join(
        [
            f"declare {kind} @llvm.fma.v{code.lanes}{code.suffix}({kind}, {kind}, {kind})",
            f"declare {stored} @llvm.vector.reduce.fadd.v{code.lanes}{code.suffix}({stored}, {kind})",
            f"declare {kind} @llvm.masked.load.v{code.lanes}{code.suffix}.p0(ptr, i32, {code.bits}, {kind})",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}',
            _points(code, shape),
        ]
    )


def _code(shape: Shape, stored: str) -> Code:
    """Writer of a function whose vectors hold numbers as they are stored."""
    return Code(shape.lanes * 4 // SIZES[stored][0], stored)


def _points(code: Code, shape: Shape) -> str:
    """Function @points, which writes |d|^2, |D d|^2 and |D D^T - I|^2."""
    m, row_bytes, outputs = shape.right - 1, code.times("%n", code.size), code.times("%count", code.size)
    basis_bytes = code.times(str(m), row_bytes)

    def feature(f: str, _: list[str]) -> list[str]:
        origin, basis = code.at("%origin", code.times(f, row_bytes)), code.at("%basis", code.times(f, basis_bytes))
        rows = [code.at(basis, code.times(str(a), row_bytes)) for a in range(m)]
        defect = _defect(code, rows, basis_bytes, shape)
        code.do(f"store {code.real} {defect}, ptr {code.at('%defect', code.times(f, code.size))}")
        squares, along = (code.at(out, code.times(f, outputs)) for out in ("%squares", "%along"))

        def point(q: str, _: list[str]) -> list[str]:
            row = code.at("%points", code.times(q, row_bytes))
            for value, out in zip(_projected(code, row, origin, rows, shape), (squares, along), strict=True):
                code.do(f"store {code.real} {value}, ptr {code.at(out, code.times(q, code.size))}")
            return []

        code.loop("%count", [], point)
        return []

    code.loop("%features", [], feature)
    code.do("ret void")
    inputs = "ptr noalias %points, ptr noalias %origin, ptr noalias %basis"
    outs = "ptr noalias %squares, ptr noalias %along, ptr noalias %defect"
    return code.function(f"void @points({inputs}, {outs}, i64 %features, i64 %count, i64 %n)")


def _defect(code: Code, rows: list[str], basis_bytes: str, shape: Shape) -> str:
    """Square |D D^T - I|^2 of the Frobenius norm; as it touches a basis first, it prefetches that of a later subspace too."""
    total, later = number(0.0), code.times(str(AHEAD), basis_bytes)
    groups = _groups(len(rows), ROWS[shape.registers][0])
    for k, some in enumerate(groups):
        for others in groups[k:]:
            pairs = [(a, b) for a in some for b in others if a <= b]
            ahead = [code.at(rows[a], later) for a in others if k == 0]
            for (a, b), value in zip(pairs, _products(code, rows, pairs, ahead), strict=True):
                if a == b:
                    value = code.let(f"fsub {code.real} {value}, {number(1.0)}")
                square = code.let(f"fmul {code.real} {value}, {value}")
                for _ in range(1 if a == b else 2):
                    total = code.let(f"fadd {code.real} {total}, {square}")
    return total


def _products(code: Code, rows: list[str], pairs: list[tuple[int, int]], ahead: list[str]) -> list[str]:
    """Inner products of pairs of rows, with prefetches of the rows `ahead`."""

    def turn(k: str, carried: list[str]) -> list[str]:
        for row in ahead:
            code.do(f"call void @llvm.prefetch.p0(ptr {code.at(row, code.times(k, code.size))}, i32 0, i32 2, i32 1)")
        within = code.before(k, "%n")
        values = {a: _read(code, rows[a], k, within) for a in sorted({a for pair in pairs for a in pair})}
        return [code.fma(values[a], values[b], total) for (a, b), total in zip(pairs, carried, strict=True)]

    return _sums(code, len(pairs), turn)


def _projected(code: Code, point: str, origin: str, rows: list[str], shape: Shape) -> tuple[str, str]:
    """Squares |d|^2 and |D d|^2 of the offset d of one point from the origin of a subspace."""
    squares, along = "", number(0.0)
    for some in _groups(len(rows), ROWS[shape.registers][1]):

        def turn(k: str, carried: list[str], some: list[int] = some) -> list[str]:
            within = code.before(k, "%n")
            offset = code.arithmetic("fsub", _read(code, point, k, within), _read(code, origin, k, within))
            factors = [offset, *(_read(code, rows[a], k, within) for a in some)]
            return [code.fma(factor, offset, total) for factor, total in zip(factors, carried, strict=True)]

        squares, *products = _sums(code, len(some) + 1, turn)
        for value in products:
            along = code.let(f"fadd {code.real} {along}, {code.let(f'fmul {code.real} {value}, {value}')}")
    return squares, along


def _groups(count: int, most: int) -> list[list[int]]:
    """Numbers 0, 1, ... count - 1 in groups of at most `most`."""
    groups: list[list[int]] = []
    for size in even(count, most):
        start = sum(map(len, groups))
        groups.append(list(range(start, start + size)))
    return groups


def _sums(code: Code, count: int, turn) -> list[str]:  # type: ignore[no-untyped-def]
    """Sums over all coordinates of the products that `turn` adds to vectors of partial sums."""
    totals = code.loop("%n", [(code.vector, code.splat(0.0))] * count, turn, code.lanes)
    name, zero = f"@llvm.vector.reduce.fadd.v{code.lanes}{code.suffix}", number(-0.0)
    return [code.let(f"call reassoc {code.real} {name}({code.real} {zero}, {code.vector} {total})") for total in totals]


def _read(code: Code, row: str, index: str, within: str) -> str:
    """Vector of coordinates of a row, with zeros beyond its end."""
    arguments = f"ptr {code.at(row, code.times(index, code.size))}, i32 {code.size}, {code.bits} {within}"
    name = f"@llvm.masked.load.v{code.lanes}{code.suffix}.p0"
    return code.let(f"call {code.vector} {name}({arguments}, {code.vector} zeroinitializer)")
