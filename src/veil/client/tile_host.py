"""Plain requests for tiles to one address: no token, no cookie, nothing of the device but what an exit sends."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Sequence

from veil.client.connection import Unreachable, split_address
from veil.errors import InputError
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
            found = bytearray()
            while len(found) <= most and (block := response.read(min(BLOCK, most + 1 - len(found)))):
                found += block
            return response.status, bytes(found)
        except (http.client.HTTPException, OSError) as error:
            raise Unreachable(f"{self.url} does not answer ({error or type(error).__name__}); try again later") from None
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)
