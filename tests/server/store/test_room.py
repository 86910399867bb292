"""Room on a server's disk, whose sizes are told: what is kept free, refused, counted in memory, or waits."""

from __future__ import annotations

import errno
import http.client
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from veil.errors import CannotWrite, NoRoom, StorageTrouble
from veil.files.atomic import writing
from veil.files.service import reserve
from veil.files.service.blobs import FolderBlobs
from veil.files.service.reserve import Disk, hold
from veil.server.access.tokens import Quota, QuotaExceeded, Tokens
from veil.server.http.problems import answer_to
from veil.server.jobs.queue import queue_job
from veil.server.maps.contributions import add_contribution
from veil.server.maps.policy import MapPolicy
from veil.server.runner import Runner, WaitingJobs
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store import database, room
from veil.server.store.database import SqliteDatabase
from veil.server.store.room import REFUSED, TIMES, Room
from worlds.servers import MESSAGE_TYPE, running

GIB = 1 << 30


class Told:
    """A disk whose total and free bytes the test sets."""

    def __init__(self) -> None:
        self.free, self.total = 100 * GIB, 200 * GIB

    def __call__(self, folder: Path) -> Disk:
        return Disk(free=self.free, total=self.total)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    disk = Told()
    for module in (room, database):
        monkeypatch.setattr(module, "disk_of", disk)
    return disk


@pytest.fixture
def service(told: Told, tmp_path: Path) -> Iterator[Service]:
    service = Service(tmp_path / "store", ServerSettings(workers=1))
    yield service
    service.close()


