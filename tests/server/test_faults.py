"""Faults around a server: files that are away, full disks, killed processes, clocks that are set, two servers on one map."""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from veil.device.device import Device
from veil.errors import CannotWrite, InputError
from veil.features import Features
from veil.files.maps.format import write_map
from veil.processes import WorkerDied
from veil.server import runner as background
from veil.server.deletion import sweep
from veil.server.jobs.processes import WorkerPool
from veil.server.jobs.queue import LEASE_S, Jobs, queue_job
from veil.server.maps.policy import MapPolicy
from veil.server.maps.records import MapRecords, put_version
from veil.server.routes.geopose import query_of
from veil.server.runner import Runner
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store.database import MOST_IDLE, SqliteDatabase
from worlds import server_tasks as tasks
from worlds.releases import planted_map
from worlds.servers import messages_of, running


@pytest.fixture(scope="module")
def messages(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    few = dict(list(door.items())[:3])
    return list(messages_of(few, Device(tmp_path_factory.mktemp("device")), most=40).values())


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "store", ServerSettings(workers=1))
    yield service
    service.close()


def test_threads_that_end_leave_no_connection_open(tmp_path: Path) -> None:
    """Threads of a server come and go; each had a connection, and with it three open files, for ever."""
    database = SqliteDatabase(tmp_path / "veil.sqlite")

    def ask() -> None:
        with database.transaction() as transaction:
            transaction.one("SELECT 1")

    for _ in range(5):
        threads = [threading.Thread(target=ask) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    held = [path for path in Path("/proc/self/fd").iterdir() if os.path.realpath(path).startswith(str(tmp_path))]
    assert len(held) <= 3 * MOST_IDLE
    database.close()


def test_a_database_that_goes_away_and_returns(tmp_path: Path) -> None:
    """While its file is away nothing is made in its place, and what was in it is there again."""
    path = tmp_path / "veil.sqlite"
    database = SqliteDatabase(path)
    with database.transaction(durable=True) as transaction:
        transaction.run("INSERT INTO facts (name, value) VALUES ('a', 'b')")
    database.close()
    path.rename(tmp_path / "away")
    with pytest.raises(sqlite3.OperationalError), database.transaction():
        raise AssertionError("there is no database")
    assert not path.exists()
    (tmp_path / "away").rename(path)
    with database.transaction() as transaction:
        assert transaction.one("SELECT value FROM facts WHERE name = 'a'") == {"value": "b"}
    database.close()


def test_a_job_waits_for_a_full_disk(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """No attempt is counted, and the job is done when there is room. The broken twin failed it: its contributions waited."""
    record = service.records.make("full", MapPolicy())
    with service.database.transaction() as transaction:
        job = queue_job(transaction, record.id, "update", "t1")
    runner = Runner(service)

    def full(*_: object) -> None:
        raise CannotWrite("cannot write /a/path: No space left on device")

    work = Runner._work
    monkeypatch.setattr(Runner, "_work", full)
    for _ in range(7):
        with pytest.raises(CannotWrite):
            runner.work_once()
    waiting = service.jobs.get(job.id)
    assert waiting is not None and waiting.state == "running" and waiting.attempts == 0
    monkeypatch.setattr(Runner, "_work", work)
    monkeypatch.setattr(Runner, "_changed", lambda *_: background.MapOutcome(written=False, reason="nothing yet"))
    runner.work_once()
    done = service.jobs.get(job.id)
    assert done is not None and done.state == "done"


def test_work_on_an_old_version_is_done_again(service: Service, door: dict[str, Features], tmp_path: Path) -> None:
    """Another server changed the map meanwhile, as its clock is ahead: what it took out must not come back."""
    write_map(tmp_path / "map", planted_map(next(iter(door.values())), public=True))
    record = service.import_map("two servers", tmp_path / "map")
    with service.database.transaction() as transaction:
        queue_job(transaction, record.id, "update", "t1")
    runner = Runner(service)
    job = service.jobs.take(runner.name)
    assert job is not None
    with service.database.transaction() as transaction:
        put_version(transaction, record, record.files, record.facts)
    output = tmp_path / "output"
    write_map(output, planted_map(next(iter(door.values())), public=True))
    work = background.MapWork(output=output, matches=tmp_path / "matches", unfinished=tmp_path / "unfinished")
    runner._record(job, record, [], work, background.MapOutcome(written=True))
    again = service.jobs.get(job.id)
    assert again is not None and again.state == "running" and again.worker == ""
    assert service.map_record(record.id).version == record.version + 1
    # What the version names is there: the files of the dropped result were equal to some of them.
    service.records.require_kept(service.map_record(record.id).files)


def test_a_lost_job_is_taken_before_others_of_its_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its server may still work on it, and two of one map at a time would undo each other."""
    now = [1e9]
    monkeypatch.setattr(time, "time", lambda: now[0])
    database = SqliteDatabase(tmp_path / "veil.sqlite")
    jobs = Jobs(database)
    with database.transaction() as transaction:
        first = queue_job(transaction, "m1", "update", "t1")
    assert jobs.take("a") is not None
    now[0] -= 7200  # another server's clock is behind, so that its job seems older
    with database.transaction() as transaction:
        queue_job(transaction, "m1", "remove", "t1")
    now[0] += 7200 + LEASE_S + 1
    taken = jobs.take("b")
    assert taken is not None and taken.id == first.id
    database.close()


def test_a_clock_that_is_set_deletes_nothing(service: Service, messages: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    """A year ahead for one sweep, and right again. Broken twin: a sweep that believes it."""
    record = service.records.make("short", MapPolicy(keep_days=1.0))
    with service.database.transaction(durable=True) as transaction:
        background_of(transaction, record, messages[0])
    service.records.blobs.put(messages[0])
    asked: list[bool] = []
    runner, real = Runner(service), time.time
    monkeypatch.setattr(background, "SWEEP_S", 0.0)
    monkeypatch.setattr(background, "sweep", lambda _, *, expires: asked.append(expires))
    monkeypatch.setattr(runner, "work_once", lambda: steps())

    def steps() -> None:
        ahead = 365 * 86400 if len(asked) == 2 else 0
        monkeypatch.setattr(time, "time", lambda: real() + ahead)
        if len(asked) == 5:
            runner._stop.set()
        runner.wake()

    runner._run()
    assert asked == [True, True, False, False, True], "not when it was set, and not when it was set back"
    monkeypatch.setattr(time, "time", lambda: real() + 365 * 86400)
    sweep(service, expires=False)
    assert len(service.records.contributions(record.id)) == 1
    sweep(service)
    assert service.records.contributions(record.id) == []


def background_of(transaction: object, record: object, message: bytes) -> None:
    """A contribution as the service enters it."""
    import hashlib

    from veil.server.maps.contributions import add_contribution

    digest = hashlib.sha256(message).hexdigest()
    facts = {"form": "subspaces", "features": 1, "kind": "subspaces"}
    add_contribution(transaction, record, token="t1", digest=digest, size_bytes=len(message), facts=facts)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_killed_process_costs_no_answer(tmp_path: Path) -> None:
    """The task is begun once more; one that always kills its process has the error."""
    pool = WorkerPool(1)
    try:
        assert pool.call(tasks.die_once, str(tmp_path / "died"), deadline_s=60.0) == "done"
        with pytest.raises(WorkerDied):
            pool.call(tasks.die, deadline_s=60.0)
    finally:
        pool.close()


@pytest.mark.slow
def test_a_message_whose_process_was_killed_is_not_refused(
    service: Service, messages: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """503, upon which a client keeps its message; 422 told it to drop it."""
    record = service.records.make("killed", MapPolicy())

    def dies(*_: object, **__: object) -> None:
        raise WorkerDied("the process of the task ended without an answer")

    with running(service, jobs=False) as server:
        with monkeypatch.context() as patch:
            patch.setattr(WorkerPool, "call", dies)
            answer = server.ask("POST", f"/v1/maps/{record.id}/contributions", body=messages[0])
            assert answer.status == 503 and answer.headers["retry-after"] == "10"
        assert server.ask("POST", f"/v1/maps/{record.id}/contributions", body=messages[0]).status == 202


@pytest.mark.slow
@pytest.mark.planted
def test_queries_leave_no_trace_where_requests_are_logged(
    tmp_path: Path, door: dict[str, Features], messages: list[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    """Forty queries with `log_requests`: a line for each, and no part of them in the folder or the log.

    Broken twin: a contribution, parts of which are in the folder.
    """
    features = next(iter(door.values()))
    write_map(tmp_path / "map", planted_map(features, public=True))
    query = messages_of({"query": features}, Device(tmp_path / "device"), most=80)["query"]

    def parts(message: bytes) -> list[bytes]:
        return [message[place : place + 24] for place in range(150, len(message) - 24, len(message) // 50)]

    service = Service(tmp_path / "store", ServerSettings(workers=1, log_requests=True))
    with caplog.at_level(logging.INFO), running(service, jobs=False) as server:
        record = service.import_map("traces", tmp_path / "map")
        for _ in range(40):
            answer = server.ask("POST", f"/v1/maps/{record.id}/localize", body=query)
            assert answer.status == 200
        server.ask("POST", f"/v1/maps/{record.id}/contributions", body=messages[1])
        held = b"".join(path.read_bytes() for path in service.folder.rglob("*") if path.is_file())
    logged = "".join(f"{item.name} {item.getMessage()}\n" for item in caplog.records if item.name.startswith("veil"))
    assert logged.count("POST /v1/maps/{map_id}/localize 200") == 40
    assert not [part for part in parts(query) if part in held or part in logged.encode()]
    assert all(part in held for part in parts(messages[1]))
    for secret in (record.id, server.admin, "127.0.0.1", "no pose"):
        assert secret not in logged
    assert not any(f"{number:.6f}" in logged for number in answer.value.get("camera_center", []))


@pytest.mark.parametrize(
    "values",
    [
        {"max_features": 5.5},
        {"max_features": True},
        {"lines_only": "yes"},
        {"least_profile": ["hardened"]},
        {"keep_days": 1e308},
        {"keep_days": float("nan")},
        {"max_epsilon": "1"},
        {"forms": 3},
    ],
)
def test_a_policy_of_other_types_is_refused(values: dict) -> None:
    """A number of days that no date has was an error of the server where a contribution's end was told."""
    with pytest.raises(InputError):
        MapPolicy.of(values)


@pytest.mark.parametrize("change", [b'"timestamp": 1' + b"0" * 400, b'"id": "\\ud800"', b'"id": 3'])
def test_strange_numbers_and_texts_of_geopose_are_refused(change: bytes) -> None:
    """They were errors of the server: one is no double, the other cannot be answered."""
    name = change.split(b":")[0]
    rest = {b'"timestamp"': b'"timestamp": 1.0', b'"id"': b'"id": "a"'}
    rest[name] = change
    body = (
        b'{"type": "geopose", "sensorReadings": {"cameraReadings": [{"imageBytes": "%s"}]}, ' + b", ".join(rest.values()) + b"}"
    )
    with pytest.raises(InputError):
        query_of(body % b"VkVJTA==")


def test_records_are_of_one_database(service: Service) -> None:
    """A version whose files were dropped meanwhile is refused within its transaction."""
    assert isinstance(service.records, MapRecords)
    with pytest.raises(Exception, match="dropped"):
        service.records.require_kept({"a": "0" * 64})
