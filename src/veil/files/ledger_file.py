"""The file of the ledger: created whole or not at all, private to its owner, and refused if it is not a ledger."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from veil.errors import FileFormatError, InputError, ReleaseRefused, Remedy, VeilError
from veil.files.atomic import PART, clear_leftovers, writing
from veil.files.private import make_private, require_own
from veil.files.sqlite import PATIENCE_S, transaction, trouble

# SQLite's user_version. No other layout is read.
LAYOUT = 1
_SCHEMA = """
CREATE TABLE releases (
    image_digest TEXT NOT NULL, released_as TEXT NOT NULL, name TEXT NOT NULL, parameters TEXT NOT NULL,
    features INTEGER NOT NULL, message_digest TEXT NOT NULL, fresh INTEGER NOT NULL, released_at REAL NOT NULL
);
CREATE INDEX by_image ON releases (image_digest);
CREATE TABLE spending (
    image_digest TEXT NOT NULL, message_digest TEXT NOT NULL, words INTEGER NOT NULL, epsilon REAL NOT NULL,
    m INTEGER NOT NULL, features INTEGER NOT NULL, spent_at REAL NOT NULL, UNIQUE (image_digest, message_digest)
);
CREATE TABLE budgets (unit TEXT NOT NULL, epsilon REAL, delta REAL, set_at REAL NOT NULL);
CREATE TABLE secrets (fingerprint TEXT NOT NULL, since REAL NOT NULL);
"""


def open_or_make(path: Path) -> bool:
    """Create the ledger where there is none; returns whether it is new.

    Raises FileFormatError for a file that is no ledger, is empty, has another layout or belongs to another user; InputError
    where none can be written.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        clear_leftovers(path.parent, name=path.name)
        new = not os.path.lexists(path) and _create(path)
        if not new:
            _wait_for_content(path)
            require_own(path, path.stat(), private=False)
            make_private(path)
    if not new:
        with connected(path):  # looks whether it is one
            pass
    return new


def _create(path: Path) -> bool:
    """Create a new ledger under another name and move it into place at once; returns False if another process was first."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)  # readable by the owner only
    os.close(handle)
    try:
        _fill(Path(name))
        try:
            os.link(name, path)
        except FileExistsError:
            return False
        except OSError:  # no hard links here; then a kill may leave an empty file, which is refused
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                return False
            _fill(path)
    finally:
        os.unlink(name)
    return True


def _fill(path: Path) -> None:
    try:
        with closing(sqlite3.connect(path, timeout=PATIENCE_S)) as connection:
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {LAYOUT}; COMMIT;")
    except sqlite3.OperationalError as error:
        raise _refusal(path, error) from None


def _wait_for_content(path: Path) -> None:
    for _ in range(50):  # without hard links another process may be between creating and filling it
        if path.stat().st_size:
            return
        time.sleep(0.02)
    raise FileFormatError(
        f"the ledger {path} is empty: it was cut off, and with it went what was released and spent. Restore it from a backup; "
        "without one, start over with a new VEIL_HOME, and release none of the photographs again that were released from here"
    )


@contextmanager
def connected(path: Path, *, mode: Literal["rw", "ro"] = "rw") -> Iterator[sqlite3.Connection]:
    """A transaction on the ledger, which turns SQLite's errors into veil's.

    Raises ReleaseRefused if another process holds the ledger, InputError if it cannot be written, FileFormatError if the file
    is no ledger, is damaged, or has another layout.
    """
    try:
        with transaction(path, mode=mode, patience_s=PATIENCE_S) as connection:
            _require_ledger(path, connection)
            yield connection
    except sqlite3.OperationalError as error:
        raise _refusal(path, error) from None
    except (sqlite3.DatabaseError, ValueError, TypeError, OverflowError) as error:  # the last three for values of a wrong type
        raise FileFormatError(_damaged(path, error)) from None


def _require_ledger(path: Path, connection: sqlite3.Connection) -> None:
    named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'releases'"
    if connection.execute(named).fetchone() is None:
        raise FileFormatError(_damaged(path, "it has no table of releases"))
    layout = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if layout != LAYOUT:
        raise FileFormatError(
            f"the ledger {path} has layout {layout}, and this veil reads layout {LAYOUT} alone",
            facts={"layout": layout, "reads": LAYOUT},
            remedy=Remedy("install", "the veil that wrote it"),
        )


def _refusal(path: Path, error: sqlite3.OperationalError) -> VeilError:
    """The error of veil for an error of SQLite, with what to do about it: the file need not be damaged."""
    match trouble(error):
        case "locked":
            return ReleaseRefused(f"another process holds the ledger {path}; nothing was released, try again")
        case "full":
            return InputError(
                f"there is no room to write the ledger {path} ({error}), and nothing is released without an entry there; free "
                "some space on its disk and run the same command again"
            )
        case "readonly":
            return InputError(f"the ledger {path} cannot be written ({error}); see to it that you may write it and its folder")
    return FileFormatError(_damaged(path, error))


def _damaged(path: Path, error: object) -> str:
    return f"the ledger {path} cannot be used ({error}); restore it from a backup"