@pytest.mark.parametrize(
    ("total", "floor", "size"),
    [(12 << 20, 12 * (1 << 20) // 10, 12 << 16), (10 * GIB, GIB, 32 << 20), (8192 * GIB, GIB, 32 << 20)],
)
def test_what_is_kept_free_fits_the_disk(told: Told, tmp_path: Path, total: int, floor: int, size: int) -> None:
    """A tenth of a small disk and a GiB of others; the reserve is a sixteenth, 32 MiB at most. By hand."""
    told.total, told.free = total, total
    room = Room(tmp_path)
    assert room.keep() and not room.keep()
    assert (room.floor, room.reserve.stat().st_size) == (floor, size)
    assert room.reserve.stat().st_blocks * 512 >= size, "it holds its room, and is no hole"


def test_contributions_are_taken_while_there_is_room(told: Told, tmp_path: Path) -> None:
    """Room that is promised to others counts until they are done, and nothing is taken at the floor. By hand."""
    told.free = GIB + TIMES * 100
    room = Room(tmp_path)
    with room.taking(60):
        with room.taking(40):
            pass
        with pytest.raises(NoRoom), room.taking(41):
            raise AssertionError("more than there is was promised")
    with room.taking(100):
        pass
    told.free = GIB
    with pytest.raises(NoRoom), room.taking(1):
        raise AssertionError("what is kept free was promised")
    with room.taking(0):  # nothing fits always
        pass


def test_one_token_leaves_as_much_for_others_as_it_has(told: Told, tmp_path: Path) -> None:
    """So one token fills no disk: by hand, it has half of what there is for contributions at most, and others go on."""
    room, kept = Room(tmp_path), 0
    told.free = GIB + 1000
    while True:
        try:
            with room.taking(10, kept=kept):
                kept += 10
                told.free -= 10
        except NoRoom:
            break
    assert 460 <= kept <= 500
    with room.taking(10):
        pass


def test_an_act_is_done_once_more_without_the_reserve(told: Told, tmp_path: Path) -> None:
    """Where there is none, the error is that of the act; another error gives nothing up."""
    room = Room(tmp_path)
    room.keep()

    def act(error: Exception) -> str:
        if room.reserve.exists():
            raise error
        return "done"

    with pytest.raises(CannotWrite):
        room.acting(lambda: act(CannotWrite("read-only")))
    assert room.acting(lambda: act(NoRoom("full"))) == "done"
    with pytest.raises(NoRoom, match="again"):
        room.acting(lambda: (_ for _ in ()).throw(NoRoom("again")))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_from_other_errors(tmp_path: Path, number: int) -> None:
    """Of files, and of a quota of the file system's own; what the answer says holds no path."""
    with pytest.raises(NoRoom), writing(tmp_path):
        raise OSError(number, "full")
    with pytest.raises(CannotWrite) as other, writing(tmp_path):
        raise PermissionError(errno.EACCES, "no")
    assert not isinstance(other.value, NoRoom)
    answer = answer_to(NoRoom("cannot write /a/path"))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "60")
    assert b"urn:veil:no-room" in answer.body and b"/a/path" not in answer.body
    assert b"urn:veil:no-room" in answer_to(OSError(number, "full", "/a/path")).body


def test_a_file_system_that_cannot_allocate_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reserve has its size and its room there, too; a disk that is full meanwhile has no half of it."""

    def cannot(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "cannot")

    monkeypatch.setattr(reserve.os, "posix_fallocate", cannot)
    hold(tmp_path / "reserve", 3_000_000)
    assert (tmp_path / "reserve").stat().st_size == 3_000_000 <= (tmp_path / "reserve").stat().st_blocks * 512

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(reserve.os, "posix_fallocate", full)
    with pytest.raises(NoRoom):
        hold(tmp_path / "other", 1)
    assert [path.name for path in tmp_path.iterdir()] == ["reserve"]


@pytest.mark.slow
@pytest.mark.parametrize("spare", [True, False], ids=["pages are free", "broken twin: none"])
def test_the_database_writes_on_a_full_disk_without_growing(told: Told, tmp_path: Path, spare: bool) -> None:
    """A thousand rows go into free pages, neither file nor log grows, and deleting goes on when these are used up.

    The broken twin has no free pages, and takes no row that needs one.
    """
    store = SqliteDatabase(tmp_path / "veil.sqlite")
    if spare:
        store.clear_log()
    told.free = 0
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    taken = 0
    with pytest.raises(NoRoom):
        while taken < 100_000:
            with store.transaction(durable=True) as rows:
                rows.run("INSERT INTO facts VALUES (:name, :value)", name=f"n{taken}", value="x" * 500)
            taken += 1
    assert (1000 < taken < 100_000) == spare
    if spare:
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) == size
        with store.transaction(durable=True) as rows:
            rows.run("DELETE FROM facts WHERE name <> 'version'")
        with store.transaction(durable=True) as rows:
            rows.run("INSERT INTO facts VALUES ('again', 'x')")
    told.free = GIB
    with store.transaction() as rows:
        rows.run("INSERT INTO facts VALUES ('room', :value)", value="x" * (2 * database.SPARE))
    store.close()


def test_the_log_keeps_its_room(told: Told, tmp_path: Path) -> None:
    """It is overwritten and not cut off, through large transactions, and neither an error nor idle connections delete it."""
    store, log = SqliteDatabase(tmp_path / "veil.sqlite"), tmp_path / "veil.sqlite-wal"
    store.clear_log()
    sizes = []
    for length in (10, 3 * database.SPARE, 10):
        with store.transaction() as rows:
            rows.run("INSERT OR REPLACE INTO facts VALUES ('planted', :value)", value="planted" * length)
        with store.transaction() as rows:
            rows.run("DELETE FROM facts WHERE name = 'planted'")
        with pytest.raises(sqlite3.OperationalError), store.transaction() as rows:
            rows.run("INSERT INTO nowhere VALUES (1)")
        store.clear_log()
        sizes.append(log.stat().st_size)
        assert b"planted" not in log.read_bytes() + store.path.read_bytes()
    assert all(database.SPARE < size < 1.1 * database.SPARE for size in sizes)
    store.close()


def test_quotas_hold_while_requests_are_counted_in_memory(told: Told, service: Service) -> None:
    """Three requests and a hundred bytes, whether the disk is full or not; the database counts them later."""
    quota = Quota(requests_per_minute=1 << 20, bytes_per_day=100)
    made, secret = service.tokens.make("x", ["localize"], quota=quota)
    for free in (GIB, 0, 0, GIB):
        told.free = free
        service.tokens.admit(secret, None, body_bytes=25)
    for free in (0, GIB):
        told.free = free
        with pytest.raises(QuotaExceeded, match="used 100 of its 100 bytes"):
            service.tokens.admit(secret, None, body_bytes=1)
        assert service.tokens.usage(made)["bytes_today"] == 100
    assert Tokens(service.database).usage(made)["requests_today"] == 4, "of another server, which has not counted"


def test_requests_are_counted_in_memory_where_the_database_has_no_room(
    told: Told, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that meets a full disk raises too; the counts stay in memory, and no failure loses them."""
    made, secret = service.tokens.make("x", ["localize"])
    told.free = 0
    service.tokens.admit(secret, None, body_bytes=5)
    told.free = GIB
    monkeypatch.setattr("veil.server.access.tokens.add_usage", lambda *_: (_ for _ in ()).throw(NoRoom("full")))
    service.tokens.admit(secret, None, body_bytes=5)
    service.tokens.admit(secret, None, body_bytes=5)
    monkeypatch.undo()
    assert service.tokens.usage(made)["bytes_today"] == 15
    service.tokens.count()
    assert Tokens(service.database).usage(made) == service.tokens.usage(made)
    assert service.tokens.usage(made)["requests_today"] == 3


def test_what_is_told_while_there_is_no_room(told: Told, service: Service) -> None:
    """For `/readyz`: while nothing is taken, and not before or after."""
    assert service.warnings() == []
    told.free = service.room.floor
    assert service.warnings() == [REFUSED]
    told.free += 1
    assert service.warnings() == []


@pytest.mark.slow
def test_a_contribution_is_refused_before_its_body_is_read(told: Told, service: Service) -> None:
    """No byte of the body is sent, and the answer is there; a message that no policy takes is told so, with room."""
    record = service.records.make("x", MapPolicy(max_bytes=1000))
    with running(service, jobs=False) as server:
        for free, length, status in ((service.room.floor, 900, 503), (service.room.floor + 4000, 1001, 413)):
            told.free = free
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
            connection.putrequest("POST", f"/v1/maps/{record.id}/contributions")
            for name, value in (("Authorization", f"Bearer {server.admin}"), ("Content-Type", MESSAGE_TYPE)):
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(length))
            connection.endheaders()
            assert connection.getresponse().status == status
            connection.close()
        told.free = 0
        text = server.ask("GET", "/metrics").data.decode()
        assert "veil_no_room 1.0" in text and "veil_free_bytes 0.0" in text
        ready = server.ask("GET", "/readyz", token="")
        assert (ready.status, ready.value["warnings"]) == (200, [REFUSED])


