"""Requests that a server must outlive, by number and seed: damaged, forged, garbage, endless, and slow ones, as bytes."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from veil.wire.codec import CHECKSUM_BYTES
from veil.wire.head import HEAD_BYTES
from worlds.servers import MESSAGE_TYPE, geopose_request

JSON = "application/json"
HOST = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One hostile request: `parts` are sent one after another, with `pause_s` between them.

    `token` is that of `Target.tokens` whose answers are looked through for what it may not know; "" for none.
    """

    kind: str
    method: str
    parts: tuple[bytes, ...]
    pause_s: float = 0.0
    token: str = ""


@dataclass(frozen=True, kw_only=True)
class Target:
    """Knowledge of an attacker: an open map, secrets of its own tokens by name, accepted messages, and ids of others.

    `tiles` are the path of a version of tiles, and the lengths of requests to both of their exits.
    """

    map_id: str
    tokens: dict[str, str]
    messages: tuple[bytes, ...]
    others: tuple[str, ...]
    tiles: tuple[str, int, int] = ("/v1/tiles/none/0", 8, 8)
    schema: tuple[Exchange, ...] = field(default=(), repr=False)


def exchange(target: Target, seed: int, number: int) -> Exchange:
    """The hostile request of a number."""
    random = np.random.default_rng([seed, number])
    kinds = [kind for kind in KINDS if kind != "schema" or target.schema]
    weights = np.array([KINDS[kind][0] for kind in kinds])
    kind = kinds[int(random.choice(len(kinds), p=weights / weights.sum()))]
    return replace(KINDS[kind][1](target, random), kind=kind)


