"""The service over HTTP, version 1 (docs/reference/service.md): routes that call `veil.server.service`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse
from pydantic import BeforeValidator, Field

from veil.server.access.addresses import Addresses, networks_of
from veil.server.access.shares import Seats
from veil.server.access.tokens import Quota, Scope
from veil.server.http.admission import Administrating, Contributing, Known, Localizing, Services, identified
from veil.server.http.bodies import MESSAGE_TYPE, BoundedBodies, read_message, said_length
from veil.server.http.conditional import add_heads
from veil.server.http.contract import add_contract, says
from veil.server.http.entrance import Entrance
from veil.server.http.identities import IdentityProvider
from veil.server.http.problems import add_problems
from veil.server.http.strictness import Strict, StrictRoute
from veil.server.maps.policy import MapPolicy, whole
from veil.server.maps.records import map_ids
from veil.server.maps.suspects import suspects_record
from veil.server.routes.demo import add_demo_page, add_dictionaries
from veil.server.routes.geopose import add_geopose
from veil.server.routes.health import Measured, Metrics, Readiness, add_health
from veil.server.routes.tiles import ServedTiles, add_tiles
from veil.server.runner import Runner
from veil.server.schema_check import require_valid
from veil.server.service import NotFound, Service
from veil.server.store.identity import TILES
from veil.version import __version__

MESSAGE = {MESSAGE_TYPE: None}
Whole = Annotated[int, BeforeValidator(whole)]


class NewMap(Strict):
    """A map that is to be made."""

    name: str = Field(max_length=200)
    policy: dict[str, Any] = Field(default_factory=dict)


class NewToken(Strict):
    """A token that is to be made; `maps` are ids, or names that no other map has."""

    name: str = Field(max_length=200)
    scopes: list[Scope]
    maps: list[Annotated[str, Field(max_length=200)]] | None = Field(default=None, max_length=1000)
    requests_per_minute: Whole = Quota().requests_per_minute
    bytes_per_day: Whole = Quota().bytes_per_day


def create_app(service: Service, runner: Runner | None = None) -> FastAPI:
    """The application that serves a service's routes; `runner` does its jobs, and is started and ended with it."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await run_in_threadpool(service.open_pool)
        app.state.is_ready = True
        if runner is not None:
            runner.start()
        yield
        app.state.is_ready = False
        if runner is not None:
            await run_in_threadpool(runner.stop)
        service.close()

    app = FastAPI(
        title="veil",
        version=__version__,
        lifespan=lifespan,
        openapi_url=None,
        redirect_slashes=False,
        # Named, so that numbers are written as the digests of receipts have them: FastAPI's own choice writes 1e-05 as 0.00001.
        default_response_class=JSONResponse,
    )
    app.router.route_class = StrictRoute
    app.state.service, app.state.runner, app.state.metrics, app.state.is_ready = service, runner, Metrics(), False
    app.state.identities = IdentityProvider(service.settings) if service.settings.oidc_issuer else None
    # Threads of their own for what waits for processes: other requests are answered meanwhile.
    seats, least = service.settings.workers + service.settings.waiting, service.settings.workers
    app.state.waiting, app.state.passing = Seats(seats, least=least), Seats(seats, least=least)
    app.state.readiness = Readiness(lambda: len(service.records.all()))
    add_problems(app)
    add_health(app)
    _add_maps(app)
    _add_contributions(app)
    _add_queries(app)
    add_geopose(app)
    add_dictionaries(app)
    add_tiles(
        app,
        ServedTiles(service.folder / TILES, threads=service.settings.workers, most_waiting=seats),
    )
    _add_tokens(app)
    if service.settings.demo_page:
        add_demo_page(app)
    add_contract(app)
    add_heads(app)
    app.add_middleware(BoundedBodies, seconds=service.settings.body_s)
    app.add_middleware(
        Entrance,
        addresses=Addresses(networks_of(service.settings.proxies)),
        identify=partial(identified, service, app.state.identities),
    )
    app.add_middleware(Measured, metrics=app.state.metrics, log_requests=service.settings.log_requests)
    return app


def _wake(request: Request) -> None:
    """Have the server look at its queue of jobs."""
    runner = request.app.state.runner
    if runner is not None:
        runner.wake()


