"""Requests say what the server knows: misspelled, doubled and mistyped parts are refused, and the nearest name is told."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from veil.errors import InputError
from veil.features import Features
from veil.files.maps.format import write_map
from veil.server.maps.policy import MapPolicy
from veil.server.maps.records import NameTaken
from veil.server.routes.geopose import query_of
from veil.server.service import Service
from veil.server.settings import ServerSettings
from worlds.places import PLACE
from worlds.releases import planted_map, taken
from worlds.servers import Running, running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(Service(tmp_path_factory.mktemp("server") / "store", ServerSettings(workers=1)), jobs=False) as server:
        yield server


@pytest.fixture(scope="module")
def map_folder(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("maps") / "map"
    write_map(folder, planted_map(taken(next(iter(door.values())), np.arange(60)), public=True))
    return folder


@pytest.fixture(scope="module")
def imported(server: Running, map_folder: Path) -> str:
    return server.service.import_map("with a place", map_folder).id


def counted(server: Running) -> tuple[int, int]:
    return len(server.service.records.all()), len(server.service.tokens.all())


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("/v1/maps", '{"name": "t", "polciy": {"forms": ["words"]}}', "no field 'polciy'; did you mean 'policy'?"),
        (
            "/v1/maps",
            '{"name": "t", "policy": {"max_epsilom": 2}}',
            "no field of a policy 'max_epsilom'; did you mean 'max_epsilon'?",
        ),
        ("/v1/maps", '{"name": "t", "policy": {}, "policy": {"forms": ["words"]}}', "the key 'policy' stands twice"),
        ("/v1/maps", '{"name": "t", "policy": {"keep_days": 1, "keep_days": 9}}', "the key 'keep_days' stands twice"),
        ("/v1/maps", '{"name": "t", "policy": {"max_features": true}}', "max_features"),
        ("/v1/maps", '{"name": "t", "policy": {"max_features": 1000.5}}', "max_features"),
        ("/v1/maps", '{"name": "t", "policy": {"max_contributions_of_token": true}}', "max_contributions_of_token"),
        ("/v1/maps", '{"name": "t", "policy": {"max_share_of_token": true}}', "max_share_of_token"),
        ("/v1/maps", '{"name": "t", "policy": {"keep_days": NaN}}', "NaN is no number of JSON"),
        ("/v1/maps", '{"name": 5}', "name"),
        ("/v1/maps", '{"name": "m0123456789abcdef"}', "form of a map's id"),
        ("/v1/maps", '{"name": "lob\\u202eyb"}', "printable name"),
        ("/v1/maps", '[{"name": "t"}]', "body"),
        ("/v1/tokens", '{"name": "t", "scopes": ["localize"], "map": ["lobby"]}', "no field 'map'; did you mean 'maps'?"),
        ("/v1/tokens", '{"name": "t", "scopes": ["localize"], "maps": ["loby"]}', "no map 'loby'; did you mean 'lobby'?"),
        ("/v1/tokens", '{"name": "t", "scopes": ["localize"], "maps": ["m0123456789abcdef"]}', "no map 'm0123456789abcdef'"),
        ("/v1/tokens", '{"name": "t", "scopes": ["localize"], "requests_per_minute": 1000.5}', "requests_per_minute"),
        ("/v1/tokens", '{"name": "t", "scopes": ["localize"], "requests_per_minute": true}', "requests_per_minute"),
        ("/v1/tokens", '{"name": "t", "scopes": ["localize"], "bytes_per_day": "9"}', "bytes_per_day"),
    ],
)
def test_a_body_is_refused_for_each_slip(server: Running, path: str, body: str, told: str) -> None:
    """Nothing is made: a policy that was misspelled would be no policy."""
    if not server.service.records.all():
        server.service.records.make("lobby", MapPolicy())
    before = counted(server)
    answer = server.ask("POST", path, body=body.encode(), kind="application/json")
    status, kind = (404, "not-found") if told.startswith("no map") else (422, "invalid")
    assert (answer.status, answer.value["type"]) == (status, f"urn:veil:{kind}") and told in answer.value["detail"], answer.data
    assert "Value error" not in answer.value["detail"] and counted(server) == before


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/v1/contributions?evrybody=true", "no query parameter 'evrybody'; did you mean 'everybody'?"),
        ("/v1/contributions?everybody=true&everybody=false", "stands twice"),
        ("/v1/contributions?everybody=perhaps", "everybody"),
        ("/v1/receipts?aftr=1", "no query parameter 'aftr'; did you mean 'after'?"),
        ("/v1/maps?name=lobby", "no query parameter 'name'; there is none"),
        ("/v1/tiles?x=1", "no query parameter 'x'"),
    ],
)
def test_a_query_string_is_refused_for_each_slip(server: Running, path: str, told: str) -> None:
    answer = server.ask("GET", path)
    assert answer.status == 422 and told in answer.value["detail"], answer.data


def test_a_request_of_the_geopose_protocol_has_each_key_once() -> None:
    """Others might read the first value; unknown keys stay allowed, as the protocol's schema has it."""
    request = '{"type": "geopose", "sensorReadings": {"cameraReadings": [{"imageBytes": "%s"}], "more": 1}, "id": "a"%s}'
    image = base64.b64encode(b"no message at all").decode()
    cases = {', "id": "b"': "the key 'id' stands twice", ', "timestamp": NaN': "NaN is no number", "": "the image format is"}
    for more, told in cases.items():
        with pytest.raises(InputError, match=told):
            query_of((request % (image, more)).encode())


