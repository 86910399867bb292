"""Clients that try to take a server from everybody else, from one address or from many, each with its own connections."""

from __future__ import annotations

import asyncio
import secrets
import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from veil.server.http.bodies import TILE_QUERIES_TYPE
from worlds.servers import MESSAGE_TYPE

# Between two connections, or two requests, of one place: what is attacked is the server, and not the machine of this program.
AGAIN_S = 0.02


@dataclass(frozen=True, kw_only=True)
class Aim:
    """Knowledge of an attacker: a map, a message that it accepts, a token for it, and a token whose quota is used up.

    `tiles` are the path of a version of tiles, `tile_bytes` the length of a request for them.
    """

    map_id: str
    message: bytes
    token: str
    spent: str
    tiles: str
    tile_bytes: int


@dataclass(frozen=True, kw_only=True)
class Attack:
    """The behavior of each connection of an attack.

    - `request`: what it sends first; a token "random" in it is another one each time.
    - `drip`: sent again and again, a byte each half second.
    - `reads`: whether it reads what comes; if so, it asks again after a whole answer.
    - `connections`: at a time.
    """

    request: Callable[[Aim], bytes]
    drip: bytes = b""
    reads: bool = True
    connections: int = 560


@dataclass
class Attacked:
    """Counts of the attackers: opened connections, and answers by status."""

    opened: int = 0
    statuses: Counter[str] = field(default_factory=Counter)


def _head(method: str, path: str, *more: str) -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: x", *more, "", ""]).encode()


def _message(aim: Aim, *, sent: float) -> bytes:
    path = f"/v1/maps/{aim.map_id}/localize"
    said = [f"Authorization: Bearer {aim.token}", f"Content-Type: {MESSAGE_TYPE}", f"Content-Length: {len(aim.message)}"]
    return _head("POST", path, *said) + aim.message[: int(sent * len(aim.message))]


def _tile_queries(aim: Aim, *, sent: float) -> bytes:
    said = [f"Content-Type: {TILE_QUERIES_TYPE}", f"Content-Length: {aim.tile_bytes}"]
    return _head("POST", f"{aim.tiles}/answers/two-servers", *said) + bytes(int(sent * aim.tile_bytes))


def _unknown(aim: Aim) -> bytes:
    return _head("GET", "/v1/maps", "Authorization: Bearer random")


ATTACKS: dict[str, Attack] = {
    "says nothing": Attack(request=lambda aim: b"", reads=False),
    "half a head": Attack(request=lambda aim: b"GET /healthz HTTP/1.1\r\nHost: x\r\nX: ", drip=b"a", reads=False),
    "half of queries for tiles": Attack(request=lambda aim: _tile_queries(aim, sent=0.5), reads=False),
    "four bytes that do not come": Attack(
        request=lambda aim: _head(
            "POST", f"{aim.tiles}/answers/two-servers", f"Content-Type: {TILE_QUERIES_TYPE}", "Content-Length: 4"
        ),
        reads=False,
    ),
    "half of JSON": Attack(
        request=lambda aim: _head("POST", "/v1/maps", "Content-Type: application/json", "Content-Length: 60000"),
        drip=b" ",
        reads=False,
    ),
    "half of messages, with a token": Attack(request=lambda aim: _message(aim, sent=0.5), reads=False),
    "reads nothing": Attack(request=lambda aim: 20 * _head("GET", f"{aim.tiles}/tiles.bin"), reads=False),
    "requests for health": Attack(request=lambda aim: _head("GET", "/readyz")),
    "requests without a token": Attack(request=lambda aim: _head("GET", "/v1/policy")),
    "requests with unknown tokens": Attack(request=_unknown),
    "requests beyond a quota": Attack(
        request=lambda aim: _head("GET", "/v1/me/usage", f"Authorization: Bearer {aim.spent}"), connections=90
    ),
    "tiles": Attack(request=lambda aim: _tile_queries(aim, sent=1.0), connections=200),
    "queries of one token": Attack(request=lambda aim: _message(aim, sent=1.0), connections=90),
}


@contextmanager
def attacking(
    attack: Attack, aim: Aim, port: int, sources: Sequence[str], *, tls: ssl.SSLContext | None = None
) -> Iterator[Attacked]:
    """An attack on a port of this machine, from these addresses in turn, until the block ends."""
    seen, loop = Attacked(), asyncio.new_event_loop()

    async def all_of_them() -> None:
        places = [
            asyncio.create_task(_again(attack, aim, port, sources[number % len(sources)], tls, seen))
            for number in range(attack.connections)
        ]
        await asyncio.gather(*places)

    task = loop.create_task(all_of_them())

    def run() -> None:
        with suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        loop.close()


async def _again(attack: Attack, aim: Aim, port: int, source: str, tls: ssl.SSLContext | None, seen: Attacked) -> None:
    """One place of an attack: a connection, and the next one when it ends."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", port, local_addr=(source, 0), ssl=tls, server_hostname="127.0.0.1" if tls else None, limit=1 << 16
            )
        except OSError:
            await asyncio.sleep(AGAIN_S)
            continue
        seen.opened += 1
        try:
            await _one(attack, aim, reader, writer, seen)
        except (OSError, EOFError, ValueError, IndexError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.transport.abort()
        await asyncio.sleep(AGAIN_S)


async def _one(attack: Attack, aim: Aim, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Attacked) -> None:
    """Run one connection until it ends."""
    if not attack.reads and not attack.drip:
        writer.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    while True:
        writer.write(attack.request(aim).replace(b"random", secrets.token_hex(16).encode()))
        if not attack.reads and b"/tiles.bin" in attack.request(aim):
            reader._transport.pause_reading()  # type: ignore[attr-defined]
        while attack.drip:
            writer.write(attack.drip)
            await writer.drain()
            await asyncio.sleep(0.5)
            if reader.at_eof():
                return
        head = await reader.readuntil(b"\r\n\r\n")
        seen.statuses[head.split(None, 2)[1].decode()] += 1
        length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
        await reader.readexactly(int(length.partition(b":")[2]))
        if not attack.reads or b"connection: close" in head.lower():
            return
        await asyncio.sleep(AGAIN_S)
