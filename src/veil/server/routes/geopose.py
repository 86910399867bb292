"""The GeoPoseProtocol, version 2 (docs/reference/geopose.md), with a message in place of the image.

Routes are `/geopose` for all maps that are on Earth, and one for each map. Source: OpenArCloud, oscp-geopose-protocol,
"GeoPose Protocol Request (version 2 candidate 1)".
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from jaxtyping import Float64

from veil.errors import InputError, Remedy
from veil.files.maps.places import place_of
from veil.files.tables import object_of
from veil.geometry.earth import ecef_of_geodetic
from veil.geometry.rigid import Rigid, center_covariance
from veil.server.access.tokens import Token
from veil.server.http.admission import Localizing, Services
from veil.server.http.bodies import MESSAGE_TYPE
from veil.server.http.contract import says
from veil.server.http.problems import problem
from veil.server.http.strictness import no_constant
from veil.server.jobs.tasks import Beside
from veil.server.maps.earth import PLACE
from veil.server.maps.policy import NotAMessage, Refused, require_message
from veil.server.maps.records import MapRecord
from veil.server.schema_check import require_valid
from veil.server.service import NotFound, Service
from veil.wire.codec import PREFIX, sanitization
from veil.wire.head import HEAD_BYTES, read_head

# Of a request, all but the message in it.
MOST_BESIDE = 64 << 10
# What the reference implementations start with where an accuracy is not known: the largest float32.
UNKNOWN = 3.4028234663852886e38
# Meters per second squared within which an accelerometer at rest reads gravity, on all of Earth and with a phone's bias.
AT_REST = (9.3, 10.3)
_IMAGE = re.compile(rb'(?<!\\)"imageBytes"\s{0,64}:\s{0,64}"')
_BASE64 = re.compile(rb"[A-Za-z0-9+/=\\]*")
_HEAD_CHARACTERS = 4 * math.ceil(HEAD_BYTES / 3)
# Readings that tell where the device is, or who it is, and that no answer needs.
_NOT_READ = ("wiFiReadings", "wifiReadings", "bluetoothReadings")
OSCP = "application/vnd.oscp+json"
SAYS = says(
    {200: {"application/json": "GeoPoseResponse", OSCP: "GeoPoseResponse"}},
    body="GeoPoseRequest",
    problems=("not-found", "version", "damaged", "no-pose"),
)
# Maps that one request is compared with.
MOST_MAPS = 4
_VERSION = re.compile(r"application/vnd\.oscp\+json[^,]*?;\s*version\s*=\s*\"?(\d{1,3})(?:\.(\d{1,3}))?")


@dataclass(frozen=True, kw_only=True, eq=False)
class GeoPoseQuery:
    """A request of the GeoPoseProtocol.

    - `id`, `timestamp_ms`: the client's, which the response repeats.
    - `message`: the message in the camera reading.
    - `gravity`, float64 (3,): unit vector of down in the camera frame, from an accelerometer at rest; None where there is none.
    - `near`: latitude and longitude in degrees that a geolocation reading says; None without one.
    - `focal_deviation`: relative standard deviation of the message's focal length, where the request states it.
    """

    id: str
    timestamp_ms: float | int
    message: bytes
    gravity: Float64[np.ndarray, "3"] | None
    near: tuple[float, float] | None
    focal_deviation: float | None

    @property
    def beside(self) -> Beside:
        """Facts beside the message of a request that a search uses."""
        gravity = None if self.gravity is None else tuple(self.gravity.tolist())
        return Beside(gravity=gravity, focal_deviation=self.focal_deviation)


def require_begun(body: bytes | bytearray) -> bool:
    """Whether enough of a request has arrived to see how its image begins; raises NotAMessage if it is no message."""
    beginning = _IMAGE.search(body)
    if beginning is None:
        if len(body) > MOST_BESIDE:
            raise InputError(f"the request has more than {MOST_BESIDE} bytes before imageBytes; send the message in imageBytes")
        return False
    characters = bytes(body[beginning.end() : beginning.end() + 2 * _HEAD_CHARACTERS]).replace(b"\\", b"")
    if len(characters) < _HEAD_CHARACTERS:
        return False
    require_message(_decoded(characters[:_HEAD_CHARACTERS]))
    return True


def query_of(body: bytes | bytearray) -> GeoPoseQuery:
    """The query in the body of a request.

    Raises NotAMessage for an image, Refused for a message that is not what the request says of it, or for readings that would
    tell where the device is, and InputError for a request that is none.
    """
    places = list(_IMAGE.finditer(body))
    if len(places) != 1:
        raise InputError(f"the request has {len(places)} imageBytes; one camera reading with one message is answered")
    start = places[0].end()
    match = _BASE64.match(body, start)
    assert match is not None
    if body[match.end() : match.end() + 1] != b'"':
        raise InputError("imageBytes is no base64, or the request was cut off; send it again")
    if len(body) - (match.end() - start) > MOST_BESIDE:
        raise InputError(f"the request has more than {MOST_BESIDE} bytes beside imageBytes; send the readings of one moment")
    message = _decoded(match.group().replace(b"\\", b""))
    try:
        rest = bytes(body[:start]) + bytes(body[match.end() :])
        value = json.loads(rest, object_pairs_hook=object_of, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is no JSON that can be read ({str(error)[:100]})") from None
    if not isinstance(value, dict) or value.get("type") != "geopose":
        raise InputError('the request must be an object whose type is "geopose"')
    readings = value.get("sensorReadings")
    if not isinstance(readings, dict):
        raise InputError("the request has no sensorReadings")
    for name in _NOT_READ:
        if readings.get(name):
            raise Refused(f"{name} tell where the device is and are not needed; send none of them")
    _require_camera(readings, message)
    number, time_ms = value.get("id"), value.get("timestamp", "none")
    _number(time_ms, "timestamp")
    if not isinstance(number, str) or len(number) > 200 or not _is_text(number):
        raise InputError("the request needs an id, a text of at most 200 characters")
    gravity, near, deviation = _gravity(value.get("sensors"), readings), _near(readings), _focal_deviation(readings)
    require_valid("GeoPoseRequest", value)
    return GeoPoseQuery(id=number, timestamp_ms=time_ms, message=message, gravity=gravity, near=near, focal_deviation=deviation)


def _decoded(characters: bytes) -> bytes:
    """Bytes that base64 characters encode. Raises InputError for other characters."""
    try:
        return base64.b64decode(characters, validate=True)
    except binascii.Error as error:
        raise InputError(f"imageBytes is no base64 ({error})") from None


def _is_text(value: str) -> bool:
    """Whether a text has no half of a surrogate pair, which JSON can escape and nothing can answer."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _number(value: Any, what: str) -> float:
    """A finite number. Raises InputError for anything else."""
    # The comparison is with the exact number, where it has more digits than a double holds.
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= UNKNOWN:
        raise InputError(f"{what} must be a number, got {str(value)[:50]!r}")
    return float(value)


