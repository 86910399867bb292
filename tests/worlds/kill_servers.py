"""A server's life in steps that may be killed, what its clients do then, and what must be and must not be in its store."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veil.files.map_folders import model_folders
from veil.files.maps import read_map
from veil.files.served_tiles import add_served, remove_served, served_names
from veil.server import blob_use
from veil.server.backups import update_backups, write_backup
from veil.server.blob_use import blobs_in
from veil.server.policy import MapPolicy
from veil.server.restoring import restore
from veil.server.runner import Runner
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store_identity import TILES, adopt
from veil.server.sweeping import sweep
from worlds.planted_bytes import Objects, digest, held_in, of_maps, of_matches, places_of, told_apart
from worlds.postgres import Postgres
from worlds.servers import NOTES

# What becomes of a store after a kill: its client sends again what was not acknowledged; nobody comes, and an hour goes by; the
# map is deleted at once; or one contribution is, before anything goes on.
ENDINGS = ("sent again", "an hour later", "map deleted", "one deleted")
# Names of files that a store without contributions and maps may have.
DATABASE = {"veil.sqlite", "veil.sqlite-shm", "veil.sqlite-wal"}


class SameProcess:
    """What a pool's processes do, in this one, so that their writes count."""

    def call(
        self, task: Callable[..., Any], *given: Any, deadline_s: float = 0.0, tell: Any = None, proceed: Any = None
    ) -> Any:
        """The result of a task."""
        try:
            return task(*given, tell or (lambda *_: None))
        finally:
            tempfile.tempdir = None

    def kill(self) -> None:
        """There is no process."""

    close = kill


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a store under test lies.

    - `root`: the folder whose writes count: it holds `store/`, `backups/` and `restored/`.
    - `objects`: of the bucket; None for a store in a folder.
    - `postgres`: whose schema of the name of the root's folder is the database; None: it is in the folder.
    - `messages`: of one `form`, in order; `tiles`: folders of tiles to serve.
    """

    root: Path
    form: str
    objects: Objects | None
    postgres: Postgres | None
    messages: tuple[bytes, ...]
    tiles: tuple[Path, ...]

    @property
    def acks(self) -> Path:
        """Beside the root, a line for each step that was acknowledged to whoever asked for it."""
        return self.beside("acks")

    def beside(self, name: str) -> Path:
        """A file or folder beside the root, whose writes do not count."""
        return self.root.with_name(f"{self.root.name}.{name}")

    def settings(self, *, of: str = "store") -> ServerSettings:
        """Settings of a server."""
        blobs = f"s3://{self.objects.bucket}/{self.objects.prefix}/{of}" if self.objects else ""
        database = "" if self.postgres is None else self.postgres.url(self.schema)
        return ServerSettings(workers=1, map_workers=1, blobs=blobs, database=database)

    @property
    def schema(self) -> str:
        """Of the tables in PostgreSQL."""
        return "kills_" + self.root.parent.name.replace("-", "_")


class Server:
    """A server in this process, with the steps that its clients and administrator do."""

    def __init__(self, place: Place, *, of: str = "store") -> None:
        self.place, self.of = place, of
        self.service = Service(place.root / of, place.settings(of=of))
        self.service.pool = SameProcess()  # type: ignore[assignment]
        self._runner = Runner(self.service)
        self._runner._process = SameProcess()  # type: ignore[assignment]

    # What was acknowledged before.

    def known(self) -> list[dict[str, Any]]:
        """What was acknowledged, in order."""
        return [json.loads(line) for line in self.place.acks.read_text().splitlines()]

    def id_of(self, number: int) -> str:
        """The server's name of a message."""
        step = f"contribute {number}"
        return next((item["id"] for item in self.known() if item["step"] == step), "")

    def number_of(self, name: str) -> int:
        """The number of the message of a contribution."""
        sha = next(item.digest for item in self.service.records.contributions() if item.id == name)
        return next(number for number, message in enumerate(self.place.messages) if digest(message) == sha)

    def run(self, steps: Sequence[str]) -> None:
        """Do steps, and note each one that was acknowledged."""
        for step in steps:
            name, *numbers = step.split()
            told = getattr(self, f"do_{name}")(*map(int, numbers))
            with self.place.acks.open("a") as stream:
                stream.write(json.dumps({"step": step, "id": told}) + "\n")

    # Steps.

    def do_open(self) -> None:
        """An administrator's token, and an empty map."""
        if not self.service.tokens.all():
            self.service.tokens.make("owner", ["admin"])
        if not self.service.records.all():
            self.service.records.make("lobby", MapPolicy(least_profile="any"))

    def do_contribute(self, number: int) -> str:
        return self.service.contribute(self.token, self.map, self.place.messages[number])[0].id

    def do_delete(self, number: int) -> None:
        self.service.delete(self.token, self.id_of(number))

    def do_work(self) -> None:
        while self._runner.work_once() is not None:
            pass

    def do_query(self) -> None:
        self.service.localize(self.token, self.map, self.place.messages[-1])

    def do_rebuild(self) -> None:
        self.service.queue(self.map, "rebuild", self.token.id)
        self.do_work()

    def do_backup(self) -> None:
        path = self.place.root / "backups" / "one.backup"
        if not path.exists():
            write_backup(self.service, path)

    def do_follow(self) -> None:
        update_backups(self.service)

    def do_sweep(self) -> None:
        sweep(self.service)

    def do_drop(self) -> None:
        for record in self.service.records.all():
            self.service.delete_map(self.token, record.id)

    def do_restore(self) -> None:
        restore(self.place.root / "backups" / "one.backup", self.place.root / "restored", self.place.settings(of="restored"))

    def do_adopt(self) -> None:
        adopt(self.service._parts, write=True)

    def do_import(self) -> None:
        if len(self.service.records.all()) < 2:
            kept = self.place.beside("exported")
            self.service.import_map("imported", kept)

    def do_serve(self, number: int) -> None:
        add_served(self.service.folder / TILES, "street", self.place.tiles[number], localizations=2)

    def do_unserve(self) -> None:
        if served_names(self.service.folder / TILES):
            remove_served(self.service.folder / TILES, "street")

    def do_export(self) -> None:
        folder = self.service.version_folder(self.service.map_record(self.map))
        assert folder is not None
        kept = self.place.beside("exported")
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(folder, kept)

    @property
    def token(self) -> Any:
        return self.service.tokens.all()[0]

    @property
    def map(self) -> str:
        return self.service.records.all()[0].id

    # What a start does, and time that goes by.

    def starts(self) -> None:
        """What the first turn of a started server does; the lease of a killed one is over."""
        with self.service.database.transaction() as found:
            found.run("UPDATE jobs SET lease = 0 WHERE state = 'running'")
        sweep(self.service)
        self.do_work()
        self.do_follow()

    def an_hour_later(self) -> None:
        """A start when all that was written is an hour old."""
        blob_use.MARKED_S["came"] = 0.0
        for path in [*self.place.root.rglob("*")]:
            then = time.time() - 3600
            os.utime(path, (then, then), follow_symlinks=False)
        sweep(self.service)
        self.starts()


