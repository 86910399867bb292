"""Routes that tell whether the server lives, what an administrator should know, and what it keeps and promises."""

from __future__ import annotations

from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response

from veil.forms import lifted_guarantee
from veil.server.http.admission import Services, administrating
from veil.server.http.bodies import MESSAGE_TYPE
from veil.server.http.contract import says
from veil.server.maps.policy import MapPolicy
from veil.server.routes.metrics import Metrics
from veil.version import __version__

WORDS = (
    "Words of a public dictionary under local differential privacy: the epsilon of each feature is finite, stands in the "
    "message, and adds up over the features of an image and over all images of a session. Positions, their number and the "
    "camera are outside of it."
)
POSITIONS = (
    "Positions are sent as they are unless lines hide them; the number of features, the image size and the camera always are."
)
QUERIES = "Queries are kept nowhere: not in files, not in the database, not in logs."
MATCHED = "Whoever matches two messages, as this server does, can estimate the descriptors of what matches."
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def add_health(app: FastAPI) -> None:
    """Routes that tell whether the server lives, and what it keeps."""

    @app.get("/healthz", tags=["health"], openapi_extra=says({200: "Alive"}))
    async def healthz() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "alive", "veil": __version__}

    @app.get("/readyz", tags=["health"], openapi_extra=says({200: "Ready", 503: "Ready"}))
    async def readyz(request: Request, service: Services) -> JSONResponse:
        """Whether queries are answered: processes run, and the database can be read; and what an administrator should know."""
        await request.app.state.readiness.look()
        is_ready = bool(request.app.state.is_ready)
        status = "ready" if is_ready else "starting"
        return JSONResponse({"status": status, "warnings": service.warnings()}, status_code=200 if is_ready else 503)

    asked = [] if app.state.service.settings.metrics_open else [Depends(administrating)]

    @app.get("/metrics", tags=["health"], dependencies=asked, openapi_extra=says({200: {METRICS_TYPE: None}}))
    def metrics(request: Request, service: Services) -> Response:
        """Numbers for Prometheus."""
        found: Metrics = request.app.state.metrics
        with service.database.transaction() as rows:
            row = rows.one("SELECT count(*) AS waiting FROM jobs WHERE state IN ('queued', 'running')")
        found.jobs.set(0 if row is None else row["waiting"])
        found.free.set(service.room.free())
        found.no_room.set(service.room.left() <= 0)
        return Response(found.text(), media_type=METRICS_TYPE)

    @app.get("/v1/policy", tags=["policy"], openapi_extra=says({200: "ServicePolicy"}))
    def policy() -> dict[str, Any]:
        """Data that is kept, its time, and the guarantee of every accepted form."""
        return {
            "message_type": MESSAGE_TYPE,
            "forms": {
                "subspaces": {"guarantee": None, "reason": lifted_guarantee("hardened").reason},
                "words": {"guarantee": "local differential privacy of each feature", "reason": WORDS},
            },
            "not_protected": [POSITIONS, MATCHED],
            "queries": QUERIES,
            "contributions": "Messages are kept until their owner deletes them or the map's keep_days are over.",
            "logs": "Logs hold no address, token, path, pose or content.",
            "default_map_policy": MapPolicy().as_json(),
        }