def _objects(value: Any, name: str) -> list[Mapping[str, Any]]:
    """The objects of a list that may be missing. Raises InputError for anything else."""
    objects = value.get(name) if isinstance(value, dict) else None
    objects = [] if objects is None else objects
    if not isinstance(objects, list) or not all(isinstance(item, dict) for item in objects):
        raise InputError(f"{name} must be a list of objects")
    return objects


def _require_camera(readings: Mapping[str, Any], message: bytes) -> None:
    """Raise unless the only camera reading holds a message, and says of it what it is."""
    cameras = _objects(readings, "cameraReadings")
    if len(cameras) != 1:
        raise InputError(f"the request has {len(cameras)} camera readings; one is answered")
    reading = cameras[0]
    if reading.get("imageFormat") != MESSAGE_TYPE:
        raise NotAMessage(
            f"the image format is {str(reading.get('imageFormat'))[:50]!r}; images are never accepted: "
            f"privatize them on the device, and send the message as {MESSAGE_TYPE}"
        )
    require_message(message)
    head = read_head(message[:HEAD_BYTES])
    size = reading.get("size")
    if size not in (None, [head.width_px, head.height_px]):
        raise Refused(f"size is {str(size)[:50]}, but the message is of an image of {head.width_px} x {head.height_px} pixels")
    privacy = reading.get("privacy") or {}
    terms = privacy.get("dataSanitizationApplied") if isinstance(privacy, dict) else None
    if terms is None:
        return
    if not isinstance(terms, list) or not all(isinstance(term, str) for term in terms):
        raise InputError("dataSanitizationApplied must be a list of texts")
    true = sanitization(head)
    for term in terms:
        if term.startswith(PREFIX) and term not in true:
            raise Refused(
                f"the request says {term[:60]!r} of its message, which is {' and '.join(true)}; nothing was done with it"
            )


