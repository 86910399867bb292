"""Function @within, which lists the candidates among running bests: those within a slack of the second best of their owner."""

from __future__ import annotations

from veil.distances.cpu.codegen.emit import Code
from veil.distances.cpu.codegen.outputs import STATE
from veil.distances.cpu.codegen.shape import Shape

INFINITE = "0x7FF0000000000000"


def module(shape: Shape, by: str) -> str:
    """LLVM IR with the function @within for the bests of "rows" or of "columns" (`veil.distances.cpu.sweep.States`)."""
    lanes, vector = shape.lanes, f"<{shape.lanes} x float>"
    width = 32 * lanes
    return "\n".join(
        [
            f"declare float @llvm.vector.reduce.fmin.v{lanes}f32({vector})",
            f"declare i{lanes} @llvm.cttz.i{lanes}(i{lanes}, i1)",
            f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}',
            _taken(lanes),
            _rows(shape) if by == "rows" else _columns(shape),
        ]
    )


def _rows(shape: Shape) -> str:
    """Function @within for rows, whose bests lie in the lanes of one state each."""
    code = Code(shape.lanes)

    def row(r: str, _: list[str]) -> list[str]:
        state = code.at("%state", code.times(r, STATE * code.bytes))
        first, second, third = (_read(code, state, k) for k in range(3))
        least = _least(code, first)
        equal = code.let(f"fcmp oeq {code.vector} {first}, {code.every(least)}")
        mask = code.let(f"bitcast {code.bits} {equal} to i{code.lanes}")
        lowest = code.let(f"and i{code.lanes} {mask}, {code.let(f'sub i{code.lanes} 0, {mask}')}")
        once = code.let(f"bitcast i{code.lanes} {lowest} to {code.bits}")
        limit = code.let(f"fadd float {_least(code, code.pick(once, second, first))}, %slack")
        for k, value in enumerate((first, second)):
            _take(code, state, k, value, code.every(limit), r, 0)
        hidden = _least(code, third)
        inside = code.let(f"fcmp ole float {hidden}, {limit}")
        finite = code.let(f"fcmp olt float {hidden}, {INFINITE}")
        flag = code.let(f"zext i1 {code.let(f'and i1 {inside}, {finite}')} to i8")
        code.do(f"store i8 {flag}, ptr {code.at('%hidden', r)}")
        return []

    code.loop("%places", [], row)
    code.do("ret void")
    return code.function(_head())


def _columns(shape: Shape) -> str:
    """Function @within for columns, whose bests lie each in one lane of a panel's states, in several sets of these."""
    code = Code(shape.lanes)
    infinite = "<" + ", ".join([f"float {INFINITE}"] * code.lanes) + ">"

    def panel(p: str, _: list[str]) -> list[str]:
        home = code.at("%state", code.times(p, STATE * code.bytes))

        def merge(s: str, best: list[str]) -> list[str]:
            state = code.at(home, code.times(s, "%set_bytes"))
            first, second, third = (_read(code, state, k) for k in range(3))
            later = code.minimum(code.maximum(best[0], first), code.minimum(best[1], second))
            return [code.minimum(best[0], first), later, code.minimum(best[2], third)]

        second, hidden = code.loop("%sets", [(code.vector, infinite)] * 3, merge)[1:]
        limit = code.arithmetic("fadd", second, code.every("%slack"))
        owner = code.times(p, code.lanes)

        def list_set(s: str, _: list[str]) -> list[str]:
            state = code.at(home, code.times(s, "%set_bytes"))
            for k in range(2):
                _take(code, state, k, _read(code, state, k), limit, owner, 1)
            return []

        code.loop("%sets", [], list_set)
        inside = code.let(f"fcmp ole {code.vector} {hidden}, {limit}")
        finite = code.let(f"fcmp olt {code.vector} {hidden}, {infinite}")
        flags = code.let(f"zext {code.bits} {code.let(f'and {code.bits} {inside}, {finite}')} to <{code.lanes} x i8>")
        code.do(f"store <{code.lanes} x i8> {flags}, ptr {code.at('%hidden', owner)}, align 1")
        return []

    code.loop("%places", [], panel)
    code.do("ret void")
    return code.function(_head())


def _head() -> str:
    """Return type, name and arguments of @within."""
    pointers = "ptr noalias %state, ptr noalias %owners, ptr noalias %others, ptr noalias %hidden, ptr noalias %found"
    return f"void @within({pointers}, i64 %places, i64 %sets, i64 %set_bytes, float %slack)"


def _read(code: Code, state: str, which: int, of: str = "") -> str:
    """One vector of a state, from any address: NumPy, which joins the states of several threads, does not align them."""
    return code.let(f"load {of or code.vector}, ptr {code.at(state, which * code.bytes)}, align 4")


def _least(code: Code, value: str) -> str:
    """Smallest lane of a vector."""
    return code.let(f"call nnan float @llvm.vector.reduce.fmin.v{code.lanes}f32({code.vector} {value})")


def _take(code: Code, state: str, which: int, value: str, limit: str, owner: str, step: int) -> None:
    """List the lanes of the first or second bests of a state whose value is within the limit and whose index is not -1."""
    indices = code.at(state, (3 + which) * code.bytes)
    within = code.let(f"fcmp ole {code.vector} {value}, {limit}")
    present = code.let(f"icmp sge {code.integers} {_read(code, state, 3 + which, code.integers)}, zeroinitializer")
    mask = code.let(f"bitcast {code.bits} {code.let(f'and {code.bits} {within}, {present}')} to i{code.lanes}")
    some, done = code.label(), code.label()
    code.do(f"br i1 {code.let(f'icmp eq i{code.lanes} {mask}, 0')}, label %{done}, label %{some}")
    code.open(some)
    arguments = f"i{code.lanes} {mask}, ptr {indices}, i64 {owner}, i64 {step}, ptr %owners, ptr %others, ptr %found"
    code.do(f"call void @taken({arguments})")
    code.do(f"br label %{done}")
    code.open(done)


def _taken(lanes: int) -> str:
    """Function @taken, which appends (owner + lane times step, index) of each lane of a mask to the lists."""
    kind = f"i{lanes}"
    return f"""
define internal void @taken({kind} %mask, ptr %indices, i64 %owner, i64 %step, ptr %owners, ptr %others, ptr %found) #0 {{
entry:
  %before = load i64, ptr %found
  br label %next
next:
  %left = phi {kind} [ %mask, %entry ], [ %rest, %next ]
  %count = phi i64 [ %before, %entry ], [ %more, %next ]
  %more = add i64 %count, 1
  %lowest = call {kind} @llvm.cttz.{kind}({kind} %left, i1 true)
  %lane = zext {kind} %lowest to i64
  %place = getelementptr i32, ptr %indices, i64 %lane
  %index = load i32, ptr %place
  %other = sext i32 %index to i64
  %offset = mul i64 %lane, %step
  %own = add i64 %owner, %offset
  %at_owner = getelementptr i64, ptr %owners, i64 %count
  store i64 %own, ptr %at_owner
  %at_other = getelementptr i64, ptr %others, i64 %count
  store i64 %other, ptr %at_other
  %minus = sub {kind} %left, 1
  %rest = and {kind} %left, %minus
  %end = icmp eq {kind} %rest, 0
  br i1 %end, label %done, label %next
done:
  store i64 %more, ptr %found
  ret void
}}
"""
