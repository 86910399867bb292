"""Tokens: secrets that are kept as digests alone, scopes, maps and quotas."""

from __future__ import annotations

import time

import pytest

from veil.errors import InputError, RangeError
from veil.server.access.tokens import Forbidden, Quota, QuotaExceeded, Tokens, Unauthorized
from veil.server.store.database import Database
from worlds.storage import DatabaseUnderTest


@pytest.fixture
def tokens(database: Database) -> Tokens:
    return Tokens(database)


def test_a_secret_admits_its_token_until_it_is_revoked(tokens: Tokens, databases: DatabaseUnderTest) -> None:
    """The secret itself is in no file. Broken twin: the digest is."""
    made, secret = tokens.make("robot", ["localize"])
    assert tokens.admit(secret, "localize") == made and tokens.admit(secret, None) == made
    tokens._database.clear_log()
    assert databases.held(secret.encode()) == [] and databases.held(made.id.encode())
    for wrong in (None, "", "veil_", secret[:-1], secret + "A", "veil_\ud800"):
        with pytest.raises(Unauthorized):
            tokens.admit(wrong, "localize")
    assert tokens.revoke(made.id) is not None
    with pytest.raises(Unauthorized, match="revoked"):
        tokens.admit(secret, "localize")
    assert tokens.revoke("t0") is None


@pytest.mark.parametrize("scope", ["localize", "contribute", "admin"])
@pytest.mark.parametrize("asked", ["localize", "contribute", "admin"])
def test_a_scope_allows_itself_and_admin_everything(tokens: Tokens, scope: str, asked: str) -> None:
    _, secret = tokens.make("x", [scope])  # type: ignore[list-item]
    if scope in (asked, "admin"):
        tokens.admit(secret, asked)  # type: ignore[arg-type]
        return
    with pytest.raises(Forbidden, match=asked):
        tokens.admit(secret, asked)  # type: ignore[arg-type]


def test_maps_limit_whom_they_name(tokens: Tokens) -> None:
    some, _ = tokens.make("some", ["localize"], maps=["m1"])
    every, _ = tokens.make("all", ["localize"])
    admin, _ = tokens.make("admin", ["admin"], maps=["m1"])
    assert [some.may_use("m1"), some.may_use("m2"), every.may_use("m2"), admin.may_use("m2")] == [True, False, True, True]


def test_quotas_are_counted_by_minute_and_day(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    """Oracle: counts by hand under a clock that the test sets, steps backwards included."""
    now = [1e9 - 1e9 % 86400.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    made, secret = tokens.make("x", ["localize"], quota=Quota(requests_per_minute=3, bytes_per_day=100))
    for _ in range(3):
        tokens.admit(secret, "localize", body_bytes=30)
    with pytest.raises(QuotaExceeded, match="3 requests") as refused:
        tokens.admit(secret, "localize")
    assert 0 < refused.value.retry_after_s <= 60
    now[0] += 60
    with pytest.raises(QuotaExceeded, match="90 of its 100 bytes"):
        tokens.admit(secret, "localize", body_bytes=11)
    tokens.admit(secret, "localize", body_bytes=10)
    assert tokens.usage(made) == {"requests_this_minute": 1, "requests_today": 4, "bytes_today": 100}
    now[0] -= 60  # a clock that steps back does not forget
    with pytest.raises(QuotaExceeded, match="3 requests"):
        tokens.admit(secret, "localize")
    now[0] += 86400
    tokens.admit(secret, "localize", body_bytes=100)
    tokens.forget_usage(now[0])
    assert tokens.usage(made)["bytes_today"] == 100


def test_impossible_tokens_are_refused(tokens: Tokens) -> None:
    for name, scopes in (("", ["admin"]), ("a\nb", ["admin"]), ("x" * 201, ["admin"]), ("x", [])):
        with pytest.raises(InputError):
            tokens.make(name, scopes)  # type: ignore[arg-type]
    for wrong in (-1, 1 << 60):
        with pytest.raises(RangeError):
            Quota(requests_per_minute=wrong)
    assert tokens.all() == []
