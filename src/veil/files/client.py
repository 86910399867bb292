"""What stays on the client's disk: the secret behind memoized releases, and the ledger of what was released and spent."""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import platformdirs

from veil.budget import UNITS, Budget, Charge, Unit
from veil.chance import Secret
from veil.errors import FileFormatError, InputError, ReleaseRefused
from veil.files.atomic import read_bytes, writing
from veil.subset import SubsetMechanism

# How long one process waits for another that is writing to the ledger.
PATIENCE_S = 30.0
# `spending` and `budgets` are younger than `releases`: a ledger without them gets them when it is next written.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS releases (
    image_digest TEXT NOT NULL, released_as TEXT NOT NULL, name TEXT NOT NULL, parameters TEXT NOT NULL,
    features INTEGER NOT NULL, message_digest TEXT NOT NULL, fresh INTEGER NOT NULL, released_at REAL NOT NULL
);
CREATE INDEX IF NOT EXISTS by_image ON releases (image_digest);
CREATE TABLE IF NOT EXISTS spending (
    image_digest TEXT NOT NULL, message_digest TEXT NOT NULL, words INTEGER NOT NULL, epsilon REAL NOT NULL,
    m INTEGER NOT NULL, features INTEGER NOT NULL, spent_at REAL NOT NULL, UNIQUE (image_digest, message_digest)
);
CREATE TABLE IF NOT EXISTS budgets (unit TEXT NOT NULL, epsilon REAL, delta REAL, set_at REAL NOT NULL);
"""
_ALONE = "SELECT *, NULL, NULL, NULL, NULL FROM releases ORDER BY released_at, rowid"
_WITH_SPENDING = """
SELECT r.*, s.words, s.epsilon, s.m, s.features FROM releases r
LEFT JOIN spending s ON s.image_digest = r.image_digest AND s.message_digest = r.message_digest
ORDER BY r.released_at, r.rowid
"""


def home() -> Path:
    """Where the secret and the ledger live: $VEIL_HOME, or the platform's folder for application data."""
    named = os.environ.get("VEIL_HOME")
    return Path(named) if named else Path(platformdirs.user_data_dir("veil", appauthor=False))


def load_secret(folder: Path) -> Secret:
    """The client's secret, made on first use and readable by its owner only.

    Raises FileFormatError if it is damaged or cannot be read, ReleaseRefused if there is no randomness to make one, and
    InputError if `folder` cannot hold one.
    """
    path = folder / "secret"
    with writing(path):
        if path.exists():
            return _read_secret(path)
        secret = Secret.generate()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            _create(path, secret.key)
        except FileExistsError:
            return _read_secret(path)
    return secret


def _create(path: Path, key: bytes) -> None:
    """Write a file that was not there, whole or not at all: a kill must not leave half a secret. FileExistsError if it is."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".secret.")  # readable by the owner only
    try:
        _write(handle, key)
        try:
            os.link(name, path)
        except FileExistsError:
            raise
        except OSError:  # no hard links here; then a kill may leave an empty file, which is refused
            _write(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), key)
    finally:
        os.unlink(name)


def _write(handle: int, key: bytes) -> None:
    with os.fdopen(handle, "wb") as stream:
        stream.write(key)
        stream.flush()
        os.fsync(stream.fileno())


def _read_secret(path: Path) -> Secret:
    for _ in range(50):  # without hard links another process may be between creating and writing the file
        key = read_bytes(path)
        if key:
            break
        time.sleep(0.02)
    try:
        return Secret(key)
    except InputError as error:
        raise FileFormatError(f"{path}: {error}; restore it from a backup, or start over with a new VEIL_HOME") from None


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of the ledger; `mechanism` is None for a form without an epsilon (subspaces)."""

    image_digest: str
    released_as: str
    name: str
    parameters: str
    features: int
    message_digest: str
    fresh: bool
    released_at: float = 0.0
    mechanism: SubsetMechanism | None = None

    @property
    def charge(self) -> Charge | None:
        """What the release costs; None if no epsilon bounds it."""
        return None if self.mechanism is None else Charge(mechanism=self.mechanism, features=self.features)


@dataclass(frozen=True, kw_only=True)
class BudgetChange:
    """That the budget of `unit` was set, or cleared (None), at a time."""

    unit: Unit
    budget: Budget | None
    set_at: float


