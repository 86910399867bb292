"""The ledger of epsilon: no overspending among processes, nothing lost or doubled by a kill."""

from __future__ import annotations

import json
import math
import multiprocessing
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from veil.errors import FileFormatError, ReleaseRefused
from veil.files.device import ledger as ledger_file
from veil.files.device.ledger import Entry, Ledger, read_budgets, read_ledger
from veil.ldp.budget import Budget, Charge
from veil.ldp.composition import composed_epsilon
from veil.ldp.mechanism import SubsetMechanism
from worlds import generator
from worlds.edges import flipped, outcome, truncated

LAW = SubsetMechanism(dictionary_size=8000, epsilon=4.0, m=2)
IMAGE = Budget(unit="image", epsilon=50.0, delta=1e-6)
SESSION = Budget(unit="session", epsilon=60.0, delta=1e-6)


def words(image: int, features: int, *, mechanism: SubsetMechanism | None = LAW, choice: str = "words") -> Entry:
    """A release of words of one image; `choice` makes another message of it."""
    return Entry(
        image_digest=f"{image:064x}",
        released_as=f"{image:016x}",
        name=f"{image}.jpg",
        parameters=choice,
        features=features,
        message_digest=f"{choice} {image} {features}",
        fresh=False,
        mechanism=mechanism,
    )


def spent(ledger: Ledger) -> float:
    return SESSION.spent([entry.charge for entry in ledger.entries() if entry.charge])


def test_charges_come_back_as_they_were_entered(tmp_path: Path) -> None:
    """To the last bit of epsilon, an infinite one included."""
    laws = [LAW, replace(LAW, epsilon=math.nextafter(4.0, 5.0)), replace(LAW, epsilon=math.inf), None]
    for image, law in enumerate(laws):
        assert Ledger(tmp_path).record(words(image, 10 + image, mechanism=law))
    entries = Ledger(tmp_path).entries()
    assert [entry.mechanism for entry in entries] == laws
    assert [entry.charge for entry in entries][:1] == [Charge(mechanism=LAW, features=10)]
    assert entries[-1].charge is None


def test_a_budget_of_images_holds_for_each_and_after_restarts(tmp_path: Path) -> None:
    """Every release opens the ledger anew. The second image is not charged with the first."""
    Ledger(tmp_path).set_budget("image", IMAGE)
    most = IMAGE.affordable(LAW, [], 1000)
    for image in (1, 2):
        assert Ledger(tmp_path).record(words(image, most - 20))
        with pytest.raises(ReleaseRefused, match=r"budget of each image is epsilon 50.*HideInWords\(features_sent=20\)"):
            Ledger(tmp_path).record(words(image, 21, choice="more"), allow_second=True)
        assert Ledger(tmp_path).record(words(image, 20, choice="more"), allow_second=True)
    with pytest.raises(ReleaseRefused, match="budget of each image"):
        Ledger(tmp_path).record(words(3, most + 1))
    assert [entry.features for entry in Ledger(tmp_path).entries()] == [most - 20, 20] * 2


