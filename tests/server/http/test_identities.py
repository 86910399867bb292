"""Access tokens of an OpenID Connect issuer: whole, young ones of this issuer, for this server, are accepted; no other is."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from veil.errors import InputError
from veil.server.access.tokens import Forbidden, Quota, QuotaExceeded, Tokens, Unauthorized
from veil.server.http import identities
from veil.server.http.identities import AGAIN_S, FRESH_S, KEPT_S, IdentityProvider, IssuerAway, Subject, fetched
from veil.server.service import Service
from veil.server.settings import ServerSettings
from veil.server.store.database import SqliteDatabase
from worlds.issuers import AUDIENCE, Issuer, issuing, rsa_key
from worlds.servers import running


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with issuing() as issuer:
        yield issuer


class Clock:
    """Seconds that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def provider(issuer: Issuer, clock: Clock | None = None, **settings: Any) -> IdentityProvider:
    configured = ServerSettings(oidc_issuer=issuer.url, oidc_audience=AUDIENCE, **settings)
    return IdentityProvider(configured, clock=clock or Clock())


def test_a_whole_token_names_its_subject(issuer: Issuer) -> None:
    """Both kinds of keys, an audience in a list, and scopes as text, as a list and down a path; other values give nothing."""
    here = provider(issuer)
    expected = Subject(issuer=issuer.url, subject="robot 7", scopes=("localize",))
    assert here.subject(issuer.token()) == expected
    assert here.subject(issuer.token(kid="ec", algorithm="ES256", aud=["other", AUDIENCE])) == expected
    both = here.subject(issuer.token(scope=["veil:contribute", "veil:localize", "veil:contribute", 3, "admin"]))
    assert both.scopes == ("contribute", "localize")
    path = provider(issuer, oidc_claim="realm_access.roles", oidc_scopes="mapper=contribute boss=admin")
    assert path.subject(issuer.token(realm_access={"roles": ["mapper", "x"]})).scopes == ("contribute",)
    assert path.subject(issuer.token(realm_access="boss")).scopes == ()
    assert (
        provider(issuer, oidc_claim="https://x.org/roles").subject(issuer.token(**{"https://x.org/roles": "veil:admin"})).scopes
    )


def none_signed(token: str) -> str:
    """A token whose signature is taken away, as its header then says."""
    head = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": "rsa"}).encode()).rstrip(b"=").decode()
    return f"{head}.{token.split('.')[1]}."


def signed_with_the_public_key(issuer: Issuer, token: str) -> str:
    """A token of HS256 whose shared key is the issuer's public one, which everybody has."""
    head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "rsa"}).encode()).rstrip(b"=").decode()
    said = f"{head}.{token.split('.')[1]}"
    public = issuer.keys["rsa"].public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    made = hmac.new(public, said.encode(), hashlib.sha256).digest()
    return f"{said}.{base64.urlsafe_b64encode(made).rstrip(b'=').decode()}"


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"iss": "https://elsewhere.example.org"}, "InvalidIssuer"),
        ({"iss": None}, "MissingRequiredClaim"),
        ({"aud": "another"}, "InvalidAudience"),
        ({"aud": None}, "MissingRequiredClaim"),
        ({"exp": int(time.time()) - 60}, "expired"),
        ({"exp": None}, "MissingRequiredClaim"),
        ({"exp": "soon"}, "does not verify"),
        ({"nbf": int(time.time()) + 3600}, "ImmatureSignature"),
        ({"sub": None}, "MissingRequiredClaim"),
        ({"sub": ""}, "no subject"),
        ({"sub": "x" * 300}, "no subject"),
        ({"jti": None}, "MissingRequiredClaim"),
        ({"iat": None}, "MissingRequiredClaim"),
        ({"client_id": None}, "MissingRequiredClaim"),
        ({"header": "JWT"}, "not an ID token"),
        ({"header": None}, "not an ID token"),
        ({"header": "logout+jwt"}, "says that it is 'logout\\+jwt'"),
        ({"kid": "unknown", "key": "own"}, "does not have"),
        ({"key": "own"}, "InvalidSignature"),
        ({"kid": None}, "does not have"),
        ({"algorithm": "RS512"}, "not signed with one of"),
        ({"algorithm": "PS256"}, "does not verify|not for"),
        ({"kid": "ec", "algorithm": "RS256", "key": "own"}, "does not verify|not for"),
        ({"pad": "x" * 20_000}, "longer than any"),
    ],
)
def test_every_other_token_is_refused(issuer: Issuer, claims: dict[str, Any], told: str) -> None:
    """Each differs in one thing from a token that is accepted."""
    assert provider(issuer).subject(issuer.token())
    if claims.get("algorithm") == "PS256":  # a key that is published for another algorithm alone
        issuer.answers["/realm/keys"] = json.dumps({"keys": [{**issuer.public("rsa"), "alg": "RS256"}]}).encode()
    if claims.get("key") == "own":
        claims = {**claims, "key": rsa_key(1)}
    with pytest.raises(Unauthorized, match=told):
        provider(issuer).subject(issuer.token(**claims))


