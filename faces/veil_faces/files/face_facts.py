"""Contents of a face store's file: facts, lines and numbers. The format (version 3, sealed) must not change."""

from __future__ import annotations

import json
import secrets
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from veil.errors import FileFormatError, InputError, Remedy, VeilError
from veil.files.atomic import writing
from veil.files.sqlite import transaction, trouble
from veil.randomness import Secret
from veil.space import Space
from veil_faces.attempts import AttemptLimit, FailedAttempts
from veil_faces.identification import OpenSet
from veil_faces.seal import Line, Sealer
from veil_faces.template import TemplateScheme

FORMAT = 3
SCHEMA = """
CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE templates (
    person TEXT NOT NULL, purpose TEXT NOT NULL, version INTEGER NOT NULL, generation INTEGER NOT NULL,
    enrolled_at REAL NOT NULL, revoked_at REAL, tag BLOB NOT NULL, PRIMARY KEY (purpose, person, version)
);
CREATE UNIQUE INDEX one_valid ON templates (person, purpose) WHERE revoked_at IS NULL;
CREATE TABLE numbers (
    person TEXT NOT NULL, purpose TEXT NOT NULL, version INTEGER NOT NULL, origin BLOB NOT NULL, basis BLOB NOT NULL,
    PRIMARY KEY (purpose, person, version)
);
"""
_SEAL, _LIMIT, _FAILED = "seal", "failures_a_day", "failed"
_LINES = "SELECT person, purpose, version, generation, enrolled_at, revoked_at, tag FROM templates"


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """The threshold of single comparisons: the largest accepted distance, and its errors on the pairs that it was fitted to."""

    distance: float
    false_accepts: float
    false_rejects: float
    pairs: int

    def as_json(self) -> dict[str, object]:
        """The record that is stored and printed (docs/reference/json.md)."""
        return {
            "distance": self.distance,
            "false_accepts": self.false_accepts,
            "false_rejects": self.false_rejects,
            "pairs": self.pairs,
        }

    @staticmethod
    def from_json(record: Mapping[str, Any]) -> Threshold:
        """The threshold of a record that `as_json` made. Raises LookupError for a record that lacks a key."""
        return Threshold(
            distance=record["distance"],
            false_accepts=record["false_accepts"],
            false_rejects=record["false_rejects"],
            pairs=record["pairs"],
        )


