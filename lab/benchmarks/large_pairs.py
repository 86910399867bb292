"""Pairs of a large city: chosen and matched on two cores, the same under kills on Dask, and the efficiency of two workers.

    python lab/benchmarks/large_pairs.py messages OUT --images 10000 --decoys pool.npz
    python lab/benchmarks/large_pairs.py local OUT            choose and match them, as `veil map --pairs tracks` does
    python lab/benchmarks/large_pairs.py dask OUT             match the same pairs on a scheduler and two workers, with kills
    python lab/benchmarks/large_pairs.py efficiency OUT       some of the same blocks with one and with two workers, in turns

Each prints one line of JSON; give them in this order. OUT keeps the messages of the images (0.6 MB each), matches, and pairs
in the order in which they were chosen.

- `local`: seconds of each step, pairs, blocks, and the digest of all blocks' bytes.
- `dask`: a worker is killed with -9 every --every seconds and another begun, the scheduler is killed with -9 once, and the
  run itself twice; each time the same command goes on. `identical` compares all blocks with those of `local`, byte by byte.
  `begun` and `ended` count how often blocks were computed, `again` those that had ended and were computed again, and
  `in_flight` those that a kill can have cut off: two for each kill, as there are two workers with one thread.
- `efficiency`: the least time of --rounds with one worker and with two, as one / (2 two); `plain` is that of two processes
  without an engine, which compute the same blocks half and half: what the machine allowed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pickle
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from city_material import DEFAULT
from city_releases import made, read
from pairs import PART, Steps
from tqdm import tqdm

from veil.device.doors import forms_in
from veil.engine import open_engine
from veil.forms import Subspaces
from veil.places.images_on_demand import GIB, ImageOnDemand, uploads_on_demand
from veil.places.pairs import blocks as blocks_module
from veil.places.pairs import matching as matching_module
from veil.places.pairs.blocks import KIND, BlockTask, compute_block, matched_in_blocks
from veil.places.pairs.choice import pair_choice
from veil.places.pairs.images import FormsOf, ImageFiles
from veil.places.pairs.matching import MatchingWork, matched_as_chosen
from veil.places.pairs.store import MatchStore
from veil.threads import settle
from veil.wire import Upload, encode
from veil_lab.city.images import PHONE

NOTES = "VEIL_NOTED_BLOCKS"
BUDGET = 4 * GIB


def messages(arguments: argparse.Namespace) -> dict:
    """Write a message for each image of a city."""
    folder, keep = arguments.out / "messages", arguments.keep
    folder.mkdir(parents=True, exist_ok=True)
    keep.mkdir(parents=True, exist_ok=True)
    jobs = [(first, PART, False, keep, arguments.decoys, arguments.material) for first in range(0, arguments.images, PART)]
    with ProcessPoolExecutor(2) as pool:
        city = read(list(tqdm(pool.map(made, jobs), "city", total=len(jobs))))
    for image in tqdm(range(arguments.images), "messages"):
        path, rows = folder / f"{image:06}.veil", city.rows(image)
        if path.is_file():
            continue
        form = city.form(rows, "private")
        assert isinstance(form, Subspaces)
        upload = Upload(camera=PHONE, keypoints=city.keypoints[rows], form=replace(form, releasable=True))
        path.write_bytes(encode(upload))
    return {"images": arguments.images, "bytes": sum(path.stat().st_size for path in folder.iterdir())}


def opened(out: Path) -> tuple[FormsOf, ImageFiles]:
    """The images of a folder with messages, read as they are needed, and the file of each."""
    images = uploads_on_demand(out / "messages", budget_bytes=BUDGET, strict=True).images
    files: dict[str, tuple[str, str]] = {}
    for name, image in images.items():
        assert isinstance(image, ImageOnDemand)
        files[name] = (str(image._path), name)
    return FormsOf(images), ImageFiles(of=files, read=forms_in)


def local(arguments: argparse.Namespace) -> dict:
    """Choose pairs and match them with two processes of this machine."""
    begun = time.perf_counter()
    forms, files = opened(arguments.out)
    steps = Steps()
    steps.seconds["reading"] = round(time.perf_counter() - begun, 1)
    calls: list[list[tuple[str, str]]] = []

    def noted(forms: Any, pairs: Any, store: Any, **more: Any) -> Any:
        calls.append(list(pairs))
        return matched_in_blocks(forms, pairs, store, **more)

    matching_module.matched_in_blocks = noted
    store = MatchStore(arguments.out / "local", KIND)
    with open_engine("local", workers=2) as engine:
        work = MatchingWork(
            store=store, engine=engine, files=files, tell=lambda sentence: tqdm.write(sentence, file=sys.stderr)
        )
        matched = matched_as_chosen(forms, pair_choice("tracks", len(forms)), work, workers=2, steps=steps)
    (arguments.out / "calls.pickle").write_bytes(pickle.dumps(calls))
    blocks = digests(store.folder)
    return {
        "images": len(forms),
        "pairs": len(matched),
        "blocks": len(blocks),
        "seconds": steps.seconds,
        "all_seconds": round(time.perf_counter() - begun),
        "peak_memory_gb": peak_gb(),
        "digest": digest_of(blocks),
    }


def peak_gb() -> float:
    """The most memory of this process and of its largest child."""
    most = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return round(most / 2**20, 1)


def digests(folder: Path) -> dict[str, str]:
    """The digest of each block's bytes."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.matches"))}


