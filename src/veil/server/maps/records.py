"""Records of maps, their names, and the files of their versions among the blobs."""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from veil.errors import InputError, NoRoom, StorageTrouble
from veil.files.atomic import read_bytes, replacing_folder, writing
from veil.files.service.blobs import Blobs, blob_name
from veil.server.maps.answerable import answered_forms
from veil.server.maps.contributions import Contribution, contribution_of, contributions_in
from veil.server.maps.policy import MapPolicy
from veil.server.store.blob_use import drop_loose, drop_loose_of, fasten, loosen
from veil.server.store.database import Database
from veil.server.store.schema import Row, Statements
from veil.wire.names import HasName, chosen, require_map_name


class NameTaken(InputError):
    """A name that another map of the server has."""


class UnknownMap(InputError):
    """An id or name that no map of the server has, or that several have."""


def require_free(statements: Statements, name: str) -> None:
    """Raise InputError for what cannot be the name of a map, NameTaken for that of another one, within a transaction."""
    require_map_name(name)
    row = statements.one("SELECT id FROM maps WHERE name = :name", name=name)
    if row is not None:
        raise NameTaken(f"the map {row['id']} is called {name!r} already; give this one another name, or use that one")


def map_ids(records: Sequence[HasName], names: Sequence[str]) -> list[str]:
    """Ids of maps that are given by id, or by a name that no other map has. Raises UnknownMap for others."""
    try:
        return [chosen(records, name).id for name in names]
    except InputError as error:
        raise UnknownMap(error.cause, remedy=error.remedy) from None


@dataclass(frozen=True, kw_only=True)
class MapRecord:
    """A map as the server keeps it.

    - `id`, `name`: the first is the server's, and unique.
    - `version`: grows with every change of the map; 0 before there is one.
    - `files`: digests of the version's files by their path; empty while there is no map.
    - `facts`: of the version, for whoever may use the map.
    """

    id: str
    name: str
    policy: MapPolicy
    created: float
    version: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The map as JSON values, without what only the server needs; its forms are those that it answers."""
        return {
            "map": self.id,
            "name": self.name,
            "created": self.created,
            "version": self.version,
            "mapped": bool(self.files),
            **self.facts,
            "policy": {**self.policy.as_json(), "forms": answered_forms(self.policy, self.facts)},
        }


class MapRecords:
    """Maps and contributions of a server."""

    def __init__(self, database: Database, blobs: Blobs) -> None:
        self.database = database
        self.blobs = blobs

    def make(self, name: str, policy: MapPolicy) -> MapRecord:
        """Make a map without anything in it. Raises InputError for a name that cannot be one, NameTaken for that of another."""
        with self.database.transaction(durable=True) as statements:
            return add_map(statements, name, policy)

    def all(self) -> list[MapRecord]:
        """All maps, oldest first."""
        with self.database.transaction() as statements:
            return [_map(row) for row in statements.all("SELECT * FROM maps ORDER BY created, id")]

    def get(self, map_id: str) -> MapRecord | None:
        """The map of this id, None without one."""
        with self.database.transaction() as statements:
            return map_in(statements, map_id)

    def contributions(self, map_id: str | None = None, *, token: str | None = None) -> list[Contribution]:
        """Contributions to a map (None: to any) of a token (None: of any), oldest first."""
        with self.database.transaction() as statements:
            return [item for item in contributions_in(statements, map_id) if token is None or item.token == token]

    def bytes_of(self, *, token: str | None = None, map_id: str | None = None) -> int:
        """Bytes of all messages of a token, or else to a map."""
        column, value = ("map", map_id) if token is None else ("token", token)
        with self.database.transaction() as statements:
            row = statements.one(f"SELECT sum(bytes) AS bytes FROM contributions WHERE {column} = :value", value=value)
        return int(row["bytes"] or 0) if row is not None else 0

    def contribution(self, contribution: str) -> Contribution | None:
        """The contribution of this id, None without one."""
        with self.database.transaction() as statements:
            row = statements.one("SELECT * FROM contributions WHERE id = :id", id=contribution)
        return None if row is None else contribution_of(row)

    def keep(self, data: bytes, map_id: str = "") -> str:
        """Keep bytes that came for a map, and return their name. Raises StorageTrouble if they cannot be written."""
        with self.database.transaction(durable=True) as statements:
            loosen(statements, [blob_name(data)], "came", map_id)
        return self.keep_again(data)

    def keep_again(self, data: bytes) -> str:
        """Keep bytes that were kept before, and may have been dropped; returns and raises what `keep` does."""
        try:
            return self.blobs.put(data)
        except NoRoom:
            raise
        except InputError as error:
            raise StorageTrouble(error.cause, facts=error.facts, remedy=error.remedy) from None

    def keep_files(self, folder: Path, map_id: str = "") -> dict[str, str]:
        """Keep the files of a map's new version among the blobs, and return their digests by path."""
        paths = sorted(path for path in folder.rglob("*") if path.is_file())
        return {path.relative_to(folder).as_posix(): self.keep(read_bytes(path), map_id) for path in paths}

    def lay_out(self, files: Mapping[str, str], folder: Path) -> Path:
        """A folder with the files of a map's version, made where it is missing; it is complete or not there."""
        if folder.is_dir():
            return folder
        with writing(folder), replacing_folder(folder) as staging:
            for name, digest in files.items():
                target = staging / name
                target.parent.mkdir(parents=True, exist_ok=True)
                self.blobs.place(digest, target)
                os.utime(staging)  # it is being written, however long it takes
            if not all((staging / name).is_file() for name in files):
                raise InputError(f"{folder} was cleared while it was laid out; ask again")
            try:
                staging.rename(folder)
            except OSError:
                if not folder.is_dir():  # another thread or process was first
                    raise
        return folder

    def require_kept(self, files: Mapping[str, str]) -> None:
        """Raise StorageTrouble unless all files are among the blobs, within the transaction that begins to use them.

        Between `keep_files` and it, another server may have dropped what nothing used yet.
        """
        if missing := [name for name, digest in files.items() if not self.blobs.has(digest)]:
            raise StorageTrouble(f"{len(missing)} files of a new version were dropped before it was there; it is made again")

    def drop_unused(self, digests: Iterable[str], *, leaving: Collection[str] = ()) -> int:
        """Delete those blobs that are loose and that nothing names, as `drop_loose` says."""
        return drop_loose(self.database, self.blobs, digests, leaving=leaving)

    def drop_unused_of(self, map_id: str, *, leaving: Collection[str] = ()) -> None:
        """Delete those loose blobs of a map that nothing names, as `drop_loose_of` says."""
        drop_loose_of(self.database, self.blobs, map_id, leaving=leaving)