KEYCLOAK_ACCESS = {"header": "JWT", "typ": "Bearer", "azp": "app", "scope": "openid veil:localize", "client_id": None}
KEYCLOAK_ID = {"header": "JWT", "typ": "ID", "azp": "app", "at_hash": "x", "scope": None, "client_id": None}


@pytest.mark.parametrize(
    ("claims", "told"),
    [
        (KEYCLOAK_ACCESS, None),
        ({"header": None, "jti": None, "iat": None}, None),
        ({"header": "application/at+jwt"}, None),
        ({"header": "AT+JWT"}, None),
        ({"header": "JWT", "token_use": "access"}, None),
        ({"header": "JWT", "scope": None, "client_id": None, "scp": ["veil:localize"]}, None),
        (KEYCLOAK_ID, "ID token"),
        ({**KEYCLOAK_ID, "typ": None, "at_hash": None}, "has none of scope"),
        ({**KEYCLOAK_ID, "typ": None, "at_hash": None, "nonce": "n"}, "ID token"),
        ({"header": "JWT", "c_hash": "x"}, "ID token"),
        ({"header": "JWT", "nonce": "x"}, "ID token"),
        ({"header": "JWT", "token_use": "id"}, "ID token"),
        ({"header": "JWT", "typ": "Refresh"}, "ID token"),
        ({"header": "JWT", "events": {}}, "ID token"),
        ({"header": "logout+jwt"}, "says that it is"),
        ({"jti": None}, "MissingRequiredClaim"),
    ],
)
def test_issuers_that_write_jwt_are_accepted_where_the_settings_say_so(
    issuer: Issuer, claims: dict[str, Any], told: str | None
) -> None:
    """Tokens as Keycloak, Cognito and Azure make them: access tokens pass, ID tokens of the same audience do not."""
    here = provider(issuer, oidc_types="at+jwt JWT")
    if told is None:
        assert here.subject(issuer.token(**claims)).subject == "robot 7"
    else:
        with pytest.raises(Unauthorized, match=told):
            here.subject(issuer.token(**claims))


def test_forged_signatures_are_refused(issuer: Issuer) -> None:
    """No signature, a shared key in place of a pair, another payload under a whole signature, and no token at all."""
    here, token = provider(issuer), issuer.token()
    head, payload, signature = token.split(".")
    other = issuer.token(scope="veil:admin").split(".")[1]
    for forged in (
        none_signed(token),
        signed_with_the_public_key(issuer, token),
        f"{head}.{other}.{signature}",
        f"{head}.{payload}.",
        "a.b.c",
        f"{base64.urlsafe_b64encode(b'[' * 9000).decode()}.x.y",
        "..",
        "\ud800.x.y",
    ):
        with pytest.raises(Unauthorized):
            here.subject(forged)
    with pytest.raises(InputError, match="oidc_algorithms"):
        provider(issuer, oidc_algorithms="RS256 HS256")
    with pytest.raises(InputError, match="oidc_algorithms"):
        provider(issuer, oidc_algorithms="none")


