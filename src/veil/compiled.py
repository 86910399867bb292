"""Functions that numba compiles, but not before one of them is called: importing numba takes a second, compiling more.

A function's first call makes numba's dispatchers of all functions that were marked until then, and puts them into the modules
where they were defined or imported, as compiled functions find those that they call there.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import update_wrapper
from threading import RLock
from typing import Any

_lock = RLock()
_waiting: list[_Compiled] = []
_homes: list[dict[str, Any]] = []  # the globals of modules with compiled functions


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compiled on first use and kept on disk; below whatever type checks a test run puts around the function."""
    return _Compiled(inspect.unwrap(function))


class _Compiled:
    """Stands for a function until it is called for the first time, and passes calls on after that."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
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
    import numba

    with _lock:
        while _waiting:
            item = _waiting[0]
            item.dispatcher = _dispatcher(numba, item.function)
            _waiting.pop(0)
        for home in _homes:
            for name, value in list(home.items()):
                if isinstance(value, _Compiled) and value.dispatcher is not None:
                    home[name] = value.dispatcher


def _dispatcher(numba: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """Kept on disk where there is a place to write to; a service's user may have none, and then each process compiles anew."""
    try:
        return numba.njit(cache=True, nogil=True)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return numba.njit(nogil=True)(function)
