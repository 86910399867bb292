"""The limit of failed attempts, by a planted clock: what counts, for how long, and whom it can be taken from."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from face_worlds.face_templates import SCHEME, home_of, template
from veil.errors import FileFormatError, InputError, RangeError
from veil_faces.attempts import AT_ONCE, DAY_S, AttemptLimit, AttemptsSpent, FailedAttempts, utc
from veil_faces.files.face_facts import Contents
from veil_faces.files.face_store import FaceStore, reseal

START_S = 1_800_000_000.0


class PlantedClock:
    """Seconds since 1970 that a test sets."""

    def __init__(self) -> None:
        self.now_s = START_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> PlantedClock:
    return PlantedClock()


@pytest.fixture
def store(tmp_path: Path, clock: PlantedClock) -> FaceStore:
    path = tmp_path / "door.store"
    FaceStore.create(path, SCHEME, home_of(path))
    made = FaceStore(path, home_of(path), clock=clock)
    for person in ("alice", "mallory"):
        made.enroll(person, "door", 1, template(person), renew=False)
    return made


def failures(store: FaceStore, person: str | None, at_most: int = 1000) -> int:
    """Number of failed attempts that are answered in a row."""
    for number in range(at_most):
        try:
            store.charge_attempt(person)
        except AttemptsSpent:
            return number
    return at_most


def test_five_fail_at_once_and_then_one_a_day(store: FaceStore, clock: PlantedClock) -> None:
    """Oracle: counting by the policy, over ten days in which every allowed question is asked."""
    assert failures(store, "alice") == AT_ONCE == 5
    with pytest.raises(AttemptsSpent, match=r"'alice'.*nothing was compared; ask again at 2027-01-16T08:00:00Z") as refusal:
        store.charge_attempt("alice")
    assert refusal.value.again_at_s == START_S + DAY_S and str(refusal.value).endswith("FaceStore.unlock(person='alice')")
    clock.now_s = refusal.value.again_at_s - 1
    assert failures(store, "alice") == 0
    clock.now_s = refusal.value.again_at_s
    assert failures(store, "alice") == 1
    total = AT_ONCE + 1
    for _ in range(9 * 2):
        clock.now_s += DAY_S / 2
        total += failures(store, "alice")
    assert total == AttemptLimit().within(10) == 15


def test_a_right_answer_gives_back_its_own_attempt_and_no_other(store: FaceStore) -> None:
    """The attacker has one accepted face, and shows it after each question that fails: he gets no more questions by it."""
    answered = 0
    for _ in range(50):
        try:
            store.charge_attempt("alice")
            answered += 1
            store.charge_attempt("alice")
            store.give_back_attempt("alice")
        except AttemptsSpent:
            break
    assert answered <= AT_ONCE
    store.unlock("alice")
    for _ in range(50):  # nobody who is accepted is ever refused
        store.charge_attempt("alice")
        store.give_back_attempt("alice")
    assert store.failed_attempts() == {}


def test_nobody_unlocks_others_by_being_accepted(store: FaceStore) -> None:
    """Mallory enrolled himself. His right answers give nothing to Alice, nor to identification."""
    assert failures(store, "alice") == 5 and failures(store, None) == 5
    for _ in range(20):
        store.charge_attempt("mallory")
        store.give_back_attempt("mallory")
    assert failures(store, "alice") == failures(store, None) == 0
    assert failures(store, "mallory") == 5
    assert {who: failed.number for who, failed in store.failed_attempts().items()} == {"alice": 5, None: 5, "mallory": 5}


def test_purposes_renewals_and_revocations_give_nothing_back(store: FaceStore) -> None:
    store.enroll("alice", "vault", 1, template("vault"), renew=False)
    assert failures(store, "alice") == 5
    store.enroll("alice", "door", 2, template("again"), renew=True)
    store.revoke("alice", "vault")
    assert failures(store, "alice") == 0
    with pytest.raises(InputError, match="no valid template"):
        store.charge_attempt("nobody")


def test_the_owner_unlocks(store: FaceStore) -> None:
    assert failures(store, "alice") == failures(store, None) == failures(store, "mallory") == 5
    store.unlock("alice")
    assert failures(store, "alice") == 5 and failures(store, None) == failures(store, "mallory") == 0
    store.unlock()
    assert failures(store, "alice") == failures(store, None) == failures(store, "mallory") == 5
    with pytest.raises(InputError, match="nothing to unlock"):
        store.unlock("bob")


def test_counts_are_in_the_file_and_an_older_copy_is_refused(store: FaceStore, clock: PlantedClock) -> None:
    """A restart forgets nothing, and a copy with fewer failed attempts is an older one."""
    shutil.copy(store.path, store.path.parent / "older")
    assert failures(store, "alice") == 5
    again = FaceStore(store.path, home_of(store.path), clock=clock)
    assert failures(again, "alice") == 0
    shutil.copy(store.path.parent / "older", store.path)
    with pytest.raises(FileFormatError, match="is an older copy"):
        again.charge_attempt("alice")


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM facts WHERE key = 'failed'",
        "UPDATE facts SET value = '[]' WHERE key = 'failed'",
        "UPDATE facts SET value = 'no json' WHERE key = 'failed'",
        "UPDATE facts SET value = '[[\"alice\", -1e9, 0]]' WHERE key = 'failed'",
        "UPDATE facts SET value = '10000' WHERE key = 'failures_a_day'",
        "DELETE FROM facts WHERE key = 'failures_a_day'",
    ],
)
def test_counts_that_somebody_changed_are_refused(store: FaceStore, change: str) -> None:
    """Whoever writes the file and lacks the secret: the seal covers the counts, and nothing is compared."""
    assert failures(store, "alice") == 5
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute(change)
    for ask in (lambda: store.charge_attempt("alice"), lambda: store.templates("door"), store.unlock):
        with pytest.raises(FileFormatError, match="seal does not fit"):
            ask()


def test_a_truncated_file_is_refused(store: FaceStore) -> None:
    assert failures(store, "alice") == 5
    whole = store.path.read_bytes()
    for size in (0, 100, len(whole) // 2):
        store.path.write_bytes(whole[:size])
        with pytest.raises(FileFormatError):
            store.charge_attempt("alice")


def test_a_store_of_before_has_the_default_limit(store: FaceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sealed without the fact, as earlier versions did; a limit of the owner's choice is kept."""
    path, make = store.path.parent / "before", Contents.new

    def without_limit(*given: Any) -> Contents:
        contents = make(*given)
        del contents.facts["failures_a_day"]
        return contents

    with monkeypatch.context() as patch:
        patch.setattr(Contents, "new", staticmethod(without_limit))
        FaceStore.create(path, SCHEME, home_of(path))
    assert b"failures_a_day" not in path.read_bytes()
    assert FaceStore(path, home_of(path)).limit == AttemptLimit(a_day=1)
    path = store.path.parent / "gate"
    FaceStore.create(path, SCHEME, home_of(path), limit=AttemptLimit(a_day=4))
    assert FaceStore(path, home_of(path)).limit == AttemptLimit(a_day=4)


