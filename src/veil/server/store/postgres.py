"""Records of the service in PostgreSQL, for servers that share no folder."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row

from veil.errors import FileFormatError, InputError, StorageTrouble
from veil.server.store.schema import CHANGING, Row, Statements, make_tables, require_version

log = logging.getLogger("veil.server")
# How long a transaction waits for others, an attempt to connect waits, and none is made after one that failed.
PATIENCE_S, CONNECT_S, AWAY_S = 30.0, 5, 1.0
# Seconds that a server which hangs within a transaction may hold up all others.
IDLE_S = 120.0
# Of a lock that every transaction takes: PostgreSQL's advisory locks are numbers.
LOCK = int.from_bytes(b"veil", "big")
# Multiple of the seconds of a clearing after which deleted rows are cleared again: it holds up every transaction.
REST = 20
_UNCLEARED = "uncleared"
_NAMED = re.compile(r"'[^']*'|:([a-z_]+)")
# What it means that the database is away, and not that a statement is wrong.
_AWAY = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
Connection = psycopg.Connection[Row]


class _PostgresStatements:
    """Statements of an open PostgreSQL connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def all(self, sql: str, **values: object) -> list[Row]:
        return self._execute(sql, values).fetchall()

    def one(self, sql: str, **values: object) -> Row | None:
        return self._execute(sql, values).fetchone()

    def run(self, sql: str, **values: object) -> int:
        return self._execute(sql, values).rowcount

    def _execute(self, sql: str, values: dict[str, Any]) -> psycopg.Cursor[Row]:
        if any(isinstance(value, str) and "\0" in value for value in values.values()):
            raise InputError("a value holds the character NUL, which no name or id has")
        return self._connection.execute(_translated(sql), values)