def needles(server: Server) -> dict[str, list[bytes]]:
    """By id of each contribution, bytes of it in matches and in the present maps."""
    found: dict[str, list[bytes]] = {}
    service = server.service
    for record in service.records.all():
        parts = [of_matches(service.folder / "matches" / record.id)]
        folder = service.version_folder(record) if record.files else None
        parts += [] if folder is None else [of_maps(folder)]
        for part in parts:
            for name, listed in part.items():
                found.setdefault(name, []).extend(listed)
    return found


def receipts_of(server: Server) -> list[dict[str, Any]]:
    """The contents of all receipts."""
    with server.service.database.transaction() as found:
        return [json.loads(row["content"]) for row in found.all("SELECT content FROM receipts ORDER BY number")]


def deleted_and_there(server: Server, planted: dict[str, list[bytes]], *, backups: bool) -> list[str]:
    """What of contributions that have receipts is in the store all the same; in `backups` only when these had their turn."""
    present = {item.digest for item in server.service.records.contributions()}
    apart, faults = told_apart(list(server.place.messages)), []
    held = list(held_in(server.place.root, server.place.objects))
    for receipt in receipts_of(server):
        sha, name = receipt["message_sha256"], receipt["contribution"]
        if sha in present:
            continue
        number = next(i for i, message in enumerate(server.place.messages) if digest(message) == sha)
        files = [(path, data) for path, data in held if backups or not path.startswith("backups/one.backup")]
        faults += [
            f"left: bytes of a deleted message in {path}" for path in places_of(apart[number] + planted.get(name, []), files)
        ]
        named = [path for path in places_of([name.encode()], held) if "veil.sqlite" not in path and "one.backup" not in path]
        faults += [f"left: the name of a deleted contribution in {path}" for path in named]
    return faults


