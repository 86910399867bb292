"""The repository and its reference pages, as tests read them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
# The reference of veil, and of the packages beside it.
REFERENCES = (REFERENCE, ROOT / "lab" / "reference", ROOT / "faces" / "reference")


def section(page: str, name: str) -> str:
    """The text of one section of a page of the reference: of veil, or of the package whose command it is about."""
    for folder in REFERENCES:
        _, heading, rest = (folder / page).read_text().partition(f"\n## {name}\n")
        if heading:
            return rest.partition("\n## ")[0]
    raise AssertionError(f"no {page} has a section {name!r}")


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
