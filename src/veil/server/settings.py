"""Settings of a server: one TOML file, and environment variables over it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from veil.engine import check_engine
from veil.errors import FileFormatError, InputError, RangeError
from veil.files.tables import read_text
from veil.server.access.addresses import networks_of
from veil.server.access.tokens import SCOPES, Scope
from veil.wire.names import require_known

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PREFIX = "VEIL_SERVE_"
# Kinds of access tokens by their header: RFC 9068, and what issuers write that do not follow it.
TYPES = ("at+jwt", "JWT")
# Of signatures of access tokens: with a pair of keys alone, as a shared one would let the issuer's public key sign.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of a server; each is a name in the TOML file, and VEIL_SERVE_NAME in the environment.

    - `host`, `port`: where it listens.
    - `workers`: processes that localize queries.
    - `map_workers`: pairs of images that a job matches at a time.
    - `engine`: where a job matches pairs, an engine's address.
    - `deadline_s`: seconds that a query or the examination of a message may take.
    - `body_s`: seconds within which the longest body must arrive; shorter ones have less.
    - `waiting`: requests that may wait for a process; more are told to come again.
    - `proxies`: addresses and networks, with blanks between, of proxies whose `X-Forwarded-For` names the client; empty: none,
      and all clients of a proxy count as one.
    - `map_seconds`: seconds that a job on a map may take.
    - `database`: a PostgreSQL database (`postgresql://USER@HOST/NAME`) that servers share; empty: SQLite in the folder.
    - `blobs`: bucket (`s3://BUCKET/PREFIX`) that servers share; empty: files in the folder.
    - `log_requests`: one line for each request, with its route and no address, path, token or content.
    - `metrics_open`: whether /metrics needs no token.
    - `demo_page`: whether the server has a page for browsers at /, which also shows the points of public maps.
    - `oidc_issuer`, `oidc_audience`: the OpenID Connect issuer whose access tokens are accepted, and the audience that they
      must name; empty: none.
    - `oidc_claim`, `oidc_scopes`: the claim that gives scopes (`realm_access.roles` is a path), and its values with the scopes
      that they give, as `VALUE=SCOPE` with blanks between.
    - `oidc_types`: what the header of a token may say that it is, with blanks between: `at+jwt` (RFC 9068), `JWT` for issuers
      that write no other type.
    - `oidc_algorithms`: of signatures, with blanks between.
    - `oidc_requests_per_minute`, `oidc_bytes_per_day`: the quota of each subject.

    Raises RangeError or InputError for values outside their range.
    """

    host: str = "127.0.0.1"
    port: int = 8700
    workers: int = 2
    map_workers: int = 2
    engine: str = "local"
    deadline_s: float = 30.0
    body_s: float = 30.0
    waiting: int = 64
    proxies: str = ""
    map_seconds: float = 86400.0
    # It may hold a password.
    database: str = field(default="", repr=False)
    blobs: str = ""
    log_requests: bool = False
    metrics_open: bool = False
    demo_page: bool = False
    oidc_issuer: str = ""
    oidc_audience: str = ""
    oidc_claim: str = "scope"
    oidc_scopes: str = "veil:localize=localize veil:contribute=contribute veil:admin=admin"
    oidc_types: str = "at+jwt"
    oidc_algorithms: str = "RS256 PS256 ES256 EdDSA"
    oidc_requests_per_minute: int = 600
    oidc_bytes_per_day: int = 10 << 30

    def __post_init__(self) -> None:
        check_engine(self.engine)
        if self.database and not self.database.startswith(("postgresql://", "postgres://")):
            raise InputError("database must be postgresql://USER@HOST/NAME, or empty for SQLite in the folder")
        if self.blobs and not self.blobs.startswith("s3://"):
            raise InputError(f"blobs must be s3://BUCKET/PREFIX, or empty for files in the folder, got {self.blobs!r}")
        limits: tuple[tuple[str, float, float], ...] = (
            ("port", 0, 65535),
            ("workers", 1, 1024),
            ("map_workers", 1, 1024),
            ("deadline_s", 0.1, 3600),
            ("body_s", 0.1, 3600),
            ("waiting", 0, 1 << 20),
            ("map_seconds", 1, 1e9),
            ("oidc_requests_per_minute", 0, 1 << 53),
            ("oidc_bytes_per_day", 0, 1 << 53),
        )
        for name, least, most in limits:
            if not least <= getattr(self, name) <= most:
                raise RangeError(f"{name} must be {least:g} to {most:g}, got {getattr(self, name)!r}")
        networks_of(self.proxies)
        oidc_scopes(self.oidc_scopes)
        for name, known in (("oidc_algorithms", ALGORITHMS), ("oidc_types", TYPES)):
            given = getattr(self, name).split()
            if not given or set(given) - set(known):
                raise InputError(f"{name} must be some of {', '.join(known)}, got {getattr(self, name)!r}")
        if self.oidc_issuer and not (self.oidc_audience and self.oidc_claim and is_safe_address(self.oidc_issuer)):
            raise InputError(
                "oidc_issuer must be an https address, and needs oidc_audience, the name that tokens have for this server, and "
                "oidc_claim"
            )


def oidc_scopes(text: str) -> dict[str, Scope]:
    """Scopes by the value of a claim that gives them, from `VALUE=SCOPE ...`. Raises InputError for another text."""
    scopes: dict[str, Scope] = {}
    for pair in text.split():
        value, _, name = pair.rpartition("=")
        scope = next((scope for scope in SCOPES if scope == name), None)
        if not value or scope is None:
            raise InputError(f"oidc_scopes takes VALUE=SCOPE with a scope of {', '.join(SCOPES)}, got {pair!r}")
        scopes[value] = scope
    return scopes


def is_safe_address(address: object) -> bool:
    """Whether what is fetched from an address comes from whom it names: https, or this machine."""
    if not isinstance(address, str):
        return False
    try:
        parts = urlsplit(address)
        local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
        return bool(parts.hostname) and not parts.query and not parts.fragment and (parts.scheme == "https" or local)
    except ValueError:
        return False


def read_settings(path: Path | None, environment: Mapping[str, str]) -> ServerSettings:
    """The settings of a TOML file (None: the defaults) and of the environment, which goes before it.

    Raises FileFormatError for a file that cannot be read, InputError for names and values that are no settings.
    """
    values: dict[str, Any] = {}
    if path is not None:
        try:
            values = tomllib.loads(read_text(path))
        except tomllib.TOMLDecodeError as error:
            raise FileFormatError(f"{path} is no TOML file: {error}") from None
    types = {item.name: type(item.default) for item in fields(ServerSettings)}
    for name, text in environment.items():
        if name.startswith(PREFIX):
            values[name.removeprefix(PREFIX).lower()] = text
    require_known("setting", values, types)
    return replace(ServerSettings(), **{name: _typed(name, value, types[name]) for name, value in values.items()})


def _typed(name: str, value: Any, kind: type) -> Any:
    """A value as the type of its setting. Raises InputError for another one."""
    if kind is bool and isinstance(value, str) and value.lower() in ("true", "false", "1", "0"):
        return value.lower() in ("true", "1")
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str) and kind in (int, float):
        try:
            return kind(value)
        except ValueError:
            pass
    if type(value) is kind:
        return value
    shown = "another value" if name == "database" else repr(value)
    raise InputError(f"the setting {name} takes {kind.__name__}, got {shown}")
