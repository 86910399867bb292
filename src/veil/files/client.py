"""What stays on the client's disk: the secret behind memoized releases, and the ledger of what was released."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs

from veil.chance import Secret
from veil.errors import FileFormatError, InputError, ReleaseRefused
from veil.files.atomic import read_bytes, writing

_SCHEMA = """
CREATE TABLE IF NOT EXISTS releases (
    image_digest TEXT NOT NULL, released_as TEXT NOT NULL, name TEXT NOT NULL, parameters TEXT NOT NULL,
    features INTEGER NOT NULL, message_digest TEXT NOT NULL, fresh INTEGER NOT NULL, released_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS by_image ON releases (image_digest);
"""


def home() -> Path:
    """Where the secret and the ledger live: $VEIL_HOME, or the platform's folder for application data."""
    named = os.environ.get("VEIL_HOME")
    return Path(named) if named else Path(platformdirs.user_data_dir("veil", appauthor=False))


def load_secret(folder: Path) -> Secret:
    """The client's secret, made on first use and readable by its owner only.

    Raises FileFormatError if it is damaged or cannot be read, InputError if `folder` cannot hold one.
    """
    path = folder / "secret"
    with writing(path):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return _read_secret(path)
        with os.fdopen(handle, "wb") as stream:
            secret = Secret.generate()
            stream.write(secret.key)
            stream.flush()
            os.fsync(stream.fileno())
    return secret


def _read_secret(path: Path) -> Secret:
    for _ in range(50):  # another process may be between creating and writing the file
        key = read_bytes(path)
        if key:
            break
        time.sleep(0.02)
    try:
        return Secret(key)
    except InputError as error:
        raise FileFormatError(f"{path}: {error}; restore it from a backup, or start over with a new VEIL_HOME") from None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger."""

    image_digest: str
    released_as: str
    name: str
    parameters: str
    features: int
    message_digest: str
    fresh: bool
    released_at: float = 0.0


class Ledger:
    """What was released of what; SQLite, so it survives crashes and serves several processes at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.sqlite"
        with writing(self.path):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _connected(self.path) as connection:
            connection.executescript(_SCHEMA)

    def record(self, entry: Entry, *, allow_second: bool = False) -> bool:
        """Enter a release before its message is written; returns False if this very message is entered already.

        Raises ReleaseRefused if the image was released under other `parameters`, or if either draw was fresh, unless
        `allow_second` is set: two different subspaces through one descriptor meet in it (traps D15). Memoized releases
        under equal parameters repeat the same subspaces, so they are no second one. Check and entry are one
        transaction.
        """
        with _connected(self.path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            rows = connection.execute(
                "SELECT parameters, fresh, message_digest FROM releases WHERE image_digest = ?", (entry.image_digest,)
            ).fetchall()
            if entry.message_digest in [row[2] for row in rows]:
                return False
            others = [row[0] for row in rows if entry.fresh or row[1] or row[0] != entry.parameters]
            if others and not allow_second:
                raise ReleaseRefused(
                    f"{entry.name} was already released with other choices ({others[0]}); two different releases of "
                    "one image give its descriptors away where they intersect. Release it with the same choices, or "
                    "pass --allow-second-release if you accept that"
                )
            connection.execute(
                "INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    entry.image_digest,
                    entry.released_as,
                    entry.name,
                    entry.parameters,
                    entry.features,
                    entry.message_digest,
                    entry.fresh,
                    time.time(),
                ),
            )
        return True

    def entries(self) -> list[Entry]:
        """All lines, oldest first."""
        return read_ledger(self.path)


def read_ledger(path: Path) -> list[Entry]:
    """The lines of a ledger, oldest first, without touching it. Raises FileFormatError if it is none."""
    with _connected(path, mode="ro") as connection:
        rows = connection.execute("SELECT * FROM releases ORDER BY released_at").fetchall()
        return [
            Entry(
                image_digest=str(row[0]),
                released_as=str(row[1]),
                name=str(row[2]),
                parameters=str(row[3]),
                features=int(row[4]),
                message_digest=str(row[5]),
                fresh=bool(row[6]),
                released_at=float(row[7]),
            )
            for row in rows
        ]


@contextmanager
def _connected(path: Path, *, mode: Literal["rwc", "ro"] = "rwc") -> Iterator[sqlite3.Connection]:
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", timeout=30, uri=True)
        try:
            with connection:
                yield connection
        finally:
            connection.close()
    except (sqlite3.DatabaseError, ValueError, TypeError) as error:  # the latter two for values of a wrong type
        raise FileFormatError(f"the ledger {path} cannot be used ({error}); restore it from a backup") from None
