"""The GeoPoseProtocol over HTTP: a client written from its specification, its schemas, and requests that are refused."""

from __future__ import annotations

import base64
import json
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from veil.device.device import Device
from veil.device.protection import HideInSubspaces, HideInWords, Protection
from veil.errors import InputError
from veil.features import Features
from veil.geometry.camera import GUESS, UNDISCLOSED
from veil.geometry.earth import ecef_of_geodetic
from veil.geometry.rigid import Rigid, center_covariance
from veil.mechanisms.release import HideInLines
from veil.server.jobs.tasks import Beside
from veil.server.maps.policy import NotAMessage, Refused
from veil.server.routes.geopose import MOST_BESIDE, UNKNOWN, query_of, require_begun, response_of
from veil.server.schema_check import SCHEMAS, components
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.wire import decode
from worlds.documents import REFERENCE
from worlds.places import PLACE
from worlds.releases import taken
from worlds.servers import Running, geopose_request, messages_of, running, words_of


def schema(name: str) -> Draft202012Validator:
    """Validator of the protocol's request, or of a schema of the contract."""
    if name == "request":
        return Draft202012Validator(json.loads((REFERENCE / "geopose" / "request.json").read_text()))
    return Draft202012Validator({"$ref": f"{SCHEMAS}/{name}", "components": {"schemas": components()}})


def asked(url: str, token: str, request: dict[str, Any], *, version: str = "2.0") -> tuple[int, dict[str, Any]]:
    """Status and answer for a client that implements the specification alone, plus the bearer's token."""
    headers = {
        "Content-Type": "application/json",
        "Accept": f"application/vnd.oscp+json; version={version};",
        "Authorization": f"Bearer {token}",
    }
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(request).encode(), headers)) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Device:
    return Device(tmp_path_factory.mktemp("device"))


@pytest.fixture(scope="module")
def messages(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return list(messages_of(door, Device(tmp_path_factory.mktemp("messages"))).values())


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, messages: list[bytes]) -> Iterator[tuple[Running, str]]:
    """A server with a map of all but the last message, ten meters a unit, in Lund."""
    service = Service(tmp_path_factory.mktemp("server") / "store", ServerSettings(workers=1, map_workers=1))
    with running(service) as server:
        map_id = server.ask("POST", "/v1/maps", value={"name": "door"}).value["map"]
        job = ""
        for message in messages[:-1]:
            job = server.ask("POST", f"/v1/maps/{map_id}/contributions", body=message).value["job"]
        assert server.done(job)["state"] == "done"
        yield server, map_id


@pytest.mark.slow
@pytest.mark.planted
def test_a_client_of_the_specification_gets_the_pose_of_localize(server: tuple[Running, str], messages: list[bytes]) -> None:
    """Oracle: /localize of the same message. Both documents are what the published interfaces ask for."""
    host, map_id = server
    request = geopose_request(messages[-1], said=("veil:subspaces:hardened", "veil:positions", "blurred faces"))
    schema("request").validate(request)
    status, problem = asked(f"{host.url}/geopose", host.admin, request)
    assert status == 404 and problem["cause"].endswith("is on Earth"), "the map is not there yet"
    assert problem["remedy"] == [{"action": "give", "object": "the map's place", "value": ""}]
    assert problem["detail"] == f"{problem['cause']}; give the map's place"
    assert host.ask("PUT", f"/v1/maps/{map_id}/place", value=PLACE).status == 200
    for path in ("/geopose", f"/v1/maps/{map_id}/geopose"):
        status, response = asked(host.url + path, host.admin, request)
        assert status == 200, response
        schema("GeoPoseResponse").validate(response)
        schema("BasicQuaternion").validate(response["geopose"])
        value = host.ask("POST", f"/v1/maps/{map_id}/localize", body=messages[-1]).value
        schema("BasicYpr").validate(value["geopose_ypr"])
        assert (response["id"], response["timestamp"]) == (request["id"], request["timestamp"])
        own, theirs = (
            ecef_of_geodetic(np.array([each["position"][key] for key in ("lat", "lon", "h")]))
            for each in (response["geopose"], value["geopose"])
        )
        assert np.linalg.norm(own - theirs) < 0.1
        turn = sum(response["geopose"]["quaternion"][key] * value["geopose"]["quaternion"][key] for key in "xyzw")
        assert abs(turn) > 1 - 1e-5
        assert response["accuracy"] == {"position": UNKNOWN, "orientation": UNKNOWN}  # a guarded map tells a pose alone
    assert asked(f"{host.url}/geopose", host.admin, request, version="1.0")[0] == 406
    assert asked(f"{host.url}/geopose", "veil_nobody", request)[0] == 401
    contributor = host.ask("POST", "/v1/tokens", value={"name": "c", "scopes": ["contribute"]}).value["secret"]
    assert asked(f"{host.url}/geopose", contributor, request)[0] == 403
    held = b"".join(path.read_bytes() for path in host.service.folder.rglob("*") if path.is_file())
    assert messages[-1][:120] not in held and base64.b64encode(messages[-1])[:120] not in held and b"a request" not in held


