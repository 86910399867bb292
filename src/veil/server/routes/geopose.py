"""The routes of the GeoPoseProtocol: `/geopose` for all maps that are on Earth, and one for each map."""

from __future__ import annotations

import re

import numpy as np
from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from veil.errors import Remedy
from veil.geometry.earth import ecef_of_geodetic
from veil.server.access.tokens import Token
from veil.server.http.admission import Localizing, Services
from veil.server.http.contract import says
from veil.server.http.problems import problem
from veil.server.maps.earth import PLACE
from veil.server.maps.records import MapRecord
from veil.server.routes.geopose_protocol import GeoPoseQuery, query_of, require_begun, response_of
from veil.server.service import NotFound, Service

OSCP = "application/vnd.oscp+json"
SAYS = says(
    {200: {"application/json": "GeoPoseResponse", OSCP: "GeoPoseResponse"}},
    body="GeoPoseRequest",
    problems=("not-found", "version", "damaged", "no-pose"),
)
# Maps that one request is compared with.
MOST_MAPS = 4
_VERSION = re.compile(r"application/vnd\.oscp\+json[^,]*?;\s*version\s*=\s*\"?(\d{1,3})(?:\.(\d{1,3}))?")


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
            answer = await app.state.waiting.run(token.id, service.localize, token, record.id, query.message, query.gravity)
            request.app.state.metrics.poses.labels(answer["status"]).inc()
            if "geopose" in answer:
                found = response_of(query, answer, record.facts[PLACE])
                return JSONResponse(found, media_type=OSCP if asked is not None else "application/json")
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
        found = [service.map(token, map_id)]
    else:
        found = [record for record in service.records.all() if token.may_use(record.id)]
    placed = [record for record in found if PLACE in record.facts]
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
