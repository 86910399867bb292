"""A client's memory of its face stores: the secret that they were made with, and the state of each that it saw last."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.atomic import writing
from veil.files.device.home import home
from veil.files.device.secret import MadeUnder, load_secret
from veil.files.sqlite import transaction
from veil.randomness import Secret
from veil_faces.files.face_facts import Contents

_SCHEMA = """
CREATE TABLE IF NOT EXISTS stores (id TEXT PRIMARY KEY, generation INTEGER NOT NULL, seal BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS places (path TEXT PRIMARY KEY, id TEXT NOT NULL);
"""


@dataclass(frozen=True, kw_only=True)
class FaceHome:
    """The client's folder with its secret and `faces.sqlite`, the record of the face stores that this client saw.

    The record holds, for every store, the generation and the seal that were seen last, and which store lay at which path. It
    reveals a whole older copy of a store, whose seal is right. It reveals it to this client only: one that never saw the newer
    store, or whose folder was put back as well, cannot know (docs/theory/faces.md).
    """

    folder: Path
    secret: Secret

    @staticmethod
    def for_new_store(on_new: Callable[[str], None] | None = None) -> FaceHome:
        """The client's folder for a new store. A missing secret is made, and `on_new` gets the note that says so."""
        return FaceHome(folder=home(), secret=load_secret(home(), on_new=on_new))

    @staticmethod
    def for_store(path: Path) -> FaceHome:
        """The client's folder for the existing store at `path`.

        Raises InputError if there is no store, ReleaseRefused if there is no secret: a new one would verify nobody.
        """
        if not path.is_file():
            raise InputError(f"there is no store {path}", remedy=Remedy("make", "face store"))
        made = MadeUnder(what=f"the store {path}", fingerprint=None)  # the store compares it itself
        return FaceHome(folder=home(), secret=load_secret(home(), needed_by=[made]))

    @property
    def path(self) -> Path:
        """The file `faces.sqlite`, which records what was seen."""
        return self.folder / "faces.sqlite"

    def require_own_secret(self, path: Path, fingerprint: str) -> None:
        """Raise InputError if the store at `path` names another secret (by its fingerprint) than this client's."""
        if fingerprint != self.secret.fingerprint:
            raise InputError(
                f"{path} was made with the secret {fingerprint}, the one in {self.folder} is {self.secret.fingerprint}; put "
                "the old secret back, or set VEIL_HOME to the folder that has it. Nothing was compared or changed"
            )

    def require_not_older(self, path: Path, contents: Contents) -> None:
        """Raise FileFormatError if `departure` names a reason."""
        if reason := self.departure(path, contents):
            raise FileFormatError(reason, remedy=Remedy("adopt", "face store", str(path)))

    def departure(self, path: Path, contents: Contents) -> str | None:
        """Sentence on a store that is older than what was seen last, differs from it, or is another than the one seen at this
        path before; None for any other store."""
        if not self.path.exists():
            return None
        with self._opened() as connection:
            place = connection.execute("SELECT id FROM places WHERE path = ?", (_name(path),)).fetchone()
            seen = connection.execute("SELECT generation, seal FROM stores WHERE id = ?", (contents.identity,)).fetchone()
        if place is not None and place[0] != contents.identity:
            return f"{path} is another store than this client saw there before"
        if seen is None:
            return None
        if contents.generation < seen[0]:
            return (
                f"{path} is an older copy: it was written {contents.generation} times, and {seen[0]} times when this client "
                f"saw it last"
            )
        if contents.generation == seen[0] and contents.seal != seen[1]:
            return f"{path} is not the store that this client saw, but went another way since"
        return None

    def saw(self, path: Path, contents: Contents) -> None:
        """Record a state that was found right, if it is newer than the recorded one."""
        row = (contents.identity, contents.generation, contents.seal)
        with self._opened() as connection:
            known = connection.execute("SELECT generation FROM stores WHERE id = ?", row[:1]).fetchone()
            place = connection.execute("SELECT id FROM places WHERE path = ?", (_name(path),)).fetchone()
            if known is not None and known[0] >= row[1] and place == row[:1]:
                return
            connection.execute(
                "INSERT INTO stores VALUES (?, ?, ?) ON CONFLICT (id) DO UPDATE SET generation = excluded.generation, "
                "seal = excluded.seal WHERE excluded.generation > stores.generation",
                row,
            )
            connection.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (_name(path), row[0]))

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """A transaction on the record, which is created if it is missing."""
        with writing(self.path):
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                with transaction(self._made()) as connection:
                    connection.executescript(_SCHEMA)
                    yield connection
            except sqlite3.OperationalError as error:
                raise InputError(f"{self.path} cannot be used ({error}); nothing was compared or changed, try again") from None
            except sqlite3.DatabaseError as error:
                raise FileFormatError(
                    f"{self.path}, which says how new each face store is, is damaged ({error}); restore it from a backup, or "
                    "remove it and look at the stores: older copies cannot be told then"
                ) from None

    def _made(self) -> Path:
        """The path of the record, created empty if it is missing: readable by its owner only from its first byte."""
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        return self.path


def _name(path: Path) -> str:
    return str(path.resolve())
