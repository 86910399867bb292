"""The tables of the service, in SQL that SQLite and PostgreSQL both read, and the steps from each version to the next."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from veil.errors import FileFormatError

Row = dict[str, Any]


@runtime_checkable
class Statements(Protocol):
    """Statements of one transaction; parameters are named `:name` in the text."""

    def all(self, sql: str, **values: object) -> list[Row]:
        """All rows that a query gives."""

    def one(self, sql: str, **values: object) -> Row | None:
        """The first row that a query gives, None without any."""

    def run(self, sql: str, **values: object) -> int:
        """Run a statement, and return the number of rows that it changed."""


# Version of the tables below, kept in the database; an older one is brought up to it when it is opened.
VERSION = 3
BACKUPS = """
CREATE TABLE backups (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, receipts BIGINT NOT NULL
);
"""
# Blobs that nothing names, and that this database knows to be its own: only these are ever deleted (`blob_use`).
LOOSE = """
CREATE TABLE loose (name TEXT PRIMARY KEY, why TEXT NOT NULL, map TEXT NOT NULL, marked DOUBLE PRECISION);
"""
SCHEMA = f"""
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE tokens (
    id TEXT PRIMARY KEY, digest TEXT NOT NULL UNIQUE, name TEXT NOT NULL, scopes TEXT NOT NULL, maps TEXT,
    requests_per_minute BIGINT NOT NULL, bytes_per_day BIGINT NOT NULL, created DOUBLE PRECISION NOT NULL,
    revoked DOUBLE PRECISION
);
CREATE TABLE usage (
    token TEXT NOT NULL, period TEXT NOT NULL, requests BIGINT NOT NULL, bytes BIGINT NOT NULL, PRIMARY KEY (token, period)
);
CREATE TABLE maps (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, policy TEXT NOT NULL, created DOUBLE PRECISION NOT NULL,
    version INTEGER NOT NULL, files TEXT NOT NULL, facts TEXT NOT NULL
);
CREATE TABLE contributions (
    id TEXT PRIMARY KEY, map TEXT NOT NULL, token TEXT NOT NULL, digest TEXT NOT NULL, bytes BIGINT NOT NULL,
    facts TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, received DOUBLE PRECISION NOT NULL,
    expires DOUBLE PRECISION, UNIQUE (map, token, digest)
);
CREATE INDEX contributions_by_digest ON contributions (digest);
CREATE TABLE jobs (
    id TEXT PRIMARY KEY, map TEXT NOT NULL, kind TEXT NOT NULL, token TEXT NOT NULL, state TEXT NOT NULL, step TEXT NOT NULL,
    done BIGINT NOT NULL, total BIGINT NOT NULL, result TEXT NOT NULL, worker TEXT NOT NULL, lease DOUBLE PRECISION NOT NULL,
    attempts INTEGER NOT NULL, created DOUBLE PRECISION NOT NULL, ended DOUBLE PRECISION
);
CREATE INDEX jobs_by_state ON jobs (state, created);
CREATE TABLE receipts (
    number INTEGER PRIMARY KEY, contribution TEXT NOT NULL, token TEXT NOT NULL, content TEXT NOT NULL,
    content_digest TEXT NOT NULL, digest TEXT NOT NULL
);
CREATE INDEX receipts_by_contribution ON receipts (contribution);
{BACKUPS}{LOOSE}"""
# What leads from a version to the next one; no step is edited once it was released.
STEPS: dict[int, str] = {1: BACKUPS, 2: LOOSE}
# Tables whose rows come and go; a receipt stays.
CHANGING = ("facts", "tokens", "usage", "maps", "contributions", "jobs", "backups", "loose")


def make_tables(found: Statements) -> None:
    """Make the tables of this version."""
    _run(found, SCHEMA)
    found.run("INSERT INTO facts (name, value) VALUES ('version', :version)", version=str(VERSION))


def version_in(found: Statements) -> int:
    """The version of the tables, 0 if they do not say it."""
    row = found.one("SELECT value FROM facts WHERE name = 'version'")
    return int(row["value"]) if row is not None and row["value"].isdecimal() else 0


def require_known(version: int, place: str) -> int:
    """A version that can be brought up to this one. Raises FileFormatError for a newer one, or none."""
    if version > VERSION:
        raise FileFormatError(f"{place} is of version {version}, this veil knows {VERSION}; update veil")
    if version < min(STEPS):
        raise FileFormatError(f"{place} does not say its version; restore it from a backup")
    return version


def upgrade(found: Statements, version: int) -> None:
    """Bring the tables of an older version up to this one, step by step, within the transaction of `found`."""
    for number in range(version, VERSION):
        _run(found, STEPS[number])
    found.run("UPDATE facts SET value = :version WHERE name = 'version'", version=str(VERSION))


def _run(found: Statements, text: str) -> None:
    for statement in text.split(";"):
        if statement.strip():
            found.run(statement)
