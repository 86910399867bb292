"""Who asks: the service of a request, and the token that it brings, as FastAPI's dependencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Request

from veil.server.bodies import said_length
from veil.server.identities import IdentityProvider
from veil.server.service import Service
from veil.server.tokens import PREFIX, SCOPES, Quota, Scope, Token


def service_of(request: Request) -> Service:
    """The service that answers a request."""
    found = request.app.state.service
    assert isinstance(found, Service)
    return found


def admitted(scope: Scope | None) -> Callable[[Request], Token]:
    """A dependency: the token of a request, which must have a scope (None: any)."""

    def found(request: Request) -> Token:
        kind, _, secret = request.headers.get("authorization", "").partition(" ")
        given = secret.strip() if kind.lower() == "bearer" else ""
        service, length = service_of(request), said_length(request)
        identities: IdentityProvider | None = request.app.state.identities
        if identities is None or given.startswith(PREFIX) or given.count(".") != 2:
            return service.tokens.admit(given or None, scope, body_bytes=length)
        settings = service.settings
        quota = Quota(requests_per_minute=settings.oidc_requests_per_minute, bytes_per_day=settings.oidc_bytes_per_day)
        who = identities.subject(given)
        return service.tokens.admit_subject(who.issuer, who.subject, who.scopes, scope, quota=quota, body_bytes=length)

    return found


known, localizing, contributing, administrating = (admitted(scope) for scope in (None, *SCOPES))
# Which scope each dependency asks for.
ASKED: Mapping[Callable[..., Any] | None, Scope | None] = {
    known: None,
    localizing: "localize",
    contributing: "contribute",
    administrating: "admin",
}
Known = Annotated[Token, Depends(known)]
Localizing = Annotated[Token, Depends(localizing)]
Contributing = Annotated[Token, Depends(contributing)]
Administrating = Annotated[Token, Depends(administrating)]
Services = Annotated[Service, Depends(service_of)]