def digest_of(blocks: dict[str, str]) -> str:
    """One digest of all."""
    return hashlib.sha256(json.dumps(sorted(blocks.items())).encode()).hexdigest()[:16]


def noted_block(task: BlockTask) -> str:
    """`compute_block` with a line in the file of notes before and after it."""
    name = hashlib.sha256(repr(task.pairs).encode()).hexdigest()[:16]
    note(f"begun {name}")
    path = compute_block(task)
    note(f"ended {name}")
    return path


def note(line: str) -> None:
    """Append a line at once; lines of several processes do not mix."""
    file = os.open(os.environ[NOTES], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, f"{line}\n".encode())
    os.close(file)


def replay(arguments: argparse.Namespace) -> dict:
    """Match the pairs that were chosen, on a scheduler; the run that `dask` kills."""
    blocks_module.compute_block = noted_as_module()  # type: ignore[assignment]
    forms, files = opened(arguments.out)
    store = MatchStore(arguments.out / "dask", KIND)
    with open_engine(f"dask:{arguments.address}") as engine:
        for pairs in pickle.loads((arguments.out / "calls.pickle").read_bytes()):
            with tqdm(desc="pairs", mininterval=10) as bar:

                def show(done: int, total: int, bar: tqdm = bar) -> None:
                    bar.total = total
                    bar.update(done - bar.n)

                matched_in_blocks(forms, pairs, store, engine=engine, files=files, progress=show)
    return {"blocks": len(digests(store.folder))}


def noted_as_module() -> Callable[[BlockTask], str]:
    """`noted_block` as workers import it; this program itself is `__main__`, which they do not have."""
    import large_pairs

    return large_pairs.noted_block


class Cluster:
    """A scheduler and two workers as processes of their own."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self.begin()

    def begin(self) -> None:
        """Begin all three."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            port = listener.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{port}"
        self.scheduler = self._started("dask_scheduler", "--port", str(port), "--dashboard-address", "127.0.0.1:0")
        self.workers = [self.worker() for _ in range(2)]

    def worker(self) -> subprocess.Popen:
        """Begin a worker with one thread, which nobody begins anew."""
        return self._started("dask_worker", self.address, "--nthreads", "1", "--no-nanny")

    def _started(self, program: str, *words: str) -> subprocess.Popen:
        command = [sys.executable, "-m", f"distributed.cli.{program}", *words, "--host", "127.0.0.1", "--no-dashboard"]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        with self.log.open("a") as log:
            return subprocess.Popen(command, env={**os.environ, **threads}, stdout=log, stderr=log)

    def end(self) -> None:
        """Kill all three."""
        for each in (self.scheduler, *self.workers):
            each.kill()
            each.wait()


def dask(arguments: argparse.Namespace) -> dict:
    """Match the chosen pairs while workers, the scheduler and the run are killed."""
    out = arguments.out
    shutil.rmtree(out / "dask", ignore_errors=True)
    notes = (out / "notes").resolve()
    notes.unlink(missing_ok=True)
    os.environ |= {
        NOTES: str(notes),
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent.resolve()), *filter(None, sys.path)]),
    }
    cluster = Cluster(out / "dask.log")
    begun, kills, runs = time.perf_counter(), Counter[str](), []
    # Of the moments at which something is killed, the third is the scheduler's, the second and the fifth the run's.
    moment = 0
    while True:
        log = (out / "run.log").open("a")
        run = subprocess.Popen(
            [sys.executable, __file__, "replay", str(out), "--address", cluster.address], stdout=log, stderr=log
        )
        while run.poll() is None:
            try:
                run.wait(arguments.every)
                break
            except subprocess.TimeoutExpired:
                moment += 1
            if moment == 3:
                cluster.scheduler.send_signal(signal.SIGKILL)
                kills["scheduler"] += 1
                run.wait()
            elif moment in (2, 5):
                run.send_signal(signal.SIGKILL)
                kills["run"] += 1
                run.wait()
            else:
                which = moment % 2
                cluster.workers[which].send_signal(signal.SIGKILL)
                cluster.workers[which].wait()
                kills["worker"] += 1
                cluster.workers[which] = cluster.worker()
        log.close()
        runs.append(run.returncode)
        if run.returncode == 0:
            break
        if cluster.scheduler.poll() is not None:
            cluster.end()
            cluster.begin()
        if len(runs) > 6:
            raise SystemExit(f"the run ended {len(runs)} times, see {out / 'run.log'}")
    seconds = time.perf_counter() - begun
    cluster.end()
    lines = Counter(notes.read_text().splitlines())
    starts, ends = ({k.split()[1]: n for k, n in lines.items() if k.startswith(what)} for what in ("begun", "ended"))
    mine, theirs = digests(out / "dask"), digests(out / "local")
    return {
        "kills": dict(kills),
        "exit_codes": runs,
        "seconds": round(seconds),
        "blocks": len(mine),
        "identical": mine == theirs,
        "digest": digest_of(mine),
        "begun": sum(starts.values()),
        "ended": sum(ends.values()),
        "again": sum(n - 1 for n in ends.values()),
        "in_flight": 2 * sum(kills.values()),
    }


