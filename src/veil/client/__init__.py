"""The device's side of the service: what leaves is a message of the ledger's, whose bytes are the same at every retry.

- `client` releases, sends, localizes and deletes. `connection` is one connection, `answers` are the records that come back.
- `usual` says what leaves for a map where its user names no protection.
- `tile_use` localizes in tiles, which `tile_access` fetches.
"""

from __future__ import annotations

from veil.client.answers import Accepted, JobStatus, RemoteMap, RemotePose
from veil.client.client import Client
from veil.client.connection import ServerError, Unreachable
from veil.client.tile_access import open_tiles
from veil.client.tile_use import TileUse

__all__ = [
    "Accepted",
    "Client",
    "JobStatus",
    "RemoteMap",
    "RemotePose",
    "ServerError",
    "TileUse",
    "Unreachable",
    "open_tiles",
]
