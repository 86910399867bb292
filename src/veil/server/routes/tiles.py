"""Private tiles (docs/reference/tiles.md#served): their versions, answers that tell the server nothing, and their routes.

The routes take no token, as everything in tiles is public but who asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from veil.errors import FileFormatError, InputError
from veil.files.service import hintless_tiles
from veil.files.service.hintless_tiles import HintlessFacts, read_hintless, read_prepared
from veil.files.service.served_tiles import (
    FACTS,
    HINT,
    VERSION,
    OneServerFacts,
    read_matrix,
    read_one_server,
    served_names,
    versions_of,
)
from veil.files.tiles import BINARY, JSON, RECORDS, read_manifest, read_records
from veil.pir import hintless, one_server, two_servers
from veil.pir.hintless_layout import HintlessLayout
from veil.server.http.bodies import TILE_QUERIES_TYPE, read_tile_queries
from veil.server.http.conditional import unless_known
from veil.server.http.contract import says
from veil.server.http.entrance import holder_of
from veil.server.jobs.processes import Busy
from veil.server.service import NotFound
from veil.tiles.manifest import Manifest

Work = Callable[[Sequence[bytes]], list[bytes]]
ServedExit = Literal["two-servers", "one-server", "hintless"]
# A manifest and arrays that are read or mapped; older ones are opened again when they are asked for.
MOST_OPEN = 64
FILES = (JSON, BINARY, RECORDS, HINT)
# A page of any origin may fetch tiles from two servers; nothing of a browser's own, such as cookies, is read.
OPEN = {"Access-Control-Allow-Origin": "*", "Cross-Origin-Resource-Policy": "cross-origin", "X-Content-Type-Options": "nosniff"}
FOR_EVER = {**OPEN, "Cache-Control": "public, max-age=31536000, immutable", "Accept-Ranges": "none"}
NOT_KEPT = {**OPEN, "Cache-Control": "no-store"}
BYTES = "application/octet-stream"
NAMED, EXIT = "/v1/tiles/{name}/{version}/{file}", "/v1/tiles/{name}/{version}/answers/{exit}"


@dataclass(kw_only=True, eq=False)
class _Request:
    queries: Sequence[bytes]
    answers: list[bytes] | None = field(default=None)


class SharedPasses:
    """Answers requests one pass after the other; those that come during a pass share the next.

    - `work`: answers queries by one pass. Whoever asks has checked them: what one request raises, all of the pass raise.
    - `most_queries`: in one pass, but for a single request that has more. They bound the memory of answers.
    - `most_waiting`: requests that are answered or wait; more raise Busy.
    """

    def __init__(self, work: Work, *, most_queries: int = 64, most_waiting: int = 64) -> None:
        self._work = work
        self._most_queries = most_queries
        self._seats = threading.BoundedSemaphore(most_waiting)
        self._passing = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[_Request] = []

    def answers(self, queries: Sequence[bytes]) -> list[bytes]:
        """The answer to each query. Raises Busy, and what the work raises."""
        if not self._seats.acquire(blocking=False):
            raise Busy("the server answers as many fetches of tiles as it can; localize again in a moment")
        request = _Request(queries=queries)
        try:
            with self._lock:
                self._waiting.append(request)
            with self._passing:
                if request.answers is None:
                    self._pass(request)
        finally:
            self._seats.release()
            with self._lock:
                self._waiting = [item for item in self._waiting if item is not request]
        assert request.answers is not None
        return request.answers

    def _pass(self, first: _Request) -> None:
        """One pass for a request and as many of those that wait as there is room for."""
        with self._lock:
            taken, count = [first], len(first.queries)
            for item in self._waiting:
                if item is not first and item.answers is None and count + len(item.queries) <= self._most_queries:
                    taken.append(item)
                    count += len(item.queries)
        answers = iter(self._work([query for item in taken for query in item.queries]))
        for item in taken:
            item.answers = [next(answers) for _ in item.queries]


class AnotherNumber(InputError):
    """Queries for another number of tiles than every device asks for, or of another length."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedExitOf:
    """Queries that one exit takes for one version of tiles: how many together, of which length, and who answers them."""

    count: int
    query_bytes: int
    passes: SharedPasses
    require: Callable[[bytes], None]


