"""Who asks: the service of a request, and the token that it brings, as FastAPI's dependencies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request

from veil.server.bodies import said_length
from veil.server.service import Service
from veil.server.tokens import Scope, Token


def service_of(request: Request) -> Service:
    """The service that answers a request."""
    found = request.app.state.service
    assert isinstance(found, Service)
    return found


def admitted(scope: Scope | None) -> Callable[[Request], Token]:
    """A dependency: the token of a request, which must have a scope (None: any)."""

    def found(request: Request) -> Token:
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        given = secret.strip() if kind.lower() == "bearer" else None
        return service_of(request).tokens.admit(given, scope, body_bytes=said_length(request))

    return found


Known = Annotated[Token, Depends(admitted(None))]
Localizing = Annotated[Token, Depends(admitted("localize"))]
Contributing = Annotated[Token, Depends(admitted("contribute"))]
Administrating = Annotated[Token, Depends(admitted("admin"))]
Services = Annotated[Service, Depends(service_of)]