def not_found(server: Server, planted: dict[str, list[bytes]]) -> list[str]:
    """What the search misses of contributions that are there: what it does not find then, it would not find after deletion."""
    held, faults = list(held_in(server.place.root, server.place.objects)), []
    apart = told_apart(list(server.place.messages))
    for item in server.service.records.contributions():
        number = server.number_of(item.id)
        parts = [*apart[number], *(planted.get(item.id, []) if item.state == "mapped" else [])]
        missed = sum(not any(part in data for _, data in held) for part in parts)
        if missed or (item.state == "mapped" and not planted.get(item.id)):
            faults.append(f"wrong: the search misses {missed} of {len(parts)} planted parts of message {number}")
    return faults


def what_is_wrong(server: Server, attempted: Sequence[str], *, again: bool) -> list[str]:
    """What of the records is not as clients were told: lost, twice, or a job that did not end. `again`: all was sent again."""
    service, faults = server.service, []
    items = service.records.contributions()
    times = Counter(item.digest for item in items)
    receipts = Counter(item["contribution"] for item in receipts_of(server))
    acknowledged = {item["step"] for item in server.known()}
    dropped = "drop" in acknowledged or ("drop" in attempted and not service.records.all())
    for number, message in enumerate(server.place.messages):
        given, taken = f"contribute {number}", f"delete {number}"
        count = times[digest(message)]
        if count > 1:
            faults.append(f"twice: message {number} is there {count} times")
        if taken in acknowledged and count:
            faults.append(f"left: message {number} was deleted and is listed")
        gone = taken in attempted or dropped
        if given in acknowledged and not gone and not count:
            faults.append(f"lost: message {number} was acknowledged")
        name = server.id_of(number)
        if name and gone and not count and receipts[name] != 1:
            faults.append(f"{'twice' if receipts[name] else 'lost'}: message {number} is gone with {receipts[name]} receipts")
        if given in attempted and given not in acknowledged and again:
            faults.append(f"lost: message {number} was sent again and is not acknowledged")
    faults += [f"twice: {count} receipts of one contribution" for count in receipts.values() if count > 1]
    for item in items:
        if service.records.blobs.get(item.digest) not in server.place.messages:
            faults.append("lost: a message holds something else")
    return faults + wrong_jobs(server) + wrong_maps(server)


def wrong_jobs(server: Server) -> list[str]:
    """Jobs that did not end, or failed."""
    with server.service.database.transaction() as found:
        rows = found.all("SELECT kind, state, result FROM jobs")
    return [
        f"wrong: a job {row['kind']} is {row['state']}: {row['result']}"
        for row in rows
        if row["state"] not in ("done", "cancelled")
    ]


