"""The OpenAPI document as a contract: complete, with examples that run, kept under schemathesis, and enough for a client."""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict, get_args

import pytest
from jsonschema import Draft202012Validator

from extensions.schemas import SERVICE
from veil.device.device import Device
from veil.errors import Action
from veil.features import Features
from veil.files.service.shipped import service_schemas
from veil.json_records.values import Limits, Written
from veil.server.access.tokens import SCOPES
from veil.server.answers.of_maps import JobJson
from veil.server.http.problems import KINDS, TITLES
from veil.server.jobs.queue import JobState, Kind
from veil.server.maps.contributions import State
from veil.server.maps.policy import FORMS, PROFILES
from veil.server.maps.suspects import ReasonKind
from veil.server.schema_check import SCHEMAS, components
from veil.server.service import Service
from worlds.contract_runs import SETTINGS, mapped, prey, run
from worlds.documents import REFERENCE
from worlds.places import PLACE
from worlds.promises import PROBLEM, Promises
from worlds.servers import Running, geopose_request, messages_of, running, words_of

_numbers = count()
ON_MAP = "/v1/maps/{map_id}/geopose"


@pytest.fixture(scope="module")
def messages(door: dict[str, Features], tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Messages of a map, and last a query."""
    return list(messages_of(door, Device(tmp_path_factory.mktemp("device")), most=300).values())


@pytest.fixture(scope="module")
def store(messages: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A server's folder with a map on Earth, to be copied, and the map's id."""
    folder = tmp_path_factory.mktemp("server") / "store"
    return folder, mapped(folder, messages[:-1])


@contextmanager
def serving(store: tuple[Path, str], folder: Path) -> Iterator[tuple[Running, str]]:
    """A server of a copy of the store, which does no further work on maps, and the map's id."""
    shutil.copytree(store[0], folder)
    with running(Service(folder, SETTINGS), jobs=False) as server:
        yield server, store[1]


@pytest.fixture(scope="module")
def served(store: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str]]:
    with serving(store, tmp_path_factory.mktemp("served") / "store") as server:
        yield server


@pytest.fixture(scope="module")
def promises(served: tuple[Running, str]) -> Promises:
    return Promises(served[0].ask("GET", "/openapi.json", token="").value)


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method.upper(), path, operation


def parts(value: object) -> Iterator[dict[str, Any]]:
    """All objects within a JSON value."""
    if isinstance(value, dict):
        yield value
    for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from parts(item)


