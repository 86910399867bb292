"""Transactions on SQLite files that several processes share, and which of SQLite's errors are no damage."""

from __future__ import annotations

import sqlite3
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


def trouble(error: sqlite3.OperationalError) -> Trouble:
    """The reason why SQLite could not use a file: another process has it locked, the disk is full, it may not be written, or
    another one, such as damage."""
    text = str(error)
    return next((kind for kind in _NO_DAMAGE if kind in text), "other")
