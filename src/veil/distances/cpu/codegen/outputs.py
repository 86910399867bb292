"""Functions @dense, all squared distances, and @best_two, the running bests of every row and column: the two sweeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from veil.distances.cpu.codegen.eliminate import direct, solve_function
from veil.distances.cpu.codegen.emit import Code, added_pairs
from veil.distances.cpu.codegen.gram import fill_scratch, tile_functions
from veil.distances.cpu.codegen.shape import Shape

# Squared distance below which a dense entry is left to double precision, as the root amplifies its rounding
# (distances.md#rounding).
SQUARE_TRUSTED = 1e-2
# Value of a dense entry that is left to double precision.
UNTRUSTED = -1.0
# Vectors of the state of a running best: the three smallest squared distances, and the indices of the first two.
STATE = 5
# Writer of what is done with one left feature and a panel: (feature, squared distances, reaches, carried values) to new values.
Use = Callable[[str, str, str, list[str]], list[str]]


def module(shape: Shape, output: str) -> str:
    """LLVM IR with the function @dense or @best_two."""
    parts = [header(shape), tile_functions(shape)]
    if not shape.straight:
        parts.append(solve_function(shape))
    return "\n".join([*parts, _dense(shape) if output == "dense" else append(shape) + _best_two(shape)])


def header(shape: Shape) -> str:
    """Declarations of intrinsics and attributes of functions that sweeps in single precision or fixed point use."""
    vector, integers, bits = (f"<{shape.lanes} x {kind}>" for kind in ("float", "i32", "i1"))
    width = shape.lanes * 32
    return "\n".join(
        [
            f"declare {vector} @llvm.fma.v{shape.lanes}f32({vector}, {vector}, {vector})",
            f"declare void @llvm.masked.store.v{shape.lanes}f32.p0({vector}, ptr, i32, {bits})",
            f"declare {integers} @{added_pairs(shape.lanes)}({integers}, {integers}, {integers})" if shape.fixed else "",
            f"declare i{shape.lanes} @llvm.cttz.i{shape.lanes}(i{shape.lanes}, i1)",
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}"',
            '"reciprocal-estimates"="vec-divf:1" }',
        ]
    )


def each_pair(
    code: Code,
    shape: Shape,
    left: str,
    squares: str,
    right: str,
    group: str,
    carried: list[str],
    use: Use,
    kinds: Sequence[str] = (),
) -> list[str]:
    """Final carried values after `use(feature, square, reach, carried)` on each left feature of a group against a panel.

    `squares` points at |d0|^2 of the group, `group` at |e0|^2 of the panel `right`; `kinds` are the types of the carried
    values.
    """
    fill_scratch(code, shape, left, right, "%scratch", "%n")
    size = shape.left * shape.right * code.bytes
    work = code.at("%scratch", shape.features * size)

    def turn(f: str, values: list[str]) -> list[str]:
        gram = code.at("%scratch", code.let(f"mul i64 {f}, {size}"))
        left_square = code.let(f"load float, ptr {code.at(squares, code.let(f'mul i64 {f}, 4'))}, align 4")
        if shape.straight:
            block = [
                [code.load(gram, (a * shape.right + b) * code.bytes) for b in range(shape.right)] for a in range(shape.left)
            ]
            square, reach = direct(code, shape, block, code.arithmetic("fadd", code.every(left_square), code.load(group)))
            return use(f, square, reach, values)
        code.do(f"call void @solve(ptr {gram}, float {left_square}, ptr {group}, ptr {work})")
        result = code.at(work, (shape.left * shape.left + shape.left) * code.bytes)
        return use(f, code.load(result), code.load(result, code.bytes), values)

    return code.loop(str(shape.features), list(zip(kinds, carried, strict=True)), turn)


def each_panel(code: Code, shape: Shape, body: Callable[[str, str, str, str], None]) -> None:
    """Write a loop over panels that calls `body(panel index, panel, its squares, first column)`, and the function's return."""
    panel_bytes = code.let(f"mul i64 %n, {shape.right * code.bytes}")

    def panel(p: str, carried: list[str]) -> list[str]:
        right, squares = carried
        column = code.let(f"mul i64 {p}, {shape.lanes}")
        body(p, right, squares, column)
        return [code.at(right, panel_bytes), code.at(squares, code.bytes)]

    code.loop("%panels", [("ptr", "%right"), ("ptr", "%right_squares")], panel)
    code.do("ret void")


