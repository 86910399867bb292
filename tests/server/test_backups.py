"""Backups: complete or not there, checked before they are restored, and without what clients deleted since."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from veil.errors import FileFormatError, InputError
from veil.server import backups
from veil.server.backups import TABLES, forget_backup, known_backups, update_backups, write_backup
from veil.server.deletion import clear_map
from veil.server.maps.contributions import Contribution, add_contribution, set_state
from veil.server.maps.policy import MapPolicy
from veil.server.maps.receipts import deletion_receipt
from veil.server.maps.records import map_in, put_version
from veil.server.restoring import restore
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store.blob_use import blobs_in, loosen
from worlds.servers import running

PLANTED = b"planted bytes of a message " * 20


def planted_map(version: int) -> bytes:
    """Planted bytes of a version of the map."""
    return b"planted bytes of version %d " % version * 20


@pytest.fixture(params=["folder", pytest.param("shared", marks=pytest.mark.slow)])
def settings(request: pytest.FixtureRequest) -> ServerSettings:
    return ServerSettings() if request.param == "folder" else request.getfixturevalue("shared_settings")


@pytest.fixture
def service(settings: ServerSettings, tmp_path: Path) -> Iterator[Service]:
    """A server with two maps, made by hand: three messages, of which the first is planted, and a version of each map."""
    service = Service(tmp_path / "store", settings)
    token, _ = service.tokens.make("owner", ["contribute"])
    for name in ("first", "second"):
        record = service.records.make(name, MapPolicy())
        for message in (PLANTED, b"another", bytes(range(256)) * 300):
            digest = service.records.blobs.put(message)
            with service.database.transaction() as rows:
                item = add_contribution(rows, record, token=token.id, digest=digest, size_bytes=len(message), facts={})
                set_state(rows, item.id, "mapped")
        new_version(service, record.id)
    yield service
    service.close()


def new_version(service: Service, map_id: str, gone: Contribution | None = None) -> None:
    """Replace a map's version, and delete a contribution with it, as jobs do."""
    record = service.map_record(map_id)
    version = record.version + 1
    data = {"sparse/points.bin": planted_map(version), "descriptors.h5": b"of version %d of %s" % (version, map_id.encode())}
    files = {name: service.records.blobs.put(value) for name, value in data.items()}
    with service.database.transaction() as rows:
        present = map_in(rows, map_id)
        assert present is not None
        put_version(rows, present, files, {"models": [{"images": 3, "points": version}]})
        if gone is not None:
            deletion_receipt(rows, gone, by=gone.token, why="asked", more={})
            rows.run("DELETE FROM contributions WHERE id = :id", id=gone.id)
            loosen(rows, [gone.digest], "left")
    clear_map(service, map_id)
    service.records.drop_unused([] if gone is None else [gone.digest])


def planted_in(service: Service) -> list[Contribution]:
    """The contributions of the planted message, one of each map."""
    digest = hashlib.sha256(PLANTED).hexdigest()
    return [item for item in service.records.contributions() if item.digest == digest]


def contents(service: Service) -> tuple[dict[str, list[tuple]], dict[str, bytes]]:
    """All rows but those of `backups`, and all blobs that they name."""
    with service.database.transaction() as transaction:
        rows = {name: sorted(tuple(row.values()) for row in transaction.all(f"SELECT * FROM {name}")) for name in TABLES}
        names = blobs_in(transaction)
    rows.pop("backups")
    return rows, {name: service.records.blobs.get(name) for name in names}


def restored(path: Path, folder: Path, **more: Any) -> tuple[dict[str, list[tuple]], dict[str, bytes]]:
    """Rows and blobs of a backup that is restored into a folder."""
    restore(path, folder, **more)
    service = Service(folder)
    try:
        return contents(service)
    finally:
        service.close()


def test_what_is_restored_is_what_was_there(service: Service, tmp_path: Path) -> None:
    """Inverse pair, from each storage into a folder."""
    backup = write_backup(service, tmp_path / "b" / "one.backup")
    assert backup.path.stat().st_mode & 0o777 == 0o600 and [backup] == known_backups(service) and backup.behind == 0
    assert restored(backup.path, tmp_path / "again") == contents(service)
    assert (tmp_path / "again").stat().st_mode & 0o777 == 0o700
    assert sorted(path.name for path in tmp_path.glob("b/*")) == ["one.backup"]
    with pytest.raises(InputError, match="exists"):
        write_backup(service, backup.path)


@pytest.mark.slow
def test_a_small_server_moves_to_shared_storage(tmp_path: Path, shared_settings: ServerSettings) -> None:
    """A backup of a folder is restored into PostgreSQL and a bucket, once: they must be empty."""
    service = Service(tmp_path / "small")
    service.tokens.make("owner", ["admin"])
    record = service.records.make("door", MapPolicy())
    with service.database.transaction() as transaction:
        put_version(transaction, record, {"a": service.records.blobs.put(b"of the map")}, {})
    backup = write_backup(service, tmp_path / "file")
    restore(backup.path, tmp_path / "grown", shared_settings)
    grown = Service(tmp_path / "grown", shared_settings)
    assert contents(grown) == contents(service)
    for each in (grown, service):
        each.close()
    with pytest.raises(InputError, match="holds a server"):
        restore(backup.path, tmp_path / "second", shared_settings)
    assert not (tmp_path / "second").exists()


