"""The reference pages of docs/reference/, to compare what commands print and write with what they document."""

from __future__ import annotations

import re
from pathlib import Path

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def section(page: str, name: str) -> str:
    """The part of a reference page under the heading `name`."""
    _, found, rest = (REFERENCE / page).read_text().partition(f"\n## {name}\n")
    assert found, f"docs/reference/{page} has no section {name}"
    return rest.partition("\n## ")[0]


def documented(name: str) -> set[str]:
    """All words in backticks or quotes of a section of json.md."""
    return set(re.findall(r'[`"]([a-z0-9_]+)[`"]', section("json.md", name)))


def keys(value: object) -> set[str]:
    """All keys of a JSON value, however deep."""
    if isinstance(value, dict):
        return set(value) | {key for item in value.values() for key in keys(item)}
    if isinstance(value, list):
        return {key for item in value for key in keys(item)}
    return set()