@pytest.mark.filterwarnings("ignore:The RSA key")
def test_a_short_key_of_the_issuer_is_refused(issuer: Issuer) -> None:
    issuer.keys["rsa"] = rsa_key(0, 1024)
    with pytest.raises(Unauthorized, match=r"2048|does not verify"):
        provider(issuer).subject(issuer.token())


def test_keys_rotate_and_are_asked_for_seldom(issuer: Issuer) -> None:
    """A new key is fetched with the first token that names it; invented names cause one request in `AGAIN_S`, not more."""
    clock = Clock()
    here = provider(issuer, clock)
    for _ in range(5):
        here.subject(issuer.token())
    assert len(issuer.asked) == 2
    del issuer.keys["rsa"]
    issuer.keys["rsa 2"] = rsa_key(1)
    clock.now += AGAIN_S + 1
    assert here.subject(issuer.token(kid="rsa 2"))
    assert len(issuer.asked) == 4
    for number in range(20):
        with pytest.raises(Unauthorized):
            here.subject(issuer.token(kid=f"made up {number}", key=issuer.keys["rsa 2"]))
    assert len(issuer.asked) == 4
    clock.now += AGAIN_S + 1
    for number in range(20):
        with pytest.raises(Unauthorized):
            here.subject(issuer.token(kid=f"made up {number}", key=issuer.keys["rsa 2"]))
    assert len(issuer.asked) == 6
    clock.now += FRESH_S + 1
    assert here.subject(issuer.token(kid="rsa 2")) and len(issuer.asked) == 8


def test_an_issuer_that_is_away_keeps_nobody_out_at_once(issuer: Issuer) -> None:
    """Known keys serve for `KEPT_S`; without any the answer says so at once, and the issuer is asked again later."""
    clock = Clock()
    here, token = provider(issuer, clock), issuer.token()
    assert here.subject(token)
    issuer.status = 500
    clock.now += FRESH_S + 1
    assert here.subject(token)
    clock.now += KEPT_S
    with pytest.raises(IssuerAway):
        here.subject(token)
    asked = len(issuer.asked)
    for _ in range(10):
        with pytest.raises(IssuerAway):
            here.subject(token)
    assert len(issuer.asked) == asked
    issuer.status = 200
    clock.now += AGAIN_S + 1
    assert here.subject(token)


@pytest.mark.parametrize(
    "answers",
    [
        {"/realm/.well-known/openid-configuration": b"<html>"},
        {"/realm/.well-known/openid-configuration": b"[]"},
        {"/realm/.well-known/openid-configuration": b'{"issuer": "https://other", "jwks_uri": "https://other/keys"}'},
        {"/realm/keys": b"null"},
        {"/realm/keys": b'{"keys": [3]}'},
        {"/realm/keys": b" " * (2 << 20)},
        {"redirect": b""},
        {"plain": b""},
    ],
)
def test_what_is_no_issuer_gives_no_keys(issuer: Issuer, answers: dict[str, bytes]) -> None:
    """Damaged, foreign and endless answers, a redirect, and keys at an address without encryption."""
    issuer.answers = answers
    if "redirect" in answers:
        issuer.status = 302
    if "plain" in answers:
        configuration = json.dumps({"issuer": issuer.url, "jwks_uri": "http://keys.example.org/keys"}).encode()
        issuer.answers = {"/realm/.well-known/openid-configuration": configuration}
    with pytest.raises(IssuerAway):
        provider(issuer).subject(issuer.token())


def test_a_slow_issuer_costs_bounded_time(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "ANSWER_S", 0.2)
    issuer.delay_s = 1.0
    begun = time.monotonic()
    with pytest.raises(OSError):
        fetched(f"{issuer.url}/keys")
    assert time.monotonic() - begun < 0.9
    with pytest.raises(ValueError):
        fetched("file:///etc/passwd")


