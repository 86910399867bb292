"""Stores of contributions that nobody looked at, whose databases and blobs are exchanged, emptied and put back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from veil.errors import FileFormatError
from veil.files.service.blobs import OWNER, FolderBlobs
from veil.server.deletion import sweep
from veil.server.maps.contributions import add_contribution
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.storage import open_parts

STARTS = 10


@dataclass(frozen=True)
class StoreWorld:
    """A store under test: `settings` of its storage, `folder` of its server."""

    settings: ServerSettings
    folder: Path

    def start(self, **other: Any) -> Service:
        return Service(self.folder, replace(self.settings, **other))

    def swept(self, times: int = STARTS) -> list[str]:
        """The refusals of `times` starts with a sweep each, with blobs as old as after a week."""
        told = []
        for _ in range(times):
            try:
                service = self.start()
            except FileFormatError as error:
                told.append(str(error))
                continue
            try:
                sweep(service)
            except FileFormatError as error:
                told.append(str(error))
            service.close()
        return told


def fill(service: Service, count: int, start: int = 0) -> set[str]:
    """Contributions that nobody looked at, of which the sweep does not ask more than their names."""
    record = next(iter(service.records.all()), None) or service.records.make("lobby", MapPolicy())
    names = set()
    for number in range(start, start + count):
        data = b"message %d" % number
        names.add(digest := service.records.keep(data))
        with service.database.transaction() as transaction:
            add_contribution(transaction, record, token="t0", digest=digest, size_bytes=len(data), facts={"form": "words"})
    return names


def held(world: StoreWorld) -> set[str]:
    parts = open_parts(world.folder, world.settings, anew=True)
    try:
        return set(parts.blobs.names())
    finally:
        parts.database.close()


def forgets(service: Service, names: set[str]) -> None:
    """Have a database be as it was before some messages came, as a backup of it that is put back: no row names them."""
    with service.database.transaction() as transaction:
        for name in names:
            transaction.run("DELETE FROM contributions WHERE digest = :name", name=name)
            transaction.run("DELETE FROM loose WHERE name = :name", name=name)


def drop_note(blobs: Any) -> None:
    """Delete what says to which store blobs belong."""
    if isinstance(blobs, FolderBlobs):
        (blobs.folder / OWNER).unlink()
    else:
        blobs._drop(OWNER)
