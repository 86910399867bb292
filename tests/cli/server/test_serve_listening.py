"""`veil serve` says that it serves when it does: to people, to systemd, and not where another program listens."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from veil.cli import main
from veil.errors import InputError
from veil.server.http.listening import address_of, bound, notify, serve
from veil.server.settings import ServerSettings

LINE = r"^veil serves (\S+) at (http://\S+) \(Ctrl-C ends it\)$"


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@contextmanager
def told(folder: Path) -> Iterator[socket.socket]:
    """A socket of systemd's kind, which messages of services come to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(folder / "notify"))
        receiver.settimeout(60)
        yield receiver


@pytest.mark.slow
def test_the_line_and_systemd_are_told_once_it_listens(tmp_path: Path) -> None:
    """One request each, without a second try, at the moment of the message and of the line; the address is the real one."""
    with told(tmp_path) as systemd:
        environment = {**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "VEIL_SERVE_WORKERS": "1"}
        command = [sys.executable, "-m", "veil.cli", "serve", str(tmp_path / "store"), "--port", "0"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
        try:
            assert server.stdout is not None
            lines = [server.stdout.readline(), server.stdout.readline()]
            assert re.fullmatch(r"admin token, told this once: veil_[\w-]{43}\n", lines[0]), lines
            line = re.match(LINE, lines[1])
            assert line is not None, lines
            assert not line[2].endswith(":0")
            with urlopen(f"{line[2]}/readyz", timeout=5) as answer:
                assert answer.status == 200
            assert systemd.recv(100) == b"READY=1"
        finally:
            server.send_signal(signal.SIGTERM)
        assert systemd.recv(100) == b"STOPPING=1"
        assert server.wait(timeout=60) in (0, -signal.SIGTERM)
    assert "Traceback" not in server.stdout.read()


def test_a_used_port_is_one_line_and_nothing_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        map_that_is_not_read = f"lobby={tmp_path / 'none'}"
        assert run("serve", tmp_path / "store", "--port", port, "--demo", "--add-map", map_that_is_not_read) == 1
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    assert f"port {port} of 127.0.0.1 is used by another program" in shown.err and "set another `port`" in shown.err
    assert not (tmp_path / "store").exists()


def test_hosts_that_are_none_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for host in ("no.such.host.invalid", "203.0.113.9"):
        assert run("serve", tmp_path / "store", "--host", host, "--port", 0) == 1
        shown = capsys.readouterr().err
        assert shown.count("\n") == 1 and host in shown and "host" in shown
    assert not (tmp_path / "store").exists()


class Application:
    """An application that says how it was started and ended."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, scope, receive, send) -> None:
        assert scope["type"] == "lifespan"
        for _ in range(2):
            kind = (await receive())["type"]
            self.seen.append(kind)
            await send({"type": f"{kind}.complete"})


def test_another_program_that_is_first_after_all(tmp_path: Path) -> None:
    """Both took the address, and the other one listens first: nobody is told, and what was started is ended."""
    application, calls = Application(), list[str]()
    with bound("127.0.0.1", 0) as sockets, socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(sockets[0].getsockname())
        other.listen()
        with pytest.raises(InputError, match="is used by another program"):
            serve(application, ServerSettings(port=sockets[0].getsockname()[1]), sockets, lambda: calls.append("listens"))
    assert calls == [] and application.seen == ["lifespan.startup", "lifespan.shutdown"]


def test_what_fails_when_it_listens_ends_the_server(tmp_path: Path) -> None:
    application = Application()

    def fails() -> None:
        raise InputError("the first token cannot be made")

    with told(tmp_path) as systemd, pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with bound("127.0.0.1", 0) as sockets, pytest.raises(InputError, match="first token"):
            serve(application, ServerSettings(port=0), sockets, fails)
        assert application.seen == ["lifespan.startup", "lifespan.shutdown"]
        assert systemd.recv(100) == b"STOPPING=1"


def test_systemd_is_told_by_either_kind_of_socket(tmp_path: Path) -> None:
    """Abstract sockets begin with @ in the variable; without one, or with one that is gone, nothing happens."""
    for place, bind_at in (("@veil-" + str(time.time_ns()), None), (str(tmp_path / "socket"), str(tmp_path / "socket"))):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
            receiver.bind(bind_at or "\0" + place[1:])
            receiver.settimeout(5)
            notify("READY=1", {"NOTIFY_SOCKET": place})
            assert receiver.recv(100) == b"READY=1"
    for place in ("", "relative", str(tmp_path / "gone")):
        notify("READY=1", {"NOTIFY_SOCKET": place})


def test_addresses_are_taken_once_each() -> None:
    """Port 0 is the same port at all addresses of a name; IPv6 has brackets."""
    assert address_of("::1", 8700) == "http://[::1]:8700" and address_of("127.0.0.1", 1) == "http://127.0.0.1:1"
    with bound("localhost", 0) as sockets:
        assert len({one.getsockname()[1] for one in sockets}) == 1 and sockets[0].getsockname()[1] > 0
        assert len({one.getsockname()[0] for one in sockets}) == len(sockets)


def test_an_address_that_this_machine_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with three addresses, of which two are not here; a name with nothing but such ones is refused."""
    here = (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 0))
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, 0)) for place in ("203.0.113.9", "198.51.100.9")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [*elsewhere, here])
    with bound("a.name", 0) as sockets:
        assert [one.getsockname()[0] for one in sockets] == ["127.0.0.1"]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: elsewhere)
    with pytest.raises(InputError, match="cannot listen"), bound("a.name", 0):
        pass
