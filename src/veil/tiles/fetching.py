"""Which tiles a device asks for: as many as all devices do, at once, whatever comes of it (docs/theory/tiles.md#fetching).

What is sent depends on nothing but the map, as the exit hides the indices and their number never changes. In particular nothing
is asked for again because it failed, or left out because it is kept: a fetch that is left out tells that the device stayed.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from veil.errors import InputError, RangeError, WireError
from veil.ldp.guarantee import FetchGuarantee
from veil.one_line import one_line
from veil.tiles import merkle
from veil.tiles.exits import Exit
from veil.tiles.manifest import Manifest
from veil.tiles.tile_format import Tile, decode_tile


@runtime_checkable
class TileCache(Protocol):
    """Fetched records that a device keeps, by the version of the map. Whoever reads it knows where the device was."""

    def get(self, version: str, index: int) -> bytes | None:
        """A kept record, or None."""
        ...

    def put(self, version: str, index: int, record: bytes) -> None:
        """Keep a record."""
        ...


@dataclass(kw_only=True, eq=False)
class MemoryCache:
    """Records in memory, of one version at a time."""

    _version: str = ""
    _records: dict[int, bytes] = field(default_factory=dict)

    def get(self, version: str, index: int) -> bytes | None:
        """A kept record, or None."""
        return self._records.get(index) if version == self._version else None

    def put(self, version: str, index: int, record: bytes) -> None:
        """Keep a record, and forget those of other versions."""
        if version != self._version:
            self._version, self._records = version, {}
        self._records[index] = record


@dataclass(frozen=True, kw_only=True, eq=False)
class Fetched:
    """Result of one fetch.

    - `tiles`: those of the wanted tiles that are what the manifest says.
    - `refused`: what was wrong with wanted tiles, by index, also where a kept one could stand in. Tell the user, and never the
      server: whoever changed a tile would learn whether this device wanted it.
    - `asked`: number of records that were asked for; 0 offline.
    """

    tiles: tuple[Tile, ...]
    refused: Mapping[int, str]
    asked: int

    __repr__ = one_line


class Fetcher:
    """Fetches tiles of one map, `manifest.asked` of them in every call: dummies fill up what is wanted.

    Dummies are uniformly random among the other tiles, from the operating system's generator. All that is fetched and proved is
    kept in the cache. It stands in for wanted tiles that come back changed, and changes nothing in what is asked for. With
    `offline` nothing is sent at all, whatever is kept, and wanted tiles that are not kept are refused.
    """

    def __init__(
        self,
        manifest: Manifest,
        exit: Exit,
        *,
        cache: TileCache | None = None,
        offline: bool = False,
        draws: random.Random | None = None,
    ) -> None:
        self.manifest = manifest
        self.exit = exit
        self._version = manifest.version
        self._cache = MemoryCache() if cache is None else cache
        self._offline = offline
        self._draws = secrets.SystemRandom() if draws is None else draws

    @property
    def guarantee(self) -> FetchGuarantee:
        """The promise about what a fetch tells those who are asked."""
        return self.exit.guarantee

    def fetch(self, wanted: Sequence[int]) -> Fetched:
        """Fetch once (not offline) and return the wanted tiles that can be used.

        Raises RangeError for tiles that are not there, are wanted twice or are more than are asked for, and whatever the exit
        raises; nothing is then tried again.
        """
        count, asked = len(self.manifest), self.manifest.asked
        if len(set(wanted)) != len(wanted) or len(wanted) > asked or not all(0 <= index < count for index in wanted):
            raise RangeError(f"at most {asked} different tiles from 0 to {count - 1} can be wanted, got {list(wanted)!r}")
        proved: dict[int, Tile] = {}
        refused: dict[int, str] = {}
        if not self._offline:
            for index, record in self._asked_for(wanted):
                if self._use(index, record, proved, refused):
                    self._cache.put(self._version, index, record)
        for index in wanted:
            if index not in proved:
                self._use_kept(index, proved, refused)
        return self._fetched(wanted, proved, refused, 0 if self._offline else asked)

    def _asked_for(self, wanted: Sequence[int]) -> list[tuple[int, bytes]]:
        """The records of the wanted tiles and of dummies, from one fetch."""
        others = sorted(set(range(len(self.manifest))) - set(wanted))
        indices = [*wanted, *self._draws.sample(others, self.manifest.asked - len(wanted))]
        self._draws.shuffle(indices)
        records = self.exit.fetch(indices)
        if len(records) != len(indices):
            raise InputError(f"{len(indices)} records were asked for and {len(records)} came; the exit is broken")
        return list(zip(indices, records, strict=True))

    def _use(self, index: int, record: bytes, proved: dict[int, Tile], refused: dict[int, str]) -> bool:
        """Add a record to the proved tiles, or why it cannot be used to the refused ones; return whether it can."""
        try:
            proved[index] = proved_tile(self.manifest, index, record)
        except WireError as error:
            refused[index] = str(error)
            return False
        return True

    def _use_kept(self, index: int, proved: dict[int, Tile], refused: dict[int, str]) -> None:
        """Use what is kept of a tile; offline, say so where nothing is. Why a fetched record was refused stays known."""
        record = self._cache.get(self._version, index)
        if record is not None:
            self._use(index, record, proved, {} if index in refused else refused)
        elif self._offline:
            refused[index] = "it is not kept on this device, and nothing is fetched offline"

    def _fetched(self, wanted: Sequence[int], proved: dict[int, Tile], refused: dict[int, str], asked: int) -> Fetched:
        tiles = tuple(proved[index] for index in wanted if index in proved)
        return Fetched(tiles=tiles, refused={index: why for index, why in refused.items() if index in wanted}, asked=asked)


@dataclass(frozen=True, eq=False)
class TileFetcher:
    """Fetches tiles of one map for `localize_with_tiles`; `open_tiles` makes it.

    Every call asks for the same number of tiles. Dummies fill up what is wanted: uniformly random tiles, drawn by the operating
    system's generator.
    """

    _fetcher: Fetcher

    __repr__ = one_line

    @property
    def guarantee(self) -> FetchGuarantee:
        """The promise about what a fetch tells those who are asked (docs/theory/tiles.md#fetching).

        It is perfect where all tiles come at once or servers do not collude, and computational for one server.
        """
        return self._fetcher.guarantee


def fetcher_of(tiles: TileFetcher) -> Fetcher:
    """The fetcher itself, with its manifest and exit."""
    return tiles._fetcher


def proved_tile(manifest: Manifest, index: int, record: bytes) -> Tile:
    """The tile of a record, which may come from anyone. Raises WireError unless it is the one that the manifest stands for."""
    if len(record) != manifest.record_bytes:
        raise WireError(f"a record of {len(record)} bytes came for tile {index}, and {manifest.record_bytes} were due")
    data, path = record[: manifest.tile_bytes], record[manifest.tile_bytes :]
    merkle.require_proof(data, index, path, manifest.root)
    return decode_tile(data, index=index, axes=manifest.coding.axes, bits=manifest.coding.bits)
