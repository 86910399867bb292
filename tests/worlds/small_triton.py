"""As much of Triton as the generated kernels use, on NumPy: they run where neither torch nor Triton is installed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np


class Block(np.ndarray):
    """An array that knows `to`; results of arithmetic are blocks, of no dimension as well."""

    def to(self, kind: Any) -> Any:
        return self.astype(kind)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        return np.asarray(array).view(Block)


def block(values: Any, kind: Any = None) -> Block:
    return np.asarray(values, dtype=kind).view(Block)


@dataclass(frozen=True)
class Pointer:
    """Memory of one array, and offsets in elements."""

    memory: np.ndarray
    offset: Any = 0

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.offset + more)


def load(pointer: Pointer) -> Block:
    offsets = np.asarray(pointer.offset)
    assert ((offsets >= 0) & (offsets < pointer.memory.size)).all(), "read beyond the memory"
    return block(pointer.memory.reshape(-1)[offsets])


def store(pointer: Pointer, value: Any) -> None:
    offsets = np.asarray(pointer.offset)
    assert ((offsets >= 0) & (offsets < pointer.memory.size)).all(), "written beyond the memory"
    assert len(np.unique(offsets)) == offsets.size, "two lanes write to one place"
    pointer.memory.reshape(-1)[offsets] = np.broadcast_to(value, offsets.shape)


def atomic_add(pointer: Pointer, value: Any) -> None:
    pointer.memory.reshape(-1)[np.asarray(pointer.offset)] += value


_program = [0, 0]


def language() -> ModuleType:
    module = ModuleType("triton.language")
    functions: dict[str, Any] = {
        "program_id": lambda axis: block(_program[axis], np.int32),
        "arange": lambda first, stop: block(np.arange(first, stop), np.int32),
        "full": lambda shape, value, kind: block(np.full(shape, value), kind),
        "zeros": lambda shape, kind: block(np.zeros(shape), kind),
        "where": lambda condition, a, b: block(np.where(condition, a, b)),
        "minimum": lambda a, b: block(np.minimum(a, b)),
        "maximum": lambda a, b: block(np.maximum(a, b)),
        "min": lambda values, axis: block(np.min(values, axis=axis)),
        "argmin": lambda values, axis: block(np.argmin(values, axis=axis), np.int32),
        "sum": lambda values, axis=None: block(np.sum(values, axis=axis)),
        "load": load,
        "store": store,
        "atomic_add": atomic_add,
        "float32": np.float32,
        "int32": np.int32,
        "int64": np.int64,
        "constexpr": int,
    }
    for name, value in functions.items():
        setattr(module, name, value)
    return module


@contextmanager
def installed() -> Iterator[None]:
    """`import triton` finds this."""
    names = ("triton", "triton.language")
    before = {name: sys.modules.get(name) for name in names}
    triton, tl = ModuleType("triton"), language()
    triton.jit = lambda function: function  # type: ignore[attr-defined]
    triton.language = tl  # type: ignore[attr-defined]
    sys.modules.update({"triton": triton, "triton.language": tl})
    try:
        yield
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module


def compiled(source: str, name: str) -> Callable[..., None]:
    """The function `name` of a generated module."""
    space: dict[str, Any] = {}
    with installed():
        exec(compile(source, f"<small triton {name}>", "exec"), space)
    function: Callable[..., None] = space[name]
    return function


def launch(function: Callable[..., None], grid: tuple[int, int], *arguments: Any, **constants: int) -> None:
    """All programs of a grid, one after the other, in reversed order so that nothing depends on it."""
    given = [Pointer(x) if isinstance(x, np.ndarray) else x if isinstance(x, float) else block(x, np.int32) for x in arguments]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for second in reversed(range(grid[1])):
            for first in reversed(range(grid[0])):
                _program[:] = first, second
                function(*given, **constants)
