"""Records of the service in SQL: one small interface, and SQLite behind it; `postgres` is the other."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol, runtime_checkable

from veil.errors import FileFormatError, InputError, NoRoom
from veil.files.atomic import writing
from veil.files.service.reserve import LEAST, disk_of
from veil.files.sqlite import PATIENCE_S, trouble
from veil.server.store.schema import Row, Statements, make_tables, require_version

log = logging.getLogger("veil.server")
# Connections that are kept open while nobody uses them.
MOST_IDLE = 16
# Bytes that the file and the log beside it hold for what is written while the disk is full, and pages of the log from which
# on it is moved into the file, which are half as many: what a transaction needs is then there, and never asked of the disk.
SPARE, _PAGE = 1 << 20, 4096
_MOVED = SPARE // _PAGE // 2
_FRAME = _PAGE + 24
# SQLite's own limit of pages.
_UNLIMITED = (1 << 30) - 1


@runtime_checkable
class Database(Protocol):
    """Records that several processes share."""

    def transaction(self, *, durable: bool = False) -> AbstractContextManager[Statements]:
        """Statements that take effect together when the block ends, or not at all if it raises; no other writer is between.

        `durable` returns only when they would survive a power cut. Raises NoRoom where the disk is full.
        """

    def clear_log(self, *, left_over: bool = False) -> None:
        """Have no deleted row be left in the database's files.

        A database that would be held up too often by it may leave it for later; `left_over` asks for what was left.
        """

    def is_full(self) -> bool:
        """Whether the disk is full, as far as it is known: nothing should be written that can wait."""

    def close(self) -> None:
        """Give connections back."""


def _log_bytes(size: int) -> int:
    """Length of the log of a transaction, from the number of bytes that it overwrites; the pages beside count, too."""
    return (size // _PAGE + 16) * _FRAME


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


def _write_ahead(connection: sqlite3.Connection) -> None:
    """Keep changes in a log beside the file (WAL); to change to it SQLite waits for no other server, so this does."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if trouble(error) != "locked" or time.monotonic() > until:
                raise
            time.sleep(0.01)


class SqliteDatabase:
    """Records in one SQLite file in WAL mode, made where it is missing; a connection for each transaction that is open.

    What is deleted is overwritten in the file (`secure_delete`). The file has free pages, and the log beside it is as long as
    usual transactions need, so that rows are written and deleted while the disk is full: then the file does not grow, as what
    cannot be moved from the log into it would fill the log for good.

    Raises InputError if the file cannot be made, FileFormatError if its tables are of another version or none of ours.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._idle: list[sqlite3.Connection] = []
        # Never used: whoever closes the last connection deletes the log, and the room that it holds.
        self._anchor: sqlite3.Connection | None = None
        self._was_full = False
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
        try:
            self._prepare()
        except NoRoom:
            raise NoRoom(f"there is no room for {path}; make room on its disk, and start again") from None
        except sqlite3.DatabaseError as error:
            kind = trouble(error) if isinstance(error, sqlite3.OperationalError) else "other"
            if kind != "other":
                raise InputError(f"{path} is {kind}; free it, or make room, and start again") from None
            raise FileFormatError(f"{path} is no database of a veil server ({error}); restore it from a backup") from None

    @contextmanager
    def transaction(self, *, durable: bool = False) -> Iterator[Statements]:
        """Statements of one transaction, as `Database` says."""
        try:
            with self._connection() as connection:
                connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
                connection.execute("BEGIN IMMEDIATE")
                if (is_full := self.is_full()) or self._was_full:  # connections keep what was set
                    self._was_full = True
                    # Less than there are pages is as many as there are.
                    connection.execute(f"PRAGMA max_page_count = {1 if is_full else _UNLIMITED}")
                try:
                    yield SqliteStatements(connection)
                    connection.commit()
                except BaseException:
                    connection.rollback()
                    raise
        except sqlite3.OperationalError as error:
            # The memory that connections share is a file, too, and says nothing better.
            if trouble(error) == "full" or ("disk I/O error" in str(error) and self.is_full()):
                raise NoRoom(f"cannot write {self.path}: there is no room on its disk") from None
            raise

    def close(self) -> None:
        """Close all connections that nobody uses, and empty the log beside the file."""
        while self._idle:
            self._idle.pop().close()
        if self._anchor is not None:
            self._anchor.close()
            self._anchor = None

    def clear_log(self, *, left_over: bool = False) -> None:
        """Move what the log beside the file holds into the file, and overwrite it, so that no deleted row is left there.

        Whoever reads or writes for long, a kill or a full disk leaves some of it over for the next time.
        """
        try:
            with self._connection() as connection:
                busy, held, _ = connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
            if not busy and not any(
                self._overwritten(size) for size in (SPARE, SPARE // 2) if _log_bytes(size) >= held * _FRAME
            ):
                with self._connection() as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                self._overwritten(SPARE)
        except sqlite3.OperationalError as error:
            if not self.is_full():
                raise
            log.warning("%s: the log is emptied when there is room: %s", self.path, error)

    def _overwritten(self, size: int) -> bool:
        """Whether a number of bytes of the log are overwritten; the file then has free pages for as many."""
        try:
            with self.transaction() as statements:
                statements.run("CREATE TABLE spare (content)")
                statements.run("INSERT INTO spare VALUES (zeroblob(:size))", size=size)
                statements.run("DROP TABLE spare")
            return True
        except NoRoom:
            return False

    def is_full(self) -> bool:
        """Whether less is free than a transaction may need, as `Database` says."""
        return disk_of(self.path.parent).free < LEAST

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """A connection that nobody else uses meanwhile. One that met an error of the database is not used again.

        Threads of a server come and go, so that connections belong to none of them.
        """
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._connected()
        try:
            yield connection
        except sqlite3.Error:
            connection.close()
            raise
        except BaseException:
            self._give_back(connection)
            raise
        self._give_back(connection)

    def _give_back(self, connection: sqlite3.Connection) -> None:
        if len(self._idle) < MOST_IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def _connected(self) -> sqlite3.Connection:
        """A new connection to the file, which must be there: a file that is away must not be made anew without its rows."""
        if self._anchor is None:
            self._anchor = self._opened()
            self._anchor.execute("SELECT name FROM sqlite_master").fetchone()  # from now on it uses the log
        return self._opened()

    def _opened(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            f"{self.path.resolve().as_uri()}?mode=rw",
            timeout=PATIENCE_S,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )
        try:
            connection.row_factory = sqlite3.Row
            _write_ahead(connection)
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA wal_autocheckpoint = {_MOVED}")
            connection.execute(f"PRAGMA journal_size_limit = {_log_bytes(SPARE)}")
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self) -> None:
        """Make the tables, or look whether they are those of this version."""
        with self.transaction(durable=True) as statements:
            if statements.one("SELECT name FROM sqlite_master WHERE name = 'facts'") is not None:
                require_version(statements, str(self.path))
            elif statements.one("SELECT name FROM sqlite_master") is not None:
                raise FileFormatError(f"{self.path} holds tables of something else; give another folder")
            else:
                make_tables(statements)
