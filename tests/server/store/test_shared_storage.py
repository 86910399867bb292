"""Two servers with folders of their own share PostgreSQL and a bucket: one map, one result, and deletion everywhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from veil.device.device import Device
from veil.errors import FileFormatError, InputError, StorageTrouble
from veil.features import Features
from veil.server import deletion
from veil.server.deletion import MATCHES, sweep
from veil.server.jobs.queue import queue_job
from veil.server.maps.contributions import add_contribution
from veil.server.maps.policy import MapPolicy
from veil.server.runner import Runner
from veil.server.service import Service
from veil.server.settings import ServerSettings, read_settings
from worlds.buckets import SECRET, Buckets
from worlds.postgres import Postgres
from worlds.servers import everything, messages_of, opened, running, work
from worlds.traces import traces_of


@pytest.fixture(scope="module")
def messages(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return messages_of(door, Device(tmp_path_factory.mktemp("device")))


@pytest.fixture
def pair(shared_settings: ServerSettings, tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    """Two servers."""
    services = Service(tmp_path / "one", shared_settings), Service(tmp_path / "two", shared_settings)
    yield services
    for service in services:
        service.close()


@pytest.mark.slow
@pytest.mark.planted
def test_a_contribution_goes_in_by_one_server_and_out_by_another(
    pair: tuple[Service, Service],
    shared_settings: ServerSettings,
    messages: dict[str, bytes],
    buckets: Buckets,
    postgres: Postgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted bytes: the message, its name and each row of its arrays: in bucket and folders before, nowhere after."""
    one, two = pair
    bucket = shared_settings.blobs.split("/")[2]
    with running(one, jobs=False) as here, running(two, jobs=False) as there:
        map_id = here.ask("POST", "/v1/maps", value={"name": "door"}).value["map"]
        given = list(messages.values())[:-1]
        answers = [here.ask("POST", f"/v1/maps/{map_id}/contributions", body=message) for message in given]
        assert [answer.status for answer in answers] == [202] * len(given)
        again = there.ask("POST", f"/v1/maps/{map_id}/contributions", body=given[0], token=here.admin)
        assert again.value["contribution"] == answers[0].value["contribution"] and again.value["job"] is None
        assert work(two) == ["update done"] and work(one) == []
        query = list(messages.values())[-1]
        poses = [server.ask("POST", f"/v1/maps/{map_id}/localize", body=query).value for server in (here, there)]
        assert all(pose["status"] == "localized" and pose["map_version"] == 1 for pose in poses)

        mapped = [item for item in one.records.contributions(map_id) if item.state == "mapped"]
        gone = next(item for item in mapped if item.id == answers[0].value["contribution"])
        folder = one.version_folder(one.map_record(map_id))
        assert folder is not None
        traces = traces_of(folder, gone.id, given[0])

        def places() -> dict[str, list[tuple[str, bytes]]]:
            stored = {name: list(everything(service.folder)) for name, service in (("first", one), ("second", two))}
            return {**stored, "bucket": list(opened(buckets.objects(bucket)))}

        # The servers laid the map out, and the bucket holds it and the message; the matches are at the one that mapped.
        held = places()
        assert traces.missed(held["bucket"]) == {}
        for name in ("first", "second"):
            assert set(traces.missed(held[name])) == {"message"}
        # In the database, digests of the version's files; what the receipt says of the contribution stays there.
        digest = one.map_record(map_id).files["descriptors.h5"].encode()
        assert postgres.held(digest)
        assert (two.folder / MATCHES / map_id).is_dir()
        answer = there.ask("DELETE", f"/v1/contributions/{gone.id}", token=here.admin)
        assert answer.status == 202
        assert work(one) == ["remove done"]
        receipt = there.ask("GET", f"/v1/contributions/{gone.id}/receipt", token=here.admin)
        assert receipt.status == 200 and receipt.value["content"]["features"] > 0
        assert here.ask("GET", "/v1/receipts").value == there.ask("GET", "/v1/receipts").value
        # The other server's folder follows with its next sweep.
        monkeypatch.setattr(deletion, "STALE_S", 0.0)
        sweep(two)
        assert [traces.counts(sources) for sources in places().values()] == [{}, {}, {}]
        one.database.clear_log(left_over=True)
        assert postgres.held(digest) == []
        assert there.ask("POST", f"/v1/maps/{map_id}/localize", body=query).value["map_version"] == 2
        assert here.ask("DELETE", f"/v1/maps/{map_id}").status == 200
    assert [name.rpartition("/")[2] for name in buckets.objects(bucket)] == ["store.json"]


