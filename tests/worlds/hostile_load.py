"""Hostile requests sent by several threads, and what came of each: its status, its time, and whether it told too much."""

from __future__ import annotations

import http.client
import itertools
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from worlds.hostile_requests import Exchange

# What the service's page promises; 503 is the only fault of a server among them.
DOCUMENTED = {200, 201, 202, 204, 304, 400, 401, 403, 404, 405, 406, 408, 409, 411, 413, 415, 422, 429, 503}


@dataclass
class Findings:
    """Outcomes of hostile requests.

    - `statuses`: number of requests by kind and end: a status, or "closed" without one.
    - `undocumented`, `leaks`, `hung`: requests whose answer was none that the page promises, told a marker, or did not end.
    - `longest_s`: until the answer or the end of a connection, of each kind.
    """

    statuses: Counter[tuple[str, str]] = field(default_factory=Counter)
    undocumented: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    hung: list[str] = field(default_factory=list)
    longest_s: dict[str, float] = field(default_factory=dict)


def attacked(
    port: int, hostile: Iterable[Exchange], *, markers: Iterable[str], threads: int, slow_s: float, limit_s: float = 90.0
) -> Findings:
    """Send hostile requests to a server at a port of this machine, and return the findings.

    `markers` stand in no answer to a token but the administrator's. A connection hangs that neither answers nor ends within
    `limit_s`, by which waiting for a process and its deadline are over, or, if it is sent slowly, within `slow_s`.
    """
    findings, lock = Findings(), threading.Lock()
    numbered = iter(enumerate(hostile))
    planted = [marker.encode() for marker in markers]

    def work() -> None:
        kept: socket.socket | None = None
        while True:
            with lock:
                number, item = next(numbered, (0, None))
            if item is None:
                return
            begun = time.monotonic()
            status, data, kept = _exchanged(port, item, kept, slow_s if item.pause_s else limit_s)
            seconds = time.monotonic() - begun
            if status == "503" and (named := re.search(rb'"urn:veil:(\w+)"', data)):
                status = f"503 {named[1].decode()}"
            told = f"{number} {item.kind} {status}: {item.parts[0][:120]!r}"
            with lock:
                findings.statuses[item.kind, status] += 1
                findings.longest_s[item.kind] = max(findings.longest_s.get(item.kind, 0.0), seconds)
                if status == "hung":
                    findings.hung.append(told)
                elif status != "closed" and int(status[:3]) not in DOCUMENTED:
                    findings.undocumented.append(f"{told} {data[:300]!r}")
                if item.token != "admin" and any(marker in data for marker in planted):
                    findings.leaks.append(told)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return findings


def _exchanged(
    port: int, item: Exchange, kept: socket.socket | None, limit_s: float
) -> tuple[str, bytes, socket.socket | None]:
    """The end of a request, its whole answer, and a connection that can be used again."""
    whole = item.pause_s == 0 and item.kind not in ("garbage", "head")
    until = time.monotonic() + limit_s
    for again in itertools.count():
        stream = kept if kept is not None and whole and not again else _connected(port)
        is_kept = stream is kept
        try:
            stream.settimeout(limit_s)
            _sent(stream, item, until)
            stream.settimeout(max(0.1, until - time.monotonic()))
            answer = http.client.HTTPResponse(stream, method=item.method)
            answer.begin()
            data = str(answer.getheaders()).encode() + answer.read()
        except TimeoutError:
            stream.close()
            return "hung", b"", None
        except (OSError, http.client.HTTPException):
            stream.close()
            if is_kept:  # the server had closed it
                continue
            return "closed", b"", None
        if item.pause_s:  # answered, but does it end, too?
            status = _ended(stream, until) or str(answer.status)
            stream.close()
            return status, data, None
        if not whole or answer.will_close:
            stream.close()
            return str(answer.status), data, None
        if stream is not kept and kept is not None:
            kept.close()
        return str(answer.status), data, stream
    raise AssertionError("a new connection is never tried twice")


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def _sent(stream: socket.socket, item: Exchange, until: float) -> None:
    """Send a request, in parts with pauses; what the server refuses to read is no error here."""
    for part in item.parts:
        try:
            stream.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            return
        if item.pause_s and len(item.parts) > 1:
            time.sleep(item.pause_s)
        if time.monotonic() > until:
            raise TimeoutError


def _ended(stream: socket.socket, until: float) -> str:
    """ "hung" if a connection is still open at a moment."""
    try:
        while True:
            stream.settimeout(max(0.1, until - time.monotonic()))
            if not stream.recv(65536):
                return ""
    except TimeoutError:
        return "hung"
    except OSError:
        return ""
