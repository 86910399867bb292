"""The databases: transactions of several threads and servers, deleted rows that are gone, and files of other kinds."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from veil.errors import FileFormatError
from veil.server.store.database import Database, SqliteDatabase
from veil.server.store.schema import VERSION, Row, require_version
from worlds.storage import DatabaseUnderTest


def test_a_transaction_is_whole_or_not_at_all(database: Database) -> None:
    with pytest.raises(RuntimeError), database.transaction() as transaction:
        transaction.run("INSERT INTO facts (name, value) VALUES ('a', 'b')")
        raise RuntimeError
    with database.transaction(durable=True) as transaction:
        assert transaction.one("SELECT * FROM facts WHERE name = 'a'") is None
        assert transaction.run("UPDATE facts SET value = value") == 1
    database.close()
    database.close()


def test_values_are_no_part_of_a_statement(database: Database) -> None:
    """Colons, percent signs and quotes in text and in values come back as they were."""
    strange = "it's :name, 100 % of %(name)s"
    with database.transaction() as transaction:
        transaction.run("INSERT INTO facts (name, value) VALUES ('a:b %s', :value)", value=strange)
        assert transaction.all("SELECT * FROM facts WHERE name LIKE 'a:b %'") == [{"name": "a:b %s", "value": strange}]


def test_threads_and_servers_add_up(databases: DatabaseUnderTest) -> None:
    """Second method: the sum of what each thread added; none reads between another's read and write."""
    servers = [databases.open(), databases.open()]
    with servers[0].transaction() as transaction:
        transaction.run("INSERT INTO facts (name, value) VALUES ('sum', '0')")

    def add(database: Database) -> None:
        for _ in range(25):
            with database.transaction() as rows:
                row = rows.one("SELECT value FROM facts WHERE name = 'sum'")
                assert row is not None
                rows.run("UPDATE facts SET value = :value WHERE name = 'sum'", value=str(int(row["value"]) + 1))

    threads = [threading.Thread(target=add, args=(database,)) for database in servers for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with servers[1].transaction() as transaction:
        assert transaction.one("SELECT value FROM facts WHERE name = 'sum'") == {"value": "200"}


def test_servers_that_start_at_once_make_the_tables_once(databases: DatabaseUnderTest) -> None:
    started: list[Row | None] = []

    def start() -> None:
        with databases.open().transaction() as transaction:
            require_version(transaction, "here")
            started.append(transaction.one("SELECT value FROM facts WHERE name = 'version'"))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert started == [{"value": str(VERSION)}] * 4


def test_a_server_that_starts_waits_for_one_that_makes_the_file(tmp_path: Path) -> None:
    """SQLite itself refuses at once to change the journal of a file that another one is about to write."""
    path = tmp_path / "veil.sqlite"
    path.touch()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with sqlite3.connect(path, timeout=30) as twin, pytest.raises(sqlite3.OperationalError, match="locked"):
        twin.execute("PRAGMA journal_mode = WAL")
    ending = threading.Timer(0.2, other.execute, ["COMMIT"])
    ending.start()
    with SqliteDatabase(path).transaction() as transaction:
        require_version(transaction, "here")
    ending.join()
    other.close()


@pytest.mark.planted
def test_what_is_deleted_is_gone_from_the_files(databases: DatabaseUnderTest) -> None:
    """Planted bytes are in the files before, and in none after the log is cleared."""
    database = databases.open()
    planted = "planted-" + "xyz" * 40
    with database.transaction(durable=True) as transaction:
        transaction.run("INSERT INTO facts (name, value) VALUES ('a', :value)", value=planted)
    database.clear_log()
    assert databases.held(planted.encode())
    with database.transaction(durable=True) as transaction:
        transaction.run("DELETE FROM facts WHERE name = 'a'")
    database.clear_log()
    database.clear_log(left_over=True)
    assert databases.held(planted.encode()) == []


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database at all, and long enough to be looked at" * 100)
    with sqlite3.connect(tmp_path / "other") as connection:
        connection.execute("CREATE TABLE something (a)")
    for name, told in (("text", "no database"), ("other", "something else")):
        with pytest.raises(FileFormatError, match=told):
            SqliteDatabase(tmp_path / name)


@pytest.mark.parametrize(
    ("version", "told", "remedy"),
    [
        ("99", "has tables of version 99, and this veil reads version 3 alone", "install the veil that wrote it"),
        ("1", "has tables of version 1, and this veil reads version 3 alone", "install the veil that wrote it"),
        ("x", "does not say its version", "restore the backup"),
    ],
)
def test_tables_of_another_version_are_refused_and_left_alone(
    databases: DatabaseUnderTest, version: str, told: str, remedy: str
) -> None:
    """Cause and remedy are told, and no row changes. Oracle: the version that is planted, beside today's number."""
    assert VERSION == 3
    one = databases.open()
    with one.transaction() as transaction:
        transaction.run("UPDATE facts SET value = :version WHERE name = 'version'", version=version)
    with pytest.raises(FileFormatError, match=told) as refused:
        databases.open()
    assert [str(item) for item in refused.value.remedy] == [remedy]
    with one.transaction() as transaction:
        assert transaction.all("SELECT value FROM facts WHERE name = 'version'") == [{"value": version}]