def _focal_deviation(readings: Mapping[str, Any]) -> float | None:
    """The deviation of the focal length that the camera reading states. Raises InputError for one that is none."""
    stated = _objects(readings, "cameraReadings")[0].get("focalDeviation")
    if stated is None:
        return None
    deviation = _number(stated, "focalDeviation")
    if not 0 < deviation <= 1:
        raise InputError(f"focalDeviation is a relative standard deviation, above 0 and at most 1, got {deviation:g}")
    return deviation


def _gravity(sensors: Any, readings: Mapping[str, Any]) -> Float64[np.ndarray, "3"] | None:
    """Down in the camera frame, from the last accelerometer reading; None if it was not at rest or its frame is not known."""
    readings_at_rest = _objects(readings, "accelerometerReadings")
    if not readings_at_rest:
        return None
    named = {"sensors": sensors}
    rotations = {str(item.get("id")): _rotation(item.get("rigRotation")) for item in _objects(named, "sensors")}
    reading, camera = readings_at_rest[-1], _objects(readings, "cameraReadings")[0]
    felt = np.array([_number(reading.get(axis), f"accelerometer {axis}") for axis in "xyz"])
    sensor_from_rig, cam_from_rig = (rotations.get(str(item.get("sensorId"))) for item in (reading, camera))
    size = float(np.linalg.norm(felt))
    if sensor_from_rig is None or cam_from_rig is None or not AT_REST[0] <= size <= AT_REST[1]:
        return None
    return -(cam_from_rig @ sensor_from_rig.T @ felt) / size


