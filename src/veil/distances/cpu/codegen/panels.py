"""Function @panels, which packs rows of float or double in panels, a feature in each lane, rounded to 16 bits if fixed."""

from __future__ import annotations

from veil.distances.cpu.codegen.emit import Code, number
from veil.distances.cpu.codegen.listed import transposed
from veil.distances.cpu.codegen.products import SIZES
from veil.distances.cpu.codegen.shape import ONE, Shape


def module(shape: Shape, stored: str) -> str:
    """LLVM IR with the function @panels, for whole panels of features whose length is a multiple of the lanes.

    Origins are doubles, `%wide` bytes apart, and bases as `stored`. In fixed point origins are multiplied by `%scale`, and
    %worst becomes the largest sum of squares that rounding took of a row of the features, in units of the last place.
    """
    code, lanes = Code(shape.lanes), shape.lanes
    return "\n".join(
        [
            f"declare {code.vector} @llvm.fma.v{lanes}f32({code.vector}, {code.vector}, {code.vector})",
            f"declare {code.vector} @llvm.rint.v{lanes}f32({code.vector})",
            f"declare float @llvm.vector.reduce.fmax.v{lanes}f32({code.vector})",
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{32 * lanes}" "min-legal-vector-width"="{32 * lanes}" }}',
            *(_component(shape, kind) for kind in sorted({"double", stored})),
            _panels(shape, stored),
        ]
    )


def _panels(shape: Shape, stored: str) -> str:
    """Function @panels, which packs panel by panel, so that the memory of one stays in the cache."""
    code, lanes = Code(shape.lanes), shape.lanes
    lines = code.let("lshr i64 %n, 1") if shape.fixed else "%n"
    row_bytes = code.times("%n", SIZES[stored][0])
    basis_bytes = code.times(row_bytes, shape.right - 1)
    steps = code.times("%wide", lanes), code.times(basis_bytes, lanes), code.times(lines, shape.right * code.bytes)

    def component(rows: str, out: str, kind: str, stride: str, size: int, scale: str) -> None:
        numbers = f"i64 {stride}, i64 {size * code.bytes}, float {scale}, i64 %n"
        code.do(f"call void @component_{kind}(ptr {rows}, ptr {out}, ptr %worst, {numbers})")

    def panel(_: str, carried: list[str]) -> list[str]:
        origin, basis, out = carried
        done = 0
        for size in shape.column_groups:
            for k in range(size):
                home = code.at(out, code.let(f"add i64 {code.times(lines, done * code.bytes)}, {k * code.bytes}"))
                if done + k == 0:
                    component(origin, home, "double", "%wide", size, "%scale")
                else:
                    row = code.at(basis, code.times(row_bytes, done + k - 1))
                    component(row, home, stored, basis_bytes, size, number(ONE))
            done += size
        return [code.at(place, step) for place, step in zip(carried, steps, strict=True)]

    code.loop("%panels", [("ptr", "%origin"), ("ptr", "%basis"), ("ptr", "%out")], panel)
    code.do("ret void")
    pointers = "ptr noalias %origin, ptr noalias %basis, ptr noalias %out, ptr noalias %worst"
    return code.function(f"void @panels({pointers}, i64 %panels, i64 %n, i64 %wide, float %scale)")


def _component(shape: Shape, kind: str) -> str:
    """Function @component, which packs one component of a panel as [coordinate][lane], lines `%line` bytes apart.

    In fixed point a line holds two coordinates.
    """
    code, lanes = Code(shape.lanes), shape.lanes
    scale, places = code.every("%scale"), [code.at("%rows", code.times("%stride", k)) for k in range(lanes)]

    def part(k: str, moving: list[str]) -> list[str]:
        out, error = moving[0], moving[1:]
        lines = transposed(code, [_read(code, code.at(place, code.times(k, SIZES[kind][0])), kind) for place in places])
        if shape.fixed:
            lines, error = _quantized_pairs(code, lines, scale, error)
        for line in lines:
            code.store(line, out, of=code.integers if shape.fixed else code.vector)
            out = code.at(out, "%line")
        return [out, *error]

    errors = [(code.vector, code.splat(0.0))] if shape.fixed else []
    _, *error = code.loop("%n", [("ptr", "%out"), *errors], part, lanes)
    if shape.fixed:
        largest = code.let(f"call float @llvm.vector.reduce.fmax.v{lanes}f32({code.vector} {error[0]})")
        known = code.scalar("%worst")
        larger = code.let(f"fcmp ogt float {largest}, {known}")
        code.do(f"store float {code.let(f'select i1 {larger}, float {largest}, float {known}')}, ptr %worst")
    code.do("ret void")
    arguments = "ptr noalias %rows, ptr noalias %out, ptr noalias %worst, i64 %stride, i64 %line, float %scale, i64 %n"
    return code.function(f"internal void @component_{kind}({arguments}) noinline")


def _read(code: Code, place: str, stored: str) -> str:
    """Vector of floats loaded from numbers `stored` as float or double."""
    value = code.let(f"load <{code.lanes} x {stored}>, ptr {place}, align {SIZES[stored][0]}")
    return value if stored == "float" else code.let(f"fptrunc <{code.lanes} x double> {value} to {code.vector}")


def _quantized_pairs(code: Code, lines: list[str], scale: str, error: list[str]) -> tuple[list[str], list[str]]:
    """Scaled coordinates rounded to 16 bits, two to an integer, and the sum of squared errors of each lane's row so far."""
    low = "<" + ", ".join(["i32 65535"] * code.lanes) + ">"
    shift = "<" + ", ".join(["i32 16"] * code.lanes) + ">"
    whole, total = [], error[0]
    for line in lines:
        value = code.arithmetic("fmul", line, scale)
        rounded = code.let(f"call {code.vector} @llvm.rint.v{code.lanes}f32({code.vector} {value})")
        lost = code.arithmetic("fsub", value, rounded)
        total = code.fma(lost, lost, total)
        whole.append(code.let(f"fptosi {code.vector} {rounded} to {code.integers}"))
    pairs = []
    for first, second in zip(whole[::2], whole[1::2], strict=True):
        first = code.let(f"and {code.integers} {first}, {low}")
        second = code.let(f"shl {code.integers} {second}, {shift}")
        pairs.append(code.let(f"or {code.integers} {first}, {second}"))
    return pairs, [total]
