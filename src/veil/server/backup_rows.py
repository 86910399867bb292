"""Rows of a server's database in another one: copies of all, and of what was deleted since a time."""

from __future__ import annotations

import json
from collections.abc import Mapping

from veil.server.store.schema import make_tables
from veil.server.store.statements import Row, Statements

# The tables of a backup with the columns that name a row, and how many rows are read at a time.
TABLES: Mapping[str, tuple[str, ...]] = {
    "tokens": ("id",),
    "usage": ("token", "period"),
    "maps": ("id",),
    "contributions": ("id",),
    "jobs": ("id",),
    "receipts": ("number",),
    "backups": ("id",),
}
ROWS = 1000
# The name of a backup's own id among its facts.
ID = "backup"


def write_rows(target: Statements, source: Statements, backup: str) -> None:
    """Write all rows of a server's database into a backup."""
    make_tables(target)
    target.run("INSERT INTO facts (name, value) VALUES (:name, :value)", name=ID, value=backup)
    for table in TABLES:
        copy_rows(target, source, table)


def last_receipt(found: Statements) -> int:
    row = found.one("SELECT number FROM receipts ORDER BY number DESC")
    return 0 if row is None else int(row["number"])


def follow(held: Statements, newer: Statements, since: int) -> None:
    """Replace the maps from which something was deleted since a receipt by those of a newer state; tokens and receipts, too."""
    _replace(held, newer, "tokens", "", {})
    held.run("DELETE FROM receipts WHERE number > :since", since=since)
    _replace(held, newer, "receipts", "number > :since", {"since": since})
    rows = held.all("SELECT content FROM receipts WHERE number > :since", since=since)
    for map_id in {json.loads(row["content"])["map"] for row in rows}:
        _replace(held, newer, "maps", "id = :map", {"map": map_id})
        _replace(held, newer, "contributions", "map = :map", {"map": map_id})
        _replace(held, newer, "jobs", "map = :map", {"map": map_id})


def _replace(target: Statements, source: Statements, table: str, where: str, values: Mapping[str, object]) -> None:
    """Have those rows of a table that fulfil a condition be the ones of another database."""
    target.run(f"DELETE FROM {table} WHERE {where or '1 = 1'}", **values)
    copy_rows(target, source, table, where, values)


def copy_rows(
    target: Statements, source: Statements, table: str, where: str = "1 = 1", values: Mapping[str, object] | None = None
) -> None:
    """Copy the rows of a table that fulfil a condition, in portions that fit in memory."""
    keys = TABLES[table]
    order, given = ", ".join(keys), dict(values or {})
    after = ""
    while rows := source.all(f"SELECT * FROM {table} WHERE {where or '1 = 1'} {after} ORDER BY {order} LIMIT {ROWS}", **given):
        for row in rows:
            insert(target, table, row)
        given |= {f"after_{key}": rows[-1][key] for key in keys}
        after = f"AND ({order}) > ({', '.join(f':after_{key}' for key in keys)})"


def insert(found: Statements, table: str, row: Row) -> None:
    columns = list(row)
    found.run(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})", **row)
