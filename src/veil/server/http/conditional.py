"""HTTP that frameworks leave out (RFC 9110): HEAD, conditional requests, and every method in `Allow`."""

from __future__ import annotations

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.routing import Match, Route

# What of a file's headers belongs to its content, and not to the answer that there is nothing new.
_OF_CONTENT = ("content-length", "content-type")


def unless_known(request: Request, response: Response) -> Response:
    """The response, or 304 without a body if the request names its ETag (RFC 9110, Sec. 13.1.2)."""
    asked, tag = request.headers.get("if-none-match"), response.headers.get("etag")
    if asked is None or tag is None:
        return response
    given = [each.strip().removeprefix("W/") for each in asked.split(",")]
    if tag.removeprefix("W/") not in given and asked.strip() != "*":
        return response
    headers = {name: value for name, value in response.headers.items() if name not in _OF_CONTENT}
    return Response(status_code=304, headers=headers)


def add_heads(app: FastAPI) -> None:
    """Have every route that answers GET answer HEAD as well; the server sends no body then."""
    for route in app.routes:
        if isinstance(route, Route) and route.methods is not None and "GET" in route.methods:
            route.methods.add("HEAD")


def methods_of(request: Request) -> list[str]:
    """All methods that the path of a request is answered with."""
    methods = set[str]()
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            methods |= route.methods or set()
    return sorted(methods)
