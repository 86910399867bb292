"""Where a server listens: its addresses are taken before anything is made, and nobody is told before it listens."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import uvicorn

from veil.errors import InputError
from veil.server.http.connections import connection_options
from veil.server.settings import ServerSettings

log = logging.getLogger("veil.server")
# Errors of an address that a name has and this machine does not, such as ::1 of localhost where there is no IPv6.
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


def address_of(host: str, port: int) -> str:
    """The address at which clients find a server."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


@contextmanager
def bound(host: str, port: int) -> Iterator[list[socket.socket]]:
    """Sockets of all addresses of a host, which do not listen yet; port 0 stands for a free one, the same for all of them.

    Raises InputError if another program listens there, or if this one may not.
    """
    with ExitStack() as stack:
        sockets: list[socket.socket] = []
        skipped: OSError | None = None
        for family, place in _places(host, port):
            try:
                one = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                if family == socket.AF_INET6:
                    one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                one.bind((place[0], sockets[0].getsockname()[1] if sockets else port, *place[2:]))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    raise InputError(_refusal(host, port, error)) from None
                skipped = error
                continue
            sockets.append(one)
        if not sockets:
            raise InputError(_refusal(host, port, skipped or OSError(errno.EADDRNOTAVAIL, "no address")))
        yield sockets


def _places(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
    """Families and addresses of a host, each once. Raises InputError for one that does not exist."""
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InputError(f"host is {host!r}, which is no address of this machine ({error.strerror}); use 127.0.0.1") from None
    return list(dict.fromkeys((int(family), place) for family, _, _, _, place in addresses if len(place) >= 2))


def _refusal(host: str, port: int, error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"port {port} of {host} is used by another program; end that one, or set another `port` (0: any that is free)"
    if error.errno == errno.EACCES:
        return f"port {port} of {host} may not be used by this user; set a `port` from 1024 on"
    return f"cannot listen at port {port} of {host} ({error.strerror}); set `host` to an address of this machine"


def serve(app: Any, settings: ServerSettings, sockets: list[socket.socket], listens: Callable[[], None]) -> None:
    """Serve an application until a signal ends it; `listens` is called, and systemd told, once it answers requests.

    Raises InputError if another program has begun to listen there meanwhile.
    """
    config = uvicorn.Config(app, host=settings.host, port=settings.port, **connection_options(settings))
    server = _Server(config, listens)
    with suppress(KeyboardInterrupt):  # the signal that ended it, once more
        server.run(sockets=sockets)


class _Server(uvicorn.Server):
    """A server that tells when it listens and when it ends."""

    def __init__(self, config: uvicorn.Config, listens: Callable[[], None]) -> None:
        super().__init__(config)
        self._listens = listens

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets=sockets)
            self._listens()
        except Exception as error:
            await (self.shutdown(sockets=sockets) if self.started else self.lifespan.shutdown())
            if isinstance(error, OSError) and not self.started:
                raise InputError(_refusal(self.config.host, self.config.port, error)) from None
            raise
        notify("READY=1")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        notify("STOPPING=1")
        await super().shutdown(sockets=sockets)


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Tell systemd a state, if it started this program and asked for it (sd_notify(3))."""
    place = environment.get("NOTIFY_SOCKET", "")
    if not place.startswith(("/", "@")):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            one.connect("\0" + place[1:] if place.startswith("@") else place)
            one.sendall(state.encode())
    except OSError as error:
        log.warning("systemd was not told %s: %s", state, error.strerror)
