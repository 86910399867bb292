"""Errors as HTTP says them: problem+json (RFC 9457), with what to do and without what the server keeps to itself."""

from __future__ import annotations

import logging
import math
import sqlite3
import traceback
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from veil.errors import (
    CannotWrite,
    FileFormatError,
    InputError,
    NoRoom,
    PirError,
    Remedy,
    StorageTrouble,
    VeilError,
    WireError,
    sentence,
    told_as_json,
)
from veil.files.atomic import FULL
from veil.server.access.tokens import Forbidden, QuotaExceeded, Unauthorized
from veil.server.http.conditional import methods_of
from veil.server.http.identities import IssuerAway
from veil.server.jobs.processes import Busy
from veil.server.maps.policy import NotAMessage, Refused
from veil.server.maps.records import NameTaken, UnknownMap
from veil.server.maps.suspects import TooMuch
from veil.server.service import NotFound

log = logging.getLogger("veil.server")
MEDIA_TYPE = "application/problem+json"


class TooLarge(InputError):
    """A body that is longer than the server reads."""


class NoLength(InputError):
    """A body whose length is not said before it."""


class TooSlow(InputError):
    """A body that did not arrive in time."""


# The status and name of each kind of error; the first that fits counts.
KINDS: tuple[tuple[type[Exception], int, str], ...] = (
    (Unauthorized, 401, "unauthorized"),
    (Forbidden, 403, "forbidden"),
    (NotFound, 404, "not-found"),
    (UnknownMap, 404, "not-found"),
    (TooSlow, 408, "too-slow"),
    (NoLength, 411, "no-length"),
    (TooLarge, 413, "too-large"),
    (NotAMessage, 415, "not-a-message"),
    (NameTaken, 409, "name-taken"),
    (TooMuch, 422, "too-much"),
    (Refused, 422, "refused"),
    (WireError, 400, "damaged"),
    (PirError, 400, "damaged"),
    (QuotaExceeded, 429, "quota"),
    (Busy, 503, "busy"),
    (IssuerAway, 503, "issuer"),
    (NoRoom, 503, "no-room"),
    (StorageTrouble, 503, "storage"),
    (FileFormatError, 503, "storage"),
    (CannotWrite, 503, "storage"),
    (InputError, 422, "invalid"),
    (VeilError, 503, "unavailable"),
)
TITLES = {
    "unauthorized": "The token is missing or not known",
    "forbidden": "The token does not allow this",
    "not-found": "There is no such thing",
    "too-slow": "The body took too long to arrive",
    "no-length": "The length of the body is not said",
    "too-large": "The body is too long",
    "name-taken": "Another map has this name",
    "not-a-message": "The body is no veil message",
    "not-json": "The body is no JSON",
    "refused": "The map does not accept the message",
    "too-much": "The token has given the map as much as it may",
    "damaged": "The message is damaged",
    "quota": "The quota of the token is used up",
    "busy": "The server is busy",
    "issuer": "The issuer of access tokens is away",
    "storage": "The server cannot use its storage now",
    "no-room": "The server's disk has no room for this",
    "invalid": "The request cannot be used",
    "version": "Another version is spoken here",
    "no-pose": "No pose is better than chance",
    "unavailable": "The server cannot do this now",
    "failed": "The server failed",
    "http": "The request cannot be served",
}


# The status of each kind; "http" has others, too, which come before any route: 404 and 405.
STATUSES: Mapping[str, int] = {kind: status for _, status, kind in KINDS} | {
    "http": 400,
    "version": 406,
    "not-json": 415,
    "no-pose": 422,
    "failed": 500,
}


def is_json(kind: str) -> bool:
    """Whether a media type (lower case, without parameters) is one of JSON (RFC 6839)."""
    return kind == "application/json" or kind.endswith("+json")


def problem(
    status: int, kind: str, cause: str, headers: dict[str, str] | None = None, *, remedy: tuple[Remedy, ...] = ()
) -> JSONResponse:
    """An answer of problem+json; where there is a remedy, it has `cause` and `remedy` beside the `detail` of both."""
    # What a client sent may stand in it, with halves of surrogate pairs, which no answer can hold.
    cause = cause.encode("utf-8", "replace").decode("utf-8")
    content: dict[str, Any] = {"type": f"urn:veil:{kind}", "title": TITLES[kind], "status": status}
    content["detail"] = sentence(cause, remedy)
    if remedy:
        content |= {"cause": cause, **told_as_json(remedy)}
    return JSONResponse(content, status_code=status, headers=headers, media_type=MEDIA_TYPE)


def answer_to(error: Exception) -> Response:
    """The answer to an error."""
    for known, status, kind in KINDS:
        if isinstance(error, known):
            if isinstance(error, IssuerAway):
                return problem(status, kind, error.cause, {"Retry-After": "30"}, remedy=error.remedy)
            if isinstance(error, NoRoom):
                log.warning("%s: %s", type(error).__name__, error)
                return problem(status, kind, "try again later; what is deleted makes room", {"Retry-After": "60"})
            if status == 503 and kind in ("storage", "unavailable"):
                log.warning("%s: %s", type(error).__name__, error)
                return problem(status, kind, "try again later; the server's log says more", {"Retry-After": "10"})
            headers = {}
            if isinstance(error, Unauthorized):
                headers["WWW-Authenticate"] = "Bearer"
            if isinstance(error, QuotaExceeded):
                headers["Retry-After"] = str(math.ceil(error.retry_after_s))
            if isinstance(error, Busy):
                headers["Retry-After"] = "1"
            assert isinstance(error, VeilError)
            return problem(status, kind, error.cause, headers, remedy=error.remedy)
    if isinstance(error, ClientDisconnect):
        return problem(400, "http", "the connection ended before the body")
    if isinstance(error, OSError) and error.errno in FULL:
        return answer_to(NoRoom(str(error)))
    if isinstance(error, sqlite3.Error | OSError):
        log.warning("%s: %s", type(error).__name__, error)
        return problem(503, "storage", "try again later; the server's log says more", {"Retry-After": "10"})
    # The places without the text of the error, which may hold what a client sent.
    log.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
    return problem(500, "failed", "this is a fault of the server; its log says more")


def _told(item: dict[str, Any]) -> str:
    """Fault of a value of a request, after its place."""
    where = ".".join(str(part) for part in item["loc"])
    reason = item.get("ctx", {}).get("error", "") if item["type"] == "json_invalid" else ""
    return f"{where}: {item['msg'].removeprefix('Value error, ')}" + (f" ({reason})" if reason else "")


def add_problems(app: FastAPI) -> None:
    """Have an application answer every error as problem+json."""

    async def of_error(request: Request, error: Exception) -> Response:
        return answer_to(error)

    async def of_http(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(methods_of(request))
        return problem(error.status_code, "http", str(error.detail), headers)

    async def of_values(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
        if any(item["loc"][0] == "body" for item in error.errors()) and not is_json(kind):
            return problem(415, "not-json", f"the body's type is {kind[:100] or 'not said'}; send it as application/json")
        return problem(422, "invalid", "; ".join(_told(item) for item in error.errors()[:5]))

    app.add_exception_handler(VeilError, of_error)
    app.add_exception_handler(sqlite3.Error, of_error)
    app.add_exception_handler(OSError, of_error)
    app.add_exception_handler(ClientDisconnect, of_error)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(RequestValidationError, of_values)
    app.add_exception_handler(Exception, of_error)
