"""Inner products of rows in double precision: the small functions that @minimal and @exact call.

Several products are summed side by side, so that a row is read once for all of them and no addition waits for the one before.
"""

from __future__ import annotations

from dataclasses import dataclass

from veil.distances.cpu.codegen.emit import Code
from veil.distances.cpu.codegen.listed import summed
from veil.distances.cpu.codegen.shape import Shape, even

# Bytes of a number and LLVM's suffix for it, by the type in which bases are stored.
SIZES = {"float": (4, "f32"), "double": (8, "f64")}
# Most rows of a tile on either side, by the number of registers; most rows that are multiplied by one vector at a time.
TILE, ALONG = {32: 4, 16: 3}, 8


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Reader of rows that are `stored` as float or double, `whole` if they fill vectors of `lanes` doubles exactly."""

    lanes: int
    registers: int
    stored: str
    whole: bool

    @staticmethod
    def of(shape: Shape, stored: str) -> Rows:
        """Reader for a variant of `compile.STORED`, such as "float" or "double whole"."""
        kind, _, whole = stored.partition(" ")
        return Rows(lanes=shape.lanes // 2, registers=shape.registers, stored=kind, whole=whole == "whole")

    @property
    def size(self) -> int:
        """Number of bytes of a stored coordinate."""
        return SIZES[self.stored][0]

    def code(self) -> Code:
        """Writer of a function on vectors of doubles."""
        return Code(self.lanes, "double")

    def read(self, code: Code, row: str, index: str, stored: str = "") -> str:
        """Vector of coordinates of a row as doubles, with zeros beyond its end."""
        stored = stored or self.stored
        size, suffix = SIZES[stored]
        kind, place = f"<{self.lanes} x {stored}>", code.at(row, code.times(index, size))
        if self.whole:
            value = code.let(f"load {kind}, ptr {place}, align {size}")
        else:
            within = code.before(index, "%n")
            arguments = f"ptr {place}, i32 {size}, {code.bits} {within}, {kind} zeroinitializer"
            value = code.let(f"call {kind} @llvm.masked.load.v{self.lanes}{suffix}.p0({arguments})")
        return value if stored == "double" else code.let(f"fpext {kind} {value} to {code.vector}")

    def groups(self, rows: int) -> tuple[int, ...]:
        """Numbers of rows of each tile along one side."""
        return even(rows, TILE[self.registers]) if rows else ()

    def header(self) -> str:
        """Declarations of intrinsics and attributes of functions."""
        lanes, double, bits, width = self.lanes, f"<{self.lanes} x double>", f"<{self.lanes} x i1>", 64 * self.lanes
        return "\n".join(
            [
                f"declare {double} @llvm.fma.v{lanes}f64({double}, {double}, {double})",
                f"declare {double} @llvm.fabs.v{lanes}f64({double})",
                f"declare double @llvm.vector.reduce.fadd.v{lanes}f64(double, {double})",
                f"declare double @llvm.vector.reduce.fmax.v{lanes}f64({double})",
                *(
                    f"declare <{lanes} x {kind}> @llvm.masked.load.v{lanes}{suffix}.p0(ptr, i32, {bits}, <{lanes} x {kind}>)"
                    for kind, (_, suffix) in SIZES.items()
                ),
                f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}',
            ]
        )


def along_groups(rows: int) -> tuple[int, ...]:
    """Numbers of rows of each call of @along or @origins."""
    return even(rows, ALONG) if rows else ()


def tile(rows: Rows, first: int, second: int, width: int, *, mirrored: bool = False) -> str:
    """Function @directions, or @own if `mirrored`: inner products of some rows with some others.

    They are written as entries [a][b], `width` doubles a line; `mirrored` writes [b][a] as well.
    """
    code = rows.code()
    row_bytes = code.times("%n", rows.size)
    left, right = (
        [code.at(f"%{side}", code.times(row_bytes, k)) for k in range(count)]
        for side, count in (("left", first), ("right", second))
    )

    def turn(k: str, totals: list[str]) -> list[str]:
        a, b = ([rows.read(code, place, k) for place in side] for side in (left, right))
        return [code.fma(x, y, totals[i * second + j]) for i, x in enumerate(a) for j, y in enumerate(b)]

    totals = code.loop("%n", [(code.vector, code.splat(0.0))] * (first * second), turn, code.lanes)
    for at, value in enumerate(_sums(code, totals)):
        i, j = divmod(at, second)
        code.do(f"store double {value}, ptr {code.at('%entries', 8 * (i * width + j))}")
        if mirrored:
            code.do(f"store double {value}, ptr {code.at('%mirror', 8 * (j * width + i))}")
    code.do("ret void")
    name, places = ("own", "ptr %entries, ptr %mirror") if mirrored else ("directions", "ptr noalias %entries")
    return code.function(f"internal void @{name}_{first}_{second}(ptr %left, ptr %right, {places}, i64 %n) noinline")


def along(rows: Rows, count: int, *, origins: bool = False) -> str:
    """Function @along: inner products of some rows with a vector of doubles, written `%stride` bytes apart.

    With `origins` it is @origins, and the product of the vector with `%other` comes first.
    """
    code = rows.code()
    row_bytes = code.times("%n", rows.size)
    places = [code.at("%rows", code.times(row_bytes, k)) for k in range(count)]

    def turn(k: str, totals: list[str]) -> list[str]:
        vector = rows.read(code, "%vector", k, "double")
        factors = [rows.read(code, "%other", k, "double")] if origins else []
        factors += [rows.read(code, place, k) for place in places]
        return [code.fma(factor, vector, total) for factor, total in zip(factors, totals, strict=True)]

    totals = code.loop("%n", [(code.vector, code.splat(0.0))] * (count + origins), turn, code.lanes)
    for k, value in enumerate(_sums(code, totals)):
        code.do(f"store double {value}, ptr {code.at('%entries', code.times('%stride', k))}")
    code.do("ret void")
    name, other = ("origins", "ptr %other, ") if origins else ("along", "")
    arguments = f"ptr %rows, ptr %vector, {other}ptr noalias %entries, i64 %stride, i64 %n"
    return code.function(f"internal void @{name}_{count}({arguments}) noinline")


def removed(rows: Rows, count: int) -> str:
    """Function @removed, which subtracts the sum of factor times row from an origin."""
    code = rows.code()
    row_bytes = code.times("%n", rows.size)
    places = [code.at("%rows", code.times(row_bytes, k)) for k in range(count)]
    factors = [code.broadcast("%factors", 8 * k) for k in range(count)]

    def turn(k: str, _: list[str]) -> list[str]:
        home = code.at("%origin", code.times(k, 8))
        value = code.load(home)
        for factor, place in zip(factors, places, strict=True):
            value = code.fnma(factor, rows.read(code, place, k), value)
        code.store(value, home)
        return []

    code.loop("%n", [], turn, code.lanes)
    code.do("ret void")
    return code.function(f"internal void @removed_{count}(ptr %rows, ptr %factors, ptr noalias %origin, i64 %n) noinline")


def _sums(code: Code, vectors: list[str]) -> list[str]:
    """Sums over the lanes of each vector."""
    if len(vectors) <= 2:
        name = f"@llvm.vector.reduce.fadd.v{code.lanes}f64"
        return [code.let(f"call reassoc double {name}(double -0.0, {code.vector} {vector})") for vector in vectors]
    values = []
    for start in range(0, len(vectors), code.lanes):
        part = vectors[start : start + code.lanes]
        total = summed(code, part)
        values += [code.let(f"extractelement {code.vector} {total}, i32 {k}") for k in range(len(part))]
    return values