def test_a_subject_is_a_token_without_a_secret(tmp_path: Path) -> None:
    """One record for each subject of each issuer, with quota and ownership; it can be revoked, and its key is no secret."""
    database = SqliteDatabase(tmp_path / "veil.sqlite")
    tokens = Tokens(database)
    first = tokens.admit_subject("https://a", "x", ["localize"], "localize")
    assert tokens.admit_subject("https://a", "x", ["localize", "contribute"], "contribute").id == first.id
    assert tokens.all()[0].scopes == ("localize", "contribute") and tokens.all()[0].name == "x of https://a"
    assert tokens.admit_subject("https://b", "x", ["localize"], None).id != first.id
    assert (
        tokens.admit_subject("https://a", "y\n", ["localize"], None, quota=Quota(requests_per_minute=1)).name
        == "y? of https://a"
    )
    with pytest.raises(QuotaExceeded):
        tokens.admit_subject("https://a", "y\n", ["localize"], None)
    with pytest.raises(Forbidden, match="does not give the scope 'admin'"):
        tokens.admit_subject("https://a", "x", ["localize"], "admin")
    with pytest.raises(Forbidden, match="none of this server's scopes"):
        tokens.admit_subject("https://a", "z", [], None)
    assert len(tokens.all()) == 3, "who has no scope leaves no record"
    with database.transaction() as transaction:
        digests = [row["digest"] for row in transaction.all("SELECT digest FROM tokens")]
    for digest in digests:
        for secret in (digest, digest.removeprefix("oidc:")):
            with pytest.raises(Unauthorized):
                tokens.admit(secret, None)
    tokens.revoke(first.id)
    with pytest.raises(Unauthorized, match="revoked"):
        tokens.admit_subject("https://a", "x", ["admin"], None)
    database.close()


@pytest.mark.slow
def test_the_server_takes_both_kinds_of_tokens(issuer: Issuer, tmp_path: Path) -> None:
    """Over HTTP: the server's own tokens as before, the issuer's by their scopes; a wrong one has 401, an absent issuer 503."""
    settings = ServerSettings(workers=1, oidc_issuer=issuer.url, oidc_audience=AUDIENCE, oidc_requests_per_minute=4)
    with running(Service(tmp_path / "store", settings), jobs=False) as server:
        assert server.ask("GET", "/v1/maps").status == 200
        issuer.status = 503
        away = server.ask("GET", "/v1/maps", token=issuer.token())
        assert away.status == 503 and away.value["type"] == "urn:veil:issuer" and away.headers["retry-after"] == "30"
    issuer.status = 200
    with running(Service(tmp_path / "store", settings), jobs=False) as server:
        usage = server.ask("GET", "/v1/me/usage", token=issuer.token())
        assert (
            usage.status == 200 and usage.value["scopes"] == ["localize"] and usage.value["name"] == f"robot 7 of {issuer.url}"
        )
        assert server.ask("GET", "/v1/tokens", token=issuer.token()).status == 403
        assert server.ask("GET", "/v1/tokens", token=issuer.token(scope="veil:admin")).status == 200
        assert server.ask("GET", "/v1/maps", token=issuer.token(aud="other")).status == 401
        assert [server.ask("GET", "/v1/maps", token=issuer.token()).status for _ in range(6)][-1] == 429
    with running(Service(tmp_path / "other", ServerSettings(workers=1)), jobs=False) as server:
        assert server.ask("GET", "/v1/maps", token=issuer.token()).status == 401, "no issuer is believed that is not set"


@pytest.mark.parametrize(
    "wrong",
    [
        {"oidc_issuer": "http://example.org", "oidc_audience": "x"},
        {"oidc_issuer": "example.org", "oidc_audience": "x"},
        {"oidc_issuer": "https://example.org?x=1", "oidc_audience": "x"},
        {"oidc_issuer": "https://example.org"},
        {"oidc_issuer": "https://example.org", "oidc_audience": "x", "oidc_claim": ""},
        {"oidc_scopes": "veil:root=root"},
        {"oidc_scopes": "=admin"},
        {"oidc_scopes": "admin"},
        {"oidc_requests_per_minute": -1},
    ],
)
def test_impossible_settings_are_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        ServerSettings(**wrong)