def _rotation(value: Any) -> Float64[np.ndarray, "3 3"] | None:
    """The rotation of a unit quaternion; None where it is missing. Raises InputError for another one."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InputError("rigRotation must be a quaternion with x, y, z and w")
    x, y, z, w = (_number(value.get(axis), f"rigRotation {axis}") for axis in "xyzw")
    if not abs(x * x + y * y + z * z + w * w - 1) < 1e-3:
        raise InputError("rigRotation must be a unit quaternion")
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + 2 * (w * cross + cross @ cross)


def _near(readings: Mapping[str, Any]) -> tuple[float, float] | None:
    """The last geolocation. Raises InputError for one that is not on Earth."""
    locations = _objects(readings, "geolocationReadings")
    if not locations:
        return None
    latitude, longitude = (_number(locations[-1].get(name), name) for name in ("latitude", "longitude"))
    if not (abs(latitude) <= 90 and abs(longitude) <= 360):
        raise InputError("a geolocation must be a latitude and a longitude in degrees")
    return latitude, longitude


def response_of(query: GeoPoseQuery, answer: Mapping[str, Any], place: Mapping[str, Any]) -> dict[str, Any]:
    """The response to a query that was localized: its pose on Earth as a Basic-Quaternion, and how far off it may be.

    `answer` is that of `veil.server.service.Service.localize`, `place` the map's.
    """
    pose, covariance = answer["cam_from_world"], answer["covariance"]
    position_m, turn_deg = UNKNOWN, answer["turn_deviation_deg"]
    if covariance is not None:
        georeference = place_of(place)
        cam_from_map = Rigid(rotation=np.array(pose["rotation"]), translation=np.array(pose["translation"]))
        variance = np.trace(center_covariance(cam_from_map, np.array(covariance))) / 3
        position_m = georeference.enu_from_map.scale * math.sqrt(max(0.0, variance)) + georeference.median_error_m
    return {
        "id": query.id,
        "timestamp": query.timestamp_ms,
        "accuracy": {"position": position_m, "orientation": UNKNOWN if turn_deg is None else turn_deg},
        "type": "geopose",
        "geopose": answer["geopose"],
    }


def add_geopose(app: FastAPI) -> None:
    """Add the routes of the GeoPoseProtocol."""

    @app.get("/geopose", tags=["geopose"], openapi_extra=says({200: "GeoPoseStatus"}))
    def geopose_status() -> dict[str, str]:
        """Whether the protocol is spoken here, as its demo server says it."""
        return {"status": "running"}

    @app.post("/geopose", tags=["geopose"], openapi_extra=SAYS)
    async def geopose(request: Request, service: Services, token: Localizing) -> JSONResponse:
        """The pose on Earth of a query, on whichever map shows it."""
        return await answered(request, service, token, None)

    @app.post("/v1/maps/{map_id}/geopose", tags=["geopose"], openapi_extra=SAYS)
    async def geopose_on_map(map_id: str, request: Request, service: Services, token: Localizing) -> JSONResponse:
        """The pose on Earth of a query on one map."""
        return await answered(request, service, token, map_id)

    async def answered(request: Request, service: Service, token: Token, map_id: str | None) -> JSONResponse:
        """The answer of the maps that come into question, the first that has one."""
        asked = _VERSION.search(request.headers.get("accept", ""))
        if asked is not None and asked[1] != "2":
            return problem(406, "version", f"version 2.0 of the GeoPoseProtocol is spoken here, not {asked[1]}.{asked[2] or 0}")
        query = await run_in_threadpool(query_of, await read_request(request))
        records = await run_in_threadpool(maps_for, service, token, map_id, query)
        reasons = []
        for record in records:
            answer = await app.state.waiting.run(token.id, service.localize, token, record.id, query.message, query.beside)
            request.app.state.metrics.poses.labels(answer["status"]).inc()
            if "geopose" in answer:
                response = response_of(query, answer, record.facts[PLACE])
                return JSONResponse(response, media_type=OSCP if asked is not None else "application/json")
            reasons.append(answer.get("reason", "the map changed meanwhile; ask again"))
        return problem(422, "no-pose", "; ".join(dict.fromkeys(reasons)))


async def read_request(request: Request) -> bytearray:
    """The body of a request, which is left as soon as its image is seen to be none of ours."""
    body, begun = bytearray(), False
    async for chunk in request.stream():
        body += chunk
        begun = begun or require_begun(body)
    return body


def maps_for(service: Service, token: Token, map_id: str | None, query: GeoPoseQuery) -> list[MapRecord]:
    """The maps that may show a query, nearest first where the request says where it is.

    Raises NotFound where no map that the token may use is on Earth, or too many are and the request says nothing.
    """
    if map_id is not None:
        records = [service.map(token, map_id)]
    else:
        records = [record for record in service.records.all() if token.may_use(record.id)]
    placed = [record for record in records if PLACE in record.facts]
    if not placed:
        raise NotFound("no map that the token may use is on Earth", remedy=Remedy("give", "the map's place"))
    if query.near is not None:
        here = ecef_of_geodetic(np.array([*query.near, 0.0]))
        origins = [record.facts[PLACE]["origin"] for record in placed]
        places = ecef_of_geodetic(np.array([[at["lat"], at["lon"], 0.0] for at in origins], dtype=np.float64))
        # A spatial index would save this sort, and not that the maps are read (benchmarks/server_storage.py).
        order = np.argsort(np.linalg.norm(places - here, axis=1), kind="stable")
        placed = [placed[row] for row in order]
    elif len(placed) > MOST_MAPS:
        raise NotFound(f"{len(placed)} maps are on Earth: send a geolocation reading, or ask /v1/maps/{{map}}/geopose")
    return placed[:MOST_MAPS]
