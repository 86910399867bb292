"""The ledger of what a client released and spent, in SQLite.

Its file is created whole or not at all, is private to its owner, and is refused if it is not a ledger.
"""

from __future__ import annotations

import os
import re
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np

from veil.errors import FileFormatError, InputError, ReleaseRefused, Remedy, VeilError
from veil.files.atomic import PART, clear_leftovers, writing
from veil.files.device.drawn import TABLE, SealedDraws, insert_draws
from veil.files.device.home import make_private, require_own
from veil.files.device.spent import TABLE as SPENT
from veil.files.device.spent import insert_spent, require_unspent
from veil.files.sqlite import PATIENCE_S, transaction, trouble
from veil.ldp.budget import UNITS, Budget, BudgetUnit, Charge
from veil.ldp.mechanism import SubsetMechanism
from veil.mechanisms.selection import ChosenFeatures
from veil.one_line import one_line
from veil.randomness import Secret

LEDGER = "ledger.sqlite"


# SQLite's user_version. No other layout is read.
LAYOUT = 1
_SCHEMA = """
CREATE TABLE releases (
    image_digest TEXT NOT NULL, released_as TEXT NOT NULL, name TEXT NOT NULL, parameters TEXT NOT NULL,
    features INTEGER NOT NULL, message_digest TEXT NOT NULL, fresh INTEGER NOT NULL, released_at REAL NOT NULL
);
CREATE INDEX by_image ON releases (image_digest);
CREATE TABLE spending (
    image_digest TEXT NOT NULL, message_digest TEXT NOT NULL, words INTEGER NOT NULL, epsilon REAL NOT NULL,
    m INTEGER NOT NULL, features INTEGER NOT NULL, spent_at REAL NOT NULL, UNIQUE (image_digest, message_digest)
);
CREATE TABLE budgets (unit TEXT NOT NULL, epsilon REAL, delta REAL, set_at REAL NOT NULL);
CREATE TABLE secrets (fingerprint TEXT NOT NULL, since REAL NOT NULL);
"""
# Rows of the features that left of an image, int32, where they were chosen one by one. Older ledgers of this layout lack it.
_CHOSEN = "CREATE TABLE IF NOT EXISTS chosen (image_digest TEXT NOT NULL, message_digest TEXT NOT NULL, sent BLOB NOT NULL)"


def open_or_make(path: Path) -> bool:
    """Create the ledger where there is none, and bring an older one up to date; returns whether it is new.

    Raises FileFormatError for a file that is no ledger, is empty, has a newer layout or belongs to another user; InputError
    where none can be written.
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        clear_leftovers(path.parent, name=path.name)
        new = not os.path.lexists(path) and _create(path)
        if not new:
            _wait_for_content(path)
            require_own(path, path.stat(), private=False)
            make_private(path)
    if not new:
        with connected(path) as connection:  # looks whether it is one
            connection.execute(_CHOSEN)
            connection.execute(TABLE)
            connection.execute(SPENT)
    return new


def _create(path: Path) -> bool:
    """Create a new ledger under another name and move it into place at once; returns False if another process was first."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=PART)  # readable by the owner only
    os.close(handle)
    try:
        _fill(Path(name))
        try:
            os.link(name, path)
        except FileExistsError:
            return False
        except OSError:  # no hard links here; then a kill may leave an empty file, which is refused
            try:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            except FileExistsError:
                return False
            _fill(path)
    finally:
        os.unlink(name)
    return True


def _fill(path: Path) -> None:
    try:
        with closing(sqlite3.connect(path, timeout=PATIENCE_S)) as connection:
            connection.executescript(f"BEGIN; {_SCHEMA} {_CHOSEN}; {TABLE}; {SPENT}; PRAGMA user_version = {LAYOUT}; COMMIT;")
    except sqlite3.OperationalError as error:
        raise _refusal(path, error) from None


def _wait_for_content(path: Path) -> None:
    for _ in range(50):  # without hard links another process may be between creating and filling it
        if path.stat().st_size:
            return
        time.sleep(0.02)
    raise FileFormatError(
        f"the ledger {path} is empty: it was cut off, and with it went what was released and spent. Restore it from a backup; "
        "without one, start over with a new VEIL_HOME, and release none of the photographs again that were released from here"
    )