def test_a_backup_keeps_its_counts(store: FaceStore) -> None:
    assert failures(store, "alice") == 5
    shutil.copy(store.path, store.path.parent / "backup")
    store.unlock()
    shutil.copy(store.path.parent / "backup", store.path)
    reseal(store.path, home_of(store.path))
    assert failures(store, "alice") == 0


def test_a_stolen_store_with_its_secret_is_not_limited(store: FaceStore, tmp_path: Path) -> None:
    """The limit belongs to the device that counts: a thief starts from a copy of all again and again."""
    for attempt in range(3):
        copy = tmp_path / str(attempt) / store.path.name
        shutil.copytree(tmp_path / "home", copy.parent / "home")
        shutil.copy(store.path, copy)
        assert failures(FaceStore(copy, home_of(copy)), "alice") == 5
    assert failures(store, "alice") == 5


def test_a_clock_set_back_gives_nothing_back() -> None:
    limit, failed = AttemptLimit(), FailedAttempts(number=5.0, at_s=START_S)
    assert failed.after(limit, START_S - 9 * DAY_S).number == 5
    assert failed.after(limit, START_S + 2.5 * DAY_S).number == 2.5
    assert failed.after(limit, START_S + 9 * DAY_S).number == 0
    assert utc(START_S + 0.1) == "2027-01-15T08:00:01Z"


def test_impossible_limits_and_counts_are_refused() -> None:
    for a_day in (0, -1, 10_001):
        with pytest.raises(RangeError, match="are 1 to 10000"):
            AttemptLimit(a_day=a_day)
    for number, at_s in ((float("nan"), 0.0), (-1.0, 0.0), (5.1, 0.0), (1.0, float("inf")), (1.0, -1.0)):
        with pytest.raises(RangeError, match="since 1970"):
            FailedAttempts(number=number, at_s=at_s)


ASKER = """
import sys
sys.path[:] = {paths!r}
from pathlib import Path
from face_worlds.face_templates import home_of
from veil_faces.attempts import AttemptsSpent
from veil_faces.files.face_store import FaceStore
store, answered = FaceStore(Path({path!r}), home_of(Path({path!r})), clock=lambda: {now_s!r}), 0
for _ in range(8):
    try:
        store.charge_attempt("alice")
        answered += 1
    except AttemptsSpent:
        pass
print(answered)
"""


@pytest.mark.slow
def test_two_processes_share_one_limit(store: FaceStore, clock: PlantedClock) -> None:
    """Oracle: counting. Both ask at once, more often than is allowed, and are answered five times together."""
    code = ASKER.format(paths=sys.path, path=str(store.path), now_s=clock.now_s)
    askers = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answered = [int(asker.communicate(timeout=120)[0]) for asker in askers]
    assert sum(answered) == AT_ONCE and failures(store, "alice") == 0