def _add_maps(app: FastAPI) -> None:
    """Routes of maps and their jobs."""

    @app.get("/v1/maps", tags=["maps"], openapi_extra=says({200: "Maps"}))
    def list_maps(service: Services, token: Known) -> dict[str, Any]:
        """The maps that the token may use."""
        return {"maps": [item.as_json() for item in service.records.all() if token.may_use(item.id)]}

    @app.post(
        "/v1/maps", status_code=201, tags=["maps"], openapi_extra=says({201: "Map"}, body="NewMap", problems=("name-taken",))
    )
    def make_map(given: NewMap, service: Services, token: Administrating) -> dict[str, Any]:
        """Make an empty map."""
        return service.records.make(given.name, MapPolicy.of(given.policy)).as_json()

    @app.get("/v1/maps/{map_id}", tags=["maps"], openapi_extra=says({200: "Map"}))
    def describe_map(map_id: str, service: Services, token: Known) -> dict[str, Any]:
        """One map."""
        return service.map(token, map_id).as_json()

    @app.delete("/v1/maps/{map_id}", tags=["maps"], openapi_extra=says({200: "MapDeleted"}))
    def delete_map(map_id: str, service: Services, token: Administrating) -> dict[str, Any]:
        """Delete a map and all contributions to it."""
        return {"receipts": [item.as_json() for item in service.delete_map(token, map_id)]}

    @app.put("/v1/maps/{map_id}/place", tags=["maps"], openapi_extra=says({200: "Map"}, body="NewPlace"))
    def place_map(map_id: str, given: dict[str, Any], service: Services, token: Administrating) -> dict[str, Any]:
        """Say where on Earth a map is, with what `veil map align` wrote; an empty object: it is not known."""
        return service.set_place(map_id, given or None).as_json()

    @app.post("/v1/maps/{map_id}/rebuild", status_code=202, tags=["maps"], openapi_extra=says({202: "Job"}))
    def rebuild_map(map_id: str, request: Request, service: Services, token: Administrating) -> dict[str, Any]:
        """Make a map anew from all contributions to it; it gets another origin and scale."""
        job = service.queue(map_id, "rebuild", token.id)
        _wake(request)
        return dict(job.as_json())

    @app.get("/v1/maps/{map_id}/jobs", tags=["jobs"], openapi_extra=says({200: "Jobs"}))
    def list_jobs(map_id: str, service: Services, token: Administrating) -> dict[str, Any]:
        """The jobs of a map."""
        return {"jobs": [job.as_json() for job in service.jobs.of_map(service.map(token, map_id).id)]}

    @app.get("/v1/maps/{map_id}/suspects", tags=["contributions"], openapi_extra=says({200: "Suspects"}))
    def list_suspects(map_id: str, service: Services, token: Administrating) -> dict[str, Any]:
        """Contributions that an administrator should look at, with the evidence, and how much each token gave."""
        record = service.map(token, map_id)
        return dict(suspects_record(record, service.records.contributions(record.id)))

    @app.get("/v1/jobs/{job_id}", tags=["jobs"], openapi_extra=says({200: "Job"}))
    def describe_job(job_id: str, service: Services, token: Contributing) -> dict[str, Any]:
        """One job with its progress, of a map that the token may use."""
        job = service.jobs.get(job_id)
        if job is None or not token.may_use(job.map_id):
            raise NotFound("there is no such job")
        return dict(job.as_json())


