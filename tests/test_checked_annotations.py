"""The suite's check of annotations refuses what jaxtyping's own decorator refuses, and it is on for veil."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jaxtyping
import numpy as np
import pytest
from beartype import beartype
from jaxtyping import Float64, Int64

from checked_annotations import _jaxtyped, jaxtyped
from veil.geometry.rigid import Rigid
from veil.geometry.triangulation import triangulate_tracks
from veil.progress import Progress

CHECKERS = [pytest.param(jaxtyped, id="here"), pytest.param(_jaxtyped, id="jaxtyping")]
Decorator = Callable[..., Any]


def plain(count: int, names: list[str]) -> str:
    return names[count] if count < len(names) else None  # type: ignore[return-value]


def same_rows(one: Float64[np.ndarray, "rows 2"], other: Int64[np.ndarray, "rows"]) -> Float64[np.ndarray, "rows"]:
    return one[: len(one) - int(other[0] < 0), 0]


def nested(parts: list[Float64[np.ndarray, "_ 3"]], on: Progress | None = None) -> int:
    return len(parts)


def later(item: Later) -> Later:
    return item if item.size else None  # type: ignore[return-value]


def by_argument(size: int) -> Float64[np.ndarray, "{size} 2"]:
    return np.zeros((max(size, 2), 2))


def each(rows: Float64[np.ndarray, "rows"]) -> Iterator[float]:
    yield from rows.tolist()


@dataclass
class Later:
    size: int


@pytest.mark.parametrize("decorator", CHECKERS)
def test_right_calls_pass_and_wrong_ones_are_refused(decorator: Decorator) -> None:
    """Oracle: jaxtyping's decorator, which takes the same calls; each refused one breaks one annotation."""
    call = {name: decorator(function, typechecker=beartype) for name, function in FUNCTIONS.items()}
    rows, numbers = np.zeros((3, 2)), np.zeros(3, dtype=np.int64)
    assert call["plain"](1, ["a", "b"]) == "b" and len(call["same_rows"](rows, numbers)) == 3
    assert call["nested"]([np.zeros((2, 3)), np.zeros((5, 3))]) == 2 and call["later"](Later(1)).size == 1
    assert len(call["by_argument"](4)) == 4 and list(call["each"](np.ones(2))) == [1.0, 1.0]
    wrong: list[tuple[str, tuple]] = [
        ("plain", ("1", ["a"])),
        ("plain", (0, [1])),
        ("plain", (3, ["a"])),  # its result
        ("same_rows", (rows, np.zeros(4, dtype=np.int64))),
        ("same_rows", (rows.astype(np.float32), numbers)),
        ("same_rows", (np.zeros((3, 3)), numbers)),
        ("same_rows", (rows, numbers - 1)),  # a result of another size
        ("nested", ([np.zeros((2, 2))],)),
        ("nested", ([], "progress")),
        ("later", (3,)),
        ("later", (Later(0),)),  # its result
        ("by_argument", (1,)),  # a result of another size
        ("each", (np.zeros((2, 2)),)),
    ]
    for name, arguments in wrong:
        with pytest.raises(jaxtyping.TypeCheckError):
            list(call[name](*arguments)) if name == "each" else call[name](*arguments)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (plain, same_rows, nested, later, by_argument, each)
}


def test_a_size_is_free_in_the_next_call_and_in_calls_within() -> None:
    def inner(one: Float64[np.ndarray, "rows"]) -> int:
        return len(one)

    checked = jaxtyped(inner, typechecker=beartype)

    def outer(one: Float64[np.ndarray, "rows"]) -> int:
        return int(checked(one[:1]) + checked(one))

    assert [jaxtyped(outer, typechecker=beartype)(np.zeros(size)) for size in (3, 5)] == [4, 6]


def test_a_function_that_is_made_anew_keeps_its_own_values_and_is_checked() -> None:
    """Oracle: sums by hand. Broken twins: a second function has the first one's values, or its arguments go unchecked."""

    def made(count: int, step: int) -> Decorator:
        def inner(rows: Float64[np.ndarray, "rows"], factor: int = step, *, more: int = 10 * step) -> int:
            return factor * len(rows) + more + count

        return jaxtyped(inner, typechecker=beartype)

    for count, step in ((100, 1), (200, 2), (300, 3)):
        inner = made(count, step)
        assert inner(np.zeros(4)) == 14 * step + count and inner(np.zeros(4), 0, more=7) == count + 7
        for wrong, named in (((np.zeros((2, 2)),), {}), ((np.zeros(2), "1"), {}), ((np.zeros(2),), {"more": 0.5})):
            with pytest.raises(jaxtyping.TypeCheckError):
                inner(*wrong, **named)
        with pytest.raises(jaxtyping.TypeCheckError):
            made(0.5, step)(np.zeros(4))  # type: ignore[arg-type]  # its result


@pytest.mark.parametrize("decorator", CHECKERS)
def test_fields_are_checked_when_a_dataclass_is_made(decorator: Decorator) -> None:
    """Oracle: jaxtyping's decorator, which takes the same fields; each refused call breaks one annotation."""

    @dataclass(frozen=True, kw_only=True)
    class Rows:
        rows: Float64[np.ndarray, "rows 2"]
        numbers: Int64[np.ndarray, "rows"]
        names: list[str] = field(default_factory=list)
        item: Later | None = None

    made = decorator(Rows, typechecker=beartype)
    right: dict[str, Any] = {"rows": np.zeros((3, 2)), "numbers": np.zeros(3, dtype=np.int64)}
    assert made is Rows and made(**right).names == [] and made(**right, names=["a"], item=Later(1)).names == ["a"]
    for wrong in (
        {"rows": np.zeros((2, 2))},
        {"rows": np.zeros((3, 3))},
        {"numbers": np.zeros(3)},
        {"names": [1]},
        {"item": 1},
    ):
        with pytest.raises(jaxtyping.TypeCheckError):
            made(**(right | wrong))


def test_checks_can_be_turned_off(unchecked: None) -> None:
    assert len(jaxtyped(same_rows, typechecker=beartype)(np.zeros((3, 5)), [1])) == 3


def test_it_is_on_for_functions_methods_and_dataclasses_of_veil() -> None:
    assert jaxtyping.jaxtyped is jaxtyped
    pose = Rigid(rotation=np.eye(3), translation=np.zeros(3))
    with pytest.raises(jaxtyping.TypeCheckError, match="violates type hint"):
        pose.apply(np.zeros((4, 2)))
    with pytest.raises(jaxtyping.TypeCheckError, match="rotation"):
        Rigid(rotation=np.eye(2), translation=np.zeros(3))
    with pytest.raises(jaxtyping.TypeCheckError, match="violates type hint"):
        triangulate_tracks(3)  # type: ignore[arg-type, call-arg]
