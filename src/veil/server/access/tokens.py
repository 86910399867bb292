"""Tokens of the service: hashed, with scopes, quotas and the maps that they may use; and what they used."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Literal

from veil.errors import InputError, NoRoom, RangeError
from veil.server.answers.of_service import TokenJson
from veil.server.store.database import Database
from veil.server.store.schema import Row, Statements

# Number of uses that are held at most while the disk is full; the oldest go.
_MOST_HELD = 100_000
Scope = Literal["localize", "contribute", "admin"]
SCOPES: tuple[Scope, ...] = ("localize", "contribute", "admin")
PREFIX = "veil_"
_MINUTE, _DAY = 60.0, 86400.0
# Largest numbers that a quota may have; databases keep them in eight bytes.
_MOST = 1 << 53


class Uncounted:
    """Requests and bytes of a token in a period, of this process; a kill loses them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: dict[tuple[str, str], tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._used)

    def of(self, token: str, period: str) -> tuple[int, int]:
        """Requests and bytes of a token in a period."""
        return self._used.get((token, period), (0, 0))

    def add(self, token: str, period: str, requests: int, size_bytes: int) -> None:
        """Add to the numbers that are held."""
        with self._lock:
            before = self.of(token, period)
            self._used[token, period] = before[0] + requests, before[1] + size_bytes
            if len(self._used) > _MOST_HELD:
                del self._used[next(iter(self._used))]

    @contextmanager
    def counted(self, database: Database) -> Iterator[Statements]:
        """A transaction that begins with counting all that is held, which is held again if the transaction fails."""
        taken: dict[tuple[str, str], tuple[int, int]] = {}
        try:
            with database.transaction() as statements:
                with self._lock:
                    taken, self._used = self._used, {}
                for key, used in taken.items():
                    add_usage(statements, *key, *used)
                yield statements
        except BaseException:
            for key, used in taken.items():
                self.add(*key, *used)
            raise


def add_usage(statements: Statements, token: str, period: str, requests: int, size_bytes: int) -> None:
    """Add to what a token used in a period."""
    statements.run(
        "INSERT INTO usage (token, period, requests, bytes) VALUES (:token, :period, :requests, :bytes) "
        "ON CONFLICT (token, period) DO UPDATE SET requests = usage.requests + excluded.requests, "
        "bytes = usage.bytes + excluded.bytes",
        token=token,
        period=period,
        requests=requests,
        bytes=size_bytes,
    )


class Unauthorized(InputError):
    """A request without a token, or with one that the server does not know (any more)."""


class Forbidden(InputError):
    """A token whose scopes or maps do not allow what was asked."""


