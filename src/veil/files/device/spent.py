"""Decoy photographs in the ledger's file: each serves one release, ever, as two uploads that share one meet in its features.

A file of its own: the ledger counts releases, and this counts what they used up.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence

from veil.errors import ReleaseRefused, Remedy

TABLE = """CREATE TABLE IF NOT EXISTS spent (
    photograph TEXT NOT NULL, image_digest TEXT NOT NULL, message_digest TEXT NOT NULL
)"""


def insert_spent(connection: sqlite3.Connection, image_digest: str, message_digest: str, photographs: Sequence[str]) -> None:
    """Note the photographs (digests, hex) that gave the decoys of a release."""
    rows = [(photograph, image_digest, message_digest) for photograph in photographs]
    connection.executemany("INSERT INTO spent (photograph, image_digest, message_digest) VALUES (?, ?, ?)", rows)


def unusable(connection: sqlite3.Connection) -> set[str]:
    """Digests (hex) of photographs that may not serve as decoys: those that did, and those that were released themselves."""
    spent = connection.execute("SELECT photograph FROM spent UNION SELECT image_digest FROM releases")
    return {str(row[0]) for row in spent}


def spent_on(connection: sqlite3.Connection, image_digest: str) -> list[str]:
    """Digests (hex) of the photographs that gave the decoys of an image's first release; empty if decoys were of a pool.

    Releases that were drawn afresh do not count.
    """
    rows = connection.execute(
        "SELECT s.photograph, s.message_digest FROM spent s JOIN releases r ON r.image_digest = s.image_digest "
        "AND r.message_digest = s.message_digest WHERE s.image_digest = ? AND r.fresh = 0 ORDER BY s.rowid",
        (image_digest,),
    ).fetchall()
    return [str(photograph) for photograph, message in rows if message == rows[0][1]]


def require_unspent(connection: sqlite3.Connection, image_digest: str, name: str, photographs: Collection[str]) -> None:
    """Raise ReleaseRefused if the image gave decoys to another one, or a photograph may not serve it."""
    if connection.execute("SELECT 1 FROM spent WHERE photograph = ?", (image_digest,)).fetchone():
        raise ReleaseRefused(
            f"{name} gave the decoys of an earlier release, which holds its descriptors; the two uploads would meet in them",
            remedy=Remedy("allow", "Device.release.allow_second"),
        )
    own = {str(row[0]) for row in connection.execute("SELECT photograph FROM spent WHERE image_digest = ?", (image_digest,))}
    taken = (set(photographs) - own) & unusable(connection)
    if taken:
        raise ReleaseRefused(
            f"{len(taken)} decoy photographs of {name} were released, or used by another release, at the same time; nothing "
            "was released, try again"
        )
