"""Ways to a map's tiles over HTTP: all from any server of files, or some from one or two servers that cannot tell which.

Which way is taken depends on the map and on what the user says, never on what a device wants (docs/theory/tiles.md#fetching).
"""

from __future__ import annotations

import hashlib
import http.client
import json
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import UInt8, UInt32

from veil.client.connection import Unreachable, split_address
from veil.errors import FileFormatError, InputError
from veil.files.service.hintless_tiles import hintless_facts
from veil.files.service.served_tiles import HINT, VERSION, OneServerFacts, one_server_facts
from veil.files.tiles import BINARY, JSON, MOST_BINARY_BYTES, MOST_JSON_BYTES, RECORDS, FolderCache, read_manifest, read_records
from veil.pir import one_server
from veil.tiles.exits import Exit, Hintless, OneServer, Region, TwoServers
from veil.tiles.fetching import Fetcher, TileFetcher
from veil.tiles.manifest import Manifest, decode_manifest
from veil.version import __version__

QUERIES_TYPE = "application/vnd.veil.tile-queries"
BLOCK = 1 << 20


class TileHost:
    """The address of some tiles: a folder that `veil tiles cut` wrote on any server of files, or tiles of `veil serve`.

    - `url`: such as https://maps.example.org/v1/tiles/station; plain http only to this machine, as others could read along.
    - `timeout_s`: of each step of a request.

    No request is ever sent twice, and each has a connection of its own. Raises InputError for what is no such address.
    """

    def __init__(self, url: str, timeout_s: float = 60.0) -> None:
        parts = split_address(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise InputError(f"{url!r} is no address of tiles; give one such as https://maps.example.org/v1/tiles/station")
        if parts.scheme == "http" and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise InputError(f"{url} would tell everybody on the way which map is asked for; use https")
        self.url = url.rstrip("/")
        self._parts = parts
        self._timeout_s = timeout_s

    def file(self, name: str, most: int) -> bytes | None:
        """A file of at most `most` bytes below the address; None if it is not there.

        Raises Unreachable if the server does not answer, answers otherwise, or the file is longer.
        """
        status, data = self._answer("GET", name, None, most)
        if status == 404:
            return None
        if status != 200:
            raise Unreachable(f"{self.url}/{name} cannot be had (status {status}); check the address, or try again later")
        if len(data) > most:
            raise Unreachable(f"{self.url}/{name} is longer than the {most} bytes that it may have; check the address")
        return data

    def needed(self, name: str, most: int) -> bytes:
        """A file that must be there; see `file`."""
        data = self.file(name, most)
        if data is None:
            raise Unreachable(f"{self.url}/{name} is not there (status 404); check the address")
        return data

    def sized(self, name: str, size: int) -> bytes:
        """A file of exactly `size` bytes; see `file`."""
        status, data = self._answer("GET", name, None, size)
        if status != 200 or len(data) != size:
            raise Unreachable(f"{self.url}/{name} does not have the {size} bytes that its manifest says; try again later")
        return data

    def answers(self, name: str, queries: Sequence[bytes], size: int) -> list[bytes]:
        """The answers of `size` bytes to the queries of one fetch. Raises Unreachable as `file` does."""
        due = len(queries) * size
        status, data = self._answer("POST", name, b"".join(queries), due)
        if status == 404:
            raise Unreachable(f"{self.url} has this version of the tiles no more; open them again, for all tiles")
        if status == 503:
            raise Unreachable(f"{self.url} is busy; nothing was fetched: localize again in a moment")
        if status != 200 or len(data) != due:
            raise Unreachable(f"{self.url} answered {status} and {len(data)} bytes, {due} were due; nothing was fetched")
        return [data[start : start + size] for start in range(0, due, size)]

    def _answer(self, method: str, name: str, body: bytes | None, most: int) -> tuple[int, bytes]:
        """Status and the first `most` + 1 bytes of an answer. Redirects are not followed."""
        connection = self._connection()
        headers = {"User-Agent": f"veil/{__version__}", "Accept-Encoding": "identity"}
        if body is not None:
            headers["Content-Type"] = QUERIES_TYPE
        try:
            connection.request(method, f"{self._parts.path.rstrip('/')}/{name}", body=body, headers=headers)
            response = connection.getresponse()
            content = bytearray()
            while len(content) <= most and (block := response.read(min(BLOCK, most + 1 - len(content)))):
                content += block
            return response.status, bytes(content)
        except (http.client.HTTPException, OSError) as error:
            raise Unreachable(f"{self.url} does not answer ({error or type(error).__name__}); try again later") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)


