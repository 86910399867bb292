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

    def __call__(self, *arguments: Any) -> Any:
        if self.dispatcher is None:
            _make_dispatchers()
        assert self.dispatcher is not None
        return self.dispatcher(*arguments)


def _make_dispatchers() -> None:
    """Make the dispatchers of all waiting functions and put them into the modules that define or import these."""
    import numba

    with _lock:
        while _waiting:
            item = _waiting[0]
            item.dispatcher = _dispatcher(numba, item.function, item.checks_division)
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
