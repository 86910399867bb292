"""A server's store from a backup of it: a folder, PostgreSQL or a bucket; also with the deletions of a later state."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from contextlib import closing, suppress
from pathlib import Path

from veil.errors import FileFormatError, InputError
from veil.files.atomic import leftovers, remove, replacing_folder, writing
from veil.files.service.backup_file import BackupFile
from veil.server.backups import TABLES, copy_rows, follow, last_receipt
from veil.server.jobs.queue import queue_job
from veil.server.settings import ServerSettings
from veil.server.storage import DATABASE, open_parts
from veil.server.store.blob_use import blobs_in, fasten, loosen
from veil.server.store.database import SqliteStatements
from veil.server.store.identity import FACT, StoreParts
from veil.server.store.schema import Statements, require_version


def restore(path: Path, folder: Path, settings: ServerSettings | None = None, *, newer: Path | None = None) -> dict[str, int]:
    """Make a server's folder from a backup, and return how many maps, contributions and tokens it has.

    - `folder`: missing or empty; it is complete at the end or not there. What a killed restore left beside it goes, and what
      that one wrote to a bucket is used.
    - `settings`: with the storage of the new server, which may be of another kind than the old one's; it must be empty.
    - `newer`: a database file or backup of the same server of a later time: what was deleted until then is deleted.

    Raises FileFormatError for a backup that is damaged or none, InputError for a folder or storage in use, or a newer state
    that does not follow the backup.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is in use; a backup is restored into a new folder")
    file = BackupFile.open(path)
    try:
        file.check()
        with file.transaction(keep=False) as connection:
            saved = SqliteStatements(connection)
            require_version(saved, str(path))
            if newer is not None:
                _follow_file(saved, newer, path)
            _leave_out_missing(saved, file.names())
            _fill(file, saved, folder, settings or ServerSettings())
            tables = ("maps", "contributions", "tokens")
            return {name: int((saved.one(f"SELECT count(*) AS n FROM {name}") or {"n": 0})["n"]) for name in tables}
    finally:
        file.close()


def _follow_file(held: Statements, newer: Path, path: Path) -> None:
    """Delete what was deleted until the state of a file."""
    if not newer.is_file():
        raise FileFormatError(f"cannot read {newer}: there is no such file")
    try:
        connection = sqlite3.connect(f"{newer.resolve().as_uri()}?mode=ro", uri=True, isolation_level=None)
        connection.row_factory = sqlite3.Row
        try:
            connection.execute("BEGIN")
            later, since = SqliteStatements(connection), last_receipt(held)
            _require_later(held, later, since, f"{newer} does not follow {path}")
            follow(held, later, since)
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise FileFormatError(f"{newer} is no database of a veil server ({error})") from None


def _require_later(held: Statements, newer: Statements, since: int, problem: str) -> None:
    """Raise InputError unless a state has all tokens of an earlier one, and goes on from its last receipt."""
    last, same = (each.one("SELECT digest FROM receipts WHERE number = :number", number=since) for each in (held, newer))
    if last != same:
        raise InputError(f"{problem}: its receipts are others, or end before")
    tokens, later = ({row["digest"] for row in each.all("SELECT digest FROM tokens")} for each in (held, newer))
    if not tokens <= later:
        raise InputError(f"{problem}: it is of another server")


def _leave_out_missing(statements: Statements, names: Collection[str]) -> None:
    """Take out what a newer state names and the backup does not hold; a map without its files is made again from messages."""
    for row in statements.all("SELECT id, digest FROM contributions WHERE state <> 'leaving'"):
        if row["digest"] not in names:
            statements.run("DELETE FROM contributions WHERE id = :id", id=row["id"])
    for row in statements.all("SELECT id, files FROM maps"):
        if not set(json.loads(row["files"]).values()) <= set(names):
            statements.run("UPDATE maps SET files = '{}', facts = '{}', version = version + 1 WHERE id = :id", id=row["id"])
            statements.run(
                "UPDATE contributions SET state = 'pending', reason = '' WHERE map = :map AND state <> 'leaving'", map=row["id"]
            )
            queue_job(statements, row["id"], "update", "")


def _fill(file: BackupFile, statements: Statements, folder: Path, settings: ServerSettings) -> None:
    """Make a folder with the rows and blobs of a backup."""
    left = leftovers(folder.parent, name=folder.name, older_than_s=0.0)
    owned = {store for path in left if (store := _store_of(path / DATABASE))}
    with writing(folder), replacing_folder(folder) as staging:
        parts = open_parts(staging, settings, owned=owned)
        try:
            parts.begin(owned=owned)
            _fill_parts(file, statements, parts)
        finally:
            parts.database.close()
        if folder.exists():
            folder.rmdir()
        staging.rename(folder)
    for path in left:
        remove(path)


def _store_of(path: Path) -> str:
    """The id of the store that a restore began which was killed; empty if it did not come so far."""
    if path.is_file():
        with suppress(sqlite3.Error), closing(sqlite3.connect(path)) as connection:
            row = connection.execute("SELECT value FROM facts WHERE name = ?", [FACT]).fetchone()
            return "" if row is None else str(row[0])
    return ""


def _fill_parts(file: BackupFile, statements: Statements, parts: StoreParts) -> None:
    """Copy the rows and blobs of a backup into an empty database and blobs."""
    names = blobs_in(statements) & file.names()
    with parts.database.transaction(durable=True) as target:
        for table in TABLES:
            if target.one(f"SELECT 1 AS one FROM {table}") is not None:
                raise InputError("the database that the settings name holds a server; give an empty one")
        loosen(target, names, "came")
    for name in names:
        parts.blobs.put(file.get(name))
    with parts.database.transaction(durable=True) as target:
        for table in TABLES:
            copy_rows(target, statements, table)
        fasten(target, names)
    parts.database.clear_log()
