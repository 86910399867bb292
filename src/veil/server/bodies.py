"""Bodies of requests: of known, bounded length before they are read, and messages are looked at by their header first."""

from __future__ import annotations

import asyncio
import time

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veil.server.policy import MapPolicy, NotAMessage, Refused
from veil.server.problems import NoLength, TooLarge, TooSlow, answer_to, is_json
from veil.server.processes import Busy
from veil.wire.codec import message_length
from veil.wire.head import HEAD_BYTES

MESSAGE_TYPE = "application/vnd.veil.message"
# The longest body that is no message, and the longest that is one whatever a map's policy says.
MOST_JSON, MOST_MESSAGE = 64 << 10, 256 << 20
# The longest request of the GeoPoseProtocol, which holds a message in base64, and how the paths of its routes end.
MOST_GEOPOSE, GEOPOSE = 32 << 20, "/geopose"
# Queries of private retrieval for tiles (docs/reference/tiles.md#served), and the longest request of them.
TILE_QUERIES_TYPE, MOST_TILE_QUERIES = "application/vnd.veil.tile-queries", 64 << 20
# Bodies of all requests of a server together.
MOST_HELD = 512 << 20
_WITH_BODY = ("POST", "PUT", "PATCH")


class BoundedBodies:
    """A layer around an application that refuses bodies of unknown or too great length, and ends those that come too slowly.

    Bodies of all requests together hold `most_bytes` at most, of those that wait, too. Whatever an application raises gets an
    answer here: what is around it would write the text of the error, with what a client sent, into the log.
    """

    def __init__(self, app: ASGIApp, seconds: float, most_bytes: int) -> None:
        self._app = app
        self._seconds = seconds
        self._most_bytes = most_bytes
        self._held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        try:
            length = _require_length(
                str(scope["method"]), headers, MOST_GEOPOSE if scope["path"].endswith(GEOPOSE) else MOST_JSON
            )
            if length > MOST_JSON and self._held + length > self._most_bytes:
                raise Busy("the server holds as many messages as it can; ask again in a moment")
        except (NoLength, TooLarge, NotAMessage, Busy) as error:
            await answer_to(error)(scope, receive, send)
            return
        self._held += length
        try:
            await self._served(scope, receive, send)
        finally:
            self._held -= length

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request whose body is not too long."""
        until = time.monotonic() + self._seconds
        complete = begun = False

        async def bounded() -> Message:
            nonlocal complete
            if complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.01, until - time.monotonic()))
            except asyncio.TimeoutError:
                raise TooSlow(f"the body did not arrive within {self._seconds:g} s") from None
            complete = not message.get("more_body", False)
            return message

        async def told(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, bounded, told)
        except Exception as error:
            answer = answer_to(error)
            if not begun:
                await answer(scope, receive, send)


def _require_length(method: str, headers: dict[bytes, bytes], most_json: int) -> int:
    """The length of a body. Raises NoLength or TooLarge for one that is not to be read, NotAMessage if its type may be why."""
    if b"transfer-encoding" in headers or (method in _WITH_BODY and b"content-length" not in headers):
        raise NoLength("send the length of the body in Content-Length; bodies in chunks are not read")
    text = headers.get(b"content-length", b"0")
    if not text.isdigit() or len(text) > 15:
        raise NoLength("Content-Length must be a number of bytes")
    kind = headers.get(b"content-type", b"").split(b";")[0].strip().lower().decode("latin-1")
    most = {MESSAGE_TYPE: MOST_MESSAGE, TILE_QUERIES_TYPE: MOST_TILE_QUERIES}.get(kind, most_json)
    if int(text) > most:
        if most == MOST_JSON and not is_json(kind):
            raise NotAMessage(
                f"the body's type is {kind[:100] or 'not said'}, and {most} bytes of it are read at most; "
                f"send a message with `Content-Type: {MESSAGE_TYPE}`"
            )
        raise TooLarge(f"the body has {int(text)} bytes; {most} of this type are read at most")
    return int(text)


async def read_tile_queries(request: Request, length: int) -> bytes:
    """The body of a request for tiles, which must have a length that is known before.

    Raises NotAMessage for another type, TooLarge for a longer body.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != TILE_QUERIES_TYPE:
        raise NotAMessage(f"the body's type is {kind[:100] or 'not said'}; here only {TILE_QUERIES_TYPE} is read")
    if said_length(request) > length:
        raise TooLarge(f"the request has {said_length(request)} bytes; every device sends {length} here")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
    return bytes(body)


def said_length(request: Request) -> int:
    """The length of a request's body, as it says it."""
    return int(request.headers.get("content-length", "0"))


async def read_message(request: Request, policy: MapPolicy) -> bytes:
    """The message in a request's body, whose header is looked at before the rest is read.

    Raises NotAMessage for another type, TooLarge and Refused for a message that the policy does not accept.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != MESSAGE_TYPE:
        raise NotAMessage(f"the body's type is {kind[:100] or 'not said'}; only messages ({MESSAGE_TYPE}) are read")
    length = said_length(request)
    if length > policy.max_bytes:
        raise TooLarge(f"the message has {length} bytes; this map accepts {policy.max_bytes}: send fewer features")
    body = bytearray()
    looked = False
    async for chunk in request.stream():
        body += chunk
        if not looked and (len(body) >= HEAD_BYTES or len(body) >= length):
            asked = message_length(policy.require_head(bytes(body[:HEAD_BYTES])))
            if asked != length:
                raise Refused(f"the message's header asks for {asked} bytes, the request brings {length}; send it again whole")
            looked = True
    if not looked:
        policy.require_head(bytes(body))
    return bytes(body)
