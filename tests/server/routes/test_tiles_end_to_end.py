"""Tiles from real server processes: what their logs and their memory hold after fetches does not tell which were fetched."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from veil.cli import main
from veil.client.tile_access import open_tiles
from veil.device.tiles import localize_with_tiles
from veil.files.tiles import write_tiles
from veil.pir import one_server, two_servers
from veil.places.poses.answer import Localization
from veil.tiles.cutting import CutMap, CutOptions, cut
from veil.tiles.fetching import fetcher_of
from worlds.ports import free_port
from worlds.tile_streets import Street, street

NAME, ASKED = "street", 2


@cache
def place() -> Street:
    return street("end to end", cameras=260, density=12)


@cache
def made() -> CutMap:
    return cut(place().scene, CutOptions(tile_bytes=2500, words=8, asked=ASKED, overlap=0.1))


@dataclass(frozen=True)
class Process:
    """A server's process: its number, its address and the file of its log."""

    pid: int
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/tiles/{NAME}"

    def lines(self) -> list[str]:
        """The lines of its log without times; they are written after answers, and waited for."""
        size = -1
        while size != (size := self.log.stat().st_size):
            time.sleep(0.3)
        text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+|\d+ ms", "", self.log.read_text())
        return [line for line in text.splitlines() if "/v1/tiles" in line]

    def holds(self, needles: Sequence[bytes]) -> list[bool]:
        """Whether each needle is in its memory, outside of the files that it maps."""
        held = [False] * len(needles)
        with open(f"/proc/{self.pid}/maps") as maps, open(f"/proc/{self.pid}/mem", "rb") as memory:
            for line in maps:
                span, access, _, _, _, *path = line.split(None, 5)
                if "w" not in access or (path and path[0].startswith("/")):
                    continue
                first, last = (int(edge, 16) for edge in span.split("-"))
                memory.seek(first)
                try:
                    data = memory.read(last - first)
                except OSError:  # pages that are reserved and not there
                    continue
                held = [is_found or needle in data for is_found, needle in zip(held, needles, strict=True)]
        return held


@contextmanager
def served(folder: Path, tiles: Path) -> Iterator[Process]:
    """A process of `veil serve` with tiles, as its users start it."""
    assert main(["serve", "tiles", str(folder), str(tiles), "--name", NAME, "--localizations", "1"]) == 0
    port, log = free_port(), folder / "server.log"
    command = [sys.executable, "-m", "veil.cli", "serve", str(folder), "--port", str(port), "--workers", "1"]
    with log.open("w") as stream:
        environment = {**os.environ, "VEIL_SERVE_LOG_REQUESTS": "true"}
        process = subprocess.Popen(command, env=environment, stdout=stream, stderr=stream)
    try:
        for _ in range(1200):
            assert process.poll() is None, log.read_text()
            if ready(port):
                break
            time.sleep(0.05)
        yield Process(pid=process.pid, port=port, log=log)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)


def ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Process, Process]]:
    """Two server processes with the same tiles, in folders of their own."""
    folder = tmp_path_factory.mktemp("servers")
    write_tiles(folder / "tiles", made())
    with ExitStack() as stack:
        first, second = (stack.enter_context(served(folder / name, folder / "tiles")) for name in ("first", "second"))
        yield first, second


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 1], ids=["two servers", "one server"])
def test_a_device_localizes_itself_through_real_servers(servers: tuple[Process, Process], count: int) -> None:
    """Oracle: the planted pose."""
    fetcher = open_tiles([server.url for server in servers[:count]], exit="two-servers" if count == 2 else "one-server")
    features, pose = place().query(120.3)
    answer = localize_with_tiles(features, fetcher, near=np.array([120.0, 0.0, 0.0]))
    assert isinstance(answer.pose, Localization), answer.pose
    assert np.linalg.norm(answer.pose.cam_from_world.center - pose.center) < 0.05


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 1], ids=["two servers", "one server"])
def test_logs_are_the_same_for_all_tiles(servers: tuple[Process, Process], count: int) -> None:
    """Oracle: the logs after fetches of two other tiles, but for times."""
    fetcher = open_tiles([server.url for server in servers[:count]], exit="two-servers" if count == 2 else "one-server")
    views = []
    for wanted in ([3, 90], [64], [1, 2]):
        before = [len(server.lines()) for server in servers]
        fetcher_of(fetcher).fetch(wanted)
        views.append([server.lines()[start:] for server, start in zip(servers, before, strict=True)])
    assert views[0] == views[1] == views[2]
    assert all(len(lines) == 1 for lines in views[0][:count])


