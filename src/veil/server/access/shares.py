"""Shares of what a server has once, by who holds them: nobody takes all, and what is free is there for the next one."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

from veil.server.jobs.processes import Busy

Result = TypeVar("Result")
# Whoever asks for more than its share is told so after this time: a client that asks again at once costs little.
PAUSE_S = 1.0


class Shares:
    """An amount that holders share: of one, no more than is still free.

    So one holder alone gets half of it, and n holders get a part of n + 1 each: there is always room for another one
    (dynamic thresholds, Choudhury and Hahne 1998). For each kind of resource there is one of these, for all threads.

    - `capacity`: of all holders together.
    - `least`: what one holder gets whatever is free, while there is room at all.
    """

    def __init__(self, capacity: int, *, least: int = 0) -> None:
        self._capacity, self._least = capacity, least
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()

    def take(self, holder: str, amount: int = 1) -> bool:
        """Take an amount for a holder, if it may have it; what was taken has to be given back."""
        with self._lock:
            free = self._capacity - self._held.total()
            if amount and (amount > free or self._held[holder] + amount > max(self._least, free)):
                return False
            self._held[holder] += amount
            return True

    def give(self, holder: str, amount: int = 1) -> None:
        """Give an amount back."""
        with self._lock:
            self._held[holder] -= amount
            if not self._held[holder]:
                del self._held[holder]

    def held(self, holder: str) -> int:
        """Amount that a holder has."""
        with self._lock:
            return self._held[holder]

    @contextmanager
    def taken(self, holder: str, amount: int, refusal: str) -> Iterator[None]:
        """An amount for the time of a block. Raises Busy, with what is told, if the holder may not have it."""
        if not self.take(holder, amount):
            raise Busy(refusal)
        try:
            yield
        finally:
            self.give(holder, amount)


class Seats:
    """Threads for work that waits for processes, shared by who asks, so that other requests are answered meanwhile.

    - `count`: of seats.
    - `least`: seats of one holder whatever is free.
    """

    def __init__(self, count: int, *, least: int) -> None:
        self.shares = Shares(count, least=least)
        self._limiter = CapacityLimiter(count)

    async def run(self, holder: str, task: Callable[..., Result], *arguments: object) -> Result:
        """The result of a task in a thread. Raises Busy, after a pause, for a holder who has its share of seats."""
        if not self.shares.take(holder):
            await asyncio.sleep(PAUSE_S)
            raise Busy("the server is working on as much as it can; ask again in a moment")
        try:
            return await to_thread.run_sync(task, *arguments, limiter=self._limiter)
        finally:
            self.shares.give(holder)
