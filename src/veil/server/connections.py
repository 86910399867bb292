"""Connections that end: a request line and headers that come slowly, an answer that nobody reads, a body after its answer."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from veil.server.settings import ServerSettings

# What is no HTTP leaves no line: whoever sends it could fill the disk with them.
log = logging.getLogger("veil.server.connections")
log.setLevel(logging.ERROR)
# A request line with its headers, and how long a connection may wait for the next request.
MOST_HEAD, IDLE_S = 16 << 10, 30
# Connections at a time; more are told to come again (503).
MOST_CONNECTIONS = 512


def bounded_connections(seconds: float) -> type[H11Protocol]:
    """The protocol of a server's connections, for uvicorn's `http`: what is begun and does not go on for `seconds` is closed.

    uvicorn itself waits for ever for a head, for the rest of a body that was answered already, and for whoever does not read.
    Bodies that are being read have a limit of their own (`veil.server.bodies`).
    """

    class Bounded(H11Protocol):
        """A connection with an end."""

        _unread: asyncio.TimerHandle | None = None
        _unheard: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            self.logger = log
            super().connection_made(transport)
            # Any byte that the network does not take is waited for, not only those beyond a buffer of 64 KiB.
            transport.set_write_buffer_limits(high=0)
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            self._unheard, self._unread = _ended(self._unheard), _ended(self._unread)
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._watch()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            # The next request has its own time, but not a body that was not waited for.
            if self.conn.their_state is not h11.SEND_BODY:
                self._unheard = _ended(self._unheard)
            self._watch_body()

        def pause_writing(self) -> None:
            super().pause_writing()
            self._unread = self._unread or self.loop.call_later(seconds, self.transport.abort)

        def resume_writing(self) -> None:
            super().resume_writing()
            self._unread = _ended(self._unread)

        def _watch(self) -> None:
            """Begin to wait for a head, unless a request is being answered."""
            if self.cycle is not None and not self.cycle.response_complete:
                self._unheard = _ended(self._unheard)
            elif self._unheard is None and not self.transport.is_closing():
                self._unheard = self.loop.call_later(seconds, self.transport.abort)

        def _watch_body(self) -> None:
            """Begin to wait for the rest of a body that was answered."""
            if self.conn.their_state is h11.SEND_BODY:
                self._watch()

    return Bounded


def connection_options(settings: ServerSettings) -> dict[str, Any]:
    """The options of uvicorn under which every connection ends and no log tells who asked."""
    return {
        "http": bounded_connections(settings.body_s),
        "ws": "none",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "timeout_keep_alive": IDLE_S,
        "limit_concurrency": MOST_CONNECTIONS,
        "h11_max_incomplete_event_size": MOST_HEAD,
    }


def _ended(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
