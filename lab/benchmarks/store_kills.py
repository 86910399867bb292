"""Is anything acknowledged lost or done twice, or anything deleted left, wherever a process is killed that writes?

    python lab/benchmarks/store_kills.py --most 4 --seed 1 --jobs 3

Every call by which bytes or names reach the disk, a bucket or a socket is a point (write, fsync, rename, unlink, mkdir,
truncate, a file that is made or emptied, what is sent to S3 or PostgreSQL), whoever makes it: veil, SQLite, HDF5, COLMAP,
obstore. A small library that is loaded before the C library counts them. A process is killed there by SIGKILL, before the
call or after half of its bytes, so that nothing of it runs on. Scenarios (`tests/worlds/kill_scenarios.py` and
`kill_clients.py` list their writers) run in three forms, in a folder, with blobs on S3 (moto), and with rows in PostgreSQL
beside; of the last two, what is sent there. After each kill a new server starts on what is there, and one of four things
happens: the client sends again what was not acknowledged; an hour goes by; the map is deleted at once; one contribution is
deleted at once. Then every acknowledged contribution must be listed once, jobs must have ended, receipts must be one of each
deletion, and windows of the messages, rows of descriptors as maps hold them, names and digests of what was deleted are
searched in every file and object. In the end all is deleted, and nothing may be left but the database, the store's notes and
backups without what was deleted.

`--most` points of each scenario, form and storage are killed, drawn from `--seed`, of calls that differ first (0: all
points). Printed: a table by writer, faults as they come, and a JSON line of totals. Exit code 1 if anything is lost, twice,
left or wrong. It needs a C compiler (cc); and PostgreSQL with `pip install 'veil[grown]' 'moto[s3,server]'`, or
`--storage folder`.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "faces" / "tests"))

from veil.server.store import room
from worlds.kill_clients import FORMS, Client, messages_of
from worlds.kill_scenarios import EVERY as SCENARIOS
from worlds.kill_scenarios import TWINS, Scenario, World, tiles_in
from worlds.kill_servers import ENDINGS, Place
from worlds.killing import Point, forked, missing, preloaded
from worlds.planted_bytes import Objects
from worlds.postgres import Postgres

EVERY: tuple[Scenario | Client, ...] = SCENARIOS
if find_spec("veil_faces"):
    from face_worlds.face_kills import FACES

    EVERY = (*SCENARIOS, FACES)
BUCKET, POSTGRES = "veil-kills", "VEIL_KILLS_POSTGRES"
# What is the same in every form runs in one, and what does not touch blobs runs in a folder alone.
ONE_FORM, WITH_BUCKET = {"open", "tiles", "faces"}, {"open", "contribute", "map", "remove", "drop", "restore"}
WITH_POSTGRES = {"contribute", "remove", "drop"}
# What veil loads when it first maps, localizes or releases: here before any fork, so that no forked process loads it again.
LOADED = (
    "faiss",
    "numba",
    "pyceres",
    "pycolmap",
    "scipy.ndimage",
    "veil.codebooks.neighbors",
    "veil.places.kept_clusters",
    "veil.places.poses.by_words",
)
# Bytes of a store's reserve, which is copied and searched after each kill, and whose size changes none of its writes.
RESERVE = 1 << 16
# Faults that are printed of one kill.
SHOWN = 3
# Files; files with blobs on S3; PostgreSQL with blobs on S3.
STORAGE = ("folder", "bucket", "shared")
# Of storage in several places, what a folder does not have.
OWN = {"bucket": ["bucket"], "shared": ["bucket", "PostgreSQL"]}
FAULTS = ("lost", "twice", "left", "wrong")


def main() -> int:
    """Kill, print, and say whether anything is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--most", type=int, default=12, help="points of each scenario, form and storage; 0: all (default %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the choice of points (default %(default)s)")
    parser.add_argument("--scenarios", nargs="+", choices=[item.name for item in EVERY], default=[item.name for item in EVERY])
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--storage", nargs="+", choices=STORAGE, default=list(STORAGE))
    parser.add_argument("--writers", nargs="+", help="only points of these writers, such as blobs")
    parser.add_argument("--endings", nargs="+", choices=ENDINGS, default=list(ENDINGS), help="what happens after a kill")
    parser.add_argument("--jobs", type=int, default=1, help="processes that kill at a time (default %(default)s)")
    parser.add_argument("--twin", choices=TWINS, help="break veil so, which must be found")
    parser.add_argument("--inside", type=int, metavar="PART", help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        inside(arguments)
        return 0
    if reason := missing():
        raise SystemExit(reason)
    begun, lines, counted = time.monotonic(), [], Counter[str]()
    for line in outside(arguments):
        if "points" in line:
            counted.update(line["points"])
        else:
            lines.append(line)
            for fault in sorted(set(map(general, line["faults"])))[:SHOWN]:
                print(f"{line['world']}, {line['call']} of {line['path']}{', half' * line['half']}, {line['ending']}: {fault}")
    return tell(lines, counted, time.monotonic() - begun)


def outside(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Messages of processes in which calls are counted, as they come."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="veil-kills-")))
        if "shared" in arguments.storage:
            from worlds.postgres import running_postgres

            stack.enter_context(patch.dict(os.environ, {POSTGRES: str(stack.enter_context(running_postgres()).folder)}))
        if {"bucket", "shared"} & set(arguments.storage):
            from worlds.buckets import running_buckets

            stack.enter_context(running_buckets()).make(BUCKET)
            logging.getLogger("werkzeug").setLevel(logging.CRITICAL)  # half a request is an error there
        environment, processes = preloaded(work), []
        for part in range(arguments.jobs):
            given = [sys.executable, __file__, *sys.argv[1:], "--inside", str(part), "--work", str(work / str(part))]
            log = stack.enter_context((work / f"{part}.log").open("w+"))
            processes.append((subprocess.Popen(given, env=environment, stdout=subprocess.PIPE, stderr=log, text=True), log))
        for process, log in processes:
            assert process.stdout is not None
            yield from map(json.loads, process.stdout)
            if process.wait():
                log.seek(0)
                raise SystemExit(log.read())


def inside(arguments: argparse.Namespace) -> None:
    """Kill the points of every scenario that is this process's part; a line on the standard output for each."""
    if arguments.twin:
        TWINS[arguments.twin]()
    room._MOST_RESERVE = RESERVE
    for module in LOADED:
        import_module(module)
    work = arguments.work
    work.mkdir()
    endpoint = os.environ.get("AWS_ENDPOINT", "")
    messages = {form: forked(messages_of, form, work / "homes" / form) for form in arguments.forms}
    tiles = forked(tiles_in, work / "tiles") if "tiles" in arguments.scenarios else ()
    worlds = [
        (scenario, form, storage)
        for storage in arguments.storage
        for scenario in EVERY
        for form in arguments.forms
        if scenario.name in arguments.scenarios
        and (scenario.name not in ONE_FORM or form == arguments.forms[0])
        and (storage == "folder" or scenario.name in WITH_BUCKET)
        and (storage != "shared" or scenario.name in WITH_POSTGRES)
    ]
    for scenario, form, storage in worlds[arguments.inside :: arguments.jobs]:
        name = f"{scenario.name}-{form}-{storage}"
        objects = None if storage == "folder" else Objects(endpoint, BUCKET, name)
        server = Postgres(Path(os.environ[POSTGRES])) if storage == "shared" else None
        place = Place(
            root=work / name / "now", form=form, objects=objects, postgres=server, messages=messages[form], tiles=tiles
        )
        world, chance = World(scenario, place), random.Random(f"{arguments.seed} {name}")
        points = [point for point in world.points() if point.writer in OWN.get(storage, [point.writer])]
        points = [point for point in points if not arguments.writers or point.writer in arguments.writers]
        print(json.dumps({"points": Counter(point.writer for point in points)}), flush=True)
        for point in chosen(points, arguments.most, chance):
            half, ending = point.size > 1 and chance.random() < 0.5, chance.choice(arguments.endings)
            ended, faults = world.kill(point.number, half, ending)
            where = {"world": name, "writer": point.writer, "call": point.call, "path": general(point.path), "half": half}
            print(json.dumps({**where, "ending": ending, "killed": ended.killed, "faults": faults}), flush=True)


def chosen(points: list[Point], most: int, chance: random.Random) -> list[Point]:
    """Points in their order; of kinds of calls in turn, as many as are wanted (0: all)."""
    kinds: dict[tuple[str, str], list[Point]] = defaultdict(list)
    for point in points:
        kinds[point.call, general(point.path)].append(point)
    turns = list(kinds.values())
    chance.shuffle(turns)
    for kind in turns:
        chance.shuffle(kind)
    ordered = [kind[turn] for turn in range(max(map(len, turns), default=0)) for kind in turns if turn < len(kind)]
    return sorted(ordered[: most or len(ordered)], key=lambda point: point.number)


def general(path: str) -> str:
    """A path without what is drawn at random."""
    return re.sub(
        r"[0-9a-f]{8,}|(?<=blobs/)[0-9a-f]{2}|(?<=\.)[a-z0-9_]{8}(?=\.(?:\w+\.)?part)|(?<=replacing-)[a-z0-9_]{8}|\d+",
        "*",
        path,
    )


def tell(lines: list[dict[str, Any]], counted: Counter[str], seconds: float) -> int:
    """Print what was tried by writer, and all of it as a line of JSON; returns the exit code."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for item in lines:
        kinds = {fault.partition(":")[0] for fault in item["faults"]}
        rows[item["writer"]].update({"tried": 1, "halves": item["half"], "killed": item["killed"], **dict.fromkeys(kinds, 1)})
    heads = ("tried", "halves", "killed", *FAULTS)
    print(f"{'writer':22} {'points':>7} " + " ".join(f"{head:>7}" for head in heads))
    for writer, row in sorted(rows.items()):
        print(f"{writer:22} {counted[writer]:7} " + " ".join(f"{row[head]:7}" for head in heads))
    total = {"points": counted.total(), **{head: sum(row[head] for row in rows.values()) for head in heads}}
    print(json.dumps({**total, "seconds": round(seconds)}))
    return int(any(total[head] for head in FAULTS) or not total["killed"])


if __name__ == "__main__":
    sys.exit(main())
