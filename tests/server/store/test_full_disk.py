"""A server on a disk of 12 MB that is filled to the last byte: it goes on, deletes, and has lost nothing afterwards."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from veil.device.device import Device
from veil.errors import NoRoom
from veil.features import Features
from veil.files.maps.format import write_map
from veil.files.service.reserve import disk_of
from veil.server.access.tokens import Quota
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store import database
from veil.server.store.database import SqliteDatabase
from veil.server.store.room import Room
from worlds.releases import planted_map
from worlds.servers import Answer, Running, messages_of, running, with_pool, working

MEGABYTES = 12


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own; skips where none may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    told = None
    if sys.platform == "linux" and os.geteuid() == 0:
        told = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MEGABYTES}m", "tmpfs", str(folder)], capture_output=True)
    if told is None or told.returncode:
        pytest.skip("no disk may be mounted here (only root may, outside of most containers)")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture(scope="module")
def messages(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return list(messages_of(door, Device(tmp_path_factory.mktemp("device")), most=500).values())


def opened(disk: Path) -> Service:
    """A service whose room is held as a server holds it from its start."""
    service = with_pool(Service(disk / "store", ServerSettings(workers=1)))
    service.keep_room()
    service.database.clear_log()
    return service


def fill(disk: Path) -> None:
    """Write a file until no byte is left."""
    with (disk / "fill").open("ab", buffering=0) as stream:
        for block in (1 << 16, 512):
            try:
                while True:
                    stream.write(bytes(block))
            except OSError as error:
                assert error.errno == errno.ENOSPC
    assert disk_of(disk).free == 0


class Filler:
    """Somebody who goes on to fill a disk: what is freed is gone at once."""

    def __init__(self, disk: Path) -> None:
        self._disk, self._stop = disk, threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._stop.is_set():
            fill_again(self._disk)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def fill_again(disk: Path) -> None:
    """Take what was freed, if anything was."""
    try:
        with (disk / "fill").open("ab", buffering=0) as stream:
            stream.write(bytes(4096))
    except OSError:
        pass


def in_map(service: Service, feature: Features, disk: Path) -> str:
    """A map that answers queries, laid out."""
    write_map(disk.parent / "map", planted_map(feature, public=True))
    record = service.import_map("lobby", disk.parent / "map")
    service.version_folder(record)
    return record.id


def given(server: Running, map_id: str, messages: list[bytes], token: str | None = None) -> list[str]:
    """Contributions that were taken."""
    answers = [server.ask("POST", f"/v1/maps/{map_id}/contributions", body=item, token=token) for item in messages]
    assert [answer.status for answer in answers] == [202] * len(messages)
    return [answer.value["contribution"] for answer in answers]


def kinds(answer: Answer) -> tuple[int, Any]:
    return answer.status, answer.value.get("type")


@pytest.mark.slow
@pytest.mark.parametrize("reserved", [True, False], ids=["a reserve", "broken twin: none"])
def test_it_goes_on_where_the_disk_is_full(
    disk: Path, door: dict[str, Features], messages: list[bytes], reserved: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queries, health and deletion answer 200, contributions are refused; with room again nothing is lost or uncounted.

    The broken twin holds no room: deletion fails, and so nobody can free any.
    """
    if not reserved:
        monkeypatch.setattr(Room, "keep", lambda room: False)
        monkeypatch.setattr(SqliteDatabase, "_overwritten", lambda *_: False)
    service = opened(disk)
    with running(service, jobs=False) as server:
        lobby, empty = in_map(service, next(iter(door.values())), disk), service.records.make("empty", MapPolicy())
        names = given(server, empty.id, messages[:4])
        known = {item.id: item.digest for item in service.records.contributions()}
        fill(disk)
        if not reserved:
            assert kinds(server.ask("DELETE", f"/v1/contributions/{names[0]}")) == (503, "urn:veil:no-room")
            return
        before = service.tokens.usage(service.tokens.all()[0])["requests_today"]
        for path in ("/healthz", "/readyz", "/v1/policy", "/v1/maps", "/v1/me/usage", "/v1/contributions", "/metrics"):
            assert server.ask("GET", path).status == 200, path
        for _ in range(3):
            assert server.ask("POST", f"/v1/maps/{lobby}/localize", body=messages[5]).status == 200
        assert server.ask("GET", "/readyz").value["warnings"][0].startswith("no room: contributions are refused")
        assert "veil_no_room 1.0" in server.ask("GET", "/metrics").data.decode()
        refused = server.ask("POST", f"/v1/maps/{empty.id}/contributions", body=messages[4])
        assert kinds(refused) == (503, "urn:veil:no-room") and refused.headers["retry-after"] == "60"
        deleted = server.ask("DELETE", f"/v1/contributions/{names[0]}")
        assert deleted.status == 200 and deleted.value["receipt"]["content"]["message_sha256"] == known.pop(names[0])
        (disk / "fill").unlink()
        service.keep_room()
        assert server.ask("GET", "/readyz").value["warnings"] == []
        assert {item.id: item.digest for item in service.records.contributions()} == known
        for digest in known.values():
            service.records.blobs.get(digest)  # compares it with its digest
        # Three lists, the numbers twice, three queries, a contribution, a deletion, and this one.
        assert server.ask("GET", "/v1/me/usage").value["used"]["requests_today"] == before + 3 + 2 + 3 + 2 + 1
        given(server, empty.id, messages[4:5])


