"""A PostgreSQL server of the tests' own, in a folder that is thrown away, reached by a socket."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from urllib.parse import quote

# Debian keeps what only administrators call out of PATH.
PLACES = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
_schemas = count(1)


def missing() -> str:
    """Why there is no PostgreSQL for tests, empty if there is one."""
    try:
        import psycopg
    except ImportError:
        return "psycopg is not installed"
    assert psycopg
    if _program("initdb") is None or _program("pg_ctl") is None:
        return "initdb and pg_ctl of PostgreSQL are not here (Debian: postgresql)"
    if os.geteuid() == 0 and _other_user() is None:
        return "PostgreSQL does not run as root, and there is no user postgres or nobody"
    return ""


@dataclass(frozen=True)
class Postgres:
    """A running server: `folder` holds its socket and its data."""

    folder: Path

    def url(self, schema: str | None = None) -> str:
        """The address of a schema without tables, or of one that was made before."""
        import psycopg

        if schema is None:
            schema = f"s{next(_schemas)}"
            with psycopg.connect(host=str(self.folder), dbname="postgres", user="veil") as connection:
                connection.execute(f"CREATE SCHEMA {schema}")
        return f"postgresql://veil@/postgres?host={quote(str(self.folder), safe='')}&options=-csearch_path%3D{schema}"

    def empty(self, schema: str) -> None:
        """Have a schema be there without tables."""
        import psycopg

        with psycopg.connect(self.url("public"), autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
            connection.execute(f"CREATE SCHEMA {schema}")

    def control(self, action: str, *more: str) -> None:
        """Run pg_ctl: start it, or stop it."""
        given = ["-o", f"-c listen_addresses='' -c fsync=off -k {self.folder}"] if action == "start" else []
        _run("pg_ctl", "-D", self.data, "-l", self.folder / "log", "-w", *given, *more, action)

    @property
    def data(self) -> Path:
        """Where its files are."""
        return self.folder / "data"

    def held(self, planted: bytes) -> list[str]:
        """Files of tables and indexes that hold some bytes, after what is in memory was written."""
        import psycopg

        with psycopg.connect(self.url("public"), autocommit=True) as connection:
            connection.execute("CHECKPOINT")
        paths = [path for path in self.data.joinpath("base").rglob("*") if path.is_file()]
        return [path.name for path in paths if planted in path.read_bytes()]


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """A server that nothing else uses; PostgreSQL refuses to run as root, so that it runs as another user there."""
    # pytest's own folders are closed to other users, and the path of a socket has a hundred characters at most.
    server = Postgres(Path(tempfile.mkdtemp(prefix="veil-pg-", dir="/tmp")))
    try:
        user = _other_user()
        if user is not None:
            shutil.chown(server.folder, user)
        _run("initdb", "-D", server.data, "-A", "trust", "-U", "veil", "-E", "UTF8", "--locale=C", "--no-sync")
        server.control("start")
        try:
            yield server
        finally:
            server.control("stop", "-m", "immediate")
    finally:
        shutil.rmtree(server.folder, ignore_errors=True)


def _program(name: str) -> str | None:
    return shutil.which(name, path=os.pathsep.join([*map(str, PLACES), os.environ.get("PATH", "")]))


def _other_user() -> str | None:
    """Who runs the server if the tests run as root."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in ("postgres", "nobody") if name in names), None)


def _run(program: str, *arguments: object) -> None:
    path = _program(program)
    assert path is not None
    user = _other_user()
    given: dict[str, object] = {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}
    # The server keeps what it is given as output open, so that this is no pipe.
    with tempfile.TemporaryFile() as said:
        done = subprocess.run([path, *map(str, arguments)], cwd="/", stdout=said, stderr=said, **given)  # type: ignore[call-overload]
        said.seek(0)
        assert done.returncode == 0, said.read().decode(errors="replace")
