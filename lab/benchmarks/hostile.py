"""What does a server do with 100,000 hostile requests: which answers, how much memory, and does it tell of other clients?

    python lab/benchmarks/hostile.py OUT --requests 100000 --seed 1

`veil serve` is started on the demo's map, with a second map and a victim's token beside it that the attackers may not know,
and is sent requests of a fixed seed by `--threads` connections at a time: what schemathesis makes of /openapi.json (a
quarter), damaged and forged messages, raw
data, JSON and requests of the GeoPoseProtocol with strange values, traversal in names, wrong tokens, heads that are too long
or contradict themselves, what is no HTTP, ids of others, queries for tiles, and bytes that come slowly. Columns of the table:
kind, and how many of each status ("closed": the connection ended without one). The JSON line: answers that the service's page
does not promise, answers that told a planted name, connections that neither answered nor ended (slow ones after twice
`body_s` of 2 s and 10 s more), the seconds of the slowest, memory of the server with its processes (before, peak, after), its
open files before and after, and bytes of its log. Exit code 1 if anything of it is wrong, or memory grew by more than
`--memory`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from serve import asked, resident, waited

from veil.cli.common import quiet_colmap
from veil.client.connection import Connection
from veil.server.access.tokens import Quota
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from worlds.hostile_load import attacked
from worlds.hostile_requests import Exchange, Target, exchanges
from worlds.places import PLACE
from worlds.served_streets import serve_street

BODY_S = 2.0
PLENTY = Quota(requests_per_minute=1 << 40, bytes_per_day=1 << 50)
SCOPES: dict[str, list] = {"admin": ["admin"], "localize": ["localize"], "contribute": ["contribute"]}
SCOPES["both"] = ["localize", "contribute"]


def main() -> None:
    """Start the server, attack it, and print what it did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the server")
    parser.add_argument("--requests", type=int, default=100_000, help="default %(default)s")
    parser.add_argument("--seed", type=int, default=1, help="default %(default)s")
    parser.add_argument("--threads", type=int, default=32, help="connections at a time (default %(default)s)")
    parser.add_argument(
        "--memory", type=float, default=1000.0, help="most MB that the server may grow by (default %(default)s)"
    )
    parser.add_argument("--port", type=int, default=8766)
    arguments = parser.parse_args()
    arguments.map = arguments.queries = None
    quiet_colmap()
    with serving(arguments) as server:
        service = Service(arguments.out / "store")
        target, markers = prey(arguments, service)
        begun, memory, stop = time.monotonic(), [resident(server.pid)], threading.Event()
        files = open_files(server.pid)
        watch = threading.Thread(target=watched, args=(server.pid, memory, stop))
        watch.start()
        hostile = exchanges(target, arguments.seed, arguments.requests)
        outcome = attacked(arguments.port, hostile, markers=markers, threads=arguments.threads, slow_s=2 * BODY_S + 10)
        seconds = time.monotonic() - begun
        time.sleep(2 * BODY_S + 35)  # what waits for the next request is closed
        stop.set()
        watch.join()
        alive = Connection(f"http://127.0.0.1:{arguments.port}", target.tokens["admin"]).get("healthz")["status"] == "alive"
        memory.append(resident(server.pid))
        after = open_files(server.pid)
        service.close()
    for kind in sorted({kind for kind, _ in outcome.statuses}):
        row = {status: count for (name, status), count in sorted(outcome.statuses.items()) if name == kind}
        print(f"{kind:10} {sum(row.values()):6}  " + "  ".join(f"{status}: {count}" for status, count in row.items()))
    for what in ("undocumented", "leaks", "hung"):
        for fault in getattr(outcome, what)[:10]:
            print(f"{what}: {fault}", file=sys.stderr)
    totals: Counter[str] = Counter()
    for (_, status), count in outcome.statuses.items():
        totals[status] += count
    facts = {
        "requests": sum(totals.values()),
        "seed": arguments.seed,
        "schemathesis": bool(target.schema),
        "seconds": round(seconds),
        "statuses": dict(sorted(totals.items())),
        "undocumented": len(outcome.undocumented),
        "leaks": len(outcome.leaks),
        "hung": len(outcome.hung),
        "slowest_s": {kind: round(value, 1) for kind, value in sorted(outcome.longest_s.items())},
        "memory_mb": {"before": mb(memory[0]), "peak": mb(max(memory)), "after": mb(memory[-1])},
        "open_files": [files, after],
        "log_bytes": (arguments.out / "server.log").stat().st_size,
        "alive": alive,
    }
    print(json.dumps(facts))
    wrong = (
        outcome.undocumented or outcome.leaks or outcome.hung or not alive or max(memory) - memory[0] > 1e6 * arguments.memory
    )
    raise SystemExit(1 if wrong else 0)


