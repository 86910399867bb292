"""Routes for browsers: the public dictionary of queries in words, the demo page, and what it draws of a public map."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response

from veil.files.atomic import read_bytes
from veil.files.codebooks import bundled_codebook, bundled_codebook_file
from veil.files.photographs.examples import HELD_OUT, lund_door, other_place
from veil.files.service.shipped import page_files
from veil.server.access.tokens import Token
from veil.server.http.admission import Known, Services
from veil.server.http.conditional import unless_known
from veil.server.http.contract import says
from veil.server.jobs.tasks import view_of
from veil.server.service import NotFound, Service

# The page's files by name, for the service worker that keeps them; it works for all of the page, not for its own folder alone.
FILES, SERVICE_WORKER = "files.js", "service_worker.js"
DICTIONARY_TYPE = "application/vnd.veil.codebook"
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
    "jpg": "image/jpeg",
}
# Nothing is loaded from elsewhere or sent elsewhere, no script stands in the page, and no other page may frame it. WebAssembly,
# by which nearest words are found, is compiled from bytes of the page's own scripts.
POLICY = (
    "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; img-src 'self' blob:; "
    "media-src blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
PAGE_HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(self), microphone=(), geolocation=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def add_dictionaries(app: FastAPI) -> None:
    """Add the route of public dictionaries."""

    @app.get("/v1/dictionaries/{digest}", tags=["dictionaries"], openapi_extra=says({200: {DICTIONARY_TYPE: None}, 304: None}))
    def dictionary(digest: str, request: Request, token: Known) -> Response:
        """The file of a public dictionary, whose hash the client verifies; it never changes."""
        if digest != _bundled_digest():
            raise NotFound("only the bundled dictionary is here; ask the owner of the map for another one")
        headers = {
            "Cache-Control": "private, max-age=31536000, immutable",
            "X-Content-Type-Options": "nosniff",
            "ETag": f'"{_bundled_tag()}"',
        }
        return unless_known(request, Response(bundled_codebook_file(), media_type=DICTIONARY_TYPE, headers=headers))


def add_demo_page(app: FastAPI) -> None:
    """Add the page, its files, the photographs that it offers, and the view of a public map."""
    contents = page_files()
    contents[FILES] = f"self.FILES = {json.dumps(sorted({*contents, FILES} - {SERVICE_WORKER}))};".encode()
    photographs = _photographs()

    @app.get("/", tags=["demo"], openapi_extra=says({200: {TYPES["html"]: None}, 304: None}))
    def page(request: Request) -> Response:
        """The demo page."""
        return _file(request, "index.html", contents["index.html"])

    @app.get("/static/{path:path}", tags=["demo"], openapi_extra=says({200: dict.fromkeys(TYPES.values()), 304: None}))
    def page_file(path: str, request: Request) -> Response:
        """A file of the page; only those that ship with veil are known, so that no path leads elsewhere."""
        if path not in contents:
            raise NotFound("the demo page has no such file")
        return _file(request, path, contents[path])

    @app.get("/demo/photographs", tags=["demo"], openapi_extra=says({200: "Photographs"}))
    def list_photographs() -> dict[str, Any]:
        """Bundled photographs that no map of the demo holds, with their cameras where these are known."""
        return {"photographs": [facts for facts, _ in photographs.values()]}

    @app.get("/demo/photographs/{name}", tags=["demo"], openapi_extra=says({200: {TYPES["jpg"]: None}, 304: None}))
    def photograph(name: str, request: Request) -> Response:
        """A bundled photograph."""
        if name not in photographs:
            raise NotFound("there is no such photograph; GET /demo/photographs lists them")
        return _file(request, name, photographs[name][1])

    @app.get("/v1/maps/{map_id}/view", tags=["demo"], openapi_extra=says({200: "MapView"}))
    async def view(map_id: str, service: Services, token: Known) -> dict[str, Any]:
        """A sample of the points and cameras of a public map, for a drawing; no descriptor and no photograph is in it."""
        return await app.state.waiting.run(token.id, _viewed, service, token, map_id)


def _viewed(service: Service, token: Token, map_id: str) -> dict[str, Any]:
    """The view of a map. Raises NotFound for one that the token may not use, that is not public, or that holds nothing."""
    record = service.map(token, map_id)
    folder = service.version_folder(record) if record.facts.get("public") and record.files else None
    view = None
    if folder is not None:
        view = service.open_pool().call(view_of, str(folder), whose=token.id, deadline_s=service.settings.deadline_s)
    if view is None:
        raise NotFound("only public maps are shown, and this one is not: its points stay with the server")
    return {"map": record.id, "map_version": record.version, **view}


def _file(request: Request, name: str, content: bytes) -> Response:
    """A file with its type; without its content where the browser has it already."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {**PAGE_HEADERS, "ETag": tag}
    if name == SERVICE_WORKER:
        headers["Service-Worker-Allowed"] = "/"
    return unless_known(request, Response(content, media_type=TYPES[name.rsplit(".", 1)[-1]], headers=headers))


@lru_cache(maxsize=1)
def _bundled_digest() -> str:
    return bundled_codebook().digest


@lru_cache(maxsize=1)
def _bundled_tag() -> str:
    return hashlib.sha256(bundled_codebook_file()).hexdigest()[:32]


def _photographs() -> dict[str, tuple[dict[str, Any], bytes]]:
    """The photographs that the page offers, by name, with what is known of them."""
    photographs: dict[str, tuple[dict[str, Any], bytes]] = {}
    with lund_door() as example:
        camera = {
            "model": example.camera.model,
            "width_px": example.camera.width_px,
            "height_px": example.camera.height_px,
            "params": list(example.camera.params),
        }
        for name in HELD_OUT:
            photographs[name] = ({"name": name, "place": "the portal", "camera": camera}, read_bytes(example.folder / name))
    with other_place() as path:
        photographs[path.name] = ({"name": path.name, "place": "another place", "camera": None}, read_bytes(path))
    return photographs
