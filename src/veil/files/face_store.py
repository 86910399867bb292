"""The store of face templates: one SQLite file, whole after any crash, shared by several processes.

It holds templates and a threshold, no descriptor and no secret. One template of a person and purpose is valid at a time.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError
from veil.faces.template import Setup
from veil.files.atomic import replacing, writing
from veil.forms import Subspaces, lifted_guarantee
from veil.space import Space

FORMAT = 1
# How long one process waits for another that is writing.
PATIENCE_S = 30.0
# Templates that are read at a time.
ROWS = 256
_SCHEMA = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE templates (
    person TEXT NOT NULL, purpose TEXT NOT NULL, version INTEGER NOT NULL, origin BLOB, basis BLOB,
    enrolled_at REAL NOT NULL, revoked_at REAL, PRIMARY KEY (person, purpose, version)
);
CREATE UNIQUE INDEX one_valid ON templates (person, purpose) WHERE revoked_at IS NULL;
"""


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The largest distance that is accepted, and what it did on the pairs that it was fitted to."""

    distance: float
    false_accepts: float
    false_rejects: float
    pairs: int


@dataclass(frozen=True, kw_only=True)
class Enrolled:
    """A line of the store; a revoked template's numbers are gone."""

    person: str
    purpose: str
    version: int
    valid: bool


