"""The entrance of the server: who asks, by token or by address, and turns of those who ask, so that nobody fills it."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from anyio import CapacityLimiter, to_thread
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from veil.server.access.addresses import NOWHERE, Addresses
from veil.server.access.shares import Shares
from veil.server.http.problems import answer_to
from veil.server.jobs.processes import Busy

# Answered whoever else asks, and whatever for.
HEALTH = ("/healthz", "/readyz")
# Where a request's holder stands in its scope, and the name of what a connection is told of it.
HOLDER, EXTENSION = "veil.holder", "veil.holder"
# How long a request waits for its turn, how long a token is known without a look at the database, and how many are.
TURN_S, KNOWN_S, MOST_KNOWN = 10.0, 600.0, 4096
MOST_WAITING = 1024
_BUSY = "the server answers as many requests as it can; ask again in a moment"


@dataclass(frozen=True, kw_only=True)
class Holder:
    """Who a request counts for: a token, or an address from which no valid token came with it."""

    name: str
    is_token: bool


class Turns:
    """Requests that are let in one after the other, the holders in turn. For one event loop.

    - `most`: requests at a time.
    - `each`: of one holder.
    - `rate`: requests a second, once `burst` are used up, which come again at this rate.

    Those that wait have shares of `MOST_WAITING` seats.
    """

    def __init__(self, *, most: int, each: int, rate: float, burst: int) -> None:
        self._most, self._each, self._rate, self._burst = most, each, rate, burst
        self._in: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        self._left, self._counted = float(burst), time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._seats = Shares(MOST_WAITING)

    async def take(self, holder: str) -> None:
        """Wait for a turn, which has to be given back. Raises Busy if none comes in time, or too many of the holder wait."""
        with self._seats.taken(holder, 1, _BUSY):
            await self._waited(holder)

    async def _waited(self, holder: str) -> None:
        seat: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(holder, deque()).append(seat)
        self._let_in()
        try:
            await asyncio.wait_for(asyncio.shield(seat), TURN_S)
        except BaseException as error:
            if seat.done() and not seat.cancelled():
                self.give(holder)
            seat.cancel()
            if isinstance(error, asyncio.TimeoutError):
                raise Busy(_BUSY) from None
            raise

    def give(self, holder: str) -> None:
        """Give a turn back."""
        self._in[holder] -= 1
        if not self._in[holder]:
            del self._in[holder]
        self._let_in()

    def _let_in(self) -> None:
        """Let those in who may come in now."""
        while self._waiting and self._in.total() < self._most and self._is_paced():
            holder = next((name for name in self._waiting if self._in[name] < self._each), None)
            if holder is None:
                return
            seats = self._waiting[holder]
            seat = seats.popleft()
            if seats:
                self._waiting.move_to_end(holder)
            else:
                del self._waiting[holder]
            if not seat.cancelled():
                self._left -= 1
                self._in[holder] += 1
                seat.set_result(None)

    def _is_paced(self) -> bool:
        """Whether the rate allows another request now; if not, the next one is let in when it does."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + self._rate * (now - self._counted))
        self._counted = now
        if self._left >= 1:
            return True
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later((1 - self._left) / self._rate, self._again)
        return False

    def _again(self) -> None:
        self._timer = None
        self._let_in()


