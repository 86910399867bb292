"""A server's life in steps that may be killed, what its clients do then, and what must be and must not be in its store."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from veil.files.service.served_tiles import add_served, remove_served, served_names
from veil.server.backups import update_backups, write_backup
from veil.server.deletion import sweep
from veil.server.maps.policy import MapPolicy
from veil.server.restoring import restore
from veil.server.runner import Runner
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store import blob_use
from veil.server.store.identity import TILES, adopt
from worlds.planted_bytes import Objects, digest
from worlds.postgres import Postgres

# Endings of a store after a kill: its client sends again what was not acknowledged; nobody comes, and an hour goes by; the
# map is deleted at once; or one contribution is, before anything goes on.
ENDINGS = ("sent again", "an hour later", "map deleted", "one deleted")


class SameProcess:
    """A stand-in for a pool's processes that runs their tasks in this process, so that their writes count."""

    def call(
        self,
        task: Callable[..., Any],
        *given: Any,
        deadline_s: float = 0.0,
        whose: str = "",
        tell: Any = None,
        proceed: Any = None,
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

    # Acknowledged steps.

    def known(self) -> list[dict[str, Any]]:
        """Acknowledged steps, in order."""
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

    # A start, and time that goes by.

    def starts(self) -> None:
        """Do the first turn of a started server. The lease of a killed server is over."""
        with self.service.database.transaction() as transaction:
            transaction.run("UPDATE jobs SET lease = 0 WHERE state = 'running'")
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
