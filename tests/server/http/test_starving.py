"""Attacks that would take the server from everybody else, each in a small form: health and queries of others are answered."""

from __future__ import annotations

import asyncio
import http.client
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from veil.device.device import Device
from veil.features import Features
from veil.files.maps.format import write_map
from veil.server.access import shares
from veil.server.access.tokens import Quota
from veil.server.http import bodies, connections
from veil.server.http.bodies import BoundedBodies, body_seconds
from veil.server.http.entrance import HOLDER, Holder, Turns, holder_of
from veil.server.jobs.processes import Busy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds import servers
from worlds.releases import planted_map, taken
from worlds.served_streets import serve_street
from worlds.servers import MESSAGE_TYPE, Running, messages_of, running
from worlds.starving import ATTACKS, Aim, attacking

ONE, MANY = ("127.0.1.1",), tuple(f"127.0.1.{number}" for number in range(1, 21))
VICTIM = "127.0.2.1"
# Small pools, which 60 connections fill; in the server they have hundreds.
MOST, SPARE, OPEN = 24, 8, 60


@pytest.fixture(scope="module")
def prey(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Aim, str]]:
    """A server with a planted map and tiles, what an attacker knows of it, and a victim's token."""
    folder = tmp_path_factory.mktemp("starving")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("MOST_OF_ADDRESSES", MOST), ("MOST_OF_TOKENS", MOST), ("SPARE", SPARE)):
            patch.setattr(connections, name, value)
        patch.setattr(shares, "PAUSE_S", 0.2)
        with running(Service(folder / "store", ServerSettings(workers=1, waiting=8)), jobs=False) as server:
            yield server, *aim_at(server, door, folder)


def aim_at(server: Running, door: dict[str, Features], folder: Path) -> tuple[Aim, str]:
    service, features = server.service, next(iter(door.values()))
    write_map(folder / "map", planted_map(taken(features, np.arange(60)), public=True))
    record = service.import_map("open", folder / "map")
    message = next(iter(messages_of(dict(list(door.items())[:1]), Device(folder / "device"), most=60).values()))
    plenty = Quota(requests_per_minute=1 << 40)
    _, greedy = service.tokens.make("greedy", ["localize"], quota=plenty)
    _, spent = service.tokens.make("spent", ["localize"], quota=Quota(requests_per_minute=0))
    _, modest = service.tokens.make("modest", ["localize"], quota=plenty)
    tiles, length, _ = serve_street(service)
    return Aim(map_id=record.id, message=message, token=greedy, spent=spent, tiles=tiles, tile_bytes=length), modest


def asked(port: int, path: str, token: str = "", body: bytes | None = None, *, source: str = VICTIM) -> int | str:
    """The status of a request from an address, or the name of what went wrong."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20, source_address=(source, 0))
    try:
        connection.request("GET" if body is None else "POST", path, body, {**headers, "Content-Type": MESSAGE_TYPE})
        return connection.getresponse().status
    except OSError as error:
        return type(error).__name__
    finally:
        connection.close()


def until(holds: Callable[[], bool]) -> None:
    for _ in range(600):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it does not come to hold")


@pytest.mark.slow
@pytest.mark.parametrize("sources", [ONE, MANY], ids=["one address", "many"])
@pytest.mark.parametrize("name", list(ATTACKS))
def test_health_and_queries_of_others_are_answered(
    name: str, sources: tuple[str, ...], prey: tuple[Running, Aim, str], unchecked: None
) -> None:
    """Every one of them, while more connections than the server has places for are opened again and again."""
    server, aim, modest = prey
    attack = ATTACKS[name]
    attack = replace(attack, connections=OPEN)
    with attacking(attack, aim, server.port, sources) as seen:
        until(lambda: seen.opened >= OPEN)
        for source in (VICTIM, "127.0.2.2"):
            assert [asked(server.port, path, source=source) for path in ("/healthz", "/readyz")] == [200, 200]
            assert asked(server.port, f"/v1/maps/{aim.map_id}/localize", modest, aim.message, source=source) == 200
            assert asked(server.port, "/v1/maps", modest, source=source) == 200
            assert asked(server.port, "/v1/policy", source=source) == 200
    if attack.reads:
        assert seen.statuses and set(seen.statuses) <= {"200", "400", "401", "429", "503"}, seen


@pytest.mark.slow
def test_a_token_keeps_its_connection_where_its_address_has_too_many(prey: tuple[Running, Aim, str], unchecked: None) -> None:
    """A phone behind the attacker's own address: its connection goes on, and one that brought no token is lost."""
    server, aim, modest = prey
    phone, nobody = (http.client.HTTPConnection("127.0.0.1", server.port, timeout=20, source_address=(ONE[0], 0)) for _ in "ab")
    for connection, headers in ((phone, {"Authorization": f"Bearer {modest}"}), (nobody, {})):
        connection.request("GET", "/v1/maps" if headers else "/v1/policy", headers=headers)
        assert connection.getresponse().read() and connection.sock is not None
    with attacking(ATTACKS["half a head"], aim, server.port, ONE) as seen:
        until(lambda: seen.opened >= 5 * OPEN)
        until(lambda: nobody.sock is None or nobody.sock.recv(1) == b"")
        phone.request("GET", "/v1/maps", headers={"Authorization": f"Bearer {modest}"})
        answer = phone.getresponse()
        assert answer.status == 200 and answer.read()
    phone.close()


