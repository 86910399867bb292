"""The contract of the service: its OpenAPI document, from its routes, its kinds of problems, and its JSON schemas.

A route says what it answers and reads (`says`). Who may ask comes from its dependencies, and from both which problems it can
have. Schemas are those of `veil/server/schemas/`, with which the JSON of requests
for places is compared, too (`veil.server.schema_check`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from fastapi.routing import APIRoute

from veil.server.http.admission import ASKED
from veil.server.http.conditional import unless_known
from veil.server.http.problems import MEDIA_TYPE, STATUSES, TITLES
from veil.server.http.strictness import is_strict
from veil.server.schema_check import SCHEMAS, components
from veil.version import __version__

JSON = "application/json"
BINARY = {"type": "string", "format": "binary"}
# Kinds of problems by what causes them; what is in no other list can come wherever one asks, such as a body that is too long.
OF_TOKENS = ("unauthorized", "forbidden", "quota", "issuer")
OF_JSON = ("http", "too-slow", "not-json", "invalid")
OF_BYTES = ("damaged", "too-slow", "refused", "too-much", "invalid")
OF_SOME = ("not-found", "name-taken", "version", "no-pose")
ANYWHERE = tuple(kind for kind in STATUSES if kind not in (*OF_TOKENS, *OF_JSON, *OF_BYTES, *OF_SOME))
_HEADERS: Mapping[int, Mapping[str, Any]] = {
    401: {"WWW-Authenticate": {"description": "how to say who asks", "schema": {"const": "Bearer"}}},
    429: {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer", "minimum": 0}}},
    503: {"Retry-After": {"description": "seconds to wait", "schema": {"type": "integer", "minimum": 0}}},
}
# Which parameter takes which id of what was made.
_LINKS = {
    "Map": {"map_id": "map"},
    "ContributionGiven": {"contribution_id": "contribution", "job_id": "job"},
    "Job": {"job_id": "job"},
    "TokenMade": {"token_id": "token"},
}
# What only some maps and contributions have, or only later: no link leads to it.
_NOT_OF_ALL = ("view", "geopose_on_map", "describe_receipt")
_PHRASES = {
    200: "Done",
    201: "Made",
    202: "Begun: a job does the rest",
    204: "Nothing more to say",
    304: "The file is the one that the request names",
    503: "Not yet",
}
_ETAG = {"ETag": {"description": "for `If-None-Match`", "schema": {"type": "string"}}}
DESCRIPTION = (
    "Cameras localize through a server that cannot see what they saw. wire.md describes messages, tiles.md tiles, service.md "
    "what stays private from whom. HEAD is answered wherever GET is. Files with an ETag answer `If-None-Match`."
)


def says(
    answers: Mapping[int, str | Mapping[str, str | None] | None],
    *,
    body: str | Mapping[str, str | None] | None = None,
    problems: Iterable[str] = (),
) -> dict[str, Any]:
    """Answers of a route by status, and the body that it reads, for its `openapi_extra`.

    Each is the name of a schema, media types with the name of theirs (None: bytes), or None for nothing. `problems` are kinds
    that the rest of the route does not tell.
    """
    return {"answers": dict(answers), "body": body, "problems": tuple(problems)}


def add_contract(app: FastAPI) -> None:
    """Add the route of the document; call it when all others are there."""
    document = document_of(app)
    app.openapi = lambda: document  # type: ignore[method-assign]
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()
    headers = {"ETag": f'"{hashlib.sha256(text).hexdigest()[:32]}"', "Cache-Control": "no-cache"}

    @app.get("/openapi.json", include_in_schema=False)
    def openapi(request: Request) -> Response:
        """The contract."""
        return unless_known(request, Response(text, media_type=JSON, headers=headers))


def document_of(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI document of an application."""
    paths: dict[str, dict[str, Any]] = {}
    for route in app.routes:
        if isinstance(route, APIRoute) and route.include_in_schema:
            for method in sorted((route.methods or set()) - {"HEAD"}):
                paths.setdefault(route.path_format, {})[method.lower()] = _operation(route)
    _link(paths)
    schemas = {name: schema for name, schema in components().items() if name[0].isupper()}  # the others are of parameters
    return {
        "openapi": "3.1.0",
        "info": {"title": "veil", "version": __version__, "description": DESCRIPTION, "license": {"name": "Apache-2.0"}},
        "servers": [{"url": "/"}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": "veil_..., with its scopes"}},
            "schemas": {**schemas, "Problem": _problem()},
            "responses": {str(status): _refusal(status) for status in sorted(set(STATUSES.values()))},
        },
    }


