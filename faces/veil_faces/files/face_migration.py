"""Resealing face stores, on explicit command only: stores of format 1, and older copies that their owner put back."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, Remedy
from veil.files.atomic import writing
from veil.files.device.home import make_private
from veil.forms import Subspaces, lifted_guarantee
from veil_faces.files.face_facts import (
    SCHEMA,
    UNSEALED,
    Contents,
    opened,
    read_contents,
    read_facts,
    understood,
    write_facts,
    write_line,
)
from veil_faces.files.face_home import FaceHome
from veil_faces.naming import checked_name
from veil_faces.seal import Line, Sealer, require_equal
from veil_faces.template import TemplateScheme

_OLD = (
    "SELECT person, purpose, version, enrolled_at, revoked_at, origin, basis FROM templates ORDER BY purpose, person, version"
)
_SEALED = (
    "SELECT t.person, t.purpose, t.version, t.enrolled_at, t.revoked_at, n.origin, n.basis FROM templates t "
    "LEFT JOIN numbers n ON n.person = t.person AND n.purpose = t.purpose AND n.version = t.version"
)
Key = tuple[str, str, int]
Lines = dict[Key, tuple[Line, bytes, bytes]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Resealed:
    """The result of resealing: the scheme, the valid templates by (purpose, person, version), the format that the store had,
    and whether its threshold was dropped."""

    scheme: TemplateScheme
    templates: dict[Key, Subspaces]
    format_before: int
    threshold_dropped: bool


def reseal_store(
    path: Path, home: FaceHome, *, restored: bool, without: Sequence[str], examine: Callable[[Resealed], None]
) -> Resealed:
    """Seal the store at `path` as it is now, under a new identity, so that no other copy of it is accepted any longer.

    - `restored`: accepts an older copy, or another store, in the place of one that this client saw.
    - `without`: people whose templates are left out, as the file spells them.
    - `examine`: called with what would be sealed; it raises to stop it.

    Raises FileFormatError where a sealed store was changed, where there is nothing to do, or where a store that this client saw
    was replaced and `restored` does not accept that.
    """
    with opened(path) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        with understood(path):
            found, fresh, lines = _read(connection, path, home, restored=restored, without=without)
        examine(found)
        _write(connection, fresh, lines, Sealer.of(home.secret))
    with writing(path):
        make_private(path)
    home.saw(path, fresh)
    return found


def _read(
    connection: sqlite3.Connection, path: Path, home: FaceHome, *, restored: bool, without: Sequence[str]
) -> tuple[Resealed, Contents, Lines]:
    """The result to examine, the contents of the new store without its lines, and the lines with their numbers."""
    facts = read_facts(connection)
    old = facts.get("format") == str(UNSEALED)
    contents = None if old else _sealed(connection, path, home)
    if home.knows(path) and not restored:
        raise FileFormatError(
            f"a sealed store was at {path}, and this one is another, or needs no new seal",
            remedy=Remedy("adopt", "face store", str(path)),
        )
    rows = connection.execute(_OLD if old else _SEALED).fetchall()
    lines = _lines([row for row in rows if row[0] not in without])
    fresh = Contents.new(facts["setup"], home.secret)
    if contents is not None:
        fresh.set_thresholds(contents.threshold, contents.open_set)
    found = Resealed(
        scheme=fresh.scheme,
        templates={key: _form(fresh.scheme, path, *numbers) for key, (line, *numbers) in lines.items() if line.valid},
        format_before=UNSEALED if old else int(facts["format"]),
        threshold_dropped=old and "threshold" in facts,
    )
    return found, fresh, lines


def _sealed(connection: sqlite3.Connection, path: Path, home: FaceHome) -> Contents:
    """Contents of a store of the present format. Raises FileFormatError if seal or tags are wrong: a changed store is not
    sealed anew."""
    contents, sealer = read_contents(connection, path), Sealer.of(home.secret)
    home.require_own_secret(path, contents.facts["secret"])
    seal = sealer.seal(contents.facts, contents.lines.values())
    require_equal(contents.seal, seal, f"{path}: its seal does not fit what it holds")
    for person, purpose, version, _, revoked, origin, basis in connection.execute(_SEALED):
        line = contents.lines[purpose, person, version]
        if revoked is None:
            tag = sealer.tag(contents.identity, contents.facts["setup"], line, origin, basis)
            require_equal(line.tag, tag, f"{path}: the template of {person!r} for {purpose!r} is not its own")
    return contents


def _lines(rows: Sequence[Sequence]) -> Lines:
    """Lines with their numbers, by (purpose, person, version), with names in one spelling.

    Raises FileFormatError where two names become the same, InputError for a name that is not allowed.
    """
    found: Lines = {}
    valid: set[tuple[str, str]] = set()
    for person, purpose, version, enrolled, revoked, origin, basis in rows:
        line = Line(
            person=checked_name(person, "person"),
            purpose=checked_name(purpose, "purpose"),
            version=int(version),
            generation=1,
            enrolled_at=float(enrolled),
            revoked_at=None if revoked is None else float(revoked),
        )
        key = (line.purpose, line.person, line.version)
        if key in found or (line.valid and key[:2] in valid):
            raise FileFormatError(
                f"two people are called {line.person!r} for {line.purpose!r}, spelled differently",
                remedy=Remedy("give", "reseal_store.without"),
            )
        found[key] = (line, origin or b"", basis or b"")
        valid |= {key[:2]} if line.valid else set()
    return found


def _form(scheme: TemplateScheme, path: Path, origin: bytes, basis: bytes) -> Subspaces:
    dim = scheme.space.dim
    if (len(origin), len(basis)) != (4 * dim, 4 * dim * scheme.m):
        raise FileFormatError(f"{path}: a template has the wrong size; restore it from a backup")
    return Subspaces(
        origin=np.frombuffer(origin, dtype="<f4").reshape(1, dim).astype(np.float32),
        basis=np.frombuffer(basis, dtype="<f4").reshape(1, scheme.m, dim).astype(np.float32),
        space=scheme.space,
        guarantee=lifted_guarantee(scheme.profile.name),
        profile=scheme.profile.name,
        releasable=True,
    )


def _write(connection: sqlite3.Connection, contents: Contents, lines: Lines, sealer: Sealer) -> None:
    """Write the whole store anew, in the transaction that read it."""
    for table in ("templates", "numbers", "facts"):
        connection.execute(f"DROP TABLE IF EXISTS {table}")
    for statement in SCHEMA.split(";"):
        connection.execute(statement)
    for line, origin, basis in lines.values():
        write_line(connection, contents, line, sealer, origin, basis)
    write_facts(connection, contents, sealer)
