"""nginx and Caddy with their files of deploy/, as they are but for addresses and certificates."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def nginx(program: str, folder: Path, server_port: int, port: int) -> list[str]:
    """The command of nginx before a server; the certificate is in the folder."""
    text = (DEPLOY / "nginx.conf").read_text().replace("127.0.0.1:8700", f"127.0.0.1:{server_port}")
    for there in ("/etc/ssl/veil", "/var/log/nginx", "/run"):
        text = text.replace(f"{there}/", f"{folder}/")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"    {kind}_temp_path {folder}/{kind};\n" for kind in kinds)
    text = text.replace("listen 443", f"listen 127.0.0.1:{port}").replace("http {\n", f"http {{\n{temporary}")
    (folder / "nginx.conf").write_text(text)
    path = str(folder / "nginx.conf")
    return [program, "-p", str(folder), "-c", path, "-e", str(folder / "error.log"), "-g", "daemon off;"]


def caddy(program: str, folder: Path, server_port: int, port: int) -> list[str]:
    """The command of Caddy before a server; the certificate is in the folder."""
    text = (DEPLOY / "Caddyfile").read_text().replace("127.0.0.1:8700", f"127.0.0.1:{server_port}")
    certificate = f"tls {folder}/fullchain.pem {folder}/key.pem"
    text = text.replace("maps.example.org {", f"https://127.0.0.1:{port} {{\n\tbind 127.0.0.1\n\t{certificate}")
    assert "\n{\n" in text
    text = text.replace("\n{\n", "\n{\n\tadmin off\n\tauto_https disable_redirects\n", 1)
    (folder / "Caddyfile").write_text(text)
    return [program, "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


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
