"""Checks of the tables that commands print: they fit, and none is aligned by hand."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from veil.report.tables import Number, Remark, Table

COLUMNS = 80
# A width in a format, as of {name:>12} or {name:12.3f}: what aligns columns by hand.
BY_HAND = re.compile(r"\{[^{}]*:(?:[<>^]\d*|\d+)[\d,]*(?:\.\d+)?[a-z%]?\}")


def require_fits(table: Table) -> None:
    """Fail if a line of a table is too long, if a number is cut, or if a cell reads None or nan."""
    lines = table.lines()
    assert table.rows and [line for line in lines if len(line) > COLUMNS] == []
    words = " ".join(lines).split()
    for row in table.rows:
        cells = [] if isinstance(row, Remark) else [c for k, c in zip(table.columns, row, strict=True) if isinstance(k, Number)]
        assert [part for cell in cells for part in cell.split() if part not in words] == []
    assert not {"None", "nan"} & set(words)


def _sources(package: Path) -> Iterator[Path]:
    yield from package.glob("cli/**/*.py")
    yield from package.glob("report/*.py")


def made_in(package: Path) -> set[str]:
    """Names of the functions of a package's commands and reports that give a table."""
    return {
        name for path in _sources(package) for name in re.findall(r"^def (\w+)\([^)]*\) -> Table\b", path.read_text(), re.M)
    }


def by_hand(package: Path) -> list[str]:
    """Where a package's commands and reports align columns by hand."""
    return [f"{path.name}: {match[0]}" for path in _sources(package) for match in BY_HAND.finditer(path.read_text())]
