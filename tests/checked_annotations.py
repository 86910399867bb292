"""Annotations of all of veil's functions, checked in calls at less than half the price of jaxtyping's own decorator.

The suite runs with jaxtyping's import hook, which decorates every function with `jaxtyping.jaxtyped`. That one checks the
arguments before a call and once more with the result, and binds the arguments of each call to their names. Here beartype's
decorator checks arguments and result once, in a context of jaxtyping where sizes are named; a function whose annotations hold
no array needs none. It is applied at the first call, when the names of classes that a module defines further below are known;
names that are imported for type checkers alone stand for any type. The same holds of the `__init__` of a dataclass. Importing
this module puts it in the place of the other one; it must come before any of veil.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from types import FunctionType, SimpleNamespace
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

_jaxtyped = jaxtyping.jaxtyped
_beartype = beartype(conf=BeartypeConf(violation_type=jaxtyping.TypeCheckError))
# Name of the default in which a wrapper of beartype has the function that it checks.
_WRAPPED = "__beartype_func"
# Of functions inside of others: the first wrapper, the hints, and whether they hold arrays.
_inner: dict[tuple[Any, ...], tuple[Any, dict[str, Any], bool]] = {}


def jaxtyped(function: Any = None, *, typechecker: Any = None) -> Any:
    """The decorator in place of `jaxtyping.jaxtyped`, with the same checks."""
    if function is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if inspect.isclass(function) and typechecker is not None and _has_a_plain_init(function):
        function.__init__ = jaxtyped(vars(function)["__init__"], typechecker=typechecker)  # type: ignore[method-assign]
        return function
    if not isinstance(function, FunctionType) or typechecker is None or _needs_the_original(function):
        return _jaxtyped(function, typechecker=typechecker)
    checked, holds_arrays = None, False

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        nonlocal checked, holds_arrays
        if jaxtyping.config.jaxtyping_disable:
            return function(*arguments, **named)
        if checked is None:
            checked, holds_arrays = _checked(function)
        if not holds_arrays:
            return checked(*arguments, **named)
        with _jaxtyped("context"):  # in which a size that is named twice is one size
            return checked(*arguments, **named)

    return call


@contextmanager
def without_checks() -> Iterator[None]:
    """No annotation is checked meanwhile."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def _checked(function: FunctionType) -> tuple[FunctionType, bool]:
    """The function with its checks, and whether its annotations hold arrays.

    A function inside of another one is made anew in each call of that one. Its checks are compiled once: beartype's wrapper has
    the function that it checks as a default, and a copy of the wrapper gets the new function there.
    """
    key = function.__code__, function.__module__, *function.__annotations__.items()
    if key in _inner:
        first, hints, holds_arrays = _inner[key]
        copy = FunctionType(first.__code__, first.__globals__, first.__name__, first.__defaults__, first.__closure__)
        copy.__kwdefaults__ = first.__kwdefaults__ | {_WRAPPED: _with_hints(function, hints)}
        return copy, holds_arrays
    hints = _known_hints(function)
    checked, holds_arrays = _beartype(_with_hints(function, hints)), any(map(_array_in, hints.values()))
    if "<locals>" in function.__qualname__ and _WRAPPED in (checked.__kwdefaults__ or {}):
        _inner[key] = checked, hints, holds_arrays
    return checked, holds_arrays


def _has_a_plain_init(cls: type) -> bool:
    """Whether the class is a dataclass with an `__init__` of its own that has no checks yet."""
    own = vars(cls).get("__init__")
    return is_dataclass(cls) and isinstance(own, FunctionType) and not hasattr(own, "__wrapped__")


def _needs_the_original(function: FunctionType) -> bool:
    """Whether the function yields, or names sizes by its arguments ("{size}")."""
    yields = inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)
    return yields or any("{" in str(annotation) for annotation in function.__annotations__.values())


def _known_hints(function: FunctionType) -> dict[str, Any]:
    """The types of the function's annotations; `Any` if an annotation names something that does not exist at run time."""
    hints: dict[str, Any] = {}
    for name, annotation in function.__annotations__.items():
        holder = SimpleNamespace(__annotations__={name: annotation})
        try:
            hints |= get_type_hints(holder, function.__globals__, include_extras=True)
        except Exception:  # as jaxtyping does
            hints[name] = Any
    return hints


def _with_hints(function: FunctionType, hints: dict[str, Any]) -> FunctionType:
    """The same function with other annotations."""
    code = function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    copy = FunctionType(*code)
    copy.__kwdefaults__, copy.__annotations__ = function.__kwdefaults__, hints
    copy.__qualname__, copy.__module__ = function.__qualname__, function.__module__
    return copy


def _array_in(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return any(map(_array_in, hint if isinstance(hint, list) else get_args(hint)))


jaxtyping.jaxtyped = jaxtyped  # type: ignore[assignment]