@pytest.mark.planted
def test_what_is_deleted_is_deleted_from_backups(service: Service, tmp_path: Path) -> None:
    """Planted bytes of the message and of the map's version: in the file before, nowhere after. Broken twin: a copy of it."""
    backup = write_backup(service, tmp_path / "one.backup")
    copy = shutil.copy(backup.path, tmp_path / "copy.backup")
    first, second = planted_in(service)
    new_version(service, first.map_id, first)
    assert known_backups(service)[0].behind == 1
    assert update_backups(service) == 0
    # The other map still has the message and its first version.
    assert PLANTED in backup.path.read_bytes() and planted_map(1) in backup.path.read_bytes()
    new_version(service, second.map_id, second)
    assert update_backups(service) == 0 and known_backups(service)[0].behind == 0
    data = backup.path.read_bytes()
    assert PLANTED not in data and planted_map(1) not in data and planted_map(2) in data
    assert sorted(path.name for path in tmp_path.glob("*backup*")) == ["copy.backup", "one.backup"], "and no journal"
    assert PLANTED in Path(copy).read_bytes()
    assert restored(backup.path, tmp_path / "again") == contents(service)
    assert forget_backup(service, backup.id) and not forget_backup(service, backup.id) and known_backups(service) == []


def test_other_maps_keep_their_state_of_then(service: Service, tmp_path: Path) -> None:
    """A deletion brings its own map to the present, and no other: a backup is there to go back to."""
    backup = write_backup(service, tmp_path / "one.backup")
    first, second = planted_in(service)
    new_version(service, second.map_id)
    new_version(service, first.map_id, first)
    update_backups(service)
    rows, _ = restored(backup.path, tmp_path / "again")
    versions = {row[0]: row[4] for row in rows["maps"]}
    assert versions == {first.map_id: 2, second.map_id: 1}