@pytest.mark.slow
def test_every_operation_says_who_may_ask_and_what_can_come_back(promises: Promises) -> None:
    """Oracle: the kinds of problems and scopes of the code, and the page of the service for which routes there are."""
    document = promises.document
    schema = document["components"]["schemas"]["Problem"]
    assert (
        set(schema["properties"]["type"]["enum"])
        == {f"urn:veil:{kind}" for kind in TITLES}
        >= {f"urn:veil:{kind}" for _, _, kind in KINDS}
    )
    page, ids = (REFERENCE / "service.md").read_text(), []
    for _, path, operation in operations(document):
        ids.append(operation["operationId"])
        statuses = {int(status) for status in operation["responses"]}
        assert statuses & {200, 201, 202} and {411, 413, 500, 503} <= statuses
        assert ({401, 403, 429} <= statuses) is bool(operation["security"]) and "summary" in operation
        for each in operation["security"]:
            assert list(each) == ["token"] and set(each["token"]) <= set(SCOPES)
        named = {each["name"] for each in operation["parameters"] if each["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}
        assert (404 in statuses) or not named
        for status, answer in operation["responses"].items():
            kinds = set(promises.resolved(answer).get("content", {}))
            assert (int(status) < 400) is (PROBLEM not in kinds), (path, status)
    assert len(ids) == len(set(ids)) > 35
    for path in ("/v1/policy", "/v1/maps", "/v1/receipts", "/v1/me/usage", "/geopose", "/v1/tiles", "/healthz", "/metrics"):
        assert path in document["paths"] and path in page
    deletion = document["paths"]["/v1/contributions/{contribution_id}"]["delete"]["responses"]
    assert {"200", "202"} <= set(deletion) and deletion["200"] != deletion["202"]
    assert document["paths"]["/v1/policy"]["get"]["security"] == []
    assert "422" not in document["paths"]["/healthz"]["get"]["responses"]
    for part in parts(document):
        if "$ref" in part and isinstance(part["$ref"], str):
            assert promises.resolved(part)


def test_schemas_are_valid_strict_and_used() -> None:
    """Every schema is one of the draft, strict where it is the server's own, used in the document, and true of its examples."""
    text = json.dumps(components())
    open_ones = {"GeoPoseRequest", "SensorReadings", "CameraReading", "Sensor", "Privacy", "AccelerometerReading"}
    for name, schema in service_schemas().items():
        Draft202012Validator.check_schema(schema)
        checked = Draft202012Validator({"$ref": f"{SCHEMAS}/{name}", "components": {"schemas": components()}})
        for example in schema.get("examples", []):
            checked.validate(example)
        if name[0].isupper() and name not in open_ones | {"GeolocationReading"}:
            for part in parts(schema):
                assert part.get("additionalProperties") is False or "properties" not in part, name
                assert set(part.get("required", ())) <= set(part.get("properties", ()))
    assert text.count("additionalProperties") > 40


class Inner(TypedDict):
    """A record without a name among the schemas."""

    count: Annotated[int, Limits(minimum=1)] | None


class Outer(Inner, total=False):
    """A record with a key that may be left out, one of a record that has a name, and one of a schema by hand."""

    kind: Literal["a", "b"]
    job: JobJson | None
    pose: Annotated[Mapping[str, Any], Written(file="geopose.json", name="Position")]


def test_a_schema_is_as_strict_as_its_record() -> None:
    """Oracle: a schema written by hand. Broken twins: an open type, and values that the schema must refuse."""
    made = SERVICE.schema_of(Outer, "jobs.json")
    assert made == {
        "type": "object",
        "properties": {
            "count": {"type": ["integer", "null"], "minimum": 1},
            "kind": {"enum": ["a", "b"]},
            "job": {"anyOf": [{"$ref": "#/$defs/Job"}, {"type": "null"}]},
            "pose": {"$ref": "geopose.json#/$defs/Position"},
        },
        "required": ["count"],
        "additionalProperties": False,
    }
    checked = Draft202012Validator(made)
    assert checked.is_valid({"count": 1}) and checked.is_valid({"count": None, "kind": "a"})
    for twin in ({}, {"count": 0}, {"count": 1.5}, {"count": 1, "more": 1}, {"count": 1, "kind": "c"}):
        assert not checked.is_valid(twin)
    for unknown in (dict[str, Any], object, Any):
        with pytest.raises(TypeError, match="no schema is known"):
            SERVICE.schema_of(unknown, "jobs.json")


@pytest.mark.parametrize("name", sorted(SERVICE.records))
def test_schemas_on_disk_are_those_of_the_records(name: str) -> None:
    """Second method: the files as `docs/extensions/schemas.py` makes them of the records."""
    assert (SERVICE.path / name).read_text("utf-8") == SERVICE.written(name), "run: python docs/extensions/schemas.py"


def test_records_hold_what_the_code_makes() -> None:
    """Oracle: the constants that requests are compared with."""
    of = service_schemas()
    policy, token = of["MapPolicy"]["properties"], of["Token"]["properties"]
    assert tuple(policy["forms"]["items"]["enum"]) == FORMS and tuple(policy["least_profile"]["enum"]) == PROFILES
    assert tuple(token["scopes"]["items"]["enum"]) == SCOPES
    job, contribution = of["Job"]["properties"], of["Contribution"]["properties"]
    assert (tuple(job["kind"]["enum"]), tuple(job["state"]["enum"])) == (get_args(Kind), get_args(JobState))
    assert tuple(contribution["state"]["enum"]) == get_args(State)
    reasons = of["Suspect"]["properties"]["reasons"]["items"]["properties"]["reason"]
    assert tuple(reasons["enum"]) == get_args(ReasonKind)
    assert tuple(of["Remedies"]["items"]["properties"]["action"]["enum"]) == get_args(Action)


@pytest.mark.slow
def test_the_examples_of_the_document_are_answered(
    served: tuple[Running, str], promises: Promises, messages: list[bytes]
) -> None:
    """Each example of a body and of a parameter is sent as it stands, but for ids, which are of what was just made.

    Oracle: what the document promises, which `Running.ask` compares each answer with; only what is not there (tiles, a
    receipt) is 404.
    """
    server, door = served
    absent = {"dictionary", "describe_tiles", "tile_file", "answer_tiles", "photograph", "view", "describe_receipt"}
    sent = 0
    for method, path, operation in operations(promises.document):
        ids = made_for(server, door, operation, messages[0])
        given = {each["name"]: ids.get(each["name"], each.get("example", "x")) for each in operation["parameters"]}
        query = [name for name in given if f"{{{name}}}" not in path and name not in ids]
        url = path.format(**given) + "?" + "&".join(f"{name}={json.dumps(given[name])}" for name in query)
        for kind, body in bodies_of(promises, operation, messages[-1]) or [("", b"")]:
            answer = server.ask(method, url, body=body if kind or method == "POST" else None, kind=kind or None)
            assert answer.status < 300 or (answer.status == 404 and operation["operationId"] in absent), (url, answer.data)
            sent += 1
        for secret in ("veil_nobody", "") if operation["security"] else ():
            refused = server.ask(method, url, token=secret, body=b"" if method in ("POST", "PUT") else None)
            assert refused.status == 401 and refused.headers["www-authenticate"] == "Bearer"
    assert sent > 38


def bodies_of(promises: Promises, operation: dict[str, Any], message: bytes) -> list[tuple[str, bytes]]:
    """The examples of an operation's body; a message where the body is one, or holds one, which nobody could read."""
    bodies = []
    for kind, content in operation.get("requestBody", {}).get("content", {}).items():
        if kind != "application/json":
            bodies.append((kind, message))
            continue
        for example in promises.resolved(content["schema"]).get("examples", [geopose_request(message)]):
            bodies.append((kind, json.dumps(example).encode()))
    return bodies


def made_for(server: Running, door: str, operation: dict[str, Any], message: bytes) -> dict[str, str]:
    """Ids of what an operation is about, made for it where it deletes."""
    made = server.ask("POST", "/v1/maps", value={"name": f"made {next(_numbers)}"}).value["map"]
    given = server.ask("POST", f"/v1/maps/{made}/contributions", body=message).value
    token = server.ask("POST", "/v1/tokens", value={"name": "made", "scopes": ["localize"]}).value["token"]
    deletes = operation["operationId"] == "delete_map"
    return {
        "map_id": made if deletes else door,
        "contribution_id": given["contribution"],
        "job_id": given["job"],
        "token_id": token,
    }


@pytest.mark.slow
def test_a_value_of_another_type_is_refused_and_a_whole_number_is_whole(served: tuple[Running, str]) -> None:
    """Oracle: JSON Schema, for which 60.0 is an integer, and "60", true and 2.5 are none. What is refused makes nothing."""
    server, door = served
    before = len(server.ask("GET", "/v1/maps").value["maps"]), len(server.ask("GET", "/v1/tokens").value["tokens"])
    for policy in (
        {"max_features": "60"}, {"max_contributions_of_token": True}, {"max_contributions_of_token": 2.5},
        {"max_share_of_token": True}, {"forms": {"words": 1}}, {"forms": "words"}, {"keep_days": "3"}, {"polcy": 1},
    ):  # fmt: skip
        assert server.ask("POST", "/v1/maps", value={"name": "x", "policy": policy}).status == 422, policy
    token = {"name": "x", "scopes": ["localize"]}
    for more in (
        {"requests_per_minute": "60"},
        {"bytes_per_day": True},
        {"maps": [1]},
        {"maps": ["m" * 201]},
        {"scope": "admin"},
    ):
        assert server.ask("POST", "/v1/tokens", value={**token, **more}).status == 422, more
    place = {**PLACE, "enu_from_map": {**PLACE["enu_from_map"], "scale": "10"}}
    for given in (place, {**PLACE, "uses_gravity": 0}, {**PLACE, "more": 1}, {"place": 1}):
        assert server.ask("PUT", f"/v1/maps/{door}/place", value=given).status == 422
    for query in ("receipts?after=-1", "receipts?after=x", f"receipts?after={1 << 54}", "contributions?map_id=x"):
        assert server.ask("GET", f"/v1/{query}").status == 422
    assert before == (len(server.ask("GET", "/v1/maps").value["maps"]), len(server.ask("GET", "/v1/tokens").value["tokens"]))
    policy = server.ask("POST", "/v1/maps", value={"name": "x", "policy": {"max_features": 60.0, "keep_days": 3}}).value[
        "policy"
    ]
    assert json.dumps([policy["max_features"], policy["keep_days"]]) == "[60, 3]"
    assert server.ask("POST", "/v1/tokens", value={**token, "requests_per_minute": 60.0}).value["requests_per_minute"] == 60


@pytest.mark.slow
def test_schemathesis_finds_nothing(
    store: tuple[Path, str], door: dict[str, Features], tmp_path: Path, unchecked: None
) -> None:
    """All phases and all checks of schemathesis, as an administrator, who also deletes: on a server of its own.

    Both routes of the GeoPoseProtocol take one body, which the phase of coverage sends to the first.
    Broken twin: a document that does not promise what is answered, with the same server behind it.
    """
    query = list(door.values())[-1]
    small = messages_of({"query": query}, Device(tmp_path / "of the query"), most=100)["query"]
    words = words_of(query, Device(tmp_path / "device"), epsilon=8.0, most=100)
    with serving(store, tmp_path / "store") as (server, made):
        told = prey(server, [small, words], made)
        document = server.promises.document
        bodies = [document["paths"][path]["post"]["requestBody"] for path in ("/geopose", ON_MAP)]
        assert bodies[0] == bodies[1]
        outcome = run(server, told, tmp_path / "run", examples=3, seed=1, covered=[ON_MAP])
        assert outcome.failures == 0, outcome.told
        assert outcome.requests > 1200
        lies = json.loads(json.dumps(document))
        lies["paths"] = {path: {"get": lies["paths"][path]["get"]} for path in ("/healthz", "/v1/receipts", "/v1/tokens")}
        lies["paths"]["/healthz"]["get"]["security"] = [{"token": []}]
        lies["paths"]["/v1/receipts"]["get"]["parameters"][0]["schema"]["maximum"] = 9
        lies["components"]["schemas"]["Token"]["required"].append("owner")
        twin = run(server, told, tmp_path / "twin", examples=2, seed=1, document=lies)
        assert twin.failures >= 3


@pytest.mark.slow
def test_a_client_generated_from_the_document_localizes(
    served: tuple[Running, str], messages: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """openapi-python-client makes the client from the served document alone. Oracle: the answer to a plain request."""
    server, door = served
    assert server.ask("PUT", f"/v1/maps/{door}/place", value=PLACE).status == 200
    generate(server, tmp_path, "generated_client")
    monkeypatch.syspath_prepend(str(tmp_path))
    client = importlib.import_module("generated_client").AuthenticatedClient(base_url=server.url, token=server.admin)
    types = importlib.import_module("generated_client.types")
    answer = call("queries.localize")(door, client=client, body=types.File(payload=io.BytesIO(messages[-1]))).to_dict()
    plain = server.ask("POST", f"/v1/maps/{door}/localize", body=messages[-1]).value
    assert answer.pop("seconds") > 0 and plain.pop("seconds") > 0
    assert answer == plain and answer["status"] == "localized" and "geopose" in answer
    request = models("GeoPoseRequest").from_dict(geopose_request(messages[-1]))
    posed = call("geopose.geopose_on_map")(door, client=client, body=request).to_dict()
    assert posed["geopose"] == plain["geopose"] and posed["timestamp"] == request.timestamp
    made = call("maps.make_map")(client=client, body=models("NewMap").from_dict({"name": "of a generated client"}))
    given = call("contributions.contribute")(made.map_, client=client, body=types.File(payload=io.BytesIO(messages[0])))
    gone = call("contributions.delete_contribution")(given.contribution, client=client)
    assert gone.receipt.content.message_sha256 == given.message_sha256 == hashlib.sha256(messages[0]).hexdigest()
    refused = call("maps.describe_map")("m" + "0" * 16, client=client)
    assert type(refused) is models("Problem") and refused.status == 404 and refused.type_.value == "urn:veil:not-found"


def generate(server: Running, folder: Path, name: str) -> None:
    """Generate a client of a served document below a folder; nothing of it is left out."""
    (folder / "openapi.json").write_bytes(server.ask("GET", "/openapi.json", token="").data)
    kinds = ["application/vnd.veil.message", "application/vnd.veil.tile-queries", "application/vnd.veil.codebook"]
    binary = dict.fromkeys([*kinds, "image/jpeg", "image/svg+xml"], "application/octet-stream")
    overrides = {**binary, "application/vnd.oscp+json": "application/json"}
    (folder / "config.json").write_text(json.dumps({"post_hooks": [], "content_type_overrides": overrides}))
    command = [str(Path(sys.executable).parent / "openapi-python-client"), "generate", "--meta", "none", "--fail-on-warning"]
    command += [
        "--path",
        str(folder / "openapi.json"),
        "--config",
        str(folder / "config.json"),
        "--output-path",
        str(folder / name),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def call(name: str) -> Any:
    """A call of the generated client, such as `queries.localize`."""
    return importlib.import_module(f"generated_client.api.{name}").sync


def models(name: str) -> Any:
    return getattr(importlib.import_module("generated_client.models"), name)
