"""Routes of private tiles (docs/reference/tiles.md#served): without a token, as everything in them is public but who asks."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from veil.server.http.bodies import TILE_QUERIES_TYPE, read_tile_queries
from veil.server.http.conditional import unless_known
from veil.server.http.contract import says
from veil.server.http.entrance import holder_of
from veil.server.routes.tile_answers import ServedExit, ServedTiles

# A page of any origin may fetch tiles from two servers; nothing of a browser's own, such as cookies, is read.
OPEN = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin", "X-Content-Type-Options": "nosniff"}
FOR_EVER = {**OPEN, "Cache-Control": "public, max-age=31536000, immutable", "Accept-Ranges": "none"}
NOT_KEPT = {**OPEN, "Cache-Control": "no-store"}
BINARY = "application/octet-stream"
NAMED, EXIT = "/v1/tiles/{name}/{version}/{file}", "/v1/tiles/{name}/{version}/answers/{exit}"


class WholeFile(FileResponse):
    """A file that is sent whole, whatever range of it is asked for: a part of the records would tell which are wanted."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        headers = [(name, value) for name, value in scope["headers"] if name not in (b"range", b"if-range")]
        await super().__call__({**scope, "headers": headers}, receive, send)


def add_tiles(app: FastAPI, tiles: ServedTiles) -> None:
    """Add the routes of tiles. No request brings a token, and none leaves anything that depends on what it is for."""

    @app.get("/v1/tiles", tags=["tiles"], openapi_extra=says({200: "Tiles"}))
    def list_tiles(response: Response) -> dict[str, Any]:
        """All tiles of the server, with what each exit asks for."""
        response.headers.update(OPEN)
        return {"tiles": tiles.all()}

    @app.get("/v1/tiles/{name}/exits.json", tags=["tiles"], openapi_extra=says({200: "TilesVersion"}))
    def describe_tiles(name: str, response: Response) -> dict[str, Any]:
        """The version of some tiles that devices should use, and what each exit asks for."""
        response.headers.update({**OPEN, "Cache-Control": "no-cache"})
        return tiles.current(name)

    @app.get(NAMED, tags=["tiles"], openapi_extra=says({200: {"application/json": "TilesManifest", BINARY: None}, 304: None}))
    def tile_file(name: str, version: str, file: str, request: Request) -> Response:
        """A file of one version, which never changes: the manifest's two parts, all records, or the hint of the one server."""
        path = tiles.file(name, version, file)
        kind = "application/json" if path.suffix == ".json" else BINARY
        return unless_known(request, WholeFile(path, media_type=kind, headers=FOR_EVER, stat_result=path.stat()))

    @app.post(EXIT, tags=["tiles"], openapi_extra=says({200: {BINARY: None}}, body={TILE_QUERIES_TYPE: None}))
    async def answer_tiles(name: str, version: str, exit: ServedExit, request: Request) -> Response:
        """The answers to the queries of one fetch: as many, and as long, for every device."""
        length = await run_in_threadpool(tiles.request_bytes, name, version, exit)
        queries = await read_tile_queries(request, length)
        answers = await app.state.passing.run(holder_of(request.scope).name, tiles.answer, name, version, exit, queries)
        return Response(answers, media_type=BINARY, headers=NOT_KEPT)

    @app.options(EXIT, tags=["tiles"], status_code=204, include_in_schema=False)
    def may_ask(name: str, version: str, exit: ServedExit) -> Response:
        """Preflight request of a browser whose page has another origin."""
        allowed = {"Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "Content-Type"}
        return Response(status_code=204, headers={**OPEN, **allowed, "Access-Control-Max-Age": "86400"})
