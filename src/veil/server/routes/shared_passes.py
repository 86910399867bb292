"""Queries of several devices that share one pass over all records, which is what private retrieval mostly costs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from veil.server.jobs.processes import Busy

Work = Callable[[Sequence[bytes]], list[bytes]]


@dataclass(kw_only=True, eq=False)
class _Request:
    queries: Sequence[bytes]
    answers: list[bytes] | None = field(default=None)


class SharedPasses:
    """Answers requests one pass after the other; those that come during a pass share the next.

    - `work`: answers queries by one pass. Whoever asks has checked them: what one request raises, all of the pass raise.
    - `most_queries`: in one pass, but for a single request that has more. They bound the memory of answers.
    - `most_waiting`: requests that are answered or wait; more raise Busy.
    """

    def __init__(self, work: Work, *, most_queries: int = 64, most_waiting: int = 64) -> None:
        self._work = work
        self._most_queries = most_queries
        self._seats = threading.BoundedSemaphore(most_waiting)
        self._passing = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: list[_Request] = []

    def answers(self, queries: Sequence[bytes]) -> list[bytes]:
        """The answer to each query. Raises Busy, and what the work raises."""
        if not self._seats.acquire(blocking=False):
            raise Busy("the server answers as many fetches of tiles as it can; localize again in a moment")
        request = _Request(queries=queries)
        try:
            with self._lock:
                self._waiting.append(request)
            with self._passing:
                if request.answers is None:
                    self._pass(request)
        finally:
            self._seats.release()
            with self._lock:
                self._waiting = [item for item in self._waiting if item is not request]
        assert request.answers is not None
        return request.answers

    def _pass(self, first: _Request) -> None:
        """One pass for a request and as many of those that wait as there is room for."""
        with self._lock:
            taken, count = [first], len(first.queries)
            for item in self._waiting:
                if item is not first and item.answers is None and count + len(item.queries) <= self._most_queries:
                    taken.append(item)
                    count += len(item.queries)
        answers = iter(self._work([query for item in taken for query in item.queries]))
        for item in taken:
            item.answers = [next(answers) for _ in item.queries]
