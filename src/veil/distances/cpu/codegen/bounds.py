"""Compiled functions of exact pruning: lower bounds of all pairs with seeds, and the pairs that bounds do not exclude.

@bounds is the sweep in the few coordinates of a projection. It writes every bound, zero where rounding is amplified, as
[panel][row][lane], and keeps the seeds: the smallest bound of each row and lane, and of each column, whose pairs are evaluated
in full afterwards. @below lists the pairs whose bound is not above the thresholds.
"""

from __future__ import annotations

from veil.distances.cpu.codegen.eliminate import solve_function
from veil.distances.cpu.codegen.emit import Code
from veil.distances.cpu.codegen.gram import tile_functions
from veil.distances.cpu.codegen.outputs import append, each_pair, each_panel, header
from veil.distances.cpu.codegen.shape import Shape

# Vectors of the seeds of a row or panel: values and indices.
SEED = 2


def module(shape: Shape) -> str:
    """LLVM IR with the functions @bounds and @below."""
    solve = "" if shape.straight else solve_function(shape)
    return "\n".join([header(shape), tile_functions(shape), solve, append(shape), _bounds(shape), _below(shape)])


def _bounds(shape: Shape) -> str:
    """Function @bounds, which writes lower bounds of all pairs and keeps the seeds."""
    code = Code(shape.lanes)
    group_bytes = code.let(f"mul i64 %n, {shape.features * shape.left * 4}")

    def body(panel: str, right: str, squares: str, column: str) -> None:
        lane = code.let(f"add {code.integers} {code.every(code.let(f'trunc i64 {column} to i32'), of='i32')}, {code.iota()}")
        home = code.at("%column_seeds", code.times(panel, SEED * code.bytes))
        first = code.at("%out", code.times(panel, code.times("%groups", shape.features * 2 * code.lanes)))

        def group(g: str, carried: list[str]) -> list[str]:
            left, left_squares, rows, out, *column_seeds = carried
            start = code.let(f"add i64 %row, {code.times(g, shape.features)}")

            def absorb(f: str, square: str, reach: str, values: list[str]) -> list[str]:
                if reach:
                    square = code.pick(code.less(code.every("%reach"), reach), code.splat(0.0), square)
                code.do(
                    f"store {_halves(code)} {_rounded_down(code, square)}, ptr {code.at(out, code.times(f, 2 * code.lanes))}"
                )
                row_seeds = code.at(rows, code.times(f, SEED * code.bytes))
                _save(code, row_seeds, _smaller(code, square, lane, _seeds(code, row_seeds)))
                row = code.every(code.let(f"trunc i64 {code.let(f'add i64 {start}, {f}')} to i32"), of="i32")
                return _smaller(code, square, row, values)

            kinds = [code.vector, code.integers]
            column_seeds = each_pair(code, shape, left, left_squares, right, squares, column_seeds, absorb, kinds)
            return [
                code.at(left, group_bytes),
                code.at(left_squares, shape.features * 4),
                code.at(rows, shape.features * SEED * code.bytes),
                code.at(out, shape.features * 2 * code.lanes),
                *column_seeds,
            ]

        start = [("ptr", "%left"), ("ptr", "%left_squares"), ("ptr", "%row_seeds"), ("ptr", first)]
        kinds = [code.vector, code.integers]
        ended = code.loop("%groups", [*start, *zip(kinds, _seeds(code, home), strict=True)], group)
        _save(code, home, ended[4:])

    each_panel(code, shape, body)
    pointers = "ptr noalias %left, ptr noalias %left_squares, ptr noalias %right, ptr noalias %right_squares"
    outputs = "ptr noalias %scratch, ptr noalias %out, ptr noalias %row_seeds, ptr noalias %column_seeds"
    numbers = "i64 %n, i64 %groups, i64 %panels, i64 %row, float %reach"
    return code.function(f"void @bounds({pointers}, {outputs}, {numbers})")


def _halves(code: Code) -> str:
    """Type of a vector of stored bounds, the upper halves of floats."""
    return f"<{code.lanes} x i16>"


def _rounded_down(code: Code, value: str) -> str:
    """Upper half of each float: a bound smaller by up to 2^-7 of itself, in half the memory."""
    bits = code.let(f"bitcast {code.vector} {value} to {code.integers}")
    shift = "<" + ", ".join(["i32 16"] * code.lanes) + ">"
    return code.let(f"trunc {code.integers} {code.let(f'lshr {code.integers} {bits}, {shift}')} to {_halves(code)}")


def _restored(code: Code, pointer: str) -> str:
    """Vector of floats from stored upper halves."""
    shift = "<" + ", ".join(["i32 16"] * code.lanes) + ">"
    stored = code.let(f"load {_halves(code)}, ptr {pointer}, align {2 * code.lanes}")
    wide = code.let(f"zext {_halves(code)} {stored} to {code.integers}")
    return code.let(f"bitcast {code.integers} {code.let(f'shl {code.integers} {wide}, {shift}')} to {code.vector}")


def _seeds(code: Code, pointer: str) -> list[str]:
    """Values and indices of the seeds at an address."""
    return [code.load(pointer), code.load(pointer, code.bytes, of=code.integers)]


def _save(code: Code, pointer: str, values: list[str]) -> None:
    code.store(values[0], pointer)
    code.store(values[1], pointer, code.bytes, of=code.integers)


def _smaller(code: Code, value: str, index: str, seeds: list[str]) -> list[str]:
    """Seeds after one more candidate in each lane."""
    wins = code.less(value, seeds[0])
    return [code.minimum(value, seeds[0]), code.pick(wins, index, seeds[1], of=code.integers)]


def _below(shape: Shape) -> str:
    """Function @below: a list of (row, column) of every bound that does not exceed the larger of its two thresholds."""
    code = Code(shape.lanes)
    block_bytes = code.times("%rows", 2 * code.lanes)

    def panel(p: str, carried: list[str]) -> list[str]:
        column_limits = code.load(code.at("%column_limits", code.times(p, code.bytes)))
        first = code.let(f"trunc i64 {code.times(p, code.lanes)} to i32")

        def row(r: str, places: list[str]) -> list[str]:
            limit = code.maximum(column_limits, code.broadcast(places[1]))
            inside = code.let(f"fcmp nnan ole {code.vector} {_restored(code, places[0])}, {limit}")
            mask = code.let(f"bitcast {code.bits} {inside} to i{code.lanes}")
            some, done = code.label(), code.label()
            code.do(f"br i1 {code.let(f'icmp eq i{code.lanes} {mask}, 0')}, label %{done}, label %{some}")
            code.open(some)
            index = code.let(f"trunc i64 {code.let(f'add i64 %row, {r}')} to i32")
            code.do(f"call void @append(i{code.lanes} {mask}, i32 {index}, i32 {first}, ptr %list)")
            code.do(f"br label %{done}")
            code.open(done)
            return [code.at(places[0], 2 * code.lanes), code.at(places[1], 4)]

        code.loop("%rows", [("ptr", carried[0]), ("ptr", "%row_limits")], row)
        return [code.at(carried[0], block_bytes)]

    code.loop("%panels", [("ptr", "%bounds")], panel)
    code.do("ret void")
    pointers = "ptr noalias %bounds, ptr noalias %row_limits, ptr noalias %column_limits, ptr noalias %list"
    return code.function(f"void @below({pointers}, i64 %rows, i64 %panels, i64 %row)")
