"""The identity of a store: one id in its database, blobs, folder and tiles, so that none is taken for that of another store.

Blobs are deleted by what a database says. So a database that is not the one of the blobs must never get to say it: the id is
written when a store is made, and compared at every start and before every sweep.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from veil.errors import FileFormatError, Remedy
from veil.files.atomic import read_bytes, write_bytes, write_text
from veil.files.service.blobs import OWNER, Blobs, noted_owner, owner_note
from veil.server.store.blob_use import blobs_in, fasten, loosen, needed_in, unnamed_in
from veil.server.store.database import Database
from veil.server.store.schema import Statements

# The id's name among the database's facts, the folder's note of its storage, and the folder of tiles.
FACT, STORAGE, TILES = "store", "storage.json", "tiles"
# The name of a fact that is there while a new id was not written beside the blobs yet.
CLAIMING = "store_is_claiming"
REMEDY = (
    Remedy("restore", "database"),
    Remedy("give", "another prefix or folder"),
    Remedy("adopt", "server's store"),
)
# Tables that are empty in a database that never served.
_TABLES = ("tokens", "maps", "contributions", "receipts")


@dataclass(frozen=True, kw_only=True)
class StoreParts:
    """Parts of a store: a folder of the server, a database, and blobs; `kinds` says where these are."""

    folder: Path
    database: Database
    blobs: Blobs
    kinds: dict[str, str]

    def begin(self, *, owned: Collection[str] = ()) -> str:
        """The id of the store, which is made for a new one, or taken from blobs of a store that is `owned`.

        Raises FileFormatError for parts that do not belong together; then nothing was written.
        """
        with self.database.transaction() as statements:
            known, claiming = _id_in(statements), statements.one("SELECT value FROM facts WHERE name = :name", name=CLAIMING)
            needed, is_new = (
                needed_in(statements),
                all(statements.one(f"SELECT 1 AS one FROM {name}") is None for name in _TABLES),
            )
        begins = known is None or claiming is not None
        if known is None:
            if not is_new:
                raise FileFormatError("the database has served, and says no store", remedy=REMEDY)
            known = self._first_id(owned)
        elif not begins and self.blobs.owner() is None:
            there = sum(1 for _ in self.blobs.names())
            raise FileFormatError(
                f"the blobs ({self.kinds['blobs']}, {there} of them) say no store, and the database is of the store {known} "
                f"and names {len(needed)}",
                remedy=REMEDY,
            )
        self._require(known, self.blobs.claim(known), f"the blobs ({self.kinds['blobs']})")
        self._require(known, _noted_in_folder(self.folder) or known, self.folder)
        self._require(known, _noted_in_tiles(self.folder) or known, self.folder / TILES)
        self._note(known)
        if begins:
            with self.database.transaction() as statements:
                statements.run("DELETE FROM facts WHERE name = :name", name=CLAIMING)
        return known

    def require_whole(self) -> None:
        """Raise FileFormatError unless all parts carry the same id."""
        with self.database.transaction() as statements:
            known = _id_in(statements)
        if known is None:
            raise FileFormatError("the database is another one now, and says no store", remedy=REMEDY)
        self._require(known, self.blobs.owner(), f"the blobs ({self.kinds['blobs']})")
        self._require(known, _noted_in_folder(self.folder), self.folder)
        self._require(known, _noted_in_tiles(self.folder) or known, self.folder / TILES)

    def _first_id(self, owned: Collection[str]) -> str:
        """The id of a new database: a new one, or that of blobs that are `owned`."""
        owner = self.blobs.owner()
        if owner is not None and owner not in owned:
            raise FileFormatError(
                f"the blobs ({self.kinds['blobs']}) belong to the store {owner}, and the database says none",
                remedy=REMEDY,
            )
        if owner is None and (there := sum(1 for _ in self.blobs.names())):
            raise FileFormatError(
                f"the blobs ({self.kinds['blobs']}) hold {there}, none of which the database names", remedy=REMEDY
            )
        with self.database.transaction(durable=True) as statements:
            return _id_in(statements) or _new_id(statements, owner)

    def _require(self, known: str, other: str | None, place: object) -> None:
        if other != known:
            claim = "say no store" if other is None else f"belong to the store {other}"
            raise FileFormatError(f"{place}: they {claim}, and the database is of the store {known}", remedy=REMEDY)

    def _note(self, store: str) -> None:
        """Write the id into the folder and its tiles, where it is missing."""
        if _noted_in_folder(self.folder) is None:
            write_text(self.folder / STORAGE, json.dumps({**self.kinds, FACT: store}, indent=1) + "\n")
        if _noted_in_tiles(self.folder) is None:
            write_bytes(self.folder / TILES / OWNER, owner_note(store))


@dataclass(frozen=True, kw_only=True)
class Adoption:
    """Blobs that a database and a store have of each other.

    - `store`: the id that both carry, once they are adopted.
    - `owner`: that which the blobs carried before; None without any.
    - `named`, `missing`: number of blobs that the database names, and of those that are not there.
    - `unnamed`: blobs that nothing names and that the database does not know.
    """

    store: str
    owner: str | None
    named: int
    missing: int
    unnamed: tuple[str, ...]


def adopt(parts: StoreParts, *, write: bool) -> Adoption:
    """Look what a database and blobs have of each other, and with `write` make them one store.

    Blobs that nothing names are then deleted by a sweep a day later. Another server that uses them with another database stops
    to sweep.
    """
    unnamed = unnamed_in(parts.database, parts.blobs)
    there, owner = set(parts.blobs.names()), parts.blobs.owner()
    with parts.database.transaction(durable=True) as statements:
        store = _id_in(statements) or (_new_id(statements) if write else "")
        named, needed = blobs_in(statements), needed_in(statements)
        if write:
            loosen(statements, set(unnamed) - named, "adopted")
            fasten(statements, named)
    if write:
        parts.blobs.claim(store, anew=True)
        write_text(parts.folder / STORAGE, json.dumps({**parts.kinds, FACT: store}, indent=1) + "\n")
        write_bytes(parts.folder / TILES / OWNER, owner_note(store))
        with parts.database.transaction() as statements:
            statements.run("DELETE FROM facts WHERE name = :name", name=CLAIMING)
    return Adoption(store=store, owner=owner, named=len(named), missing=len(needed - there), unnamed=tuple(unnamed))


def noted_kinds(folder: Path) -> dict[str, str] | None:
    """Where a folder says that its database and blobs are, None where it says nothing."""
    note = _note_of(folder)
    return None if note is None else {name: note[name] for name in ("database", "blobs")}


def _note_of(folder: Path) -> dict[str, str] | None:
    """Note of a folder, None for a new one. Raises FileFormatError if it cannot be read."""
    path = folder / STORAGE
    if not path.is_file():
        return None
    try:
        note = json.loads(read_bytes(path))
        return {name: str(note[name]) for name in ("database", "blobs")} | ({FACT: str(note[FACT])} if FACT in note else {})
    except (ValueError, KeyError, TypeError):
        raise FileFormatError(f"{path} cannot be read; restore or delete it") from None


def _noted_in_folder(folder: Path) -> str | None:
    return (_note_of(folder) or {}).get(FACT)


def _noted_in_tiles(folder: Path) -> str | None:
    path = folder / TILES / OWNER
    return noted_owner(read_bytes(path), path) if path.is_file() else None


def _id_in(statements: Statements) -> str | None:
    row = statements.one("SELECT value FROM facts WHERE name = :name", name=FACT)
    return None if row is None else str(row["value"])


def _new_id(statements: Statements, store: str | None = None) -> str:
    """Give a database the id of a store, or of a new one."""
    store = store or "s" + secrets.token_hex(16)
    for name, value in ((FACT, store), (CLAIMING, "1")):
        statements.run("INSERT INTO facts (name, value) VALUES (:name, :value)", name=name, value=value)
    return store
