"""Private tiles on the device: a photograph is localized in tiles that are fetched without telling which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veil.features import Features
from veil.one_line import one_line
from veil.places.poses.answer import Localization, NoPose
from veil.places.poses.options import LocalizeOptions
from veil.tiles.device import localize_in_tiles, place_in_map, wanted_tiles
from veil.tiles.fetching import TileFetcher, fetcher_of

PREFIX = "tiles:"


@dataclass(frozen=True, kw_only=True, eq=False)
class TileAnswer:
    """The answer to a photograph, which was pose on the device, and the fetch for it.

    `pose` is the pose, or why there is none. `wanted` are the tiles that it was looked for in, the most promising first, which
    are known to this device alone. `refused` gives, by its number, why a wanted tile was not used, also where a kept one could
    stand in: tell the user, and never the server. `asked` is the number of records that were asked for; 0 offline.
    """

    pose: Localization | NoPose
    wanted: Sequence[int]
    refused: Mapping[int, str]
    asked: int

    __repr__ = one_line


def localize_with_tiles(
    features: Features,
    fetcher: TileFetcher,
    *,
    near: np.ndarray | None = None,
    within: float = 0.0,
    fix: tuple[float, float] | None = None,
    tiles: int | None = None,
    options: LocalizeOptions | None = None,
) -> TileAnswer:
    """Localize a photograph on this device: choose tiles, fetch once, match, estimate (docs/theory/tiles.md).

    Every call fetches once, also where the photograph then gives no pose.

    - `features`: raw features of the photograph. They stay here.
    - `fetcher`: of the map's tiles.
    - `near`, `within`: where the device is about, float64 (3,), and how uncertain that is, in units of the map.
    - `fix`: latitude and longitude in degrees, in place of `near`, on a map with a place on Earth.
    - `tiles`: number of wanted tiles, at most the number that is asked for; None: as many as are asked for.
    - `options`: thresholds, ratio test, seed.

    Raises RangeError for no tiles, SpaceError for features of another kind, InputError where nothing says where to look, and
    what the exit raises.
    """
    opened = fetcher_of(fetcher)
    if fix is not None:
        near = place_in_map(opened.manifest, *fix)
    wanted = wanted_tiles(opened.manifest, features, near=near, within=within, tiles=tiles)
    fetched = opened.fetch(wanted)
    pose = localize_in_tiles(features, opened.manifest, fetched.tiles, options)
    return TileAnswer(pose=pose, wanted=wanted, refused=fetched.refused, asked=fetched.asked)
