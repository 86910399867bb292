"""Connections that end, and of which nobody has all: slow heads, bodies and readers, and too many of one holder."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from veil.server.access.addresses import NOWHERE, Addresses, networks_of
from veil.server.http.bodies import body_seconds
from veil.server.http.entrance import EXTENSION, Holder
from veil.server.http.problems import MEDIA_TYPE, TITLES
from veil.server.settings import ServerSettings

# Whoever came just now has this time to say who it is, while there is room to spare.
GRACE_S = 1.0
# What is no HTTP leaves no line: whoever sends it could fill the disk with them.
log = logging.getLogger("veil.server.connections")
log.setLevel(logging.ERROR)
# A request line with its headers; seconds from its first byte, or from the connection's begin, until it is whole; and how
# long a connection may wait for the next request.
MOST_HEAD, HEAD_S, IDLE_S = 16 << 10, 10.0, 30
# Connections at a time that brought a valid token with their last request, of all others, and of these more that are young; and
# the files that a process with them may need to open. One that may open fewer has as much fewer connections.
MOST_OF_TOKENS, MOST_OF_ADDRESSES, SPARE, FILES = 1024, 1024, 256, 4096


@runtime_checkable
class Loser(Protocol):
    """A connection that can be taken from its holder."""

    @property
    def is_asked(self) -> bool:
        """Whether a whole request waits for its answer; if not, its client has to send a head or a body."""

    @property
    def since(self) -> float:
        """When it, its last request or the wait for another one began, by the clock of `ConnectionPool.add`."""

    def lose(self) -> None:
        """End the connection."""


class ConnectionPool:
    """Connections by holder.

    - `most`: connections; beyond it, the holder of most loses one for each that comes, so that another one always has room.
    - `spare`: more, for those that are younger than `GRACE_S`.
    """

    def __init__(self, most: int, *, spare: int) -> None:
        self._most, self._spare = most, spare
        self._of: dict[str, dict[Loser, None]] = {}
        self._holders: dict[Loser, str] = {}

    def add(self, holder: str, connection: Loser, now: float) -> None:
        """Have a connection count for this holder alone, and take one from whoever has most if there is no room."""
        if self._holders.get(connection) == holder:
            return
        self.remove(connection)
        self._holders[connection] = holder
        self._of.setdefault(holder, {})[connection] = None
        while len(self._holders) > self._most:
            loser = self._loser(now)
            if now - loser.since < GRACE_S and len(self._holders) <= self._most + self._spare:
                return
            self.remove(loser)
            loser.lose()

    def remove(self, connection: Loser) -> None:
        """Forget a connection, if it is here."""
        holder = self._holders.pop(connection, None)
        if holder is not None:
            del self._of[holder][connection]
            if not self._of[holder]:
                del self._of[holder]

    def count(self, holder: str) -> int:
        """Connections of a holder."""
        return len(self._of.get(holder, {}))

    def _loser(self, now: float) -> Loser:
        """The connection that goes: of whoever has most (the longest), the oldest that waits for its client, if one does."""
        most = max(len(each) for each in self._of.values())
        holders = [each for each in self._of.values() if len(each) == most]
        loses = min(holders, key=lambda each: min(connection.since for connection in each))
        return min(loses, key=lambda each: (now - each.since < GRACE_S, each.is_asked, each.since))


@dataclass(frozen=True, kw_only=True)
class Pools:
    """The connections of a server: those that brought a valid token, and all others."""

    of_tokens: ConnectionPool
    of_addresses: ConnectionPool

    @staticmethod
    def of(files: int) -> Pools:
        """The pools of a process, by the number of files that it may open."""
        tokens, addresses, spare = (most * min(files, FILES) // FILES for most in (MOST_OF_TOKENS, MOST_OF_ADDRESSES, SPARE))
        return Pools(of_tokens=ConnectionPool(tokens, spare=0), of_addresses=ConnectionPool(addresses, spare=spare))


def bounded_connections(settings: ServerSettings, pools: Pools) -> type[H11Protocol]:
    """The protocol of a server's connections, for uvicorn's `http`: what is begun and does not go on is closed, and whoever has
    most of `pools` loses a connection where they are full, never another one.

    uvicorn itself waits for ever for a head, for the rest of a body that was answered already, and for whoever does not read,
    and its one limit for all is filled by one client. Bodies that are being read have a limit of their own
    (`veil.server.http.bodies`).
    """
    addresses = Addresses(networks_of(settings.proxies))
    most_s = settings.body_s

    class Bounded(H11Protocol):
        """A connection with an end and a holder. A proxy's counts for nobody until its request says who asks."""

        _unread: asyncio.TimerHandle | None = None
        _unheard: asyncio.TimerHandle | None = None
        since = 0.0

        def connection_made(self, transport: Any) -> None:
            self.logger = log
            super().connection_made(transport)
            self._application, self.app = self.app, self._asked
            # Any byte that the network does not take is waited for, not only those beyond a buffer of 64 KiB.
            transport.set_write_buffer_limits(high=0)
            self.since = self.loop.time()
            self._watch()
            peer = self.client[0] if self.client else NOWHERE
            self._is_proxied = addresses.is_proxy(peer)
            if not self._is_proxied:
                self._belong(Holder(name=addresses.holder(peer, ()), is_token=False))

        def connection_lost(self, exc: Exception | None) -> None:
            self._unheard, self._unread = _ended(self._unheard), _ended(self._unread)
            self._leave()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            self.since = self.loop.time()
            if self._is_proxied:
                self._leave()
            super().on_response_complete()
            # The next request has its own time, but not a body that was not waited for.
            if self.conn.their_state is not h11.SEND_BODY:
                self._unheard = _ended(self._unheard)
            self._watch_body()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread = self._unread or self.loop.call_later(most_s, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._unread = _ended(self._unread)

        @property
        def is_asked(self) -> bool:
            """Whether a whole request waits for its answer."""
            return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

        def lose(self) -> None:
            """End the connection; who waits for an answer that has not begun is told to come again."""
            if self.cycle is not None and (self.cycle.response_complete or self.cycle.response_started):
                self.transport.abort()
            elif not self.transport.is_closing():
                self.transport.write(_COME_AGAIN)
                self.transport.close()

        async def _asked(self, scope: Scope, receive: Receive, send: Send) -> None:
            """Serve a request of this connection."""
            self.since = self.loop.time()
            scope["extensions"] = {EXTENSION: self._belong}
            await self._application(scope, receive, send)

        def _belong(self, holder: Holder) -> bool:
            """Count for a holder from now on. Returns whether the connection is open."""
            if self.transport.is_closing():
                return False
            (pools.of_addresses if holder.is_token else pools.of_tokens).remove(self)
            (pools.of_tokens if holder.is_token else pools.of_addresses).add(holder.name, self, self.loop.time())
            return not self.transport.is_closing()

        def _leave(self) -> None:
            """Count for nobody."""
            pools.of_tokens.remove(self)
            pools.of_addresses.remove(self)

        def _watch(self) -> None:
            """Begin to wait for a head, unless a request is being answered."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._unheard = _ended(self._unheard)
            elif self._unheard is None and not self.transport.is_closing():
                self._unheard = self.loop.call_later(min(HEAD_S, most_s), self.transport.abort)

        def _watch_body(self) -> None:
            """Begin to wait for the rest of a body that was answered."""
            if self.conn.their_state is h11.SEND_BODY and self._unheard is None and not self.transport.is_closing():
                length = dict(self.headers).get(b"content-length", b"0")
                seconds = body_seconds(int(length) if length.isdigit() else 0, most_s)
                self._unheard = self.loop.call_later(seconds, self.transport.abort)

    return Bounded


def connection_options(settings: ServerSettings) -> dict[str, Any]:
    """The options of uvicorn under which every connection ends, none of its holders has all, and no log tells who asked."""
    return {
        "http": bounded_connections(settings, Pools.of(_files())),
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        # Its own reading of X-Forwarded-For believes whoever asks from this machine.
        "proxy_headers": False,
        "timeout_keep_alive": IDLE_S,
        "h11_max_incomplete_event_size": MOST_HEAD,
    }


def _files() -> int:
    """How many files this process may open, after it asked for as many as it needs."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def _come_again() -> bytes:
    """The answer to who loses a connection."""
    detail = "the server has as many connections as it can; ask again in a moment"
    body = json.dumps({"type": "urn:veil:busy", "title": TITLES["busy"], "status": 503, "detail": detail}).encode()
    head = f"HTTP/1.1 503 Service Unavailable\r\ncontent-type: {MEDIA_TYPE}\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"retry-after: 1\r\nconnection: close\r\n\r\n" + body


_COME_AGAIN = _come_again()


def _ended(timer: asyncio.TimerHandle | None) -> asyncio.TimerHandle | None:
    """None, in place of a timer that is cancelled."""
    if timer is not None:
        timer.cancel()
    return None
