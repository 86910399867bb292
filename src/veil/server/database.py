"""Records of the service in SQL: one small interface, and SQLite behind it; `postgres_database` is the other."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from veil.errors import FileFormatError, InputError
from veil.files.atomic import replacing, writing
from veil.files.sqlite import PATIENCE_S, trouble
from veil.server.schema import VERSION, make_tables, require_known, upgrade, version_in
from veil.server.statements import Row, Statements

# How the name of a copy ends that is kept until an older database is brought up to this version.
COPY = ".version-"


@runtime_checkable
class Database(Protocol):
    """Records that several processes share."""

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[Statements]:
        """Statements that take effect together when the block ends, or not at all if it raises; no other writer is between.

        `durable` returns only when they would survive a power cut.
        """

    def clear_log(self, *, left_over: bool = False) -> None:
        """Have no deleted row be left in the database's files.

        A database that would be held up too often by it may leave it for later; `left_over` asks for what was left.
        """

    def close(self) -> None:
        """Give connections back."""


class SqliteStatements:
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

    What is deleted is overwritten in the file (`secure_delete`). A file of an older version is brought up to this one, at once
    or not at all; a copy of it lies beside it meanwhile. Raises InputError if the file cannot be made, FileFormatError if it is
    of a newer version or none of ours.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._threads = threading.local()
        self._open: list[sqlite3.Connection] = []
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._prepare()
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
            yield SqliteStatements(connection)
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

    def clear_log(self, *, left_over: bool = False) -> None:
        """Move what the log beside the file holds into the file, so that no deleted row is left there; nothing is left over."""
        if not left_over:
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

    def _prepare(self) -> None:
        """Make the tables, or bring them up to this version."""
        with self.transaction(durable=True) as found:
            held = self._version(found)
            if held is None:
                make_tables(found)
            elif require_known(held, str(self.path)) < VERSION:
                copy = self.path.with_name(f"{self.path.name}{COPY}{held}")
                self._copy(copy)
                try:
                    upgrade(found, held)
                except sqlite3.Error as error:
                    told = f"{self.path} stays at version {held}: a step to {VERSION} failed ({error}); {copy} is a copy"
                    raise FileFormatError(told) from None
        # A copy would keep what is deleted from now on.
        for copy in self.path.parent.glob(f"{self.path.name}{COPY}*"):
            with writing(copy):
                copy.unlink(missing_ok=True)

    def _version(self, found: Statements) -> int | None:
        """The version of the tables, None without any."""
        if found.one("SELECT name FROM sqlite_master WHERE name = 'facts'") is None:
            if found.one("SELECT name FROM sqlite_master") is not None:
                raise FileFormatError(f"{self.path} holds tables of something else; give another folder")
            return None
        return version_in(found)

    def _copy(self, path: Path) -> None:
        """Copy the file's committed state; nobody writes meanwhile, as the caller is in a transaction."""
        with replacing(path, private=True) as temporary:
            source, target = sqlite3.connect(self.path), sqlite3.connect(temporary)
            try:
                source.backup(target)
            finally:
                source.close()
                target.close()