def _dense(shape: Shape) -> str:
    """Function @dense, which writes all squared distances, `UNTRUSTED` where they are left to double precision."""
    code = Code(shape.lanes)
    group_bytes = code.let(f"mul i64 %n, {shape.features * shape.left * 4}")

    def body(_: str, right: str, squares: str, column: str) -> None:
        inside = code.before(column, "%columns")
        full = code.let(f"icmp ule i64 {code.let(f'add i64 {column}, {shape.lanes}')}, %columns")
        first = code.at("%out", code.let(f"mul i64 {column}, 4"))

        def group(g: str, carried: list[str]) -> list[str]:
            start = code.let(f"mul i64 {g}, {shape.features}")

            def write(f: str, square: str, reach: str, values: list[str]) -> list[str]:
                value = _marked(code, square, reach)
                row = code.let(f"add i64 {start}, {f}")
                keep, done = code.label(), code.label()
                code.do(f"br i1 {code.let(f'icmp ult i64 {row}, %rows')}, label %{keep}, label %{done}")
                code.open(keep)
                place = code.at(first, code.times(row, "%stride"))
                whole, part = code.label(), code.label()
                code.do(f"br i1 {full}, label %{whole}, label %{part}")
                code.open(whole)  # masked stores are slow where they straddle cache lines
                code.do(f"store {code.vector} {value}, ptr {place}, align 4")
                code.do(f"br label %{done}")
                code.open(part)
                arguments = f"{code.vector} {value}, ptr {place}, i32 4, {code.bits} {inside}"
                code.do(f"call void @llvm.masked.store.v{shape.lanes}f32.p0({arguments})")
                code.do(f"br label %{done}")
                code.open(done)
                return values

            each_pair(code, shape, carried[0], carried[1], right, squares, [], write)
            return [code.at(carried[0], group_bytes), code.at(carried[1], shape.features * 4)]

        code.loop("%groups", [("ptr", "%left"), ("ptr", "%left_squares")], group)

    each_panel(code, shape, body)
    pointers = "ptr noalias %left, ptr noalias %left_squares, ptr noalias %right, ptr noalias %right_squares"
    numbers = "i64 %n, i64 %groups, i64 %panels, i64 %rows, i64 %columns, i64 %stride, float %reach"
    return code.function(f"void @dense({pointers}, ptr noalias %scratch, ptr noalias %out, {numbers})")


def _marked(code: Code, square: str, reach: str) -> str:
    """Squared distances with `UNTRUSTED` in the place of those that are left to double precision."""
    near = code.less(square, code.splat(SQUARE_TRUSTED))
    if reach:
        near = code.let(f"or {code.bits} {near}, {code.less(code.every('%reach'), reach)}")
    return code.pick(near, code.splat(UNTRUSTED), square)


def _best_two(shape: Shape) -> str:
    """Function @best_two, which keeps the running bests of rows and columns and lists doubtful pairs."""
    code = Code(shape.lanes)
    group_bytes = code.let(f"mul i64 %n, {shape.features * shape.left * 4}")
    state_bytes, kinds = STATE * code.bytes, [code.vector] * 3 + [code.integers] * 2

    def body(p: str, right: str, squares: str, column: str) -> None:
        lane = code.let(f"add {code.integers} {code.every(code.let(f'trunc i64 {column} to i32'), of='i32')}, {code.iota()}")
        home = code.at("%column_state", code.let(f"mul i64 {p}, {state_bytes}"))

        def group(g: str, carried: list[str]) -> list[str]:
            left, left_squares, rows, *column_state = carried
            start = code.let(f"add i64 %row, {code.let(f'mul i64 {g}, {shape.features}')}")

            def absorb(f: str, square: str, reach: str, values: list[str]) -> list[str]:
                row = code.let(f"trunc i64 {code.let(f'add i64 {start}, {f}')} to i32")
                if reach:
                    square = _without_doubtful(code, square, reach, row, column)
                row_state = code.at(rows, code.let(f"mul i64 {f}, {state_bytes}"))
                _save(code, row_state, _absorbed(code, square, lane, _state(code, row_state)))
                return _absorbed(code, square, code.every(row, of="i32"), values)

            column_state = each_pair(code, shape, left, left_squares, right, squares, column_state, absorb, kinds)
            moved = code.at(left, group_bytes), code.at(left_squares, shape.features * 4)
            return [*moved, code.at(rows, shape.features * state_bytes), *column_state]

        start = [("ptr", "%left"), ("ptr", "%left_squares"), ("ptr", "%row_state")]
        ended = code.loop("%groups", [*start, *zip(kinds, _state(code, home), strict=True)], group)
        _save(code, home, ended[3:])

    each_panel(code, shape, body)
    pointers = "ptr noalias %left, ptr noalias %left_squares, ptr noalias %right, ptr noalias %right_squares"
    states = "ptr noalias %scratch, ptr noalias %row_state, ptr noalias %column_state, ptr noalias %list"
    return code.function(f"void @best_two({pointers}, {states}, i64 %n, i64 %groups, i64 %panels, i64 %row, float %reach)")


