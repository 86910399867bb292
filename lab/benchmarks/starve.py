"""Can one client, or two hundred addresses, take `veil serve` from everybody else?

    python lab/benchmarks/starve.py OUT --seconds 12 --through bare nginx caddy

`veil serve --demo` is asked by three phones with tokens, two of them behind one address, each again a second after an answer,
by a device without a token that looks up tiles, and by whoever asks `/readyz`, a new connection four times a second. Then
each attack of tests/worlds/starving.py begins, from one address and from 200 (127.0.1.x), bare and through nginx and Caddy
with their files of deploy/. Attackers run at the lowest priority, as they would be on other machines, and wait 20 ms between
two requests or connections of one place. Columns: what stands between, the attack, the number of its addresses, the part of
/readyz that was answered 200 (of how many), the part of the phones' queries with a pose or `no pose`, their median in
seconds of the one without attack, the mean of those shortly before and after, and their ratio; the part of the device's
requests, and how many connections the attackers opened. Exit code 1 if /readyz was not answered once, less than 95 %
of the queries were, or their median more than doubled.
"""

from __future__ import annotations

import argparse
import http.client
import multiprocessing
import os
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

import numpy as np
from serve import asked, waited

from veil.cli.common import quiet_colmap
from veil.server.access.tokens import Quota
from veil.server.service import Service
from worlds import proxies
from worlds.certificates import write_certificate
from worlds.ports import free_port
from worlds.served_streets import NAME, serve_street
from worlds.starving import ATTACKS, MESSAGE_TYPE, Aim, attacking

PLENTY = Quota(requests_per_minute=1 << 40, bytes_per_day=1 << 50)
ADDRESSES = tuple(f"127.0.1.{number}" for number in range(1, 201))
PHONES, DEVICE, WATCH = ("127.0.2.1", "127.0.2.1", "127.0.2.2"), "127.0.2.3", "127.0.2.4"
# Until an attack has all its connections, and until what it left has ended.
BEGIN_S, END_S = 3.0, 4.0


@dataclass(frozen=True)
class Door:
    """Where a server is reached, with TLS if there is a certificate."""

    port: int
    certificate: str | None

    def connection(self, source: str, timeout_s: float) -> http.client.HTTPConnection:
        """A connection from an address."""
        if self.certificate is None:
            return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s, source_address=(source, 0))
        return http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=timeout_s, source_address=(source, 0), context=trusting(self.certificate)
        )


@dataclass
class Seen:
    """Statuses and seconds of requests, 0 for what had no answer."""

    statuses: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def part(self) -> float:
        """The part that was served."""
        return float(np.mean([status == 200 for status in self.statuses]))

    def median(self) -> float:
        """Of the seconds of what was served."""
        served = [took for status, took in zip(self.statuses, self.seconds, strict=True) if status == 200]
        return float(np.median(served)) if served else float("inf")


