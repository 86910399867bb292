"""Compilation by numba that waits for the first call: importing numba takes a second, and compiling takes more.

The first call of any compiled function makes numba's dispatchers for all functions that were marked until then. The dispatchers
replace the functions in the modules that define or import them, because compiled functions look up there what they call.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import update_wrapper
from hashlib import sha256
from threading import RLock
from types import CodeType
from typing import Any

_lock = RLock()
_waiting: list[_Compiled] = []
_homes: list[dict[str, Any]] = []  # the globals of modules with compiled functions


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Mark a function for compilation by numba at its first call; the machine code is kept on disk where possible.

    The compiled function takes positional arguments only and releases the GIL. Arrays that belong together are best passed as
    one `typing.NamedTuple`. Type checks that a test run puts around the function are removed first: numba compiles what is
    below them.
    """
    return _Compiled(inspect.unwrap(function))


def compiled_in_vectors(function: Callable[..., Any]) -> Callable[..., Any]:
    """`compiled`, for loops that divide, each turn for itself: they then take vector instructions, with the same results.

    A division by zero gives infinity or NaN there instead of ZeroDivisionError.
    """
    return _Compiled(inspect.unwrap(function), checks_division=False)


def _pair_sums(row: Any, planes: Any) -> tuple[int, ...]:
    """Inner products of a row with some planes as integers of 64 bits; for use in compiled functions alone.

    The row has unsigned bytes or integers of 16 bits, the planes, a tuple of arrays as long as it, integers of 16 bits. All are
    contiguous. Place i goes into the sum i / 2 modulo `PAIR_LANES`, of 32 bits, by one instruction for two places where the
    processor has it. No sum may leave 32 bits: the caller sees to it.
    """
    return tuple(sum(int(value) * int(factor) for value, factor in zip(row, plane, strict=True)) for plane in planes)


class _Compiled:
    """Placeholder of a function that compiles it at the first call and passes later calls on."""

    def __init__(self, function: Callable[..., Any], *, checks_division: bool = True) -> None:
        self.function = function
        self.checks_division = checks_division
        self.dispatcher: Callable[..., Any] | None = None
        update_wrapper(self, function)
        with _lock:
            _waiting.append(self)
            if not any(home is function.__globals__ for home in _homes):
                _homes.append(function.__globals__)

    def make(self, numba: Any) -> Any:
        """The instructions that stand for the function in compiled functions."""
        return _dispatcher(numba, self.function, self.checks_division)

    def __call__(self, *arguments: Any) -> Any:
        if self.dispatcher is None:
            _make_dispatchers()
        assert self.dispatcher is not None
        return self.dispatcher(*arguments)


PAIR_LANES = 32  # of 32 bits: two of the widest registers, as one alone would wait for its own sums