@pytest.mark.slow
def test_health_waits_for_no_turn(prey: tuple[Running, Aim, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """While nobody is let in, health is answered, and everything else is told to come again."""
    server, _, modest = prey

    take = Turns.take

    async def full(self: Turns, holder: str) -> None:
        if self._most > 1:  # those of health have a rate alone
            raise Busy("full")
        await take(self, holder)

    monkeypatch.setattr(Turns, "take", full)
    time.sleep(1.1)  # /readyz keeps its answer for a second
    assert [asked(server.port, path) for path in ("/healthz", "/readyz")] == [200, 200]
    answer = server.ask("GET", "/v1/maps", token=modest)
    assert answer.status == 503 and answer.headers["retry-after"] == "1" and answer.value["type"] == "urn:veil:busy"


@pytest.mark.slow
def test_one_limit_for_all_is_filled_by_one_client(
    prey: tuple[Running, Aim, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken twin: uvicorn's own protocol and limit, as a server without shares has them, answer nobody but the attacker."""
    _, aim, _ = prey

    def without(settings: ServerSettings) -> dict[str, Any]:
        return {**connections.connection_options(settings), "http": H11Protocol, "limit_concurrency": MOST}

    monkeypatch.setattr(servers, "connection_options", without)
    service = Service(tmp_path / "store", ServerSettings(workers=1))
    with running(service, jobs=False) as server, attacking(ATTACKS["half a head"], aim, server.port, ONE) as seen:
        until(lambda: seen.opened >= OPEN)
        until(lambda: asked(server.port, "/readyz") == 503)


@pytest.mark.slow
def test_a_trickle_renews_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head of which a byte comes each 0.1 s, and a connection that says nothing, end `HEAD_S` after they began."""
    monkeypatch.setattr(connections, "HEAD_S", 1.0)
    with running(Service(tmp_path / "store", ServerSettings(workers=1)), jobs=False) as server:
        for drip in (b"a", b""):
            with socket.create_connection(("127.0.0.1", server.port), timeout=0.1) as stream:
                begun, ended = time.monotonic(), False
                stream.sendall(b"GET / HTTP/1.1\r\nX: " if drip else b"")
                while not ended and time.monotonic() - begun < 30:
                    try:
                        ended = stream.recv(1) == b""
                    except TimeoutError:
                        stream.sendall(drip)
                    except OSError:
                        ended = True
                assert ended and time.monotonic() - begun > 0.9


def test_a_body_has_time_by_its_length() -> None:
    """Planted: 5 s, and one more for each 16 KiB, but never more than the setting."""
    assert [body_seconds(length, 30.0) for length in (0, 4, 16 << 10, 160 << 10, 16 << 20)] == [
        5.0,
        5.0 + 4 / 16384,
        6.0,
        15.0,
        30.0,
    ]
    assert body_seconds(16 << 20, 2.0) == body_seconds(4, 2.0) == 2.0


@pytest.mark.slow
def test_queries_for_tiles_of_another_length_are_refused_before_they_come(prey: tuple[Running, Aim, str]) -> None:
    """Four bytes that never come, where every device sends more: the answer is there at once."""
    server, aim, _ = prey
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stream:
        stream.sendall(ATTACKS["four bytes that do not come"].request(aim))
        assert b" 422 " in stream.recv(65536) and server.ask("GET", "/healthz").status == 200


@pytest.mark.slow
def test_four_bytes_that_do_not_come_end_soon(
    prey: tuple[Running, Aim, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the least time at 0.5 s, a body of four bytes ends long before `body_s`, whether it is answered before it or not."""
    _, aim, _ = prey
    monkeypatch.setattr(bodies, "LEAST_BODY_S", 0.5)
    with running(Service(tmp_path / "store", ServerSettings(workers=1, body_s=3600.0)), jobs=False) as server:
        head = (
            f"POST /v1/maps/{aim.map_id}/localize HTTP/1.1\r\nHost: x\r\nContent-Type: {MESSAGE_TYPE}\r\nContent-Length: 4\r\n"
        )
        json_head = "POST /v1/maps HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 4\r\n"
        for text, status in ((head, b" 401 "), (json_head, b" 408 ")):
            with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stream:
                stream.sendall(text.encode() + b"\r\nx")
                received = b""
                while part := stream.recv(65536):
                    received += part
                assert status in received


def test_bodies_of_one_address_leave_room_for_others() -> None:
    """Of 100 KiB with no time limit: one address gets half at once, the rest is Busy; another address and a token have room."""

    async def all_of_them() -> None:
        go, inside = asyncio.Event(), Counter[str]()

        async def application(scope: Any, receive: Any, send: Any) -> None:
            inside[scope[HOLDER].name] += 1
            await go.wait()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body"})

        layer = BoundedBodies(application, 3600.0, 400 << 10, 400 << 10)

        async def ask(holder: Holder) -> int:
            told: list[int] = []
            headers = [(b"content-length", b"102400"), (b"content-type", MESSAGE_TYPE.encode())]
            scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, HOLDER: holder}

            async def send(message: Any) -> None:
                told.append(message.get("status", 0))

            await layer(scope, receive=None, send=send)  # type: ignore[arg-type]
            return told[0]

        greedy = [asyncio.create_task(ask(Holder(name="greedy", is_token=False))) for _ in range(9)]
        await asyncio.sleep(0.05)
        others = [asyncio.create_task(ask(Holder(name=name, is_token=name == "token"))) for name in ("modest", "token")]
        await asyncio.sleep(0.05)
        assert inside == {"greedy": 2, "modest": 1, "token": 1}
        go.set()
        assert sorted(await asyncio.gather(*greedy)) == [200] * 2 + [503] * 7
        assert await asyncio.gather(*others) == [200, 200]

    asyncio.run(all_of_them())


@pytest.mark.slow
@pytest.mark.parametrize("proxies", ["127.0.0.1", ""])
def test_a_proxy_is_believed_where_it_is_named(proxies: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asked as the layer within sees it. uvicorn would believe every client of this machine."""
    seen: list[Holder] = []
    within = BoundedBodies.__call__

    async def spied(self: BoundedBodies, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            seen.append(holder_of(scope))
        await within(self, scope, receive, send)

    monkeypatch.setattr(BoundedBodies, "__call__", spied)
    with running(Service(tmp_path / "store", ServerSettings(workers=1, proxies=proxies)), jobs=False) as server:
        said = {"X-Forwarded-For": "203.0.113.5, 198.51.100.9"}
        assert server.ask("GET", "/v1/policy", token="", headers=said).status == 200
        assert server.ask("GET", "/v1/policy", token="veil_unknown", headers=said).status == 200
        assert server.ask("GET", "/v1/policy", headers=said).status == 200
    address = "198.51.100.9" if proxies else "127.0.0.1"
    assert [(item.name, item.is_token) for item in seen[:2]] == [(address, False)] * 2
    assert seen[2].is_token and seen[2].name.startswith("t")