def _state(code: Code, pointer: str) -> list[str]:
    """Vectors of the state at an address."""
    return [code.load(pointer, k * code.bytes, of=code.vector if k < 3 else code.integers) for k in range(STATE)]


def _save(code: Code, pointer: str, values: list[str]) -> None:
    for k, value in enumerate(values):
        code.store(value, pointer, k * code.bytes, of=code.vector if k < 3 else code.integers)


def _absorbed(code: Code, value: str, index: str, state: list[str]) -> list[str]:
    """State after one more candidate in each lane; candidates come by ascending index, so that ties keep the smaller one."""
    first, second, third, at_first, at_second = state
    wins, places = code.less(value, first), code.less(value, second)
    later = code.pick(places, index, at_second, of=code.integers)
    return [
        code.minimum(value, first),
        code.minimum(second, code.maximum(first, value)),
        code.minimum(third, code.maximum(second, value)),
        code.pick(wins, index, at_first, of=code.integers),
        code.pick(wins, at_first, later, of=code.integers),
    ]


def _without_doubtful(code: Code, square: str, reach: str, row: str, column: str) -> str:
    """Squared distances with infinity for doubtful pairs, of too large a reach, which are appended to the list instead."""
    doubtful = code.less(code.every("%reach"), reach)
    mask = code.let(f"bitcast {code.bits} {doubtful} to i{code.lanes}")
    rare, done, before = code.label(), code.label(), code.block
    code.do(f"br i1 {code.let(f'icmp eq i{code.lanes} {mask}, 0')}, label %{done}, label %{rare}")
    code.open(rare)
    first = code.let(f"trunc i64 {column} to i32")
    code.do(f"call void @append(i{code.lanes} {mask}, i32 {row}, i32 {first}, ptr %list)")
    infinite = "<" + ", ".join(["float 0x7FF0000000000000"] * code.lanes) + ">"
    masked = code.pick(doubtful, infinite, square)
    code.do(f"br label %{done}")
    code.open(done)
    return code.let(f"phi {code.vector} [ {square}, %{before} ], [ {masked}, %{rare} ]")


def append(shape: Shape) -> str:
    """Function @append, which writes (row, column) of each lane of a mask behind %list = (capacity, count, pairs).

    Beyond the capacity pairs are counted only.
    """
    kind = f"i{shape.lanes}"
    return f"""
define internal void @append({kind} %mask, i32 %row, i32 %first, ptr %list) noinline #0 {{
entry:
  %capacity = load i64, ptr %list
  %at_count = getelementptr i8, ptr %list, i64 8
  %pairs = getelementptr i8, ptr %list, i64 16
  %before = load i64, ptr %at_count
  br label %next
next:
  %left = phi {kind} [ %mask, %entry ], [ %rest, %after ]
  %count = phi i64 [ %before, %entry ], [ %more, %after ]
  %more = add i64 %count, 1
  %lowest = call {kind} @llvm.cttz.{kind}({kind} %left, i1 true)
  %minus = sub {kind} %left, 1
  %rest = and {kind} %left, %minus
  %fits = icmp ult i64 %count, %capacity
  br i1 %fits, label %write, label %after
write:
  %place = getelementptr {{ i32, i32 }}, ptr %pairs, i64 %count
  store i32 %row, ptr %place
  %lane = zext {kind} %lowest to i32
  %column = add i32 %first, %lane
  %beside = getelementptr i8, ptr %place, i64 4
  store i32 %column, ptr %beside
  br label %after
after:
  %end = icmp eq {kind} %rest, 0
  br i1 %end, label %done, label %next
done:
  store i64 %more, ptr %at_count
  ret void
}}
"""
