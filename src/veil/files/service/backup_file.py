"""A backup as one file: a SQLite database with rows as they were, and blobs beside them."""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from veil.errors import FileFormatError, InputError
from veil.files.service.blobs import blob_name, is_name
from veil.files.sqlite import PATIENCE_S, trouble

# Marks the file among SQLite's ("veil" in ASCII), and gives the version of the table below.
APPLICATION, FORMAT = int.from_bytes(b"veil", "big"), 1
# Bytes of a row; SQLite allows 2^31 - 1 at most, and holds a row in memory.
PART = 32 << 20


class BackupFile:
    """An open backup; `connection` reads and writes its rows.

    Blobs are a table of their own, `blobs`, in parts of 32 MiB. What is deleted is overwritten in the file. Close it after use.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA secure_delete = ON")

    @classmethod
    def make(cls, path: Path) -> BackupFile:
        """Make a backup without anything in it in place of an empty file. Raises InputError if it cannot be written."""
        with _told(path):
            made = cls(path, sqlite3.connect(path, timeout=PATIENCE_S, isolation_level=None))
            made.connection.execute(f"PRAGMA application_id = {APPLICATION}")
            made.connection.execute(f"PRAGMA user_version = {FORMAT}")
            made.connection.execute(
                "CREATE TABLE blobs (name TEXT NOT NULL, part INTEGER NOT NULL, data BLOB NOT NULL, PRIMARY KEY (name, part))"
            )
        return made

    @classmethod
    def open(cls, path: Path) -> BackupFile:
        """Open a backup. Raises FileFormatError for a file that is missing, damaged, or none."""
        if not path.is_file():
            raise FileFormatError(f"cannot read {path}: there is no such file")
        with _told(path):
            uri = f"{path.resolve().as_uri()}?mode=rw"
            backup = cls(path, sqlite3.connect(uri, timeout=PATIENCE_S, isolation_level=None, uri=True))
            held = [backup.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
            if held != [APPLICATION, FORMAT]:
                backup.close()
                raise FileFormatError(f"{path} is no backup of a veil server of format {FORMAT}")
        return backup

    def close(self) -> None:
        """Give the file back."""
        self.connection.close()

    @contextmanager
    def transaction(self, *, keep: bool = True) -> Iterator[sqlite3.Connection]:
        """A block whose changes are kept together when it ends, or not at all if it raises or `keep` is False."""
        with _told(self.path):
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
            except BaseException:
                self.connection.rollback()
                raise
            self.connection.execute("COMMIT" if keep else "ROLLBACK")

    def names(self) -> set[str]:
        """Names of all blobs."""
        with _told(self.path):
            return {row["name"] for row in self.connection.execute("SELECT DISTINCT name FROM blobs")}

    def add(self, name: str, data: bytes) -> None:
        """Keep a blob."""
        parts = [data[start : start + PART] for start in range(0, len(data), PART)] or [b""]
        with _told(self.path):
            self.connection.executemany(
                "INSERT INTO blobs (name, part, data) VALUES (?, ?, ?)",
                [(name, number, part) for number, part in enumerate(parts)],
            )

    def get(self, name: str) -> bytes:
        """The bytes of a blob. Raises FileFormatError if they are missing or damaged."""
        with _told(self.path):
            rows = self.connection.execute("SELECT data FROM blobs WHERE name = ? ORDER BY part", [name])
            data = b"".join(row["data"] for row in rows)
        if not is_name(name) or blob_name(data) != name:
            raise FileFormatError(f"{self.path} is damaged: a blob does not hold what its name says; take another backup")
        return data

    def drop(self, names: Iterable[str]) -> None:
        """Delete blobs."""
        with _told(self.path):
            self.connection.executemany("DELETE FROM blobs WHERE name = ?", [(name,) for name in names])

    def check(self) -> None:
        """Raise FileFormatError unless the file is whole; the bytes of each blob are compared with its name."""
        with _told(self.path):
            if self.connection.execute("PRAGMA quick_check").fetchone()[0] != "ok":
                raise FileFormatError(f"{self.path} is damaged; take another backup")
        for name in self.names():
            self.get(name)


@contextmanager
def being_written(path: Path) -> Iterator[None]:
    """A block in which `is_being_written` says so of a file, in this and other processes; a kill ends it."""
    with path.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def is_being_written(path: Path) -> bool:
    """Whether some process is in the block of `being_written` for a file."""
    try:
        with path.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def flush(path: Path) -> None:
    """Have a file that was written survive a power cut."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """A block whose errors of SQLite become ours."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        kind = trouble(error) if isinstance(error, sqlite3.OperationalError) else "other"
        if kind != "other":
            raise InputError(f"{path} is {kind}; free it, or make room, and try again") from None
        raise FileFormatError(f"{path} is no backup of a veil server, or damaged ({error})") from None
