"""Backups of a server in one file each, which it knows, so that what clients delete is deleted from them, too."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.files.atomic import leftovers, remove, replacing
from veil.files.service.backup_file import BackupFile, being_written, flush, is_being_written
from veil.server.store.blob_use import blobs_in, needed_in
from veil.server.store.database import SqliteStatements
from veil.server.store.schema import Row, Statements, make_tables, require_version

if TYPE_CHECKING:
    from veil.server.service import Service

# The tables of a backup with the columns that name a row, and how many rows are read at a time.
TABLES: Mapping[str, tuple[str, ...]] = {
    "tokens": ("id",),
    "usage": ("token", "period"),
    "maps": ("id",),
    "contributions": ("id",),
    "jobs": ("id",),
    "receipts": ("number",),
    "backups": ("id",),
}
ROWS = 1000
# The name of a backup's own id among its facts.
ID = "backup"
log = logging.getLogger("veil.server")
# The number of receipts that a backup follows which is being written, and how long a killed one is remembered.
UNFINISHED, UNFINISHED_S = -1, 3600.0
# How often what changed while it was copied is copied again.
ROUNDS = 20


def write_rows(target: Statements, source: Statements, backup: str) -> None:
    """Write all rows of a server's database into a backup."""
    make_tables(target)
    target.run("INSERT INTO facts (name, value) VALUES (:name, :value)", name=ID, value=backup)
    for table in TABLES:
        copy_rows(target, source, table)


def last_receipt(statements: Statements) -> int:
    row = statements.one("SELECT number FROM receipts ORDER BY number DESC")
    return 0 if row is None else int(row["number"])


def follow(held: Statements, newer: Statements, since: int) -> None:
    """Replace the maps from which something was deleted since a receipt by those of a newer state; tokens and receipts, too."""
    _replace(held, newer, "tokens", "", {})
    held.run("DELETE FROM receipts WHERE number > :since", since=since)
    _replace(held, newer, "receipts", "number > :since", {"since": since})
    rows = held.all("SELECT content FROM receipts WHERE number > :since", since=since)
    for map_id in {json.loads(row["content"])["map"] for row in rows}:
        _replace(held, newer, "maps", "id = :map", {"map": map_id})
        _replace(held, newer, "contributions", "map = :map", {"map": map_id})
        _replace(held, newer, "jobs", "map = :map", {"map": map_id})


def _replace(target: Statements, source: Statements, table: str, where: str, values: Mapping[str, object]) -> None:
    """Have those rows of a table that fulfil a condition be the ones of another database."""
    target.run(f"DELETE FROM {table} WHERE {where or '1 = 1'}", **values)
    copy_rows(target, source, table, where, values)


def copy_rows(
    target: Statements, source: Statements, table: str, where: str = "1 = 1", values: Mapping[str, object] | None = None
) -> None:
    """Copy the rows of a table that fulfil a condition, in portions that fit in memory."""
    keys = TABLES[table]
    order, given = ", ".join(keys), dict(values or {})
    after = ""
    while rows := source.all(f"SELECT * FROM {table} WHERE {where or '1 = 1'} {after} ORDER BY {order} LIMIT {ROWS}", **given):
        for row in rows:
            insert(target, table, row)
        given |= {f"after_{key}": rows[-1][key] for key in keys}
        after = f"AND ({order}) > ({', '.join(f':after_{key}' for key in keys)})"


def insert(statements: Statements, table: str, row: Row) -> None:
    columns = list(row)
    statements.run(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})", **row)


@dataclass(frozen=True, kw_only=True)
class Backup:
    """A backup that a server knows.

    - `path`: where it was written.
    - `receipts`: number of the last receipt whose deletion it follows.
    - `behind`: deletions that it does not follow yet, because the file could not be written.
    """

    id: str
    path: Path
    created: float
    receipts: int
    behind: int


def write_backup(service: Service, path: Path) -> Backup:
    """Write the state of a server into a new file, while the server runs, and have the server know it.

    The file is complete or not there, and its owner's alone (mode 0600). Raises InputError if it is there already, cannot be
    written, or the server changes all the time.
    """
    path = path.absolute()
    if path.exists():
        raise InputError(f"{path} exists; a backup is a new file each, such as one with today's date")
    backup = "b" + secrets.token_hex(8)
    with service.database.transaction(durable=True) as statements:
        # Before the first byte: what a kill leaves is found by it.
        row = {"id": backup, "path": str(path), "created": time.time(), "receipts": UNFINISHED}
        insert(statements, "backups", row)
    try:
        with replacing(path, suffix="", private=True) as temporary, being_written(temporary):
            _write(service, temporary, backup)
            flush(temporary)
    except BaseException:
        with suppress(VeilError):
            forget_backup(service, backup)
        raise
    return next(item for item in known_backups(service) if item.id == backup)


