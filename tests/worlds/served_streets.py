"""Tiles of a planted street in a server's folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

from veil.files.service.served_tiles import add_served
from veil.files.tiles import write_tiles
from veil.server.routes.tiles import ServedExit, ServedTiles
from veil.server.service import Service
from veil.server.store.identity import TILES
from veil.tiles.cutting import CutOptions, cut
from worlds.tile_streets import street

NAME = "street"
EXITS: tuple[ServedExit, ServedExit] = ("two-servers", "one-server")


def serve_street(service: Service, *, hintless: bool = False) -> tuple[str, int, int]:
    """Give a server the tiles of a street; returns the path of their version, and lengths of requests to two of its exits."""
    made = cut(street("served", cameras=40).scene, CutOptions(tile_bytes=4000, words=8, asked=3))
    with tempfile.TemporaryDirectory() as folder:
        write_tiles(Path(folder) / "tiles", made)
        version = add_served(service.folder / TILES, NAME, Path(folder) / "tiles", localizations=2, hintless=hintless)
    tiles = ServedTiles(service.folder / TILES)
    two, one = (tiles.request_bytes(NAME, version, exit) for exit in EXITS)
    return f"/v1/tiles/{NAME}/{version}", two, one
