"""How a client localizes a photograph in tiles: where they are, how they are fetched, and where to look in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float64

from veil.client.tile_access import TileExit, open_tiles
from veil.device.tiles import TileAnswer, localize_with_tiles
from veil.features import Features
from veil.one_line import one_line
from veil.places.poses.options import LocalizeOptions
from veil.tiles.fetching import TileFetcher


@dataclass(frozen=True, kw_only=True)
class TileUse:
    """Localization on the device, in tiles of a map that a server has.

    - `also`: addresses of the same tiles at servers that others run, such as https://b.example.org/v1/tiles/station.
    - `exit`, `version`, `cache`: as for `open_tiles`.
    - `near`, `within`: where the device is about, float64 (3,), and how uncertain that is, in units of the map.
    - `fix`: latitude and longitude in degrees, in place of `near`.
    - `tiles`, `options`: as for `localize_with_tiles`.
    - `timeout_s`: of each step of a request.
    """

    also: tuple[str, ...] = ()
    exit: TileExit | None = None
    version: str | None = None
    cache: Path | str | None = None
    near: Float64[np.ndarray, "3"] | None = None
    within: float = 0.0
    fix: tuple[float, float] | None = None
    tiles: int | None = None
    options: LocalizeOptions | None = None
    timeout_s: float = 60.0

    __repr__ = one_line

    def opened(self, url: str) -> TileFetcher:
        """A fetcher for the tiles at an address and at those of `also`; raises what `open_tiles` raises."""
        return open_tiles((url, *self.also), exit=self.exit, cache=self.cache, timeout_s=self.timeout_s, version=self.version)

    def localized(self, features: Features, fetcher: TileFetcher) -> TileAnswer:
        """The answer to a photograph, which is found here; raises what `localize_with_tiles` raises."""
        return localize_with_tiles(
            features, fetcher, near=self.near, within=self.within, fix=self.fix, tiles=self.tiles, options=self.options
        )
