"""The audit of a map's tiles: what publishing them shows, in numbers and pictures (docs/theory/audit.md#tiles)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from veil.audit.on_tiles import TilePicture, TileView, pictures, view_of_photograph, view_of_tile
from veil.audit.tile_findings import ShownView, TileAudit
from veil.errors import InputError
from veil.features import Features
from veil.files.tiles import read_manifest, read_records
from veil.inversion.maps import Inverts
from veil.places.poses.answer import NoPose
from veil.progress import Progress, ignore_progress
from veil.tiles.device import wanted_tiles
from veil.tiles.fetching import proved_tile
from veil.tiles.manifest import Manifest, encode_manifest
from veil.tiles.tile_format import Tile

ReadPhotograph = Callable[[str], np.ndarray | None]


def audit_tiles(
    folder: Path,
    *,
    photographs: Mapping[str, Features] | None = None,
    network: Inverts | None = None,
    read_photograph: ReadPhotograph = lambda name: None,
    pictured: int = 2,
    progress: Progress | None = None,
) -> TileAudit:
    """See what publishing a folder of tiles means: invert them, and compare with photographs of the place.

    - `folder`: what `veil tiles cut` wrote. Every tile is proved.
    - `photographs`: raw features by name. Each is localized in as many tiles as a device asks for, those that it looks like.
    - `network`: an inversion network for raw SIFT, which draws pictures; None: numbers alone.
    - `read_photograph`: gives a photograph by its name as uint8 RGB (height, width, 3); None if it is not at hand.
    - `pictured`: number of views of which pictures are drawn: of the first photographs with a pose, or of the fullest tiles.
    - `progress`: called with the number of steps done and of all.

    Raises FileFormatError for a damaged folder, WireError for a tile that is not the manifest's, SpaceError for features of
    another kind, InputError for tiles without points.
    """
    manifest = read_manifest(folder)
    records = read_records(folder, manifest)
    tiles = [proved_tile(manifest, index, records[index].tobytes()) for index in range(len(manifest))]
    if not any(len(tile) for tile in tiles):
        raise InputError(f"the tiles of {folder} hold no points, and show nothing; cut the map again")
    progress = progress or ignore_progress
    no_pose: dict[str, str] = {}
    if photographs is None:
        fullest = sorted(tiles, key=len, reverse=True)[:pictured]
        views = [view_of_tile(tile, manifest) for tile in fullest if len(tile)]
    else:
        views, no_pose = _views(photographs, manifest, tiles, progress)
    shown = []
    for number, view in enumerate(views):
        features, photograph = (photographs or {}).get(view.name), None
        drawn: list[TilePicture] = []
        if number < pictured:
            photograph = None if features is None else read_photograph(view.name)
            drawn = pictures(view, manifest, network, features=features, photograph=photograph) if network else []
        shown.append(ShownView(view=view, pictures=tuple(drawn), photograph=photograph))
        progress(number + 1, len(views))
    text, binary, _ = encode_manifest(manifest)
    return TileAudit(
        manifest=manifest,
        manifest_bytes=len(text) + len(binary),
        points=sum(len(tile) for tile in tiles),
        aspects=sum(len(tile.descriptors) for tile in tiles),
        # A value that is rounded to steps of s is off by s / sqrt(12) on average, in the root of the mean square.
        rounding=float(np.sqrt(np.square(manifest.coding.scales.astype(np.float64)).sum() / 12)),
        views=tuple(shown),
        no_pose=no_pose,
    )


def _views(
    photographs: Mapping[str, Features], manifest: Manifest, tiles: list[Tile], progress: Progress
) -> tuple[list[TileView], dict[str, str]]:
    """Views of the photographs whose pose is found in the tiles, and why that of others is not."""
    views: list[TileView] = []
    no_pose: dict[str, str] = {}
    for number, (name, features) in enumerate(photographs.items()):
        progress(number, len(photographs))
        seen = view_of_photograph(name, features, manifest, [tiles[index] for index in wanted_tiles(manifest, features)])
        if isinstance(seen, NoPose):
            no_pose[name] = seen.reason
        else:
            views.append(seen)
    return views, no_pose
