"""The repository and its reference pages, as tests read them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def section(page: str, name: str) -> str:
    """The text of one section of a page of the reference."""
    _, heading, rest = (REFERENCE / page).read_text().partition(f"\n## {name}\n")
    assert heading, f"{page} has no section {name!r}"
    return rest.partition("\n## ")[0]


def documented(name: str) -> set[str]:
    """All backticked words of a section of json.md."""
    return set(re.findall(r'[`"]([a-z0-9_]+)[`"]', section("json.md", name)))


def keys(value: object) -> set[str]:
    """All keys of a JSON value, however deep."""
    if isinstance(value, dict):
        return set(value) | {key for item in value.values() for key in keys(item)}
    if isinstance(value, list):
        return {key for item in value for key in keys(item)}
    return set()
