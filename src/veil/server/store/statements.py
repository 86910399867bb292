"""Statements within a transaction of the service's database, whichever it is."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

Row = dict[str, Any]


@runtime_checkable
class Statements(Protocol):
    """Statements of one transaction; parameters are named `:name` in the text."""

    def all(self, sql: str, **values: object) -> list[Row]:
        """All rows that a query gives."""

    def one(self, sql: str, **values: object) -> Row | None:
        """The first row that a query gives, None without any."""

    def run(self, sql: str, **values: object) -> int:
        """Run a statement, and return the number of rows that it changed."""
