"""Restores that are killed half-way, that begin anew, that come twice, and that bring the deletions of a later state."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest

from veil.errors import FileFormatError, InputError
from veil.files.service.backup_file import BackupFile
from veil.files.service.blobs import FolderBlobs, blob_name
from veil.server import restoring
from veil.server.backups import write_backup
from veil.server.maps.contributions import Contribution, add_contribution, set_state
from veil.server.maps.policy import MapPolicy
from veil.server.maps.receipts import deletion_receipt
from veil.server.maps.records import MapRecord, map_in, put_version
from veil.server.restoring import restore
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.buckets import Buckets

MESSAGES = (b"the first message", b"the second", bytes(range(256)) * 40)
STATES: tuple[Literal["mapped", "left out", "leaving"], ...] = ("mapped", "left out", "leaving")
# Tables of a store that a backup of it brings back; the others are of one store alone.
TABLES = ("contributions", "jobs", "maps", "receipts", "tokens", "usage")

# A program that restores and is killed at a point: before any row of a store, with one blob, with all blobs and no rows, with
# all of it beside its place, or in its place beside what an earlier one left.
KILLED = """
import os, sys
from pathlib import Path
from veil.files.service import blobs, bucket_blobs
from veil.server import restoring
from veil.server.settings import ServerSettings

point, backup, folder, address = sys.argv[1:]
kill = lambda *given: os.kill(os.getpid(), 9)
if point == "no row":
    restoring._fill_parts = kill
elif point == "one blob":
    for kind in (blobs.FolderBlobs, bucket_blobs.S3Blobs):
        def put(self, data, put=kind.put):
            put(self, data)
            kill()
        kind.put = put
elif point == "all blobs":
    restoring.copy_rows = kill
elif point == "complete":
    Path.rename = kill
elif point == "in its place":
    restoring.remove = kill
