"""One connection to a server: requests with a token, JSON answers, and errors that say what to do."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit

from veil.errors import InputError, Remedy, VeilError, remedies_of
from veil.version import __version__

MESSAGE_TYPE = "application/vnd.veil.message"
# The longest answer that is read; a server that lies must not fill the device's memory.
MOST_ANSWER = 64 << 20
# How long a client waits at most when a busy server says so.
PATIENCE_S = 60.0


class Unreachable(VeilError):
    """The server does not answer; what was to be sent was not."""


class ServerError(VeilError):
    """The server refused or failed; `status` is HTTP's, `kind` the problem's name, such as "refused" or "quota"."""

    def __init__(self, cause: str, *, status: int, kind: str, remedy: tuple[Remedy, ...] = ()) -> None:
        super().__init__(cause, remedy=remedy)
        self.status = status
        self.kind = kind


class Connection:
    """Requests to one server under one token.

    - `url`: of the server, such as https://maps.example.org; plain http only to this machine, unless `allow_plain`.
    - `token`: as the server's administrator gave it.
    - `timeout_s`: of each step of a request.

    Raises InputError for what is no address of a server.
    """

    def __init__(self, url: str, token: str, *, timeout_s: float = 60.0, allow_plain: bool = False) -> None:
        parts = split_address(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or parts.username:
            raise InputError(f"{url!r} is no address of a server; give one such as https://maps.example.org")
        if parts.scheme == "http" and not allow_plain and parts.hostname not in ("127.0.0.1", "localhost", "::1"):
            raise InputError(f"{url} would send the token without encryption; use https, or allow plain http")
        if not token or not token.isascii() or not token.isprintable() or " " in token:
            raise InputError("the token is empty or damaged; give it as the server's administrator told it")
        self.url = url.rstrip("/")
        self._parts = parts
        self._token = token
        self._timeout_s = timeout_s
        self._open: http.client.HTTPConnection | None = None

    def get(self, *path: str, **query: str | int) -> Any:
        """The JSON answer to GET; parts of the path and of the query are quoted."""
        return self.request("GET", path, query=query)

    def delete(self, *path: str) -> Any:
        """The JSON answer to DELETE."""
        return self.request("DELETE", path)

    def post(self, *path: str, value: object = None) -> Any:
        """The JSON answer to POST of JSON."""
        return self.request("POST", path, body=json.dumps(value).encode(), kind="application/json")

    def post_message(self, *path: str, message: bytes) -> Any:
        """The JSON answer to POST of a message."""
        return self.request("POST", path, body=message, kind=MESSAGE_TYPE)

    def request(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: dict[str, str | int] | None = None,
        body: bytes | None = None,
        kind: str | None = None,
    ) -> Any:
        """The JSON answer to a request. Waits while the server says that it is busy, `PATIENCE_S` in all.

        Raises Unreachable if it does not answer, ServerError if it refuses; redirects are not followed, as they would take the
        token elsewhere.
        """
        target = self._parts.path.rstrip("/") + "/" + "/".join(quote(part, safe="") for part in path)
        if query:
            target += "?" + "&".join(f"{quote(name)}={quote(str(value), safe='')}" for name, value in query.items())
        until = time.monotonic() + PATIENCE_S
        while True:
            status, headers, data = self._answer(method, target, body, kind)
            wait = headers.get("retry-after", "")
            if status in (429, 503) and wait.isdigit() and time.monotonic() + int(wait) < until:
                time.sleep(max(1, int(wait)))
                continue
            return _read(status, data)

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def _answer(self, method: str, target: str, body: bytes | None, kind: str | None) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer. A kept connection that the server has closed meanwhile is opened again."""
        headers = {"Authorization": f"Bearer {self._token}", "User-Agent": f"veil/{__version__}", "Accept": "application/json"}
        if kind is not None:
            headers["Content-Type"] = kind
        for is_kept in (True, False):
            if not is_kept or self._open is None:
                self.close()
                self._open, is_kept = self._connected(), False
            try:
                self._open.request(method, target, body=body, headers=headers)
                response = self._open.getresponse()
                data = response.read(MOST_ANSWER + 1)
                # The library does not tell that an answer was cut off, neither within the body nor before its length.
                if len(data) <= MOST_ANSWER and (response.length or response.getheader("Content-Length") is None):
                    raise http.client.IncompleteRead(data, response.length)
            except (http.client.HTTPException, OSError) as error:
                self.close()
                if is_kept and not isinstance(error, socket.timeout):
                    continue
                raise Unreachable(f"{self.url} does not answer ({error or type(error).__name__}); try again later") from None
            if len(data) > MOST_ANSWER:
                self.close()
                raise ServerError("the server's answer is too long to be one of veil's", status=response.status, kind="foreign")
            return response.status, {name.lower(): value for name, value in response.getheaders()}, data
        raise AssertionError("the second connection answers or raises")

    def _connected(self) -> http.client.HTTPConnection:
        host, port = str(self._parts.hostname), self._parts.port
        if self._parts.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(host, port, timeout=self._timeout_s, context=context)
        return http.client.HTTPConnection(host, port, timeout=self._timeout_s)


def split_address(url: str) -> SplitResult:
    """The parts of an address. Raises InputError for an IPv6 address without its brackets, or a port that is no number."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        remedy = "give one such as https://maps.example.org or http://[::1]:8700"
        raise InputError(f"{url!r} is no address of a server ({error}); {remedy}") from None
    return parts


def _read(status: int, data: bytes) -> Any:
    """The JSON of an answer. Raises ServerError for a refusal, or for an answer that is no JSON."""
    try:
        value = json.loads(data)
    except ValueError:
        cause_of_kind = f"the answer ({status}) is not of a veil server; check the address"
        raise ServerError(cause_of_kind, status=status, kind="foreign") from None
    if 200 <= status < 300:
        return value
    problem: dict[str, Any] = value if isinstance(value, dict) else {}
    kind = str(problem.get("type", "")).removeprefix("urn:veil:") or "foreign"
    cause = str(problem.get("cause", problem.get("detail", f"the server answered {status}")))
    raise ServerError(cause, status=status, kind=kind, remedy=remedies_of(problem.get("remedy")))
