"""Findings of an audit of tiles: numbers of all tiles, and views of the place with the pictures that were drawn of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypedDict, cast

import numpy as np
from jaxtyping import UInt8

from veil.audit.on_tiles import TilePicture, TilePictureJson, TileView, TileViewJson
from veil.json_records.values import Digest, Reasons
from veil.tiles.manifest import Manifest
from veil.tiles.tile_format import LevelBits

STATEMENT = (
    "Tiles are public raw descriptors: whoever fetches them, or downloads them all, has the map's points and can draw pictures "
    "of the place. They protect whoever asks for them, and nothing that they show. What a tile holds does not come back."
)


class ShownViewJson(TileViewJson):
    """A view of tiles with its pictures."""

    pictures: list[TilePictureJson]


@dataclass(frozen=True, kw_only=True, eq=False)
class ShownView:
    """A view of tiles, with the pictures that were drawn of it, and the photograph itself where it is at hand."""

    view: TileView
    pictures: tuple[TilePicture, ...]
    photograph: UInt8[np.ndarray, "height width 3"] | None

    def as_json(self) -> ShownViewJson:
        """The stable record of docs/reference/json.md."""
        return {**self.view.as_json(), "pictures": [picture.as_json() for picture in self.pictures]}


class AuditedTilesJson(TypedDict):
    """Numbers of a folder of tiles."""

    version: Digest
    tiles: int
    tile_bytes: int
    map_bytes: int
    manifest_bytes: int
    points: int
    aspects: int
    axes: int
    bits: LevelBits
    max_position_error: float
    rounding: float


class TileAuditJson(TypedDict):
    """An audit of tiles."""

    tiles: AuditedTilesJson
    views: list[ShownViewJson]
    no_pose: Reasons
    statement: str


@dataclass(frozen=True, kw_only=True, eq=False)
class TileAudit:
    """Numbers of a folder of tiles, and its views of the place.

    - `manifest`: of the tiles. `manifest_bytes`: of its files.
    - `points`, `aspects`: of all tiles, each counted once for each tile.
    - `rounding`: root of the mean squared distance by which levels round a compressed descriptor.
    - `views`: of photographs, or of the fullest tiles where none are given.
    - `no_pose`: by name of the photograph, why its pose is not found in the tiles.
    """

    manifest: Manifest
    manifest_bytes: int
    points: int
    aspects: int
    rounding: float
    views: tuple[ShownView, ...]
    no_pose: Mapping[str, str]

    def as_json(self) -> TileAuditJson:
        """The stable record of docs/reference/json.md."""
        manifest = self.manifest
        return {
            "tiles": {
                "version": manifest.version,
                "tiles": len(manifest),
                "tile_bytes": manifest.tile_bytes,
                "map_bytes": len(manifest) * manifest.record_bytes,
                "manifest_bytes": self.manifest_bytes,
                "points": self.points,
                "aspects": self.aspects,
                "axes": manifest.coding.axes,
                "bits": cast(LevelBits, manifest.coding.bits),
                "max_position_error": manifest.coding.max_position_error,
                "rounding": self.rounding,
            },
            "views": [shown.as_json() for shown in self.views],
            "no_pose": dict(self.no_pose),
            "statement": STATEMENT,
        }