@contextmanager
def connected(path: Path, *, mode: Literal["rw", "ro"] = "rw") -> Iterator[sqlite3.Connection]:
    """A transaction on the ledger, which turns SQLite's errors into veil's.

    Raises ReleaseRefused if another process holds the ledger, InputError if it cannot be written, FileFormatError if the file
    is no ledger, is damaged, or has another layout.
    """
    try:
        with transaction(path, mode=mode, patience_s=PATIENCE_S) as connection:
            _require_ledger(path, connection)
            yield connection
    except sqlite3.OperationalError as error:
        raise _refusal(path, error) from None
    except (sqlite3.DatabaseError, ValueError, TypeError, OverflowError) as error:  # the last three for values of a wrong type
        raise FileFormatError(_damaged(path, error)) from None


def _require_ledger(path: Path, connection: sqlite3.Connection) -> None:
    named = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'releases'"
    if connection.execute(named).fetchone() is None:
        raise FileFormatError(_damaged(path, "it has no table of releases"))
    layout = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if layout != LAYOUT:
        raise FileFormatError(
            f"the ledger {path} has layout {layout}, and this veil reads layout {LAYOUT} alone",
            facts={"layout": layout, "reads": LAYOUT},
            remedy=Remedy("install", "the veil that wrote it"),
        )


def _refusal(path: Path, error: sqlite3.OperationalError) -> VeilError:
    """The error of veil for an error of SQLite, with what to do about it: the file need not be damaged."""
    match trouble(error):
        case "locked":
            return ReleaseRefused(f"another process holds the ledger {path}; nothing was released, try again")
        case "full":
            return InputError(
                f"there is no room to write the ledger {path} ({error}), and nothing is released without an entry there; free "
                "some space on its disk and run the same command again"
            )
        case "readonly":
            return InputError(f"the ledger {path} cannot be written ({error}); see to it that you may write it and its folder")
    return FileFormatError(_damaged(path, error))


def _damaged(path: Path, error: object) -> str:
    return f"the ledger {path} cannot be used ({error}); restore it from a backup"


