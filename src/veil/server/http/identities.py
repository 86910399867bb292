"""Access tokens of an OpenID Connect issuer: who holds one, and which scopes it gives here.

A token is a JWT (RFC 7519) that is checked as RFC 8725 asks: an allow-list of types (RFC 9068, so that no ID token passes) and
of asymmetric algorithms, the issuer's own keys, and issuer, audience and expiry. Keys come from the issuer's discovery document
(OpenID Connect Discovery 1.0, Sec. 4) in bounded time and are kept for a while, so that an issuer which is away keeps nobody
out at once.
"""

from __future__ import annotations

import json
import logging
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import urlsplit

from veil.errors import InputError, VeilError
from veil.server.access.tokens import Scope, Unauthorized
from veil.server.settings import ServerSettings, is_safe_address, oidc_scopes

log = logging.getLogger("veil.server")
DISCOVERY = "/.well-known/openid-configuration"
# Keys are asked for again after so long, or for a key that is not known, but not more often; old ones serve while the issuer
# is away, for so long at most.
FRESH_S, AGAIN_S, KEPT_S = 600.0, 30.0, 6 * 3600.0
# An answer of the issuer, and a token, in bytes; and what an answer may take.
MOST_ANSWER, MOST_TOKEN, ANSWER_S = 1 << 20, 16 << 10, 5.0
# Clocks may differ by so much.
LEEWAY_S = 30.0
LEAST_RSA_BITS = 2048
# The type of access tokens that follow RFC 9068, and the claims that it requires beside those of every token here (Sec. 2.2).
RFC_9068 = "at+jwt"
_REQUIRED, _REQUIRED_BY_RFC_9068 = ("exp", "iss", "aud", "sub"), ("client_id", "iat", "jti")
# Claims of ID tokens and of logout tokens, and those of which an access token has one.
_OF_SIGN_IN = ("nonce", "at_hash", "c_hash", "s_hash", "events")
_OF_ACCESS = ("scope", "scp", "client_id", "appid")


class IssuerAway(VeilError):
    """The issuer's keys cannot be had, and none is known that is young enough."""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Who holds an access token: the issuer's name of him, and the scopes that the token gives."""

    issuer: str
    subject: str
    scopes: tuple[Scope, ...]


class IdentityProvider:
    """An OpenID Connect issuer, as the settings `oidc_*` name it.

    `fetch` gives the bytes at an address, `clock` seconds that never go back. Raises InputError if PyJWT is not installed.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        fetch: Callable[[str], bytes] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        try:
            import cryptography
            import jwt
        except ImportError as error:
            raise InputError(f"oidc_issuer needs {error.name}; run `pip install 'veil[oidc]'`") from None
        assert cryptography and jwt
        self.issuer, self._audience = settings.oidc_issuer, settings.oidc_audience
        self._claim, self._scopes = settings.oidc_claim, oidc_scopes(settings.oidc_scopes)
        self._algorithms, self._types = settings.oidc_algorithms.split(), settings.oidc_types.split()
        self._keys = _Keys(self.issuer, fetch or fetched, clock)

    def subject(self, token: str) -> Subject:
        """Who holds a token. Raises Unauthorized for one that does not verify, IssuerAway without keys to verify it with."""
        import jwt

        if len(token) > MOST_TOKEN or not token.isascii():
            raise Unauthorized("the access token is none, or longer than any that is read")
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in self._algorithms:
                raise Unauthorized(f"the access token is not signed with one of {', '.join(self._algorithms)}")
            kind = self._kind(header.get("typ"))
            key = _verifying_key(self._keys.key(header.get("kid")), algorithm)
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._audience,
                issuer=self.issuer,
                leeway=LEEWAY_S,
                options={"require": [*_REQUIRED, *(_REQUIRED_BY_RFC_9068 if kind == RFC_9068 else ())]},
            )
            if kind != RFC_9068:
                _require_access(claims)
        except VeilError:
            raise
        except jwt.ExpiredSignatureError:
            raise Unauthorized("the access token has expired; ask the issuer for another") from None
        except (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise Unauthorized(
                f"the access token does not verify ({type(error).__name__}); ask the issuer for another"
            ) from None
        subject = claims["sub"]
        if not isinstance(subject, str) or not 0 < len(subject) <= 255:
            raise Unauthorized("the access token names no subject")
        return Subject(issuer=self.issuer, subject=subject, scopes=self._granted(claims))

    def _kind(self, claim: object) -> str:
        """Algorithm and key of a token's header. Raises Unauthorized where the settings do not accept them."""
        text = claim.lower().removeprefix("application/") if isinstance(claim, str) else "jwt"
        kind = next((kind for kind in self._types if kind.lower() == text), None)
        if kind is None:
            raise Unauthorized(
                f"the header of the token says that it is {text[:40]!r}; access tokens are {' or '.join(self._types)} here: "
                "send the access token, not an ID token (of issuers that write JWT, see the setting oidc_types)"
            )
        return kind

    def _granted(self, claims: Mapping[str, Any]) -> tuple[Scope, ...]:
        """The scopes that a token's claim gives."""
        value: Any = claims.get(self._claim)
        if value is None:  # a path, such as realm_access.roles
            value = claims
            for part in self._claim.split("."):
                value = value.get(part) if isinstance(value, dict) else None
        given = value.split() if isinstance(value, str) else value if isinstance(value, list) else []
        return tuple(dict.fromkeys(self._scopes[name] for name in given if isinstance(name, str) and name in self._scopes))