@contextlib.contextmanager
def serving(arguments: argparse.Namespace) -> Iterator[subprocess.Popen]:
    """The server, until the block ends."""
    command = [sys.executable, "-m", "veil.cli", "serve", str(arguments.out / "store"), "--demo", "--port", str(arguments.port)]
    environment = {**os.environ, "VEIL_SERVE_BODY_S": str(BODY_S), "VEIL_SERVE_DEADLINE_S": "5"}
    with (arguments.out / "server.log").open("w") if arguments.out.is_dir() else made(arguments.out) as log:
        server = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=log)
        try:
            yield server
        finally:
            server.send_signal(signal.SIGINT)
            server.wait()


def made(out: Path):
    """The server's log in a new folder."""
    out.mkdir(parents=True)
    return (out / "server.log").open("w")


def prey(arguments: argparse.Namespace, service: Service) -> tuple[Target, list[str]]:
    """Knowledge of the attackers, and names that no answer to them may hold."""
    record = service.set_place(waited(service).id, PLACE)
    messages = asked(arguments)
    closed = service.records.make("planted-name-of-a-closed-map", MapPolicy())
    victim, theirs = service.tokens.make("planted-name-of-a-victim", ["localize", "contribute"], quota=PLENTY)
    connection = Connection(f"http://127.0.0.1:{arguments.port}", theirs)
    given = [
        connection.post_message("v1", "maps", place, "contributions", message=messages[0]) for place in (record.id, closed.id)
    ]
    tokens = {
        name: service.tokens.make(name, scopes, maps=None if name == "admin" else [record.id], quota=PLENTY)[1]
        for name, scopes in SCOPES.items()
    }
    target = Target(
        map_id=record.id,
        tokens=tokens,
        messages=tuple(messages),
        others=(closed.id, victim.id, *(item["contribution"] for item in given)),
        tiles=serve_street(service),
        schema=tuple(from_schema(Connection(connection.url, tokens["admin"]), arguments.requests // 20, tokens)),
    )
    return target, [closed.name, victim.name]


def from_schema(connection: Connection, count: int, tokens: dict[str, str]) -> Iterator[Exchange]:
    """Requests that schemathesis makes of the server's OpenAPI file; none if it is not installed."""
    try:
        import schemathesis
        from hypothesis import HealthCheck, Phase, given, settings
        from schemathesis.core.result import Ok
    except ImportError:
        return
    import requests

    schema = schemathesis.openapi.from_dict(connection.get("openapi.json"))
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    usual = settings(
        max_examples=max(5, count // len(operations) // 2),
        database=None,
        derandomize=True,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    for number, operation in enumerate(operations):
        for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
            cases: list[dict] = []

            def keep(case) -> None:
                cases.append(case.as_transport_kwargs(base_url=connection.url))  # noqa: B023

            try:
                usual(given(case=operation.as_strategy(generation_mode=mode))(keep))()
            except Exception as error:  # an operation that takes nothing has nothing to negate
                print(f"schemathesis: {operation.label}, {mode.name}: {type(error).__name__}: {error}"[:200], file=sys.stderr)
            for turn, made in enumerate(cases):
                made.pop("timeout", None)
                name = [*tokens, ""][(number + turn) % (len(tokens) + 1)]
                with contextlib.suppress(Exception):  # what the client's library refuses to send
                    yield as_exchange(requests.Request(**made).prepare(), name, tokens)


def as_exchange(prepared, name: str, tokens: dict[str, str]) -> Exchange:
    """A request of the requests library as bytes, under a token."""
    body = prepared.body or b""
    body = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else bytes(body)
    headers = {key: value for key, value in prepared.headers.items() if key.lower() not in ("authorization", "content-length")}
    headers |= {"Host": "127.0.0.1"} | ({"Content-Length": str(len(body))} if body or prepared.method != "GET" else {})
    if name:
        headers["Authorization"] = f"Bearer {tokens[name]}"
    lines = [f"{prepared.method} {prepared.path_url} HTTP/1.1"]
    lines += [f"{key}: {value.decode('latin-1') if isinstance(value, bytes) else value}" for key, value in headers.items()]
    request = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n" + body
    return Exchange(kind="schema", method=str(prepared.method), parts=(request,), token=name)


def watched(pid: int, memory: list[float], stop: threading.Event) -> None:
    """Note the memory of a process and those that it started, twice a second."""
    while not stop.wait(0.5):
        memory.append(resident(pid))


def open_files(pid: int) -> int:
    """How many files and connections a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def mb(size: float) -> int:
    """Bytes as megabytes."""
    return round(size / 1e6)


if __name__ == "__main__":
    main()