class Entrance:
    """A layer around an application that lets requests in by turns, and tells it who they count for.

    A request that brings a valid token counts for that token, every other one for its address, and these have turns of their
    own. A request has its turn until its body is asked for, or its answer begins: what it waits for then has other shares.

    - `addresses`: whose address a request counts for.
    - `identify`: the name of a valid token's holder, from its secret; None for another one. It may look at the database.
    """

    def __init__(self, app: ASGIApp, addresses: Addresses, identify: Callable[[str], str | None]) -> None:
        self._app, self._addresses, self._identify = app, addresses, identify
        self._known: OrderedDict[bytes, tuple[str, float]] = OrderedDict()
        self._looking = CapacityLimiter(4)
        self._of_tokens = Turns(most=16, each=4, rate=400.0, burst=400)
        self._of_addresses = Turns(most=8, each=4, rate=200.0, burst=400)
        # Only a rate, by turns of addresses: turns are given back at once.
        self._of_health = Turns(most=1, each=1, rate=400.0, burst=400)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            if scope["path"] in HEALTH:
                address = self._address(scope)
                await self._turn(self._of_health, address, scope)
                self._of_health.give(address.name)
                await self._app(scope, receive, send)
                return
            holder, digest = await self._entered(scope)
        except Busy as error:
            await answer_to(error)(scope, receive, send)
            return
        except _Gone:
            return
        turns = self._of_tokens if holder.is_token else self._of_addresses
        has_turn = True
        scope[HOLDER] = holder

        def give() -> None:
            nonlocal has_turn
            if has_turn:
                has_turn = False
                turns.give(holder.name)

        async def asked() -> Message:
            give()
            return await receive()

        async def passed_on(message: Message) -> None:
            give()
            if message["type"] == "http.response.start" and message["status"] == 401:
                self._known.pop(digest, None)
            await send(message)

        try:
            await self._app(scope, asked, passed_on)
        finally:
            give()

    async def _entered(self, scope: Scope) -> tuple[Holder, bytes]:
        """Who a request counts for, which has its turn then, and the digest of its secret. Raises Busy."""
        secret = secret_of(dict(scope["headers"]).get(b"authorization", b"").decode("latin-1"))
        digest = hashlib.sha256(secret.encode("latin-1")).digest()
        name, until = self._known.get(digest, (None, 0.0))
        if name is None or until < time.monotonic():
            address = self._address(scope)
            await self._turn(self._of_addresses, address, scope)
            name = await self._looked(address, secret) if secret else None
            if name is None:
                return address, digest
            self._of_addresses.give(address.name)
            self._keep(digest, name)
        token = Holder(name=name, is_token=True)
        await self._turn(self._of_tokens, token, scope)
        return token, digest

    def _address(self, scope: Scope) -> Holder:
        """Whose address a request counts for."""
        peer = scope["client"][0] if scope.get("client") else ""
        return Holder(name=self._addresses.holder(peer, scope["headers"]), is_token=False)

    async def _turn(self, turns: Turns, holder: Holder, scope: Scope) -> None:
        """Wait for the turn of a holder, for whom the connection then counts.

        Raises Busy, and _Gone for a connection that ended meanwhile, whose turn is nobody's.
        """
        belongs = scope.get("extensions", {}).get(EXTENSION, _nobody_asks)
        belongs(holder)
        await turns.take(holder.name)
        if not belongs(holder):
            turns.give(holder.name)
            raise _Gone

    async def _looked(self, address: Holder, secret: str) -> str | None:
        """The name of a token's holder; the turn is given back where it cannot be had."""
        try:
            return await to_thread.run_sync(self._identify, secret, limiter=self._looking)
        except Exception:  # a database or an issuer that is away: the routes say so
            return None
        except BaseException:
            self._of_addresses.give(address.name)
            raise

    def _keep(self, digest: bytes, name: str) -> None:
        """Remember whose secret has a digest."""
        self._known[digest] = name, time.monotonic() + KNOWN_S
        while len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)


def holder_of(scope: Scope) -> Holder:
    """Who a request counts for."""
    holder = scope.get(HOLDER)
    return holder if isinstance(holder, Holder) else Holder(name=NOWHERE, is_token=False)


def secret_of(authorization: str) -> str:
    """The secret of a Bearer token in the value of a header; empty: none."""
    kind, _, secret = authorization.partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""


class _Gone(Exception):
    """Nobody waits for an answer."""


def _nobody_asks(holder: Holder) -> bool:
    """A connection that is not told who its request counts for."""
    return True
