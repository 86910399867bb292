"""Writer of LLVM IR: numbered values, loops that carry values in registers, and vectors of a fixed number of lanes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence


def number(value: float, real: str = "float") -> str:
    """Constant as LLVM spells it: the bits of the value, rounded to its type, in double precision."""
    if real == "float":
        (value,) = struct.unpack("f", struct.pack("f", value))
    return "0x" + struct.pack(">d", value).hex().upper()


def added_pairs(lanes: int) -> str:
    """Intrinsic of the VNNI instruction VPDPWSSD, c + a b, for vectors of `lanes` 32-bit integers."""
    return f"llvm.x86.avx512.vpdpwssd.{32 * lanes}"


class Code:
    """Writer of the body of one function in static single assignment form.

    Methods write instructions and return names of values. Vectors have `lanes` numbers of the type `real`.
    """

    def __init__(self, lanes: int, real: str = "float") -> None:
        self.lanes, self.real = lanes, real
        self.size, self.suffix = (4, "f32") if real == "float" else (8, "f64")
        self.vector = f"<{lanes} x {real}>"
        self.integers = f"<{lanes} x i32>"
        self.bits = f"<{lanes} x i1>"
        self.bytes = self.size * lanes
        self.lines: list[str] = []
        self.block = "entry"
        self._count = 0

    def fresh(self) -> str:
        """Name not used before."""
        self._count += 1
        return f"%v{self._count}"

    def do(self, text: str) -> None:
        """Write an instruction without a value."""
        self.lines.append("  " + text)

    def let(self, text: str) -> str:
        """Name of the value of an instruction, which is written."""
        name = self.fresh()
        self.do(f"{name} = {text}")
        return name

    def open(self, label: str) -> None:
        """Start a basic block; the one before must have ended in a branch."""
        self.lines.append(f"{label}:")
        self.block = label

    def label(self) -> str:
        """Name for a basic block, not used before."""
        return "b" + self.fresh()[2:]

    def splat(self, value: float) -> str:
        """Vector constant with the same value in all lanes."""
        return "<" + ", ".join([f"{self.real} {number(value, self.real)}"] * self.lanes) + ">"

    def iota(self) -> str:
        """Vector constant of the integers 0, 1, 2, ..."""
        return "<" + ", ".join(f"i32 {k}" for k in range(self.lanes)) + ">"

    def at(self, pointer: str, offset: int | str) -> str:
        """Pointer moved by `offset` bytes."""
        return pointer if offset == 0 else self.let(f"getelementptr i8, ptr {pointer}, i64 {offset}")

    def load(self, pointer: str, offset: int = 0, *, of: str = "") -> str:
        """Vector loaded from an aligned address."""
        return self.let(f"load {of or self.vector}, ptr {self.at(pointer, offset)}, align {self.bytes}")

    def store(self, value: str, pointer: str, offset: int = 0, *, of: str = "") -> None:
        """Store a vector at an aligned address."""
        self.do(f"store {of or self.vector} {value}, ptr {self.at(pointer, offset)}, align {self.bytes}")

    def every(self, scalar: str, *, of: str = "") -> str:
        """Vector with a scalar in all lanes."""
        of = of or self.real
        kind = f"<{self.lanes} x {of}>"
        first = self.let(f"insertelement {kind} poison, {of} {scalar}, i32 0")
        return self.let(f"shufflevector {kind} {first}, {kind} poison, <{self.lanes} x i32> zeroinitializer")

    def broadcast(self, pointer: str, offset: int = 0) -> str:
        """Vector with one number from memory in all lanes."""
        return self.every(self.scalar(pointer, offset))

    def scalar(self, pointer: str, offset: int | str = 0, *, of: str = "") -> str:
        """One number loaded from memory, or one value of the type `of`."""
        return self.let(f"load {of or self.real}, ptr {self.at(pointer, offset)}")

    def times(self, index: str, count: int | str) -> str:
        """Product of two 64-bit integers."""
        return self.let(f"mul i64 {index}, {count}")

    def arithmetic(self, name: str, a: str, b: str) -> str:
        """Result of `name`, one of fadd, fsub, fmul and fdiv, on two vectors; a division of floats may be an estimate."""
        estimated = "arcp afn " if name == "fdiv" and self.real == "float" else ""
        return self.let(f"{name} {estimated}{self.vector} {a}, {b}")

    def negative(self, a: str) -> str:
        """Negative -a of a vector."""
        return self.let(f"fneg {self.vector} {a}")

    def fma(self, a: str, b: str, c: str) -> str:
        """Vector a b + c with one rounding."""
        v = self.vector
        return self.let(f"call {v} @llvm.fma.v{self.lanes}{self.suffix}({v} {a}, {v} {b}, {v} {c})")

    def pairs_added(self, a: str, b: str, c: str) -> str:
        """Integers a b + c: the products of both 16-bit halves of each lane, added to the lane's 32 bits (VNNI)."""
        v = self.integers
        return self.let(f"call {v} @{added_pairs(self.lanes)}({v} {c}, {v} {a}, {v} {b})")

    def fnma(self, a: str, b: str, c: str) -> str:
        """Vector c - a b with one rounding."""
        return self.fma(self.negative(a), b, c)

    def less(self, a: str, b: str) -> str:
        """Mask of the lanes where a < b."""
        return self.let(f"fcmp nnan olt {self.vector} {a}, {b}")

    def pick(self, where: str, a: str, b: str, *, of: str = "") -> str:
        """Vector with a in the lanes of the mask `where`, b elsewhere."""
        kind = of or self.vector
        return self.let(f"select {self.bits} {where}, {kind} {a}, {kind} {b}")

    def before(self, first: str, limit: str) -> str:
        """Mask of the lanes k for which first + k is below the limit."""
        kind = f"<{self.lanes} x i64>"
        lane = "<" + ", ".join(f"i64 {k}" for k in range(self.lanes)) + ">"
        index = self.let(f"add {kind} {self.every(first, of='i64')}, {lane}")
        return self.let(f"icmp ult {kind} {index}, {self.every(limit, of='i64')}")

    def minimum(self, a: str, b: str) -> str:
        """Smaller of two vectors, lane by lane; neither may hold NaN."""
        return self.let(f"select nnan nsz {self.bits} {self.less(a, b)}, {self.vector} {a}, {self.vector} {b}")

    def maximum(self, a: str, b: str) -> str:
        """Larger of two vectors, lane by lane; neither may hold NaN."""
        return self.let(f"select nnan nsz {self.bits} {self.less(b, a)}, {self.vector} {a}, {self.vector} {b}")

    def loop(
        self, count: str, carried: Sequence[tuple[str, str]], body: Callable[[str, list[str]], Sequence[str]], step: int = 1
    ) -> list[str]:
        """Final values of a loop `for index in range(0, count, step)`, count >= 1, that carries values from turn to turn.

        `carried` are (type, first value) of each; `body(index, values)` writes one turn and returns the next values.
        """
        before, head, done = self.block, self.label(), self.label()
        self.do(f"br label %{head}")
        self.open(head)
        index, names, place = self.fresh(), [self.fresh() for _ in carried], len(self.lines)
        after = body(index, names)
        following = self.let(f"add nuw nsw i64 {index}, {step}")
        more = self.let(f"icmp ult i64 {following}, {count}")
        self.do(f"br i1 {more}, label %{head}, label %{done}")
        phis = [f"  {index} = phi i64 [ 0, %{before} ], [ {following}, %{self.block} ]"]
        for (kind, start), name, value in zip(carried, names, after, strict=True):
            phis.append(f"  {name} = phi {kind} [ {start}, %{before} ], [ {value}, %{self.block} ]")
        self.lines[place:place] = phis
        self.open(done)
        return list(after)

    def function(self, head: str) -> str:
        """Text of the finished function; `head` is its return type, name and arguments."""
        return "\n".join([f"define {head} #0 {{", "entry:", *self.lines, "}", ""])