class QuotaExceeded(InputError):
    """A token that has used up its requests or bytes; `retry_after_s` is when it may ask again."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Limits of a token: requests of a minute, and bytes of messages of a day. Raises RangeError for impossible numbers."""

    requests_per_minute: int = 600
    bytes_per_day: int = 10 << 30

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "bytes_per_day"):
            if not 0 <= getattr(self, name) <= _MOST:
                raise RangeError(f"{name} must be 0 to {_MOST}, got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class Token:
    """Record of a token; its secret is kept as a digest alone.

    - `id`: name in the server's records; it is no secret.
    - `name`: of whom it is for.
    - `scopes`: what it allows; "admin" allows everything.
    - `maps`: ids of the maps that it may use; None: all.
    """

    id: str
    name: str
    scopes: tuple[Scope, ...]
    maps: tuple[str, ...] | None
    quota: Quota
    created: float
    revoked: float | None = None

    def allows(self, scope: Scope) -> bool:
        """Whether the token has a scope."""
        return "admin" in self.scopes or scope in self.scopes

    def may_use(self, map_id: str) -> bool:
        """Whether the token may use a map."""
        return "admin" in self.scopes or self.maps is None or map_id in self.maps

    def as_json(self) -> TokenJson:
        """The token as JSON values, without its secret."""
        return {
            "token": self.id,
            "name": self.name,
            "scopes": list(self.scopes),
            "maps": None if self.maps is None else list(self.maps),
            "requests_per_minute": self.quota.requests_per_minute,
            "bytes_per_day": self.quota.bytes_per_day,
            "created": self.created,
            "revoked": self.revoked,
        }


class Tokens:
    """The tokens of a server and what they have used; while the database's disk is full, requests are counted in memory."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._uncounted = Uncounted()

    def make(
        self, name: str, scopes: Sequence[Scope], *, maps: Sequence[str] | None = None, quota: Quota | None = None
    ) -> tuple[Token, str]:
        """Make a token; returns it with its secret, which is told this once. Raises InputError for scopes that do not exist."""
        if not scopes or set(scopes) - set(SCOPES):
            raise InputError(f"scopes must be some of {', '.join(SCOPES)}, got {', '.join(scopes) or 'none'}")
        if not name.strip() or len(name) > 200 or not name.isprintable():
            raise InputError("a token needs a printable name of 1 to 200 characters, such as whom it is for")
        secret = PREFIX + secrets.token_urlsafe(32)
        token = _made(name, scopes, maps=maps, quota=quota)
        with self._database.transaction(durable=True) as statements:
            _insert(statements, token, _digest(secret))
        return token, secret

    def all(self) -> list[Token]:
        """All tokens, oldest first, revoked ones too."""
        with self._database.transaction() as statements:
            return [_token(row) for row in statements.all("SELECT * FROM tokens ORDER BY created, id")]

    def revoke(self, token_id: str) -> Token | None:
        """Have a token allow nothing from now on; None for one that does not exist."""
        with self._database.transaction(durable=True) as statements:
            now = time.time()
            statements.run("UPDATE tokens SET revoked = :now WHERE id = :id AND revoked IS NULL", now=now, id=token_id)
            row = statements.one("SELECT * FROM tokens WHERE id = :id", id=token_id)
        return None if row is None else _token(row)

    def id_of(self, secret: str) -> str | None:
        """Id of the token of a secret, which is charged with nothing; None for an unknown or revoked one."""
        with self._database.transaction() as statements:
            row = statements.one("SELECT id, revoked FROM tokens WHERE digest = :digest", digest=_digest(secret))
        return None if row is None or row["revoked"] is not None else str(row["id"])

    def admit(self, secret: str | None, scope: Scope | None, *, body_bytes: int = 0) -> Token:
        """The token of a secret, charged with one request and a number of bytes; `scope` None asks for no scope.

        Raises Unauthorized for an unknown or revoked one, Forbidden without the scope, QuotaExceeded beyond its quota.
        """
        if not secret:
            raise Unauthorized("the request has no token; send it as `Authorization: Bearer veil_...`")
        digest = _digest(secret)

        def known(statements: Statements) -> Token:
            row = statements.one("SELECT * FROM tokens WHERE digest = :digest", digest=digest)
            if row is None or row["revoked"] is not None:
                raise Unauthorized("the token is unknown or revoked; ask the server's administrator for another")
            token = _token(row)
            if scope is not None and not token.allows(scope):
                raise Forbidden(f"the token does not have the scope {scope!r}; it has {', '.join(token.scopes)}")
            return token

        return self._charged(known, body_bytes)

    def admit_subject(
        self,
        issuer: str,
        subject: str,
        scopes: Sequence[Scope],
        scope: Scope | None,
        *,
        quota: Quota | None = None,
        body_bytes: int = 0,
    ) -> Token:
        """The token of a subject of another issuer, who was admitted there, charged as `admit` does; made where it is missing.

        It has no secret: only the issuer's access tokens lead to it. `scopes` are those that the access token gives, `quota` is
        that of a new one. Revoking it keeps the subject out. Raises as `admit` does.
        """
        if not scopes:
            raise Forbidden("the access token gives none of this server's scopes; the issuer's administrator can grant some")
        key = "oidc:" + _digest(f"{len(issuer)} {issuer} {subject}")  # no digest of a secret has a colon

        def known(statements: Statements) -> Token:
            row = statements.one("SELECT * FROM tokens WHERE digest = :digest", digest=key)
            if row is None:
                name = "".join(char if char.isprintable() else "?" for char in f"{subject} of {issuer}")[:200]
                made = _made(name, scopes, maps=None, quota=quota)
                _insert(statements, made, key)
                row = statements.one("SELECT * FROM tokens WHERE digest = :digest", digest=key)
                assert row is not None
            if row["revoked"] is not None:
                raise Unauthorized("this server's administrator has revoked the access of the token's subject")
            token = replace(_token(row), scopes=tuple(name for name in SCOPES if name in scopes))
            if token.scopes != _token(row).scopes:
                statements.run("UPDATE tokens SET scopes = :scopes WHERE id = :id", scopes=",".join(token.scopes), id=token.id)
            if scope is not None and not token.allows(scope):
                raise Forbidden(f"the access token does not give the scope {scope!r}; it gives {', '.join(token.scopes)}")
            return token

        return self._charged(known, body_bytes)

    def _charged(self, known: Callable[[Statements], Token], body_bytes: int) -> Token:
        """The token that `known` finds, charged in the database, or in memory where that has no room."""
        if not self._database.is_full():
            try:
                with self._uncounted.counted(self._database) as statements:
                    token = known(statements)
                    for period in _allowed(statements, token, body_bytes, self._uncounted):
                        add_usage(statements, token.id, period, 1, body_bytes)
                return token
            except NoRoom:
                pass
        with self._database.transaction() as statements:
            token = known(statements)
            for period in _allowed(statements, token, body_bytes, self._uncounted):
                self._uncounted.add(token.id, period, 1, body_bytes)
        return token

    def count(self) -> None:
        """Count in the database what is counted in memory, if there is room."""
        if self._uncounted and not self._database.is_full():
            with suppress(NoRoom), self._uncounted.counted(self._database):
                pass

    def usage(self, token: Token) -> dict[str, int]:
        """Requests of this minute and of today, and bytes of today."""
        minute, day = _periods(time.time())
        with self._database.transaction() as statements:
            rows = {
                row["period"]: row
                for row in statements.all(
                    "SELECT period, requests, bytes FROM usage WHERE token = :token AND period IN (:minute, :day)",
                    token=token.id,
                    minute=minute,
                    day=day,
                )
            }
        empty: Row = {"requests": 0, "bytes": 0}
        more = self._uncounted.of(token.id, day)
        return {
            "requests_this_minute": int(rows.get(minute, empty)["requests"]) + self._uncounted.of(token.id, minute)[0],
            "requests_today": int(rows.get(day, empty)["requests"]) + more[0],
            "bytes_today": int(rows.get(day, empty)["bytes"]) + more[1],
        }

    def forget_usage(self, before_s: float) -> None:
        """Delete what was counted in periods that ended before a moment (seconds since 1970)."""
        minute, day = _periods(before_s)
        with self._database.transaction() as statements:
            statements.run("DELETE FROM usage WHERE period LIKE 'm%' AND period < :minute", minute=minute)
            statements.run("DELETE FROM usage WHERE period LIKE 'd%' AND period < :day", day=day)


def _made(name: str, scopes: Sequence[Scope], *, maps: Sequence[str] | None, quota: Quota | None) -> Token:
    """A new token."""
    return Token(
        id="t" + secrets.token_hex(8),
        name=name,
        scopes=tuple(scope for scope in SCOPES if scope in scopes),
        maps=None if maps is None else tuple(maps),
        quota=quota or Quota(),
        created=time.time(),
    )


def _insert(statements: Statements, token: Token, digest: str) -> None:
    """Enter a token, which is found by a digest."""
    statements.run(
        "INSERT INTO tokens (id, digest, name, scopes, maps, requests_per_minute, bytes_per_day, created, revoked) "
        "VALUES (:id, :digest, :name, :scopes, :maps, :requests, :bytes, :created, NULL)",
        id=token.id,
        digest=digest,
        name=token.name,
        scopes=",".join(token.scopes),
        maps=None if token.maps is None else json.dumps(token.maps),
        requests=token.quota.requests_per_minute,
        bytes=token.quota.bytes_per_day,
        created=token.created,
    )


def _allowed(statements: Statements, token: Token, body_bytes: int, uncounted: Uncounted) -> tuple[str, str]:
    """The periods in which a request is to be counted. Raises QuotaExceeded."""
    now = time.time()
    minute, day = _periods(now)
    for period, allowed, length in (
        (minute, (token.quota.requests_per_minute, None), _MINUTE),
        (day, (None, token.quota.bytes_per_day), _DAY),
    ):
        row = statements.one(
            "SELECT requests, bytes FROM usage WHERE token = :token AND period = :period", token=token.id, period=period
        )
        requests, total = uncounted.of(token.id, period)
        if row is not None:
            requests, total = requests + int(row["requests"]), total + int(row["bytes"])
        wait = length - now % length
        if allowed[0] is not None and requests + 1 > allowed[0]:
            reason = f"the token has used its {allowed[0]} requests of this minute; wait {math.ceil(wait)} s"
            raise QuotaExceeded(reason, wait)
        if allowed[1] is not None and body_bytes and total + body_bytes > allowed[1]:
            raise QuotaExceeded(
                f"the token has used {total} of its {allowed[1]} bytes of today; wait {math.ceil(wait)} s", wait
            )
    return minute, day


def _periods(now: float) -> tuple[str, str]:
    """Names of the minute and of the day (UTC) of a moment."""
    return f"m{int(now // _MINUTE):012d}", f"d{int(now // _DAY):012d}"


def _digest(secret: str) -> str:
    """Digest of a secret, which alone is kept; it has 256 random bits, so that no salt or slow hash is needed."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _token(row: Row) -> Token:
    return Token(
        id=row["id"],
        name=row["name"],
        scopes=tuple(scope for scope in SCOPES if scope in row["scopes"].split(",")),
        maps=None if row["maps"] is None else tuple(json.loads(row["maps"])),
        quota=Quota(requests_per_minute=row["requests_per_minute"], bytes_per_day=row["bytes_per_day"]),
        created=row["created"],
        revoked=row["revoked"],
    )
