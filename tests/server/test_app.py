"""The routes over HTTP: who may do what, what every refusal says, and that no query is left anywhere."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.device.device import Device
from veil.features import Features
from veil.files.codebooks import bundled_codebook
from veil.files.photographs.examples import HELD_OUT
from veil.geometry.earth import EarthFrame
from veil.server.access.tokens import SCOPES, Quota
from veil.server.maps.policy import MapPolicy
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.places import PLACE
from worlds.servers import MESSAGE_TYPE, Running, geopose_request, messages_of, running

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def messages(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return messages_of(door, Device(tmp_path_factory.mktemp("device")))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = ServerSettings(workers=1, map_workers=1, body_s=2.0, demo_page=True)
    with running(Service(tmp_path_factory.mktemp("server") / "store", settings)) as server:
        yield server


@pytest.fixture(scope="module")
def door_map(server: Running, messages: dict[str, bytes]) -> str:
    """A map of all but the last message, contributed over HTTP."""
    made = server.ask("POST", "/v1/maps", value={"name": "door"})
    assert made.status == 201
    map_id = made.value["map"]
    job = ""
    for message in list(messages.values())[:-1]:
        answer = server.ask("POST", f"/v1/maps/{map_id}/contributions", body=message)
        assert answer.status == 202, answer.data
        job = answer.value["job"]
    ended = server.done(job)
    assert ended["state"] == "done" and ended["result"]["mapped"] >= 4, ended
    return map_id


@pytest.mark.slow
@pytest.mark.planted
def test_a_query_has_a_pose_and_leaves_nothing(server: Running, door_map: str, messages: dict[str, bytes]) -> None:
    """No file of the server holds bytes of the query or its position. Broken twin: files hold bytes of a contribution."""
    contributed, query = next(iter(messages.values())), list(messages.values())[-1]
    for _ in range(3):
        answer = server.ask("POST", f"/v1/maps/{door_map}/localize", body=query)
        assert answer.status == 200
    value = answer.value
    assert value["status"] == "localized" and value["map"] == door_map and value["map_version"] == 1
    assert value["evidence"] is None and value["covariance"] is None  # a private map tells a pose alone
    held = b"".join(path.read_bytes() for path in server.service.folder.rglob("*") if path.is_file())
    assert query[:120] not in held and query[-60:-20] not in held
    assert contributed[200:400] in held
    center = f"{value['camera_center'][0]:.6f}"
    assert center.encode() not in held


@pytest.mark.slow
def test_a_map_with_a_place_answers_on_earth(server: Running, door_map: str, messages: dict[str, bytes]) -> None:
    """Oracle: the place by hand from the pose of the same answer, in a frame that is the map's own, ten times as large."""
    query = list(messages.values())[-1]
    assert "geopose" not in server.ask("POST", f"/v1/maps/{door_map}/localize", body=query).value
    assert server.ask("PUT", f"/v1/maps/{door_map}/place", value={**PLACE, "place": 2}).status == 422
    assert server.ask("PUT", f"/v1/maps/{door_map}/place", value=PLACE).status == 200
    value = server.ask("POST", f"/v1/maps/{door_map}/localize", body=query).value
    center = np.array(value["camera_center"]) * 10
    expected = EarthFrame(latitude_deg=55.7, longitude_deg=13.2, height_m=80.0).geodetic(center)
    geopose = value["geopose"]
    assert [geopose["position"][name] for name in ("lat", "lon", "h")] == pytest.approx(expected.tolist(), abs=1e-9)
    assert set(geopose["quaternion"]) == set("xyzw") and value["geopose_ypr"]["position"] == geopose["position"]
    assert value["place_error_m"] == {"median": 1.5, "largest": 4.0}
    assert server.ask("PUT", f"/v1/maps/{door_map}/place", value={}).status == 200
    assert "geopose" not in server.ask("POST", f"/v1/maps/{door_map}/localize", body=query).value


