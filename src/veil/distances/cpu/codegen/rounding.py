"""Function @rounded, which rounds rows of float or double to 16 bits, for `veil.distances.cpu.pack`.

A file of its own: each function that this folder writes is one.
"""

from __future__ import annotations

from veil.distances.cpu.codegen.emit import Code
from veil.distances.cpu.codegen.products import SIZES
from veil.distances.cpu.codegen.shape import Shape


def module(shape: Shape, stored: str) -> str:
    """LLVM IR with the function @rounded, for rows `stored` as float or double.

    %worst becomes the largest sum of squared rounding errors of a row, in units of the last place.
    """
    code, (size, suffix) = Code(shape.lanes), SIZES[stored]
    lanes, wide, halves = shape.lanes, f"<{shape.lanes} x {stored}>", f"<{shape.lanes} x i16>"
    scale = code.every("%scale")

    def row(index: str, worst: list[str]) -> list[str]:
        source, target = code.at("%rows", code.times(index, "%stride")), code.at("%out", code.times(index, "%row_bytes"))

        def part(k: str, error: list[str]) -> list[str]:
            place, within = code.at(source, code.times(k, size)), code.before(k, "%n")
            value = code.let(
                f"call {wide} @llvm.masked.load.v{lanes}{suffix}.p0(ptr {place}, i32 {size}, {code.bits} {within}, "
                f"{wide} zeroinitializer)"
            )
            if stored == "double":
                value = code.let(f"fptrunc {wide} {value} to {code.vector}")
            value = code.arithmetic("fmul", value, scale)
            rounded = code.let(f"call {code.vector} @llvm.rint.v{lanes}f32({code.vector} {value})")
            lost = code.arithmetic("fsub", value, rounded)
            whole = code.let(f"fptosi {code.vector} {rounded} to {code.integers}")
            half = code.let(f"trunc {code.integers} {whole} to {halves}")
            code.do(
                f"call void @llvm.masked.store.v{lanes}i16.p0({halves} {half}, ptr {code.at(target, code.times(k, 2))}, i32 2, "
                f"{code.bits} {code.before(k, '%even')})"
            )
            return [code.fma(lost, lost, error[0])]

        (errors,) = code.loop("%n", [(code.vector, code.splat(0.0))], part, lanes)
        error = code.let(f"call reassoc float @llvm.vector.reduce.fadd.v{lanes}f32(float -0.0, {code.vector} {errors})")
        larger = code.let(f"fcmp ogt float {error}, {worst[0]}")
        return [code.let(f"select i1 {larger}, float {error}, float {worst[0]}")]

    code.do("%row_bytes = mul i64 %even, 2")
    (worst,) = code.loop("%count", [("float", "0.0")], row)
    code.do(f"store float {worst}, ptr %worst")
    code.do("ret void")
    numbers = "i64 %count, i64 %n, i64 %even, i64 %stride, float %scale"
    return "\n".join(
        [
            f"declare {code.vector} @llvm.fma.v{lanes}f32({code.vector}, {code.vector}, {code.vector})",
            f"declare {code.vector} @llvm.rint.v{lanes}f32({code.vector})",
            f"declare float @llvm.vector.reduce.fadd.v{lanes}f32(float, {code.vector})",
            f"declare {wide} @llvm.masked.load.v{lanes}{suffix}.p0(ptr, i32, {code.bits}, {wide})",
            f"declare void @llvm.masked.store.v{lanes}i16.p0({halves}, ptr, i32, {code.bits})",
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{32 * lanes}" "min-legal-vector-width"="{32 * lanes}" }}',
            code.function(f"void @rounded(ptr noalias %rows, ptr noalias %out, ptr noalias %worst, {numbers})"),
        ]
    )