def test_a_backup_that_is_out_of_reach_is_told_and_made_up_for(
    service: Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backup = write_backup(service, tmp_path / "one.backup")
    backup.path.rename(tmp_path / "elsewhere")
    (first, _) = planted_in(service)
    new_version(service, first.map_id, first)
    assert update_backups(service) == 1 and known_backups(service)[0].behind == 1
    assert "does not follow 1 deletions yet" in caplog.text
    other = write_backup(service, tmp_path / "two.backup")
    shutil.copy(other.path, backup.path)
    assert update_backups(service) == 1, "another backup lies where it was"
    (tmp_path / "elsewhere").rename(backup.path)
    assert update_backups(service) == 0 and {item.behind for item in known_backups(service)} == {0}


def test_a_copy_is_restored_with_the_deletions_of_a_later_state(service: Service, tmp_path: Path) -> None:
    """Contributions deleted and tokens revoked since are absent; the map is made again from the messages that are left."""
    token = service.tokens.all()[0]
    backup = write_backup(service, tmp_path / "one.backup")
    copy = Path(shutil.copy(backup.path, tmp_path / "copy.backup"))
    first, second = planted_in(service)
    new_version(service, first.map_id, first)
    service.tokens.revoke(token.id)
    later = write_backup(service, tmp_path / "later.backup")
    rows, blobs = restored(copy, tmp_path / "again", newer=later.path)
    present, _ = contents(service)
    assert rows["receipts"] == present["receipts"] != [] and rows["tokens"] == present["tokens"]
    assert {row[0] for row in rows["contributions"]} == {row[0] for row in present["contributions"]}
    files = {row[0]: row[5] for row in rows["maps"]}
    assert files[first.map_id] == "{}" and files[second.map_id] != "{}"
    assert [row[1:3] for row in rows["jobs"]] == [(first.map_id, "update")]
    assert len(blobs) == len(set(blobs)) and PLANTED in blobs.values(), "the second map still has it"
    # A state that does not go on from the backup is another server's, or an earlier one.
    other = Service(tmp_path / "other")
    other.tokens.make("x", ["admin"])
    other.close()
    for wrong, told in ((tmp_path / "other" / "veil.sqlite", "another server"), (tmp_path / "none", "no such file")):
        with pytest.raises((InputError, FileFormatError), match=told):
            restore(copy, tmp_path / "third", newer=wrong)
    with pytest.raises(InputError, match="end before"):
        restore(later.path, tmp_path / "third", newer=copy)
    assert not (tmp_path / "third").exists()


def test_damage_and_folders_in_use_are_refused(tmp_path: Path) -> None:
    """Any byte of a blob, and a file that ends early; nothing is left where it would have been restored."""
    service = Service(tmp_path / "store")
    record = service.records.make("door", MapPolicy())
    with service.database.transaction() as transaction:
        put_version(transaction, record, {"a": service.records.blobs.put(PLANTED), "b": service.records.blobs.put(b"")}, {})
    path = write_backup(service, tmp_path / "one.backup").path
    service.close()
    data = path.read_bytes()
    where = data.index(PLANTED) + 30
    (tmp_path / "text").write_text("no backup" * 1000)
    for wrong in (data[:where] + b"X" + data[where + 1 :], data[: len(data) // 2], b"", (tmp_path / "text").read_bytes()):
        (tmp_path / "wrong").write_bytes(wrong)
        with pytest.raises(FileFormatError):
            restore(tmp_path / "wrong", tmp_path / "again")
    with pytest.raises(FileFormatError, match="no backup"):
        restore(tmp_path / "store" / "veil.sqlite", tmp_path / "again")
    with pytest.raises(FileFormatError, match="no such file"):
        restore(tmp_path / "none", tmp_path / "again")
    with pytest.raises(InputError, match="in use"):
        restore(path, tmp_path / "store")
    assert sorted(item.name for item in tmp_path.iterdir() if "again" in item.name) == []
    (tmp_path / "empty").mkdir()
    assert restore(path, tmp_path / "empty") == {"maps": 1, "contributions": 0, "tokens": 0}


def test_a_backup_that_fails_is_not_there(service: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the very end: no file, and the server does not wait for one."""

    def full(path: Path) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(backups, "write_rows", lambda *given: full(tmp_path))
        with pytest.raises(InputError, match="No space left"):
            write_backup(service, tmp_path / "b" / "one.backup")
    assert list(tmp_path.glob("b/*")) == [] and known_backups(service) == []


@pytest.mark.slow
def test_a_killed_backup_leaves_nothing_that_stays(tmp_path: Path) -> None:
    """The file of a killed backup holds messages and no server lists it: the next backup there, or a sweep, deletes it.

    The process is killed in the midst of it, when the blobs are in the file. Broken twin: a file that is still written stays.
    """
    service = Service(tmp_path / "store")
    service.tokens.make("owner", ["contribute"])
    record = service.records.make("door", MapPolicy())
    with service.database.transaction() as transaction:
        put_version(transaction, record, {"a": service.records.blobs.put(PLANTED)}, {})
    code = (
        "import os, sys; from pathlib import Path; from veil.server import backups; from veil.server.service import Service\n"
        "backups.write_rows = lambda *given: os.kill(os.getpid(), 9)\n"
        "backups.write_backup(Service(Path(sys.argv[1])), Path(sys.argv[2]))"
    )
    killed = subprocess.run([sys.executable, "-c", code, tmp_path / "store", tmp_path / "b" / "killed"])
    assert killed.returncode == -9
    (left,) = [path for path in (tmp_path / "b").iterdir() if PLANTED in path.read_bytes()]
    assert left.stat().st_mode & 0o077 == 0 and known_backups(service) == []
    write_backup(service, tmp_path / "b" / "one")
    assert left.exists(), "it may still be written"
    os.utime(left, (0, 0))
    update_backups(service)
    assert sorted(path.name for path in (tmp_path / "b").iterdir() if "journal" not in path.name) == ["one"]
    service.close()


@pytest.mark.slow
def test_a_backup_of_a_server_that_changes_is_consistent(service: Service, tmp_path: Path) -> None:
    """While maps are replaced all the time: every blob is there, and a version's files are all of one version."""
    stop, other = threading.Event(), Service(service.folder, service.settings)
    maps = [record.id for record in service.records.all()]

    def change() -> None:
        number = 0
        while not stop.is_set():
            new_version(other, maps[number % 2])
            number += 1
            stop.wait(0.01)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        paths = [write_backup(service, tmp_path / f"{number}.backup").path for number in range(3)]
    finally:
        stop.set()
        thread.join()
        other.close()
    seen = set()
    for number, path in enumerate(paths):
        rows, blobs = restored(path, tmp_path / f"again{number}")
        for row in rows["maps"]:
            version = row[4]
            assert planted_map(version) in blobs.values()
            assert b"of version %d of %s" % (version, row[0].encode()) in blobs.values()
            seen.add(version)
    assert len(seen) > 1, "it changed meanwhile"


@pytest.mark.slow
@pytest.mark.planted
def test_a_running_server_deletes_from_its_backups(tmp_path: Path) -> None:
    """A contribution that is deleted over HTTP is gone from the file soon after, and nobody asked for that."""
    service = Service(tmp_path / "store", ServerSettings(workers=1, map_workers=1))
    record = service.records.make("door", MapPolicy())
    token = service.tokens.make("owner", ["contribute"])[0]
    digest = service.records.blobs.put(PLANTED)
    with service.database.transaction() as transaction:
        item = add_contribution(transaction, record, token=token.id, digest=digest, size_bytes=len(PLANTED), facts={})
    path = write_backup(service, tmp_path / "one.backup").path
    assert PLANTED in path.read_bytes()
    with running(service) as server:
        # At once, or by a job where the server has just begun to enter it into its map.
        assert server.ask("DELETE", f"/v1/contributions/{item.id}").status in (200, 202)
        for _ in range(400):
            if PLANTED not in path.read_bytes() and not known_backups(service)[0].behind:
                break
            time.sleep(0.05)
    assert PLANTED not in path.read_bytes()
