"""A folder of an older version is brought up to this one, whole or not at all, and a newer one is refused."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest

from veil.errors import FileFormatError
from veil.files.blobs import FolderBlobs
from veil.server.service import Service
from veil.server.store import schema
from veil.server.store.database import SqliteDatabase
from veil.server.store.schema import STEPS, VERSION

# A server's database of version 1 with a map, a contribution, a job and a receipt, as `sqlite3.Connection.iterdump` wrote it.
DUMP = Path(__file__).with_name("version_1.sql")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of version 1."""
    connection = sqlite3.connect(tmp_path / "veil.sqlite")
    connection.executescript(DUMP.read_text())
    connection.close()
    blobs = FolderBlobs(tmp_path / "blobs")
    for digest in set(re.findall("[0-9a-f]{64}", DUMP.read_text())):  # those of blobs among them
        path = blobs.path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path


def rows(path: Path) -> dict[str, list[tuple]]:
    """All rows of all tables."""
    connection = sqlite3.connect(path)
    try:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {name: sorted(connection.execute(f"SELECT * FROM {name}")) for name in tables}
    finally:
        connection.close()


def columns(path: Path) -> dict[str, list[str]]:
    """Names of the columns of all tables."""
    connection = sqlite3.connect(path)
    try:
        return {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in rows(path)}
    finally:
        connection.close()


def test_a_folder_of_version_1_serves_as_before(folder: Path) -> None:
    """Every row is as it was, the tables are those of a new folder, and the service reads them. Golden: the frozen dump."""
    before = rows(folder / "veil.sqlite")
    service = Service(folder)
    assert service.tokens.admit("veil_a-secret-of-version-1", "admin").name == "administrator"
    (record,) = service.records.all()
    assert record.name == "lobby" and record.version == 1
    (item,) = service.records.contributions(record.id)
    assert item.state == "mapped" and service.receipts.head() != "" and service.jobs.of_map(record.id)[0].state == "queued"
    service.close()
    after = rows(folder / "veil.sqlite")
    for name in ("maps", "contributions", "jobs", "receipts", "tokens"):
        assert after[name] == before[name] != []
    assert after["facts"] == [("store", service.store), ("version", str(VERSION))] and before["facts"] == [("version", "1")]
    SqliteDatabase(folder / "new.sqlite").close()
    assert columns(folder / "veil.sqlite") == columns(folder / "new.sqlite")
    assert list(folder.glob("*.version-*")) == []


def test_an_upgrade_that_fails_leaves_everything_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second statement of a step fails: the first has no effect, and a copy lies there until it succeeds."""
    before = rows(folder / "veil.sqlite")
    with monkeypatch.context() as patch:
        patch.setitem(schema.STEPS, 1, "DELETE FROM contributions; DELETE FROM no_such_table")
        with pytest.raises(FileFormatError, match=r"veil.sqlite.version-1 is a copy"):
            SqliteDatabase(folder / "veil.sqlite")
    assert rows(folder / "veil.sqlite") == before == rows(folder / "veil.sqlite.version-1")
    assert (folder / "veil.sqlite.version-1").stat().st_mode & 0o077 == 0
    SqliteDatabase(folder / "veil.sqlite").close()
    assert rows(folder / "veil.sqlite")["facts"] == [("version", str(VERSION))]
    assert not (folder / "veil.sqlite.version-1").exists(), "it would keep what is deleted later"


@pytest.mark.parametrize(("version", "told"), [("99", "update veil"), ("0", "does not say"), ("x", "does not say")])
def test_other_versions_are_refused_and_left_alone(folder: Path, version: str, told: str) -> None:
    connection = sqlite3.connect(folder / "veil.sqlite")
    with connection:
        connection.execute("UPDATE facts SET value = ?", [version])
    connection.close()
    before = rows(folder / "veil.sqlite")
    with pytest.raises(FileFormatError, match=told):
        SqliteDatabase(folder / "veil.sqlite")
    assert rows(folder / "veil.sqlite") == before


def test_each_version_has_its_step() -> None:
    assert sorted(STEPS) == list(range(1, VERSION))
