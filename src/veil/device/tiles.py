"""Private tiles on the device: a photograph is localized in tiles that are fetched without telling which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veil.features import Features
from veil.files.tiles import read_manifest, read_records
from veil.one_line import one_line
from veil.places.poses.answer import Localization, NoPose
from veil.tiles.device import TileOptions, localize_in_tiles, place_in_map, wanted_tiles
from veil.tiles.exits import Region
from veil.tiles.fetching import Fetched, TileCache, TileFetcher

PREFIX = "tiles:"


@dataclass(frozen=True, kw_only=True, eq=False)
class TileAnswer:
    """The answer to a photograph, which was found on the device, and what was fetched for it.

    `found` is the pose, or why there is none; `fetched` are the tiles that came, and why others were refused; `wanted` are the
    tiles that it was looked for in, the most promising first, which are known to this device alone.
    """

    found: Localization | NoPose
    fetched: Fetched
    wanted: Sequence[int]

    __repr__ = one_line


def fetcher_of(folder: Path | str, *, cache: TileCache | None = None, offline: bool = False) -> TileFetcher:
    """A fetcher for the tiles of a folder, which are all read at the first fetch.

    - `folder`: what `cut_map` wrote, or a copy of it.
    - `cache`: keeps records that were fetched; by default in memory.
    - `offline`: use what is kept, and fetch nothing.

    Raises FileFormatError for a damaged folder.
    """
    folder = Path(folder)
    manifest = read_manifest(folder)
    return TileFetcher(manifest, Region(read=lambda: read_records(folder, manifest)), cache=cache, offline=offline)


def localize_with_tiles(
    features: Features,
    fetcher: TileFetcher,
    *,
    near: np.ndarray | None = None,
    within: float = 0.0,
    fix: tuple[float, float] | None = None,
    options: TileOptions | None = None,
) -> TileAnswer:
    """Localize a photograph on this device: choose tiles, fetch once, match, estimate (docs/theory/tiles.md).

    Every call fetches once, also where the photograph then gives no pose.

    - `features`: raw features of the photograph. They stay here.
    - `fetcher`: of the map's tiles.
    - `near`, `within`: where the device is about, float64 (3,), and how uncertain that is, in units of the map.
    - `fix`: latitude and longitude in degrees, in place of `near`, on a map with a place on Earth.
    - `options`: thresholds and the number of wanted tiles.

    Raises SpaceError for features of another kind, InputError where nothing says where to look, and what the exit raises.
    """
    options = options or TileOptions()
    if fix is not None:
        near = place_in_map(fetcher.manifest, *fix)
    wanted = wanted_tiles(fetcher.manifest, features, near=near, within=within, options=options)
    fetched = fetcher.fetch(wanted)
    return TileAnswer(
        found=localize_in_tiles(features, fetcher.manifest, fetched.tiles, options), fetched=fetched, wanted=wanted
    )
