"""Every writer of veil in scenarios that are killed at each of their writes; which scenario covers which writer.

| scenario | writers |
| --- | --- |
| open | database, notes of the store (storage.json, store.json of blobs and tiles), the probe in a bucket |
| contribute | blobs, rows |
| map | work of jobs (messages, mapper's files, the new map), matches, blobs, cache of versions, growth, a query |
| remove | work, matches that are forgotten, the old version's blobs and cache, a backup that follows |
| rebuild | a map that is made anew |
| drop | everything of a map, a backup that follows |
| backup | a backup, and its journal |
| restore | a new store from a backup |
| import | a map from outside, adopt |
| tiles | served tiles, three versions of them with the exit by one server, and their end |
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from veil.files.service import blobs
from veil.files.tiles import write_tiles
from veil.server import deletion
from veil.server.maps.records import MapRecords
from veil.server.service import Service
from veil.tiles.cutting import CutOptions, cut
from worlds.kill_checks import finished, needles
from worlds.kill_clients import CLIENTS, Client
from worlds.kill_servers import Place, Server
from worlds.killing import Ended, Point, Snapshots, forked, killed_at, points_of
from worlds.tile_streets import street


def tiles_in(folder: Path) -> tuple[Path, ...]:
    """Three versions of tiles of a street."""
    folders = []
    for number in range(3):
        made = cut(street("kills", cameras=20 + number).scene, CutOptions(tile_bytes=4000, words=8, asked=3))
        folders.append(folder / str(number))
        write_tiles(folders[-1], made)
    return tuple(folders)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Steps of a server that are killed, after others that are not.

    - `before`, `killed`: steps of `Server`; a number is that of a message, and N of the last one.
    - `of`: the store that is looked at in the end.
    """

    name: str
    before: tuple[str, ...] = ()
    killed: tuple[str, ...]
    of: str = "store"

    def prepare(self, place: Place) -> dict[str, list[str]]:
        """Do what is not killed; returns bytes, as hex, of each contribution in maps and matches."""
        if not self.before:
            return {}
        server = Server(place)
        server.run(self.steps(self.before, len(place.messages) - 1))
        return {name: [part.hex() for part in parts] for name, parts in needles(server).items()}

    def act(self, place: Place) -> None:
        """Do what is killed."""
        Server(place).run(self.steps(self.killed, len(place.messages) - 1))

    def finish(self, place: Place, ending: str) -> list[str]:
        """Faults after a kill and one of `ENDINGS`."""
        return finished(place, self.steps(self.killed, len(place.messages) - 1), ending, self.of)

    def steps(self, which: tuple[str, ...], last: int) -> list[str]:
        """Steps with the numbers of messages."""
        every = [f"contribute {number}" for number in range(last + 1)]
        known = {
            "contribute all": every,
            "contribute most": every[:-1],
            "contribute N": [every[-1]],
            "delete N": [f"delete {last}"],
        }
        return [step for item in which for step in known.get(item, [item])]


_MAPPED = ("open", "contribute all", "work", "query")
SCENARIOS = (
    Scenario(name="open", killed=("open", "contribute 0")),
    Scenario(
        name="contribute", before=("open", "contribute 0"), killed=("contribute 1", "contribute 2", "delete 1", "delete 0")
    ),
    Scenario(name="map", before=("open", "contribute most"), killed=("work", "contribute N", "work", "query", "sweep")),
    Scenario(name="remove", before=(*_MAPPED, "backup"), killed=("delete 0", "work", "follow", "sweep")),
    Scenario(name="rebuild", before=_MAPPED, killed=("rebuild", "query")),
    Scenario(name="drop", before=(*_MAPPED, "backup"), killed=("drop", "follow")),
    Scenario(
        name="backup", before=("open", "contribute most", "work", "contribute N"), killed=("backup", "delete N", "follow")
    ),
    Scenario(name="restore", before=(*_MAPPED, "backup"), killed=("restore",), of="restored"),
    Scenario(name="import", before=(*_MAPPED, "export"), killed=("adopt", "import", "query")),
    Scenario(name="tiles", before=("open",), killed=("serve 0", "serve 1", "serve 2", "unserve")),
)


class World:
    """A scenario in one form on one kind of storage, prepared once and killed as often as wanted."""

    def __init__(self, scenario: Scenario | Client, place: Place) -> None:
        self.scenario, self.place = scenario, place
        self._snapshots = Snapshots(place.root)
        self._prepare()
        self._snapshots.take()
        self._acknowledged = place.acks.read_text()
        self._objects = place.objects.all() if place.objects else {}

    def _prepare(self) -> None:
        shutil.rmtree(self.place.root, ignore_errors=True)
        self.place.root.mkdir(parents=True)
        self.place.acks.write_text("")
        if self.place.objects:
            self.place.objects.have({})
        if self.place.postgres:
            self.place.postgres.empty(self.place.schema)
        self.place.beside("planted").write_text(json.dumps(forked(self.scenario.prepare, self.place)))

    def put_back(self) -> None:
        """Have the store be as it was before it was killed; of PostgreSQL there is no copy, so that it is made again."""
        if self.place.postgres:
            self._prepare()
            return
        self._snapshots.put_back()
        self.place.acks.write_text(self._acknowledged)
        if self.place.objects:
            self.place.objects.have(self._objects)

    def points(self) -> list[Point]:
        """All points of the scenario."""
        self.put_back()
        return points_of(self.scenario.act, self.place, root=self.place.root)

    def kill(self, number: int, half: bool, ending: str) -> tuple[Ended, list[str]]:
        """The end of the killed process, and the faults after it."""
        self.put_back()
        ended = killed_at(number, half, self.scenario.act, self.place, root=self.place.root)
        if ended.error:
            return ended, [f"wrong: it failed: {_last(ended.error)}"]
        try:
            return ended, forked(self.scenario.finish, self.place, ending)
        except RuntimeError as error:
            return ended, [f"wrong: it does not go on: {_last(str(error))}"]


def _last(error: str) -> str:
    """The last place and the message of a traceback."""
    lines = [line.strip() for line in error.strip().splitlines()]
    places = [line for line in lines if line.startswith("File")]
    return f"{lines[-1]} ({places[-1] if places else 'nowhere'})"


def keep_leftovers() -> None:
    """A broken twin: blobs that are deleted without what a kill left of them."""
    blobs.clear_leftovers = lambda *_, **__: 0


def receipts_first() -> None:
    """A broken twin: receipts that are written before the bytes go."""
    clear, drop = deletion.clear_map, MapRecords.drop_unused

    def later(service: Service, map_id: str, *, leaving: Collection[str] = ()) -> None:
        if not leaving:
            clear(service, map_id)

    def not_yet(self: MapRecords, digests: Iterable[str], *, leaving: Collection[str] = ()) -> int:
        return 0 if leaving else drop(self, digests)

    deletion.clear_map = later
    MapRecords.drop_unused = not_yet  # type: ignore[method-assign]


TWINS = {"keep-leftovers": keep_leftovers, "receipts-first": receipts_first}
EVERY: tuple[Scenario | Client, ...] = (*SCENARIOS, *CLIENTS)