@dataclass(kw_only=True, eq=False)
class Contents:
    """A store at one moment: all facts by name but the seal, and a line for every template, valid or revoked.

    `seal` is the seal that stands in the file; the contents may be used once it is found right.
    """

    facts: dict[str, str]
    lines: dict[tuple[str, str, int], Line] = field(default_factory=dict)
    seal: bytes = b""

    @staticmethod
    def new(scheme_text: str, secret: Secret, limit: AttemptLimit) -> Contents:
        """Contents of an empty store with a random identity; `scheme_text` is its scheme as it is stored."""
        facts = {"format": str(FORMAT), "id": "", "secret": secret.fingerprint, "setup": scheme_text, "generation": ""}
        facts[_LIMIT] = str(limit.a_day)
        return Contents(facts=facts).anew()

    def anew(self) -> Contents:
        """Contents of another store with the same facts but a new random identity, in its first generation, without lines."""
        return Contents(facts=self.facts | {"id": secrets.token_hex(16), "generation": "1"})

    @property
    def identity(self) -> str:
        """Random hex digits that no other store has."""
        return self.facts["id"]

    @property
    def generation(self) -> int:
        """Number of times that the store was written."""
        return int(self.facts["generation"])

    @property
    def scheme(self) -> TemplateScheme:
        """The scheme by which the templates are made and compared."""
        return scheme_of(self.facts["setup"])

    @property
    def threshold(self) -> Threshold | None:
        """Threshold of single comparisons; None if none was fitted."""
        record = json.loads(self.facts.get("threshold", "null"))
        return Threshold.from_json(record) if record else None

    @property
    def open_set(self) -> OpenSet | None:
        """Thresholds of identification; None if none were fitted."""
        record = json.loads(self.facts.get("open_set", "null"))
        return OpenSet.from_record(record) if record else None

    def set_thresholds(self, threshold: Threshold | None, open_set: OpenSet | None) -> None:
        """Replace both kinds of thresholds; None removes the one before."""
        records = {
            "threshold": None if threshold is None else threshold.as_json(),
            "open_set": None if open_set is None else open_set.as_record(),
        }
        for name, record in records.items():
            self.facts.pop(name, None)
            if record is not None:
                self.facts[name] = json.dumps(record)

    @property
    def limit(self) -> AttemptLimit:
        """Limit of failed attempts; the default in stores that were made before there was one."""
        return AttemptLimit(a_day=int(self.facts.get(_LIMIT, AttemptLimit().a_day)))

    @property
    def failed(self) -> dict[str | None, FailedAttempts]:
        """Failed attempts by person, and of identification under None; those that are not listed have none."""
        rows = json.loads(self.facts.get(_FAILED, "[]"))
        return {who: FailedAttempts(number=number, at_s=at_s) for who, number, at_s in rows}

    def set_failed(self, who: str | None, failed: FailedAttempts) -> None:
        """Replace the failed attempts of a person, or of identification, and leave out all that no longer count."""
        now_s = failed.at_s
        rows = {name: before.after(self.limit, now_s) for name, before in self.failed.items()} | {who: failed}
        kept = [[name, row.number, row.at_s] for name, row in rows.items() if row.number > 0]
        self.facts.pop(_FAILED, None)
        if kept:
            self.facts[_FAILED] = json.dumps(kept)

    def of(self, purpose: str, person: str | None = None) -> list[Line]:
        """The valid lines of a purpose, of one person if named, sorted by the bytes of the names, as SQLite sorts them."""
        lines = [line for line in self.lines.values() if line.valid and line.purpose == purpose]
        return sorted((line for line in lines if person in (None, line.person)), key=lambda line: line.person.encode())


def scheme_text(scheme: TemplateScheme) -> str:
    """A scheme as the text that is stored as the fact "setup"; tags of templates cover these very characters."""
    space = scheme.space
    record = {
        "strategy": scheme.strategy,
        "m": scheme.m,
        "by": scheme.comparison,
        "space": {
            "descriptor": space.descriptor,
            "normalization": space.normalization,
            "dim": space.dim,
            "codebook": space.codebook,
            "dither_steps": space.dither_steps,
        },
        "decoys": scheme.decoys,
        "keyed": scheme.keyed,
        "centered": scheme.centered,
        "balance": scheme.balance,
        "quota": [[name, count] for name, count in scheme.quota],
    }
    return json.dumps(record)


def scheme_of(text: str) -> TemplateScheme:
    """The scheme of a text that `scheme_text` made. Raises LookupError, TypeError or ValueError for another text."""
    record = json.loads(text)
    space = record["space"]
    scheme = TemplateScheme(
        strategy=record["strategy"],
        m=record["m"],
        comparison=record["by"],
        space=Space(
            descriptor=space["descriptor"],
            normalization=space["normalization"],
            dim=space["dim"],
            codebook=space["codebook"],
            dither_steps=space["dither_steps"],
        ),
        decoys=record["decoys"],
        keyed=record["keyed"],
        centered=record["centered"],
        balance=record["balance"],
        quota=tuple((str(name), int(count)) for name, count in record["quota"]),
    )
    known = json.loads(scheme_text(scheme))
    if unknown := (record.keys() - known.keys()) | (space.keys() - known["space"].keys()):
        raise ValueError(f"a setup has no {', '.join(sorted(unknown))}")
    return scheme


