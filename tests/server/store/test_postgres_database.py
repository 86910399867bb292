"""PostgreSQL: it goes away and returns, hangs are bounded, deleted rows are in no statistics, and errors tell no secret."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from veil.errors import FileFormatError, InputError, StorageTrouble
from veil.server.access.tokens import Quota, Tokens
from worlds.postgres import Postgres, missing, running_postgres

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=missing() or "PostgreSQL is here")]
if not missing():
    import psycopg

    from veil.server.store import postgres as postgres_database
    from veil.server.store.postgres import PostgresDatabase


@pytest.fixture
def own() -> Iterator[Postgres]:
    """A server that may be stopped."""
    with running_postgres() as postgres:
        yield postgres


def test_a_database_that_goes_away_and_returns(own: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """Away: a clear error at once. Back: the next transaction works, and what was committed is there."""
    monkeypatch.setattr(postgres_database, "AWAY_S", 0.2)
    database = PostgresDatabase(own.url())
    tokens = Tokens(database)
    made, secret = tokens.make("robot", ["localize"])
    own.control("stop", "-m", "immediate")
    begun = time.monotonic()
    for _ in range(5):
        with pytest.raises(StorageTrouble, match="cannot be"):
            tokens.admit(secret, "localize")
    assert time.monotonic() - begun < 5
    own.control("start")
    time.sleep(0.3)
    assert tokens.admit(secret, "localize") == made
    # Restarted between two transactions, nobody sees anything.
    own.control("stop", "-m", "fast")
    own.control("start")
    assert tokens.admit(secret, "localize") == made
    with pytest.raises(StorageTrouble), database.transaction() as transaction:
        transaction.run("INSERT INTO facts (name, value) VALUES ('half', 'x')")
        own.control("stop", "-m", "immediate")
        own.control("start")
        transaction.run("INSERT INTO facts (name, value) VALUES ('other half', 'x')")
    time.sleep(0.3)
    with database.transaction() as transaction:
        assert transaction.all("SELECT name FROM facts WHERE name LIKE '%half'") == []
    database.close()


def test_a_server_that_hangs_holds_nobody_up_for_ever(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """One server stops within a transaction: others are told to come again; PostgreSQL ends its transaction in the end."""
    monkeypatch.setattr(postgres_database, "PATIENCE_S", 0.4)
    monkeypatch.setattr(postgres_database, "IDLE_S", 1.2)
    url = postgres.url()
    hung, other = PostgresDatabase(url), PostgresDatabase(url)
    with pytest.raises(StorageTrouble), hung.transaction() as transaction:
        begun = time.monotonic()
        with pytest.raises(StorageTrouble, match="cannot be used now"), other.transaction():
            pass
        # Another thread of the server that hangs waits as long.
        refused: list[StorageTrouble] = []

        def wait() -> None:
            try:
                with hung.transaction():
                    pass
            except StorageTrouble as error:
                refused.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        thread.join()
        assert "busy" in str(refused[0]) and time.monotonic() - begun >= 0.8
        time.sleep(0.6)
        with other.transaction() as rows:
            rows.run("INSERT INTO facts (name, value) VALUES ('other', 'x')")
        transaction.run("INSERT INTO facts (name, value) VALUES ('late', 'x')")
    with hung.transaction() as transaction:
        assert [row["name"] for row in transaction.all("SELECT name FROM facts ORDER BY name")] == ["other", "version"]
    hung.close()
    other.close()


def test_an_error_that_a_block_keeps_to_itself_ends_the_transaction(postgres: Postgres) -> None:
    """PostgreSQL takes COMMIT for ROLLBACK then; the caller must not believe that anything was kept."""
    database = PostgresDatabase(postgres.url())
    with pytest.raises(RuntimeError, match="failed before"), database.transaction() as transaction:
        transaction.run("INSERT INTO facts (name, value) VALUES ('a', 'x')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            transaction.run("INSERT INTO facts (name, value) VALUES ('a', 'y')")
    with database.transaction() as transaction:
        assert transaction.one("SELECT name FROM facts WHERE name = 'a'") is None
        with pytest.raises(InputError, match="NUL"):
            transaction.one("SELECT name FROM facts WHERE name = :name", name="a\0b")
    database.close()


def test_large_numbers_fit(postgres: Postgres) -> None:
    """The largest quota comes back; SQLite's columns take any number, PostgreSQL's those of their type."""
    tokens = Tokens(PostgresDatabase(postgres.url()))
    quota = Quota(requests_per_minute=1 << 53, bytes_per_day=1 << 53)
    made, secret = tokens.make("x", ["localize"], quota=quota)
    assert tokens.admit(secret, "localize", body_bytes=1 << 40) == made and tokens.all()[0].quota == quota


def test_the_planners_samples_hold_no_row(postgres: Postgres) -> None:
    """ANALYZE, which PostgreSQL runs by itself, keeps common values of columns. Broken twin: its default keeps them."""
    for is_default in (False, True):
        url, planted = postgres.url(), f"planted-{is_default}-" + "xyz" * 40
        database = PostgresDatabase(url)
        with psycopg.connect(url, autocommit=True) as connection:
            if is_default:
                connection.execute("ALTER TABLE facts ALTER COLUMN value SET STATISTICS -1")
            for number in range(20):
                connection.execute("INSERT INTO facts (name, value) VALUES (%s, %s)", [str(number), planted])
            connection.execute("ANALYZE facts")
            connection.execute("DELETE FROM facts WHERE name <> 'version'")
        database.clear_log()
        assert bool(postgres.held(planted.encode())) == is_default
        database.close()


def test_clearing_that_was_put_off_is_made_up_for(postgres: Postgres) -> None:
    """Right after one clearing there is none, so that it holds nobody up; the sweep asks for what is left over."""
    database, planted = PostgresDatabase(postgres.url()), b"planted-later-" + b"xyz" * 40
    with database.transaction() as transaction:
        transaction.run("INSERT INTO facts (name, value) VALUES ('a', :value)", value=planted.decode())
    database.clear_log()
    database._rest_until = time.monotonic() + 60
    with database.transaction() as transaction:
        transaction.run("DELETE FROM facts WHERE name = 'a'")
    database.clear_log()
    assert postgres.held(planted)
    database.clear_log(left_over=True)
    assert postgres.held(planted) == []
    database.close()


def test_rows_that_others_could_still_see_are_cleared(postgres: Postgres) -> None:
    """A server that has waited since before the deletion would keep the row: PostgreSQL's VACUUM leaves what it may see.

    The first deletes within its transaction; the second gets the lock next and stays a while, and the third still waits then.
    """
    url, planted = postgres.url(), "planted-seen-" + "xyz" * 40
    first, second, third = (PostgresDatabase(url) for _ in range(3))
    with first.transaction() as transaction:
        transaction.run("INSERT INTO facts (name, value) VALUES ('a', :value)", value=planted)

    def stay(database: PostgresDatabase) -> None:
        with database.transaction():
            time.sleep(0.3)

    threads = [threading.Thread(target=stay, args=(database,)) for database in (second, third)]
    with first.transaction() as transaction:
        transaction.run("DELETE FROM facts WHERE name = 'a'")
        for thread in threads:
            thread.start()
            time.sleep(0.1)
    first.clear_log()
    assert postgres.held(planted.encode()) == []
    for thread in threads:
        thread.join()
    for database in (first, second, third):
        database.close()


def test_slips_tell_no_password(postgres: Postgres) -> None:
    for url in (
        "postgresql://veil:a-secret@host:port:9/x",
        "postgresql://veil:a-secret@127.0.0.1:1/x",
        f"postgresql://veil:a-secret@/missing?host={postgres.folder}",
    ):
        with pytest.raises(InputError) as refused:
            PostgresDatabase(url)
        chain = [refused.value, refused.value.__cause__, refused.value.__context__]
        assert "a-secret" not in str(refused.value) and chain[1] is None
    other = postgres.url()
    with psycopg.connect(other, autocommit=True) as connection:
        connection.execute("CREATE TABLE jobs (a int)")
    with pytest.raises(FileFormatError, match="something else"):
        PostgresDatabase(other)
