"""An OpenID Connect issuer in a thread, whose keys and answers a test sets, and the access tokens that it gives."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

AUDIENCE = "veil-test"


@cache
def rsa_key(number: int, bits: int = 2048) -> Any:
    """A key pair, made once, as that takes a while."""
    return rsa.generate_private_key(65537, bits)


class Issuer(ThreadingHTTPServer):
    """Keys by their id, the claims that it puts into tokens, and what it is asked for.

    `answers` replaces what stands at a path; `status` is that of every answer.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.keys: dict[str, Any] = {
            "rsa": rsa_key(2),
            "ec": ec.generate_private_key(ec.SECP256R1()),
        }
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.status, self.delay_s = 200, 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/realm"

    def public(self, kid: str) -> dict[str, Any]:
        """The public key of an id, as the issuer publishes it."""
        key = self.keys[kid].public_key()
        made = RSAAlgorithm.to_jwk(key) if hasattr(key, "public_numbers") and "rsa" in kid else ECAlgorithm.to_jwk(key)
        return {**(json.loads(made) if isinstance(made, str) else made), "kid": kid, "use": "sig"}

    def answer(self, path: str) -> bytes:
        """The body at a path."""
        if path in self.answers:
            return self.answers[path]
        if path == "/realm/.well-known/openid-configuration":
            return json.dumps({"issuer": self.url, "jwks_uri": f"{self.url}/keys"}).encode()
        return json.dumps({"keys": [self.public(kid) for kid in self.keys]}).encode()

    def token(
        self,
        *,
        kid: str | None = "rsa",
        algorithm: str = "RS256",
        key: Any = None,
        header: str | None = "at+jwt",
        **claims: Any,
    ) -> str:
        """An access token of RFC 9068; `claims` None leave a claim out, `key` signs in place of the issuer's own.

        `header` is the type that its header says; None: none.
        """
        said = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": "robot 7",
            "exp": int(time.time()) + 300,
            "iat": int(time.time()),
            "jti": "4711",
            "client_id": "a robot's program",
            "scope": "openid veil:localize",
            **claims,
        }
        headers = {"typ": header} if kid is None else {"typ": header, "kid": kid}
        payload = {name: value for name, value in said.items() if value is not None}
        return jwt.encode(payload, key or self.keys[kid or "rsa"], algorithm=algorithm, headers=headers)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Issuer)
        self.server.asked.append(self.path)
        time.sleep(self.server.delay_s)
        body = self.server.answer(self.path)
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Location", self.server.url)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def issuing() -> Iterator[Issuer]:
    """An issuer that answers."""
    server = Issuer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