def _link(paths: Mapping[str, Mapping[str, Any]]) -> None:
    """Say in answers that make something which operations its id leads to."""
    operations = [(path, each["operationId"]) for path, methods in paths.items() for each in methods.values()]
    for methods in paths.values():
        for operation in methods.values():
            for status, answer in operation["responses"].items():
                schema = answer.get("content", {}).get(JSON, {}).get("schema", {}).get("$ref", "").removeprefix(f"{SCHEMAS}/")
                ids = _LINKS.get(schema, {}) if status in ("201", "202") else {}
                if ids:
                    answer["links"] = {
                        name: {"operationId": name, "parameters": {parameter: f"$response.body#/{key}"}}
                        for parameter, key in ids.items()
                        for path, name in operations
                        if f"{{{parameter}}}" in path and name not in _NOT_OF_ALL
                    }


def _operation(route: APIRoute) -> dict[str, Any]:
    """Contract of a route."""
    description = route.openapi_extra
    assert description is not None, f"{route.name} does not say what it answers"
    asked = [ASKED[each.call] for each in route.dependant.dependencies if each.call in ASKED]
    names = [("path", each.name) for each in route.dependant.path_params]
    names += [("query", each.name) for each in route.dependant.query_params]
    first, _, rest = route.description.partition("\n")
    operation: dict[str, Any] = {
        "tags": route.tags,
        "operationId": route.name,
        "summary": first,
        **({"description": rest.strip()} if rest.strip() else {}),
        "parameters": [_parameter(place, name) for place, name in names],
        "security": [{"token": [scope] if scope else []} for scope in asked],
        "responses": {str(status): _answer(status, content) for status, content in description["answers"].items()},
    }
    kinds = [*ANYWHERE, *description["problems"], *(OF_TOKENS if asked else ())]
    kinds += ["not-found"] if route.dependant.path_params else []
    kinds += ["invalid"] if is_strict(route.path) else []  # a query that it does not know
    if 304 in description["answers"]:
        operation["responses"]["200"]["headers"] = operation["responses"]["304"]["headers"] = _ETAG
    if description["body"] is not None:
        operation["requestBody"] = {"required": True, "content": _content(description["body"])}
        kinds += OF_JSON if isinstance(description["body"], str) else OF_BYTES
    for status in sorted({STATUSES[kind] for kind in kinds}):
        refusal = _refusal(status) if status in description["answers"] else {"$ref": f"#/components/responses/{status}"}
        also = operation["responses"].setdefault(str(status), refusal)
        if "content" in refusal:
            also["content"] |= refusal["content"]
    return operation


def _answer(status: int, content: str | Mapping[str, str | None] | None) -> dict[str, Any]:
    """An answer that is no problem."""
    return {"description": _PHRASES[status], **({} if content is None else {"content": _content(content)})}


def _content(content: str | Mapping[str, str | None]) -> dict[str, Any]:
    """Media types with their schemas."""
    if isinstance(content, str):
        content = {JSON: content}
    named = {kind: BINARY if name is None else {"$ref": f"{SCHEMAS}/{name}"} for kind, name in content.items()}
    return {kind: {"schema": schema} for kind, schema in named.items()}


def _parameter(place: str, name: str) -> dict[str, Any]:
    """A parameter of a path or of a query."""
    schema = components()[name]
    rest = {key: value for key, value in schema.items() if key not in ("description", "examples")}
    parameter = {"name": name, "in": place, "required": place == "path", "description": schema["description"], "schema": rest}
    return {**parameter, **({"example": schema["examples"][0]} if "examples" in schema else {})}


def _problem() -> dict[str, Any]:
    """The schema of every refusal (RFC 9457)."""
    properties = {
        "type": {"enum": [f"urn:veil:{kind}" for kind in TITLES]},
        "title": {"type": "string"},
        "status": {"type": "integer", "minimum": 400, "maximum": 599},
        "detail": {"type": "string", "description": "what is wrong, and what to do"},
    }
    further = {
        "cause": {"type": "string", "description": "what is wrong, without what to do"},
        "remedy": {"$ref": f"{SCHEMAS}/Remedies"},
    }
    return {
        "type": "object",
        "properties": properties | further,
        "required": list(properties),
        "additionalProperties": False,
    }


def _refusal(status: int) -> dict[str, Any]:
    """The answer to what is refused with a status, whatever kinds of problems have it."""
    kinds = [kind for kind, each in STATUSES.items() if each == status]
    refusal = {
        "description": "; ".join(f"{TITLES[kind]} (`urn:veil:{kind}`)" for kind in kinds),
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"{SCHEMAS}/Problem"}}},
    }
    return {**refusal, **({"headers": _HEADERS[status]} if status in _HEADERS else {})}
