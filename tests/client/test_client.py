"""The client against a server: the same bytes at every retry, nothing raw on the network, receipts that are checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.cli.remedies import advised
from veil.client import Client, RemotePose, ServerError, Unreachable
from veil.client.answers import accepted_of, job_of, map_of, pose_of
from veil.client.connection import Connection
from veil.device.device import Device
from veil.device.doors import localize
from veil.device.protection import HideInSubspaces, HideInWords, Protection
from veil.errors import InputError, ReleaseRefused, Remedy, WireError
from veil.features import Features
from veil.forms import Subspaces
from veil.geometry.camera import FocalPrior, guessed
from veil.geometry.rigid import rotation_angle_deg
from veil.places.held_map import Map
from veil.places.poses.answer import NoPose, camera_json
from veil.server.http.problems import answer_to
from veil.server.maps.policy import MapPolicy, Refused
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.wire import decode
from veil.wire.receipts import Receipt
from worlds.recorders import Recorder, recording
from worlds.releases import taken
from worlds.servers import Running, running

MAP = "m0123456789abcdef"
SUBSPACES = Protection(descriptors=HideInSubspaces())


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with recording() as recorder:
        yield recorder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(Service(tmp_path_factory.mktemp("server"), ServerSettings(workers=1, map_workers=1))) as server:
        yield server


def test_a_retry_sends_the_same_bytes(recorder: Recorder, door: dict[str, Features], tmp_path: Path) -> None:
    """A server that fails and one that is away; other choices for the same image are refused by the ledger."""
    features = taken(next(iter(door.values())), np.arange(80))
    device = Device(tmp_path)
    client = Client(recorder.url, "t", device)
    recorder.answer = (500, {}, b'{"detail": "failed"}')
    for _ in range(2):
        with pytest.raises(ServerError, match="failed"):
            client.contribute(MAP, features, SUBSPACES)
    assert [sending.map_id for sending, _ in client.outbox.waiting()] == [MAP]
    with pytest.raises(ServerError):
        client.send()
    assert len({body for *_, body in recorder.requests}) == 1 and len(recorder.requests) == 3
    with pytest.raises(ReleaseRefused):
        client.contribute(MAP, features, Protection(descriptors=HideInWords(epsilon=5.0)))
    digest = next(client.outbox.waiting())[0].message_sha256
    accepted = {"contribution": "c1", "map": MAP, "message_sha256": digest, "state": "pending", "reason": "", "job": None}
    recorder.answer = (202, {}, json.dumps(accepted).encode())
    assert [item.contribution for item in client.send()] == ["c1"]
    assert list(client.outbox.waiting()) == [] and [item.contribution for item in client.outbox.sent()] == ["c1"]
    assert client.send() == []


def test_queries_repeat_what_left_before_and_contributions_draw_anew(
    recorder: Recorder, door: dict[str, Features], tmp_path: Path
) -> None:
    """Two pictures of one view: the second query has subspaces of the first one, a contribution of the second picture none."""
    first = taken(next(iter(door.values())), np.arange(200))
    noise = np.random.default_rng(0).integers(-2, 3, first.descriptors.shape)
    moved = np.clip(first.descriptors.astype(int) + noise, 0, 255).astype(np.uint8)
    second = replace(first, descriptors=moved, image_digest=b"second".ljust(32, b"."))
    recorder.answer = (200, {}, json.dumps({"status": "no pose", "reason": "nothing matches"}).encode())
    shared = []
    for ask in ("localize", "contribute"):
        client = Client(recorder.url, "t", Device(tmp_path / ask))
        bodies = []
        for image in (first, second):
            with suppress(WireError, ServerError):  # a contribution has another answer
                getattr(client, ask)(MAP, image, SUBSPACES)
            bodies.append(recorder.requests[-1][-1])
        forms = [decode(body).form for body in bodies]
        origins = [{row.tobytes() for row in form.origin} for form in forms if isinstance(form, Subspaces)]
        shared.append(len(origins[0] & origins[1]))
    assert shared[0] > 50 and shared[1] == 0


def test_messages_wait_while_the_server_is_away(door: dict[str, Features], tmp_path: Path) -> None:
    features = taken(next(iter(door.values())), np.arange(30))
    client = Client("http://127.0.0.1:9", "t", Device(tmp_path))
    assert client.contribute(MAP, features) is None
    assert len(list(client.outbox.waiting())) == 1
    with pytest.raises(Unreachable, match="does not answer"):
        client.send()
    with pytest.raises(Unreachable):
        client.localize(MAP, taken(features, np.arange(10)), SUBSPACES, name="other")
    assert len(list(client.outbox.waiting())) == 1


def test_a_name_of_a_map_is_looked_up_before_anything_is_released(
    recorder: Recorder, door: dict[str, Features], tmp_path: Path
) -> None:
    """Oracle: the paths that are asked for, and the ledger, in which there is no release for a name that no map has."""
    features = taken(next(iter(door.values())), np.arange(30))
    client = Client(recorder.url, "t", Device(tmp_path))
    recorder.answer = (200, {}, json.dumps({"maps": []}).encode())
    for ask in (client.localize, client.contribute):
        with pytest.raises(ServerError, match="there is no map 'door'"):
            ask("door", features)
    assert [path for _, path, *_ in recorder.requests] == ["/v1/maps"] * 2
    assert not client.device.ledger.entries() and not list(client.outbox.waiting())
    other = Client("http://127.0.0.1:10", "t", Device(tmp_path))
    assert other.send() == [], "what waits for one server is not sent to another"


def test_a_remedy_passes_through_http_as_data(recorder: Recorder, tmp_path: Path) -> None:
    """Oracle: the error that the server raised; the answer is its own, made without a connection."""
    error = Refused("this map accepts lines alone", remedy=Remedy("give", "Protection.lines"))
    answer = answer_to(error)
    said = json.loads(bytes(answer.body))
    assert said["detail"] == "this map accepts lines alone; give Protection(lines=...)" and "--" not in str(said)
    recorder.answer = (answer.status_code, {}, bytes(answer.body))
    with pytest.raises(ServerError) as refused:
        Client(recorder.url, "t", Device(tmp_path)).maps()
    assert (refused.value.cause, refused.value.remedy) == (error.cause, error.remedy)
    assert advised(refused.value) == "this map accepts lines alone; release with --lines (`veil privatize --lines`)"


def test_a_refused_message_does_not_wait(recorder: Recorder, door: dict[str, Features], tmp_path: Path) -> None:
    client = Client(recorder.url, "t", Device(tmp_path))
    recorder.answer = (422, {}, b'{"type": "urn:veil:refused", "detail": "lines alone"}')
    with pytest.raises(ServerError, match="lines alone") as refused:
        client.contribute(MAP, taken(next(iter(door.values())), np.arange(30)), SUBSPACES)
    assert (refused.value.status, refused.value.kind, refused.value.remedy) == (422, "refused", ())
    assert list(client.outbox.waiting()) == []
    assert not list((tmp_path / "client" / "messages").glob("*/*"))


def test_a_lying_server_is_seen(recorder: Recorder, door: dict[str, Features], tmp_path: Path) -> None:
    """Redirects are not followed, and answers of other types or bytes are refused."""
    features = taken(next(iter(door.values())), np.arange(30))
    client = Client(recorder.url, "secret-token", Device(tmp_path))
    recorder.answer = (302, {"Location": "http://127.0.0.1:9/steal"}, b"{}")
    with pytest.raises(ServerError):
        client.maps()
    for data in (b"<html>", b"[1]", b'{"maps": 3}', b'{"maps": [{"map": 1}]}', b"\xff"):
        recorder.answer = (200, {}, data)
        with pytest.raises((ServerError, WireError)):
            client.maps()
    wrong = {"contribution": "c1", "map": MAP, "message_sha256": "0" * 64, "state": "pending", "reason": ""}
    recorder.answer = (202, {}, json.dumps(wrong).encode())
    with pytest.raises(WireError, match="other bytes"):
        client.contribute(MAP, features, SUBSPACES)
    strange: list[Any] = [None, 3, [], {}, {"status": "localized"}]
    for read in (pose_of, map_of, accepted_of, job_of):
        for value in strange:
            with pytest.raises(WireError, match="another version"):
                read(value)
    pose: dict[str, Any] = {"status": "localized", "evidence": {}, "covariance": None, "map": "m", "map_version": 1}
    for rotation in (np.zeros((3, 3)), -np.eye(3), np.full((3, 3), np.nan), np.eye(2)):
        with pytest.raises(WireError):
            pose_of({**pose, "cam_from_world": {"rotation": rotation.tolist(), "translation": [0, 0, 0]}})


def test_an_answer_brings_the_camera_of_its_pose() -> None:
    """Oracle: the record that a server writes of the camera. An older server tells none, and a made-up one is refused."""
    pose = {"rotation": np.eye(3).tolist(), "translation": [1.0, 2.0, 3.0]}
    evidence = {"inliers": 30, "correspondences": 50, "log10_nfa": -20.0}
    where = {"cam_from_world": pose, "map": "m", "map_version": 1}
    old = {"status": "localized", "evidence": evidence, "covariance": None, **where}
    answer = pose_of(old)
    assert isinstance(answer, RemotePose) and answer.camera is None
    camera = replace(guessed(640, 480, focal_px=501.5), focal=FocalPrior(origin="refined", deviation=0.004))
    told = {**camera_json(camera)}
    answer = pose_of({**old, "camera": told})
    assert isinstance(answer, RemotePose) and answer.camera == camera
    for wrong in (3, {}, {**told, "focal_deviation": 0}, {**told, "params": [501.5]}, {**told, "model": "LENS"}):
        with pytest.raises(WireError, match="another version"):
            pose_of({**old, "camera": wrong})


@pytest.mark.parametrize(
    ("url", "token", "told"),
    [
        ("maps.example.org", "t", "no address"),
        ("ftp://x", "t", "no address"),
        ("http://user:x@127.0.0.1", "t", "no address"),
        ("http://maps.example.org", "t", "without encryption"),
        ("https://maps.example.org", "", "token"),
        ("https://maps.example.org", "a\r\nb", "token"),
    ],
)
def test_impossible_servers_are_refused(url: str, token: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Connection(url, token)
    assert Connection("http://maps.example.org", "t", allow_plain=True).url == "http://maps.example.org"


@pytest.mark.slow
def test_a_device_and_a_server(server: Running, door: dict[str, Features], tmp_path: Path) -> None:
    """Second method for the pose: the server's own map, localized on here with the same bytes. Forged receipts are seen."""
    record = server.service.records.make("door", MapPolicy())
    _, secret = server.service.tokens.make("robot", ["localize", "contribute"])
    names = list(door)
    few = {name: taken(features, np.arange(500)) for name, features in door.items()}
    with Client(server.url, secret, Device(tmp_path / "device")) as client:
        door_map = client.map("door")
        assert door_map.id == record.id and not door_map.mapped
        with pytest.raises(ServerError, match="no map"):
            client.map("window")
        sent = [client.contribute(place, few[name], name=name) for place, name in zip(cycle([record.id, "door"]), names[:-1])]
        job = next(item.job for item in reversed(sent) if item and item.job)
        told: list[str] = []
        status = client.wait(job, on_status=lambda item: told.append(item.state))
        assert status.state == "done" and told[-1] == "done"
        assert {item.state for item in client.contributions()} <= {"mapped", "left out"}
        pose = client.localize("door", few[names[-1]], SUBSPACES, name=names[-1])
        assert isinstance(pose, RemotePose) and pose.map_id == record.id
        folder = server.service.version_folder(server.service.map_record(record.id))
        assert folder is not None
        message = client.device.release(few[names[-1]], SUBSPACES, name=names[-1]).message
        here = localize(decode(message), Map.read(folder))
        assert not isinstance(here, NoPose)
        np.testing.assert_allclose(pose.cam_from_world.center, here.cam_from_world.center, atol=1e-9)
        assert rotation_angle_deg(pose.cam_from_world.rotation @ here.cam_from_world.rotation.T) < 1e-6
        gone = next(item for item in client.contributions() if item.state == "mapped").contribution
        receipt = client.delete(gone)
        client.verify(receipt)
        assert gone not in {item.contribution for item in client.contributions()}
        with pytest.raises(ServerError, match="no such contribution"):
            client.status(gone)
        forged = Receipt(number=receipt.number, content={**receipt.content, "points": 0}, before=receipt.before)
        with pytest.raises(WireError, match="forged"):
            client.verify(forged)