def sent(server: Process, exit: str, queries: Sequence[bytes]) -> list[bytes]:
    """Answers of a server to queries that a device sends, which are as many as its map asks for."""
    facts = json.loads(got(server, "GET", f"/v1/tiles/{NAME}/exits.json"))
    path = f"/v1/tiles/{NAME}/{facts['version']}/answers/{exit}"
    data, size = got(server, "POST", path, b"".join(queries)), facts["exits"][exit]["answer_bytes"]
    return [data[start : start + size] for start in range(0, len(data), size)]


def got(server: Process, method: str, path: str, body: bytes | None = None) -> bytes:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    kind = {} if body is None else {"Content-Type": "application/vnd.veil.tile-queries"}
    connection.request(method, path, body=body, headers=kind)
    response = connection.getresponse()
    data = response.read()
    assert response.status == 200, data
    connection.close()
    return data


def part_of(index: int) -> bytes:
    """Bytes of a tile that no other has: descriptors in its middle."""
    return made().records[index, 1200:1264].tobytes()


@pytest.mark.slow
@pytest.mark.planted
def test_memory_of_two_servers_does_not_hold_what_was_fetched(servers: tuple[Process, Process]) -> None:
    """Needles: the wanted tile, and the other server's query. Twin: a device that sends its tile's number in the clear."""
    count = len(made().manifest)
    assert count >= 128  # so that a query has bits enough to be looked for, and no answer is a tile by chance
    for index in (5, 77):
        queries = [two_servers.queries(index, count) for _ in range(ASKED)]
        shares = [[query[number] for query in queries] for number in range(2)]
        answers = [sent(server, "two-servers", share) for server, share in zip(servers, shares, strict=True)]
        assert two_servers.decode([answers[0][0], answers[1][0]]) == made().records[index].tobytes()
        for server, other in zip(servers, reversed(shares), strict=True):
            assert server.holds([part_of(index), *other]) == [False] * (1 + ASKED)
    alone = [(1 << 40).to_bytes(-(-count // 8), "little")] * ASKED
    sent(servers[0], "two-servers", alone)
    assert servers[0].holds([part_of(40)]) == [True]


@pytest.mark.slow
@pytest.mark.planted
def test_memory_of_one_server_does_not_hold_what_was_fetched(servers: tuple[Process, Process]) -> None:
    """Needles: the wanted tile as bytes and as integers, and every sixth secret. Twin: a device whose queries have neither."""
    facts = json.loads(got(servers[0], "GET", f"/v1/tiles/{NAME}/exits.json"))
    fetcher = fetcher_of(open_tiles([servers[0].url], exit="one-server"))
    layout, seed = fetcher.exit.layout, fetcher.exit.seed  # type: ignore[attr-defined]
    assert facts["exits"]["one-server"]["seed"] == seed.hex()
    for index in (5, 77):
        queries, pending = one_server.queries([index] * ASKED, layout, seed)
        secrets = [secret[:16].tobytes() for secret in pending.peek().secrets[::6]]
        assert len(secrets) >= ASKED
        answers = sent(servers[0], "one-server", queries)
        assert one_server.decode(answers, pending, fetcher.exit.hint)[0] == made().records[index].tobytes()  # type: ignore[attr-defined]
        needles = [part_of(index), widened(part_of(index)), *secrets]
        assert servers[0].holds(needles) == [False] * len(needles)
    plain = np.zeros((ASKED * layout.parts, layout.columns), dtype="<u4")
    for part in range(layout.parts):
        plain[part, 40 * layout.parts + part] = 1
    sent(servers[0], "one-server", [row.tobytes() for row in plain])
    assert servers[0].holds([widened(part_of(40))]) == [True]


def widened(data: bytes) -> bytes:
    """Bytes as integers of 32 bits, as they stand in an answer without noise; fewer, as parts of a record end anywhere."""
    return np.frombuffer(data[:8], dtype=np.uint8).astype("<u4").tobytes()
