"""Processes that are killed at a deadline, die, fail and are busy: the next task has an answer each time."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from veil.errors import InputError, Remedy, VeilError
from veil.processes import DeadlineExceeded, WorkerDied
from veil.server.jobs.processes import Busy, Worker, WorkerPool
from worlds import server_tasks as tasks


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    process = Worker()
    yield process
    process.kill()


@pytest.mark.slow
def test_a_worker_outlives_what_its_tasks_do(worker: Worker) -> None:
    """One process answers until it has to be killed, and another takes its place."""
    told: list[tuple[str, int, int]] = []
    assert worker.call(tasks.double, 21, tell=lambda *step: told.append(step)) == 42
    assert told == [("doubling", 1, 2)]
    first = worker.call(tasks.pid)
    assert first == worker.pid != os.getpid()
    with pytest.raises(VeilError, match="it is damaged"):
        worker.call(tasks.refuse)
    with pytest.raises(InputError, match="it is too small"):
        worker.call(tasks.misuse)
    with pytest.raises(InputError) as misused:
        worker.call(tasks.misuse_here)
    assert misused.value.cause == "it is too small" and misused.value.facts == {"number": 1}
    assert misused.value.remedy == (Remedy("raise", "localize.number"),)
    with pytest.raises(InputError, match="ZeroDivisionError") as failed:
        worker.call(tasks.fail)
    assert "secret" not in str(failed.value)
    assert worker.call(tasks.pid) == first
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded, match=r"0\.5 s"):
        worker.call(tasks.sleep, 60.0, deadline_s=0.5)
    assert time.monotonic() - begun < 20
    with pytest.raises(DeadlineExceeded):
        worker.call(tasks.chat, 60.0, deadline_s=0.5)
    second = worker.call(tasks.pid)
    assert second != first
    with pytest.raises(WorkerDied):
        worker.call(tasks.die)
    with pytest.raises(DeadlineExceeded, match="cancelled"):
        worker.call(tasks.sleep, 60.0, proceed=lambda: False)
    assert worker.call(tasks.double, 1) == 2


@pytest.mark.slow
def test_a_stopped_process_that_does_not_read_ends_with_its_deadline(worker: Worker) -> None:
    """The data is longer than the system's buffer for a stopped process; without a limit this would wait for ever."""
    first = worker.call(tasks.pid)
    os.kill(first, signal.SIGSTOP)
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="did not take it within 1 s"):
        worker.call(tasks.double, bytes(32 << 20), deadline_s=1.0)
    assert time.monotonic() - begun < 30
    second = worker.call(tasks.pid)
    assert second != first
    assert worker.call(tasks.double, bytes(32 << 20), deadline_s=60.0) == bytes(64 << 20)


@pytest.mark.slow
def test_a_full_pool_says_so() -> None:
    """One process, one seat to wait in, and that not for long."""
    pool = WorkerPool(1, waiting=1, patience_s=0.2)
    try:
        pool.warm(tasks.pid)
        long = threading.Thread(target=pool.call, args=(tasks.sleep, 3.0), kwargs={"deadline_s": 30.0})
        long.start()
        time.sleep(0.5)
        waiting: list[Exception] = []

        def wait() -> None:
            try:
                pool.call(tasks.pid, deadline_s=30.0)
            except Busy as error:
                waiting.append(error)

        other = threading.Thread(target=wait)
        other.start()
        time.sleep(0.05)
        with pytest.raises(Busy, match="as much as it can"):
            pool.call(tasks.pid, deadline_s=30.0)
        other.join()
        assert len(waiting) == 1 and "busy" in str(waiting[0])
        long.join()
        assert pool.call(tasks.double, 4, deadline_s=30.0) == 8
    finally:
        pool.close()


@pytest.mark.slow
def test_who_waits_longest_is_next() -> None:
    """Three clients that ask again at once share one process evenly; from a queue that the quickest takes from, not."""
    pool = WorkerPool(1, waiting=8)
    counts = [0, 0, 0]
    try:
        pool.warm(tasks.pid)
        until = time.monotonic() + 2.0

        def ask(client: int) -> None:
            while time.monotonic() < until:
                pool.call(tasks.sleep, 0.02, deadline_s=30.0)
                counts[client] += 1

        threads = [threading.Thread(target=ask, args=(client,)) for client in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        pool.close()
    assert max(counts) - min(counts) <= 1 and min(counts) > 3