@pytest.mark.slow
def test_storage_that_goes_away_is_a_503_and_comes_back(
    pair: tuple[Service, Service],
    messages: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The bucket does not answer: the message is not acknowledged and no record of it is left. No log tells a secret."""
    from veil.files.service import bucket_blobs

    service = pair[0]
    record = service.records.make("away", MapPolicy())
    message = next(iter(messages.values()))
    with running(service, jobs=False) as server:
        right = bucket_blobs.obstore.head

        def away(*given: object) -> object:
            raise bucket_blobs.BaseError("Generic S3 error: nobody is there\n\nDebug source: ...")

        monkeypatch.setattr(bucket_blobs.obstore, "head", away)
        answer = server.ask("POST", f"/v1/maps/{record.id}/contributions", body=message)
        assert answer.status == 503 and answer.headers["retry-after"] == "10" and "s3://" not in answer.data.decode()
        assert service.records.contributions(record.id) == []
        monkeypatch.setattr(bucket_blobs.obstore, "head", right)
        assert server.ask("POST", f"/v1/maps/{record.id}/contributions", body=message).status == 202
        database = service.database
        monkeypatch.setattr(database, "_address", "host=/nowhere user=veil password=another-secret")
        database.close()
        answer = server.ask("GET", "/v1/maps")
        assert answer.status == 503 and answer.headers["retry-after"] == "10"
        assert server.ask("GET", "/readyz").status == 503
        monkeypatch.undo()
        database._away_until = 0.0  # type: ignore[attr-defined]
        assert server.ask("GET", "/v1/maps").status == 200
    assert "nobody is there" in caplog.text and "cannot be used now" in caplog.text
    assert SECRET not in caplog.text and "another-secret" not in caplog.text


@pytest.mark.slow
def test_a_folder_is_used_with_the_storage_that_it_was_made_for(shared_settings: ServerSettings, tmp_path: Path) -> None:
    """A start without the settings would find no map, and show an empty server."""
    Service(tmp_path / "store", shared_settings).close()
    with pytest.raises(FileFormatError, match="was used with"):
        Service(tmp_path / "store")
    Service(tmp_path / "plain").close()
    with pytest.raises(FileFormatError, match="was used with"):
        Service(tmp_path / "plain", shared_settings)
    held = b"".join(path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())
    assert b"postgresql" in held and shared_settings.database.encode() not in held and SECRET.encode() not in held
    assert os.environ["AWS_SECRET_ACCESS_KEY"] == SECRET


def test_a_job_waits_for_storage_that_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is nobody's fault: the job goes back to the queue, and no attempt is counted. Of another error, it fails."""
    service = Service(tmp_path / "store")
    record = service.records.make("door", MapPolicy())
    with service.database.transaction() as transaction:
        digest = service.records.blobs.put(b"a message")
        add_contribution(transaction, record, token="t0", digest=digest, size_bytes=9, facts={})
        job = queue_job(transaction, record.id, "update", "t0")
    for wrong, state in ((StorageTrouble("away"), "running"), (InputError("wrong"), "failed")):

        def away(*given: object, wrong: Exception = wrong) -> None:
            raise wrong

        monkeypatch.setattr(service.records.blobs, "place", away)
        worker = Runner(service)
        if state == "running":
            with pytest.raises(StorageTrouble):
                worker.work_once()
        else:
            worker.work_once()
        worker._process.kill()
        ended = service.jobs.get(job.id)
        assert ended is not None and (ended.state, ended.worker == "") == (state, state == "running")
        assert ended.attempts == (0 if state == "running" else 1)
    kept = {"a": service.records.blobs.put(b"kept")}
    service.records.require_kept(kept)
    with pytest.raises(StorageTrouble, match="1 files"):
        service.records.require_kept({**kept, "b": "0" * 64})
    service.close()


def test_settings_of_storage_tell_no_secret() -> None:
    shown = repr(ServerSettings(database="postgresql://veil:a-secret@host/veil"))
    assert "a-secret" not in shown
    for name, value in (("database", "mysql://veil:a-secret@host/x"), ("blobs", "/srv/blobs")):
        with pytest.raises(InputError, match=name) as slip:
            read_settings(None, {f"VEIL_SERVE_{name.upper()}": value})
        assert "a-secret" not in str(slip.value)
