"""Tiles of a public map from an address on the web: the exit that downloads everything, so that nothing tells what is wanted.

The address is that of a folder that `veil tiles cut` wrote, on any server of files. Nothing but three plain requests is sent,
without a token: for the manifest, for its arrays, and for all records.
"""

from __future__ import annotations

import http.client
import ssl
from urllib.parse import urlsplit

import numpy as np
from jaxtyping import UInt8

from veil import __version__
from veil.client.connection import Unreachable
from veil.errors import InputError
from veil.files.tiles import BINARY, JSON, MOST_BINARY_BYTES, MOST_JSON_BYTES, RECORDS
from veil.tiles.exits import Region
from veil.tiles.fetching import TileCache, TileFetcher
from veil.tiles.manifest import Manifest, decode_manifest

# A map of more bytes is not downloaded as a whole.
MOST_MAP_BYTES = 4 << 30
BLOCK = 1 << 20


def fetcher_of_url(
    url: str, *, cache: TileCache | None = None, timeout_s: float = 60.0, most_bytes: int = MOST_MAP_BYTES
) -> TileFetcher:
    """A fetcher for the tiles at an address, which are all downloaded at the first fetch, and kept as long as it is.

    - `url`: such as https://maps.example.org/station/tiles; plain http only to this machine, as others could read along.
    - `cache`: what the device keeps of wanted and other tiles.
    - `timeout_s`: of each step of a request.
    - `most_bytes`: a larger map is not downloaded.

    Raises InputError for what is no address and for a larger map, Unreachable if the server does not answer or answers
    otherwise, FileFormatError for a manifest that is none.
    """
    download = _Download(url, timeout_s)
    manifest = decode_manifest(download.whole(JSON, MOST_JSON_BYTES), download.whole(BINARY, MOST_BINARY_BYTES))
    if len(manifest) * manifest.record_bytes > most_bytes:
        raise InputError(
            f"the map has {len(manifest) * manifest.record_bytes} bytes, more than {most_bytes}; fetch a part of it from two "
            "servers, or allow more"
        )
    return TileFetcher(manifest, Region(read=lambda: download.records(manifest)), cache=cache)


class _Download:
    """Plain requests for the files of one folder."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise InputError(f"{url!r} is no address of tiles; give one such as https://maps.example.org/tiles")
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise InputError(f"{url} would tell everybody on the way which map is asked for; use https")
        self.url = url.rstrip("/")
        self._parts = parts
        self._timeout_s = timeout_s

    def whole(self, name: str, most: int) -> bytes:
        """A file of at most `most` bytes."""
        data = self._get(name, most)
        if len(data) > most:
            raise Unreachable(f"{self.url}/{name} is longer than a manifest is; check the address")
        return bytes(data)

    def records(self, manifest: Manifest) -> UInt8[np.ndarray, "records size"]:
        """All records of a manifest."""
        due = len(manifest) * manifest.record_bytes
        data = self._get(RECORDS, due)
        if len(data) != due:
            raise Unreachable(f"{self.url}/{RECORDS} does not have the {due} bytes that its manifest says; try again later")
        return np.frombuffer(data, dtype=np.uint8).reshape(len(manifest), manifest.record_bytes)

    def _get(self, name: str, most: int) -> bytearray:
        """The first `most` + 1 bytes of a file. Redirects are not followed."""
        connection = self._connection()
        try:
            path = f"{self._parts.path.rstrip('/')}/{name}"
            connection.request("GET", path, headers={"User-Agent": f"veil/{__version__}", "Accept-Encoding": "identity"})
            response = connection.getresponse()
            if response.status != 200:
                raise Unreachable(f"{self.url}/{name} is not there (status {response.status}); check the address")
            found = bytearray()
            while len(found) <= most and (block := response.read(min(BLOCK, most + 1 - len(found)))):
                found += block
            return found
        except (http.client.HTTPException, OSError) as error:
            raise Unreachable(f"{self.url} does not answer ({error or type(error).__name__}); try again later") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