def main() -> None:
    """Start the server, attack it, and print what others had of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the server")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each measurement (default %(default)s)")
    parser.add_argument("--through", nargs="+", choices=["bare", "nginx", "caddy"], default=["bare", "nginx", "caddy"])
    parser.add_argument("--attacks", nargs="+", choices=list(ATTACKS), default=list(ATTACKS), metavar="NAME")
    parser.add_argument("--port", type=int, default=8767)
    arguments = parser.parse_args()
    arguments.map = arguments.queries = None
    quiet_colmap()
    is_right = True
    with serving(arguments):
        service = Service(arguments.out / "store")
        aim, phones = known(arguments, service)
        for through in arguments.through:
            with behind(through, arguments) as door:
                is_right &= weighed(through, door, aim, phones, arguments)
        service.close()
    raise SystemExit(0 if is_right else 1)


def weighed(through: str, door: Door, aim: Aim, phones: list[str], arguments: argparse.Namespace) -> bool:
    """Print a row for each attack; returns whether all are right."""
    measured(door, aim, phones, 8.0)  # each process reads the map
    before, is_right = measured(door, aim, phones, arguments.seconds), True
    for name in arguments.attacks:
        rows = []
        for count in (1, len(ADDRESSES)):
            with attacked(name, aim, door, count) as opened:
                time.sleep(BEGIN_S)
                rows.append((count, measured(door, aim, phones, arguments.seconds), opened))
            time.sleep(END_S)
        after = measured(door, aim, phones, arguments.seconds)
        usual = (before[1].median() + after[1].median()) / 2
        for count, shares, (connections,) in rows:
            is_right &= shown(f"{through:5}  {name:32} {count:3}", shares, usual, connections)
        before = after
    return is_right


def shown(label: str, shares: tuple[Seen, Seen, Seen], usual: float, opened: int) -> bool:
    """Print a row; returns whether it is right."""
    ready, queries, _ = shares
    ratio = queries.median() / usual
    columns = [f"{seen.part():6.1%} ({len(seen.statuses):2})" for seen in shares]
    lost = sorted(status for seen in shares for status in seen.statuses if status != 200)
    columns.insert(2, f"{queries.median():5.2f} s of {usual:5.2f}: {ratio:4.2f}")
    print("  ".join([label, *columns, f"{opened:6}", *([f"others: {lost}"] if lost else [])]), flush=True)
    return ready.part() == 1 and queries.part() >= 0.95 and ratio <= 2


def measured(door: Door, aim: Aim, phones: list[str], seconds: float) -> tuple[Seen, Seen, Seen]:
    """Answers to /readyz, the phones' queries and the device's requests, for some seconds."""
    until, ready, queries, tiles = time.monotonic() + seconds, Seen(), Seen(), Seen()

    def watch() -> None:
        while time.monotonic() < until:
            with_answer(door.connection(WATCH, 4.0), "GET", "/readyz", {}, None, ready)
            time.sleep(0.25)

    def ask(source: str, token: str) -> None:
        path, headers = f"/v1/maps/{aim.map_id}/localize", {"Authorization": f"Bearer {token}", "Content-Type": MESSAGE_TYPE}
        while time.monotonic() < until:
            with_answer(door.connection(source, 60.0), "POST", path, headers, aim.message, queries)
            time.sleep(1.0)

    def look() -> None:
        while time.monotonic() < until:
            with_answer(door.connection(DEVICE, 60.0), "GET", f"/v1/tiles/{NAME}/exits.json", {}, None, tiles)
            time.sleep(1.0)

    tasks: list[tuple[Callable[..., None], tuple[str, ...]]] = [(watch, ()), (look, ())]
    tasks += [(ask, (source, token)) for source, token in zip(PHONES, phones, strict=True)]
    threads = [threading.Thread(target=task, args=given) for task, given in tasks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ready, queries, tiles


def with_answer(
    connection: http.client.HTTPConnection, method: str, path: str, headers: dict[str, str], body: bytes | None, seen: Seen
) -> None:
    """Send one request, and note what came of it."""
    begun, status = time.perf_counter(), 0
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.read()
        status = answer.status
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    seen.statuses.append(status)
    seen.seconds.append(time.perf_counter() - begun)


@contextmanager
def attacked(name: str, aim: Aim, door: Door, count: int) -> Iterator[list[int]]:
    """An attack in a process of its own, until the block ends; the number of its connections stands in the list then."""
    context, opened = multiprocessing.get_context("spawn"), [0]
    ours, theirs = context.Pipe()
    process = context.Process(target=attack, args=(name, aim, door, count, theirs))
    process.start()
    assert ours.recv() == "begun"
    try:
        yield opened
    finally:
        ours.send("end")
        opened[0] = ours.recv()
        process.join()


def attack(name: str, aim: Aim, door: Door, count: int, pipe) -> None:
    """The attackers' process."""
    os.nice(19)
    tls = None if door.certificate is None else trusting(door.certificate)
    with attacking(ATTACKS[name], aim, door.port, ADDRESSES[:count], tls=tls) as seen:
        pipe.send("begun")
        pipe.recv()
        pipe.send(seen.opened)


def trusting(certificate: str) -> ssl.SSLContext:
    """Context that verifies a certificate of this program."""
    return ssl.create_default_context(cafile=certificate)


@contextmanager
def serving(arguments: argparse.Namespace) -> Iterator[None]:
    """The server, until the block ends."""
    command = [sys.executable, "-m", "veil.cli", "serve", str(arguments.out / "store"), "--demo", "--port", str(arguments.port)]
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "server.log").open("w") as log:
        environment = {**os.environ, "VEIL_SERVE_PROXIES": "127.0.0.1"}
        server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        try:
            yield
            assert server.poll() is None, "the server ended; its log says why"
        finally:
            server.terminate()
            server.wait()


def known(arguments: argparse.Namespace, service: Service) -> tuple[Aim, list[str]]:
    """Knowledge of the attackers, and the phones' tokens."""
    record, message = waited(service), asked(arguments)[0]
    tiles, length, _ = serve_street(service)
    made = [service.tokens.make(f"phone {number}", ["localize"], quota=PLENTY)[1] for number in range(len(PHONES))]
    _, greedy = service.tokens.make("greedy", ["localize"], quota=PLENTY)
    _, spent = service.tokens.make("spent", ["localize"], quota=Quota(requests_per_minute=0))
    aim = Aim(map_id=record.id, message=message, token=greedy, spent=spent, tiles=tiles, tile_bytes=length)
    return aim, made


@contextmanager
def behind(through: str, arguments: argparse.Namespace) -> Iterator[Door]:
    """Where the server is reached."""
    if through == "bare":
        yield Door(arguments.port, None)
        return
    program, port, folder = shutil.which(through), free_port(), arguments.out.resolve() / through
    if program is None:
        raise SystemExit(f"{through} is not installed")
    folder.mkdir(exist_ok=True)
    write_certificate(folder)
    make = proxies.nginx if through == "nginx" else proxies.caddy
    with proxies.started(make(program, folder, arguments.port, port), port, folder):
        yield Door(port, str(folder / "fullchain.pem"))


if __name__ == "__main__":
    main()