@pytest.mark.slow
def test_it_goes_on_where_what_is_freed_is_taken_at_once(disk: Path, door: dict[str, Features], messages: list[bytes]) -> None:
    """Deletion writes into room that the database has already, so that it wins no race for what others fill."""
    service = opened(disk)
    with running(service, jobs=False) as server:
        lobby, empty = in_map(service, next(iter(door.values())), disk), service.records.make("empty", MapPolicy())
        names = given(server, empty.id, messages[:4])
        fill(disk)
        with Filler(disk):
            for name in names:
                assert server.ask("DELETE", f"/v1/contributions/{name}").status == 200
                assert server.ask("POST", f"/v1/maps/{lobby}/localize", body=messages[5]).status == 200
                assert server.ask("GET", "/readyz").status == 200
        assert [len(service.receipts.chain()), service.records.contributions(), disk_of(disk).free] == [4, [], 0]
        assert server.ask("DELETE", f"/v1/maps/{empty.id}").status == 200
    (disk / "fill").unlink()


@pytest.mark.slow
def test_a_removal_from_a_map_is_done_on_a_full_disk(disk: Path, messages: list[bytes]) -> None:
    """The message goes at once, then the reserve is given up for the map's next version; other jobs wait meanwhile."""
    service = opened(disk)
    token, _ = service.tokens.make("a", ["admin"])
    record = service.records.make("door", MapPolicy())
    items = [service.contribute(token, record.id, message)[0] for message in messages[:3]]
    with working(service) as work:
        assert work() == ["update done"]
        service.version_folder(service.map_record(record.id))
        fill(disk)
        receipt, job = service.delete(token, items[0].id)
        assert receipt is None and job is not None and not service.records.blobs.has(items[0].digest)
        service.queue(record.id, "update", token.id)
        work()
        jobs = {item.kind: item.state for item in service.jobs.of_map(record.id) if item.ended is None or item.id == job.id}
        assert jobs == {"remove": "done", "update": "queued"}
        assert service.receipts.of_contribution(items[0].id, token.id) is not None
        (disk / "fill").unlink()
    with working(service) as another:  # the first runner waits for room for a while
        assert another() == ["update done"]
    service.close()


