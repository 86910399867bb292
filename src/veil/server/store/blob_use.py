"""Which blobs a server's rows name, and which of the others may be deleted: those that this database knows to be its own.

Nothing is deleted because nothing names it. A blob becomes *loose* by a row of the database: before it is written, as it may
never be named, and when what named it goes. A blob without a row and without a name is of another database, or of a later
state of this one: it stays (docs/reference/service.md#one-store).
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable
from typing import Literal

from veil.errors import Remedy, StorageTrouble
from veil.files.service.blobs import Blobs
from veil.server.store.database import Database
from veil.server.store.schema import Statements

# Why a blob is loose: it "came" and was not named yet, it "left" with what named it, or it was "adopted" unnamed.
Why = Literal["came", "left", "adopted"]
# Seconds for which a loose blob must have been marked, in a store that was whole, before a sweep deletes it.
MARKED_S = {"came": 600.0, "left": 0.0, "adopted": 86400.0}
# A sweep that would delete more than this share of all blobs that came, and more than `FEW`, stops.
SHARE, FEW = 0.25, 20
# So many blobs are deleted within a transaction, for which everybody waits.
MANY = 20


def blobs_in(statements: Statements) -> set[str]:
    """Names of the blobs that maps and contributions use."""
    return files_in(statements) | {row["digest"] for row in statements.all("SELECT DISTINCT digest FROM contributions")}


def needed_in(statements: Statements) -> set[str]:
    """Names of the blobs that must be there: those in use, but for messages of contributions that are leaving."""
    rows = statements.all("SELECT DISTINCT digest FROM contributions WHERE state <> 'leaving'")
    return files_in(statements) | {row["digest"] for row in rows}


def files_in(statements: Statements) -> set[str]:
    """Names of the blobs that are files of maps."""
    return {digest for row in statements.all("SELECT files FROM maps") for digest in json.loads(row["files"]).values()}


def loosen(statements: Statements, names: Iterable[str], why: Why, map_id: str = "") -> None:
    """Note blobs as loose, within the transaction after which nothing names them, or before they are written.

    `map_id`: of the map that they are of, or came for; empty where that is not known.
    """
    for name in sorted(set(names)):
        statements.run(
            "INSERT INTO loose (name, why, map, marked) VALUES (:name, :why, :map, NULL) "
            "ON CONFLICT (name) DO UPDATE SET why = excluded.why, map = excluded.map, marked = NULL",
            name=name,
            why=why,
            map=map_id,
        )


def fasten(statements: Statements, names: Iterable[str]) -> None:
    """Note blobs as loose no more, within the transaction that begins to name them."""
    for name in sorted(set(names)):
        statements.run("DELETE FROM loose WHERE name = :name", name=name)


def drop_loose(
    database: Database, blobs: Blobs, names: Iterable[str], *, leaving: Collection[str] = (), forgets: bool = True
) -> int:
    """Delete those blobs that are loose and that nothing names, and return their number.

    Contributions whose ids are `leaving` do not count: their messages are deleted before their rows. Unless it `forgets`, they
    stay loose. Raises InputError or StorageTrouble if one cannot be deleted.
    """
    dropped, left = 0, sorted(set(names))
    for start in range(0, len(left), MANY):
        # Within the transaction nobody else can start to use one of them.
        with database.transaction() as statements:
            part = set(left[start : start + MANY])
            part &= {
                row["name"] for name in part for row in statements.all("SELECT name FROM loose WHERE name = :name", name=name)
            }
            for name in sorted(part - files_in(statements)) if part else ():
                rows = statements.all("SELECT id FROM contributions WHERE digest = :digest", digest=name)
                if all(row["id"] in leaving for row in rows):
                    blobs.delete(name)
                    dropped += 1
                    if forgets and not rows:
                        fasten(statements, [name])
    return dropped


def drop_loose_of(database: Database, blobs: Blobs, map_id: str, *, leaving: Collection[str] = ()) -> None:
    """Delete the loose blobs of a map, as `drop_loose` says, also those that came and that nothing names yet.

    Whoever is giving one of these writes it once more before it is named, so that it stays loose.
    """
    with database.transaction() as statements:
        rows = statements.all("SELECT name, why FROM loose WHERE map = :map", map=map_id)
    for came in (False, True):
        names = [row["name"] for row in rows if (row["why"] == "came") == came]
        drop_loose(database, blobs, names, leaving=leaving, forgets=not came)


def sweep_loose(database: Database, blobs: Blobs, *, now: float | None = None) -> int:
    """Mark loose blobs, delete those that were marked for long enough, and return the number of those.

    Raises StorageTrouble if it would delete a larger share of all blobs than is plausible.
    """
    now = time.time() if now is None else now
    with database.transaction() as statements:
        fasten(statements, blobs_in(statements) & {row["name"] for row in statements.all("SELECT name FROM loose")})
        # A mark of later than now was made before the clock was set back.
        statements.run("UPDATE loose SET marked = :now WHERE marked IS NULL OR marked > :now", now=now)
        rows = statements.all("SELECT name, why, map, marked FROM loose ORDER BY name")
        present = {"", *(row["id"] for row in statements.all("SELECT id FROM maps"))}
    # Of a map that is gone nothing can be named any more.
    gone = [row["name"] for row in rows if row["map"] not in present]
    over = [row for row in rows if now - row["marked"] >= MARKED_S.get(row["why"], MARKED_S["adopted"])]
    came = [row["name"] for row in over if row["why"] == "came" and row["map"] in present]
    dropped = drop_loose(database, blobs, [*gone, *(row["name"] for row in over if row["why"] != "came")])
    if len(came) > FEW and len(came) > SHARE * (total := sum(1 for _ in blobs.names())):
        raise StorageTrouble(
            f"the sweep stops: {len(came)} of {total} blobs came and nothing names them",
            remedy=Remedy("adopt", "server's store"),
        )
    return dropped + drop_loose(database, blobs, came)


def unnamed_in(database: Database, blobs: Blobs) -> list[str]:
    """Blobs that nothing names and that this database does not know, sorted: they are kept."""
    there = list(blobs.names())  # first: what is written meanwhile is known before
    with database.transaction() as statements:
        known = blobs_in(statements) | {row["name"] for row in statements.all("SELECT name FROM loose")}
    return sorted(name for name in set(there) - known if blobs.has(name))
