"""The store of face templates: one SQLite file, sealed by its client, whole after any crash and shared by processes.

It holds templates and thresholds, no descriptor and no secret. One template of a person and purpose is valid at a time. Nothing
in it is used before its seal is checked (`veil_faces.seal`); a store older than the client saw it last is refused (`FaceHome`).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from veil.errors import FileFormatError, InputError, Remedy
from veil.files.atomic import clear_leftovers, replacing, writing
from veil.files.device.home import make_private
from veil.forms import Subspaces, lifted_guarantee
from veil_faces.attempts import AttemptLimit, AttemptsSpent, FailedAttempts
from veil_faces.files.face_facts import (
    SCHEMA,
    Contents,
    Threshold,
    opened,
    read_contents,
    scheme_text,
    understood,
    write_facts,
    write_line,
)
from veil_faces.files.face_home import FaceHome
from veil_faces.identification import OpenSet
from veil_faces.naming import checked_name
from veil_faces.seal import Line, Sealer, require_equal
from veil_faces.template import TemplateScheme

# Number of templates that are read at a time.
ROWS = 256
_NUMBERS = "SELECT person, version, origin, basis FROM numbers WHERE purpose = ?"
_ALL_NUMBERS = "SELECT purpose, person, version, origin, basis FROM numbers"


class FaceStore:
    """A store of face templates on disk, opened by its client.

    `scheme`, `limit`, `threshold` and `open_set` are as they were when it was last read. `clock` gives seconds since 1970.
    Raises InputError where there is no store, or it was made with another secret; FileFormatError where the file is no store,
    is of another format, was changed by somebody else, or is older than what `home` saw last.
    """

    def __init__(self, path: Path, home: FaceHome, *, clock: Callable[[], float] = time.time) -> None:
        if not path.is_file():
            raise InputError(f"there is no store {path}", remedy=Remedy("make", "face store"))
        clear_leftovers(path.parent, name=path.name)
        self.path, self._home, self._sealer, self._clock = path, home, Sealer.of(home.secret), clock
        self.scheme: TemplateScheme
        self.limit: AttemptLimit
        self.threshold: Threshold | None = None
        self.open_set: OpenSet | None = None
        with self._reading():
            pass  # sets these

    @staticmethod
    def create(path: Path, scheme: TemplateScheme, home: FaceHome, *, limit: AttemptLimit | None = None) -> FaceStore:
        """Create an empty store, readable by its owner only, with a limit of failed attempts (None: the default).

        Raises InputError if something is at `path` already.
        """
        if path.exists():
            raise InputError(f"{path} exists; enroll into it, or choose another name")
        contents = Contents.new(scheme_text(scheme), home.secret, limit or AttemptLimit())
        with replacing(path, private=True) as temporary:
            connection = sqlite3.connect(temporary)
            connection.executescript(SCHEMA)
            write_facts(connection, contents, Sealer.of(home.secret))
            connection.commit()
            connection.close()
        home.saw(path, contents)
        return FaceStore(path, home)

    def calibrate(self, threshold: Threshold, open_set: OpenSet | None = None) -> None:
        """Store thresholds of single comparisons and of identification (None: none) in place of those before."""
        with self._writing() as (_, contents):
            contents.set_thresholds(threshold, open_set)
        self.threshold, self.open_set = threshold, open_set

    def charge_attempt(self, person: str | None) -> None:
        """Count a failed attempt of a person, or of identification (None), before anything is compared.

        So a kill, or another process, gives no question for free. Charge every comparison whose outcome anybody learns, and
        give the attempt back where the face was accepted (`give_back_attempt`). A person's attempts count for all purposes
        together, as all of them ask for one face. Raises AttemptsSpent, and counts nothing, where the limit is reached;
        InputError for a person who has no valid template.
        """
        who = None if person is None else checked_name(person, "person")
        with self._writing() as (_, contents):
            if who is not None and not any(line.valid and line.person == who for line in contents.lines.values()):
                raise InputError(f"{who!r} has no valid template in {self.path}, so there is nothing to compare with")
            failed = contents.failed.get(who, FailedAttempts()).after(contents.limit, self._clock())
            if wait_s := failed.wait_s(contents.limit):
                whose = f"identification by {self.path}" if who is None else f"{who!r} in {self.path}"
                raise AttemptsSpent(whose, failed.at_s + wait_s, Remedy("allow", "FaceStore.unlock.person", repr(person)))
            contents.set_failed(who, failed.charged())

    def give_back_attempt(self, person: str | None) -> None:
        """Take the last charge of a person, or of identification (None), back, as the face was accepted.

        Failed attempts before it still count.
        """
        who = None if person is None else checked_name(person, "person")
        with self._writing() as (_, contents):
            failed = contents.failed.get(who, FailedAttempts()).after(contents.limit, self._clock())
            contents.set_failed(who, failed.given_back())

    def unlock(self, person: str | None = None) -> None:
        """Forget the failed attempts of a person, or of all people and of identification (None), as the store's owner may.

        Raises InputError for a person of whom none count.
        """
        with self._writing() as (_, contents):
            if person is not None and checked_name(person, "person") not in contents.failed:
                raise InputError(f"{person!r} has no failed attempts that count in {self.path}, so there is nothing to unlock")
            now_s = self._clock()
            for who in [*contents.failed] if person is None else [checked_name(person, "person")]:
                contents.set_failed(who, FailedAttempts(at_s=now_s))

    def failed_attempts(self) -> dict[str | None, FailedAttempts]:
        """Failed attempts that count now by person, and of identification under None; those that are not listed have none."""
        with self._reading() as (_, contents):
            now_s, limit = self._clock(), contents.limit
            current = {who: failed.after(limit, now_s) for who, failed in contents.failed.items()}
        return {who: failed for who, failed in current.items() if failed.number > 0}

    def next_version(self, person: str, purpose: str) -> int:
        """The version number for the next template of this person and purpose: 1, and one more after each template."""
        whose = _whose(person, purpose)
        with self._reading() as (_, contents):
            return 1 + max((version for *who, version in contents.lines if tuple(who) == whose), default=0)

    def enroll(self, person: str, purpose: str, version: int, template: Subspaces, *, renew: bool) -> None:
        """Store a template; with `renew` it replaces the valid one in the same transaction.

        Raises InputError where a valid one exists and is not to be renewed, where none exists and one is to be renewed, where
        another process was first, or where the template does not fit the store's scheme.
        """
        purpose, person = _whose(person, purpose)
        self._require_fitting(template)
        numbers = [np.ascontiguousarray(part[0], dtype="<f4").tobytes() for part in (template.origin, template.basis)]
        with self._writing() as (connection, contents):
            valid = contents.of(purpose, person)
            if valid and not renew:
                raise InputError(f"{person!r} is enrolled for {purpose!r}; renew the template, or revoke it first")
            if renew and not valid:
                raise InputError(f"{person!r} has no valid template for {purpose!r} that could be renewed; enroll first")
            if (purpose, person, version) in contents.lines:
                raise InputError(f"another process enrolled {person!r} for {purpose!r} just now; look, and try again")
            now = self._clock()
            self._erase(connection, contents, valid, now)
            line = Line(
                person=person,
                purpose=purpose,
                version=version,
                generation=contents.generation + 1,
                enrolled_at=now,
                revoked_at=None,
            )
            write_line(connection, contents, line, self._sealer, *numbers)

    def revoke(self, person: str, purpose: str) -> None:
        """Erase the valid template of a person and purpose. Raises InputError if there is none."""
        purpose, person = _whose(person, purpose)
        with self._writing() as (connection, contents):
            valid = contents.of(purpose, person)
            if not valid:
                raise InputError(f"{person!r} has no valid template for {purpose!r}")
            self._erase(connection, contents, valid, self._clock())

    def templates(self, purpose: str, person: str | None = None) -> tuple[list[str], Subspaces | None]:
        """People and their valid templates for a purpose, in the same order; of one person if named.

        Without templates the list is empty and the form None. Raises FileFormatError where a template is not the one that the
        client stored for this person and purpose.
        """
        query, values = _NUMBERS, [checked_name(purpose, "purpose")]
        if person is not None:
            query, values = f"{query} AND person = ?", [*values, checked_name(person, "person")]
        with self._reading() as (connection, contents):
            lines = contents.of(*values)
            rows = connection.execute(f"{query} ORDER BY person, version", values)
            origin, basis = self._read(rows, contents, lines)
        return ([line.person for line in lines], self._form(origin, basis)) if lines else ([], None)

    def _read(self, rows: sqlite3.Cursor, contents: Contents, lines: list[Line]) -> tuple[np.ndarray, np.ndarray]:
        """Origins (lines, dim) and bases (lines, m, dim) of templates, read a few at a time, so that none is held twice."""
        dim, m, done = self.scheme.space.dim, self.scheme.m, 0
        origin, basis = np.empty((len(lines), dim), dtype=np.float32), np.empty((len(lines), m, dim), dtype=np.float32)
        while some := rows.fetchmany(ROWS):
            expected = lines[done : done + len(some)]
            if [row[:2] for row in some] != [(line.person, line.version) for line in expected]:
                raise FileFormatError(f"{self.path}: templates are missing, or too many; restore it from a backup")
            for line, row in zip(expected, some, strict=True):
                self._require_own(contents, line, *row[2:])
            for column, whole in ((2, origin), (3, basis)):
                place = whole[done : done + len(some)]
                place[:] = np.frombuffer(b"".join(row[column] for row in some), dtype="<f4").reshape(place.shape)
                if not np.isfinite(place).all():
                    raise FileFormatError(f"{self.path}: a template holds NaN or infinity; restore it from a backup")
            done += len(some)
        if done < len(lines):
            raise FileFormatError(f"{self.path}: templates are missing; restore it from a backup")
        return origin, basis

    def _require_own(self, contents: Contents, line: Line, origin: object, basis: object) -> None:
        """Raise FileFormatError for numbers of a wrong size, or that the client did not store for this line."""
        size = 4 * self.scheme.space.dim
        if not (isinstance(origin, bytes) and isinstance(basis, bytes)) or (len(origin), len(basis)) != (
            size,
            size * self.scheme.m,
        ):
            raise FileFormatError(f"{self.path}: a template has the wrong size; restore it from a backup")
        _require_own_tag(self.path, contents, self._sealer, line, origin, basis)

    def enrolled(self) -> list[Line]:
        """All templates as lines, including revoked ones, sorted by purpose, person and version."""
        with self._reading() as (_, contents):
            return [contents.lines[key] for key in sorted(contents.lines)]

    def _form(self, origin: np.ndarray, basis: np.ndarray) -> Subspaces:
        profile = self.scheme.profile.name
        return Subspaces(
            origin=origin,
            basis=basis,
            space=self.scheme.space,
            guarantee=lifted_guarantee(profile),
            profile=profile,
            releasable=True,
        )

    def _require_fitting(self, template: Subspaces) -> None:
        if (len(template), template.m, template.space) != (1, self.scheme.m, self.scheme.space):
            raise InputError(f"this store holds templates of m = {self.scheme.m} in [{self.scheme.space}], one at a time")

    def _erase(self, connection: sqlite3.Connection, contents: Contents, lines: list[Line], now: float) -> None:
        for line in lines:
            gone = replace(line, revoked_at=now, generation=contents.generation + 1)
            write_line(connection, contents, gone, self._sealer)

    @contextmanager
    def _reading(self) -> Iterator[tuple[sqlite3.Connection, Contents]]:
        """A transaction that reads the store as it is at one moment; its contents are checked."""
        with opened(self.path) as connection:
            connection.execute("BEGIN")
            contents = self._checked(connection)
            yield connection, contents
        self._home.saw(self.path, contents)

    @contextmanager
    def _writing(self) -> Iterator[tuple[sqlite3.Connection, Contents]]:
        """A transaction that changes the store as a whole or not at all, and seals it anew.

        The client records the new state after the commit. A kill in between leaves a store newer than the recorded one, which
        is accepted.
        """
        with opened(self.path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            contents = self._checked(connection)
            yield connection, contents
            contents.facts["generation"] = str(contents.generation + 1)
            write_facts(connection, contents, self._sealer)
        self._home.saw(self.path, contents)

    def _checked(self, connection: sqlite3.Connection) -> Contents:
        """The contents of the file, after its secret, its seal and its age are found right."""
        contents = _sealed(connection, self.path, self._home)
        with understood(self.path):
            self.scheme, self.threshold, self.open_set = contents.scheme, contents.threshold, contents.open_set
            self.limit = contents.limit
        self._home.require_not_older(self.path, contents)
        return contents


def reseal(path: Path, home: FaceHome) -> list[Line]:
    """Seal a store anew that its owner put back: an older copy, or another store of this client in the place of one.

    It gets an identity of its own, so that no other copy of it is accepted any longer. Returns the valid lines. Raises
    FileFormatError where the store was changed, InputError where this client accepts it as it is.
    """
    sealer = Sealer.of(home.secret)
    with opened(path) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        before = _sealed(connection, path, home)
        if home.departure(path, before) is None:
            raise InputError(f"{path} is not older than this client saw it, so it needs no new seal; use it as it is")
        numbers = _own_numbers(connection, path, before, sealer)
        for table in ("templates", "numbers", "facts"):
            connection.execute(f"DROP TABLE {table}")
        for statement in SCHEMA.split(";"):
            connection.execute(statement)
        contents = before.anew()
        for key, line in before.lines.items():
            write_line(connection, contents, replace(line, generation=1), sealer, *numbers.get(key, ()))
        write_facts(connection, contents, sealer)
    with writing(path):
        make_private(path)
    home.saw(path, contents)
    return [line for _, line in sorted(contents.lines.items()) if line.valid]


def _sealed(connection: sqlite3.Connection, path: Path, home: FaceHome) -> Contents:
    """The contents of the file, after its secret and its seal are found right."""
    with understood(path):
        contents = read_contents(connection, path)
        home.require_own_secret(path, contents.facts["secret"])
        seal = Sealer.of(home.secret).seal(contents.facts, contents.lines.values())
        require_equal(contents.seal, seal, f"{path}: its seal does not fit what it holds")
    return contents


def _own_numbers(
    connection: sqlite3.Connection, path: Path, contents: Contents, sealer: Sealer
) -> dict[tuple[str, str, int], tuple[bytes, bytes]]:
    """Origin and basis of each valid template by purpose, person and version, after its tag is found right."""
    numbers = {key: (b"", b"") for key, line in contents.lines.items() if line.valid}
    with understood(path):
        for purpose, person, version, origin, basis in connection.execute(_ALL_NUMBERS):
            if (purpose, person, version) in numbers:
                numbers[purpose, person, version] = origin, basis
        for key, (origin, basis) in numbers.items():
            _require_own_tag(path, contents, sealer, contents.lines[key], origin, basis)
    return numbers


def _require_own_tag(path: Path, contents: Contents, sealer: Sealer, line: Line, origin: bytes, basis: bytes) -> None:
    """Raise FileFormatError for numbers that the client did not store for this line."""
    tag = sealer.tag(contents.identity, contents.facts["setup"], line, origin, basis)
    require_equal(line.tag, tag, f"{path}: the template of {line.person!r} for {line.purpose!r} is not its own")


def _whose(person: str, purpose: str) -> tuple[str, str]:
    """Purpose and person in their one spelling, in the order of the keys of lines."""
    return checked_name(purpose, "purpose"), checked_name(person, "person")