def test_what_is_right_goes_through(server: Running) -> None:
    """Broken twin: refusing everything. A check of health may have a query of its own, as some add one against caches."""
    assert server.ask("GET", "/v1/contributions?everybody=true").status == 200
    assert server.ask("GET", "/readyz?t=1").status == 200
    made = server.ask("POST", "/v1/maps", value={"name": "right", "policy": {"max_features": 1000, "max_share_of_token": 0.5}})
    assert made.status == 201 and made.value["policy"]["max_features"] == 1000
    values = {"name": "phone", "scopes": ["localize"], "maps": ["right", made.value["map"]], "requests_per_minute": 5}
    token = server.ask("POST", "/v1/tokens", value=values)
    assert token.status == 201 and token.value["maps"] == [made.value["map"]] * 2
    assert [item["name"] for item in server.ask("GET", "/v1/maps", token=token.value["secret"]).value["maps"]] == ["right"]


def test_a_name_is_given_once(server: Running) -> None:
    """Eight at once: one has the name, the others are told whose it is. Deleted, it is free again."""

    def make(_: int) -> Any:
        return server.ask("POST", "/v1/maps", value={"name": "once"})

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(make, range(8)))
    (made,) = [answer.value for answer in answers if answer.status == 201]
    refused = [answer.value for answer in answers if answer.status != 201]
    assert [value["status"] for value in refused] == [409] * 7 and {value["type"] for value in refused} == {
        "urn:veil:name-taken"
    }
    assert all(made["map"] in value["detail"] for value in refused)
    assert server.ask("DELETE", f"/v1/maps/{made['map']}").status == 200
    assert server.ask("POST", "/v1/maps", value={"name": "once"}).status == 201


def test_an_imported_map_has_a_name_of_its_own_or_is_not_there(
    server: Running, map_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import that fails halfway leaves no empty map under its name, so that a second try succeeds."""
    service = server.service
    with monkeypatch.context() as patch:
        patch.setattr(service.records, "require_kept", lambda files: (_ for _ in ()).throw(InputError("dropped meanwhile")))
        with pytest.raises(InputError, match="dropped meanwhile"):
            service.import_map("imported", map_folder)
    assert service.import_map("imported", map_folder).files
    with pytest.raises(NameTaken):
        service.import_map("imported", map_folder)
    assert [item.name for item in service.records.all()].count("imported") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"orgin": {}}, "no field of a place 'orgin'; did you mean 'origin'?"),
        ({"origin": {**PLACE["origin"], "height": 1}}, "no field of origin 'height'"),
        ({"positions": 9.0}, "whole numbers"),
        ({"uses_gravity": 0}, "true or false"),
        ({"origin": {"lat": "55.7", "lon": 13.2, "h": 80.0}}, "a number is none"),
    ],
)
def test_a_place_is_refused_for_each_slip(server: Running, imported: str, change: dict[str, Any], told: str) -> None:
    path = f"/v1/maps/{imported}/place"
    answer = server.ask("PUT", path, value={**PLACE, **change})
    assert answer.status == 422 and told in answer.value["detail"], answer.data
    assert (
        server.ask("PUT", path, body=json.dumps(PLACE)[:-1].encode() + b', "place": 1}', kind="application/json").status == 422
    )
    assert server.ask("PUT", path, value=PLACE).status == 200


@pytest.mark.slow
def test_maps_of_one_name_are_told_by_id(tmp_path: Path) -> None:
    """A database in which somebody gave two maps one name: each is told by its id, and the name stands for none."""
    service = Service(tmp_path / "store", ServerSettings(workers=1))
    first, second = (service.records.make(name, MapPolicy()) for name in ("lobby", "other"))
    service.close()
    with sqlite3.connect(tmp_path / "store" / "veil.sqlite") as database:
        database.execute("UPDATE maps SET name = 'lobby' WHERE id = ?", [second.id])
    with running(Service(tmp_path / "store", ServerSettings(workers=1)), jobs=False) as server:
        assert [item["name"] for item in server.ask("GET", "/v1/maps").value["maps"]] == ["lobby", "lobby"]
        values = {"name": "phone", "scopes": ["localize"], "maps": ["lobby"]}
        answer = server.ask("POST", "/v1/tokens", value=values)
        assert answer.status == 404 and first.id in answer.value["detail"] and second.id in answer.value["detail"]
        assert server.ask("POST", "/v1/tokens", value={**values, "maps": [second.id]}).value["maps"] == [second.id]
        assert server.ask("POST", "/v1/maps", value={"name": "lobby"}).status == 409
        assert server.ask("DELETE", f"/v1/maps/{second.id}").status == 200