def _add_contributions(app: FastAPI) -> None:
    """Routes of contributions and of receipts of their deletion."""

    given = says({202: "ContributionGiven"}, body=MESSAGE)
    deleted = says({200: "ContributionDeleted", 202: "ContributionLeaving"})

    @app.post("/v1/maps/{map_id}/contributions", status_code=202, tags=["contributions"], openapi_extra=given)
    async def contribute(map_id: str, request: Request, service: Services, token: Contributing) -> dict[str, Any]:
        """Give a message to a map; the same message again is the same contribution."""
        record = await run_in_threadpool(service.map, token, map_id)
        kept = await run_in_threadpool(service.kept_by, token)
        with service.room.taking(min(said_length(request), record.policy.max_bytes), kept=kept):
            message = await read_message(request, record.policy)
            item, job = await app.state.waiting.run(token.id, service.contribute, token, map_id, message)
        _wake(request)
        head = await run_in_threadpool(service.receipts.head)
        return {**item.as_json(), "job": None if job is None else job.id, "receipts_head": head}

    @app.get("/v1/contributions", tags=["contributions"], openapi_extra=says({200: "Contributions"}))
    def list_contributions(
        service: Services, token: Contributing, map_id: str | None = None, everybody: bool = False
    ) -> dict[str, Any]:
        """The token's contributions; those of everybody for administrators who ask."""
        if map_id is not None:
            require_valid("map_id", map_id)
        whose = None if everybody and token.allows("admin") else token.id
        return {"contributions": [item.as_json() for item in service.records.contributions(map_id, token=whose)]}

    @app.get("/v1/contributions/{contribution_id}", tags=["contributions"], openapi_extra=says({200: "Contribution"}))
    def describe_contribution(contribution_id: str, service: Services, token: Contributing) -> dict[str, Any]:
        """One of the token's contributions."""
        item = service.records.contribution(contribution_id)
        if item is None or not (item.token == token.id or token.allows("admin")):
            raise NotFound("there is no such contribution, or it is not of this token")
        return dict(item.as_json())

    @app.delete("/v1/contributions/{contribution_id}", tags=["contributions"], openapi_extra=deleted)
    def delete_contribution(contribution_id: str, request: Request, service: Services, token: Contributing) -> JSONResponse:
        """Delete a contribution: the receipt (200), or the job whose end gives it (202)."""
        receipt, job = service.delete(token, contribution_id)
        _wake(request)
        if receipt is not None:
            return JSONResponse({"receipt": receipt.as_json(), "job": None})
        return JSONResponse({"receipt": None, "job": None if job is None else job.id}, status_code=202)

    @app.get("/v1/contributions/{contribution_id}/receipt", tags=["receipts"], openapi_extra=says({200: "Receipt"}))
    def describe_receipt(contribution_id: str, service: Services, token: Contributing) -> dict[str, Any]:
        """The receipt of a deleted contribution of the token."""
        of_contribution = service.receipts.of_contribution(contribution_id, None if token.allows("admin") else token.id)
        if of_contribution is None:
            raise NotFound("there is no receipt of this contribution, or it is not of this token")
        return of_contribution.as_json()

    @app.get("/v1/receipts", tags=["receipts"], openapi_extra=says({200: "ReceiptChain"}))
    def chain(service: Services, token: Known, after: Annotated[int, Query(ge=0, le=1 << 53)] = 0) -> dict[str, Any]:
        """Number and digests of each receipt after a number: enough to verify one, and nothing of what was deleted."""
        return {"links": [list(link) for link in service.receipts.chain(after=after)]}


def _add_queries(app: FastAPI) -> None:
    """The route of queries."""

    @app.post("/v1/maps/{map_id}/localize", tags=["queries"], openapi_extra=says({200: "Answer"}, body=MESSAGE))
    async def localize(map_id: str, request: Request, service: Services, token: Localizing) -> dict[str, Any]:
        """The pose of a query, or `no pose` with the reason; the query is kept nowhere."""
        record = await run_in_threadpool(service.map, token, map_id)
        message = await read_message(request, record.policy)
        answer = await app.state.waiting.run(token.id, service.localize, token, map_id, message)
        request.app.state.metrics.poses.labels(answer["status"]).inc()
        return answer


def _add_tokens(app: FastAPI) -> None:
    """Routes of tokens and their use."""

    @app.get("/v1/me/usage", tags=["tokens"], openapi_extra=says({200: "Usage"}))
    def usage(service: Services, token: Known) -> dict[str, Any]:
        """Limits of the token, and its use so far."""
        return {**token.as_json(), "used": service.tokens.usage(token)}

    @app.get("/v1/tokens", tags=["tokens"], openapi_extra=says({200: "Tokens"}))
    def list_tokens(service: Services, token: Administrating) -> dict[str, Any]:
        """All tokens, without their secrets."""
        return {"tokens": [item.as_json() for item in service.tokens.all()]}

    @app.post(
        "/v1/tokens",
        status_code=201,
        tags=["tokens"],
        openapi_extra=says({201: "TokenMade"}, body="NewToken", problems=("not-found",)),
    )
    def make_token(given: NewToken, service: Services, token: Administrating) -> dict[str, Any]:
        """Make a token; its secret is told this once."""
        quota = Quota(requests_per_minute=given.requests_per_minute, bytes_per_day=given.bytes_per_day)
        maps = None if given.maps is None else map_ids(service.records.all(), given.maps)
        made, secret = service.tokens.make(given.name, given.scopes, maps=maps, quota=quota)
        return {**made.as_json(), "secret": secret}

    @app.delete("/v1/tokens/{token_id}", tags=["tokens"], openapi_extra=says({200: "Token"}))
    def revoke_token(token_id: str, service: Services, token: Administrating) -> dict[str, Any]:
        """Have a token allow nothing from now on; what it contributed stays until it is deleted."""
        revoked = service.tokens.revoke(token_id)
        if revoked is None:
            raise NotFound("there is no such token")
        return dict(revoked.as_json())
