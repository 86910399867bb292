"""Function @ranked, the two nearest of every row and column of listed pairs, for `veil.distances.cpu.sweep`.

A file of its own: each function that this folder writes is one.
"""

from __future__ import annotations

from veil.distances.cpu.codegen.emit import Code
from veil.distances.cpu.codegen.shape import Shape


def module(shape: Shape) -> str:
    """LLVM IR with the function @ranked, which needs pairs in ascending order within every row and every column."""
    code = Code(shape.lanes, "double")

    def pair(k: str, _: list[str]) -> list[str]:
        at = code.times(k, 8)
        row, column = (code.scalar(code.at(side, at), of="i64") for side in ("%rows", "%columns"))
        value = code.scalar(code.at("%distance", at))
        _placed(code, "%row", row, column, value)
        _placed(code, "%column", column, row, value)
        return []

    code.loop("%count", [], pair)
    code.do("ret void")
    pointers = "ptr noalias %rows, ptr noalias %columns, ptr noalias %distance"
    states = ", ".join(f"ptr noalias %{side}_{what}" for side in ("row", "column") for what in ("index", "value"))
    return "attributes #0 = { nounwind }\n" + code.function(f"void @ranked({pointers}, {states}, i64 %count)")


def _placed(code: Code, side: str, owner: str, other: str, value: str) -> None:
    """Write the two best of an owner after one more candidate, which must be smaller than those before it to win."""
    at = code.times(owner, 16)
    values, indices = code.at(f"{side}_value", at), code.at(f"{side}_index", at)
    (first, second), (at_first, at_second) = (
        [code.scalar(place, 8 * k, of=kind) for k in range(2)] for place, kind in ((values, "double"), (indices, "i64"))
    )
    wins, places = (code.let(f"fcmp olt double {value}, {known}") for known in (first, second))

    def pick(where: str, kind: str, a: str, b: str) -> str:
        return code.let(f"select i1 {where}, {kind} {a}, {kind} {b}")

    for place, kind, new, old in ((values, "double", value, (first, second)), (indices, "i64", other, (at_first, at_second))):
        later = pick(wins, kind, old[0], pick(places, kind, new, old[1]))
        code.do(f"store {kind} {pick(wins, kind, new, old[0])}, ptr {place}")
        code.do(f"store {kind} {later}, ptr {code.at(place, 8)}")