_RELEASES = "image_digest, released_as, name, parameters, features, message_digest, fresh, released_at"
_WITH_SPENDING = f"""
SELECT {", ".join(f"r.{column}" for column in _RELEASES.split(", "))}, s.words, s.epsilon, s.m, s.features FROM releases r
LEFT JOIN spending s ON s.image_digest = r.image_digest AND s.message_digest = r.message_digest
"""
_OF_IMAGE, _BY_AGE = " WHERE r.image_digest = ?", " ORDER BY r.released_at, r.rowid"
# The secret's fingerprint among the parameters of a release.
_NOTED_SECRET = re.compile(r"\bsecret=([0-9a-f]{8})\b")
# Names that a message may have: a name from the ledger becomes a path.
_ALIAS = re.compile(r"[0-9a-f][0-9a-f-]*")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One release in the ledger.

    - `image_digest`, `message_digest`: digests (hex) of the image, and of its message (SHA-256).
    - `released_as`: name of the message, hex digits and dashes. Raises InputError for one that could be another path.
    - `name`: the image's name, for the user.
    - `parameters`: text of what the release's draws depend on, `name=value` apart by blanks.
    - `features`: number of features that were released.
    - `fresh`: whether it was drawn afresh.
    - `released_at`: seconds since 1970 (UTC).
    - `mechanism`: the law of the words; None for a form without an epsilon (subspaces).
    - `chosen`: the features that left, where they were chosen one by one. It is not read with other facts, see `Ledger.chosen`.
    - `charged`: number of features that words were drawn for anew; None: all.
    - `draws`: of new features, which later releases are compared with; None keeps none. See `drawn.DrawnReader`.
    - `decoy_photographs`: digests (hex) of the photographs that gave its decoys; empty for decoys of a pool.
    """

    image_digest: str
    released_as: str
    name: str
    parameters: str
    features: int
    message_digest: str
    fresh: bool
    released_at: float = 0.0
    mechanism: SubsetMechanism | None = None
    chosen: ChosenFeatures | None = None
    charged: int | None = None
    draws: SealedDraws | None = None
    decoy_photographs: tuple[str, ...] = ()

    __repr__ = one_line

    def __post_init__(self) -> None:
        if not _ALIAS.fullmatch(self.released_as):
            raise InputError(f"a release is called by digits 0-9, a-f and dashes, got {self.released_as!r}")

    @property
    def charge(self) -> Charge | None:
        """The cost of the release, its features under its mechanism; None if no epsilon bounds it."""
        count = self.features if self.charged is None else self.charged
        return None if self.mechanism is None else Charge(mechanism=self.mechanism, features=count)


@dataclass(frozen=True, kw_only=True)
class BudgetChange:
    """One change of a budget: that of `unit` was set to `budget`, or cleared (None), at `set_at` (seconds since 1970, UTC)."""

    unit: BudgetUnit
    budget: Budget | None
    set_at: float


class Ledger:
    """The record of all releases and of what they cost, in SQLite: it survives crashes and serves several processes at once.

    `path` is its file, `is_new` whether it was made now. Raises FileFormatError if the file is no ledger, is damaged or belongs
    to another user, InputError if `folder` cannot hold one.
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / LEDGER
        self.is_new = open_or_make(self.path)

    def record(self, entry: Entry, *, allow_second: bool = False) -> bool:
        """Enter a release before its message is written; returns False if this very message is entered already.

        A message that is entered already costs nothing. Raises ReleaseRefused if the image was released under other
        `parameters`, or if either draw was fresh, unless `allow_second` is set: two different subspaces through one descriptor
        meet in it (release.md#memoized-draws), and words tell more with every draw. Memoized releases under equal parameters
        repeat the same draws, so they are no second release. Raises ReleaseRefused too if words would exceed a budget. Checks
        and entry are one transaction.
        """
        return record_all(self, [entry], allow_second=allow_second) == 1

    def set_budget(self, unit: BudgetUnit, budget: Budget | None) -> Budget | None:
        """Put `budget` in force for `unit`, or none; returns the budget that was in force before, None if there was none."""
        with connected(self.path) as connection:
            connection.execute("BEGIN IMMEDIATE")
            before = _in_force(_changes(connection)).get(unit)
            epsilon, delta = (None, None) if budget is None else (budget.epsilon, budget.delta)
            row = (unit, epsilon, delta, time.time())
            connection.execute("INSERT INTO budgets (unit, epsilon, delta, set_at) VALUES (?, ?, ?, ?)", row)
        return before

    def entries(self) -> list[Entry]:
        """All releases, oldest first."""
        return read_ledger(self.path)

    def entries_of(self, image_digest: str) -> list[Entry]:
        """The releases of the image with this digest (hex), oldest first."""
        with connected(self.path, mode="ro") as connection:
            return _entries(connection, image_digest)

    def chosen(self, image_digest: str) -> ChosenFeatures | None:
        """The features that left of an image last, where they were chosen one by one."""
        with connected(self.path, mode="ro") as connection:
            found = connection.execute("SELECT sent FROM chosen WHERE image_digest = ? ORDER BY rowid DESC", (image_digest,))
            row = found.fetchone()
        return None if row is None else ChosenFeatures(rows=np.frombuffer(row[0], dtype="<i4").astype(np.int64))

    def budgets(self) -> dict[BudgetUnit, Budget]:
        """The budgets in force, by unit."""
        return _in_force(read_budgets(self.path))