@pytest.mark.slow
def test_every_scope_meets_every_route(server: Running, door_map: str, messages: dict[str, bytes]) -> None:
    """All pairs of a route and a token: none, a wrong one, each scope, and the same scopes without the map.

    A token that may not use a map, or does not own a contribution, is told that there is none.
    """
    tokens = server.service.tokens
    own: dict[str, str] = {scope: tokens.make(scope, [scope])[1] for scope in SCOPES}
    closed = tokens.make("closed", ["localize", "contribute"], maps=["m0"])[1]
    query = list(messages.values())[-1]
    given = server.ask("POST", f"/v1/maps/{door_map}/contributions", body=query).value
    contribution, job = given["contribution"], given["job"]
    victim = tokens.make("victim", ["localize"])[0].id
    geopose = {"body": json.dumps(geopose_request(query)).encode(), "kind": "application/json"}
    message, given_path, new_token = {"body": query}, f"/v1/contributions/{contribution}", {"name": "x", "scopes": ["admin"]}
    everybody = dict.fromkeys(("none", "wrong", *SCOPES, "closed"), 200)
    routes: list[tuple[str, str, dict, dict[str, int]]] = [
        ("GET", "/", {}, everybody),
        ("GET", "/static/page.js", {}, everybody),
        ("GET", "/demo/photographs", {}, everybody),
        ("GET", f"/demo/photographs/{HELD_OUT[0]}", {}, everybody),
        ("GET", f"/v1/dictionaries/{bundled_codebook().digest}", {}, dict.fromkeys((*SCOPES, "closed"), 200)),
        ("GET", "/v1/tiles", {}, everybody),
        ("GET", "/v1/tiles/none/exits.json", {}, dict.fromkeys(everybody, 404)),
        ("GET", "/v1/tiles/none/0/manifest.json", {}, dict.fromkeys(everybody, 404)),
        ("POST", "/v1/tiles/none/0/answers/two-servers", message, dict.fromkeys(everybody, 404)),
        ("OPTIONS", "/v1/tiles/none/0/answers/two-servers", {}, dict.fromkeys(everybody, 204)),
        # The map holds contributions, not its owner's public photographs: nobody is shown its points.
        ("GET", f"/v1/maps/{door_map}/view", {}, dict.fromkeys((*SCOPES, "closed"), 404)),
        ("GET", "/healthz", {}, {"none": 200, "wrong": 200, "localize": 200, "contribute": 200, "admin": 200, "closed": 200}),
        ("GET", "/readyz", {}, {"none": 200, "wrong": 200, "localize": 200, "contribute": 200, "admin": 200, "closed": 200}),
        ("GET", "/v1/policy", {}, {"none": 200, "wrong": 200, "localize": 200, "contribute": 200, "admin": 200, "closed": 200}),
        ("GET", "/metrics", {}, {"localize": 403, "contribute": 403, "admin": 200, "closed": 403}),
        ("GET", "/v1/maps", {}, {"localize": 200, "contribute": 200, "admin": 200, "closed": 200}),
        ("POST", "/v1/maps", {"value": {"name": "x"}}, {"localize": 403, "contribute": 403, "admin": 201, "closed": 403}),
        ("GET", f"/v1/maps/{door_map}", {}, {"localize": 200, "contribute": 200, "admin": 200, "closed": 404}),
        ("DELETE", "/v1/maps/m0", {}, {"localize": 403, "contribute": 403, "admin": 404, "closed": 403}),
        ("POST", "/v1/maps/m0/rebuild", {"body": b""}, {"localize": 403, "contribute": 403, "admin": 404, "closed": 403}),
        ("PUT", "/v1/maps/m0/place", {"value": {}}, {"localize": 403, "contribute": 403, "admin": 404, "closed": 403}),
        ("GET", f"/v1/maps/{door_map}/jobs", {}, {"localize": 403, "contribute": 403, "admin": 200, "closed": 403}),
        ("GET", "/v1/maps/m0/suspects", {}, {"localize": 403, "contribute": 403, "admin": 404, "closed": 403}),
        ("GET", f"/v1/jobs/{job}", {}, {"localize": 403, "contribute": 200, "admin": 200, "closed": 404}),
        ("POST", f"/v1/maps/{door_map}/localize", message, {"localize": 200, "contribute": 403, "admin": 200, "closed": 404}),
        ("GET", "/geopose", {}, {"none": 200, "wrong": 200, "localize": 200, "contribute": 200, "admin": 200, "closed": 200}),
        ("POST", "/geopose", geopose, {"localize": 404, "contribute": 403, "admin": 404, "closed": 404}),
        ("POST", f"/v1/maps/{door_map}/geopose", geopose, {"localize": 404, "contribute": 403, "admin": 404, "closed": 404}),
        ("POST", "/v1/maps/m0/contributions", message, {"localize": 403, "contribute": 404, "admin": 404, "closed": 404}),
        ("GET", "/v1/contributions", {}, {"localize": 403, "contribute": 200, "admin": 200, "closed": 200}),
        ("GET", given_path, {}, {"localize": 403, "contribute": 404, "admin": 200, "closed": 404}),
        ("DELETE", given_path, {}, {"localize": 403, "contribute": 404, "closed": 404}),
        (
            "GET",
            f"/v1/contributions/{contribution}/receipt",
            {},
            {"localize": 403, "contribute": 404, "admin": 404, "closed": 404},
        ),
        ("GET", "/v1/receipts", {}, {"localize": 200, "contribute": 200, "admin": 200, "closed": 200}),
        ("GET", "/v1/me/usage", {}, {"localize": 200, "contribute": 200, "admin": 200, "closed": 200}),
        ("GET", "/v1/tokens", {}, {"localize": 403, "contribute": 403, "admin": 200, "closed": 403}),
        (
            "POST",
            "/v1/tokens",
            {"value": new_token},
            {"localize": 403, "contribute": 403, "closed": 403},
        ),
        ("DELETE", f"/v1/tokens/{victim}", {}, {"localize": 403, "contribute": 403, "admin": 200, "closed": 403}),
    ]
    secrets = {"none": "", "wrong": "veil_wrong", "closed": closed, **own}
    listed = {(method, path) for path, item in server.ask("GET", "/openapi.json").value["paths"].items() for method in item}
    asked = [route for route in routes if route[0] != "OPTIONS"]  # which browsers ask by themselves, and no contract names
    assert len(asked) == len(listed), "every route of the OpenAPI file is here"
    for method, path, body, expected in routes:
        for who in ("none", "wrong", *expected):
            answer = server.ask(method, path, token=secrets[who], **body)
            assert answer.status == expected.get(who, 401), (method, path, who, answer.data)
            if answer.status >= 400:
                assert answer.headers["content-type"] == PROBLEM
                # Where veil knows a remedy, it stands there as data, too.
                assert set(answer.value) - {"cause", "remedy"} == {"type", "title", "status", "detail"}
    assert not any(item["contribution"] == contribution for item in mine(server, own["contribute"]))
    server.done(job)