def test_jobs_that_add_wait_for_room_and_removals_do_not(told: Told, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update needs as much as its map's messages have; a removal that met a full disk waits until there is more."""
    record = service.records.make("x", MapPolicy())
    with service.database.transaction() as transaction:
        add_contribution(transaction, record, token="t", digest="0" * 64, size_bytes=5 << 20, facts={})
        update = queue_job(transaction, record.id, "update", "t")
    told.free = service.room.floor + (5 << 20) - 1
    runner = Runner(service)
    assert runner.work_once() is None
    with service.database.transaction() as transaction:
        removal = queue_job(transaction, record.id, "remove", "t")

    def full(*_: object) -> None:
        raise NoRoom("full")

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "_finish", full)
        taken = runner.work_once()
    assert taken is not None and taken.id == removal.id
    assert runner.work_once() is None, "it would only be tried again"
    waiting = service.jobs.get(removal.id)
    assert waiting is not None and (waiting.attempts, waiting.ended) == (0, None)
    told.free += 1 << 19
    assert WaitingJobs(service).ids() == set(), "another server does not know that it failed"
    # The update was first, and there is room for both now.
    done = [job.kind for job in iter(runner.work_once, None)]
    assert done == ["update", "remove"]
    assert update.id != removal.id


def test_a_job_that_met_a_full_disk_holds_up_no_removal(told: Told, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that was given back waits; the removal of the same map, which makes room, goes before it."""
    record = service.records.make("x", MapPolicy())
    with service.database.transaction() as transaction:
        queue_job(transaction, record.id, "update", "t")
        queue_job(transaction, record.id, "remove", "t")
    runner = Runner(service)
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "_work", lambda *_: (_ for _ in ()).throw(NoRoom("full")))
        first = runner.work_once()
    second = runner.work_once()
    assert first is not None and second is not None and (first.kind, second.kind) == ("update", "remove")
    assert [job.state for job in service.jobs.of_map(record.id)] == ["running", "done"]


def test_a_lost_job_that_waits_for_room_holds_up_no_removal(told: Told, service: Service) -> None:
    """Its server was killed and the disk is full since: what it would still bring counts no more, and the removal begins."""
    record = service.records.make("x", MapPolicy())
    with service.database.transaction() as transaction:
        lost = queue_job(transaction, record.id, "update", "t")
        queue_job(transaction, record.id, "remove", "t")
    taken = service.jobs.take("another server")
    assert taken is not None and service.jobs.take("this", but={lost.id}) is None, "it may work on it"
    with service.database.transaction() as transaction:
        transaction.run("UPDATE jobs SET lease = 1 WHERE id = :id", id=lost.id)
    removal = service.jobs.take("this", but={lost.id})
    assert removal is not None and removal.kind == "remove"
    assert not service.jobs.beat(taken, "matching", 1, 2)


def test_a_message_that_finds_no_room_is_not_kept(told: Told, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills between the look and the message: no room, and no name of it; other trouble stays what it is."""

    def cannot(error: Exception) -> object:
        def put(blobs: FolderBlobs, data: bytes) -> str:
            raise error

        return put

    for error, kind in ((NoRoom("full"), NoRoom), (CannotWrite("read-only"), StorageTrouble)):
        monkeypatch.setattr(FolderBlobs, "put", cannot(error))
        with pytest.raises(kind):
            service.records.keep(b"message")
    assert list(service.records.blobs.names()) == []
