"""Tables in what a command printed, in Markdown as pages show them.

A file of its own: texts of others are parsed here, while a record trusts what it holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from veil_lab.results.record import ResultTable

_RULE = re.compile(r"\|?\s*:?-{3,}:?\s*(\|\s*:?-{3,}:?\s*)*\|?\s*")


def tables_in(text: str) -> Iterator[ResultTable]:
    """The Markdown tables of a text: a line of heads, a rule below it, and all rows up to a line without a bar."""
    lines = text.splitlines()
    at = 0
    while at + 1 < len(lines):
        if "|" not in lines[at] or not _RULE.fullmatch(lines[at + 1].strip()):
            at += 1
            continue
        columns, rows = cells_of(lines[at]), []
        at += 2
        while at < len(lines) and "|" in lines[at]:
            rows.append(cells_of(lines[at]))
            at += 1
        whole = tuple(row for row in rows if len(row) == len(columns))
        if whole:
            yield ResultTable(columns=columns, rows=whole)


def cells_of(line: str) -> tuple[str, ...]:
    """The cells of one line of a table; a bar that is escaped is none."""
    inner = line.strip().removeprefix("|").removesuffix("|")
    return tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", inner))