@dataclass(frozen=True, kw_only=True, eq=False)
class ServedVersion:
    """One version of some tiles, opened."""

    folder: Path
    manifest: Manifest
    one_server: OneServerFacts | None
    hintless: HintlessFacts | None
    exits: dict[ServedExit, ServedExitOf]

    def is_other(self, folder: Path) -> bool:
        """Whether exits were added to the version or taken away since it was opened."""
        kept = ((self.one_server, FACTS), (self.hintless, hintless_tiles.FACTS))
        return any((facts is None) is (folder / name).is_file() for facts, name in kept)

    def as_json(self, name: str) -> dict[str, Any]:
        """The stable record of docs/reference/tiles.md#served."""
        manifest = self.manifest
        exits: dict[str, Any] = {
            "region": {"bytes": len(manifest) * manifest.record_bytes},
            "two-servers": {"query_bytes": two_servers.query_bytes(len(manifest)), "answer_bytes": manifest.record_bytes},
        }
        if self.one_server is not None:
            exits["one-server"] = self.one_server.as_json()
        if self.hintless is not None:
            exits["hintless"] = self.hintless.as_json()
        return {
            "name": name,
            "version": manifest.version,
            "tiles": len(manifest),
            "record_bytes": manifest.record_bytes,
            "asked": manifest.asked,
            "exits": exits,
        }


class ServedTiles:
    """The tiles in a server's folder, opened when they are asked for. Other processes may add and remove tiles meanwhile.

    - `root`: the server's folder of tiles, which may be missing.
    - `threads`: of a pass over all records.
    - `most_waiting`: requests for one exit of one version that are answered or wait; more raise Busy.
    """

    def __init__(self, root: Path, *, threads: int = 1, most_waiting: int = 64) -> None:
        self._root, self._threads, self._most_waiting = root, threads, most_waiting
        self._lock = threading.Lock()
        self._open: dict[Path, ServedVersion] = {}

    def all(self) -> list[dict[str, Any]]:
        """Records of all tiles, in the version that devices should use."""
        return [self.current(name) for name in served_names(self._root)]

    def current(self, name: str) -> dict[str, Any]:
        """The record of some tiles, in the version that devices should use. Raises NotFound if there are none."""
        known = versions_of(self._root, name)
        if not known:
            raise NotFound("there are no tiles of this name; GET /v1/tiles lists all")
        return self._version(name, known[0]).as_json(name)

    def file(self, name: str, version: str, file: str) -> Path:
        """A file that devices read. Raises NotFound if there is none."""
        path = self._version(name, version).folder / file
        if file not in FILES or not path.is_file():
            raise NotFound(f"tiles have the files {', '.join(FILES)}, the last where the exit by one server is offered")
        return path

    def request_bytes(self, name: str, version: str, exit: ServedExit) -> int:
        """The length of a request to an exit, the same for all devices. Raises NotFound."""
        served = self._exit(name, version, exit)
        return served.count * served.query_bytes

    def answer(self, name: str, version: str, exit: ServedExit, request: bytes) -> bytes:
        """The answers to a request's queries, one after the other.

        Raises NotFound, AnotherNumber for a request of another length, PirError for queries that are none, and Busy.
        """
        served = self._exit(name, version, exit)
        if len(request) != served.count * served.query_bytes:
            raise AnotherNumber(
                f"every device asks for {served.count} queries of {served.query_bytes} bytes at a time, which are "
                f"{served.count * served.query_bytes} bytes, and this request has {len(request)}"
            )
        queries = [request[start : start + served.query_bytes] for start in range(0, len(request), served.query_bytes)]
        for query in queries:
            served.require(query)
        return b"".join(served.passes.answers(queries))

    def _exit(self, name: str, version: str, exit: ServedExit) -> ServedExitOf:
        served = self._version(name, version).exits.get(exit)
        if served is None:
            raise NotFound(f"these tiles are not served by the exit {exit}; fetch all of them, or from two servers")
        return served

    def _version(self, name: str, version: str) -> ServedVersion:
        """One version of some tiles. Raises NotFound if the server does not have it (any more)."""
        if not VERSION.fullmatch(version) or version not in versions_of(self._root, name):
            raise NotFound("there is no such version of these tiles (any more); read the manifest again, for all tiles")
        folder = self._root / name / version
        with self._lock:
            served = self._open.get(folder)
            if served is None or served.is_other(folder):
                while len(self._open) >= MOST_OPEN:
                    self._open.pop(next(iter(self._open)))
                served = self._open[folder] = self._opened(folder, version)
            return served

    def _opened(self, folder: Path, version: str) -> ServedVersion:
        """A version from its folder. Raises FileFormatError if it is damaged."""
        manifest = read_manifest(folder)
        if manifest.version != version:
            raise FileFormatError("tiles of another version are in the place of these; add them again")
        records = read_records(folder, manifest)
        count = len(manifest)
        passes = partial(SharedPasses, most_waiting=self._most_waiting)
        exits: dict[ServedExit, ServedExitOf] = {
            "two-servers": ServedExitOf(
                count=manifest.asked,
                query_bytes=two_servers.query_bytes(count),
                passes=passes(partial(_two_servers, records, self._threads)),
                require=partial(two_servers.require_query, records=count),
            )
        }
        facts = read_one_server(folder, records=count, size=manifest.record_bytes)
        if facts is not None:
            exits["one-server"] = ServedExitOf(
                count=manifest.asked * facts.layout.parts,
                query_bytes=facts.layout.query_bytes,
                passes=passes(partial(_one_server, read_matrix(folder, facts.layout), self._threads)),
                require=_anything,
            )
        packed = read_hintless(folder, records=count, size=manifest.record_bytes)
        if packed is not None:
            exits["hintless"] = ServedExitOf(
                count=manifest.asked * packed.layout.parts,
                query_bytes=packed.layout.query_bytes,
                passes=passes(partial(_hintless, *read_prepared(folder, packed), packed.layout, self._threads)),
                require=partial(hintless.require_query, layout=packed.layout),
            )
        return ServedVersion(folder=folder, manifest=manifest, one_server=facts, hintless=packed, exits=exits)