@pytest.mark.slow
def test_images_and_places_are_refused_over_http(server: tuple[Running, str], messages: list[bytes]) -> None:
    """A JPEG is refused before its end has come: the request promises more than it sends. A query without a pose says why."""
    host, map_id = server
    host.ask("PUT", f"/v1/maps/{map_id}/place", value=PLACE)
    url = f"{host.url}/geopose"
    request = geopose_request(messages[-1])
    reading = request["sensorReadings"]["cameraReadings"][0]
    jpeg = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(5000)).decode()
    status, problem = asked(
        url, host.admin, {**request, "sensorReadings": {"cameraReadings": [{**reading, "imageBytes": jpeg}]}}
    )
    assert status == 415 and "JPEG" in problem["detail"]
    body = json.dumps({"sensorReadings": {"cameraReadings": [{"imageBytes": jpeg}]}}).encode()
    begun = time.monotonic()
    answer = host.ask("POST", "/geopose", body=body[:3000], kind="application/json", headers={"Content-Length": "900000"})
    assert answer.status == 415 and time.monotonic() - begun < 5
    wifi = {**request["sensorReadings"], "wiFiReadings": [{"BSSID": "00:11:22:33:44:55"}]}
    status, problem = asked(url, host.admin, {**request, "sensorReadings": wifi})
    assert status == 422 and "wiFiReadings" in problem["detail"] and "00:11" not in json.dumps(problem)
    few = bytearray(messages[-1])
    few[200] ^= 1
    assert (
        asked(
            url,
            host.admin,
            geopose_request(messages[-1])
            | {"sensorReadings": {"cameraReadings": [{**reading, "imageBytes": base64.b64encode(few).decode()}]}},
        )[0]
        == 400
    ), "a damaged message"


def begun_with(message: bytes, **changes: Any) -> bytes:
    request = geopose_request(message)
    reading = request["sensorReadings"]["cameraReadings"][0]
    request["sensorReadings"]["cameraReadings"][0] = {**reading, **{k: v for k, v in changes.items() if k in reading}}
    return json.dumps({**request, **{k: v for k, v in changes.items() if k in request}}).encode()


@pytest.mark.slow
def test_requests_that_are_none(messages: list[bytes]) -> None:
    """Each has its own reason, in bounded time; the whole one is read."""
    message = messages[0]
    query = query_of(begun_with(message))
    assert query.message == message and query.gravity is None and query.near is None and query.id == "a request"
    assert query_of(begun_with(message).replace(b"/", b"\\/")).message == message, "slashes that JSON may escape"
    whole = geopose_request(message)
    reading = whole["sensorReadings"]["cameraReadings"][0]
    cases: list[tuple[bytes, type[Exception], str]] = [
        (b"", InputError, "0 imageBytes"),
        (b"\xff" * 500, InputError, "0 imageBytes"),
        (begun_with(message)[:-2], InputError, "no JSON"),
        (begun_with(message)[:-40], InputError, "cut off"),
        (begun_with(message)[:2000], InputError, "cut off"),
        (begun_with(message, type="pose"), InputError, "type"),
        (begun_with(message, id=7), InputError, "id"),
        (begun_with(message, timestamp=float("nan")), InputError, "NaN"),
        (begun_with(message, imageFormat="JPG"), NotAMessage, "never accepted"),
        (begun_with(message, imageBytes="!!"), InputError, "base64"),
        (begun_with(message, imageBytes="QUJD"), NotAMessage, "no veil message"),
        (begun_with(message, size=[1, 1]), Refused, "pixels"),
        (begun_with(message, sensorReadings={"cameraReadings": [reading, reading]}), InputError, "2 imageBytes"),
        (begun_with(message, sensorReadings={"cameraReadings": [reading, {}]}), InputError, "2 camera readings"),
        (begun_with(message, sensorReadings=[reading]), InputError, "sensorReadings"),
        (begun_with(message, sensors=["x" * MOST_BESIDE]), InputError, "beside imageBytes"),
        (begun_with(message, privacy={"dataSanitizationApplied": ["veil:lines"]}), Refused, "veil:positions"),
        (begun_with(message, privacy={"dataSanitizationApplied": ["veil:words:epsilon=1"]}), Refused, "subspaces:hardened"),
        (begun_with(message, privacy={"dataSanitizationApplied": 3}), InputError, "list of texts"),
        (begun_with(message).replace(b'"sensors": [', b'"sensors": ' + b"[" * 30000), InputError, "JSON"),
        (b'{"id": ' + b"9" * 20000 + b', "imageBytes": ""}', InputError, "JSON"),
    ]
    for body, kind, told in cases:
        begun = time.perf_counter()
        with pytest.raises(kind, match=told):
            query_of(body)
        assert time.perf_counter() - begun < 1
    with pytest.raises(InputError, match="before imageBytes"):
        require_begun(b" " * (MOST_BESIDE + 1))
    assert not require_begun(b'{"imageBytes": "VkVJ')
    assert require_begun(begun_with(message))


