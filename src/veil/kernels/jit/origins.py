"""Origins in double precision, centered and minimal, and the small pieces that code in double precision shares."""

from __future__ import annotations

from veil.kernels.jit.emit import Code

# How often D d0 is removed from an origin: each pass multiplies what is left by the defect of the basis.
PASSES = 3
# Bytes of a number and LLVM's name for it, by how bases are stored.
SIZES = {"float": (4, "f32"), "double": (8, "f64")}


def inside(code: Code, index: str) -> str:
    """Lanes that still are coordinates."""
    return code.before(index, "%n")


def read(code: Code, row: str, index: str, within: str, stored: str) -> str:
    """Coordinates of a row as doubles; zeros beyond its end."""
    size, suffix = SIZES[stored]
    kind = f"<{code.lanes} x {stored}>"
    arguments = f"ptr {code.at(row, code.times(index, size))}, i32 {size}, {code.bits} {within}, {kind} zeroinitializer"
    value = code.let(f"call {kind} @llvm.masked.load.v{code.lanes}{suffix}.p0({arguments})")
    return value if stored == "double" else code.let(f"fpext {kind} {value} to {code.vector}")


def summed(code: Code, value: str) -> str:
    return code.let(f"call reassoc double @llvm.vector.reduce.fadd.v{code.lanes}f64(double -0.0, {code.vector} {value})")


def dot(lanes: int, first: str, second: str) -> str:
    code = Code(lanes, "double")

    def turn(k: str, carried: list[str]) -> list[str]:
        within = inside(code, k)
        return [code.fma(read(code, "%a", k, within, first), read(code, "%b", k, within, second), carried[0])]

    (total,) = code.loop("%n", [(code.vector, code.splat(0.0))], turn, lanes)
    code.do(f"ret double {summed(code, total)}")
    return code.function(f"internal double @dot_{first}_{second}(ptr %a, ptr %b, i64 %n) noinline")


def minimal(lanes: int, stored: str) -> str:
    """Origins minus the center, made minimal (D d0 = 0), their squares, and D D^T; rows of %out are padded to %wide."""
    code, size = Code(lanes, "double"), SIZES[stored][0]
    row_bytes, wide_bytes = code.times("%n", size), code.times("%wide", 8)

    def feature(f: str, _: list[str]) -> list[str]:
        origin, own = code.at("%origin", code.times(f, row_bytes)), code.at("%out", code.times(f, wide_bytes))
        basis = code.at("%basis", code.times(f, code.times("%m", row_bytes)))
        gram = code.at("%gram", code.times(f, code.times("%m", code.times("%m", 8))))

        def center(k: str, _: list[str]) -> list[str]:
            within = inside(code, k)
            moved = read(code, origin, k, within, stored), read(code, "%center", k, within, "double")
            code.store(code.arithmetic("fsub", *moved), code.at(own, code.times(k, 8)))
            return []

        def remove(a: str, _: list[str]) -> list[str]:
            _remove(code, code.at(basis, code.times(a, row_bytes)), own, stored)
            return []

        code.loop("%n", [], center, lanes)
        code.loop(str(PASSES), [], lambda _, __: code.loop("%m", [], remove))
        _own_gram(code, basis, row_bytes, gram, stored)
        square = code.let(f"call double @dot_double_double(ptr {own}, ptr {own}, i64 %n)")
        code.do(f"store double {square}, ptr {code.at('%squares', code.times(f, 8))}")
        return []

    code.loop("%features", [], feature)
    code.do("ret void")
    pointers = "ptr noalias %origin, ptr noalias %basis, ptr noalias %center, ptr noalias %out, ptr %squares, ptr noalias %gram"
    return code.function(f"void @minimal({pointers}, i64 %features, i64 %m, i64 %n, i64 %wide)")


def _remove(code: Code, row: str, origin: str, stored: str) -> None:
    """origin -= (row . origin) row."""
    factor = code.every(code.let(f"call double @dot_{stored}_double(ptr {row}, ptr {origin}, i64 %n)"))

    def subtract(k: str, _: list[str]) -> list[str]:
        place = code.at(origin, code.times(k, 8))
        code.store(code.fnma(factor, read(code, row, k, inside(code, k), stored), code.load(place)), place)
        return []

    code.loop("%n", [], subtract, code.lanes)


def _own_gram(code: Code, basis: str, row_bytes: str, gram: str, stored: str) -> None:
    """D D^T of one basis."""

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

    code.loop("%m", [], product)
