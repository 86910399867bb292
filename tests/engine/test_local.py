"""Processes of this machine: memory that is bounded, workers that end with their program, and a single task in this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from veil.engine.local import LocalEngine
from veil.errors import EngineError, RangeError
from veil.processes import held_bytes
from worlds import engine_tasks as tasks

PROGRAM = """
from veil.engine.local import LocalEngine
from worlds import engine_tasks as tasks
{guard}
    with LocalEngine({workers}, memory_bytes=1 << 40) as engine:  # with a limit, one worker is a process too
        for result in engine.map(tasks.begun, [(0, {folder!r}), (1, {folder!r}), (2, {folder!r})]):
            print(result, flush=True)
"""


def program(tmp_path: Path, *, guard: str, workers: int) -> subprocess.Popen[str]:
    """A program in a file that gives its workers tasks of ten minutes after a first, short one."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(guard=guard, workers=workers, folder=str(tmp_path)))
    places = os.pathsep.join(place for place in sys.path if place)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([sys.executable, str(path)], env={**os.environ, "PYTHONPATH": places}, text=True, **pipes)  # type: ignore[call-overload]


def workers_of(folder: Path, seconds: float, count: int) -> list[int]:
    """Running processes noted in a folder, once there are `count` of them or after `seconds` seconds."""
    until = time.monotonic() + seconds
    while True:
        noted = [int(path.name[4:]) for path in folder.glob("pid-*")]
        alive = [pid for pid in noted if Path(f"/proc/{pid}").exists()]
        if len(alive) == count or time.monotonic() > until:
            return alive
        time.sleep(0.02)


def test_one_item_runs_in_this_process_with_all_threads(tmp_path: Path) -> None:
    """Definition: no process is started for a single item, which may use the threads of all workers."""
    with LocalEngine(3) as engine:
        ((_, (process, threads, _)),) = engine.map(tasks.settings, [0])
    assert (process, threads) == (os.getpid(), 3)


@pytest.mark.slow
def test_a_task_that_needs_too_much_memory_is_ended_and_named() -> None:
    """Planted: item 1 holds 240 MB where 200 MiB are allowed; other items are done before it."""
    with LocalEngine(1, memory_bytes=200 << 20) as engine:
        results = engine.map(tasks.hungry, [0, 1])
        assert next(results) == (0, 0)
        with pytest.raises(EngineError, match=r"hungry of 1 needs more than the 200 MiB"):
            next(results)
    assert 10 << 20 < held_bytes() < 64 << 30
    with pytest.raises(RangeError, match="memory_bytes"):
        LocalEngine(1, memory_bytes=0)


@pytest.mark.slow
def test_workers_end_with_a_program_that_is_killed(tmp_path: Path) -> None:
    """Planted: a program killed with signal 9 while two workers are at tasks of ten minutes: both end."""
    running = program(tmp_path, guard='if __name__ == "__main__":', workers=2)
    try:
        assert len(workers_of(tmp_path, 20, 2)) == 2
        os.kill(running.pid, signal.SIGKILL)
        assert workers_of(tmp_path, 10, 0) == []
    finally:
        running.kill()
        running.communicate()


@pytest.mark.slow
def test_a_program_that_cannot_be_imported_is_told_so(tmp_path: Path) -> None:
    """Planted: a program without `if __name__`, whose workers would start it again: an error, and no endless starts."""
    running = program(tmp_path, guard="if True:", workers=1)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 1
    assert "worker processes end before they are ready" in said
    assert '__name__ == "__main__"' in said