TileExit = Literal["region", "two-servers", "one-server", "hintless"]
# Maps of fewer bytes are downloaded as a whole where nobody says otherwise.
REGION_BYTES = 16 << 20
# A map of more bytes is not downloaded as a whole, nor a hint of more.
MOST_MAP_BYTES, MOST_HINT_BYTES = 4 << 30, 1 << 30
SCHEMES = "http://", "https://"
EXITS, MOST_EXITS_BYTES = "exits.json", 64 << 10


@dataclass(frozen=True, kw_only=True)
class _Served:
    """Facts of some tiles from a server: their version (None: files of one folder), and facts of its exits."""

    version: str | None
    exits: dict[str, Any]

    def path(self, file: str) -> str:
        """The path of a file below the address."""
        return file if self.version is None else f"{self.version}/{file}"


def serves_tiles(url: str, *, timeout_s: float = 60.0) -> bool:
    """Whether `veil serve` has tiles at an address, such as https://maps.example.org/v1/tiles/station.

    False for an address over plain http to another machine, from which nothing is fetched. Raises Unreachable if the server
    does not answer.
    """
    try:
        host = TileHost(url, timeout_s)
    except InputError:
        return False
    return host.file(EXITS, MOST_EXITS_BYTES) is not None


def open_tiles(
    source: Path | str | Sequence[str],
    *,
    exit: TileExit | None = None,
    cache: Path | str | None = None,
    offline: bool = False,
    timeout_s: float = 60.0,
    most_bytes: int = MOST_MAP_BYTES,
    version: str | None = None,
) -> TileFetcher:
    """A fetcher for the tiles of a folder, of an address, or of the addresses of several servers that do not all collude.

    - `source`: a folder that `cut_map` wrote, or a copy of it, all of which is read at the first fetch. Or addresses such as
      https://maps.example.org/v1/tiles/station, of `veil serve`, or of such a folder on a server of files; plain http only to
      this machine.
    - `exit`: how tiles are fetched. None: all at once from maps of at most 16 MiB, and from servers of files; otherwise from
      the servers of several addresses, or from one server, without a hint where it offers that.
    - `cache`: a folder where the device keeps tiles that were fetched, and the hint of a version. Whoever reads it knows where
      the device was. None: in memory.
    - `offline`: use a folder and what is kept, and fetch nothing.
    - `timeout_s`: of each step of a request.
    - `most_bytes`: a larger map is not downloaded as a whole.
    - `version`: that the tiles must have, as whoever publishes it says; None: whichever the first server names.

    The manifest is downloaded here, and the hint of the one server; all that is fetched later has one size. Raises InputError
    for what is no address, for an exit that is not there, and for an address offline; Unreachable if a server does not answer
    or answers otherwise; FileFormatError for a manifest or hint that is none, and where servers do not have the same tiles.
    """
    if exit is not None and exit not in get_args(TileExit):
        raise InputError(f"an exit is {', '.join(get_args(TileExit))}, got {exit!r}")
    kept = None if cache is None else FolderCache(folder=Path(cache))
    urls = (source,) if isinstance(source, str) and source.startswith(SCHEMES) else source
    if isinstance(urls, Path | str):
        return _of_folder(Path(urls), exit, kept, version, offline=offline)
    if offline:
        raise InputError("nothing is fetched offline, and the manifest is at an address; keep a copy of it in a folder")
    hosts = [TileHost(url, timeout_s) for url in urls]
    if not hosts or len({host.url for host in hosts}) != len(hosts):
        raise InputError("give one address of tiles, or different ones of servers that do not collude")
    served = [_served(host) for host in hosts]
    manifest = _manifest(hosts[0], served[0])
    if version is not None and manifest.version != version:
        raise FileFormatError(
            f"{hosts[0].url} has version {manifest.version[:16]} of the tiles, and {version[:16]} is asked for; do not use it, "
            "and ask whoever publishes versions"
        )
    for host, other in zip(hosts[1:], served[1:], strict=True):
        if other.version != manifest.version:
            raise FileFormatError(
                f"{host.url} has version {str(other.version)[:16]} of the tiles, and {hosts[0].url} {manifest.version[:16]}; "
                "servers must have the same tiles: try again later"
            )
    taken = exit or _default(manifest, len(hosts), served[0])
    return TileFetcher(Fetcher(manifest, _exit(taken, hosts, served[0], manifest, kept, most_bytes), cache=kept))


def _of_folder(
    folder: Path, exit: TileExit | None, cache: FolderCache | None, version: str | None, *, offline: bool
) -> TileFetcher:
    """A fetcher for the tiles of a folder. Raises InputError for an exit that asks a server."""
    if exit not in (None, "region"):
        raise InputError(f"a folder is read as a whole, and nobody is asked; {exit} is an exit of addresses")
    manifest = read_manifest(folder)
    if version is not None and manifest.version != version:
        raise FileFormatError(f"{folder} has version {manifest.version[:16]} of the tiles, and {version[:16]} is asked for")
    return TileFetcher(Fetcher(manifest, Region(read=lambda: read_records(folder, manifest)), cache=cache, offline=offline))


