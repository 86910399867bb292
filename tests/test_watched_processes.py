"""Processes of both kinds, of a function and of a file, that behave alike: the caller always learns how they ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from veil.processes import DeadlineExceeded, Process, WorkerDied, held_bytes, scripted, shown_code, spawned

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for line in sys.stdin:
    request = json.loads(line)
    print("asked", request, file=sys.stderr, flush=True)
    if request == "die":
        os.kill(os.getpid(), 9)
    time.sleep(60 if request == "sleep" else 1.3 if request == "late" else 0)
    print(json.dumps("told"), flush=True)
    print(json.dumps(request), flush=True)
"""


def serve(connection: Connection) -> None:
    """The loop of the program: it answers requests until one tells it to die."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        request = connection.recv()
        if request == "die":
            os.kill(os.getpid(), 9)
        time.sleep(60 if request == "sleep" else 1.3 if request == "late" else 0)
        connection.send("told")
        connection.send(request)


@pytest.fixture(params=["function", "file"])
def process(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Process[Any]]:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    child: Process[Any] = spawned(serve, daemon=True) if request.param == "function" else scripted(path, lambda line: None)
    yield child
    child.kill()


def alive(pid: int | None) -> bool:
    return Path(f"/proc/{pid}/stat").exists()


def test_every_message_comes_and_silence_is_told(process: Process[Any]) -> None:
    """Planted: two messages, and an answer after more than a second, before which the caller is asked again."""
    messages = process.asked("one", deadline_s=60.0)
    assert [next(item for item in messages if item is not None) for _ in range(2)] == ["told", "one"]
    late = process.asked("late")
    assert next(late) is None, "nothing within a second"
    assert next(late) == "told" and next(late) == "late" and process.exit_code is None


def test_a_death_is_told_with_its_code(process: Process[Any]) -> None:
    with pytest.raises(WorkerDied):
        list(process.asked("die"))
    assert process.exit_code == -signal.SIGKILL and not alive(process.pid)


def test_a_deadline_kills_and_leaves_no_process(process: Process[Any]) -> None:
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"longer than 0\.5 s"):
        list(process.asked("sleep", deadline_s=0.5))
    assert 0.5 <= time.monotonic() - begun < 20 and not alive(process.pid)


def test_an_end_waits_and_then_kills(process: Process[Any]) -> None:
    """Planted: a process that ignores the signal by which it could clean up."""
    assert "told" in (next(process.asked("one", deadline_s=60.0)) for _ in range(60))  # it has begun
    process.terminate()
    process.end(0.2)
    assert process.exit_code == -signal.SIGKILL


def test_the_log_of_a_file_is_whole_when_its_end_is_told(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    log: list[str] = []
    path.write_text(PROGRAM)
    process = scripted(path, log.append)
    with pytest.raises(WorkerDied):
        list(process.asked("die"))
    assert [line for line in log if line] == ["asked die\n"]


def test_codes_are_told_by_name() -> None:
    """Golden values, by hand."""
    assert [shown_code(code) for code in (-9, -250, 3, None)] == [
        "signal 9, SIGKILL",
        "signal 250",
        "exit code 3",
        "exit code None",
    ]
    assert 10 << 20 < held_bytes() < 64 << 30