def _two_servers(records: Any, threads: int, queries: Sequence[bytes]) -> list[bytes]:
    return two_servers.answers(records, queries, threads)


def _one_server(matrix: one_server.Matrix, threads: int, queries: Sequence[bytes]) -> list[bytes]:
    return one_server.answers(matrix, queries, threads)


def _hintless(
    matrix: hintless.ByteRows, made: hintless.PreparedPacking, layout: HintlessLayout, threads: int, queries: Sequence[bytes]
) -> list[bytes]:
    return hintless.answers(matrix, made, layout, queries, threads)


def _anything(query: bytes) -> None:
    """Every query of the right length to one server is answered."""


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

    @app.get(NAMED, tags=["tiles"], openapi_extra=says({200: {"application/json": "TilesManifest", BYTES: None}, 304: None}))
    def tile_file(name: str, version: str, file: str, request: Request) -> Response:
        """A file of one version, which never changes: the manifest's two parts, all records, or the hint of the one server."""
        path = tiles.file(name, version, file)
        kind = "application/json" if path.suffix == ".json" else BYTES
        return unless_known(request, WholeFile(path, media_type=kind, headers=FOR_EVER, stat_result=path.stat()))

    @app.post(EXIT, tags=["tiles"], openapi_extra=says({200: {BYTES: None}}, body={TILE_QUERIES_TYPE: None}))
    async def answer_tiles(name: str, version: str, exit: ServedExit, request: Request) -> Response:
        """The answers to the queries of one fetch: as many, and as long, for every device."""
        length = await run_in_threadpool(tiles.request_bytes, name, version, exit)
        queries = await read_tile_queries(request, length)
        answers = await app.state.passing.run(holder_of(request.scope).name, tiles.answer, name, version, exit, queries)
        return Response(answers, media_type=BYTES, headers=NOT_KEPT)

    @app.options(EXIT, tags=["tiles"], status_code=204, include_in_schema=False)
    def may_ask(name: str, version: str, exit: ServedExit) -> Response:
        """Preflight request of a browser whose page has another origin."""
        allowed = {"Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "Content-Type"}
        return Response(status_code=204, headers={**OPEN, **allowed, "Access-Control-Max-Age": "86400"})