def efficiency(arguments: argparse.Namespace) -> dict:
    """Seconds of the same blocks with one worker and with two, in turns."""
    _, files = opened(arguments.out)
    tasks = blocks_of(arguments, files)
    shutil.rmtree(arguments.out / "efficiency", ignore_errors=True)
    engines = {workers: open_engine("dask", workers=workers) for workers in (1, 2)}
    least: dict[str, float] = {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), initializer=settle) as plain:
        list(plain.map(timed, [tasks[:1], tasks[:1]]))
        for engine in engines.values():
            list(engine.map(compute_block, tasks[:2]))
        for _ in range(arguments.rounds):
            for workers, engine in engines.items():
                begun = time.perf_counter()
                assert len(list(engine.map(compute_block, tasks))) == len(tasks)
                least[f"dask {workers}"] = min(least.get(f"dask {workers}", 1e9), time.perf_counter() - begun)
            for workers in (1, 2):
                begun = time.perf_counter()
                list(plain.map(timed, [tasks[start::workers] for start in range(workers)]))
                least[f"plain {workers}"] = min(least.get(f"plain {workers}", 1e9), time.perf_counter() - begun)
    for engine in engines.values():
        engine.close()
    return {
        "blocks": len(tasks),
        "pairs": sum(len(task.pairs) for task in tasks),
        "seconds": {name: round(value, 1) for name, value in least.items()},
        "efficiency": round(least["dask 1"] / least["dask 2"] / 2, 3),
        "plain": round(least["plain 1"] / least["plain 2"] / 2, 3),
    }


def blocks_of(arguments: argparse.Namespace, files: ImageFiles) -> list[BlockTask]:
    """Some full blocks of the run `local`, to be computed into another folder."""
    from veil.places.pairs.store import decode_block

    store = MatchStore(arguments.out / "local", KIND, read=False)
    names = {digest: name for name, each in store.names().items() for digest in each}
    tasks = []
    for path in sorted(store.folder.glob("*.matches"), key=lambda path: -path.stat().st_size)[: arguments.blocks]:
        pairs = tuple(decode_block(path.read_bytes())[1])
        which = sorted({digest for pair in pairs for digest in pair})
        places = tuple((digest, *files.of[names[digest]]) for digest in which)
        folder = str((arguments.out / "efficiency").resolve())
        tasks.append(BlockTask(folder=folder, pairs=pairs, files=places, read=files.read))
    return tasks


def timed(tasks: list[BlockTask]) -> int:
    """Compute blocks one after the other in this process."""
    return len([compute_block(task) for task in tasks])


def main() -> None:
    """Print one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("messages", "local", "dask", "efficiency", "replay"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--images", type=int, default=10_000, help="of the city (default %(default)s)")
    parser.add_argument("--decoys", type=Path, metavar="NPZ", help="pool of the devices' decoys, for messages")
    parser.add_argument("--keep", type=Path, default=Path("city-parts"), metavar="FOLDER", help="default %(default)s")
    parser.add_argument("--material", type=Path, default=DEFAULT, metavar="NPZ", help="default %(default)s")
    parser.add_argument("--every", type=float, default=120, help="seconds between kills (default %(default)s)")
    parser.add_argument("--blocks", type=int, default=16, help="of the efficiency (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="of the efficiency (default %(default)s)")
    parser.add_argument("--address", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step == "messages" and arguments.decoys is None:
        parser.error("messages needs --decoys, the pool of the devices' decoys")
    settle()
    print(json.dumps({"step": arguments.step} | globals()[arguments.step](arguments)), flush=True)


if __name__ == "__main__":
    main()
