"""The store of templates: one valid at a time, whole after a kill, shared by processes, refused when damaged."""

from __future__ import annotations

import inspect
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from face_worlds.face_templates import SCHEME, home_of, template
from veil.errors import FileFormatError, InputError
from veil_faces.files import face_facts, face_store
from veil_faces.files.face_store import FaceStore, Threshold


@pytest.fixture
def store(tmp_path: Path) -> FaceStore:
    path = tmp_path / "door.store"
    return FaceStore.create(path, SCHEME, home_of(path))


def test_what_is_stored_comes_back(store: FaceStore) -> None:
    store.enroll("bob", "door", 1, template("bob"), renew=False)
    store.enroll("alice", "door", 1, template("alice"), renew=False)
    store.enroll("alice", "vault", 1, template("vault"), renew=False)
    store.calibrate(Threshold(distance=0.5, false_accepts=0.01, false_rejects=0.02, pairs=100))
    again = FaceStore(store.path, home_of(store.path))
    assert again.scheme == SCHEME and again.threshold == store.threshold
    people, forms = again.templates("door")
    assert people == ["alice", "bob"] and forms is not None
    np.testing.assert_array_equal(forms.origin[0], template("alice").origin[0])
    np.testing.assert_array_equal(forms.basis[1], template("bob").basis[0])
    assert again.templates("door", "carol") == ([], None) and again.templates("roof") == ([], None)


@pytest.mark.planted
def test_one_template_is_valid_and_a_revoked_one_is_gone(store: FaceStore) -> None:
    store.enroll("alice", "door", 1, template("first"), renew=False)
    with pytest.raises(InputError, match="is enrolled for 'door'"):
        store.enroll("alice", "door", 2, template("second"), renew=False)
    store.enroll("alice", "door", store.next_version("alice", "door"), template("second"), renew=True)
    _, forms = store.templates("door")
    assert forms is not None and len(forms) == 1
    np.testing.assert_array_equal(forms.origin, template("second").origin)
    store.revoke("alice", "door")
    assert store.templates("door") == ([], None)
    assert [(line.version, line.valid) for line in store.enrolled()] == [(1, False), (2, False)]
    for name in ("first", "second"):
        assert template(name).basis.tobytes() not in store.path.read_bytes(), "erased numbers must not stay on disk"
    with pytest.raises(InputError, match="no valid template"):
        store.revoke("alice", "door")
    with pytest.raises(InputError, match="could be renewed"):
        store.enroll("alice", "door", 3, template("third"), renew=True)
    assert store.next_version("alice", "door") == 3


def test_damage_and_strangers_are_refused(store: FaceStore, tmp_path: Path) -> None:
    store.enroll("alice", "door", 1, template("alice"), renew=False)
    with pytest.raises(InputError, match="there is no store"):
        FaceStore(tmp_path / "none", home_of(store.path))
    with pytest.raises(InputError, match="exists"):
        FaceStore.create(store.path, SCHEME, home_of(store.path))
    for name, data in (("text", b"not a database" * 100), ("empty", b""), ("half", store.path.read_bytes()[:5000])):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(FileFormatError):
            FaceStore(tmp_path / name, home_of(store.path)).templates("door")
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE numbers SET basis = ?", (b"short",))
    with pytest.raises(FileFormatError, match="wrong size"):
        store.templates("door")
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("DELETE FROM numbers")
    with pytest.raises(FileFormatError, match="missing"):
        store.templates("door")
    other = template("x")
    with pytest.raises(InputError, match="m = 2"):
        store.enroll("x", "door", 1, replace(other, basis=other.basis[:, :1]), renew=False)