class Ledger:
    """What was released of what, and what that cost; SQLite, so it survives crashes and serves several processes at once."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ledger.sqlite"
        with writing(self.path):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with _connected(self.path) as connection:
            connection.executescript(_SCHEMA)

    def record(self, entry: Entry, *, allow_second: bool = False) -> bool:
        """Enter a release before its message is written; returns False if this very message is entered already, which then
        costs nothing.

        Raises ReleaseRefused if the image was released under other `parameters`, or if either draw was fresh, unless
        `allow_second` is set: two different subspaces through one descriptor meet in it (traps D15), and words tell more with
        every draw. Memoized releases under equal parameters repeat the same draws, so they are no second one. Raises
        ReleaseRefused too if words would exceed a budget. Checks and entry are one transaction.
        """
        with _connected(self.path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            known = _entries(connection)
            same = [other for other in known if other.image_digest == entry.image_digest]
            if entry.message_digest in [other.message_digest for other in same]:
                return False
            others = [other for other in same if entry.fresh or other.fresh or other.parameters != entry.parameters]
            if others and not allow_second:
                raise ReleaseRefused(_second_release(entry, others))
            for budget in _in_force(_changes(connection)).values():
                if entry.charge is not None:
                    before = known if budget.unit == "session" else same
                    budget.require([other.charge for other in before if other.charge], entry.charge, entry.name)
            _insert(connection, entry)
        return True

    def set_budget(self, unit: Unit, budget: Budget | None) -> Budget | None:
        """Put `budget` in force, or none; returns the one before."""
        with _connected(self.path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            before = _in_force(_changes(connection)).get(unit)
            epsilon, delta = (None, None) if budget is None else (budget.epsilon, budget.delta)
            connection.execute("INSERT INTO budgets VALUES (?, ?, ?, ?)", (unit, epsilon, delta, time.time()))
        return before

    def entries(self) -> list[Entry]:
        """All lines, oldest first."""
        return read_ledger(self.path)

    def budgets(self) -> dict[Unit, Budget]:
        """What is in force."""
        return _in_force(read_budgets(self.path))


def read_ledger(path: Path) -> list[Entry]:
    """The lines of a ledger, oldest first, without touching it. Raises FileFormatError if it is none."""
    with _connected(path, mode="ro") as connection:
        return _entries(connection)


def read_budgets(path: Path) -> list[BudgetChange]:
    """Every change of a budget, oldest first, without touching the ledger. Raises FileFormatError if it is none."""
    with _connected(path, mode="ro") as connection:
        return _changes(connection)


def _entries(connection: sqlite3.Connection) -> list[Entry]:
    rows = connection.execute(_WITH_SPENDING if _has(connection, "spending") else _ALONE).fetchall()
    return [_entry(row) for row in rows]


def _entry(row: Sequence) -> Entry:
    mechanism = None
    if row[8] is not None:
        if not 1 <= int(row[4]) == int(row[11]):
            raise ValueError(f"the spending of {row[2]} is impossible")
        mechanism = _mechanism(int(row[8]), float(row[9]), int(row[10]))
    return Entry(
        image_digest=str(row[0]),
        released_as=str(row[1]),
        name=str(row[2]),
        parameters=str(row[3]),
        features=int(row[4]),
        message_digest=str(row[5]),
        fresh=bool(row[6]),
        released_at=float(row[7]),
        mechanism=mechanism,
    )


@cache
def _mechanism(words: int, epsilon: float, m: int) -> SubsetMechanism:
    """One object for all lines with one law: it computes with fractions when it is made."""
    return SubsetMechanism(words=words, epsilon=epsilon, m=m)


def _insert(connection: sqlite3.Connection, entry: Entry) -> None:
    now = time.time()
    release = (entry.image_digest, entry.released_as, entry.name, entry.parameters, entry.features, entry.message_digest)
    connection.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*release, entry.fresh, now))
    if entry.mechanism is not None:
        law = (entry.mechanism.words, float(entry.mechanism.epsilon), entry.mechanism.m)
        row = (entry.image_digest, entry.message_digest, *law, entry.features, now)
        connection.execute("INSERT INTO spending VALUES (?, ?, ?, ?, ?, ?, ?)", row)


def _second_release(entry: Entry, others: Sequence[Entry]) -> str:
    consequence = "two different releases of one image give its descriptors away where they intersect"
    if entry.mechanism is not None:
        consequence = "each release of one image tells more about its descriptors, and their epsilons add up"
        if any(other.mechanism is None for other in others):
            consequence = "the earlier release has no epsilon, and what it gives away no epsilon of this one covers"
    return (
        f"{entry.name} was already released with other choices ({others[0].parameters}); {consequence}. Release it with "
        "the same choices, or pass --allow-second-release if you accept that"
    )


def _changes(connection: sqlite3.Connection) -> list[BudgetChange]:
    if not _has(connection, "budgets"):
        return []
    rows = connection.execute("SELECT unit, epsilon, delta, set_at FROM budgets ORDER BY rowid").fetchall()
    changes = []
    for unit, epsilon, delta, set_at in rows:
        if unit not in UNITS:
            raise ValueError(f"a budget of {unit!r} is unknown")
        budget = None if epsilon is None else Budget(unit=unit, epsilon=float(epsilon), delta=float(delta))
        changes.append(BudgetChange(unit=unit, budget=budget, set_at=float(set_at)))
    return changes


def _in_force(changes: Sequence[BudgetChange]) -> dict[Unit, Budget]:
    last = {change.unit: change.budget for change in changes}
    return {unit: budget for unit, budget in last.items() if budget is not None}


def _has(connection: sqlite3.Connection, table: str) -> bool:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
    return found.fetchone() is not None


@contextmanager
def _connected(path: Path, *, mode: Literal["rwc", "ro"] = "rwc") -> Iterator[sqlite3.Connection]:
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode={mode}", timeout=PATIENCE_S, uri=True)
        try:
            with connection:
                yield connection
        finally:
            connection.close()
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise ReleaseRefused(f"another process holds the ledger {path}; nothing was released, try again") from None
        raise FileFormatError(_unusable(path, error)) from None
    except (sqlite3.DatabaseError, ValueError, TypeError, OverflowError) as error:  # the last three for values of a wrong type
        raise FileFormatError(_unusable(path, error)) from None


def _unusable(path: Path, error: Exception) -> str:
    return f"the ledger {path} cannot be used ({error}); restore it from a backup"