def read_contents(connection: sqlite3.Connection, path: Path) -> Contents:
    """Facts and lines as they stand in the file, not yet checked. Raises FileFormatError for another format."""
    facts = {str(key): str(value) for key, value in connection.execute("SELECT key, value FROM facts")}
    if facts.get("format") != str(FORMAT):
        raise FileFormatError(
            f"{path} has format {facts.get('format')}, and this veil reads {FORMAT} alone; read it with the veil that wrote it",
            remedy=Remedy("make", "face store"),
        )
    if not {"id", "secret", "setup", "generation", _SEAL} <= set(facts):
        raise FileFormatError(f"{path} is no store of face templates, or is damaged (facts are missing)")
    seal = bytes.fromhex(facts.pop(_SEAL))
    lines = [_line(*row) for row in connection.execute(_LINES)]
    return Contents(facts=facts, lines={(line.purpose, line.person, line.version): line for line in lines}, seal=seal)


def _line(person: str, purpose: str, version: int, generation: int, enrolled: float, revoked: float | None, tag: bytes) -> Line:
    # Values of another type than was written get another tag. A tag must be bytes: `bytes(number)` would be zeros.
    if not isinstance(tag, bytes):
        raise TypeError("a tag is not bytes")
    return Line(
        person=str(person),
        purpose=str(purpose),
        version=int(version),
        generation=int(generation),
        enrolled_at=float(enrolled),
        revoked_at=None if revoked is None else float(revoked),
        tag=tag,
    )


def write_facts(connection: sqlite3.Connection, contents: Contents, sealer: Sealer) -> None:
    """Write all facts, with a new seal over them and over the present lines."""
    contents.seal = sealer.seal(contents.facts, contents.lines.values())
    connection.execute("DELETE FROM facts")
    facts = {**contents.facts, _SEAL: contents.seal.hex()}
    connection.executemany("INSERT INTO facts VALUES (?, ?)", list(facts.items()))


def write_line(
    connection: sqlite3.Connection, contents: Contents, line: Line, sealer: Sealer, origin: bytes = b"", basis: bytes = b""
) -> None:
    """Write a template's line with its tag, and its numbers `origin` and `basis`; empty ones erase the numbers on disk.

    It replaces the line of the same person, purpose and version.
    """
    own = replace(line, tag=sealer.tag(contents.identity, contents.facts["setup"], line, origin, basis))
    key = (own.person, own.purpose, own.version)
    row = (*key, own.generation, own.enrolled_at, own.revoked_at, own.tag)
    connection.execute("INSERT OR REPLACE INTO templates VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    connection.execute("DELETE FROM numbers WHERE person = ? AND purpose = ? AND version = ?", key)
    if origin:
        connection.execute("INSERT INTO numbers VALUES (?, ?, ?, ?, ?)", (*key, origin, basis))
    contents.lines[own.purpose, own.person, own.version] = own


@contextmanager
def understood(path: Path) -> Iterator[None]:
    """A block in which errors from unusable values of the file become FileFormatError; veil's own errors pass."""
    try:
        yield
    except VeilError:
        raise
    except (LookupError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise FileFormatError(f"{path} is no store of face templates, or is damaged ({error})") from None


def _refusal(path: Path, error: sqlite3.OperationalError) -> VeilError:
    """The error of veil for an error of SQLite, with what to do about it: the file need not be damaged."""
    match trouble(error):
        case "locked":
            return InputError(f"another process holds {path}; nothing was changed, try again")
        case "full" | "readonly":
            return InputError(
                f"{path} cannot be written ({error}); nothing was changed: make room, or see to it that you may write it"
            )
    return FileFormatError(f"{path} cannot be used ({error}); restore it from a backup")


@contextmanager
def opened(path: Path) -> Iterator[sqlite3.Connection]:
    """A transaction on a store's file, committed whole or dropped; erased numbers are overwritten on disk.

    Raises InputError where another process holds the file or it cannot be written, FileFormatError where it is no store.
    """
    with writing(path):
        try:
            with transaction(path) as connection:
                connection.execute("PRAGMA trusted_schema = OFF")
                connection.execute("PRAGMA secure_delete = ON")
                yield connection
        except sqlite3.OperationalError as error:
            raise _refusal(path, error) from None
        except sqlite3.DatabaseError as error:
            raise FileFormatError(f"{path} is no store of face templates, or is damaged ({error})") from None
