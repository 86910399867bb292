"""Processes that are killed by SIGKILL at a chosen call by which bytes reach a disk, a bucket or a database.

`kill_points.c` is loaded before the C library, and counts what a forked process does below a folder. The process that forks has
loaded everything and has computed nothing: threads of libraries do not survive a fork.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("kill_points.c")
# What is written into a file of the names here belongs to the writer on the right; the first that fits.
WRITERS = (
    ("bucket:", "bucket"),
    ("database:", "PostgreSQL"),
    (".backup", "backup"),
    ("/restored", "restored store"),
    ("/tiles", "served tiles"),
    ("veil.sqlite", "database"),
    ("/blobs", "blobs"),
    ("/cache", "cache of versions"),
    ("/matches", "matches"),
    ("/work", "work of jobs"),
    ("storage.json", "notes of the store"),
    ("/client", "outbox"),
    ("ledger", "ledger"),
    ("secret", "secret"),
    ("/device-tiles", "tiles of a device"),
    ("faces", "face store"),
    ("/map", "folder of a map"),
)


def missing() -> str:
    """Why processes cannot be killed here, empty if they can."""
    if not sys.platform.startswith("linux"):
        return "calls are counted on Linux alone"
    return "" if shutil.which("cc") else "there is no C compiler (cc)"


def preloaded(folder: Path) -> dict[str, str]:
    """The environment of a process in which calls are counted; the library is made in `folder`."""
    library = folder / "kill_points.so"
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return {**os.environ, "LD_PRELOAD": str(library), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


@dataclass(frozen=True, kw_only=True)
class Point:
    """A call that was counted.

    - `number`: 1 for the first one of the process.
    - `size`: bytes that it writes; 0 for a call that writes none.
    """

    number: int
    call: str
    size: int
    path: str

    @property
    def writer(self) -> str:
        """Whose write it is."""
        return next((writer for part, writer in WRITERS if part in self.path), "folders")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a forked process: killed at its point, with a `value`, or with the text of an error."""

    killed: bool = False
    value: Any = None
    error: str = ""


def forked(task: Callable[..., Any], *given: Any) -> Any:
    """The value of a task in a forked process. Raises RuntimeError with what it raised."""
    ended = _forked(lambda: task(*given))
    if ended.error or ended.killed:
        raise RuntimeError(ended.error or "it was killed")
    return ended.value


def points_of(task: Callable[..., Any], *given: Any, root: Path) -> list[Point]:
    """The points of a task that nobody kills."""
    log = root.with_name(f"{root.name}.points")
    log.unlink(missing_ok=True)
    handle = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        ended = killed_at(0, False, task, *given, root=root, log=handle)
    finally:
        os.close(handle)
    if ended.error:
        raise RuntimeError(ended.error)
    points = []
    for line in log.read_text().splitlines():
        number, call, size, path = line.split("\t")
        points.append(Point(number=int(number), call=call, size=int(size), path=path.removeprefix(f"{root}")))
    return points


def killed_at(number: int, half: bool, task: Callable[..., Any], *given: Any, root: Path, log: int = -1) -> Ended:
    """The end of a task that is killed before a point, or with `half` after half of its write."""

    def run() -> Any:
        library = ctypes.CDLL(None)
        library.kill_arm(f"{root}/".encode(), ctypes.c_long(number), int(half), log)
        try:
            return task(*given)
        finally:
            library.kill_disarm()

    return _forked(run)


def _forked(run: Callable[[], Any]) -> Ended:
    """The end of a forked process, read through a pipe; no part of it keeps running."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            answer = Ended(value=run())
        except BaseException:
            answer = Ended(error=traceback.format_exc())
        with os.fdopen(writer, "wb") as stream:
            pickle.dump(answer, stream)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return Ended(killed=True)
    return pickle.loads(data) if data else Ended(error=f"the process ended with {status}")


class Snapshots:
    """A folder as it was: `take` keeps it, `put_back` makes it so again at the same path."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._kept = folder, folder.with_name(f"{folder.name}.kept")

    def take(self) -> None:
        """Keep the folder as it is."""
        shutil.rmtree(self._kept, ignore_errors=True)
        shutil.copytree(self.folder, self._kept, symlinks=True)

    def put_back(self) -> None:
        """Have the folder be as it was kept, with the times of its files."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self._kept, self.folder, symlinks=True)


def tried(counts: Mapping[str, int]) -> str:
    """Numbers by name, as one line."""
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