def test_words_say_their_epsilon(door: dict[str, Features], device: Device) -> None:
    """A device that says another epsilon than its message has learns of it."""
    message = words_of(next(iter(door.values())), device, epsilon=8.0)
    query_of(begun_with(message, privacy={"dataSanitizationApplied": ["veil:words:epsilon=8", "veil:positions"]}))
    with pytest.raises(Refused, match="epsilon=8"):
        query_of(begun_with(message, privacy={"dataSanitizationApplied": ["veil:words:epsilon=1"]}))


def test_gravity_of_an_accelerometer_at_rest(messages: list[bytes]) -> None:
    """By hand: a phone held upright, whose camera looks out of its back; its axes are x right, y up, z to the viewer."""
    upright = {"x": 0.0, "y": 9.81, "z": 0.0}
    half_turn_about_x = {"x": 1.0, "y": 0.0, "z": 0.0, "w": 0.0}
    sensors = [
        {"id": "camera", "type": "camera", "rigRotation": {"x": 0, "y": 0, "z": 0, "w": 1}},
        {"id": "felt", "type": "accelerometer", "rigRotation": half_turn_about_x},
    ]

    def gravity(reading: dict, sensors: list = sensors) -> Any:
        request = geopose_request(messages[0], accelerometerReadings=[{"sensorId": "felt", **reading}])
        return query_of(json.dumps({**request, "sensors": sensors}).encode()).gravity

    np.testing.assert_allclose(gravity(upright), [0, 1, 0], atol=1e-12)
    np.testing.assert_allclose(gravity({"x": 0.0, "y": 0.0, "z": 9.81}), [0, 0, 1], atol=1e-12)  # lies on its back: looks down
    quarter = [sensors[0], {**sensors[1], "rigRotation": {"x": 0, "y": 0, "z": 0.5**0.5, "w": 0.5**0.5}}]
    # v_sensor = R v_rig with R a quarter turn about z: the sensor's y is the rig's x, and the camera is the rig.
    np.testing.assert_allclose(gravity(upright, quarter), [-1, 0, 0], atol=1e-12)
    assert gravity({"x": 0.0, "y": 12.0, "z": 0.0}) is None, "it was moved"
    assert gravity(upright, sensors[:1]) is None and gravity(upright, []) is None, "its frame is not known"
    with pytest.raises(InputError, match="unit quaternion"):
        gravity(upright, [sensors[0], {**sensors[1], "rigRotation": {"x": 1, "y": 1, "z": 0, "w": 0}}])
    with pytest.raises(InputError, match="accelerometer y"):
        gravity({"x": 0.0, "y": "9.81", "z": 0.0})


def test_a_request_states_the_deviation_of_the_focal_length(door: dict[str, Features], device: Device) -> None:
    """It takes the place of the message's class, and is rounded up to one: of subspaces, of words, of lines."""
    features = next(iter(door.values()))
    few = taken(features, np.arange(50))
    subspaces = HideInSubspaces()
    forms = [
        Protection(descriptors=subspaces),
        Protection(descriptors=HideInWords(epsilon=8.0)),
        Protection(descriptors=subspaces, lines=HideInLines()),
    ]
    sent = [device.release(few, form, name="few", allow_second=True).message for form in forms]
    request = geopose_request(sent[0])
    for stated, counted in ((0.004, 0.01), (0.05, 0.05), (0.051, 0.1)):
        request["sensorReadings"]["cameraReadings"][0]["focalDeviation"] = stated
        schema("GeoPoseRequest").validate(request)
        beside = query_of(json.dumps(request).encode()).beside
        assert beside == Beside(focal_deviation=stated)
        for upload in map(decode, sent):
            assert beside.added_to(upload).camera == replace(upload.camera, focal=replace(UNDISCLOSED, deviation=counted))
    assert Beside(focal_deviation=0.11).added_to(decode(sent[0])).camera.focal == GUESS
    assert query_of(begun_with(sent[0])).beside == Beside() and Beside().added_to(upload) is upload
    for wrong in (0, -0.1, 1.5, "1 %", None):
        request["sensorReadings"]["cameraReadings"][0]["focalDeviation"] = wrong
        with pytest.raises(InputError, match="focalDeviation"):
            query_of(json.dumps(request).encode())