def _write(service: Service, path: Path, backup: str) -> None:
    """Write a backup into a file, and have the server know how far it follows deletions."""
    file = BackupFile.make(path)
    try:
        for _ in range(ROUNDS):
            with service.database.transaction() as statements:
                named = blobs_in(statements)
            _copy_blobs(service, file, named - file.names())
            with service.database.transaction(durable=True) as statements:
                named = blobs_in(statements)
                if needed_in(statements) <= file.names():
                    # From now on what is deleted is deleted from the file, too.
                    statements.run(
                        "UPDATE backups SET receipts = :last WHERE id = :id", last=last_receipt(statements), id=backup
                    )
                    with file.transaction() as connection:
                        write_rows(SqliteStatements(connection), statements, backup)
                    break
        else:
            raise InputError("the server changed all the time while it was copied; try again when fewer jobs run")
        file.drop(file.names() - named)
    finally:
        file.close()


def known_backups(service: Service) -> list[Backup]:
    """The backups that a server knows, oldest first."""
    with service.database.transaction() as statements:
        last = last_receipt(statements)
        rows = statements.all("SELECT * FROM backups WHERE receipts >= 0 ORDER BY created, id")
    return [
        Backup(
            id=row["id"],
            path=Path(row["path"]),
            created=row["created"],
            receipts=row["receipts"],
            behind=last - row["receipts"],
        )
        for row in rows
    ]


def forget_backup(service: Service, backup: str) -> bool:
    """Have a server know a backup no longer, as it was deleted; returns whether it did."""
    with service.database.transaction(durable=True) as statements:
        return statements.run("DELETE FROM backups WHERE id = :id", id=backup) > 0


def update_backups(service: Service) -> int:
    """Delete from each backup what was deleted since it was made, and return the number of those that could not be written."""
    failed = 0
    clear_parts(service)
    for backup in known_backups(service):
        if backup.behind:
            try:
                _update(service, backup)
            except VeilError as error:
                failed += 1
                log.warning("backup %s does not follow %d deletions yet: %s", backup.id, backup.behind, error)
    return failed


def clear_parts(service: Service) -> None:
    """Delete what killed backups began to write, wherever this server reaches it; nobody else knows of it.

    Raises InputError if something cannot be deleted.
    """
    with service.database.transaction() as statements:
        rows = statements.all("SELECT * FROM backups")
    for row in rows:
        path = Path(row["path"])
        parts = leftovers(path.parent, name=path.name, older_than_s=0.0)
        live = [part.name for part in parts if is_being_written(part)]
        for part in parts:
            if not part.name.startswith(tuple(live)):  # a journal goes with its file
                remove(part)
        if row["receipts"] == UNFINISHED and not live and time.time() - row["created"] > UNFINISHED_S:
            forget_backup(service, row["id"])


def _update(service: Service, backup: Backup) -> None:
    """Bring the maps of a backup from which something was deleted to their present state."""
    file = BackupFile.open(backup.path)
    try:
        with file.transaction() as connection:
            held = SqliteStatements(connection)
            own = held.one("SELECT value FROM facts WHERE name = :name", name=ID)
            if own is None or own["value"] != backup.id:
                raise FileFormatError(f"{backup.path} is another file now", remedy=Remedy("leave out", "backup", backup.id))
            require_version(held, str(backup.path))
            since = last_receipt(held)
            for _ in range(ROUNDS):
                with service.database.transaction() as statements:
                    follow(held, statements, since)
                named = blobs_in(held)
                _copy_blobs(service, file, named - file.names())
                if needed_in(held) <= file.names():
                    break
            else:
                raise InputError("its maps changed all the time while they were copied")
            file.drop(file.names() - named)
            last = last_receipt(held)
    finally:
        file.close()
    with service.database.transaction(durable=True) as statements:
        statements.run("UPDATE backups SET receipts = :last WHERE id = :id", last=last, id=backup.id)


def _copy_blobs(service: Service, file: BackupFile, names: Collection[str]) -> None:
    """Copy blobs into a file; one that was deleted meanwhile is left out, and missed by the next round."""
    for name in names:
        if service.records.blobs.has(name):
            try:
                file.add(name, service.records.blobs.get(name))
            except FileFormatError:
                if service.records.blobs.has(name):
                    raise