class PostgresDatabase:
    """Records in a PostgreSQL database, one connection for each process, made anew when it was lost.

    Every transaction takes one advisory lock of the database first, so that each reads and writes alone, as SQLite's BEGIN
    IMMEDIATE has it. Serializable isolation would let more of them run at a time and ask for those that clash to be run again;
    but blobs are written and deleted within transactions, and these cannot be run twice.

    `url`: a connection string or URI of libpq; a password comes better from PGPASSWORD or ~/.pgpass. Raises InputError for one
    that cannot be read, or a database that does not answer; FileFormatError for tables of another version, or none of ours.
    """

    def __init__(self, url: str) -> None:
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error:  # whose text may hold parts of a password
            raise InputError("database is no PostgreSQL address; write postgresql://USER@HOST:PORT/NAME") from None
        bounds: dict[str, str | int | None] = {
            "connect_timeout": CONNECT_S,
            "tcp_user_timeout": round(1000 * PATIENCE_S),
            "application_name": "veil",
        }
        self._address = make_conninfo("", **{**bounds, **given})
        self.place = f"PostgreSQL's {given.get('dbname', 'database')} at {given.get('host', 'this machine')}"
        self._turn = threading.Lock()
        self._connection: Connection | None = None
        self._away_until, self._rest_until = 0.0, 0.0
        try:
            with self.transaction(durable=True) as statements:
                self._prepare(statements)
        except StorageTrouble as error:
            raise InputError(f"{error}; start it, or correct the address") from None
        except psycopg.errors.DuplicateTable:
            raise FileFormatError(f"{self.place} holds tables of something else; give veil a database of its own") from None

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[Statements]:
        """Statements of one transaction, as `Database` says.

        Raises StorageTrouble if the database is away. Where it goes away while a transaction ends, it may have taken effect.
        """
        with self._alone():
            connection = self._begun(durable)
            try:
                yield _PostgresStatements(connection)
                # After an error that the block did not pass on, PostgreSQL takes COMMIT for ROLLBACK.
                if connection.execute("COMMIT").statusmessage != "COMMIT":
                    raise RuntimeError("a statement failed before the transaction ended")
            except BaseException:
                self._undo()
                raise

    def clear_log(self, *, left_over: bool = False) -> None:
        """Write the tables whose rows come and go anew, so that no deleted row is left in them, as `Database` says.

        What the write-ahead log, its archives and replicas hold goes when PostgreSQL recycles it.
        """
        if left_over:
            with self.transaction() as statements:
                if statements.one("SELECT name FROM facts WHERE name = :name", name=_UNCLEARED) is None:
                    return
        elif time.monotonic() < self._rest_until:
            with self.transaction() as statements:
                statements.run(
                    "INSERT INTO facts (name, value) VALUES (:name, '1') ON CONFLICT (name) DO NOTHING", name=_UNCLEARED
                )
            return
        begun = time.monotonic()
        try:
            with self._alone():
                connection = self._connected()
                # Whoever waits for the lock may see what was deleted since it began to wait, so that it would be kept.
                connection.execute(f"SELECT pg_advisory_lock({LOCK})")
                try:
                    connection.execute("DELETE FROM facts WHERE name = %s", [_UNCLEARED])
                    for table in CHANGING:
                        connection.execute(f"VACUUM FULL {table}")
                finally:
                    self._unlock(connection)
        except StorageTrouble as error:
            log.warning("deleted rows are not cleared yet: %s", error)
            with self.transaction() as statements:
                statements.run(
                    "INSERT INTO facts (name, value) VALUES (:name, '1') ON CONFLICT (name) DO NOTHING", name=_UNCLEARED
                )
        self._rest_until = time.monotonic() + REST * (time.monotonic() - begun)

    def is_full(self) -> bool:
        """Whether its disk is full: nobody says so before a statement fails."""
        return False

    def close(self) -> None:
        """Close the connection; the next transaction makes another."""
        with self._turn:
            self._drop()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A block in which no other thread uses the connection, and errors of a database that is away become StorageTrouble."""
        if not self._turn.acquire(timeout=PATIENCE_S):
            raise StorageTrouble(f"{self.place} is busy: no transaction began for {PATIENCE_S:g} s")
        try:
            yield
        except _AWAY as error:
            if not isinstance(error, psycopg.errors.LockNotAvailable):
                self._drop()  # it may lead to a server that is a standby now
            raise StorageTrouble(f"{self.place} cannot be used now: {_first_line(error)}") from None
        finally:
            self._turn.release()

    def _begun(self, durable: bool) -> Connection:
        """A connection in a new transaction that holds the lock; one that was lost meanwhile is made anew once."""
        fast = "" if durable else "SET LOCAL synchronous_commit = off;"
        for is_last in (False, True):
            connection = self._connected()
            try:
                connection.execute(f"BEGIN; {fast} SELECT pg_advisory_xact_lock({LOCK})")
                return connection
            except _AWAY:
                was_lost = connection.closed
                self._undo()
                if is_last or not was_lost:
                    raise
        raise AssertionError

    def _connected(self) -> Connection:
        if self._connection is not None and not self._connection.closed:
            return self._connection
        if time.monotonic() < self._away_until:
            raise StorageTrouble(f"{self.place} cannot be reached now")
        try:
            connection = psycopg.connect(self._address, autocommit=True, row_factory=dict_row)
        except _AWAY:
            self._away_until = time.monotonic() + AWAY_S
            raise
        for name, seconds in (("lock_timeout", PATIENCE_S), ("idle_in_transaction_session_timeout", IDLE_S)):
            connection.execute(f"SET {name} = '{round(1000 * seconds)}ms'")
        # What must survive a power cut waits for the disk, whatever this database does otherwise.
        if connection.execute("SHOW synchronous_commit").fetchone() == {"synchronous_commit": "off"}:
            connection.execute("SET synchronous_commit = on")
        self._connection = connection
        return connection

    def _unlock(self, connection: Connection) -> None:
        """Give back the lock that was taken for longer than a transaction; with the connection, if it cannot be done."""
        try:
            connection.execute(f"SELECT pg_advisory_unlock({LOCK})")
        except psycopg.Error:
            self._drop()

    def _undo(self) -> None:
        """End a transaction without effect; a connection that cannot do it is dropped."""
        try:
            if self._connection is not None:
                self._connection.execute("ROLLBACK")
        except psycopg.Error:
            self._drop()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _prepare(self, statements: Statements) -> None:
        """Make the tables, or look whether they are those of this version."""
        encoding = statements.one("SHOW server_encoding")
        if encoding is None or encoding["server_encoding"] != "UTF8":
            raise FileFormatError(f"{self.place} does not keep text as UTF8; make a database with ENCODING 'UTF8'")
        there = statements.one(
            "SELECT to_regclass('facts') IS NOT NULL AND to_regclass('contributions') IS NOT NULL AS is_ours"
        )
        if there is not None and there["is_ours"]:
            require_version(statements, self.place)
            return
        make_tables(statements)
        # Samples of columns that ANALYZE takes for the planner would outlive the rows; queries find what they need by keys.
        for row in statements.all(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND data_type = 'text' AND table_name = ANY(:tables)",
            tables=list(CHANGING),
        ):
            statements.run(f"ALTER TABLE {row['table_name']} ALTER COLUMN {row['column_name']} SET STATISTICS 0")


@lru_cache(maxsize=256)
def _translated(sql: str) -> str:
    """A statement with psycopg's way to name its parameters, `%(name)s` for `:name`; text in quotes stays."""
    return _NAMED.sub(lambda part: f"%({part[1]})s" if part[1] else part[0], sql.replace("%", "%%"))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
