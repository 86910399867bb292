"""Hostile requests against a server: documented answers, connections that end, and nothing of others in any answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from veil.device.device import Device
from veil.features import Features
from veil.files.maps.format import write_map
from veil.server.access.tokens import Quota
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.hostile_load import Findings, attacked
from worlds.hostile_requests import KINDS, Exchange, Target, exchange, exchanges
from worlds.releases import planted_map
from worlds.served_streets import serve_street
from worlds.servers import Running, messages_of, running, words_of

BODY_S = 1.0
# A head, then a body, each in its time, and more for a machine that is busy.
SLOW_S = 4 * BODY_S + 6
PLENTY = Quota(requests_per_minute=1 << 40, bytes_per_day=1 << 50)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = ServerSettings(workers=1, body_s=BODY_S, deadline_s=5.0)
    with running(Service(tmp_path_factory.mktemp("server") / "store", settings), jobs=False) as server:
        yield server


@pytest.fixture(scope="module")
def prey(
    server: Running, door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Target, tuple[str, ...]]:
    """A target with a map of planted truth, and what only a victim and the administrator may know."""
    folder, service = tmp_path_factory.mktemp("prey"), server.service
    features = next(iter(door.values()))
    write_map(folder / "map", planted_map(features, public=True))
    record = service.import_map("open", folder / "map")
    messages = messages_of(dict(list(door.items())[:2]), Device(folder / "device"), most=60)
    closed = service.records.make("planted-name-of-a-closed-map", MapPolicy())
    victim, _ = service.tokens.make("planted-name-of-a-victim", ["localize", "contribute"], quota=PLENTY)
    theirs = [service.contribute(victim, place, next(iter(messages.values())))[0] for place in (record.id, closed.id)]
    target = Target(
        map_id=record.id,
        tokens={
            "admin": server.admin,
            **{
                name: service.tokens.make(name, scopes, maps=[record.id], quota=PLENTY)[1]  # type: ignore[arg-type]
                for name, scopes in {
                    "localize": ["localize"],
                    "contribute": ["contribute"],
                    "both": ["localize", "contribute"],
                }.items()
            },
        },
        messages=(*messages.values(), words_of(features, Device(folder / "words"), most=60)),
        others=(closed.id, victim.id, *(item.id for item in theirs)),
        tiles=serve_street(service),
    )
    # An attacker names the ids itself, and problems repeat what was named; names and digests it cannot know.
    return target, (closed.name, victim.name)


@pytest.mark.slow
def test_two_thousand_hostile_requests(server: Running, prey: tuple[Target, tuple[str, ...]], unchecked: None) -> None:
    """Every kind, every answer documented, every connection ended; what the victim has is as it was."""
    target, markers = prey
    before = server.service.records.contributions()
    hostile = [item for item in exchanges(target, 1, 2000) if item.token != "admin" or b"DELETE" not in item.parts[0][:6]]
    findings = attacked(server.port, hostile, markers=markers, threads=16, slow_s=SLOW_S)
    assert not (findings.undocumented or findings.leaks or findings.hung), findings
    assert {kind for kind, _ in findings.statuses} == set(KINDS) - {"schema"}
    assert {status for _, status in findings.statuses} >= {
        "200",
        "400",
        "401",
        "403",
        "404",
        "411",
        "413",
        "415",
        "422",
        "closed",
    }
    victims = {item.id for item in before}
    assert [item for item in server.service.records.contributions() if item.id in victims] == before
    assert server.ask("GET", "/healthz").status == 200
    assert server.ask("POST", f"/v1/maps/{target.map_id}/localize", body=target.messages[0]).value["status"] in (
        "localized",
        "no pose",
    )


@pytest.mark.slow
def test_a_request_of_a_number_is_always_the_same(prey: tuple[Target, tuple[str, ...]]) -> None:
    target, _ = prey
    assert [exchange(target, 7, number) for number in range(50)] == list(exchanges(target, 7, 50))
    assert exchange(target, 8, 0) != exchange(target, 7, 0)


class _Broken(BaseHTTPRequestHandler):
    """A server with each fault that is looked for."""

    def do_GET(self) -> None:
        if self.path == "/hang":
            self.rfile.read(1)
        status, data = {"/fail": (500, b"{}"), "/leak": (200, b"a planted name")}.get(self.path, (200, b"{}"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_each_fault_would_be_seen() -> None:
    """The broken twin: a server that fails, tells, and hangs."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Broken)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def seen(path: str) -> Findings:
        item = Exchange(kind="path", method="GET", parts=(f"GET {path} HTTP/1.0\r\n\r\n".encode(),))
        return attacked(server.server_address[1], [item], markers=["planted name"], threads=1, slow_s=0.3, limit_s=0.3)

    try:
        assert seen("/").statuses == {("path", "200"): 1}
        assert len(seen("/fail").undocumented) == len(seen("/leak").leaks) == len(seen("/hang").hung) == 1
    finally:
        server.shutdown()
        server.server_close()
