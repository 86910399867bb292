"""Texts of records: one line for people, in which arrays are told by dtype and shape, and all fields in full for digests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import PurePath
from typing import Any

# Characters at most of a line, of a field, and of a field that is a text.
WIDTH, FIELD, TEXT = 120, 48, 84


def one_line(record: Any) -> str:
    """The line of a dataclass: its public fields in their order, as many as have room."""
    shown = [(item.name, getattr(record, item.name)) for item in fields(record) if item.repr and item.name[0] != "_"]
    return line(record, [(name, value) for name, value in shown if not _is_nothing(value)])


def line(record: Any, shown: Iterable[tuple[str, Any]]) -> str:
    """The line of a record that shows these names with their values; what has no room is left out, and a mark says so."""
    name, items = type(record).__name__, ""
    for key, value in shown:
        item = f"{', ' if items else ''}{key}={brief(value)}"
        if len(name) + len(items) + len(item) + len("(, ...)") > WIDTH:
            items += ", ..."
            break
        items += item
    return f"{name}({items})"


def in_full(record: Any) -> str:
    """The text of a record with all fields, which tells any two records apart: for keys, digests and names of draws.

    It is what the `repr` of a plain dataclass is, whatever line the record shows to people. Values are numbers, texts, None,
    tuples of these, and records.
    """
    if is_dataclass(record) and not isinstance(record, type):
        values = [f"{item.name}={in_full(getattr(record, item.name))}" for item in fields(record)]
        return f"{type(record).__qualname__}({', '.join(values)})"
    if isinstance(record, tuple):
        return f"({', '.join(map(in_full, record))}{',' * (len(record) == 1)})"
    if record is None or isinstance(record, bool | int | float | str):
        return repr(record)
    raise TypeError(f"a {type(record).__name__} has no text that tells it from others")


def brief(value: Any) -> str:
    """A value in a few characters: numbers and short texts as they are, arrays and collections by their sizes."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        size = ", ".join(map(str, value.shape)) + ("," if len(value.shape) == 1 else "")
        small = 0 < value.size <= 3 and len(value.shape) == 1
        return numbers(value) if small else f"{value.dtype} ({size})"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    if isinstance(value, str | PurePath):
        text = repr(str(value))
        return text if len(text) <= TEXT else f"{text[: TEXT - 4]}...{text[-1]}"
    if isinstance(value, Mapping):
        return f"{len(value)} by name" if value else "{}"
    if isinstance(value, Sequence):
        text = repr(value) if all(isinstance(item, int | float | str) for item in value) else ""
        return text if text and len(text) <= FIELD else f"{len(value)} of {type(value[0]).__name__}"
    if is_dataclass(value) and not isinstance(value, type):
        text = repr(value)
        return text if len(text) <= FIELD else f"{type(value).__name__}(...)"
    text = repr(value)
    return text if len(text) <= FIELD and "\n" not in text and " at 0x" not in text else f"<{type(value).__name__}>"


def numbers(values: Any) -> str:
    """A short vector with four digits."""
    return f"({', '.join(f'{float(value):.4g}' for value in values)})"


def _is_nothing(value: Any) -> bool:
    """Whether a field says nothing: None, or an empty text or collection."""
    return value is None or (isinstance(value, str | Mapping | tuple | list) and len(value) == 0)