def require_secret(ledger: Ledger, secret: Secret, *, replace_lost: bool = False) -> None:
    """Record in the ledger that releases are made under `secret` from here on.

    Raises ReleaseRefused if the ledger holds releases and none was made under this secret, unless `replace_lost` accepts
    that they cannot be repeated. Releases that do not name their secret are taken for those of the present one.
    """
    with connected(ledger.path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        known = _fingerprints(connection)
        if secret.fingerprint in known:
            return
        if any(known) and not replace_lost:
            raise ReleaseRefused(
                f"what {ledger.path} lists was released under the client secret {known[-1]}, but the one beside it is "
                f"{secret.fingerprint}",
                remedy=(Remedy("restore", "client secret"), Remedy("allow", "Device.replace_lost")),
            )
        row = (secret.fingerprint, time.time())
        connection.execute("INSERT INTO secrets (fingerprint, since) VALUES (?, ?)", row)


def record_all(ledger: Ledger, entries: Sequence[Entry], *, allow_second: bool = False) -> int:
    """Enter all of these releases, or none; returns the number of those that were not entered already.

    Each is checked as in `Ledger.record`, those before it counting as entered. Raises as it does.
    """
    with connected(ledger.path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        new = 0
        for entry in entries:
            if _may_enter(connection, entry, allow_second=allow_second):
                _insert(connection, entry)
                new += 1
        return new


def require_enterable(ledger: Ledger, entry: Entry, *, allow_second: bool = False) -> None:
    """Raise ReleaseRefused where `Ledger.record` would, and enter nothing."""
    with connected(ledger.path, mode="ro") as connection:
        _may_enter(connection, entry, allow_second=allow_second)


def _may_enter(connection: sqlite3.Connection, entry: Entry, *, allow_second: bool) -> bool:
    """Whether a release is to be entered: False if its very message stands there. Raises ReleaseRefused as `record` does."""
    same = _entries(connection, entry.image_digest)
    if entry.message_digest in [other.message_digest for other in same]:
        return False
    others = [other for other in same if entry.fresh or other.fresh or other.parameters != entry.parameters]
    if others and not allow_second:
        raise _second_release(entry, others)
    if not allow_second:
        require_unspent(connection, entry.image_digest, entry.name, entry.decoy_photographs)
    for budget in _in_force(_changes(connection)).values():
        if entry.charge is not None:
            before = same if budget.unit == "image" else _entries(connection)
            budget.require([other.charge for other in before if other.charge], entry.charge, entry.name)
    return True


def read_ledger(path: Path) -> list[Entry]:
    """All releases of a ledger, oldest first, read without changing the file. Raises FileFormatError if it is no ledger."""
    with connected(path, mode="ro") as connection:
        return _entries(connection)


def released_under(path: Path) -> list[str | None]:
    """Fingerprints of the secrets under which a ledger's releases were made, the last one last; empty without releases.

    A single None stands for releases that do not name their secret. Raises FileFormatError if the file is no ledger.
    """
    with connected(path, mode="ro") as connection:
        return _fingerprints(connection)


def read_budgets(path: Path) -> list[BudgetChange]:
    """All changes of budgets, oldest first, read without changing the file. Raises FileFormatError if it is no ledger."""
    with connected(path, mode="ro") as connection:
        return _changes(connection)


def _entries(connection: sqlite3.Connection, image_digest: str | None = None) -> list[Entry]:
    """All releases, or those of one image, which an index finds: a release must not read through all earlier ones."""
    where, values = ("", ()) if image_digest is None else (_OF_IMAGE, (image_digest,))
    return [_entry(row) for row in connection.execute(f"{_WITH_SPENDING}{where}{_BY_AGE}", values).fetchall()]


def _entry(row: Sequence) -> Entry:
    mechanism = None
    if row[8] is not None:
        fewest = 0 if " earlier=" in str(row[3]) else max(1, int(row[4]))  # earlier draws are charged once
        if not fewest <= int(row[11]) <= int(row[4]):
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
        charged=None if mechanism is None else int(row[11]),
    )


def _fingerprints(connection: sqlite3.Connection) -> list[str | None]:
    """Fingerprints noted in releases and beside them; [None] if there are none, [] without releases."""
    entries = _entries(connection)
    if not entries:
        return []
    named = [match.group(1) for entry in entries if (match := _NOTED_SECRET.search(entry.parameters))]
    named += [str(row[0]) for row in connection.execute("SELECT fingerprint FROM secrets ORDER BY since, rowid")]
    return [*dict.fromkeys(named)] or [None]


@cache
def _mechanism(words: int, epsilon: float, m: int) -> SubsetMechanism:
    """The mechanism with these parameters, one object for all releases: making it takes arithmetic with fractions."""
    return SubsetMechanism(dictionary_size=words, epsilon=epsilon, m=m)


def _insert(connection: sqlite3.Connection, entry: Entry) -> None:
    now = time.time()
    release = (entry.image_digest, entry.released_as, entry.name, entry.parameters, entry.features, entry.message_digest)
    connection.execute(f"INSERT INTO releases ({_RELEASES}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", (*release, entry.fresh, now))
    if entry.chosen is not None:
        sent = (entry.image_digest, entry.message_digest, entry.chosen.rows.astype("<i4").tobytes())
        connection.execute("INSERT INTO chosen (image_digest, message_digest, sent) VALUES (?, ?, ?)", sent)
    if entry.mechanism is not None:
        law = (entry.mechanism.dictionary_size, float(entry.mechanism.epsilon), entry.mechanism.m)
        charged = entry.features if entry.charged is None else entry.charged
        row = (entry.image_digest, entry.message_digest, *law, charged, now)
        columns = "image_digest, message_digest, words, epsilon, m, features, spent_at"
        connection.execute(f"INSERT INTO spending ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    if entry.draws is not None:
        insert_draws(connection, entry.image_digest, entry.message_digest, entry.draws)
    insert_spent(connection, entry.image_digest, entry.message_digest, entry.decoy_photographs)


def _second_release(entry: Entry, others: Sequence[Entry]) -> ReleaseRefused:
    """The refusal of a second release: what differs from the first of `others`, and what the two together give away."""
    consequence = "two different releases of one image give its descriptors away where they intersect"
    if any(" lines " in f" {one.parameters} " for one in (entry, *others)):
        consequence = "two different releases of one image give its keypoints and descriptors away where they intersect"
    if entry.mechanism is not None:
        consequence = "each release of one image tells more about its descriptors, and their epsilons add up"
        if any(other.mechanism is None for other in others):
            consequence = "the earlier release has no epsilon, and what it gives away no epsilon of this one covers"
    return ReleaseRefused(
        f"{entry.name} was already released with other choices ({others[0].parameters}){_difference(entry, others[0])}; "
        f"{consequence}",
        facts={"image": entry.name, "released_as": others[0].released_as},
        remedy=(Remedy("give", "the same choices"), Remedy("allow", "Device.release.allow_second")),
    )


def _difference(entry: Entry, other: Entry) -> str:
    """Phrase that names the choices in which two releases differ, as far as both note them."""
    if entry.fresh or other.fresh:
        return ", drawn afresh"
    now, then = _choices(entry), _choices(other)
    differences = [f"{now[name]} and not {then[name]}" for name in ("form", "shown") if now[name] != then[name]]
    if now["gravity"] != then["gravity"]:
        with_gravity, known = now["gravity"] != "none", then["gravity"] != "none"
        differences.append("another gravity" if with_gravity and known else f"{'with' if with_gravity else 'without'} gravity")
    digests = ("draws", "choices")  # of all that the draws depend on
    changed = [name for name in now if name in then and now[name] != then[name] and name not in ("form", "shown", "gravity")]
    if now["form"] == then["form"]:  # a number of words is no dimension of a subspace, though both are called m
        others = [name for name in changed if name not in ("keypoints", "secret", "earlier", *digests)]
        differences += [f"{name} {now[name]} and not {then[name]}" for name in others]
    if "keypoints" in changed:
        differences.append("keypoints of another extraction")
    if now.get("earlier") != then.get("earlier"):
        differences.append("other draws of earlier releases")
    if "secret" in changed:
        differences.append("another client secret")
    if not differences and any(name in changed for name in digests):
        differences.append("drawn otherwise by this version of veil")
    return f": now {', '.join(differences)}" if differences else ""


def _choices(entry: Entry) -> dict[str, str]:
    """The choices that a release notes, by name: the form of its descriptors, what it shows of keypoints, and the others."""
    words = entry.parameters.split()
    named = {name: value for name, is_value, value in (word.partition("=") for word in words) if is_value}
    return {
        "form": words[0] if words else "",
        "shown": "lines" if "lines" in words else "positions",
        "gravity": "none",
        **named,
    }


def _changes(connection: sqlite3.Connection) -> list[BudgetChange]:
    rows = connection.execute("SELECT unit, epsilon, delta, set_at FROM budgets ORDER BY rowid").fetchall()
    changes = []
    for unit, epsilon, delta, set_at in rows:
        if unit not in UNITS:
            raise ValueError(f"a budget of {unit!r} is unknown")
        budget = None if epsilon is None else Budget(unit=unit, epsilon=float(epsilon), delta=float(delta))
        changes.append(BudgetChange(unit=unit, budget=budget, set_at=float(set_at)))
    return changes


def _in_force(changes: Sequence[BudgetChange]) -> dict[BudgetUnit, Budget]:
    last = {change.unit: change.budget for change in changes}
    return {unit: budget for unit, budget in last.items() if budget is not None}