class FaceStore:
    """A store on disk. Raises FileFormatError where the file is none or is damaged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise InputError(f"there is no store {path}; make one with: veil faces create")
        with self._opened() as connection:
            facts = dict(connection.execute("SELECT key, value FROM facts"))
        try:
            if json.loads(facts["format"]) != FORMAT:
                raise FileFormatError(f"{path} has format {facts['format']}; this veil reads {FORMAT}")
            record = json.loads(facts["setup"])
            quota = tuple((str(name), int(count)) for name, count in record.get("quota", ()))
            self.setup = Setup(**{**record, "space": Space(**record["space"]), "quota": quota})
            found = json.loads(facts.get("threshold", "null"))
            self.threshold = Threshold(**found) if found else None
        except (KeyError, TypeError, ValueError, InputError) as error:
            raise FileFormatError(f"{path} is no store of face templates, or is damaged ({error})") from None

    @staticmethod
    def create(path: Path, setup: Setup) -> FaceStore:
        """A new, empty store. Raises InputError if something is there already."""
        if path.exists():
            raise InputError(f"{path} exists; enroll into it, or choose another name")
        record = {**setup.__dict__, "space": setup.space.__dict__}
        with replacing(path) as temporary:
            temporary.unlink()
            connection = sqlite3.connect(temporary)
            connection.executescript(_SCHEMA)
            facts = [("format", json.dumps(FORMAT)), ("setup", json.dumps(record))]
            connection.executemany("INSERT INTO facts VALUES (?, ?)", facts)
            connection.commit()
            connection.close()
        return FaceStore(path)

    def calibrate(self, threshold: Threshold) -> None:
        """Keep a threshold in place of the one before."""
        with self._opened() as connection:
            connection.execute("INSERT OR REPLACE INTO facts VALUES ('threshold', ?)", (json.dumps(threshold.__dict__),))
        self.threshold = threshold

    def next_version(self, person: str, purpose: str) -> int:
        """The version that the next template of this person and purpose gets: 1, and one more after each."""
        query = "SELECT max(version) FROM templates WHERE person = ? AND purpose = ?"
        with self._opened() as connection:
            return int(connection.execute(query, (person, purpose)).fetchone()[0] or 0) + 1

    def enroll(self, person: str, purpose: str, version: int, template: Subspaces, *, renew: bool) -> None:
        """Store a template; with `renew` it takes the place of the valid one, at once. Raises InputError where one is valid
        and is not to be renewed, where none is and one is to be, or where another process was first."""
        self._require_fitting(template)
        origin, basis = (np.ascontiguousarray(part[0], dtype="<f4").tobytes() for part in (template.origin, template.basis))
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            now = time.time()
            valid = self._valid(connection, person, purpose)
            if valid and not renew:
                raise InputError(f"{person!r} is enrolled for {purpose!r}; renew the template, or revoke it first")
            if renew and not valid:
                raise InputError(f"{person!r} has no valid template for {purpose!r} that could be renewed; enroll first")
            self._revoke(connection, person, purpose, now)
            row = (person, purpose, version, origin, basis, now)
            try:
                connection.execute("INSERT INTO templates VALUES (?, ?, ?, ?, ?, ?, NULL)", row)
            except sqlite3.IntegrityError:
                raise InputError(f"another process enrolled {person!r} for {purpose!r} just now; look, and try again") from None

    def revoke(self, person: str, purpose: str) -> None:
        """Erase the valid template. Raises InputError if there is none."""
        with self._opened() as connection:
            connection.execute("BEGIN IMMEDIATE")
            if not self._valid(connection, person, purpose):
                raise InputError(f"{person!r} has no valid template for {purpose!r}")
            self._revoke(connection, person, purpose, time.time())

    def templates(self, purpose: str, person: str | None = None) -> tuple[list[str], Subspaces | None]:
        """People and their valid templates for a purpose, of one person if named; None where there are none."""
        which = "FROM templates WHERE purpose = ? AND revoked_at IS NULL"
        values: tuple[str, ...] = (purpose,)
        if person is not None:
            which, values = which + " AND person = ?", (purpose, person)
        with self._opened() as connection:
            connection.execute("BEGIN")  # what is counted is what is read
            count = connection.execute(f"SELECT count(*) {which}", values).fetchone()[0]
            rows = connection.execute(f"SELECT person, origin, basis {which} ORDER BY person", values)
            people, origin, basis = self._read(rows, count)
        return (people, self._form(origin, basis)) if people else ([], None)

    def _read(self, rows: sqlite3.Cursor, count: int) -> tuple[list[str], np.ndarray, np.ndarray]:
        """People, origins (count, dim) and bases (count, m, dim); a few at a time, so that none is held twice."""
        dim, m = self.setup.space.dim, self.setup.m
        origin, basis = np.empty((count, dim), dtype=np.float32), np.empty((count, m, dim), dtype=np.float32)
        people: list[str] = []
        while some := rows.fetchmany(ROWS):
            names, *parts = zip(*some, strict=True)
            for part, whole in zip(parts, (origin, basis), strict=True):
                if not all(isinstance(blob, bytes) and len(blob) == whole[0].nbytes for blob in part):
                    raise FileFormatError(f"{self.path}: a template has the wrong size; restore it from a backup")
                place = whole[len(people) : len(people) + len(some)]
                place[:] = np.frombuffer(b"".join(part), dtype="<f4").reshape(place.shape)
                if not np.isfinite(place).all():
                    raise FileFormatError(f"{self.path}: a template holds NaN or infinity; restore it from a backup")
            people += names
        return people, origin, basis

    def enrolled(self) -> list[Enrolled]:
        """All lines, revoked ones as well."""
        query = "SELECT person, purpose, version, revoked_at IS NULL FROM templates ORDER BY purpose, person, version"
        with self._opened() as connection:
            rows = connection.execute(query).fetchall()
        return [Enrolled(person=a, purpose=b, version=c, valid=bool(d)) for a, b, c, d in rows]

    def _form(self, origin: np.ndarray, basis: np.ndarray) -> Subspaces:
        profile = self.setup.profile.name
        return Subspaces(
            origin=origin,
            basis=basis,
            space=self.setup.space,
            guarantee=lifted_guarantee(profile),
            profile=profile,
            releasable=True,
        )

    def _require_fitting(self, template: Subspaces) -> None:
        if (len(template), template.m, template.space) != (1, self.setup.m, self.setup.space):
            raise InputError(f"this store holds templates of m = {self.setup.m} in [{self.setup.space}], one at a time")

    @staticmethod
    def _valid(connection: sqlite3.Connection, person: str, purpose: str) -> bool:
        query = "SELECT 1 FROM templates WHERE person = ? AND purpose = ? AND revoked_at IS NULL"
        return connection.execute(query, (person, purpose)).fetchone() is not None

    @staticmethod
    def _revoke(connection: sqlite3.Connection, person: str, purpose: str, now: float) -> None:
        erase = "UPDATE templates SET revoked_at = ?, origin = NULL, basis = NULL"
        connection.execute(erase + " WHERE person = ? AND purpose = ? AND revoked_at IS NULL", (now, person, purpose))

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it happens, or nothing; erased templates are overwritten on disk."""
        with writing(self.path):
            try:
                connection = sqlite3.connect(f"{self.path.resolve().as_uri()}?mode=rw", timeout=PATIENCE_S, uri=True)
                try:
                    connection.execute("PRAGMA secure_delete = ON")
                    with connection:
                        yield connection
                finally:
                    connection.close()
            except sqlite3.OperationalError as error:
                if "locked" in str(error):
                    raise InputError(f"another process holds {self.path}; nothing was changed, try again") from None
                raise FileFormatError(f"{self.path} cannot be used ({error}); restore it from a backup") from None
            except sqlite3.DatabaseError as error:
                raise FileFormatError(f"{self.path} is no store of face templates, or is damaged ({error})") from None
