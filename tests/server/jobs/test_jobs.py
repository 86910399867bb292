"""Jobs: one server at a time under a lease, taken up again after a kill, and one result."""

from __future__ import annotations

import time

import pytest

from veil.server.jobs.queue import ATTEMPTS, LEASE_S, Jobs, cancel_jobs, end_job, queue_job
from veil.server.store.database import Database


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    return now


def queued(database: Database, map_id: str, kind: str = "update") -> str:
    with database.transaction() as transaction:
        return queue_job(transaction, map_id, kind, "t1").id  # type: ignore[arg-type]


def test_waiting_work_of_one_kind_is_one_job(database: Database, clock: list[float]) -> None:
    jobs = Jobs(database)
    first = queued(database, "m1")
    clock[0] += 1
    assert queued(database, "m1") == first != queued(database, "m1", "remove") != queued(database, "m2")
    clock[0] += 1
    taken = jobs.take("a")
    assert taken is not None and taken.id == first and taken.state == "running"
    assert queued(database, "m1") != first, "what comes while it runs needs another job"
    assert [job.kind for job in jobs.of_map("m1")] == ["update", "remove", "update"]


def test_one_map_is_worked_on_by_one_job(database: Database, clock: list[float]) -> None:
    jobs = Jobs(database)
    for name in ("m1", "m2"):
        queued(database, name)
        clock[0] += 1
        queued(database, name, "remove")
        clock[0] += 1
    taken = [jobs.take("a"), jobs.take("b"), jobs.take("c")]
    assert [job and (job.map_id, job.kind) for job in taken] == [("m1", "update"), ("m2", "update"), None]


def test_a_killed_servers_job_is_taken_up_and_its_late_result_dropped(database: Database, clock: list[float]) -> None:
    """The first server was only slow: what it brings after its lease ran out changes nothing."""
    jobs = Jobs(database)
    queued(database, "m1")
    first = jobs.take("a")
    assert first is not None and jobs.take("b") is None
    clock[0] += LEASE_S / 2
    assert jobs.beat(first, "matching", 1, 2)
    clock[0] += LEASE_S / 2 + 1
    assert jobs.take("b") is None, "a beat keeps it"
    clock[0] += LEASE_S
    second = jobs.take("b")
    assert second is not None and second.id == first.id and second.attempts == 2
    assert not jobs.beat(first, "matching", 2, 2)
    with database.transaction() as transaction:
        assert not end_job(transaction, first, "done", {"from": "a"})
        assert end_job(transaction, second, "done", {"from": "b"})
        assert not end_job(transaction, second, "failed", {})
    done = jobs.get(first.id)
    assert done is not None and done.state == "done" and done.result == {"from": "b"}
    again = jobs.take("a")
    assert again is None


def test_the_same_server_that_takes_a_job_twice_has_it_once(database: Database, clock: list[float]) -> None:
    jobs = Jobs(database)
    queued(database, "m1")
    first = jobs.take("a")
    clock[0] += LEASE_S + 1
    second = jobs.take("a")
    assert first is not None and second is not None
    assert not jobs.beat(first, "", 0, 0) and jobs.beat(second, "", 0, 0)


def test_a_job_that_kills_its_servers_fails(database: Database, clock: list[float]) -> None:
    jobs = Jobs(database)
    job = queued(database, "m1")
    for _ in range(ATTEMPTS):
        assert jobs.take("a") is not None
        clock[0] += LEASE_S + 1
    assert jobs.take("a") is None
    failed = jobs.get(job)
    assert failed is not None and failed.state == "failed" and "5 times" in failed.result["reason"]


def test_cancelled_jobs_have_no_result_and_old_ones_are_forgotten(database: Database, clock: list[float]) -> None:
    jobs = Jobs(database)
    job = queued(database, "m1")
    taken = jobs.take("a")
    assert taken is not None
    with database.transaction() as transaction:
        cancel_jobs(transaction, "m1")
        assert not end_job(transaction, taken, "done", {})
    assert not jobs.beat(taken, "", 0, 0)
    jobs.forget(clock[0] - 1)
    assert jobs.get(job) is not None
    jobs.forget(clock[0] + 1)
    assert jobs.get(job) is None and jobs.get("j0") is None


def test_a_clock_that_is_set_back_keeps_no_job_waiting(database: Database, clock: list[float]) -> None:
    """A lease of an hour ahead cannot have been given by this clock."""
    jobs = Jobs(database)
    queued(database, "m1")
    assert jobs.take("a") is not None
    clock[0] -= 3600
    assert jobs.take("b") is not None