def _default(manifest: Manifest, hosts: int, served: _Served) -> TileExit:
    """The exit where nobody says which: a function of the map and of the addresses."""
    if served.version is None or len(manifest) * manifest.record_bytes <= REGION_BYTES:
        return "region"
    if hosts > 1:
        return "two-servers"
    by_one: tuple[TileExit, ...] = ("hintless", "one-server")
    return next((exit for exit in by_one if exit in served.exits), "region")


def _exit(
    taken: TileExit,
    hosts: Sequence[TileHost],
    served: _Served,
    manifest: Manifest,
    cache: FolderCache | None,
    most_bytes: int,
) -> Exit:
    count, size = len(manifest), manifest.record_bytes
    if taken == "region":
        if count * size > most_bytes:
            raise InputError(
                f"the map has {count * size} bytes, more than {most_bytes}; fetch a part of it from two servers, or allow more"
            )
        return Region(read=partial(_records, hosts[0], served.path(RECORDS), count, size))
    if served.version is None:
        raise InputError(f"{hosts[0].url} is a server of files, which gives all tiles at once; a server of veil has more exits")
    if taken == "two-servers":
        if len(hosts) < 2:
            raise InputError("this exit takes the addresses of two servers or more, which others run; give them all")
        route = f"{served.version}/answers/two-servers"
        transports = tuple(partial(_answers, host, route, size) for host in hosts)
        return TwoServers(records=count, size=size, transports=transports)
    if len(hosts) != 1 or taken not in served.exits:
        raise InputError(f"the exit {taken} takes one address, of a server that offers it; or fetch from two servers")
    if taken == "hintless":
        packed = hintless_facts(served.exits["hintless"], records=count, size=size)
        route = f"{served.version}/answers/hintless"
        to_one = partial(_answers, hosts[0], route, packed.layout.answer_bytes)
        return Hintless(layout=packed.layout, seed=packed.seed, transport=to_one)
    facts = one_server_facts(served.exits["one-server"], records=count, size=size)
    transport = partial(_answers, hosts[0], f"{served.version}/answers/one-server", facts.layout.answer_bytes)
    return OneServer(layout=facts.layout, seed=facts.seed, hint=_hint(hosts[0], served, facts, cache), transport=transport)


def _served(host: TileHost) -> _Served:
    """Facts of the tiles at an address; none from a server of files."""
    text = host.file(EXITS, MOST_EXITS_BYTES)
    if text is None:
        return _Served(version=None, exits={})
    try:
        offer = json.loads(text)
        version, exits = offer["version"], offer["exits"]
        if not VERSION.fullmatch(version) or not isinstance(exits, dict):
            raise ValueError("a value is none of its kind")
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise FileFormatError(f"{host.url} does not say which tiles it has ({error}); check the address") from None
    return _Served(version=version, exits=exits)


def _manifest(host: TileHost, served: _Served) -> Manifest:
    """The manifest at an address, of the version that the server names."""
    text, binary = host.needed(served.path(JSON), MOST_JSON_BYTES), host.needed(served.path(BINARY), MOST_BINARY_BYTES)
    manifest = decode_manifest(text, binary)
    if served.version not in (None, manifest.version):
        raise FileFormatError(f"{host.url} gives the manifest of another version than it names; do not use it")
    return manifest


def _records(host: TileHost, path: str, count: int, size: int) -> UInt8[np.ndarray, "records size"]:
    return np.frombuffer(host.sized(path, count * size), dtype=np.uint8).reshape(count, size)


def _answers(host: TileHost, route: str, size: int, queries: Sequence[bytes]) -> list[bytes]:
    return host.answers(route, queries, size)


def _hint(host: TileHost, served: _Served, facts: OneServerFacts, cache: FolderCache | None) -> UInt32[np.ndarray, "rows 1408"]:
    """The hint, as it is kept or downloaded. Raises FileFormatError for another one than the server names."""
    kept = None if cache is None else cache.hint(facts.hint_sha256)
    if kept is not None and hashlib.sha256(kept).hexdigest() == facts.hint_sha256:
        return one_server.read_hint(kept, facts.layout)
    if facts.layout.hint_bytes > MOST_HINT_BYTES:
        raise Unreachable(f"the hint of {host.url} has {facts.layout.hint_bytes} bytes; fetch from two servers")
    hint = host.sized(served.path(HINT), facts.layout.hint_bytes)
    if hashlib.sha256(hint).hexdigest() != facts.hint_sha256:
        raise FileFormatError(f"the hint of {host.url} is not the one that it names; download it again")
    if cache is not None:
        cache.put_hint(facts.hint_sha256, hint)
    return one_server.read_hint(hint, facts.layout)