def test_many_are_read_in_parts(store: FaceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: what was enrolled. Two wrong sizes that add up to right ones are refused, and other numbers in the last part."""
    monkeypatch.setattr(face_store, "ROWS", 4)
    for k in range(11):
        store.enroll(f"{k:02d}", "door", 1, template(str(k)), renew=False)
    people, forms = store.templates("door")
    assert people == [f"{k:02d}" for k in range(11)] and forms is not None
    for k in range(11):
        np.testing.assert_array_equal(forms.origin[k], template(str(k)).origin[0])
        np.testing.assert_array_equal(forms.basis[k], template(str(k)).basis[0])

    def damaged(*changes: tuple[bytes, str]) -> None:
        with closing(sqlite3.connect(store.path)) as connection, connection:
            connection.executemany("UPDATE numbers SET origin = ? WHERE person = ?", changes)

    whole = template("1").origin.tobytes()
    damaged((whole[:-4], "01"), (whole + whole[:4], "02"))
    with pytest.raises(FileFormatError, match="wrong size"):
        store.templates("door")
    damaged((whole, "01"), (template("2").origin.tobytes(), "02"), (np.full(16, np.nan, dtype="<f4").tobytes(), "10"))
    with pytest.raises(FileFormatError, match="'10' for 'door' is not its own"):
        store.templates("door")


def test_a_number_in_the_place_of_a_tag_makes_no_such_many_zeros() -> None:
    """`bytes(n)` is n zeros, and SQLite stores values of any type: the reader must check. Type checks of test runs are off."""
    read = inspect.unwrap(face_facts._line)
    assert read("alice", "door", 1, 1, 0.0, None, b"tag").tag == b"tag"
    with pytest.raises(TypeError, match="not bytes"):
        read("alice", "door", 1, 1, 0.0, None, 5)


def test_a_full_disk_is_no_damage(store: FaceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own error, from a limit of pages that is reached at once; nothing has to be restored."""
    connect = sqlite3.connect

    def limited(*arguments, **options):
        connection = connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 1")  # SQLite takes the present size where that is more
        return connection

    name = "x" * 256
    monkeypatch.setattr(sqlite3, "connect", limited)
    with pytest.raises(InputError, match=r"cannot be written.*full.*make room"):
        for number in range(100):
            store.enroll(f"{name[:200]}{number}", "door", 1, template("alice"), renew=False)
    monkeypatch.setattr(sqlite3, "connect", connect)
    store.enroll("alice", "door", 1, template("alice"), renew=False)  # with room again


def enroll_many(path: str, worker: int) -> None:
    """Ten people of one's own, and one whom all workers want to enroll."""
    store = FaceStore(Path(path), home_of(Path(path)))
    for k in range(10):
        store.enroll(f"{worker}-{k}", "door", 1, template(f"{worker} {k}"), renew=False)
        try:
            store.enroll("shared", "door", store.next_version("shared", "door"), template(f"s{worker} {k}"), renew=False)
        except InputError:
            continue


WORKER = """
import sys
sys.path[:] = {paths!r}
from test_face_store import {name}
{name}({path!r}, {number})
"""


def started(name: str, path: Path, number: int) -> subprocess.Popen[str]:
    code = WORKER.format(paths=sys.path, name=name, path=str(path), number=number)
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_four_processes_lose_nothing(store: FaceStore) -> None:
    """Oracle: counting. Each process's templates are all there, and one of all that fought for a name is valid."""
    workers = [started("enroll_many", store.path, k) for k in range(4)]
    assert [worker.wait(120) for worker in workers] == [0] * 4
    people, forms = store.templates("door")
    assert len(people) == 41 and forms is not None and np.isfinite(forms.basis).all()


def renew_forever(path: str, first: int) -> None:
    """Renew a template without end, each named by its number, and print the number once it is stored."""
    store = FaceStore(Path(path), home_of(Path(path)))
    for k in range(first, first + 10_000):
        store.enroll("alice", "door", store.next_version("alice", "door"), template(str(k)), renew=k > 0)
        print(k, flush=True)


@pytest.mark.slow
def test_a_kill_leaves_a_whole_store(store: FaceStore) -> None:
    """Killed while it renews without pause: one template is valid, the one that was said last or the next."""
    last = -1
    for attempt in range(3):
        process = started("renew_forever", store.path, last + 1 if last < 0 else last + 2)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(5)]
        time.sleep(0.007 * attempt)
        os.kill(process.pid, signal.SIGKILL)
        lines += process.stdout.read().split()
        process.wait()
        last = int(lines[-1])
        people, forms = FaceStore(store.path, home_of(store.path)).templates("door")
        assert people == ["alice"] and forms is not None
        assert any((forms.origin == template(str(k)).origin).all() for k in (last, last + 1))