def mine(server: Running, token: str) -> list[dict]:
    return server.ask("GET", "/v1/contributions?everybody=true", token=token).value["contributions"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "kind", "status", "told"),
    [
        (b"\xff\xd8\xff\xe0" + bytes(500), MESSAGE_TYPE, 415, "JPEG"),
        (b"\xff\xd8\xff\xe0" + bytes(500), "image/jpeg", 415, "image/jpeg"),
        (b"\x89HDF\r\n\x1a\n" + bytes(500), MESSAGE_TYPE, 415, "HDF5"),
        (b"", MESSAGE_TYPE, 415, "no veil message"),
        (b"VEIL", MESSAGE_TYPE, 415, "no veil message"),
        (b"VEIL" + bytes(300), MESSAGE_TYPE, 422, "version 0"),
        (b"{}", "application/json", 415, "application/json"),
        (bytes(70_000), "text/plain", 415, "65536"),
        (bytes(70_000), "application/json", 413, "65536"),
    ],
)
@pytest.mark.parametrize("route", ["contributions", "localize"])
def test_nothing_raw_arrives(
    server: Running, door_map: str, route: str, body: bytes, kind: str, status: int, told: str
) -> None:
    before = set(server.service.records.blobs.names())
    answer = server.ask("POST", f"/v1/maps/{door_map}/{route}", body=body, kind=kind)
    assert answer.status == status and told in answer.value["detail"], answer.data
    assert answer.headers["content-type"] == PROBLEM
    assert set(server.service.records.blobs.names()) <= before  # what another test deleted may go meanwhile