def add_map(statements: Statements, name: str, policy: MapPolicy) -> MapRecord:
    """Enter a map without anything in it. Raises InputError for a name that cannot be one, NameTaken for that of another."""
    require_free(statements, name)
    record = MapRecord(id="m" + secrets.token_hex(8), name=name, policy=policy, created=time.time())
    statements.run(
        "INSERT INTO maps (id, name, policy, created, version, files, facts) "
        "VALUES (:id, :name, :policy, :created, 0, '{}', '{}')",
        id=record.id,
        name=record.name,
        policy=json.dumps(policy.as_json()),
        created=record.created,
    )
    return record


def map_in(statements: Statements, map_id: str) -> MapRecord | None:
    """The map of this id, None without one."""
    row = statements.one("SELECT * FROM maps WHERE id = :id", id=map_id)
    return None if row is None else _map(row)


def put_version(statements: Statements, record: MapRecord, files: Mapping[str, str], facts: Mapping[str, Any]) -> None:
    """Make files the next version of a map; what only the one before used is loose then."""
    loosen(statements, set(record.files.values()) - set(files.values()), "left", record.id)
    fasten(statements, files.values())
    statements.run(
        "UPDATE maps SET version = :version, files = :files, facts = :facts WHERE id = :id",
        version=record.version + 1,
        files=json.dumps(dict(files)),
        facts=json.dumps(dict(facts)),
        id=record.id,
    )


def _map(row: Row) -> MapRecord:
    return MapRecord(
        id=row["id"],
        name=row["name"],
        policy=MapPolicy.of(json.loads(row["policy"])),
        created=row["created"],
        version=row["version"],
        files=json.loads(row["files"]),
        facts=json.loads(row["facts"]),
    )
