"""The tables of the service, in SQL that SQLite and PostgreSQL both read, their version, and statements on them."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from veil.errors import FileFormatError, Remedy

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


# Version of the tables below, kept in the database. No other one is read.
# In `loose`: blobs that nothing names, and that this database knows to be its own. Only these are ever deleted (`blob_use`).
VERSION = 3
SCHEMA = """
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
CREATE TABLE backups (
    id TEXT PRIMARY KEY, path TEXT NOT NULL, created DOUBLE PRECISION NOT NULL, receipts BIGINT NOT NULL
);
CREATE TABLE loose (name TEXT PRIMARY KEY, why TEXT NOT NULL, map TEXT NOT NULL, marked DOUBLE PRECISION);
"""
# Tables whose rows come and go; a receipt stays.
CHANGING = ("facts", "tokens", "usage", "maps", "contributions", "jobs", "backups", "loose")


def make_tables(statements: Statements) -> None:
    """Make the tables of this version."""
    for statement in SCHEMA.split(";"):
        if statement.strip():
            statements.run(statement)
    statements.run("INSERT INTO facts (name, value) VALUES ('version', :version)", version=str(VERSION))


def require_version(statements: Statements, place: str) -> None:
    """Raise FileFormatError unless the tables at `place` are of this version."""
    row = statements.one("SELECT value FROM facts WHERE name = 'version'")
    if row is None or not str(row["value"]).isdecimal():
        raise FileFormatError(f"{place} does not say its version", remedy=Remedy("restore", "backup"))
    if int(row["value"]) != VERSION:
        raise FileFormatError(
            f"{place} has tables of version {row['value']}, and this veil reads version {VERSION} alone",
            facts={"version": int(row["value"]), "reads": VERSION},
            remedy=Remedy("install", "the veil that wrote it"),
        )
