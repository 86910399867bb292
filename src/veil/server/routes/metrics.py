"""Numbers of a server for Prometheus: counts and times by route, and nothing that tells one client from another."""

from __future__ import annotations

import logging
import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger("veil.server.requests")
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


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