def request(
    target: Target, method: str, path: str, *, token: str = "", body: bytes | None = None, kind: str = JSON, more: bytes = b""
) -> Exchange:
    """A request as HTTP wants it."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {HOST}"]
    if token:
        lines.append(f"Authorization: Bearer {target.tokens.get(token, token)}")
    if body is not None:
        lines += [f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n" + more + b"\r\n"
    return Exchange(kind="", method=method, parts=(head + (body or b""),), token=token if token in target.tokens else "")


def sealed(body: bytes) -> bytes:
    """A message body with the checksum that fits."""
    return body + hashlib.blake2b(body, digest_size=CHECKSUM_BYTES, person=b"veil wire v1").digest()


def mutated(message: bytes, random: np.random.Generator) -> bytes:
    """A message with some bytes exchanged, cut, repeated or from another, mostly with a checksum that fits."""
    body = bytearray(message[:-CHECKSUM_BYTES])
    how = int(random.integers(6))
    if how == 0:  # of the header, which decides what is allocated
        for place in random.integers(4, HEAD_BYTES, random.integers(1, 4)):
            body[place] = int(random.integers(256))
    elif how == 1:
        for place in random.integers(HEAD_BYTES, len(body), random.integers(1, 50)):
            body[place] = int(random.integers(256))
    elif how == 2:  # numbers that are none, or beyond all bounds
        place = int(random.integers(HEAD_BYTES // 4, len(body) // 4)) * 4
        body[place : place + 4] = np.float32(random.choice([np.nan, np.inf, -np.inf, 3e38, 1e-45])).tobytes()
    elif how == 3:
        del body[int(random.integers(len(body))) :]
    elif how == 4:
        place = int(random.integers(len(body)))
        body[place:place] = random.bytes(int(random.integers(1, 2000)))
    else:  # all of one value
        body[HEAD_BYTES:] = bytes([int(random.integers(256))]) * (len(body) - HEAD_BYTES)
    return sealed(bytes(body)) if random.random() < 0.8 else bytes(body) + message[-CHECKSUM_BYTES:]


def _message(target: Target, random: np.random.Generator) -> Exchange:
    message = mutated(target.messages[int(random.integers(len(target.messages)))], random)
    route = "localize" if random.random() < 0.25 else "contributions"
    token = "localize" if route == "localize" else "contribute"
    return request(target, "POST", f"/v1/maps/{target.map_id}/{route}", token=token, body=message, kind=MESSAGE_TYPE)


def _raw_data(target: Target, random: np.random.Generator) -> Exchange:
    begin = [b"\xff\xd8\xff\xe0", b"\x89PNG", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"VEIL", b"", b"\x00\x00\x00\x18ftypheic"]
    body = begin[int(random.integers(len(begin)))] + random.bytes(int(random.integers(0, 3000)))
    kind = [MESSAGE_TYPE, "image/jpeg", "application/octet-stream", "multipart/form-data; boundary=x", "x" * 500]
    route = ["localize", "contributions", "geopose"][int(random.integers(3))]
    path, told = f"/v1/maps/{target.map_id}/{route}", kind[int(random.integers(len(kind)))]
    return request(target, "POST", path, token="both", body=body, kind=told)


def _strange(random: np.random.Generator, depth: int = 0) -> Any:
    """A value of JSON that nobody expects."""
    simple: list[Any] = [None, True, -1, 10**400, 1e308, float("nan"), "", "\ud800", "x" * 3000, "../../etc/passwd", "\x00"]
    simple += ["'; DROP TABLE tokens; --", 2**63, -(2**63) - 1, 0.5, "\u202e", [], {}]
    pick = int(random.integers(len(simple) + 3))
    if pick < len(simple) or depth > 3:
        return simple[pick % len(simple)]
    if pick == len(simple):
        return [_strange(random, depth + 1) for _ in range(int(random.integers(1, 6)))]
    return {str(_strange(random, 9))[:40]: _strange(random, depth + 1) for _ in range(int(random.integers(1, 6)))}


def _json(target: Target, random: np.random.Generator) -> Exchange:
    fields = ["name", "policy", "scopes", "maps", "requests_per_minute", "bytes_per_day", "place", "origin", "enu_from_map"]
    value = {name: _strange(random) for name in random.choice(fields, int(random.integers(1, 5)), replace=False)}
    body = json.dumps(value if random.random() < 0.9 else _strange(random)).encode()
    how = random.random()
    if how < 0.1:
        body = b"[" * 60_000 if how < 0.05 else b'{"a":' * 12_000
    elif how < 0.2:
        body = random.bytes(int(random.integers(1, 500)))
    elif how < 0.25:
        body = b'{"name": "' + b"x" * 70_000 + b'"}'
    paths = [
        ("POST", "/v1/maps"),
        ("POST", "/v1/tokens"),
        ("PUT", f"/v1/maps/{target.map_id}/place"),
        ("PUT", "/v1/maps/m0/place"),
    ]
    method, path = paths[int(random.integers(len(paths)))]
    return request(target, method, path, token=["admin", "admin", "both", ""][int(random.integers(4))], body=body)


def _geopose(target: Target, random: np.random.Generator) -> Exchange:
    message = target.messages[int(random.integers(len(target.messages)))]
    value = geopose_request(message)
    camera = value["sensorReadings"]["cameraReadings"][0]
    value["timestamp"] = camera["timestamp"] = 1.8e12
    camera["imageBytes"] = base64.b64encode(mutated(message, random)).decode()
    readings = value["sensorReadings"]
    places: list[dict[str, Any]] = [value, readings, camera, camera["privacy"]]
    for _ in range(int(random.integers(0, 3))):
        place = places[int(random.integers(len(places)))]
        names = [*place, "accelerometerReadings", "geolocationReadings", "wifiReadings", "sensors"]
        place[names[int(random.integers(len(names)))]] = _strange(random)
    if random.random() < 0.3:
        axes = {axis: _strange(random) for axis in ("x", "y", "z", "latitude", "longitude", "sensorId", "rigRotation")}
        readings["accelerometerReadings"] = readings["geolocationReadings"] = [axes]
        value["sensors"] = [axes]
    text = json.dumps(value).encode()
    body = text if random.random() < 0.8 else text[: int(random.integers(len(text)))]
    path = "/geopose" if random.random() < 0.5 else f"/v1/maps/{target.map_id}/geopose"
    accept = b"Accept: application/vnd.oscp+json; version=%d\r\n" % random.integers(0, 1000) if random.random() < 0.2 else b""
    return request(target, "POST", path, token="localize", body=body, more=accept)


def _path(target: Target, random: np.random.Generator) -> Exchange:
    names = [
        "..%2f..%2fetc%2fpasswd",
        "../../veil.sqlite",
        "%2e%2e/%2e%2e",
        "....//",
        "%00",
        "%ff%fe",
        "m" * 6000,
        "'%20OR%201=1--",
    ]
    names += [
        "%ed%a0%80",
        "C:%5cWindows",
        ";id",
        "${jndi:ldap://x}",
        "%0d%0aX-Injected:%201",
        "~root",
        "*",
        "%",
        "%%32%65",
        *target.others,
    ]
    name = names[int(random.integers(len(names)))]
    paths = [
        "/v1/maps/{}",
        "/v1/maps/{}/localize",
        "/v1/jobs/{}",
        "/v1/contributions/{}",
        "/v1/contributions/{}/receipt",
        "/{}",
    ]
    paths += ["/v1/tokens/{}", "/v1/maps/{}/jobs", "/v1/contributions?map_id={}", "/v1/receipts?after={}", "/static/{}", "//{}"]
    method = ["GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH", "TRACE"][int(random.integers(8))]
    body = None if method in ("GET", "HEAD", "OPTIONS", "TRACE") else b"{}"
    path = paths[int(random.integers(len(paths)))].format(name)
    return request(target, method, path, token=["both", "localize", "contribute", ""][int(random.integers(4))], body=body)


def _token(target: Target, random: np.random.Generator) -> Exchange:
    real = target.tokens["both"]
    tokens = [
        real[:-1],
        real + "x",
        real.upper(),
        real[::-1],
        "veil_",
        "x" * 8000,
        "\xff",
        "null",
        f"{real} {real}",
        *target.others,
    ]
    token = tokens[int(random.integers(len(tokens)))]
    paths = ["/v1/maps", "/v1/contributions?everybody=true", "/v1/me/usage", "/v1/tokens", "/metrics", "/v1/receipts"]
    path = paths[int(random.integers(len(paths)))]
    if random.random() < 0.3:  # a known token that lacks the scope
        return request(target, "GET", path, token=["localize", "contribute", "both"][int(random.integers(3))])
    return request(target, "GET", path, token=token)


def _head(target: Target, random: np.random.Generator) -> Exchange:
    more = [
        b"X-Long: " + b"a" * int(random.integers(10_000, 40_000)) + b"\r\n",
        b"".join(b"X-%d: 1\r\n" % number for number in range(int(random.integers(100, 3000)))),
        b"Content-Length: 5\r\nContent-Length: 6\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: 99999999999999999999\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding: gzip, chunked\r\n",
        b"Expect: 100-continue\r\nContent-Length: 300000000\r\n",
        b"Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\n",
        b"Folded: a\r\n b\r\n",
        b"No-Colon\r\n",
        b"Nul: a\x00b\r\n",
        b"Host: other.example\r\n",
        b"Connection: close, keep-alive\r\n",
    ]
    path = f"/v1/maps/{target.map_id}" + ["/localize", ""][int(random.integers(2))]
    return request(target, "POST", path, token="localize", more=more[int(random.integers(len(more)))])


def _garbage(target: Target, random: np.random.Generator) -> Exchange:
    get = request(target, "GET", "/v1/policy").parts[0]
    options = [
        random.bytes(int(random.integers(1, 4000))),
        b"GET / HTTP/0.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + random.bytes(300) + b"\r\n\r\n",
        get * int(random.integers(2, 40)),
        get + random.bytes(200),
        b"\r\n" * 500 + get,
        b"CONNECT localhost:22 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET http://localhost/ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"get /healthz http/1.1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
        b"A" * 30_000,
        b"POST /v1/maps HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
    ]
    return Exchange(kind="", method="GET", parts=(options[int(random.integers(len(options)))],))


def _slow(target: Target, random: np.random.Generator) -> Exchange:
    message = target.messages[0]
    path = f"/v1/maps/{target.map_id}/localize"
    whole = request(target, "POST", path, token="localize", body=message, kind=MESSAGE_TYPE).parts[0]
    end = whole.index(b"\r\n\r\n") + 4
    unknown = request(target, "POST", path, token="veil_unknown", body=message, kind=MESSAGE_TYPE).parts[0]
    pick = int(random.integers(5))
    if pick == 0:  # a head that never ends
        parts = tuple(whole[place : place + 1] for place in range(60))
    elif pick == 1:  # a body that never ends
        parts = (whole[: end + 100], *(whole[place : place + 1] for place in range(end + 100, end + 160)))
    elif pick == 2:  # a body that goes on after it was refused
        parts = (unknown[:end], *(b"x" for _ in range(60)))
    elif pick == 3:  # nothing at all
        parts = (b"",)
    else:  # half a request, and then silence
        parts = (whole[: int(random.integers(1, len(whole)))],)
    return Exchange(kind="", method="POST", parts=parts, pause_s=0.2)


def _others(target: Target, random: np.random.Generator) -> Exchange:
    name = target.others[int(random.integers(len(target.others)))]
    pairs = [("GET", f"/v1/contributions/{name}"), ("DELETE", f"/v1/contributions/{name}"), ("GET", f"/v1/maps/{name}")]
    pairs += [
        ("GET", f"/v1/contributions/{name}/receipt"),
        ("GET", f"/v1/jobs/{name}"),
        ("GET", f"/v1/contributions?map_id={name}"),
    ]
    pairs += [("GET", "/v1/contributions?everybody=true"), ("GET", "/v1/maps"), ("DELETE", f"/v1/tokens/{name}")]
    pairs += [("GET", "/v1/receipts"), ("GET", "/v1/me/usage"), ("DELETE", f"/v1/maps/{name}")]
    method, path = pairs[int(random.integers(len(pairs)))]
    return request(target, method, path, token=["both", "contribute", "localize"][int(random.integers(3))])


def _tiles(target: Target, random: np.random.Generator) -> Exchange:
    """Queries for tiles: right ones, of other lengths, with bits after the last record; and files that are none of theirs."""
    base, *lengths = target.tiles
    number = int(random.integers(2))
    if random.random() < 0.4:
        names = ["manifest.json", "manifest.bin", "tiles.bin", "hint.bin", "matrix.bin", "one_server.json", "../versions.json"]
        names += ["%2e%2e/%2e%2e/veil.sqlite", "..%5c..%5cveil.sqlite", "hint.bin%00", "x" * 5000, "answers/region"]
        path = f"{base}/{names[int(random.integers(len(names)))]}"
        return request(target, "GET", path, more=b"Range: bytes=%d-%d\r\n" % tuple(random.integers(0, 1 << 40, 2).tolist()))
    length = lengths[number] if random.random() < 0.5 else int(random.integers(0, 2 * lengths[number]))
    exit = ["two-servers", "one-server", "three-servers", "..", ""][
        number if random.random() < 0.7 else int(random.integers(5))
    ]
    kind = ["application/vnd.veil.tile-queries", JSON, MESSAGE_TYPE, ""][int(random.choice(4, p=[0.7, 0.1, 0.1, 0.1]))]
    return request(target, "POST", f"{base}/answers/{exit}", body=random.bytes(length), kind=kind)


def _schema(target: Target, random: np.random.Generator) -> Exchange:
    return target.schema[int(random.integers(len(target.schema)))]


# What share of the requests is of each kind, and how one is made.
KINDS: dict[str, tuple[float, Callable[[Target, np.random.Generator], Exchange]]] = {
    "schema": (30.0, _schema),
    "message": (3.0, _message),
    "raw data": (9.0, _raw_data),
    "json": (14.0, _json),
    "geopose": (4.0, _geopose),
    "path": (10.0, _path),
    "token": (8.0, _token),
    "head": (6.0, _head),
    "garbage": (5.0, _garbage),
    "others": (10.0, _others),
    "tiles": (8.0, _tiles),
    "slow": (1.0, _slow),
}


def exchanges(target: Target, seed: int, count: int) -> Iterator[Exchange]:
    """Hostile requests of the numbers below `count`."""
    return (exchange(target, seed, number) for number in range(count))
