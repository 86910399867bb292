"""The service end to end: contributions become a map, queries poses, deletions receipts, and nothing deleted is left."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from veil.device.device import Device
from veil.errors import InputError
from veil.features import Features
from veil.files.maps.folders import model_folders
from veil.files.maps.format import read_map
from veil.server.access.tokens import Token
from veil.server.deletion import expire, sweep
from veil.server.maps.policy import MapPolicy
from veil.server.runner import Runner
from veil.server.service import NotFound, Service
from veil.server.settings import ServerSettings
from worlds.servers import NOTES, everything, messages_of, with_pool, working
from worlds.traces import traces_of


@pytest.fixture(scope="module")
def messages(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return messages_of(door, Device(tmp_path_factory.mktemp("device")))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = with_pool(Service(tmp_path_factory.mktemp("server") / "store", ServerSettings(workers=1, map_workers=1)))
    yield service
    service.close()


@pytest.fixture(scope="module")
def work(service: Service) -> Iterator[Callable[[], list[str]]]:
    with working(service) as work:
        yield work


def owner(service: Service, name: str = "owner") -> Token:
    return service.tokens.make(name, ["localize", "contribute"])[0]


@pytest.mark.slow
@pytest.mark.planted
def test_a_contribution_goes_in_and_out_without_a_trace(
    service: Service, work: Callable[[], list[str]], messages: dict[str, bytes]
) -> None:
    """Planted bytes: the message, its digest, its name, each row of its arrays. The store holds all before and none after."""
    mine, other = owner(service), owner(service, "other")
    record = service.records.make("door", MapPolicy())
    ids = {}
    for name, message in messages.items():
        ids[name], job = service.contribute(mine, record.id, message)[0].id, service.contribute(mine, record.id, message)[1]
        assert job is None, "the same message again is the same contribution"
    assert work() == ["update done"]
    mapped = service.map(mine, record.id)
    assert mapped.version == 1 and mapped.facts["models"][0]["images"] >= 4
    states = {item.id: item.state for item in service.records.contributions(record.id)}
    assert list(states.values()).count("mapped") == mapped.facts["models"][0]["images"]
    gone = next(name for name, ident in ids.items() if states[ident] == "mapped")
    folder = service.version_folder(mapped)
    assert folder is not None
    scene, traces = read_map(folder), traces_of(folder, ids[gone], messages[gone])
    digest = hashlib.sha256(messages[gone]).hexdigest()

    def holding(text: str) -> list[str]:
        return sorted({name for name, data in everything(service.folder) if text.encode() in data})

    assert traces.missed(everything(service.folder)) == {} and holding(digest)
    with pytest.raises(NotFound):
        service.delete(other, ids[gone])
    receipt, job = service.delete(mine, ids[gone])
    assert receipt is None and job is not None
    assert work() == ["remove done"]
    service.database.clear_log()
    # The receipt keeps the contribution's name and the digest of its message: it is about them.
    assert traces.counts(everything(service.folder)) == {"name": 1}
    assert {*holding(ids[gone]), *holding(digest)} == {"veil.sqlite", "veil.sqlite (values)"}
    receipt = service.receipts.of_contribution(ids[gone], mine.id)
    assert receipt is not None and receipt.content["features"] > 0 and receipt.content["map_versions"] == [1, 2]
    assert receipt.content["message_sha256"] == digest
    assert service.receipts.of_contribution(ids[gone], other.id) is None
    assert service.delete(mine, ids[gone]) == (receipt, None), "asked again, the receipt is the answer"
    after = service.map(mine, record.id)
    folder = service.version_folder(after)
    assert folder is not None
    for model in model_folders(folder):
        assert ids[gone] not in read_map(model).images
    for name, image in read_map(folder).images.items():
        np.testing.assert_allclose(
            image.cam_from_world.center, scene.images[name].cam_from_world.center, atol=0.02 * scene.extent
        )
    again = service.contribute(mine, record.id, messages[gone])[0]
    assert again.id != ids[gone] and again.state == "pending"
    assert work() == ["update done"]
    assert len(service.delete_map(mine, record.id)) == len(messages)
    left = {str(path.relative_to(service.folder)) for path in service.folder.rglob("*") if path.is_file()}
    assert left <= {"veil.sqlite", "veil.sqlite-shm", "veil.sqlite-wal"} | NOTES


@pytest.mark.slow
def test_what_two_tokens_give_stays_apart(service: Service, messages: dict[str, bytes]) -> None:
    """The same message of two tokens is two contributions of one blob; deleting one leaves the other whole."""
    mine, other = owner(service), owner(service, "other")
    record = service.records.make("shared", MapPolicy())
    message = next(iter(messages.values()))
    first, second = service.contribute(mine, record.id, message)[0], service.contribute(other, record.id, message)[0]
    assert first.id != second.id and first.digest == second.digest
    receipt, _ = service.delete(mine, first.id)
    assert receipt is not None
    assert service.records.blobs.get(second.digest) == message
    assert [item.id for item in service.records.contributions(record.id)] == [second.id]
    service.delete(other, second.id)
    with pytest.raises(NotFound):
        service.delete(other, "c0")
    service.delete_map(mine, record.id)


@pytest.mark.slow
def test_contributions_expire(service: Service, messages: dict[str, bytes]) -> None:
    mine = owner(service)
    record = service.records.make("short", MapPolicy(keep_days=1.0))
    item = service.contribute(mine, record.id, next(iter(messages.values())))[0]
    assert item.expires is not None
    assert expire(service, item.expires - 1) == 0
    assert expire(service, item.expires + 1) == 1
    sweep(service)
    assert service.records.contributions(record.id) == []
    receipt = service.receipts.of_contribution(item.id, mine.id)
    assert receipt is not None and receipt.content["why"] == "its time was over" and receipt.content["token"] == ""
    service.delete_map(mine, record.id)


@pytest.mark.slow
def test_a_map_that_a_token_may_not_use_does_not_exist_for_it(service: Service, messages: dict[str, bytes]) -> None:
    record = service.records.make("closed", MapPolicy())
    token = service.tokens.make("elsewhere", ["localize", "contribute"], maps=["m0"])[0]
    message = next(iter(messages.values()))
    for attempt in (
        lambda: service.map(token, record.id),
        lambda: service.contribute(token, record.id, message),
        lambda: service.localize(token, record.id, message),
        lambda: service.map(owner(service), "m0"),
    ):
        with pytest.raises(NotFound):
            attempt()
    service.delete_map(service.tokens.make("admin", ["admin"])[0], record.id)


@pytest.mark.slow
def test_an_empty_map_and_damaged_messages_have_clear_answers(
    service: Service, work: Callable[[], list[str]], messages: dict[str, bytes]
) -> None:
    mine = owner(service)
    record = service.records.make("empty", MapPolicy())
    message = next(iter(messages.values()))
    assert service.localize(mine, record.id, message)["reason"] == "the map holds no image yet"
    damaged = message[:300] + bytes([message[300] ^ 1]) + message[301:]
    for wrong, told in ((damaged, "checksum"), (message[:-1], "bytes but its header asks"), (b"\xff\xd8\xff" * 99, "JPEG")):
        with pytest.raises(Exception, match=told):
            service.contribute(mine, record.id, wrong)
    service.contribute(mine, record.id, message)
    assert work() == ["update done"]
    item = service.records.contributions(record.id)[0]
    assert item.state == "pending" and not service.map(mine, record.id).files
    assert "two images" in service.jobs.of_map(record.id)[0].result["reason"]
    with pytest.raises(InputError):
        service.queue("m0", "rebuild", mine.id)
    service.delete_map(mine, record.id)


@pytest.mark.slow
def test_a_job_that_a_server_leaves_is_done_by_the_next(
    service: Service, work: Callable[[], list[str]], messages: dict[str, bytes]
) -> None:
    """The server ends while it works: the job waits again, and no attempt is counted."""
    mine = owner(service)
    record = service.records.make("left", MapPolicy())
    for message in messages.values():
        job = service.contribute(mine, record.id, message)[1]
    runner = Runner(service)
    runner.start()
    assert job is not None
    for _ in range(600):
        present = service.jobs.get(job.id)
        assert present is not None
        if present.state == "running":
            break
        time.sleep(0.02)
    runner.stop()
    present = service.jobs.get(job.id)
    assert present is not None and present.state == "running" and present.attempts == 0 and present.worker == ""
    assert work() == ["update done"]
    # Too few images are left for a map: what is left waits, and is tried again when more comes.
    items = [item for item in service.records.contributions(record.id) if item.state == "mapped"]
    for item in items[1:]:
        service.delete(mine, item.id)
    assert set(work()) == {"remove done", "update done"}
    assert not service.map(mine, record.id).files
    assert [item.state for item in service.records.contributions(record.id) if item.id == items[0].id] == ["pending"]
    service.delete_map(mine, record.id)