class _PairSums(_Compiled):
    """Placeholder of `pair_sums`, which numba's own vectors do not reach: they widen 16 bits to 32 before they multiply."""

    def make(self, numba: Any) -> Any:
        """The intrinsic function, as vectors of LLVM without a word of any one processor."""
        from llvmlite import ir
        from numba import types
        from numba.core import cgutils
        from numba.extending import intrinsic

        long, word = ir.IntType(64), ir.IntType(32)
        some, pairs = ir.VectorType(word, PAIR_LANES), ir.VectorType(word, 2 * PAIR_LANES)
        chosen = [ir.Constant(some, [ir.Constant(word, 2 * lane + odd) for lane in range(PAIR_LANES)]) for odd in (0, 1)]
        sums = ir.VectorType(long, PAIR_LANES)

        def loaded(builder: Any, array: Any, kind: Any, place: Any, shape: Any) -> Any:
            """Values of an array from a place on, as integers of 32 bits: one, or `2 PAIR_LANES`."""
            count = getattr(shape, "count", 1)
            stored = ir.IntType(kind.bitwidth)
            pointer = builder.gep(array.data, [place], inbounds=True)
            if count > 1:
                stored = ir.VectorType(stored, count)
                pointer = builder.bitcast(pointer, stored.as_pointer())
            values = builder.load(pointer, align=kind.bitwidth // 8)
            return (builder.sext if kind.signed else builder.zext)(values, shape)

        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            of_row, of_planes = signature.args[0].dtype, signature.args[1].dtype.dtype
            row = context.make_array(signature.args[0])(context, builder, arguments[0])
            make = context.make_array(signature.args[1].dtype)
            planes = [make(context, builder, plane) for plane in cgutils.unpack_tuple(builder, arguments[1])]
            count, step = builder.extract_value(row.shape, 0), ir.Constant(long, 2 * PAIR_LANES)
            whole = builder.sdiv(count, step)
            totals = [cgutils.alloca_once(builder, some) for _ in planes]
            rests = [cgutils.alloca_once(builder, long) for _ in planes]
            for total, rest in zip(totals, rests, strict=True):
                builder.store(ir.Constant(some, [ir.Constant(word, 0)] * PAIR_LANES), total)
                builder.store(ir.Constant(long, 0), rest)
            with cgutils.for_range(builder, whole) as loop:
                place = builder.mul(loop.index, step)
                values = loaded(builder, row, of_row, place, pairs)
                for plane, total in zip(planes, totals, strict=True):
                    products = builder.mul(values, loaded(builder, plane, of_planes, place, pairs))
                    even, odd = (builder.shuffle_vector(products, products, lanes) for lanes in chosen)
                    builder.store(builder.add(builder.add(even, odd), builder.load(total)), total)
            with cgutils.for_range_slice(builder, builder.mul(whole, step), count, ir.Constant(long, 1)) as (place, _):
                value = builder.sext(loaded(builder, row, of_row, place, word), long)
                for plane, rest in zip(planes, rests, strict=True):
                    factor = builder.sext(loaded(builder, plane, of_planes, place, word), long)
                    builder.store(builder.add(builder.mul(value, factor), builder.load(rest)), rest)
            name = f"llvm.vector.reduce.add.v{PAIR_LANES}i64"
            added = cgutils.get_or_insert_function(builder.module, ir.FunctionType(long, [sums]), name)
            results = [
                builder.add(builder.load(rest), builder.call(added, [builder.sext(builder.load(total), sums)]))
                for total, rest in zip(totals, rests, strict=True)
            ]
            return context.make_tuple(builder, signature.return_type, results)

        def pair_sums(context: Any, row: Any, planes: Any) -> Any:
            return types.UniTuple(types.int64, planes.count)(row, planes), code

        made: Any = intrinsic(pair_sums)
        made.py_func = self.py_func
        return made

    @property
    def py_func(self) -> Callable[..., Any]:
        """The function whose content names what is kept of functions that call this one."""
        return inspect.unwrap(_PairSums.make)


pair_sums = _PairSums(_pair_sums)


def _make_dispatchers() -> None:
    """Make the dispatchers of all waiting functions and put them into the modules that define or import these."""
    import numba

    with _lock:
        while _waiting:
            item = _waiting[0]
            item.dispatcher = item.make(numba)
            _waiting.pop(0)
        for home in _homes:
            for name, value in list(home.items()):
                if isinstance(value, _Compiled) and value.dispatcher is not None:
                    home[name] = value.dispatcher


def _dispatcher(numba: Any, function: Callable[..., Any], checks_division: bool) -> Callable[..., Any]:
    """The numba dispatcher of a function, which keeps machine code on disk where there is a place to write to.

    A service's user may have none; then each process compiles anew.
    """
    errors = "python" if checks_division else "numpy"
    try:
        dispatcher: Any = numba.njit(cache=True, nogil=True, error_model=errors)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return numba.njit(nogil=True, error_model=errors)(function)
    _name_by_content(dispatcher, numba.__version__)
    return dispatcher


def _name_by_content(dispatcher: Any, version: str) -> None:
    """Name a function's machine code on disk after numba's version and the content of the function and of those it calls.

    Numba writes the index of a cache before the code, under numbers that start anew for another numba or another source. A
    process that reads between the two would run the code that the old number held. And numba compares the source file of the
    function alone: a change in a function that it calls from another file would not be seen.
    """
    files: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if not hasattr(files, "_data_name_pattern") or not hasattr(files, "_source_stamp"):  # internals of a numba to come
        return
    content = sha256("\n".join([version, *_content(dispatcher.py_func, set())]).encode()).hexdigest()[:16]
    files._source_stamp = (*files._source_stamp, content)
    files._data_name_pattern = files._data_name_pattern.replace("{number", content + ".{number")
    files._load_index = _or_else(files._load_index, {})
    files._load_data = _or_else(files._load_data, None)


def _or_else(read: Callable[..., Any], missing: Any) -> Callable[..., Any]:
    """A reader of kept machine code that gives `missing` for what another source wrote, or a process that was killed.

    Both are pickled, and the former may name classes that are no longer there.
    """

    def reader(*names: str) -> Any:
        try:
            return read(*names)
        except Exception:  # whatever a pickle raises: then the function is compiled anew
            return missing

    return reader


def _content(function: Callable[..., Any], known: set[Callable[..., Any]]) -> Iterator[str]:
    """The byte code and constants of a function, its plain globals, and the same of the compiled functions that it calls."""
    known.add(function)
    yield function.__module__ + "." + function.__qualname__
    names: list[str] = []
    codes = [function.__code__]
    while codes:
        code = codes.pop()
        yield code.co_code.hex()
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                codes.append(constant)
            else:
                yield repr(sorted(map(repr, constant)) if isinstance(constant, frozenset) else constant)
        names += code.co_names
    for name in names:
        value = function.__globals__.get(name)
        called = getattr(value, "py_func", value.function if isinstance(value, _Compiled) else None)
        if called is None:
            yield f"{name}={value!r}" if isinstance(value, bool | int | float | str | tuple) else name
        elif called not in known:
            yield from _content(called, known)
