"""Records of the service in SQL: one small interface, and SQLite behind it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from veil.errors import FileFormatError, InputError
from veil.files.atomic import writing
from veil.files.sqlite import PATIENCE_S, trouble

# Version of the tables below, kept in the database; an older folder is brought up to it when it is opened.
VERSION = 1
# Every statement here is SQL that PostgreSQL reads, too.
SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, name TEXT NOT NULL, scopes TEXT NOT NULL, maps TEXT,
    requests_per_minute INTEGER NOT NULL, bytes_per_day BIGINT NOT NULL, created DOUBLE PRECISION NOT NULL,
    revoked DOUBLE PRECISION
);
CREATE TABLE usage (
    token TEXT NOT NULL, period TEXT NOT NULL, requests BIGINT NOT NULL, bytes BIGINT NOT NULL, PRIMARY KEY (token, period)
);
CREATE TABLE maps (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, policy TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
    version INTEGER NOT NULL, files TEXT NOT NULL, facts TEXT NOT NULL
);
CREATE TABLE contributions (
    id TEXT PRIMARY KEY, map TEXT NOT NULL, token TEXT NOT NULL, digest TEXT NOT NULL, bytes BIGINT NOT NULL,
    facts TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, received DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION, UNIQUE (map, token, digest)
);
CREATE INDEX contributions_by_digest ON contributions (digest);
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, map TEXT NOT NULL, kind TEXT NOT NULL, token TEXT NOT NULL, state TEXT NOT NULL, step TEXT NOT NULL,
    done BIGINT NOT NULL, total BIGINT NOT NULL, result TEXT NOT NULL, worker TEXT NOT NULL, lease DOUBLE PRECISION NOT NULL,
    attempts INTEGER NOT NULL, created DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION
);
CREATE INDEX jobs_by_state ON jobs (state, created);
CREATE TABLE receipts (
    number INTEGER PRIMARY KEY, contribution TEXT NOT NULL, token TEXT NOT NULL, content TEXT NOT NULL,
    content_digest TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE INDEX receipts_by_contribution ON receipts (contribution);
"""
Row = dict[str, Any]


@runtime_checkable
class Statements(Protocol):
    """What runs within one transaction; parameters are named `:name` in the text."""

    def all(self, sql: str, **values: object) -> list[Row]:
        """All rows that a query gives."""

    def one(self, sql: str, **values: object) -> Row | None:
        """The first row that a query gives, None without any."""

    def run(self, sql: str, **values: object) -> int:
        """Run a statement, and return the number of rows that it changed."""


@runtime_checkable
class Database(Protocol):
    """Records that several processes share."""

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[Statements]:
        """Statements that take effect together when the block ends, or not at all if it raises; no other writer is between.

        `durable` returns only when they would survive a power cut.
        """

    def close(self) -> None:
        """Give connections back."""


class _SqliteStatements:
    """Statements of an open SQLite connection."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def all(self, sql: str, **values: object) -> list[Row]:
        return [dict(row) for row in self._connection.execute(sql, values)]

    def one(self, sql: str, **values: object) -> Row | None:
        row = self._connection.execute(sql, values).fetchone()
        return None if row is None else dict(row)

    def run(self, sql: str, **values: object) -> int:
        return self._connection.execute(sql, values).rowcount


class SqliteDatabase:
    """Records in one SQLite file in WAL mode, made where it is missing; a connection for each thread.

    What is deleted is overwritten in the file (`secure_delete`). Raises InputError if the file cannot be made, FileFormatError
    if it is of a newer version or none of ours.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = threading.local()
        self._open: list[sqlite3.Connection] = []
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.transaction(durable=True) as found:
                self._upgrade(found)
        except sqlite3.DatabaseError as error:
            told = trouble(error) if isinstance(error, sqlite3.OperationalError) else "other"
            if told != "other":
                raise InputError(f"{path} is {told}; free it, or make room, and start again") from None
            raise FileFormatError(f"{path} is no database of a veil server ({error}); restore it from a backup") from None

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[Statements]:
        """Statements of one transaction, as `Database` says."""
        connection = self._connection()
        connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield _SqliteStatements(connection)
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    def close(self) -> None:
        """Close the connections of all threads, and empty the log beside the file."""
        for connection in self._open:
            connection.close()
        self._open.clear()
        self._threads = threading.local()

    def clear_log(self) -> None:
        """Move what the log beside the file holds into the file, so that no deleted row is left there."""
        self._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _connection(self) -> sqlite3.Connection:
        known: sqlite3.Connection | None = getattr(self._threads, "connection", None)
        if known is None:
            # Threads of the server end before the database is closed; the check would forbid to close it from another.
            known = sqlite3.connect(self.path, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False)
            known.row_factory = sqlite3.Row
            known.execute("PRAGMA journal_mode = WAL")
            known.execute("PRAGMA secure_delete = ON")
            self._threads.connection = known
            self._open.append(known)
        return known

    def _upgrade(self, found: Statements) -> None:
        """Make the tables, or check that they are those of this version."""
        if found.one("SELECT name FROM sqlite_master WHERE name = 'facts'") is None:
            if found.one("SELECT name FROM sqlite_master") is not None:
                raise FileFormatError(f"{self.path} holds tables of something else; give another folder")
            for statement in SCHEMA.split(";"):
                if statement.strip():
                    found.run(statement)
            found.run("INSERT INTO facts (name, value) VALUES ('version', :version)", version=str(VERSION))
        row = found.one("SELECT value FROM facts WHERE name = 'version'")
        if row is None or int(row["value"]) != VERSION:
            held = "none" if row is None else row["value"]
            raise FileFormatError(f"{self.path} is of version {held}, this veil knows {VERSION}; update veil")