@pytest.mark.slow
def test_damaged_messages_say_so(server: Running, door_map: str, messages: dict[str, bytes]) -> None:
    message = next(iter(messages.values()))
    for wrong, status, told in (
        (message[:500] + bytes([message[500] ^ 255]) + message[501:], 400, "checksum"),
        (message[:-10], 422, "send it again whole"),
        (message + b"x", 422, "send it again whole"),
    ):
        answer = server.ask("POST", f"/v1/maps/{door_map}/localize", body=wrong)
        assert answer.status == status and told in answer.value["detail"], answer.data


def raw(server: Running, data: bytes, *, wait_s: float = 10.0) -> bytes:
    """The server's answer to raw bytes, until it closes the connection or sends no more."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait_s) as stream:
        stream.sendall(data)
        stream.settimeout(wait_s)
        received = b""
        try:
            while part := stream.recv(65536):
                received += part
                if b"\r\n\r\n" in received and received.endswith(b"}"):
                    break
        except TimeoutError:
            pass
        return received


@pytest.mark.slow
def test_bodies_of_unknown_length_or_pace_are_refused(server: Running, door_map: str) -> None:
    """Chunks, no length, two lengths, a length that is a lie, and a body that never comes."""
    head = f"POST /v1/maps/{door_map}/localize HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {server.admin}\r\n"
    head += f"Content-Type: {MESSAGE_TYPE}\r\n"
    assert b" 411 " in raw(server, (head + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n").encode())
    assert b" 411 " in raw(server, (head + "\r\n").encode())
    assert b" 413 " in raw(server, (head + "Content-Length: 99999999999\r\n\r\n").encode())
    assert b" 400 " in raw(server, (head + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n").encode())
    assert b" 40" in raw(server, (head + "Content-Length: -5\r\n\r\n").encode())
    begun = time.monotonic()
    assert b" 408 " in raw(server, (head + "Content-Length: 5000\r\n\r\nVEIL").encode())
    assert time.monotonic() - begun < 9
    assert server.ask("GET", "/healthz").status == 200


@pytest.mark.slow
def test_strange_values_have_clear_answers(server: Running) -> None:
    """Names with traversal, control characters and lone surrogates, numbers beyond all bounds, and JSON of other types."""
    for path in ("/v1/maps/..%2f..%2fetc", "/v1/maps/%00", "/v1/maps/" + "m" * 5000, "/v1/jobs/%ff", "/v1/contributions/'--"):
        assert server.ask("GET", path).status == 404, path
    values: list[Any] = [
        {"name": ""},
        {"name": "a\x00b"},
        {"name": "x" * 300},
        {"name": "x", "policy": {"max_bytes": 10**30}},
        {"name": "x", "policy": {"forms": "words"}},
        {"name": "x", "policy": {"unknown": 1}},
        {"name": ["x"]},
        {},
        [],
        "x",
    ]
    for value in values:
        answer = server.ask("POST", "/v1/maps", value=value)
        assert answer.status == 422 and answer.headers["content-type"] == PROBLEM, (value, answer.data)
    for text in (b'{"name": "\\ud800"}', b"\xff", b"{", b'{"name": NaN}', b"[" * 5000):
        answer = server.ask("POST", "/v1/maps", body=text, kind="application/json")
        assert answer.status in (400, 422), (text[:20], answer.data)
    strange: list[dict[str, Any]] = [
        {"requests_per_minute": 10**400},
        {"bytes_per_day": -1},
        {"maps": "all"},
        {"scopes": ["root"]},
    ]
    for more in strange:
        answer = server.ask("POST", "/v1/tokens", value={"name": "x", "scopes": ["admin"], **more})
        assert answer.status == 422, (more, answer.data)
    assert server.ask("GET", "/v1/receipts?after=99999999999999999999999").status in (200, 422)
    assert server.ask("GET", "/v1/receipts?after=x").status == 422
    assert server.ask("GET", "/v1/maps", headers={"Authorization": "Basic veil"}, token="").status == 401
    assert server.ask("PUT", "/v1/maps", body=b"").status == 405


@pytest.mark.slow
def test_a_used_up_quota_says_when_to_come_again(server: Running) -> None:
    _, secret = server.service.tokens.make("few", ["localize"], quota=Quota(requests_per_minute=1))
    statuses = [server.ask("GET", "/v1/maps", token=secret) for _ in range(3)]
    assert [answer.status for answer in statuses][1:] != [200, 200]
    refused = statuses[-1]
    assert refused.status == 429 and 1 <= int(refused.headers["retry-after"]) <= 60


@pytest.mark.slow
def test_logs_say_what_was_done_and_not_by_whom(
    server: Running, door_map: str, messages: dict[str, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    """By default a request leaves no line at all; the numbers have routes, and no ids."""
    server.ask("POST", f"/v1/maps/{door_map}/localize", body=list(messages.values())[-1])
    server.ask("GET", f"/v1/maps/{door_map}")
    shown = capfd.readouterr()
    assert shown.out + shown.err == ""
    text = server.ask("GET", "/metrics").data.decode()
    assert 'route="/v1/maps/{map_id}/localize"' in text and door_map not in text and server.admin not in text
    assert 'veil_queries_total{status="localized"}' in text


@pytest.mark.slow
def test_the_policy_says_what_is_promised(server: Running) -> None:
    value = server.ask("GET", "/v1/policy", token="").value
    assert value["forms"]["subspaces"]["guarantee"] is None and "without proof" in value["forms"]["subspaces"]["reason"]
    assert "kept nowhere" in value["queries"] and MapPolicy.of(value["default_map_policy"]) == MapPolicy()
    assert json.dumps(server.ask("GET", "/openapi.json").value)


@pytest.mark.slow
def test_a_disk_that_is_full_keeps_nothing_and_says_so(
    server: Running, door_map: str, messages: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message is not acknowledged, no record of it is left, and the next attempt is taken."""
    from veil.errors import InputError
    from veil.files.service.blobs import FolderBlobs

    message, put = list(messages.values())[-1], FolderBlobs.put
    token, secret = server.service.tokens.make("full", ["contribute"])

    def full(blobs: FolderBlobs, data: bytes) -> str:
        raise InputError("cannot write /a/path: No space left on device")

    monkeypatch.setattr(FolderBlobs, "put", full)
    answer = server.ask("POST", f"/v1/maps/{door_map}/contributions", body=message, token=secret)
    assert answer.status == 503 and "/a/path" not in answer.data.decode() and answer.headers["retry-after"] == "10"
    assert server.service.records.contributions(token=token.id) == []
    monkeypatch.setattr(FolderBlobs, "put", put)
    answer = server.ask("POST", f"/v1/maps/{door_map}/contributions", body=message, token=secret)
    assert answer.status == 202
    server.done(answer.value["job"])


def test_the_folder_is_the_owners_alone(tmp_path: Path) -> None:
    service = Service(tmp_path / "store")
    assert (tmp_path / "store").stat().st_mode & 0o077 == 0
    service.close()
