"""Processor time of commands alone and beside two busy processes on the same two cores, and the ratio of both.

    VEIL_DATA=... python lab/benchmarks/crowded.py [--what audit map localization] [--forms hardened paper lines words]
    python lab/benchmarks/crowded.py -- veil map upload/ -o map/        any command

Wall time beside other work grows by what the others take. Processor time must not: where it does, threads wait for each other
in loops. Audits are of fifteen photographs of BSDS500 with a decoy pool from the other ones; "paper" is m = 16. The map is of
the bundled portal, the localization that of Strecha's fountain. A smaller run comes first, so that nothing is compiled during a
measurement. The exit code is 1 if any ratio is above 1.3. "alone" includes whatever else the machine does: state it with the
numbers.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import veil
from veil.files.photographs.examples import lund_door

MOST, PHOTOGRAPHS, CORES = 1.3, 15, 2
VEIL = [sys.executable, "-m", "veil.cli"]
FORMS = {
    "hardened": ["--for", "map", "--decoys", "pool.npz"],
    "lines": ["--for", "map", "--lines", "--decoys", "pool.npz"],
    "words": ["--words", "bundled", "--epsilon", "6", "--m", "2", "--features", "all", "--allow-private-dictionary"],
}
PAPER_M = 16
POINT = ["--word-count", "4096", "--epsilon", "10", "--m", "2", "--folds", "2"]  # one setting of each form
SETTLED = ("OMP", "OPENBLAS", "GOMP", "MKL", "KMP")  # what the shell says of threads is not measured


@dataclass(frozen=True, kw_only=True)
class Job:
    """Command to measure, the path that it overwrites, and a smaller command that compiles all that it needs."""

    name: str
    command: Sequence[str]
    warm: Sequence[str]
    writes: str = ""


@dataclass(frozen=True, kw_only=True)
class Time:
    """Processor time, children included, and wall time, in seconds."""

    processor: float
    wall: float


def main() -> int:
    """Print one line for each command; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--what", nargs="+", choices=("audit", "map", "localization"), default=["audit", "map", "localization"])
    parser.add_argument("--forms", nargs="+", choices=[*FORMS, "paper"], default=[*FORMS, "paper"])
    parser.add_argument("--no-limit", action="store_true", help="do not confine everything to two cores")
    parser.add_argument("command", nargs="*", help="after --: the command to measure")
    arguments = parser.parse_args()
    root = Path(os.environ.get("VEIL_DATA", ""))
    if not arguments.command and not (root / "photos").is_dir():
        print("VEIL_DATA does not name the folder of evaluation photographs", file=sys.stderr)
        return 1
    if hasattr(os, "sched_setaffinity") and not arguments.no_limit:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    print(f"{'command':24} {'processor s: alone':>18} {'crowded':>8} {'ratio':>6} | {'wall s: alone':>13} {'crowded':>8}")
    with tempfile.TemporaryDirectory() as folder:
        jobs = [_given(arguments.command)] if arguments.command else list(_jobs(arguments, root, Path(folder)))
        return int(max(_measured(job, Path(folder)) for job in jobs) > MOST)


def _given(command: Sequence[str]) -> Job:
    words = [*VEIL, *command[1:]] if command[0] == "veil" else list(command)
    return Job(name=" ".join(command)[:24], command=words, warm=words)


def _jobs(arguments: argparse.Namespace, root: Path, folder: Path) -> Iterator[Job]:
    if "audit" in arguments.what:
        _prepare_audit(root / "photos" / "bsds500", folder, arguments.forms)
        for form in arguments.forms:
            pool = [] if form in ("paper", "words") else ["--decoys", "pool.npz"]
            audit = [*VEIL, "audit", form, "--images", "features.h5", *pool, "-o", "audit.html"]
            yield Job(name=f"audit {form}", command=audit, warm=[*audit, "--attacked-features", "15"])
    if "map" in arguments.what:
        with lund_door() as example:
            _run([*VEIL, "extract", str(example.folder), "-o", "door.h5", "--max-features", "1500"], folder)
        _run([*VEIL, "privatize", "door.h5", "-o", "door", "--for", "map"], folder)
        mapping = [*VEIL, "map", "door", "-o", "map"]
        yield Job(name="map", command=mapping, warm=mapping, writes="map")
    if "localization" in arguments.what:
        study = [*VEIL, "evaluate", "localization", str(root / "strecha" / "fountain-P11"), *POINT]
        yield Job(name="evaluate localization", command=study, warm=["true"])


def _prepare_audit(photographs: Path, folder: Path, forms: Sequence[str]) -> None:
    every = sorted(photographs.glob("*.jpg"))
    for name, part in (("photos", every[:PHOTOGRAPHS]), ("others", every[PHOTOGRAPHS:])):
        (folder / name).mkdir()
        for path in part:
            (folder / name / path.name).symlink_to(path.resolve())
    _run([*VEIL, "extract", "photos", "-o", "features.h5"], folder)
    _run([*VEIL, "codebook", "build", "--decoy-pool", "others", "-o", "pool.npz"], folder)
    for form in forms:
        home = folder / f"home-{form}"
        if form in FORMS:
            _run([*VEIL, "privatize", "features.h5", "-o", form, *FORMS[form]], folder, home=home)
        else:
            _as_published(folder, home)


def _as_published(folder: Path, home: Path) -> None:
    """Release the features by the paper's profile, which is Python's alone."""
    (folder / "paper").mkdir()
    protection = veil.Protection(descriptors=veil.HideInSubspaces(profile=veil.Profile.paper(PAPER_M)))
    device = veil.Device(home)
    for name, features in veil.read_features(folder / "features.h5"):
        made = device.release(features, protection, name=name)
        (folder / "paper" / f"{made.released_as}.veil").write_bytes(made.message)


def _measured(job: Job, folder: Path) -> float:
    """Measure a job, print its line, and return the ratio of processor times."""
    _run(job.warm, folder)
    times = []
    for busy in (0, CORES):
        shutil.rmtree(folder / job.writes) if job.writes else None
        with _crowd(busy):
            times.append(_run(job.command, folder))
    alone, crowded = times
    ratio = crowded.processor / alone.processor
    print(
        f"{job.name:24} {alone.processor:18.1f} {crowded.processor:8.1f} {ratio:6.2f} | {alone.wall:13.1f} {crowded.wall:8.1f}",
        flush=True,
    )
    return ratio


@contextmanager
def _crowd(count: int) -> Iterator[None]:
    """Context in which `count` processes use all the processor time they get."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def _run(command: Sequence[str], folder: Path, home: Path | None = None) -> Time:
    """Run a command to its end, quietly. Raises RuntimeError with its error output if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(SETTLED)}
    environment["VEIL_HOME"] = str(home or folder / "home")
    log, start = folder / "log.txt", time.perf_counter()
    with log.open("wb") as output:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        raise RuntimeError(f"{' '.join(command)}: {log.read_text()[-2000:]}")
    return Time(processor=usage.ru_utime + usage.ru_stime, wall=time.perf_counter() - start)


if __name__ == "__main__":
    sys.exit(main())
