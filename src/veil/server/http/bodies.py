"""Bodies of requests: of known, bounded length before they are read, and messages are looked at by their header first."""

from __future__ import annotations

import asyncio
import time

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veil.errors import InputError
from veil.server.access.shares import Shares
from veil.server.http.entrance import holder_of
from veil.server.http.problems import NoLength, TooLarge, TooSlow, answer_to, is_json
from veil.server.jobs.processes import Busy
from veil.server.maps.policy import MapPolicy, NotAMessage, Refused
from veil.wire.codec import message_length
from veil.wire.head import HEAD_BYTES

MESSAGE_TYPE = "application/vnd.veil.message"
# The longest body that is no message, and the longest that is one whatever a map's policy says.
MOST_JSON, MOST_MESSAGE = 64 << 10, 256 << 20
# The longest request of the GeoPoseProtocol, which holds a message in base64, and how the paths of its routes end.
MOST_GEOPOSE, GEOPOSE = 32 << 20, "/geopose"
# Queries of private retrieval for tiles (docs/reference/tiles.md#served), and the longest request of them.
TILE_QUERIES_TYPE, MOST_TILE_QUERIES = "application/vnd.veil.tile-queries", 64 << 20
# Bodies of all requests of a server together that brought a valid token, and of all others.
MOST_HELD, MOST_HELD_OF_ADDRESSES = 512 << 20, 128 << 20
# Seconds that every body has, and bytes a second that it has to come with beyond them.
LEAST_BODY_S, LEAST_RATE = 5.0, 16 << 10
_WITH_BODY = ("POST", "PUT", "PATCH")


class BoundedBodies:
    """A layer around an application that refuses bodies of unknown or too great length, and ends those that come too slowly.

    `seconds` is the longest time of a body (`body_seconds`). Who asks has a share of what bodies of all requests together may
    hold, those that wait, too; tokens share `most_bytes`, addresses `most_of_addresses`. Whatever an application raises gets an
    answer here: what is around it would write the text of the error, with what a client sent, into the log.
    """

    def __init__(
        self, app: ASGIApp, seconds: float, most_bytes: int = MOST_HELD, most_of_addresses: int = MOST_HELD_OF_ADDRESSES
    ) -> None:
        self._app = app
        self._seconds = seconds
        self._of_tokens = Shares(most_bytes)
        self._of_addresses = Shares(most_of_addresses)

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
            holder = holder_of(scope)
            shares = self._of_tokens if holder.is_token else self._of_addresses
            amount = length if length > MOST_JSON else 0  # small ones are bounded by the number of connections
            with shares.taken(holder.name, amount, "the server holds as many messages as it can; ask again in a moment"):
                await self._served(scope, receive, send, body_seconds(length, self._seconds))
        except (NoLength, TooLarge, NotAMessage, Busy) as error:
            await answer_to(error)(scope, receive, send)

    async def _served(self, scope: Scope, receive: Receive, send: Send, seconds: float) -> None:
        """Serve a request whose body is not too long, and has to arrive in time."""
        until = time.monotonic() + seconds
        complete = begun = False
        late: TooSlow | None = None

        async def bounded() -> Message:
            nonlocal complete, late
            if complete:
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.01, until - time.monotonic()))
            except asyncio.TimeoutError:
                late = TooSlow(f"the body did not arrive within {seconds:.3g} s")
                raise late from None
            complete = not message.get("more_body", False)
            return message

        async def passed_on(message: Message) -> None:
            nonlocal begun
            if late is None:
                begun = True
                await send(message)

        try:
            await self._app(scope, bounded, passed_on)
        except Exception as error:
            answer = answer_to(late or error)
            if not begun:
                await answer(scope, receive, send)
        else:
            if late is not None and not begun:  # FastAPI calls it an error of JSON
                await answer_to(late)(scope, receive, send)


def body_seconds(length: int, most_s: float) -> float:
    """Seconds within which a body of this length in bytes has to arrive."""
    return min(most_s, LEAST_BODY_S + length / LEAST_RATE)


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

    Raises NotAMessage for another type, TooLarge for a longer body, InputError for a shorter one.
    """
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != TILE_QUERIES_TYPE:
        raise NotAMessage(f"the body's type is {kind[:100] or 'not said'}; here only {TILE_QUERIES_TYPE} is read")
    if said_length(request) > length:
        raise TooLarge(f"the request has {said_length(request)} bytes; every device sends {length} here")
    if said_length(request) < length:  # nobody waits for what cannot be answered
        raise InputError(f"every device sends {length} bytes here, and this request has {said_length(request)}")
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
