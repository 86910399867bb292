"""Whether the database can be read, asked in a thread of its own, so that no other request stands before it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from anyio import CapacityLimiter, to_thread

from veil.errors import StorageTrouble

# How long an answer is good for, and how long one is waited for.
KEPT_S, LOOK_S = 1.0, 5.0


class Readiness:
    """Looks at what a server needs, at most once a second, whoever asks. For one event loop.

    `look` raises what is wrong.
    """

    def __init__(self, look: Callable[[], object]) -> None:
        self._look = look
        self._limiter: CapacityLimiter | None = None
        self._last: asyncio.Task[Exception | None] | None = None
        self._begun = 0.0

    async def look(self) -> None:
        """Return if all is well. Raises what `look` raised within the last second, StorageTrouble if it takes too long."""
        now = time.monotonic()
        if self._last is None or (self._last.done() and now - self._begun > KEPT_S):
            self._begun = now
            self._last = asyncio.create_task(self._looked())
        await asyncio.wait([self._last], timeout=max(0.0, self._begun + LOOK_S - now))
        if not self._last.done():
            raise StorageTrouble("the database does not answer")
        error = self._last.result()
        if error is not None:
            raise error

    async def _looked(self) -> Exception | None:
        self._limiter = self._limiter or CapacityLimiter(1)
        try:
            await to_thread.run_sync(self._look, limiter=self._limiter)
        except Exception as error:
            return error
        return None
