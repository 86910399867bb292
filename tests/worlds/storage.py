"""The storage of a server: a folder, and PostgreSQL with a bucket where they are here; fixtures of `conftest`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from veil.server.settings import ServerSettings
from veil.server.store.database import Database, SqliteDatabase
from worlds import buckets as s3
from worlds import postgres as pg
from worlds.buckets import Buckets, running_buckets
from worlds.postgres import Postgres, running_postgres

_numbers = count(1)
KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]


@dataclass(frozen=True)
class DatabaseUnderTest:
    """A database that several may open at a time.

    - `open`: opens it once more.
    - `held`: the files of it that hold some bytes.
    """

    open: Callable[[], Database]
    held: Callable[[bytes], list[str]]


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server; tests skip without one."""
    if reason := pg.missing():
        pytest.skip(reason)
    with running_postgres() as postgres:
        yield postgres


@pytest.fixture(scope="session")
def buckets() -> Iterator[Buckets]:
    """An S3 server; tests skip without one."""
    if reason := s3.missing():
        pytest.skip(reason)
    with running_buckets() as buckets:
        yield buckets


@pytest.fixture(params=KINDS)
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DatabaseUnderTest]:
    """A database of each kind, closed after the test."""
    opened: list[Database] = []

    def kept(make: Callable[[], Any]) -> Callable[[], Database]:
        def open_one() -> Database:
            opened.append(make())
            return opened[-1]

        return open_one

    if request.param == "sqlite":
        folder = tmp_path / "database"

        def held(planted: bytes) -> list[str]:
            return [path.name for path in folder.iterdir() if planted in path.read_bytes()]

        yield DatabaseUnderTest(open=kept(lambda: SqliteDatabase(folder / "veil.sqlite")), held=held)
    else:
        from veil.server.store.postgres import PostgresDatabase

        server: Postgres = request.getfixturevalue("postgres")
        url = server.url()
        yield DatabaseUnderTest(open=kept(lambda: PostgresDatabase(url)), held=server.held)
    for database in opened:
        database.close()


@pytest.fixture
def shared_settings(postgres: Postgres, buckets: Buckets, tmp_path: Path) -> ServerSettings:
    """Settings of servers that share PostgreSQL and a bucket without anything in them."""
    address = buckets.make(f"veil-{next(_numbers)}")
    return ServerSettings(workers=1, map_workers=1, database=postgres.url(), blobs=f"{address}/veil")


@pytest.fixture
def database(databases: DatabaseUnderTest) -> Database:
    """A new database of each kind."""
    return databases.open()