restoring.restore(Path(backup), Path(folder), ServerSettings(blobs=address))
"""


def change(service: Service, record: MapRecord, files: dict[str, bytes]) -> None:
    """Put a version of a map."""
    digests = {name: service.records.blobs.put(data) for name, data in files.items()}
    with service.database.transaction() as rows:
        present = map_in(rows, record.id)
        assert present is not None
        put_version(rows, present, digests, {"models": [{"images": len(files)}]})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """A server with two tokens and two maps, each of three messages (mapped, left out, leaving) and of two files."""
    service = Service(tmp_path / "store")
    token, _ = service.tokens.make("owner", ["contribute"])
    service.tokens.make("other", ["admin"])
    for name in ("door", "hall"):
        record = service.records.make(name, MapPolicy())
        for message, state in zip(MESSAGES, STATES, strict=True):
            digest = service.records.blobs.put(message)
            with service.database.transaction() as rows:
                item = add_contribution(rows, record, token=token.id, digest=digest, size_bytes=len(message), facts={})
                set_state(rows, item.id, state, f"why {state}")
        change(service, record, {"points": b"points of " + name.encode(), "shared": b"in both maps"})
    yield service
    service.close()


@pytest.fixture
def backup(service: Service, tmp_path: Path) -> Path:
    return write_backup(service, tmp_path / "kept" / "one.backup").path


def rows(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """The rows of a database or backup, read by SQLite alone."""
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)
    try:
        return {name: sorted(connection.execute(f"SELECT * FROM {name}"), key=str) for name in (*TABLES, "loose", "facts")}
    finally:
        connection.close()


def held(folder: Path) -> tuple[dict[str, list[tuple[Any, ...]]], set[bytes]]:
    """The rows that a backup brings back, and the bytes of all blobs of a folder."""
    blobs = {path.read_bytes() for path in folder.glob("blobs/??/*")}
    return {name: rows(folder / "veil.sqlite")[name] for name in TABLES}, blobs


def beside(folder: Path) -> list[Path]:
    """Files and folders beside a folder whose names contain its name."""
    return [path for path in folder.parent.iterdir() if folder.name in path.name and path != folder]


def killed(point: str, backup: Path, folder: Path, address: str = "") -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, point, backup, folder, address], capture_output=True)
    assert done.returncode == -9, done.stderr.decode()


def test_a_restore_brings_back_every_row_and_blob(service: Service, backup: Path, tmp_path: Path) -> None:
    """Oracle: the store itself, read by SQLite and the file system. Nothing else comes along, and the backup stays as it was.

    Planted: a blob in the backup that no row names, as of a version that was replaced.
    """
    file = BackupFile.open(backup)
    with file.transaction():
        file.add(blob_name(b"of an old version"), b"of an old version")
    file.close()
    before = backup.read_bytes()
    assert restore(backup, tmp_path / "again") == {"maps": 2, "contributions": 6, "tokens": 2}
    assert held(tmp_path / "again") == held(service.folder)
    assert held(service.folder)[1] == {*MESSAGES, b"points of door", b"points of hall", b"in both maps"}
    assert rows(tmp_path / "again" / "veil.sqlite")["loose"] == [], "all blobs are named"
    assert backup.read_bytes() == before and [path.name for path in backup.parent.iterdir()] == [backup.name]
    assert beside(tmp_path / "again") == []
    log = tmp_path / "again" / "veil.sqlite-wal"
    assert not log.exists() or log.stat().st_size == 0


def test_restored_twice(service: Service, backup: Path, tmp_path: Path) -> None:
    """A second restore into a folder is refused and changes nothing there; into another one it makes another store."""
    (tmp_path / "first").mkdir()  # empty, so it may be there
    restore(backup, tmp_path / "first")
    before = {path: path.read_bytes() for path in (tmp_path / "first").rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="in use"):
        restore(backup, tmp_path / "first")
    assert {path: path.read_bytes() for path in (tmp_path / "first").rglob("*") if path.is_file()} == before
    restore(backup, tmp_path / "second")
    assert held(tmp_path / "first") == held(tmp_path / "second")
    ids = {dict(rows(tmp_path / name / "veil.sqlite")["facts"])["store"] for name in ("store", "first", "second")}
    assert len(ids) == 3


def test_a_place_that_is_taken_stays_as_it_is(backup: Path, tmp_path: Path) -> None:
    """A file, and a folder with anything in it, such as half of a store that was copied by hand."""
    (tmp_path / "file").write_text("mine")
    (tmp_path / "half" / "blobs").mkdir(parents=True)
    for name in ("file", "half"):
        with pytest.raises(InputError, match="in use"):
            restore(backup, tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine" and [p.name for p in (tmp_path / "half").iterdir()] == ["blobs"]


@pytest.mark.slow
@pytest.mark.parametrize("point", ["no row", "one blob", "all blobs", "complete"])
def test_a_killed_restore_is_not_there_and_the_next_one_is_whole(
    point: str, service: Service, backup: Path, tmp_path: Path
) -> None:
    """Oracle: the store itself. What the killed one left holds only what its database knows as loose, and goes.

    Beside it lie a damaged one and one without a store's id, which go too, and one of another folder, which stays.
    """
    folder = tmp_path / "again"
    killed(point, backup, folder)
    assert not folder.exists()
    (left,) = beside(folder)
    assert left.stat().st_mode & 0o077 == 0
    if point in ("one blob", "all blobs"):
        names = {path.name for path in left.glob("blobs/??/*")}
        assert 0 < len(names) <= len({row[0] for row in rows(left / "veil.sqlite")["loose"]})
        assert names <= {row[0] for row in rows(left / "veil.sqlite")["loose"]}, "a sweep may delete them"
        assert {row[1] for row in rows(left / "veil.sqlite")["loose"]} == {"came"}, "not before they might be named"
        assert [rows(left / "veil.sqlite")[name] for name in TABLES] == [[]] * len(TABLES)
    for suffix, data in (("damaged0", b"no database" * 999), ("empty000", b"")):
        other = left.with_name(f".again.{suffix}.veil.part")
        other.mkdir()
        (other / "veil.sqlite").write_bytes(data)
    stranger = left.with_name(left.name.replace("again", "other"))
    stranger.mkdir()
    restore(backup, folder)
    assert held(folder) == held(service.folder) and folder.stat().st_mode & 0o777 == 0o700
    assert beside(folder) == [] and stranger.is_dir()
    Service(folder).close()


@pytest.mark.slow
def test_one_that_was_killed_in_its_place_is_whole(service: Service, backup: Path, tmp_path: Path) -> None:
    """Killed when it had its place and was about to remove what an earlier one left: it is complete, and not made again."""
    folder = tmp_path / "again"
    killed("one blob", backup, folder)
    killed("in its place", backup, folder)
    assert held(folder) == held(service.folder) and len(beside(folder)) == 1
    with pytest.raises(InputError, match="in use"):
        restore(backup, folder)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["one blob", "all blobs"])
def test_what_a_killed_restore_wrote_to_a_bucket_is_used(
    point: str, buckets: Buckets, service: Service, backup: Path, tmp_path: Path
) -> None:
    """Oracle: the store's id beside the blobs is that of the killed one. Without what it left, the bucket is a stranger's."""
    folder, settings = tmp_path / "again", ServerSettings(blobs=f"{buckets.make(f'again-{point[:3]}')}/veil")
    killed(point, backup, folder, settings.blobs)
    (left,) = beside(folder)
    store = dict(rows(left / "veil.sqlite")["facts"])["store"]
    with pytest.raises(FileFormatError, match="missing beside the blobs of a store"):
        restore(backup, tmp_path / "other", settings)
    assert not (tmp_path / "other").exists() and beside(tmp_path / "other") == []
    restore(backup, folder, settings)
    assert beside(folder) == [] and dict(rows(folder / "veil.sqlite")["facts"])["store"] == store
    restarted = Service(folder, settings)
    assert restarted.records.blobs.owner() == store
    assert {restarted.records.blobs.get(name) for name in restarted.records.blobs.names()} == held(service.folder)[1]
    restarted.close()


def test_an_error_leaves_nothing_but_what_was_there(backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full at the second blob: no folder, and what a killed restore left stays until one succeeds."""
    left = tmp_path / ".again.earlier0.veil.part"
    left.mkdir()
    put, count = FolderBlobs.put, [0]

    def full(self: FolderBlobs, data: bytes) -> str:
        count[0] += 1
        if count[0] == 2:
            raise InputError("no space left")
        return put(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(FolderBlobs, "put", full)
        with pytest.raises(InputError, match="no space"):
            restore(backup, tmp_path / "again")
    assert not (tmp_path / "again").exists() and beside(tmp_path / "again") == [left]


def test_a_damaged_backup_is_refused_before_anything_is_written(
    backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: other bytes in a blob that no row names, which copying alone would not read. Twin: before the damage."""
    file = BackupFile.open(backup)
    file.add(blob_name(b"of an old version"), b"of an old version")
    restore(backup, tmp_path / "whole")
    file.connection.execute("UPDATE blobs SET data = ? WHERE name = ?", [b"others", blob_name(b"of an old version")])
    file.close()
    monkeypatch.setattr(FolderBlobs, "put", None)
    with pytest.raises(FileFormatError, match="damaged"):
        restore(backup, tmp_path / "again")
    assert not (tmp_path / "again").exists() and beside(tmp_path / "again") == []


def test_a_backup_of_another_version_is_refused_and_left_alone(backup: Path, tmp_path: Path) -> None:
    file = BackupFile.open(backup)
    file.connection.execute("UPDATE facts SET value = '99' WHERE name = 'version'")
    file.close()
    before = backup.read_bytes()
    with pytest.raises(FileFormatError, match="tables of version 99"):
        restore(backup, tmp_path / "again")
    assert not (tmp_path / "again").exists() and backup.read_bytes() == before


def test_of_a_later_state_only_deletions_come(service: Service, backup: Path, tmp_path: Path) -> None:
    """Planted: one message of one map is deleted, and that map has new files and a new message, which the backup does not hold;
    a token is new.

    Oracle, by the definition: the map is made again from the messages that the backup holds; nothing of the other map changes,
    and a message that leaves goes on to leave.
    """
    door, hall = service.records.all()
    gone = next(item for item in service.records.contributions(door.id) if item.state == "mapped")
    left_out = next(item for item in service.records.contributions(door.id) if item.state == "left out")
    before = {row[0]: row for row in rows(service.folder / "veil.sqlite")["maps"]}
    with service.database.transaction() as transaction:
        deletion_receipt(transaction, gone, by=gone.token, why="asked", more={})
        transaction.run("DELETE FROM contributions WHERE id = :id", id=gone.id)
        new, leaving = (
            add_contribution(transaction, door, token=gone.token, digest=blob_name(data), size_bytes=3, facts={})
            for data in (b"new", b"leaving since")
        )
        set_state(transaction, leaving.id, "leaving")
    service.tokens.make("since", ["contribute"])
    change(service, door, {"points": b"new points"})
    change(service, hall, {"points": b"new points of the hall"})
    counts = restore(backup, tmp_path / "again", newer=service.folder / "veil.sqlite")
    assert counts == {"maps": 2, "contributions": 3 + 3, "tokens": 3}
    after = rows(tmp_path / "again" / "veil.sqlite")
    maps, items = ({row[0]: row for row in after[name]} for name in ("maps", "contributions"))
    assert maps[hall.id] == before[hall.id]
    assert maps[door.id][4:] == (before[door.id][4] + 2, "{}", "{}"), "a version of its own, without files"
    assert gone.id not in items and new.id not in items
    states = {row[0]: row[6:8] for row in items.values() if row[1] == door.id}
    assert states.pop(left_out.id) == ("pending", "") and states.pop(leaving.id) == ("leaving", "")
    assert list(states.values()) == [("leaving", "why leaving")]
    assert sorted(row[6] for row in items.values() if row[1] == hall.id) == ["leaving", "left out", "mapped"]
    assert [row[1:5] for row in after["jobs"]] == [(door.id, "update", "", "queued")]
    Service(tmp_path / "again").close()


def test_a_later_state_is_that_of_one_moment(
    service: Service, backup: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the server that is read deletes something between two reads. The receipts of before that are restored."""
    (first, second, *_) = service.records.contributions()
    follow = restoring.follow

    def delete(item: Contribution) -> None:
        with service.database.transaction() as transaction:
            deletion_receipt(transaction, item, by=item.token, why="asked", more={})

    def late(*given: Any) -> None:
        delete(second)
        follow(*given)

    delete(first)
    monkeypatch.setattr(restoring, "follow", late)
    restore(backup, tmp_path / "again", newer=service.folder / "veil.sqlite")
    assert len(rows(tmp_path / "again" / "veil.sqlite")["receipts"]) == 1
    assert len(rows(service.folder / "veil.sqlite")["receipts"]) == 2


def test_a_later_state_is_one_of_the_same_server(service: Service, backup: Path, tmp_path: Path) -> None:
    """Planted: no database, one of a server without a token of this one or with other receipts, and an earlier state."""
    (tmp_path / "text").write_text("no database" * 999)
    other = Service(tmp_path / "other")
    other.tokens.make("owner", ["contribute"])
    other.close()
    (item, *_) = service.records.contributions()
    with service.database.transaction() as transaction:
        deletion_receipt(transaction, item, by=item.token, why="asked", more={})
    later = write_backup(service, tmp_path / "later").path
    for base, newer, told in (
        (backup, tmp_path / "none", "no such file"),
        (backup, tmp_path / "text", "no database of a veil server"),
        (backup, tmp_path / "other" / "veil.sqlite", "of another server"),
        (later, backup, "end before"),
        (later, tmp_path / "other" / "veil.sqlite", "its receipts are others"),
    ):
        states = base.read_bytes(), newer.read_bytes() if newer.exists() else b""
        with pytest.raises((InputError, FileFormatError), match=told):
            restore(base, tmp_path / "again", newer=newer)
        assert (base.read_bytes(), newer.read_bytes() if newer.exists() else b"") == states
    assert not (tmp_path / "again").exists() and beside(tmp_path / "again") == []
    assert restore(backup, tmp_path / "again", newer=later)["contributions"] == 6
    assert len(rows(tmp_path / "again" / "veil.sqlite")["receipts"]) == 1
