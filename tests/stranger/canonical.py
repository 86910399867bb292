"""Canonical JSON, as docs/reference/service.md has it: numbers stay as they are written."""

from __future__ import annotations

import json
from typing import Any

ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


class Written(str):
    """A number as it is written."""


def read(text: str | bytes) -> Any:
    """JSON values, in which each number is what is written."""
    return json.loads(text, parse_float=Written, parse_int=Written)


def canonical(value: Any) -> str:
    """The text that is hashed, of values that `read` gave."""
    if isinstance(value, Written):
        return str.__str__(value)
    if isinstance(value, str):
        return '"' + "".join(escaped(character) for character in value) + '"'
    if isinstance(value, dict):
        return "{" + ",".join(f"{canonical(key)}:{canonical(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return {True: "true", False: "false", None: "null"}[value]


def escaped(character: str) -> str:
    """A character within a string."""
    if character in ESCAPES:
        return ESCAPES[character]
    if " " <= character <= "~":
        return character
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
