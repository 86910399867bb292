"""Use of tokens while the disk was full: held in memory, and counted in the database when there is room again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from veil.server.store.database import Database
from veil.server.store.statements import Statements

# So many numbers are held at most; the oldest go.
_MOST = 100_000


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
            if len(self._used) > _MOST:
                del self._used[next(iter(self._used))]

    @contextmanager
    def counted(self, database: Database) -> Iterator[Statements]:
        """A transaction that begins with counting all that is held, which is held again if the transaction fails."""
        taken: dict[tuple[str, str], tuple[int, int]] = {}
        try:
            with database.transaction() as found:
                with self._lock:
                    taken, self._used = self._used, {}
                for key, used in taken.items():
                    add_usage(found, *key, *used)
                yield found
        except BaseException:
            for key, used in taken.items():
                self.add(*key, *used)
            raise


def add_usage(found: Statements, token: str, period: str, requests: int, size_bytes: int) -> None:
    """Add to what a token used in a period."""
    found.run(
        "INSERT INTO usage (token, period, requests, bytes) VALUES (:token, :period, :requests, :bytes) "
        "ON CONFLICT (token, period) DO UPDATE SET requests = usage.requests + excluded.requests, "
        "bytes = usage.bytes + excluded.bytes",
        token=token,
        period=period,
        requests=requests,
        bytes=size_bytes,
    )
