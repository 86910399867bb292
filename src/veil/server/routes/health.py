"""Routes that tell whether the server answers, its numbers for Prometheus, and what it keeps and promises.

Numbers count requests and times by route, and nothing in them tells one client from another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veil.errors import StorageTrouble
from veil.forms import lifted_guarantee
from veil.server.http.admission import Services, administrating
from veil.server.http.bodies import MESSAGE_TYPE
from veil.server.http.contract import says
from veil.server.maps.policy import MapPolicy
from veil.version import __version__

# How long an answer is good for, and how long one is waited for.
KEPT_S, LOOK_S = 1.0, 5.0
log = logging.getLogger("veil.server.requests")
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
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


class Readiness:
    """Looks at what a server needs, at most once a second, whoever asks. For one event loop.

    `look` raises what is wrong.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._limiter: CapacityLimiter | None = None
        self._last: asyncio.Task[Exception | None] | None = None
        self._begun = 0.0

    async def look(self) -> None:
        """Return if all is well. Raises what `look` raised within the last second, StorageTrouble if it takes too long."""
        now = time.monotonic()
        if self._last is None or (self._last.done() and now - self._begun > KEPT_S):
            self._begun = now
            self._last = asyncio.create_task(self._looked())
        await asyncio.wait([self._last], timeout=max(0.0, self._begun + LOOK_S - now))
        if not self._last.done():
            raise StorageTrouble("the database does not answer")
        error = self._last.result()
        if error is not None:
            raise error

    async def _looked(self) -> Exception | None:
        self._limiter = self._limiter or CapacityLimiter(1)
        try:
            await to_thread.run_sync(self._look, limiter=self._limiter)
        except Exception as error:
            return error
        return None


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self.requests = Counter("veil_requests_total", "Requests answered", labels, registry=self.registry)
        self.seconds = Histogram(
            "veil_request_seconds", "Time until an answer", ("route",), registry=self.registry, buckets=BUCKETS
        )
        self.poses = Counter("veil_queries_total", "Queries answered", ("status",), registry=self.registry)
        self.jobs = Gauge("veil_jobs", "Jobs that wait or are worked on", registry=self.registry)
        self.free = Gauge("veil_free_bytes", "Free bytes of the disk of the server's folder", registry=self.registry)
        self.no_room = Gauge("veil_no_room", "Whether contributions are refused for want of room", registry=self.registry)

    def text(self) -> bytes:
        """The numbers as Prometheus reads them."""
        return generate_latest(self.registry)


class Measured:
    """A layer around an application that counts its answers; `log_requests` writes a line for each, without who asked."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log_requests: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._log_requests = log_requests

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = time.perf_counter()
        status = "500"

        async def counted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            # The route with its parameters' names: what stands in a path may be a map's or a contribution's id.
            route = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if scope["method"] in ("GET", "HEAD", "POST", "PUT", "DELETE") else "other"
            seconds = time.perf_counter() - begun
            self._metrics.requests.labels(method, route, status).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            if self._log_requests:
                log.info("%s %s %s %.0f ms", method, route, status, 1e3 * seconds)


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
        numbers: Metrics = request.app.state.metrics
        with service.database.transaction() as rows:
            row = rows.one("SELECT count(*) AS waiting FROM jobs WHERE state IN ('queued', 'running')")
        numbers.jobs.set(0 if row is None else row["waiting"])
        numbers.free.set(service.room.free())
        numbers.no_room.set(service.room.left() <= 0)
        return Response(numbers.text(), media_type=METRICS_TYPE)

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