def test_accuracy_of_a_response(messages: list[bytes]) -> None:
    """By hand: 0.1 map units along each axis of the camera are a meter, and the place adds its median. Lines: not known."""
    answer = {
        "cam_from_world": {"rotation": np.eye(3).tolist(), "translation": [0.0, 0.0, 0.0]},
        "covariance": np.diag([0, 0, 0, 0.01, 0.01, 0.01]).tolist(),
        "turn_deviation_deg": 0.2,
        "geopose": {},
    }
    query = query_of(begun_with(messages[0]))
    assert response_of(query, answer, PLACE)["accuracy"] == {"position": pytest.approx(2.5), "orientation": 0.2}
    answer |= {"covariance": None, "turn_deviation_deg": None}
    assert response_of(query, answer, PLACE)["accuracy"] == {"position": UNKNOWN, "orientation": UNKNOWN}


def test_numbers_of_a_request_keep_their_type(messages: list[bytes]) -> None:
    """The response repeats the timestamp as it was written, whole numbers without a fraction. Oracle: the text of the JSON."""
    answer: dict[str, Any] = {"cam_from_world": {}, "covariance": None, "turn_deviation_deg": None, "geopose": {}}
    for written in ("1795535402000", "1795535402000.25", "-3", "0", "123456789012345678901234567890"):
        body = begun_with(messages[0], timestamp="HERE").replace(b'"HERE"', written.encode())
        told = json.dumps(response_of(query_of(body), answer, PLACE))
        assert f'"timestamp": {written},' in told


def test_the_covariance_of_a_center_is_that_of_drawn_poses() -> None:
    """Second method: 40,000 poses drawn from the covariance, each turned and moved as it says."""
    draw = np.random.default_rng(3)
    rotation = np.linalg.qr(draw.normal(size=(3, 3)))[0]
    pose = Rigid(rotation=rotation * np.sign(np.linalg.det(rotation)), translation=np.array([3.0, -2.0, 8.0]))
    root = 1e-3 * draw.normal(size=(6, 6))
    covariance = root @ root.T
    moves = draw.multivariate_normal(np.zeros(6), covariance, size=40_000)
    angle = np.linalg.norm(moves[:, :3], axis=1)[:, None]
    moved = pose.translation + moves[:, 3:]
    axis = -moves[:, :3] / angle  # the inverse turn, by Rodrigues
    turned = (
        moved * np.cos(angle)
        + np.cross(axis, moved) * np.sin(angle)
        + axis * (axis * moved).sum(1, keepdims=True) * (1 - np.cos(angle))
    )
    centers = -turned @ pose.rotation
    of_center = center_covariance(pose, covariance)
    assert np.abs(np.cov(centers.T) - of_center).max() < 0.05 * np.abs(of_center).max()


def test_what_is_read_of_a_request_is_part_of_the_protocol(messages: list[bytes]) -> None:
    """Names that the contract reads are those of the protocol's interfaces, but one of veil's own; it refuses another type as
    they do.
    """
    theirs = json.loads((REFERENCE / "geopose" / "request.json").read_text())
    Draft202012Validator.check_schema(theirs)
    own = components()
    kinds = ("CameraReading", "AccelerometerReading", "GeolocationReading", "Privacy", "Sensor", "SensorReadings", "Quaternion")
    for name in kinds:
        assert set(own[name]["properties"]) - {"wifiReadings", "focalDeviation"} <= set(theirs["$defs"][name]["properties"]), (
            name
        )
    assert set(own["GeoPoseRequest"]["properties"]) <= set(theirs["properties"])
    assert set(own["GeoPoseRequest"]["required"]) <= set(theirs["required"])
    request = geopose_request(messages[0])
    for name in ("request", "GeoPoseRequest"):
        schema(name).validate(request)
        assert not schema(name).is_valid({**request, "timestamp": "now"})


def test_wrong_readings_are_refused_wherever_they_stand(messages: list[bytes]) -> None:
    """Also of a reading that is not the last one, and of sensors that no reading names: what is invalid is never ignored."""
    whole = geopose_request(messages[0])
    reading, felt = whole["sensorReadings"]["cameraReadings"][0], {"x": 0.0, "y": 9.8, "z": 0.0}
    for readings in (
        {"accelerometerReadings": [{**felt, "z": "0"}, felt]},
        {"geolocationReadings": [{"latitude": 100, "longitude": 0}, {"latitude": 1, "longitude": 0}]},
        {"cameraReadings": [{**reading, "privacy": "none"}]},
    ):
        body = json.dumps({**whole, "sensorReadings": {"cameraReadings": [reading], **readings}}).encode()
        with pytest.raises(InputError, match=r"Readings\.0"):
            query_of(body)
    with pytest.raises(InputError, match=r"sensors\.0"):
        query_of(json.dumps({**whole, "sensors": [{"id": 1, "type": "camera"}]}).encode())