def _require_access(claims: Mapping[str, Any]) -> None:
    """Raise Unauthorized for claims of a token whose type tells nothing, if they are those of an ID token or a logout token.

    What tells an access token: no claim that binds a sign-in (OpenID Connect Core 1.0, Sec. 2 and 3.3.2.11), none that names
    another use, and who may do what.
    """
    signs = [name for name in _OF_SIGN_IN if name in claims]
    uses = [str(claims[name]).lower() for name in ("typ", "token_use") if name in claims]
    if signs or any(use not in ("bearer", "access", "at+jwt") for use in uses):
        raise Unauthorized("the token is of a sign-in (an ID token), not an access token; send the access token")
    if not any(name in claims for name in _OF_ACCESS):
        raise Unauthorized(f"the token has none of {', '.join(_OF_ACCESS)}, as access tokens have; send the access token")


class _Keys:
    """The issuer's keys by their `kid`, asked for when they are needed."""

    def __init__(self, issuer: str, fetch: Callable[[str], bytes], clock: Callable[[], float]) -> None:
        self._issuer, self._fetch, self._clock = issuer, fetch, clock
        self._lock = threading.Lock()
        self._known: dict[str | None, dict[str, Any]] = {}
        self._fetched = self._asked = -float("inf")

    def key(self, kid: object) -> dict[str, Any]:
        """The key of this id, or the only one for a token that names none. Raises Unauthorized for an unknown one."""
        now = self._clock()
        if now - self._fetched > FRESH_S or self._found(kid) is None:
            self._refresh()
        if self._clock() - self._fetched > KEPT_S:
            raise IssuerAway("the issuer of access tokens does not answer; try again later, or use a token of this server")
        known = self._found(kid)
        if known is None:
            raise Unauthorized("the access token is signed with a key that the issuer does not have (any more)")
        return known

    def _found(self, kid: object) -> dict[str, Any] | None:
        if kid is None:
            return next(iter(self._known.values())) if len(self._known) == 1 else None
        return self._known.get(kid) if isinstance(kid, str) else None

    def _refresh(self) -> None:
        """Ask for the keys, unless somebody asks already or just did; those who have none wait for him."""
        if not self._lock.acquire(timeout=-1 if not self._known else 0):
            return
        try:
            if self._clock() - self._asked < AGAIN_S:
                return
            self._asked = self._clock()
            self._known = self._read()
            self._fetched = self._clock()
        except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError) as error:
            log.warning("the issuer's keys: %s", type(error).__name__)
        finally:
            self._lock.release()

    def _read(self) -> dict[str | None, dict[str, Any]]:
        configuration = json.loads(self._fetch(self._issuer.rstrip("/") + DISCOVERY))
        if configuration["issuer"] != self._issuer:
            raise ValueError("the discovery document is of another issuer")
        if not is_safe_address(configuration["jwks_uri"]):
            raise ValueError("the issuer's keys are not at an https address")
        keys = json.loads(self._fetch(configuration["jwks_uri"]))["keys"]
        return {key.get("kid"): key for key in keys if key.get("use", "sig") == "sig" and key.get("kty") != "oct"}


def _verifying_key(key: Mapping[str, Any], algorithm: str) -> Any:
    """A key of the issuer's, for one algorithm. Raises Unauthorized for a key that is not for it, or too short."""
    import jwt

    if key.get("alg", algorithm) != algorithm:
        raise Unauthorized("the access token is signed with an algorithm that its key is not for")
    verifying = jwt.PyJWK(dict(key), algorithm).key
    if getattr(verifying, "key_size", LEAST_RSA_BITS) < LEAST_RSA_BITS and key.get("kty") == "RSA":
        raise Unauthorized(f"the issuer's key is shorter than {LEAST_RSA_BITS} bits")
    return verifying


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect: the address that was set is the one whose certificate counts."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def fetched(address: str) -> bytes:
    """The bytes at an address, `MOST_ANSWER` at most, in `ANSWER_S` for each part. Raises OSError or ValueError otherwise."""
    until = time.monotonic() + ANSWER_S
    if urlsplit(address).scheme not in ("http", "https"):
        raise ValueError("it is no web address")
    with urllib.request.build_opener(_NoRedirects).open(address, timeout=ANSWER_S) as answer:
        data = b""
        while part := answer.read1(1 << 16):
            data += part
            if len(data) > MOST_ANSWER or time.monotonic() > until:
                raise ValueError("the answer is too long, or comes too slowly")
    return data