@pytest.mark.slow
@pytest.mark.parametrize("reserved", [True, False], ids=["a reserve", "none"])
def test_it_starts_on_a_full_disk(disk: Path, messages: list[bytes], reserved: bool) -> None:
    """It gives the reserve up and deletes; where there is none, one line says what to do."""
    service = opened(disk)
    token, _ = service.tokens.make("a", ["admin"])
    item, _ = service.contribute(token, service.records.make("door", MapPolicy()).id, messages[0])
    service.close()
    if not reserved:
        (disk / "store" / "reserve").unlink()
    fill(disk)
    if not reserved:
        with pytest.raises(NoRoom, match=r"there is no room for .*veil.sqlite; make room on its disk, and start again"):
            Service(disk / "store")
        return
    with running(Service(disk / "store", ServerSettings(workers=1))) as server:  # with its sweep, and a new token
        assert server.ask("GET", "/readyz").status == 200
        answer = server.ask("DELETE", f"/v1/contributions/{item.id}")
        job = answer.value["job"]
        assert answer.status == 200 or server.done(job)["state"] == "done"
        assert server.ask("GET", f"/v1/contributions/{item.id}/receipt").status == 200


def test_requests_beyond_what_the_database_can_hold_are_counted_in_memory(disk: Path) -> None:
    """Quotas hold on a full disk, whose requests are counted in the database when there is room."""
    service = opened(disk)
    made = [service.tokens.make(f"t{number}", ["localize"], quota=Quota(requests_per_minute=3)) for number in range(3)]
    fill(disk)
    now = time.time()
    for token, secret in made:
        for _ in range(3):
            service.tokens.admit(secret, None, body_bytes=7)
        if time.time() // 60 == now // 60:
            with pytest.raises(Exception, match="used its 3 requests"):
                service.tokens.admit(secret, None)
        assert service.tokens.usage(token)["bytes_today"] == 21
    (disk / "fill").unlink()
    service.keep_room()
    service.close()
    service = opened(disk)
    assert [service.tokens.usage(token)["bytes_today"] for token, _ in made] == [21] * 3
    service.close()


def test_no_deleted_row_is_left_in_the_log_of_a_full_disk(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are overwritten in the file, and what the log held of them; the broken twin only moves it."""
    for overwritten in (True, False):
        path = disk / f"{overwritten}.sqlite"
        store = SqliteDatabase(path)
        store.clear_log()
        with store.transaction() as rows:
            rows.run("INSERT INTO facts VALUES ('planted', 'a planted row')")
        fill(disk)
        with store.transaction(durable=True) as rows:
            rows.run("DELETE FROM facts WHERE name = 'planted'")
        if not overwritten:
            monkeypatch.setattr(SqliteDatabase, "_overwritten", lambda *_: True)
        store.clear_log()
        log = path.with_name(f"{path.name}-wal")
        assert (b"a planted row" in path.read_bytes() + log.read_bytes()) != overwritten
        assert log.stat().st_size >= database.SPARE
        (disk / "fill").unlink()
        store.close()


@pytest.mark.slow
def test_shared_storage_beside_a_full_folder(
    disk: Path, shared_settings: ServerSettings, door: dict[str, Features], messages: list[bytes]
) -> None:
    """Its database counts, and its bucket keeps; queries of what is laid out and deletion go on, contributions are refused."""
    service = Service(disk / "store", shared_settings)
    with running(service, jobs=False) as server:
        lobby, empty = in_map(service, next(iter(door.values())), disk), service.records.make("empty", MapPolicy())
        names = given(server, empty.id, messages[:1])
        fill(disk)
        assert server.ask("POST", f"/v1/maps/{lobby}/localize", body=messages[5]).status == 200
        refused = server.ask("POST", f"/v1/maps/{empty.id}/contributions", body=messages[1])
        assert kinds(refused) == (503, "urn:veil:no-room")
        assert server.ask("DELETE", f"/v1/contributions/{names[0]}").status == 200
        assert not len(service.tokens._uncounted)
        (disk / "fill").unlink()
        given(server, empty.id, messages[1:2])
