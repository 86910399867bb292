"""Does a server delete blobs by the word of a database that is not theirs, or older than they are?

    python lab/benchmarks/one_store.py --blobs 500 --starts 10

A store of `--blobs` contributions, in a folder and in PostgreSQL with a bucket that speaks S3 (started here; left out where
these are not installed), is started `--starts` times, each with a sweep, in each of these states: its database is new and
empty; it is that of another store; it lacks the rows of half of the blobs, as a backup or a snapshot that was put back, also
under a server that runs; the blobs' note of their store is gone. In the end contributions are deleted by a server that is
killed before it deletes their blobs, which the next sweep must do. Printed: a line for each, with how many starts were refused
and how many blobs were deleted, and a JSON line. Exit code 1 if a blob was deleted that should be there, or one is left that
should not.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from veil.server.deletion import sweep
from veil.server.settings import ServerSettings
from veil.server.store.blob_use import loosen
from worlds import buckets, postgres
from worlds.stores import StoreWorld, drop_note, fill, forgets, held


def main() -> int:
    """Print what became of the blobs of each store."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blobs", type=int, default=500, help="of each store (default %(default)s)")
    parser.add_argument("--starts", type=int, default=10, help="of a server in each state (default %(default)s)")
    arguments = parser.parse_args()
    logging.getLogger("veil.server").setLevel(logging.ERROR)
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veil-one-store-")))
        kinds = [Storage(name="folder")]
        if reason := postgres.missing() or buckets.missing():
            print(f"PostgreSQL with a bucket: {reason}")
        else:
            server = stack.enter_context(postgres.running_postgres())
            kinds.append(Storage(name="shared", server=server, bucket=stack.enter_context(buckets.running_buckets())))
        print(f"{'storage':8} {'state':44} {'refused':>8} {'deleted':>8} {'asked':>6} {'s':>6}")
        for number, kind in enumerate(kinds):
            for row in tried(kind, folder / str(number), arguments.blobs, arguments.starts):
                rows.append(row)
                print("{storage:8} {state:44} {refused:8d} {deleted:8d} {asked:6d} {seconds:6.1f}".format(**row), flush=True)
    wrong = sum(row["deleted"] != row["asked"] for row in rows)
    print(json.dumps({"blobs": arguments.blobs, "starts": arguments.starts, "states": len(rows), "wrong": wrong}))
    return int(wrong > 0)


@dataclass
class Storage:
    """Where stores are kept: a folder, or a PostgreSQL server and a bucket."""

    name: str
    server: Any = None
    bucket: Any = None
    made: int = field(default=0)

    def settings(self) -> ServerSettings:
        """Those of a new store."""
        self.made += 1
        if self.server is None:
            return ServerSettings(workers=1, map_workers=1)
        blobs = f"{self.bucket.make(f'veil-one-store-{self.made}')}/veil"
        return ServerSettings(workers=1, map_workers=1, database=self.server.url(), blobs=blobs)


def tried(kind: Storage, folder: Path, count: int, starts: int) -> Iterator[dict[str, Any]]:
    """Blobs of a store that are left in each state."""
    world = StoreWorld(settings=kind.settings(), folder=folder / "store")
    service = world.start()
    names = fill(service, count)
    service.close()
    other = StoreWorld(settings=kind.settings(), folder=folder / "other")
    stranger = other.start()
    fill(stranger, 5, start=count)
    stranger.close()
    states = {"a new, empty database": kind.settings().database, "the database of another store": other.settings.database}
    for state, address in states.items():
        exchange = exchanged(world, other if "another" in state else None, address)
        with measured(kind, state, world) as row, exchange as meanwhile:
            row["refused"] = len(meanwhile.swept(starts))
        yield row
    with measured(kind, "blobs without their store's note", world) as row:
        service = world.start()
        blobs: Any = service.records.blobs
        drop_note(blobs)
        service.close()
        row["refused"] = len(world.swept(starts))
        blobs.claim(service.store, anew=True)
    yield row
    for state in ("an older database, put back", "the same under a server that runs"):
        with measured(kind, state, world) as row:
            service = world.start()
            forgets(service, set(sorted(names)[: count // 2]))
            if "runs" in state:
                for _ in range(starts):
                    sweep(service)
            service.close()
            row["refused"] = 0 if "runs" in state else len(world.swept(starts))
        yield row
    with measured(kind, "a deletion that was killed before the blobs", world, asked=count - count // 2) as row:
        service = world.start()
        with service.database.transaction() as statements:
            digests = [item["digest"] for item in statements.all("SELECT digest FROM contributions")]
            statements.run("DELETE FROM contributions")
            loosen(statements, digests, "left")
        service.close()
        row["refused"] = len(world.swept(1))
    yield row


@contextmanager
def measured(kind: Storage, state: str, world: StoreWorld, *, asked: int = 0) -> Iterator[dict[str, Any]]:
    """A row of the table: how many blobs are gone after the block."""
    begun, before = time.perf_counter(), held(world)
    row: dict[str, Any] = {"storage": kind.name, "state": state, "asked": asked, "refused": 0}
    yield row
    row |= {"deleted": len(before - held(world)), "seconds": time.perf_counter() - begun}


@contextmanager
def exchanged(world: StoreWorld, other: StoreWorld | None, address: str) -> Iterator[StoreWorld]:
    """The store with another database: that of `other`, or a new one."""
    if address:  # a server with a folder of its own
        yield StoreWorld(settings=replace(world.settings, database=address), folder=world.folder.with_name(f"at-{id(address)}"))
        return
    own, kept = world.folder / "veil.sqlite", world.folder.with_name("kept.sqlite")
    own.rename(kept)
    if other is not None:
        own.write_bytes((other.folder / "veil.sqlite").read_bytes())
    yield world
    for path in world.folder.glob("veil.sqlite*"):
        path.unlink()
    kept.rename(own)


if __name__ == "__main__":
    sys.exit(main())
