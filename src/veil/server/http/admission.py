"""Who asks: the service of a request, and the token that it brings, as FastAPI's dependencies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Request

from veil.server.access.tokens import PREFIX, SCOPES, Quota, Scope, Token
from veil.server.http.bodies import said_length
from veil.server.http.entrance import secret_of
from veil.server.http.identities import IdentityProvider
from veil.server.service import Service


async def service_of(request: Request) -> Service:
    """The service that answers a request."""
    service = request.app.state.service
    assert isinstance(service, Service)
    return service


def admitted(scope: Scope | None) -> Callable[[Request], Token]:
    """A dependency: the token of a request, which must have a scope (None: any)."""

    def token_of(request: Request) -> Token:
        given = secret_of(request.headers.get("authorization", ""))
        service, length = request.app.state.service, said_length(request)
        identities: IdentityProvider | None = request.app.state.identities
        if identities is None or not _is_access_token(given):
            return service.tokens.admit(given or None, scope, body_bytes=length)
        settings = service.settings
        quota = Quota(requests_per_minute=settings.oidc_requests_per_minute, bytes_per_day=settings.oidc_bytes_per_day)
        who = identities.subject(given)
        return service.tokens.admit_subject(who.issuer, who.subject, who.scopes, scope, quota=quota, body_bytes=length)

    return token_of


def identified(service: Service, identities: IdentityProvider | None, given: str) -> str | None:
    """The name under which a valid token has its shares, without charging it; None for another one."""
    if identities is None or not _is_access_token(given):
        return service.tokens.id_of(given)
    who = identities.subject(given)
    return f"{len(who.issuer)} {who.issuer} {who.subject}"


def _is_access_token(given: str) -> bool:
    """Whether what was given has the form of another issuer's access token."""
    return not given.startswith(PREFIX) and given.count(".") == 2


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
