"""Runs of commands that leave records.

A command runs in a process of its own, in an empty folder that shows the data: what it writes is gone with the folder.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from veil.errors import InputError
from veil_lab.files.results import sources
from veil_lab.results.code import digests
from veil_lab.results.printed import tables_in
from veil_lab.results.record import ResultRecord

# Packages whose versions move numbers.
PACKAGES = ("veil", "numpy", "scipy", "numba", "opencv-python-headless", "pycolmap", "torch")


def recorded(
    command: str,
    *,
    name: str,
    question: str,
    root: Path,
    data: Path | None,
    settings: Mapping[str, str] | None = None,
    timeout_s: float | None = None,
) -> ResultRecord:
    """Run a command, and make the record of what it printed.

    - `command`: begins with `veil`, or with `python` and a program below `root`.
    - `name`, `question`, `settings`: as in `ResultRecord`.
    - `root`: the repository's folder. `data`: the folder that `VEIL_DATA` names; None: the command needs none.
    - `timeout_s`: seconds after which the run is given up; None: any time.

    Raises InputError for another command, and for one that fails, runs too long or prints no table.
    """
    words = shlex.split(command)
    if words[:1] not in (["veil"], ["python"]) or len(words) < 2:
        raise InputError(f"a record's command begins with veil, or with python and a program, not {command!r}")
    with tempfile.TemporaryDirectory(prefix="veil-result-") as folder:
        work, trace = Path(folder) / "work", Path(folder) / "trace.json"
        work.mkdir()
        for entry in [] if data is None else data.iterdir():
            (work / entry.name).symlink_to(entry.resolve())
        before = _children_s()
        done = _run([sys.executable, "-m", "veil_lab.files.traced", str(trace), str(root), *words], work, data, timeout_s)
        seconds = _children_s() - before
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
            raise InputError(f"{command!r} failed with exit code {done.returncode}: {' '.join(last)}")
        content = json.loads(trace.read_text(encoding="utf-8"))
    tables = [table for text in content["tables"] for table in tables_in(text)] or list(tables_in(done.stdout))
    return ResultRecord(
        name=name,
        question=question,
        command=command,
        tables=tuple(tables),
        date=datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        commit=commit_of(root),
        machine=f"{platform.machine()}, {os.cpu_count()} cores",
        versions=versions(),
        processor_seconds=round(seconds, 2),
        settings=settings or {},
        modules=digests(sources(root, content["modules"])),
    )


def versions() -> dict[str, str]:
    """Versions of Python and of those packages that are installed and move numbers."""
    known = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            known[package] = version(package)
        except PackageNotFoundError:
            continue
    return known


def commit_of(root: Path) -> str:
    """The commit that is checked out, with a plus sign if files differ from it; "unknown" outside a repository."""

    def git(*words: str) -> str:
        asked = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
        return asked.stdout.strip() if asked.returncode == 0 else "unknown"

    commit = git("rev-parse", "HEAD")[:8]
    return commit if commit == "unknown" or not git("status", "-s", "-uno") else f"{commit}+"


def _run(words: Sequence[str], work: Path, data: Path | None, timeout_s: float | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200"} | ({} if data is None else {"VEIL_DATA": str(data)})
    try:
        return subprocess.run(words, cwd=work, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise InputError(f"the command ran for more than {timeout_s:.0f} s; give it more time") from None


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
