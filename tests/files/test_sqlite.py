"""Transactions on SQLite files are whole or dropped, and errors that are no damage are told apart."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from veil.files.sqlite import transaction, trouble


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a b%20c.sqlite"  # characters that a URI escapes
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE numbers (value INTEGER)")
    return path


def rows(path: Path) -> list[tuple]:
    with transaction(path, mode="ro") as connection:
        return connection.execute("SELECT value FROM numbers").fetchall()


def test_changes_are_kept_whole_or_dropped(database: Path) -> None:
    with transaction(database) as connection:
        connection.execute("INSERT INTO numbers VALUES (1)")
    with pytest.raises(KeyError), transaction(database) as connection:
        connection.execute("INSERT INTO numbers VALUES (2)")
        raise KeyError("an error inside of the block")
    assert rows(database) == [(1,)]


def test_troubles_are_told_apart(database: Path, tmp_path: Path) -> None:
    """SQLite's own errors: a file that another connection holds, one that is only read, and one that is not there."""
    with transaction(database) as first:
        first.execute("INSERT INTO numbers VALUES (3)")
        with pytest.raises(sqlite3.OperationalError) as locked, transaction(database, patience_s=0.01) as second:
            second.execute("INSERT INTO numbers VALUES (4)")
    with pytest.raises(sqlite3.OperationalError) as readonly, transaction(database, mode="ro") as connection:
        connection.execute("INSERT INTO numbers VALUES (5)")
    with pytest.raises(sqlite3.OperationalError) as missing, transaction(tmp_path / "none.sqlite"):
        pass
    assert [trouble(error.value) for error in (locked, readonly, missing)] == ["locked", "readonly", "other"]
    assert trouble(sqlite3.OperationalError("database or disk is full")) == "full"
    assert rows(database) == [(3,)]
