"""Transactions on SQLite files that several processes share, which of SQLite's errors are no damage, and files of others."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

# How long one process waits for another that is writing.
PATIENCE_S = 30.0
Trouble = Literal["locked", "full", "readonly", "other"]
_NO_DAMAGE: tuple[Trouble, ...] = ("locked", "full", "readonly")


@contextmanager
def transaction(
    path: Path, *, mode: Literal["rw", "ro"] = "rw", patience_s: float = PATIENCE_S
) -> Iterator[sqlite3.Connection]:
    """A connection to an existing file, whose changes are committed at the end of the block, or dropped if it raises.

    `mode` "ro" opens the file for reading only. Another process that holds the file is waited for, `patience_s` at most.
    Raises what the sqlite3 module raises; `trouble` sorts it.
    """
    connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", timeout=patience_s, uri=True)
    try:
        with connection:
            yield connection
    finally:
        connection.close()


@contextmanager
def untouched(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a file of others, which stays as it is, with nothing written beside it.

    The file may be locked, or lie where nothing can be written. Text comes as bytes, as its encoding is not to be trusted. What
    another program wrote beside the file and has not moved into it yet belongs to it: then a temporary copy of all is read.
    Raises what the sqlite3 module raises, and OSError where a copy cannot be made.
    """
    unmoved = [beside for ending in ("-wal", "-journal") if (beside := Path(f"{path}{ending}")).is_file()]
    with tempfile.TemporaryDirectory(prefix="veil-database-") as folder:
        place, mode = path.resolve(), "mode=ro&immutable=1"  # without locks, and without the files that a lock needs
        if any(beside.stat().st_size for beside in unmoved):
            place, mode = Path(folder) / "copy.db", "mode=rw"
            for source in (path, *unmoved):
                shutil.copyfile(source, f"{place}{source.name.removeprefix(path.name)}")
        connection = sqlite3.connect(f"{place.as_uri()}?{mode}", uri=True)
        connection.text_factory = bytes
        try:
            yield connection
        finally:
            connection.close()


def trouble(error: sqlite3.OperationalError) -> Trouble:
    """The reason why SQLite could not use a file: another process has it locked, the disk is full, it may not be written, or
    another one, such as damage."""
    text = str(error)
    return next((kind for kind in _NO_DAMAGE if kind in text), "other")
