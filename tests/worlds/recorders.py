"""Relays between a client and a server: one keeps every request, the other cuts connections at a given byte."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Recorder(ThreadingHTTPServer):
    """A server that keeps every request as it came, and answers as it is told: one path as `answers` says, others `answer`."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer: tuple[int, dict[str, str], bytes] = (200, {}, b"{}")
        self.answers: dict[str, bytes] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def _serve(self) -> None:
        assert isinstance(self.server, Recorder)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.requests.append((self.command, self.path, dict(self.headers.items()), body))
        status, headers, data = self.server.answer
        if self.path in self.server.answers:
            status, data = 200, self.server.answers[self.path]
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def recording() -> Iterator[Recorder]:
    """A recorder in a thread."""
    server = Recorder()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Cutter:
    """A relay to a server that ends each connection after a number of bytes of the request or of the answer; None: never.

    `sent` holds what clients sent on each connection, and `let_pass` counts connections that were not cut.
    """

    server: int
    port: int = 0
    request_bytes: int | None = None
    answer_bytes: int | None = None
    sent: list[bytearray] = field(default_factory=list)
    answered: list[bytearray] = field(default_factory=list)

    def relay(self, client: socket.socket) -> None:
        """Relay one connection."""
        sent, answered = bytearray(), bytearray()
        self.sent.append(sent)
        self.answered.append(answered)
        with client, socket.create_connection(("127.0.0.1", self.server)) as server:

            def back() -> None:
                with contextlib.suppress(OSError):
                    while data := server.recv(65536):
                        left = len(data) if self.answer_bytes is None else max(0, self.answer_bytes - len(answered))
                        answered.extend(data)
                        client.sendall(data[:left])
                        # The server has answered whole before the connection is cut.
                        if self.answer_bytes is not None and answered.endswith(b"}"):
                            break
                with contextlib.suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

            thread = threading.Thread(target=back)
            thread.start()
            with contextlib.suppress(OSError):
                while data := client.recv(65536):
                    left = len(data) if self.request_bytes is None else max(0, self.request_bytes - len(sent))
                    sent.extend(data)
                    server.sendall(data[:left])
                    if self.request_bytes is not None and len(sent) >= self.request_bytes:
                        break
            with contextlib.suppress(OSError):
                server.shutdown(socket.SHUT_RDWR if self.request_bytes is not None else socket.SHUT_WR)
            thread.join()


@contextlib.contextmanager
def cutting(server: int) -> Iterator[Cutter]:
    """A cutter in front of a server's port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        cutter = Cutter(server=server, port=listening.getsockname()[1])

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = listening.accept()
                    threading.Thread(target=cutter.relay, args=(client,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield cutter