def wrong_maps(server: Server) -> list[str]:
    """Maps that hold an image twice, or another one than their contributions say."""
    faults, service = [], server.service
    for record in service.records.all():
        if not record.files or record.name == "imported":
            continue
        folder = service.version_folder(record)
        assert folder is not None
        names = [name for model in model_folders(folder) for name in read_map(model).images]
        mapped = {item.id for item in service.records.contributions(record.id) if item.state == "mapped"}
        if len(set(names)) != len(names) or set(names) != mapped:
            faults.append(
                f"wrong: the map holds {len(names)} images, {len(mapped)} are mapped, {len(mapped - set(names))} are not there"
            )
    return faults


def more_than_named(server: Server) -> list[str]:
    """Files of a store that nothing names, when an hour has gone by."""
    service = server.service
    with service.database.transaction() as found:
        named = blobs_in(found)
    versions = {f"cache/{record.id}/{record.version}" for record in service.records.all()}
    matches = {f"matches/{record.id}" for record in service.records.all()}
    faults = [f"left: a blob that nothing names ({name[:8]})" for name in service.records.blobs.names() if name not in named]
    for path in sorted(item for item in service.folder.rglob("*") if item.is_file()):
        name = path.relative_to(service.folder).as_posix()
        kept = name in NOTES | DATABASE or name.startswith(("tiles/", *versions, *matches)) or path.name in named
        if not kept or path.name.endswith(".part"):
            faults.append(f"left: {name}")
    for path in [*(server.place.root / "backups").glob(".*"), *server.place.root.glob(".*")]:
        faults.append(f"left: {path.relative_to(server.place.root)}")
    return faults


def finished(place: Place, attempted: Sequence[str], ending: str, of: str) -> list[str]:
    """What is wrong of a store after a kill in the steps `attempted`, and after all of it was deleted."""
    kept = json.loads(place.beside("planted").read_text())
    planted = {name: [bytes.fromhex(part) for part in parts] for name, parts in kept.items()}
    source = Server(place)
    if of != "store" and not (place.root / of).exists():
        source.run(attempted)
    server = source if of == "store" else Server(place, of=of)
    if server is not source:  # it holds the same
        source.do_drop()
        source.do_follow()
    faults = [f"{told}, before it goes on" for told in deleted_and_there(server, planted, backups=False)]
    if ending == "one deleted" and (name := next((item.id for item in server.service.records.contributions()), "")):
        attempted = [*attempted, f"delete {server.number_of(name)}"]
        server.service.delete(server.token, name)
        faults += [f"{told}, when one was deleted" for told in deleted_and_there(server, planted, backups=False)]
    server.starts()
    again = ending == "sent again"
    if again:
        left = Counter(attempted) - Counter(item["step"] for item in server.known())
        server.run(sorted(left.elements(), key=list(attempted).index))
        server.starts()
    if ending == "an hour later":
        server.an_hour_later()
        faults += more_than_named(server)
    faults += what_is_wrong(server, attempted, again=again)
    present = needles(server)
    for name, parts in present.items():
        planted.setdefault(name, []).extend(parts)
    faults += deleted_and_there(server, planted, backups=True) + not_found(server, present)
    for each in {id(server): server, id(source): source}.values():
        each.do_drop()
        each.do_follow()
    faults += [f"{told}, after its map was deleted" for told in nothing_left(server, planted)]
    server.an_hour_later()
    return faults + [f"{told}, after all was deleted" for told in more_than_named(server)]


def nothing_left(server: Server, planted: dict[str, list[bytes]]) -> list[str]:
    """Where bytes are of what was ever sent, when every map was deleted."""
    held = list(held_in(server.place.root, server.place.objects))
    wanted = [part for parts in (*told_apart(list(server.place.messages)), *planted.values()) for part in parts]
    counts = Counter(item["contribution"] for item in receipts_of(server)).values()
    faults = [f"twice: {count} receipts of one contribution" for count in counts if count > 1]
    return faults + [f"left: bytes in {path}" for path in places_of(wanted, held)]
