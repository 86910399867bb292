"""Annotations of all of veil's functions, checked in calls at less than half the price of jaxtyping's own decorator.

The suite runs with jaxtyping's import hook, which decorates every function with `jaxtyping.jaxtyped`. That one checks the
arguments before a call and once more with the result, and binds the arguments of each call to their names. Here beartype's
decorator checks arguments and result once, in a context of jaxtyping where sizes are named; a function whose annotations hold
no array needs none. Importing this module puts it in the place of the other one; it must come before any of veil.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

import jaxtyping
from beartype import beartype
from jaxtyping import AbstractArray

_jaxtyped = jaxtyping.jaxtyped


def jaxtyped(function: Any = None, *, typechecker: Any = None) -> Any:
    """The decorator in place of `jaxtyping.jaxtyped`, with the same checks."""
    if function is None:
        return functools.partial(jaxtyped, typechecker=typechecker)
    if not inspect.isfunction(function) or typechecker is None or _needs_the_original(function):
        return _jaxtyped(function, typechecker=typechecker)
    checked = beartype(function)
    return checked if _holds_no_array(function) else _in_context(function, checked)


def _in_context(function: Callable[..., Any], checked: Callable[..., Any]) -> Callable[..., Any]:
    """The checked function in a context of its own, in which a size that is named twice is one size."""

    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if jaxtyping.config.jaxtyping_disable:
            return function(*arguments, **named)
        with _jaxtyped("context"):
            return checked(*arguments, **named)

    return call


def _needs_the_original(function: Callable[..., Any]) -> bool:
    """Whether the function yields, or names sizes by its arguments ("{size}")."""
    yields = inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function)
    return yields or any("{" in str(annotation) for annotation in function.__annotations__.values())


def _holds_no_array(function: Callable[..., Any]) -> bool:
    """Whether no annotation of the function names an array; False where some of them are not known yet."""
    try:
        hints = get_type_hints(function)
    except Exception:  # a name that the module defines below, or for type checkers alone
        return False
    return not any(_array_in(hint) for hint in hints.values())


def _array_in(hint: Any) -> bool:
    if inspect.isclass(hint) and issubclass(hint, AbstractArray):
        return True
    return any(_array_in(part) for part in (hint if isinstance(hint, list) else get_args(hint)))


jaxtyping.jaxtyped = jaxtyped  # type: ignore[assignment]