def test_a_budget_of_the_session_adds_up_over_images(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.set_budget("session", SESSION)
    done = 0
    with pytest.raises(ReleaseRefused, match="budget of the session is epsilon 60"):
        for image in range(100):
            ledger.record(words(image, 30))
            done += 1
    assert composed_epsilon({LAW: 30 * done}, 1e-6) <= 60 < composed_epsilon({LAW: 30 * (done + 1)}, 1e-6)
    assert len(ledger.entries()) == done > 3


def test_the_same_message_costs_nothing(tmp_path: Path) -> None:
    """Also where nothing is left, and where the budget was lowered below what is spent."""
    ledger = Ledger(tmp_path)
    assert ledger.record(words(1, 100))
    before = spent(ledger)
    ledger.set_budget("session", replace(SESSION, epsilon=0.0))
    assert not ledger.record(words(1, 100))
    assert spent(ledger) == before and len(ledger.entries()) == 1
    with pytest.raises(ReleaseRefused, match="Not one more fits"):
        ledger.record(words(2, 1))


def test_without_an_epsilon_nothing_is_charged_and_nothing_is_hidden(tmp_path: Path) -> None:
    """Subspaces go past a budget, as `no proof` and not as 0; an infinite epsilon does not."""
    ledger = Ledger(tmp_path)
    ledger.set_budget("session", replace(SESSION, epsilon=0.0))
    assert ledger.record(words(1, 100, mechanism=None))
    assert [entry.charge for entry in ledger.entries()] == [None]
    with pytest.raises(ReleaseRefused, match="infinite epsilon"):
        ledger.record(words(2, 1, mechanism=replace(LAW, epsilon=math.inf)))
    ledger.set_budget("session", None)
    assert ledger.record(words(2, 1, mechanism=replace(LAW, epsilon=math.inf)))


def test_second_releases_are_refused_for_what_they_do(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.record(words(1, 10))
    with pytest.raises(ReleaseRefused, match="their epsilons add up"):
        ledger.record(words(1, 11, choice="more"))
    with pytest.raises(ReleaseRefused, match="where they intersect"):
        ledger.record(words(1, 11, mechanism=None, choice="subspaces"))
    ledger.record(words(2, 10, mechanism=None, choice="subspaces"))
    with pytest.raises(ReleaseRefused, match="no epsilon of this one covers"):
        ledger.record(words(2, 10))


def test_every_change_of_a_budget_is_kept(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    assert ledger.budgets() == {} and read_budgets(ledger.path) == []
    assert ledger.set_budget("image", IMAGE) is None
    assert ledger.set_budget("image", replace(IMAGE, epsilon=70.0)) == IMAGE
    assert ledger.set_budget("session", SESSION) is None
    assert ledger.set_budget("image", None) == replace(IMAGE, epsilon=70.0)
    assert ledger.budgets() == {"session": SESSION}
    changes = read_budgets(ledger.path)
    assert [change.budget for change in changes] == [IMAGE, replace(IMAGE, epsilon=70.0), SESSION, None]
    assert all(change.set_at > 1.7e9 for change in changes)


def _spend(folder: str, number: int, barrier, queue) -> None:
    ledger, won = Ledger(Path(folder)), 0
    for image in range(25):
        barrier.wait()
        with suppress(ReleaseRefused):
            won += ledger.record(words(1000 * number + image, 30))
    queue.put((number, won))


@pytest.mark.slow
def test_two_processes_never_overspend(tmp_path: Path) -> None:
    """Spent is within the budget, and one more release would not be: nothing was refused for want of care either."""
    Ledger(tmp_path).set_budget("session", SESSION)
    context = multiprocessing.get_context("spawn")
    queue, barrier = context.Queue(), context.Barrier(2, timeout=60)
    processes = [context.Process(target=_spend, args=(str(tmp_path), number, barrier, queue)) for number in (1, 2)]
    for process in processes:
        process.start()
    won = dict(queue.get(timeout=60) for _ in processes)
    for process in processes:
        process.join()
    entries = Ledger(tmp_path).entries()
    assert len(entries) == sum(won.values())
    assert composed_epsilon({LAW: 30 * len(entries)}, 1e-6) <= 60 < composed_epsilon({LAW: 30 * (len(entries) + 1)}, 1e-6)


class Careless(Ledger):
    """Broken twin: checks first and enters later, as two transactions."""

    meet = threading.Barrier(2, timeout=30)

    def record(self, entry: Entry, *, allow_second: bool = False) -> bool:
        charges = [other.charge for other in self.entries() if other.charge]
        for budget in self.budgets().values():
            assert entry.charge
            budget.require(charges, entry.charge, entry.name)
        self.meet.wait()
        with closing(sqlite3.connect(self.path)) as connection, connection:
            ledger_file._insert(connection, entry)
        return True


@pytest.mark.parametrize(("kind", "done"), [(Ledger, 1), (Careless, 2)])
def test_of_two_at_once_one_fits(tmp_path: Path, kind: type[Ledger], done: int) -> None:
    """Each alone is within the budget, both are not; the twin lets both through."""
    most = SESSION.affordable(LAW, [], 1000)
    kind(tmp_path).set_budget("session", SESSION)
    threads = [
        threading.Thread(target=lambda image=image: outcome(lambda: kind(tmp_path).record(words(image, most))))
        for image in (1, 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(Ledger(tmp_path).entries()) == done
    assert (spent(Ledger(tmp_path)) <= SESSION.epsilon) == (kind is Ledger)


# Releases in children that are killed at the n-th line that any code of the release runs; prints what each kill left, and
# what the rerun made of it. The parent has everything imported, so that a child costs milliseconds.
_KILLED = """
import json, os, random, signal, sys
from pathlib import Path
from veil.errors import FileFormatError, ReleaseRefused
from veil.files.atomic import write_bytes
from veil.files.device.ledger import Entry, Ledger
from veil.ldp.mechanism import SubsetMechanism

LAW, MESSAGE = SubsetMechanism(dictionary_size=8000, epsilon=4.0, m=2), b"message" * 3000
ENTRY = Entry(image_digest="aa" * 32, released_as="bb", name="x.jpg", parameters="words", features=50,
              message_digest="cc" * 32, fresh=False, mechanism=LAW)

def release(folder):
    Ledger(folder / "home").record(ENTRY)
    write_bytes(folder / "up" / "bb.veil", MESSAGE)

def killed_at(limit, folder):
    ran = 0
    def trace(frame, event, argument):
        nonlocal ran
        ran += event == "line"
        if ran == limit:
            os.kill(os.getpid(), signal.SIGKILL)
        return trace
    sys.settrace(trace)
    release(folder)
    sys.settrace(None)
    return ran

def state(folder):
    entries = Ledger(folder / "home").entries()
    message = folder / "up" / "bb.veil"
    whole = message.exists() and message.read_bytes() == MESSAGE
    return [len(entries), sum(entry.charge is not None for entry in entries), whole]

work = Path(sys.argv[1])
release(work / "first")  # what runs once per process (imports, caches) would not run in the children
lines = killed_at(-1, work / "whole")
points = sorted(random.Random("kill").sample(range(1, lines + 1), 60))
states = []
for point in points:
    folder = work / str(point)
    child = os.fork()
    if child == 0:
        killed_at(point, folder)
        os._exit(0)
    signaled = os.WIFSIGNALED(os.waitpid(child, 0)[1])
    before = state(folder)
    release(folder)
    visible = [path.name for path in (folder / "up").glob("*.veil")]
    states.append([signaled, before, state(folder), visible])
print(json.dumps(states))
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="needs fork")
def test_kill_9_neither_loses_nor_doubles(tmp_path: Path) -> None:
    """At 60 random lines of a release. After the kill: no message without its entry, no entry without its charge, no half
    message. After the same command again: one entry, one charge, the message."""
    done = subprocess.run([sys.executable, "-c", _KILLED, tmp_path], capture_output=True, text=True, check=True)
    budgets = json.loads(done.stdout)
    assert len(budgets) == 60 and all(signaled for signaled, *_ in budgets)
    left = {tuple(before) for _, before, _, _ in budgets}
    assert left >= {(0, 0, False), (1, 1, False)}  # kills on either side of the entry
    assert left <= {(0, 0, False), (1, 1, False), (1, 1, True)}
    assert all(after == [1, 1, True] and visible == ["bb.veil"] for _, _, after, visible in budgets)


@pytest.mark.slow
def test_damage_of_spending_raises_only_veils_errors(tmp_path: Path) -> None:
    """`outcome` lets any other exception through, which fails this test."""
    ledger = Ledger(tmp_path)
    ledger.set_budget("session", SESSION)
    for image in range(20):
        ledger.record(words(image, 1 + image % 3))
    data = ledger.path.read_bytes()
    for bad in (*truncated(data, 30), *flipped(generator("spending"), data, 150, most=600)):
        ledger.path.write_bytes(bad)
        outcome(lambda: Ledger(tmp_path).record(words(50, 2)))
        outcome(lambda: read_ledger(ledger.path))
        outcome(lambda: read_budgets(ledger.path))


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE spending SET features = 1",
        "UPDATE spending SET epsilon = 'much'",
        "UPDATE spending SET epsilon = -1",
        "UPDATE spending SET epsilon = 1e300",
        "UPDATE spending SET m = 8000",
        "UPDATE budgets SET unit = 'month'",
        "UPDATE budgets SET delta = NULL",
    ],
)
def test_impossible_lines_are_refused_and_not_skipped(tmp_path: Path, damage: str) -> None:
    """A line that cannot be read must not count as nothing spent."""
    ledger = Ledger(tmp_path)
    ledger.set_budget("session", SESSION)
    ledger.record(words(1, 20))
    with closing(sqlite3.connect(ledger.path)) as connection, connection:
        connection.execute(damage)
    with pytest.raises(FileFormatError, match="restore it from a backup"):
        ledger.record(words(2, 1))


def test_a_ledger_that_is_held_is_no_damaged_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger(tmp_path)
    monkeypatch.setattr(ledger_file, "PATIENCE_S", 0.05)
    with closing(sqlite3.connect(ledger.path)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with pytest.raises(ReleaseRefused, match=r"another process holds the ledger.*try again"):
            ledger.record(words(1, 1))
    assert ledger.record(words(1, 1))
