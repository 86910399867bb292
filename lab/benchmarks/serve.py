"""How many queries does `veil serve` answer, how soon, and what of it is the service and not the search?

    python lab/benchmarks/serve.py OUT --seconds 300 --clients 16
    python lab/benchmarks/serve.py OUT --map map/ --queries queries/ --seconds 300

A server with `--workers` processes is started on the demo's map (nine bundled photographs, hardened), or on `--map`, and
clients ask for the poses of held-out photographs, or of the messages in `--queries`, as fast as they are answered. Before and
after, as many processes as the server has workers call `veil.localize` with the same messages for a fifth of the time each: the
ratio is the service's overhead, as is that of the processor seconds of a query, which other work on the machine disturbs less.
Memory is that of the server and its processes, once a second; `--figure` draws it with the latencies. OUT holds the server's
folder, and its log with a line for each request. At the end both are searched for parts of the queries and numbers of the last
pose (`traces`; those of a contribution are found). Needs `pip install 'veil[serve]'`; client and load run on the same machine.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from veil.cli.common import quiet_colmap
from veil.cli.server.serve import DEMO
from veil.client.connection import Connection
from veil.demo import HELD_OUT
from veil.device.device import Device
from veil.device.doors import localize
from veil.extraction.sift import SiftOptions, extract_sift
from veil.files.photographs.examples import lund_door
from veil.files.photographs.pictures import read_picture
from veil.places.held_map import Map
from veil.places.poses.options import LocalizeOptions
from veil.report.figures import BLUE, GREEN, drawn
from veil.server.service import Service
from veil.threads import settle, single_blas
from veil.wire import decode

# Load before the measurement, in which each process reads the map and compiles what it needs.
WARM_S = 15.0


def main() -> None:
    """Start the server, load it, and print what it did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the server")
    parser.add_argument("--map", type=Path, help="a map that `veil map` wrote (default: the demo's)")
    parser.add_argument("--queries", type=Path, help="messages to localize (default: the demo's held-out photographs)")
    parser.add_argument("--clients", type=int, default=16, help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=300.0, help="of load (default %(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="of the server (default %(default)s)")
    parser.add_argument("--port", type=int, default=8765)
    parser.add_argument("--figure", type=Path, help="draw latencies and memory (.png)")
    arguments = parser.parse_args()
    quiet_colmap()
    server = started(arguments)
    try:
        url = f"http://127.0.0.1:{arguments.port}"
        service = Service(arguments.out / "store")
        _, secret = service.tokens.make("load", ["admin"])
        with_map = waited(service)
        folder = service.version_folder(with_map)
        assert folder is not None
        messages = asked(arguments)
        before = bare(folder, messages, arguments.workers, arguments.seconds / 5)
        load(arguments, server.pid, url, secret, with_map.id, messages, seconds=WARM_S)
        used = processor_s(server.pid)
        latencies, errors, memory = load(arguments, server.pid, url, secret, with_map.id, messages, seconds=arguments.seconds)
        used = (processor_s(server.pid) - used) / max(1, len(latencies))
        after = bare(folder, messages, arguments.workers, arguments.seconds / 5)
        answer = Connection(url, secret).post_message("v1", "maps", with_map.id, "localize", message=messages[0])
        kept = [service.records.blobs.get(item.digest) for item in service.records.contributions(with_map.id)[:1]]
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
    took = np.array([seconds for _, seconds in latencies])
    rate, own = len(took) / max(moment for moment, _ in latencies), (before[0] + after[0]) / 2
    facts = {
        "images": sum(model["images"] for model in with_map.facts["models"]),
        "clients": arguments.clients,
        "workers": arguments.workers,
        "queries": len(took),
        "errors": errors,
        "a_second": round(rate, 2),
        "bare_a_second": [round(before[0], 2), round(after[0], 2)],
        "processor_s_of_a_query": round(used, 3),
        "bare_processor_s": [round(before[1], 3), round(after[1], 3)],
        "share_of_bare": round(rate / own, 3),
        "median_s": round(float(np.median(took)), 3),
        "p99_s": round(float(np.quantile(took, 0.99)), 3),
        "memory_mb": [round(np.median(part) / 1e6) for part in np.array_split([size for _, size in memory], 5)],
    }
    facts |= {"logged": len((arguments.out / "server.log").read_text().splitlines())}
    facts |= {"traces": traces(arguments.out, messages, answer), "traces_of_a_contribution": traces(arguments.out, kept, None)}
    print(json.dumps(facts))
    if arguments.figure:
        draw(arguments.figure, latencies, memory)


def started(arguments: argparse.Namespace) -> subprocess.Popen:
    """A server, on a quota that no load reaches."""
    store = arguments.out / "store"
    given = ["--demo"] if arguments.map is None else ["--add-map", f"load={arguments.map}"]
    command = [sys.executable, "-m", "veil.cli", "serve", str(store), *given, "--port", str(arguments.port)]
    environment = {**os.environ, "VEIL_SERVE_WORKERS": str(arguments.workers), "VEIL_SERVE_LOG_REQUESTS": "true"}
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    while "veil serves" not in (arguments.out / "server.log").read_text():  # printed once it answers
        if server.poll() is not None:
            raise SystemExit(f"the server did not start; {arguments.out}/server.log says why")
        time.sleep(0.1)
    return server


def waited(service: Service):
    """The server's map of subspaces, once it is there."""
    for _ in range(1200):
        records = [record for record in service.records.all() if record.files and record.name in (DEMO, "load")]
        if records:
            return records[0]
        time.sleep(0.25)
    raise SystemExit("the server has no map")


def asked(arguments: argparse.Namespace) -> list[bytes]:
    """Messages to localize."""
    if arguments.queries is not None:
        return [path.read_bytes() for path in sorted(arguments.queries.glob("*.veil"))]
    device = Device(arguments.out / "device")
    with lund_door() as example:
        pictures = [read_picture(example.folder / name, camera=example.camera) for name in HELD_OUT]
    features = [extract_sift(picture, SiftOptions(max_features=1536)) for picture in pictures]
    return [device.release(item, name=name, purpose="map").message for name, item in zip(HELD_OUT, features, strict=True)]


def bare(folder: Path, messages: list[bytes], workers: int, seconds: float) -> tuple[float, float]:
    """Queries a second of `veil.localize` in as many processes, and processor seconds of a query."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(workers) as pool:
        rates = pool.map(called, [(str(folder), messages, seconds)] * workers, chunksize=1)
    return sum(rate for rate, _ in rates), sum(used for _, used in rates) / workers


def called(job: tuple[str, list[bytes], float]) -> tuple[float, float]:
    """Queries a second of one process, and processor seconds of a query."""
    folder, messages, seconds = job
    settle()
    quiet_colmap()
    where = Map.read(folder)
    options = LocalizeOptions(workers=1)
    with single_blas():
        for message in messages:
            localize(decode(message), where, options=options)
        begun, used, count = time.perf_counter(), time.process_time(), 0
        while time.perf_counter() - begun < seconds:
            localize(decode(messages[count % len(messages)]), where, options=options)
            count += 1
        return count / (time.perf_counter() - begun), (time.process_time() - used) / count


def load(
    arguments: argparse.Namespace, pid: int, url: str, secret: str, map_id: str, messages: list[bytes], *, seconds: float
) -> tuple[list[tuple[float, float]], int, list[tuple[float, float]]]:
    """When each query was answered and in how many seconds, errors, and the server's memory by time."""
    latencies: list[tuple[float, float]] = []
    memory: list[tuple[float, float]] = []
    errors = [0]
    begun = time.perf_counter()

    def ask(number: int) -> None:
        connection = Connection(url, secret)
        turn = number
        while time.perf_counter() - begun < seconds:
            start = time.perf_counter()
            try:
                connection.post_message("v1", "maps", map_id, "localize", message=messages[turn % len(messages)])
                latencies.append((time.perf_counter() - begun, time.perf_counter() - start))
            except Exception as error:
                errors[0] += 1
                print(f"{type(error).__name__}: {error}", file=sys.stderr)
            turn += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(arguments.clients)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        memory.append((time.perf_counter() - begun, resident(pid)))
        time.sleep(1.0)
    return latencies, errors[0], memory


def traces(out: Path, messages: list[bytes], answer: dict | None) -> int:
    """How many parts of messages, and numbers of an answer, stand in any file of a server."""
    parts = [message[place : place + 24] for message in messages for place in range(200, len(message) - 24, len(message) // 20)]
    if answer is not None and answer["status"] == "localized":
        numbers = np.array(answer["cam_from_world"]["rotation"]).ravel()
        parts += [numbers[:3].tobytes(), *(f"{number:.9f}"[:10].encode() for number in numbers)]
    # The clients of this program keep their messages, in OUT/device.
    paths = [out / "server.log", *(path for path in (out / "store").rglob("*") if path.is_file())]
    held = [path.read_bytes() for path in paths]
    return sum(any(part in data for data in held) for part in parts)


def resident(pid: int) -> float:
    """Bytes in memory of a process and those that it started."""
    return sum(int(text.split()[1]) * os.sysconf("SC_PAGE_SIZE") for text in process_facts(pid, "statm"))


def processor_s(pid: int) -> float:
    """Processor seconds of a process and those that it started."""
    fields = [text.rpartition(")")[2].split() for text in process_facts(pid, "stat")]
    return sum(int(field[11]) + int(field[12]) for field in fields) / os.sysconf("SC_CLK_TCK")


def process_facts(pid: int, what: str) -> Iterator[str]:
    """Numbers of the kernel for a process and those that it started."""
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        try:
            text = Path(f"/proc/{one}/{what}").read_text()
            waiting += [
                int(child) for task in Path(f"/proc/{one}/task").iterdir() for child in (task / "children").read_text().split()
            ]
        except OSError:
            continue
        yield text


def draw(path: Path, latencies: list[tuple[float, float]], memory: list[tuple[float, float]]) -> None:
    """Latencies and memory over time."""
    with drawn(path, 2, 1, size=(8, 5), sharex=True) as (_, axes):
        top, bottom = axes[:, 0]
        top.plot(*np.array(latencies).T, ".", markersize=2, color=BLUE)
        top.set_ylabel("seconds of a query")
        top.set_ylim(bottom=0)
        bottom.plot(*(np.array(memory) / [1, 1e6]).T, color=GREEN)
        bottom.set_ylabel("memory, MB")
        bottom.set_ylim(0, 1.1e-6 * max(size for _, size in memory))
        bottom.set_xlabel("seconds")


if __name__ == "__main__":
    main()
